//! LevelDB, the system's library, through its C interface.

use crate::engine::{Direction, Engine, Family, Reader, Result, Settings, Settle};
use crate::ffi::level::{self, Store};

pub(crate) struct LevelDb {
    store: Store,
}

impl Engine for LevelDb {
    const NAME: &'static str = "leveldb";
    const FAMILY: Family = Family::Lsm;
    const NOTE: &'static str = "the system's library, in Debian compiled with assertions; log handed to the system after each write (its default); Snappy; one background \
         thread; no call that only flushes, so it has no row of level 0";
    type Reader<'a> = LevelReader<'a>;

    fn version() -> String {
        level::version()
    }

    fn open(settings: &Settings) -> Result<Self> {
        Ok(LevelDb { store: Store::open(settings)? })
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.store.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.store.delete(key)
    }

    fn batch(&self, entries: &[(&[u8], &[u8])]) -> Result<()> {
        self.store.batch(entries)
    }

    fn reader(&self) -> Result<LevelReader<'_>> {
        Ok(LevelReader { store: &self.store })
    }

    fn settle(&self, to: Settle) -> Result<bool> {
        match to {
            Settle::FirstLevel => Ok(false),
            Settle::LastLevel => {
                self.store.compact();
                Ok(true)
            }
        }
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct LevelReader<'a> {
    store: &'a Store,
}

impl Reader for LevelReader<'_> {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.store.get(key, read)
    }

    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        self.store.scan(from, direction, limit, each)
    }
}
