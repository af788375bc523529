//! [`OrderedMem`]: the order of a memtable's entries, and [`SkipListMem`], the skiplist behind it.
//!
//! The skiplist is insert-only: `get_or_insert` and reads under a guard are all that is used of the crate, because
//! replacing and removing have windows and leaks in its released versions. A guard lives for one call and never
//! escapes: a pinned thread would stop the reclamation of every user of the epoch collector in the process.

use crate::mem_key::{MemKey, StoredKey};
use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;
use std::fmt;
use std::ops::Bound;

/// Entries in a [`Run`].
pub(crate) const RUN_MAX: usize = 64;

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
    fn push(&mut self, index: u32) {
        self.indexes[self.len] = index;
        self.len += 1;
    }
}

/// A set of keys, ordered. Any number of threads may insert and read at the same time.
pub(crate) trait OrderedMem: Send + Sync + fmt::Debug {
    /// Adds a key. Returns whether it is new; if not, nothing changes.
    fn insert(&self, key: StoredKey) -> bool;

    /// The index of the first entry at or after `key`.
    fn first_at(&self, key: &MemKey<'_>) -> Option<u32>;

    /// Clears `run` and puts up to `limit` entries into it: those after `from` (forward), or before it (backward).
    fn fill(&self, from: Bound<&MemKey<'_>>, direction: Direction, limit: usize, run: &mut Run);

    /// Bytes that an entry takes, on average.
    fn bytes_per_entry(&self) -> usize;
}

/// The order in one skiplist.
pub(crate) struct SkipListMem {
    list: SkipList<StoredKey, ()>,
}

impl SkipListMem {
    pub(crate) fn new() -> Self {
        SkipListMem { list: SkipList::new(epoch::default_collector().clone()) }
    }
}

impl OrderedMem for SkipListMem {
    fn insert(&self, key: StoredKey) -> bool {
        let index = key.index();
        let guard = epoch::pin();
        let entry = self.list.get_or_insert(key, (), &guard);
        let new = entry.key().index() == index;
        entry.release(&guard);
        new
    }

    fn first_at(&self, key: &MemKey<'_>) -> Option<u32> {
        let guard = epoch::pin();
        self.list.lower_bound(Bound::Included(key), &guard).map(|entry| entry.key().index())
    }

    fn fill(&self, from: Bound<&MemKey<'_>>, direction: Direction, limit: usize, run: &mut Run) {
        run.clear();
        let limit = limit.min(RUN_MAX);
        let guard = epoch::pin();
        match direction {
            Direction::Forward => {
                let mut at = self.list.lower_bound(from, &guard);
                while let Some(entry) = at.filter(|_| run.len < limit) {
                    run.push(entry.key().index());
                    at = entry.next();
                }
            }
            Direction::Backward => {
                let mut at = self.list.upper_bound(from, &guard);
                while let Some(entry) = at.filter(|_| run.len < limit) {
                    run.push(entry.key().index());
                    at = entry.prev();
                }
            }
        }
    }

    fn bytes_per_entry(&self) -> usize {
        // Reference count, a tower of 2 pointers on average, and what the allocator adds.
        size_of::<StoredKey>() + 8 + 16 + 12
    }
}

impl fmt::Debug for SkipListMem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SkipListMem({})", self.list.len())
    }
}
