//! RocksDB, the system's library, through its C interface.

use crate::engine::{Direction, Engine, Family, Reader, Result, Settings, Settle};
use crate::ffi::rocks::Store;

pub(crate) struct RocksDb {
    store: Store,
}

impl Engine for RocksDb {
    const NAME: &'static str = "rocksdb";
    const FAMILY: Family = Family::Lsm;
    const NOTE: &'static str = "the system's library, in Debian compiled with assertions, which slow it down (put the \
         folder of a release build of the same version into `LD_LIBRARY_PATH`); log handed to the system after each \
         write (its default); Snappy, `max_background_jobs` 2, five write buffers; gets by `get_pinned`, several by \
         `batched_multi_get`";
    type Reader<'a> = RocksReader<'a>;

    fn version() -> String {
        // The C interface does not tell; the header that is installed with the library does.
        let header = std::fs::read_to_string("/usr/include/rocksdb/version.h").unwrap_or_default();
        let part = |name: &str| {
            let line = header.lines().find(|line| line.contains(name));
            line.and_then(|line| line.split_whitespace().last()).unwrap_or("?").to_owned()
        };
        format!("{}.{}.{}", part("ROCKSDB_MAJOR"), part("ROCKSDB_MINOR"), part("ROCKSDB_PATCH"))
    }

    fn open(settings: &Settings) -> Result<Self> {
        Ok(RocksDb { store: Store::open(settings)? })
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

    fn reader(&self) -> Result<RocksReader<'_>> {
        Ok(RocksReader { store: &self.store })
    }

    fn settle(&self, to: Settle) -> Result<bool> {
        match to {
            Settle::FirstLevel => self.store.flush()?,
            Settle::LastLevel => self.store.compact(),
        }
        Ok(true)
    }

    fn close(self) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct RocksReader<'a> {
    store: &'a Store,
}

impl Reader for RocksReader<'_> {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.store.get(key, read)
    }

    fn multi_get(&mut self, keys: &[&[u8]], each: impl FnMut(usize, &[u8])) -> Result<()> {
        self.store.multi_get(keys, each)
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
