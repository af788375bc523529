//! fjall.

use crate::engine::{Change, Direction, Engine, Reader, Result, Settings, Settle, walk};
use fjall::config::{BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode};

pub(crate) struct Fjall {
    db: Database,
    keyspace: Keyspace,
    sync: bool,
}

impl Engine for Fjall {
    const NAME: &'static str = "fjall";
    const LSM: bool = true;
    const NOTE: &'static str = "journal handed to the system after each write (its default); LZ4 in all levels, as it \
         has no Snappy; two worker threads; a synced write is an insert and `persist(SyncData)`";
    type Reader<'a> = FjallReader<'a>;

    fn open(settings: &Settings) -> Result<Self> {
        let db =
            Database::builder(&settings.dir).cache_size(settings.cache as u64).worker_threads(2).open()?;
        let memtable = settings.memtable as u64;
        let keyspace = db.keyspace("entries", || {
            KeyspaceCreateOptions::default()
                .max_memtable_size(memtable)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(
                    BloomConstructionPolicy::BitsPerKey(10.0),
                )))
        })?;
        Ok(Fjall { db, keyspace, sync: settings.sync })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        self.persist()
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.keyspace.remove(key)?;
        self.persist()
    }

    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        let mode = if self.sync { PersistMode::SyncData } else { PersistMode::Buffer };
        let mut batch = self.db.batch().durability(Some(mode));
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.keyspace, *key, *value),
                None => batch.remove(&self.keyspace, *key),
            }
        }
        Ok(batch.commit()?)
    }

    fn reader(&self) -> Result<FjallReader<'_>> {
        Ok(FjallReader { keyspace: &self.keyspace })
    }

    fn settle(&self, to: Settle) -> Result<bool> {
        self.keyspace.rotate_memtable_and_wait()?;
        if to == Settle::LastLevel {
            self.keyspace.major_compact()?;
        }
        Ok(true)
    }

    fn close(self) -> Result<()> {
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

impl Fjall {
    fn persist(&self) -> Result<()> {
        if self.sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }
}

pub(crate) struct FjallReader<'a> {
    keyspace: &'a Keyspace,
}

impl Reader for FjallReader<'_> {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.keyspace.get(key)?.map(|value| read(&value)))
    }

    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let entries = match from {
            Some(from) => self.keyspace.range(from..),
            None => self.keyspace.iter(),
        };
        walk(entries, direction, limit, |entry| {
            let (key, value) = entry.into_inner()?;
            each(&key, &value);
            Ok(())
        })
    }
}
