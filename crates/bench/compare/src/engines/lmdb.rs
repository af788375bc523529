//! LMDB, through `heed`.

use crate::engine::{Change, Direction, Engine, Reader, Result, Settings, Settle, walk_forward};
use crate::ffi;
use heed::types::Bytes;
use heed::{Database, Env, RoTxn, WithTls};
use std::ops::Bound;

/// Bytes of address space for the map: the file grows as it is used.
const MAP_SIZE: usize = 16 << 30;

pub(crate) struct Lmdb {
    env: Env<WithTls>,
    db: Database<Bytes, Bytes>,
}

impl Engine for Lmdb {
    const NAME: &'static str = "lmdb";
    const LSM: bool = false;
    const NOTE: &'static str = "`MDB_NOSYNC` without a writable map: pages are handed to the system at each commit; \
         its cache is the system's, no compression; reads within one read transaction";
    type Reader<'a> = LmdbReader<'a>;

    fn version() -> String {
        let version = heed::lmdb_version();
        format!(
            "{}.{}.{} (heed {})",
            version.major,
            version.minor,
            version.patch,
            crate::versions::locked("heed")
        )
    }

    fn open(settings: &Settings) -> Result<Self> {
        std::fs::create_dir_all(&settings.dir)?;
        let env = ffi::open_lmdb(&settings.dir, MAP_SIZE, settings.sync)?;
        let mut transaction = env.write_txn()?;
        let db = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Lmdb { env, db })
    }

    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, value) in changes {
            match value {
                Some(value) => self.db.put(&mut transaction, key, value)?,
                None => drop(self.db.delete(&mut transaction, key)?),
            }
        }
        Ok(transaction.commit()?)
    }

    fn reader(&self) -> Result<LmdbReader<'_>> {
        Ok(LmdbReader { transaction: self.env.read_txn()?, db: self.db })
    }

    fn settle(&self, _to: Settle) -> Result<bool> {
        self.env.force_sync()?;
        Ok(true)
    }

    fn close(self) -> Result<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}

pub(crate) struct LmdbReader<'a> {
    transaction: RoTxn<'a, WithTls>,
    db: Database<Bytes, Bytes>,
}

impl Reader for LmdbReader<'_> {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.db.get(&self.transaction, key)?.map(read))
    }

    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        let each = |entry: heed::Result<(&[u8], &[u8])>| {
            let (key, value) = entry?;
            each(key, value);
            Ok(())
        };
        match (from, direction) {
            (Some(from), _) => {
                let range = (Bound::Included(from), Bound::Unbounded);
                walk_forward(self.db.range(&self.transaction, &range)?, limit, each)
            }
            (None, Direction::Forward) => walk_forward(self.db.iter(&self.transaction)?, limit, each),
            (None, Direction::Reverse) => walk_forward(self.db.rev_iter(&self.transaction)?, limit, each),
        }
    }
}
