//! [`OrderedMem`]: the order of a memtable's entries, so that the structure behind it can be replaced.

use crate::entries::EntryStore;
use crate::mem_key::MemKey;
use std::fmt;
use std::ops::Bound;

/// Entries in a [`Run`].
pub(crate) const RUN_MAX: usize = 160;

/// A direction to walk in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// Indexes of consecutive entries, in the direction of the walk.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    indexes: [u32; RUN_MAX],
    len: usize,
}

impl Run {
    pub(crate) fn new() -> Self {
        Run { indexes: [0; RUN_MAX], len: 0 }
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.indexes[..self.len]
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    #[inline]
    pub(crate) fn push(&mut self, index: u32) {
        self.indexes[self.len] = index;
        self.len += 1;
    }
}

/// Entries in order. One thread inserts at a time; any number read meanwhile, without a lock.
///
/// The entries are in the store, and the order refers to them by index. No guard of an epoch escapes from a call.
pub(crate) trait OrderedMem: Send + Sync + fmt::Debug {
    /// Adds the entry at `index`, whose key is not here yet.
    fn insert(&self, entries: &EntryStore, index: u32);

    /// Clears `run` and puts the next entries into it: those after `from` (forward), or before it (backward). At least
    /// one if there is one, and at most `limit`; not necessarily all up to the limit.
    fn fill(
        &self,
        entries: &EntryStore,
        from: Bound<&MemKey<'_>>,
        direction: Direction,
        limit: usize,
        run: &mut Run,
    );

    /// Bytes allocated.
    fn bytes(&self) -> usize;
}
