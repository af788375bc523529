//! The sources of a scan: memtables, level-0 tables, and one concatenation for each deeper level.

use crate::Result;
use crate::super_version::SuperVersion;
use crate::table_cache::TableHandle;
use esker_base::{
    ConcatIterator, ConcatSource, EntryBatch, InternalIterator, InternalKeyRef, MergingIterator, Outline,
    Slice,
};
use esker_memtable::MemtableIterator;
use esker_sstable::TableIterator;
use std::sync::Arc;

/// The tables of a level, opened when a scan reaches them.
#[derive(Debug)]
pub(crate) struct LevelSource {
    pub(crate) tables: Arc<[Arc<TableHandle>]>,
    /// `None` for users' scans: blocks that are read go to the cache. Compactions leave that alone, and read so many bytes
    /// ahead.
    pub(crate) readahead: Option<usize>,
}

impl ConcatSource for LevelSource {
    type Iter = TableIterator;

    fn count(&self) -> usize {
        self.tables.len()
    }

    fn find(&self, target: InternalKeyRef<'_>) -> usize {
        self.tables.partition_point(|table| table.meta.largest.as_ref() < target)
    }

    fn open(&self, index: usize) -> Result<TableIterator> {
        let reader = self.tables[index].reader()?;
        Ok(self.readahead.map_or_else(|| reader.iter(true), |bytes| reader.iter_once(bytes)))
    }
}

/// One source of a merge. An enum, so that no entry costs a virtual call.
#[derive(Debug)]
pub(crate) enum Child {
    Memtable(MemtableIterator),
    Table(TableIterator),
    Level(ConcatIterator<LevelSource>),
}

macro_rules! each {
    ($self:expr, $iter:ident => $call:expr) => {
        match $self {
            Child::Memtable($iter) => $call,
            Child::Table($iter) => $call,
            Child::Level($iter) => $call,
        }
    };
}

impl Child {
    /// The iterator over the table that the entry here is in, if it is in a table.
    #[inline]
    pub(crate) fn table(&mut self) -> Option<&mut TableIterator> {
        match self {
            Child::Memtable(_) => None,
            Child::Table(iter) => Some(iter),
            Child::Level(iter) => iter.current_mut(),
        }
    }
}

impl InternalIterator for Child {
    fn seek_to_first(&mut self) -> Result<()> {
        each!(self, iter => iter.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        each!(self, iter => iter.seek_to_last())
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        each!(self, iter => iter.seek(target))
    }

    fn seek_for_prev(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        each!(self, iter => iter.seek_for_prev(target))
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        each!(self, iter => iter.next())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        each!(self, iter => iter.prev())
    }

    #[inline]
    fn valid(&self) -> bool {
        each!(self, iter => iter.valid())
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        each!(self, iter => iter.key())
    }

    #[inline]
    fn outline(&self) -> Option<Outline> {
        each!(self, iter => iter.outline())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        each!(self, iter => iter.value())
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        each!(self, iter => iter.value_slice())
    }

    #[inline]
    fn is_newest(&self) -> bool {
        each!(self, iter => iter.is_newest())
    }

    fn fill(&mut self, batch: &mut EntryBatch, limit: usize) -> Result<usize> {
        each!(self, iter => iter.fill(batch, limit))
    }
}

impl SuperVersion {
    /// All sources of a keyspace.
    pub(crate) fn merged(&self, position: usize) -> Result<MergingIterator<Child>> {
        let tables = &self.keyspaces[position];
        let most = 1 + self.immutables.len() + tables.level0.len() + tables.levels.len();
        let mut merged = MergingIterator::with_capacity(most);
        for generation in std::iter::once(&self.active).chain(&self.immutables) {
            let memtable = &generation.memtables[position];
            // An empty sealed memtable stays empty; an empty active one only gets writes that this scan must not see.
            if !memtable.is_empty() {
                merged.push(Child::Memtable(memtable.iter()));
            }
        }
        for table in &tables.level0 {
            merged.push(Child::Table(table.reader()?.iter(true)));
        }
        for level in &tables.levels {
            let source = LevelSource { tables: Arc::clone(&level.tables), readahead: None };
            merged.push(Child::Level(ConcatIterator::new(source)));
        }
        Ok(merged)
    }
}
