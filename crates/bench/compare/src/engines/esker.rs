//! esker, through its public interface.

use crate::engine::{Change, Direction, Engine, Reader, Result, Settings, Settle};
use esker::{Background, Batch, Compression, Db, Durability, Options, WriteBatch};
use esker_bench::load::Inside;
use std::time::Duration;

/// Entries of a scan that are not worth batches.
const SHORT: usize = 1_000;

pub(crate) struct Esker {
    db: Db,
}

impl Engine for Esker {
    const NAME: &'static str = "esker";
    const LSM: bool = true;
    const NOTE: &'static str = "`Durability::Buffered`, Snappy, two background threads; gets by `get_with` and `multi_get_with`, \
         scans by a new cursor each, long ones by its batches";
    type Reader<'a> = EskerReader<'a>;

    fn open(settings: &Settings) -> Result<Self> {
        let db = Options::new()
            .cache_size(settings.cache)
            .memtable_size(settings.memtable)
            // A large memtable is meant to be filled.
            .wal_segment_size((settings.memtable as u64 * 2).max(64 << 20))
            .bloom_bits(10)
            .compression(Compression::Snappy)
            .durability(if settings.sync { Durability::Sync } else { Durability::Buffered })
            .background(Background::Threads(2))
            .open(&settings.dir)?;
        Ok(Esker { db })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete(key)?)
    }

    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut batch = WriteBatch::new();
        for (key, value) in changes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        Ok(self.db.write(batch)?)
    }

    fn reader(&self) -> Result<EskerReader<'_>> {
        Ok(EskerReader { db: &self.db })
    }

    fn settle(&self, to: Settle) -> Result<bool> {
        match to {
            Settle::FirstLevel => self.db.flush()?,
            Settle::LastLevel => self.db.compact_range::<&[u8], _>(..)?,
        }
        Ok(true)
    }

    fn inside(&self) -> Inside {
        let stats = self.db.stats();
        Inside {
            level0: stats.levels.first().map(|level| level.tables),
            debt: Some(stats.pending_compaction_bytes),
            memory: Some(stats.memtable_bytes + stats.cache_bytes),
            stalled: Some(stats.stalls.values().map(|stall| stall.total).sum::<Duration>().as_secs_f64()),
        }
    }

    fn close(self) -> Result<()> {
        Ok(self.db.close()?)
    }
}

pub(crate) struct EskerReader<'a> {
    db: &'a Db,
}

impl Reader for EskerReader<'_> {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.db.get_with(key, read)?)
    }

    fn multi_get(&mut self, keys: &[&[u8]], mut each: impl FnMut(usize, &[u8])) -> Result<()> {
        let mut failed = None;
        self.db.multi_get_with(keys, |at, answer| match answer {
            Ok(Some(value)) => each(at, value),
            Ok(None) => {}
            Err(error) => failed = Some(error),
        });
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let mut cursor = self.db.cursor()?;
        match (from, direction) {
            (Some(from), _) => cursor.seek(from)?,
            (None, Direction::Forward) => cursor.seek_to_first()?,
            (None, Direction::Reverse) => cursor.seek_to_last()?,
        }
        let mut count = 0;
        if limit > SHORT {
            while cursor.valid() && count < limit {
                let read = |batch: &Batch<'_>| {
                    batch.iter().for_each(|(key, value)| each(key, value));
                    batch.len()
                };
                count += match direction {
                    Direction::Forward => cursor.next_batch(limit - count, read)?,
                    Direction::Reverse => cursor.prev_batch(limit - count, read)?,
                };
            }
            return Ok(count);
        }
        while cursor.valid() && count < limit {
            each(cursor.key(), cursor.value());
            count += 1;
            match direction {
                Direction::Forward => cursor.next()?,
                Direction::Reverse => cursor.prev()?,
            }
        }
        Ok(count)
    }
}
