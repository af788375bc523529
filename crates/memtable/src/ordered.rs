//! [`OrderedMem`]: the order of a memtable's entries, so that the structure behind it can be replaced.

use crate::directory::Directory;
use crate::entries::{EntryRef, EntryStore};
use crate::mem_key::{ShortKey, WholeKey};
use std::fmt;
use std::ops::Bound;

/// Most keys that are asked for at once.
pub(crate) const RUN_MAX: usize = 160;

/// A direction to walk in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// Entries in order. One thread inserts at a time; any number read meanwhile, without a lock.
///
/// The entries are in the store, and the order refers to them by index. No guard of an epoch escapes from a call.
pub(crate) trait OrderedMem: Send + Sync + fmt::Debug {
    /// What only the writer needs: to be made while the order is empty, and to be given to every insert.
    fn directory(&self) -> Directory;

    /// Adds `entry`, which is at `index` of the store and not here yet.
    fn insert(&self, directory: &mut Directory, entries: &EntryStore, entry: EntryRef<'_>, index: u32);

    /// Adds the keys of entries that are not here yet, in ascending order. They are of the directory's window.
    fn insert_run(&self, directory: &mut Directory, entries: &EntryStore, keys: &[ShortKey]);

    /// Gives `push` the keys of the next entries: those after `from` (forward), or before it (backward). At least one if
    /// there is one, and at most `limit`, which is not 0; not necessarily all up to the limit. Returns how many. All of them
    /// are of one window.
    fn fill(
        &self,
        entries: &EntryStore,
        from: Bound<WholeKey<'_>>,
        direction: Direction,
        limit: usize,
        push: impl FnMut(&ShortKey),
    ) -> usize;

    /// Bytes allocated.
    fn bytes(&self) -> usize;
}
