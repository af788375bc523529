//! Iterators over versions of keys: the contract, and the iterators that are made of others.
//!
//! Scans, flushes and compactions all read through [`InternalIterator`].

mod concat;
mod merging;
mod vec;

pub use concat::{ConcatIterator, ConcatSource};
pub use merging::MergingIterator;
pub use vec::VecIterator;

use crate::{InternalKeyRef, Outline, Result, SequenceNumber, Slice, ValueKind};

/// A position in a sorted sequence of versions.
///
/// # Contract
///
/// - A new iterator is not valid; it must be positioned first.
/// - Movement returns `Result`, so that no error is overlooked. After an error the iterator is not valid, and stays so
///   until it is positioned anew by a seek: an error never counts as the end.
/// - `Ok` with `valid() == false` means past an end. `next` and `prev` on an iterator that is not valid do nothing.
/// - `key` and `value` need `valid()`, and stay until the next movement.
/// - Keys come in the order of [`InternalKeyRef`]; no two are equal.
pub trait InternalIterator {
    /// Goes to the first entry.
    fn seek_to_first(&mut self) -> Result<()>;

    /// Goes to the last entry.
    fn seek_to_last(&mut self) -> Result<()>;

    /// Goes to the first entry at or after `target`.
    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()>;

    /// Goes to the following entry.
    fn next(&mut self) -> Result<()>;

    /// Goes to the preceding entry.
    fn prev(&mut self) -> Result<()>;

    /// Whether there is an entry here.
    fn valid(&self) -> bool;

    /// The key of the entry.
    fn key(&self) -> InternalKeyRef<'_>;

    /// What can be said of the key at a glance; `None` when there is no entry here.
    #[inline]
    fn outline(&self) -> Option<Outline> {
        self.valid().then(|| Outline::of(self.key()))
    }

    /// The value of the entry; empty for tombstones.
    fn value(&self) -> &[u8];

    /// The value as a [`Slice`], which shares the underlying buffer where it can.
    fn value_slice(&self) -> Slice {
        Slice::copy_from(self.value())
    }

    /// While going backward: whether the source surely has no newer version of the key here. May always say no.
    fn is_newest(&self) -> bool {
        false
    }

    /// Goes to the last entry at or before `target`.
    fn seek_for_prev(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.seek(target)?;
        if !self.valid() {
            self.seek_to_last()
        } else if self.key() > target {
            self.prev()
        } else {
            Ok(())
        }
    }

    /// Moves up to `limit` entries into `batch`, starting with the present one, and steps past them. Returns how many.
    ///
    /// On an error the batch holds the entries before it. The default goes one by one; sources that hold whole blocks
    /// override it.
    fn fill(&mut self, batch: &mut EntryBatch, limit: usize) -> Result<usize> {
        let mut filled = 0;
        while filled < limit && self.valid() {
            batch.push(self.key(), self.value());
            filled += 1;
            self.next()?;
        }
        Ok(filled)
    }
}

/// A run of entries, copied into two buffers: for work that goes a batch at a time.
#[derive(Clone, Debug, Default)]
pub struct EntryBatch {
    bytes: Vec<u8>,
    entries: Vec<BatchEntry>,
}

#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    start: usize,
    key_len: usize,
    value_len: usize,
    seq: SequenceNumber,
    kind: ValueKind,
}

impl EntryBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all entries and keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Appends a copy of an entry.
    #[inline]
    pub fn push(&mut self, key: InternalKeyRef<'_>, value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key.user_key);
        self.bytes.extend_from_slice(value);
        self.entries.push(BatchEntry {
            start,
            key_len: key.user_key.len(),
            value_len: value.len(),
            seq: key.seq,
            kind: key.kind,
        });
    }

    /// The entry at `index`.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`len`](Self::len).
    #[inline]
    pub fn get(&self, index: usize) -> (InternalKeyRef<'_>, &[u8]) {
        let entry = self.entries[index];
        let (key, rest) = self.bytes[entry.start..].split_at(entry.key_len);
        (InternalKeyRef::new(key, entry.seq, entry.kind), &rest[..entry.value_len])
    }

    /// All entries, in order.
    pub fn iter(&self) -> impl Iterator<Item = (InternalKeyRef<'_>, &[u8])> {
        (0..self.len()).map(|index| self.get(index))
    }
}
