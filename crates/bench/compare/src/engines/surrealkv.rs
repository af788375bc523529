//! surrealkv. Its commits are asynchronous: each is driven to its end by a small runtime.

use crate::engine::{Change, Direction, Engine, Reader, Result, Settings, Settle};
use surrealkv::{
    CompactRangeOptions, CompressionType, Durability, Error, LSMIterator, Mode, Options, Transaction, Tree,
    TreeBuilder,
};
use tokio::runtime::{Builder, Runtime};

pub(crate) struct SurrealKv {
    tree: Tree,
    runtime: Runtime,
    durability: Durability,
}

impl Engine for SurrealKv {
    const NAME: &'static str = "surrealkv";
    const LSM: bool = true;
    const NOTE: &'static str = "`Durability::Eventual` (in the system's page cache, says its documentation); Snappy; \
         commits are asynchronous, and driven to their end by a runtime of two threads; reads within one transaction";
    type Reader<'a> = SurrealReader;

    fn open(settings: &Settings) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
        let guard = runtime.enter();
        let options = Options::new()
            .with_path(settings.dir.clone())
            .with_block_cache_capacity(settings.cache as u64)
            .with_max_memtable_size(settings.memtable)
            .with_compression_per_level(vec![CompressionType::SnappyCompression]);
        let tree = TreeBuilder::with_options(options).build()?;
        drop(guard);
        let durability = if settings.sync { Durability::Immediate } else { Durability::Eventual };
        Ok(SurrealKv { tree, runtime, durability })
    }

    /// Transactions are optimistic: one that another has overtaken is made anew.
    fn write(&self, changes: &[Change<'_>]) -> Result<()> {
        loop {
            let mut transaction =
                self.tree.begin_with_mode(Mode::WriteOnly)?.with_durability(self.durability);
            for (key, value) in changes {
                match value {
                    Some(value) => transaction.set(*key, *value)?,
                    None => transaction.delete(*key)?,
                }
            }
            match self.runtime.block_on(transaction.commit()) {
                Err(Error::TransactionWriteConflict | Error::TransactionRetry) => {}
                other => return Ok(other?),
            }
        }
    }

    fn reader(&self) -> Result<SurrealReader> {
        Ok(SurrealReader { transaction: self.tree.begin_with_mode(Mode::ReadOnly)? })
    }

    fn settle(&self, to: Settle) -> Result<bool> {
        let first_level =
            CompactRangeOptions { flush_memtable: true, target_level: Some(0), rewrite_bottommost: false };
        let options = match to {
            Settle::FirstLevel => first_level,
            Settle::LastLevel => CompactRangeOptions::default(),
        };
        self.tree.compact_range(None, None, &options)?;
        Ok(true)
    }

    fn close(self) -> Result<()> {
        Ok(self.runtime.block_on(self.tree.close())?)
    }
}

pub(crate) struct SurrealReader {
    transaction: Transaction,
}

impl Reader for SurrealReader {
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.transaction.get(key)?.map(|value| read(&value)))
    }

    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize> {
        match from {
            Some(from) => walk(self.transaction.scan(from..)?, direction, limit, each),
            None => walk(self.transaction.iter()?, direction, limit, each),
        }
    }
}

fn walk(
    mut entries: impl LSMIterator,
    direction: Direction,
    limit: usize,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<usize> {
    match direction {
        Direction::Forward => entries.seek_first()?,
        Direction::Reverse => entries.seek_last()?,
    };
    let mut count = 0;
    while count < limit && entries.valid() {
        each(entries.key().user_key(), &entries.value_ref()?);
        count += 1;
        match direction {
            Direction::Forward => entries.next()?,
            Direction::Reverse => entries.prev()?,
        };
    }
    Ok(count)
}
