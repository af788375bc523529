//! [`EntryStore`]: the entries of a memtable, appended by one writer and read by everyone without a lock.
//!
//! An entry is named by its index. It never moves and never changes. The store is an array of *shelves*, each with room
//! for twice the entries of the one before; a shelf is an array of chunks of at most [`CHUNK_MAX`] entries, so that no
//! append has to initialise megabytes:
//!
//! ```text
//! shelf 0: [32]  shelf 1: [64]  ...  shelf 7: [4096]  shelf 8: [4096][4096]  shelf 9: [4096][4096][4096][4096] ...
//! ```

use esker_base::{InternalKeyRef, SequenceNumber, Slice, ValueKind};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Entries on the first shelf.
const FIRST: usize = 32;
/// Entries in the largest chunk.
const CHUNK_MAX: usize = 4096;
/// Shelves that are enough for every 32-bit index.
const SHELVES: usize = 28;
/// Stands for "no older version" in [`Entry::prev`].
pub(crate) const NONE: u32 = u32::MAX;

/// One version of a key: where its bytes are. With its cell it takes 48 bytes; 64 aligned ones were no faster.
#[derive(Debug)]
pub(crate) struct Entry {
    owner: Arc<[u8]>,
    /// `seq << 8 | kind`, so that versions compare as one number.
    packed: u64,
    key_start: u32,
    value_len: u32,
    prev: u32,
    key_len: u16,
    /// Bytes between the key and the value.
    gap: u16,
}

impl Entry {
    /// An entry over ranges of `owner`, or over a copy if they can't be expressed in the small fields.
    ///
    /// # Panics
    ///
    /// When a range is not inside `owner`, or longer than the limits of the store.
    pub(crate) fn new(owner: &Arc<[u8]>, key: Range<usize>, value: Range<usize>, packed: u64) -> Self {
        Self::pointing(owner, &key, &value, packed).unwrap_or_else(|| {
            let copy: Arc<[u8]> = Arc::from([&owner[key.clone()], &owner[value.clone()]].concat());
            Self::pointing(&copy, &(0..key.len()), &(key.len()..copy.len()), packed)
                .expect("keys are limited to 65,535 bytes and values to 1 GiB")
        })
    }

    #[inline]
    fn pointing(owner: &Arc<[u8]>, key: &Range<usize>, value: &Range<usize>, packed: u64) -> Option<Self> {
        assert!(key.start <= key.end && key.end <= owner.len(), "the key is outside its buffer");
        assert!(value.start <= value.end && value.end <= owner.len(), "the value is outside its buffer");
        Some(Entry {
            owner: Arc::clone(owner),
            packed,
            key_start: u32::try_from(key.start).ok()?,
            value_len: u32::try_from(value.len()).ok()?,
            prev: NONE,
            key_len: u16::try_from(key.len()).ok()?,
            gap: u16::try_from(value.start.checked_sub(key.end)?).ok()?,
        })
    }

    /// The same entry, with the index of the next older version of its key.
    #[inline]
    pub(crate) fn after(self, prev: u32) -> Self {
        Entry { prev, ..self }
    }

    /// The buffer of the entry, and where its key starts there.
    #[inline]
    pub(crate) fn owner(&self) -> (&Arc<[u8]>, u32) {
        (&self.owner, self.key_start)
    }

    #[inline]
    pub(crate) fn user_key(&self) -> &[u8] {
        let start = self.key_start as usize;
        &self.owner[start..start + usize::from(self.key_len)]
    }

    #[inline]
    fn value_range(&self) -> Range<usize> {
        let start = self.key_start as usize + usize::from(self.key_len) + usize::from(self.gap);
        start..start + self.value_len as usize
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        &self.owner[self.value_range()]
    }

    #[inline]
    pub(crate) fn value_slice(&self) -> Slice {
        Slice::shared(&self.owner, self.value_range())
    }

    #[inline]
    pub(crate) fn packed(&self) -> u64 {
        self.packed
    }

    #[inline]
    pub(crate) fn seq(&self) -> SequenceNumber {
        self.packed >> 8
    }

    #[inline]
    pub(crate) fn kind(&self) -> ValueKind {
        kind_of(self.packed)
    }

    #[inline]
    pub(crate) fn key(&self) -> InternalKeyRef<'_> {
        InternalKeyRef::new(self.user_key(), self.seq(), self.kind())
    }

    /// Index of the next older version of the key, or [`NONE`].
    #[inline]
    pub(crate) fn prev(&self) -> u32 {
        self.prev
    }
}

/// `seq << 8 | kind`.
#[inline]
pub(crate) fn pack(seq: SequenceNumber, kind: ValueKind) -> u64 {
    seq << 8 | u64::from(kind as u8)
}

/// The kind in what [`pack`] gave.
#[inline]
pub(crate) fn kind_of(packed: u64) -> ValueKind {
    ValueKind::from_u8(packed as u8).expect("the byte was made of a kind")
}

type Chunk = Box<[OnceLock<Entry>]>;
type Shelf = Box<[OnceLock<Chunk>]>;

/// All entries of a memtable, by index.
#[derive(Debug, Default)]
pub(crate) struct EntryStore {
    shelves: [OnceLock<Shelf>; SHELVES],
}

/// Where an index is: shelf, chunk, place.
#[inline]
fn locate(index: u32) -> (usize, usize, usize) {
    let from_first = index as usize + FIRST;
    let shelf = (from_first.ilog2() - FIRST.ilog2()) as usize;
    let place = from_first - (FIRST << shelf);
    (shelf, place / CHUNK_MAX, place % CHUNK_MAX)
}

impl EntryStore {
    /// The entry at `index`.
    ///
    /// # Panics
    ///
    /// When there is none. Whoever has an index got it, directly or through a `Release` store, from the writer.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> &Entry {
        let (shelf, chunk, place) = locate(index);
        self.shelves[shelf]
            .get()
            .and_then(|shelf| shelf[chunk].get())
            .and_then(|chunk| chunk[place].get())
            .expect("indexes are published after their entries")
    }

    /// Puts `entry` at `index`, the number of entries so far. Returns the bytes that were allocated for it.
    pub(crate) fn put(&self, index: u32, entry: Entry) -> usize {
        let (shelf, chunk, place) = locate(index);
        let mut allocated = 0;
        let cells = self.shelves[shelf].get_or_init(|| {
            let chunks = (FIRST << shelf).div_ceil(CHUNK_MAX);
            allocated += chunks * size_of::<OnceLock<Chunk>>();
            empty_cells(chunks)
        });
        let entries = cells[chunk].get_or_init(|| {
            let len = (FIRST << shelf).min(CHUNK_MAX);
            allocated += len * size_of::<OnceLock<Entry>>();
            empty_cells(len)
        });
        assert!(entries[place].set(entry).is_ok(), "an entry is written once");
        allocated
    }
}

fn empty_cells<T>(len: usize) -> Box<[OnceLock<T>]> {
    (0..len).map(|_| OnceLock::new()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_takes_48_bytes() {
        assert_eq!(size_of::<OnceLock<Entry>>(), 48);
    }

    #[test]
    fn places_follow_each_other() {
        let mut expected = (0, 0, 0);
        for index in 0..200_000 {
            assert_eq!(locate(index), expected, "index {index}");
            let shelf_len = FIRST << expected.0;
            expected.2 += 1;
            if expected.2 == CHUNK_MAX.min(shelf_len) {
                expected = (expected.0, expected.1 + 1, 0);
            }
            if expected.1 * CHUNK_MAX.min(shelf_len) == shelf_len {
                expected = (expected.0 + 1, 0, 0);
            }
        }
        assert!(locate(u32::MAX).0 < SHELVES);
    }

    #[test]
    fn far_apart_ranges_are_copied() {
        let owner: Arc<[u8]> = Arc::from(vec![7; 100_000]);
        let entry = Entry::new(&owner, 10..13, 90_000..90_100, pack(5, ValueKind::Put));
        assert_eq!((entry.user_key(), entry.value()), (&[7; 3][..], &[7; 100][..]));
        assert!(!Arc::ptr_eq(entry.owner().0, &owner));
        let entry = Entry::new(&owner, 100..103, 50..60, pack(5, ValueKind::Put));
        assert_eq!((entry.user_key(), entry.value()), (&[7; 3][..], &[7; 10][..]));
        let entry = Entry::new(&owner, 10..13, 14..20, pack(5, ValueKind::Put));
        assert!(Arc::ptr_eq(entry.owner().0, &owner));
        assert_eq!((entry.seq(), entry.kind()), (5, ValueKind::Put));
    }
}
