//! [`MemtableIterator`]: walks a memtable in both directions, a run of entries at a time.
//!
//! The order is asked for the keys of some entries; the next ones are sought after the last of them. So nothing is pinned
//! between two calls, and nothing is allocated after the iterator itself. Entries that are inserted between two entries of
//! the present run are not seen: they are newer than the iterator.
//!
//! Most keys are compared without a look at their entries: 16 bytes of them are in the run.

use crate::Memtable;
use crate::entries::{EntryRef, Packed};
use crate::mem_key::{HEAD, ShortKey, WholeKey};
use crate::ordered::{Direction, RUN_MAX};
use esker_base::{EntryBatch, InternalIterator, InternalKeyRef, Outline, Result, Slice};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Entries of the first run after a seek. Later ones are larger: a short scan should not pay for a long one.
const RUN_FIRST: usize = 16;

/// An iterator over all versions in a memtable. It holds the memtable, and may be sent to other threads.
pub struct MemtableIterator {
    table: Arc<Memtable>,
    /// At most [`RUN_MAX`] keys, for which there is room.
    run: Vec<ShortKey>,
    /// The head of the present key.
    head: [u8; HEAD],
    direction: Direction,
    /// Place of the present entry in `run`; at its end there is none.
    at: usize,
    /// Entries to ask for next.
    limit: usize,
    /// Whether each run's entries are touched before they are asked for.
    whole: bool,
}

impl MemtableIterator {
    pub(crate) fn new(table: Arc<Memtable>) -> Self {
        let direction = Direction::Forward;
        let run = Vec::with_capacity(RUN_MAX);
        MemtableIterator { table, run, head: [0; HEAD], direction, at: 0, limit: RUN_FIRST, whole: false }
    }

    /// For who reads all keys and values.
    pub(crate) fn whole(table: Arc<Memtable>) -> Self {
        MemtableIterator { whole: true, ..Self::new(table) }
    }

    #[inline]
    fn entry(&self) -> EntryRef<'_> {
        self.table.entries().get(self.run[self.at].index())
    }

    /// Goes to a place in the run, or to its end.
    #[inline]
    fn set(&mut self, at: usize) {
        self.at = at;
        if let Some(key) = self.run.get(at) {
            self.head = key.head_bytes();
        }
    }

    fn fill(&mut self, from: Bound<WholeKey<'_>>, direction: Direction) {
        self.table.fill(from, direction, self.limit, &mut self.run);
        if self.whole {
            self.touch();
        }
        self.direction = direction;
        self.set(0);
    }

    /// Brings the run's entries near the processor. They lie in the order in which they were written, anywhere in memory:
    /// asked for one by one, each is waited for; in a loop that does nothing else, about ten come at the same time.
    fn touch(&self) {
        let entries = self.table.entries();
        let touched =
            self.run.iter().fold(0, |sum: u8, key| sum.wrapping_add(entries.get(key.index()).touch()));
        std::hint::black_box(touched);
    }

    /// Fills the first run after a seek.
    fn start(&mut self, from: Bound<WholeKey<'_>>, direction: Direction) {
        self.limit = RUN_FIRST;
        self.fill(from, direction);
    }

    /// Fills the run that follows the present entry.
    #[cold]
    fn refill(&mut self, direction: Direction) {
        self.limit = if direction == self.direction { RUN_MAX } else { RUN_FIRST };
        let table = Arc::clone(&self.table);
        let index = self.run[self.at].index();
        self.fill(Bound::Excluded(WholeKey::of(table.entries().get(index))), direction);
    }

    #[inline]
    fn step(&mut self, direction: Direction) {
        if !self.valid() {
            return;
        }
        if direction == self.direction && self.at + 1 < self.run.len() {
            self.set(self.at + 1);
        } else if direction != self.direction && self.at > 0 {
            self.set(self.at - 1);
        } else {
            self.refill(direction);
        }
    }
}

#[inline]
fn sought(target: InternalKeyRef<'_>) -> WholeKey<'_> {
    WholeKey { user_key: target.user_key, packed: Packed::new(target.seq, target.kind) }
}

impl InternalIterator for MemtableIterator {
    fn seek_to_first(&mut self) -> Result<()> {
        self.start(Bound::Unbounded, Direction::Forward);
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.start(Bound::Unbounded, Direction::Backward);
        Ok(())
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.start(Bound::Included(sought(target)), Direction::Forward);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.step(Direction::Forward);
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.step(Direction::Backward);
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at < self.run.len()
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        let key = &self.run[self.at];
        let user_key = match key.len_in_head().and_then(|len| self.head.get(..len)) {
            Some(user_key) => user_key,
            None => self.entry().user_key(),
        };
        InternalKeyRef::new(user_key, key.packed().seq(), key.packed().kind())
    }

    #[inline]
    fn outline(&self) -> Option<Outline> {
        let key = self.run.get(self.at)?;
        let Some(len) = key.len_in_head() else { return Some(Outline::of(self.key())) };
        Some(Outline { head: key.head(), len, seq: key.packed().seq(), kind: key.packed().kind() })
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.entry().value()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.entry().value_slice()
    }

    fn seek_for_prev(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.start(Bound::Included(sought(target)), Direction::Backward);
        Ok(())
    }

    #[inline]
    fn is_newest(&self) -> bool {
        // What is inserted from here on is newer than what this iterator is asked for.
        let Some(next) = self.run.get(self.at + 1).filter(|_| self.direction == Direction::Backward) else {
            return false;
        };
        !next.same_user_key(&self.run[self.at], self.table.entries())
    }

    fn fill(&mut self, batch: &mut EntryBatch, limit: usize) -> Result<usize> {
        let mut filled = 0;
        while filled < limit && self.valid() {
            let entry = self.entry();
            batch.push(self.key(), entry.value());
            filled += 1;
            self.step(Direction::Forward);
        }
        Ok(filled)
    }
}

impl fmt::Debug for MemtableIterator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.valid().then(|| self.key());
        f.debug_struct("MemtableIterator").field("at", &key).finish_non_exhaustive()
    }
}
