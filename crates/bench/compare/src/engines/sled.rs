//! sled.

use crate::engine::{Change, Direction, Engine, Reader, Result, Settings, Settle, walk};
use sled::{Batch, Db};

pub(crate) struct Sled {
    db: Db,
    sync: bool,
}

impl Engine for Sled {
    const NAME: &'static str = "sled";
    const LSM: bool = false;
    const NOTE: &'static str = "no timer that flushes, so a write stays in sled's log buffer: weaker than handed to \
         the system; no compression; a synced write is an insert and `flush`, which \
         calls `sync_file_range` and not `fdatasync`: no promise against a loss of power";
    type Reader<'a> = SledReader<'a>;

    fn open(settings: &Settings) -> Result<Self> {
        let db = sled::Config::new()
            .path(&settings.dir)
            .cache_capacity(settings.cache as u64)
            .mode(sled::Mode::HighThroughput)
            .flush_every_ms(None)
            .open()?;
        Ok(Sled { db, sync: settings.sync })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.insert(key, value)?;
        self.flush_if_sync()
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.db.remove(key)?;
        self.flush_if_sync()
    }

    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut batch = Batch::default();
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(*key, *value),
                None => batch.remove(*key),
            }
        }
        self.db.apply_batch(batch)?;
        self.flush_if_sync()
    }

    fn reader(&self) -> Result<SledReader<'_>> {
        Ok(SledReader { db: &self.db })
    }

    fn settle(&self, _to: Settle) -> Result<bool> {
        self.db.flush()?;
        Ok(true)
    }

    fn close(self) -> Result<()> {
        self.db.flush()?;
        Ok(())
    }
}

impl Sled {
    fn flush_if_sync(&self) -> Result<()> {
        if self.sync {
            self.db.flush()?;
        }
        Ok(())
    }
}

pub(crate) struct SledReader<'a> {
    db: &'a Db,
}

impl Reader for SledReader<'_> {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.db.get(key)?.map(|value| read(&value)))
    }

    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let entries = match from {
            Some(from) => self.db.range(from..),
            None => self.db.iter(),
        };
        walk(entries, direction, limit, |entry| {
            let (key, value) = entry?;
            each(&key, &value);
            Ok(())
        })
    }
}
