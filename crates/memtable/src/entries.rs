//! [`EntryStore`]: the entries of a memtable, appended by one writer and read by everyone without a lock.
//!
//! An entry is named by its index. It never moves and never changes, but for the link to the version before it. Indexes
//! count in blocks of [`BLOCK`]: a block has cells for entries that come one by one, or the entries of a batch, which are
//! published together, share one count of their buffer, and take half the memory. A block may have fewer entries than
//! indexes. *Shelves* of blocks, each with room for twice as many as the one before, find a block by its number:
//!
//! ```text
//! shelf 0: [cells 32 ][batch 500][cells 64 ] ..   shelf 1: [batch 512][batch 88 ] ..   shelf 2: ..
//! ```

use esker_base::{InternalKeyRef, SequenceNumber, Slice, ValueKind};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Indexes in a block.
pub(crate) const BLOCK: usize = 512;
/// Cells of the first block that has cells; each later one has twice as many, up to [`BLOCK`].
const CELLS_MIN: usize = 32;
/// Blocks on the first shelf.
const FIRST: usize = 8;
/// Shelves that are enough for every 32-bit index.
const SHELVES: usize = 21;
/// Blocks that there may be. The last index stays free: [`NONE`].
const BLOCKS: u32 = (1 << 23) - 1;
/// Blocks from which on batches use cells too: small ones would use the indexes up.
const BLOCKS_FOR_BATCHES: u32 = BLOCKS / 2;
/// Stands for "no older version" in [`EntryRef::prev`].
pub(crate) const NONE: u32 = u32::MAX;

/// Sequence number and kind, as `seq << 8 | kind`, so that versions compare as one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Packed(u64);

impl Packed {
    #[inline]
    pub(crate) fn new(seq: SequenceNumber, kind: ValueKind) -> Self {
        Packed(seq << 8 | u64::from(kind as u8))
    }

    /// At or before every version with this sequence number, in the order of keys.
    #[inline]
    pub(crate) fn newest_of(seq: SequenceNumber) -> Self {
        Packed(seq << 8 | 0xff)
    }

    #[inline]
    pub(crate) fn seq(self) -> SequenceNumber {
        self.0 >> 8
    }

    #[inline]
    pub(crate) fn kind(self) -> ValueKind {
        ValueKind::from_u8(self.0 as u8).expect("the byte was made of a kind")
    }

    #[inline]
    pub(crate) fn to_word(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Self {
        Packed(word)
    }
}

/// Where an entry is in its buffer.
#[derive(Debug)]
struct Place {
    packed: Packed,
    key_start: u32,
    value_len: u32,
    /// Written before readers can find the entry by its hash, and read only by those.
    prev: AtomicU32,
    key_len: u16,
    /// Bytes between the key and the value.
    gap: u16,
}

impl Place {
    /// `None` when the ranges can't be expressed in the small fields.
    ///
    /// # Panics
    ///
    /// When a range is not inside `owner`.
    #[inline]
    fn new(owner: &[u8], key: &Range<usize>, value: &Range<usize>, packed: Packed) -> Option<Self> {
        assert!(key.start <= key.end && key.end <= owner.len(), "the key is outside its buffer");
        assert!(value.start <= value.end && value.end <= owner.len(), "the value is outside its buffer");
        Some(Place {
            packed,
            key_start: u32::try_from(key.start).ok()?,
            value_len: u32::try_from(value.len()).ok()?,
            prev: AtomicU32::new(NONE),
            key_len: u16::try_from(key.len()).ok()?,
            gap: u16::try_from(value.start.checked_sub(key.end)?).ok()?,
        })
    }
}

/// How much of an entry [`EntryRef::touch`] reads: what comes behind, the processor foresees.
const TOUCHED_MAX: usize = 512;

/// One version of a key: its buffer, and where it is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EntryRef<'a> {
    owner: &'a Arc<[u8]>,
    place: &'a Place,
}

impl<'a> EntryRef<'a> {
    /// The buffer of the entry, and where its key starts there.
    #[inline]
    pub(crate) fn owner(self) -> (&'a Arc<[u8]>, u32) {
        (self.owner, self.place.key_start)
    }

    #[inline]
    pub(crate) fn user_key(self) -> &'a [u8] {
        let start = self.place.key_start as usize;
        &self.owner[start..start + usize::from(self.place.key_len)]
    }

    #[inline]
    fn value_range(self) -> Range<usize> {
        let Place { key_start, key_len, gap, value_len, .. } = self.place;
        let start = *key_start as usize + usize::from(*key_len) + usize::from(*gap);
        start..start + *value_len as usize
    }

    #[inline]
    pub(crate) fn value(self) -> &'a [u8] {
        &self.owner[self.value_range()]
    }

    /// Reads a byte of each line of the key and the value, up to [`TOUCHED_MAX`] bytes.
    #[inline]
    pub(crate) fn touch(self) -> u8 {
        let range = self.place.key_start as usize..self.value_range().end;
        let bytes = self.owner.get(range).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(TOUCHED_MAX)];
        let last = bytes.last().copied().unwrap_or(0);
        bytes.iter().step_by(64).fold(last, |sum, byte| sum.wrapping_add(*byte))
    }

    #[inline]
    pub(crate) fn value_slice(self) -> Slice {
        Slice::shared(self.owner, self.value_range())
    }

    #[inline]
    pub(crate) fn packed(self) -> Packed {
        self.place.packed
    }

    #[inline]
    pub(crate) fn key(self) -> InternalKeyRef<'a> {
        InternalKeyRef::new(self.user_key(), self.packed().seq(), self.packed().kind())
    }

    /// Index of the next older version of the key, or [`NONE`].
    #[inline]
    pub(crate) fn prev(self) -> u32 {
        self.place.prev.load(Ordering::Relaxed)
    }

    /// Sets that. The writer only, before it lets readers find the entry by its hash.
    #[inline]
    pub(crate) fn set_prev(self, prev: u32) {
        self.place.prev.store(prev, Ordering::Relaxed);
    }
}

/// The entries of a batch on their way into the store.
#[derive(Debug)]
pub(crate) struct NewBlock<'a> {
    owner: &'a Arc<[u8]>,
    places: Vec<Place>,
}

impl<'a> NewBlock<'a> {
    /// For up to `entries` entries over `owner`, at most [`BLOCK`].
    pub(crate) fn new(owner: &'a Arc<[u8]>, entries: usize) -> Self {
        NewBlock { owner, places: Vec::with_capacity(entries.min(BLOCK)) }
    }

    /// Adds an entry, whose value follows its key as in an encoded batch.
    ///
    /// # Panics
    ///
    /// When a range is not inside the buffer, or this is larger than 4 GiB.
    #[inline]
    pub(crate) fn push(&mut self, key: &Range<usize>, value: &Range<usize>, packed: Packed) {
        let place = Place::new(self.owner, key, value, packed);
        self.places.push(place.expect("batches are limited to 4 GiB"));
    }
}

/// Where an entry that came alone is put.
type Cell = OnceLock<(Arc<[u8]>, Place)>;

#[derive(Debug)]
enum Block {
    /// Entries that came one by one.
    Cells(Box<[Cell]>),
    /// Entries that came together, over one buffer.
    Batch(Arc<[u8]>, Box<[Place]>),
}

type Shelf = Box<[OnceLock<Block>]>;

/// All entries of a memtable, by index.
#[derive(Debug, Default)]
pub(crate) struct EntryStore {
    shelves: [OnceLock<Shelf>; SHELVES],
}

/// What only the writer of an [`EntryStore`] knows.
#[derive(Debug, Default)]
pub(crate) struct EntryWriter {
    /// Blocks so far.
    blocks: u32,
    /// Cells of the last block of cells.
    cells: usize,
    /// Indexes of its free ones.
    free: Range<u32>,
}

impl EntryWriter {
    /// Whether a batch may have blocks of its own.
    pub(crate) fn may_add_batch(&self) -> bool {
        self.blocks < BLOCKS_FOR_BATCHES
    }
}

/// Where an index is: shelf, block, place.
#[inline]
fn locate(index: u32) -> (usize, usize, usize) {
    let from_first = index as usize / BLOCK + FIRST;
    let shelf = (from_first.ilog2() - FIRST.ilog2()) as usize;
    (shelf, from_first - (FIRST << shelf), index as usize % BLOCK)
}

impl EntryStore {
    /// The entry at `index`.
    ///
    /// # Panics
    ///
    /// When there is none. Whoever has an index got it, directly or through a `Release` store, from the writer.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> EntryRef<'_> {
        let (shelf, block, place) = locate(index);
        let found = match self.shelves[shelf].get().and_then(|shelf| shelf[block].get()) {
            Some(Block::Cells(cells)) => cells[place].get().map(|(owner, place)| EntryRef { owner, place }),
            Some(Block::Batch(owner, places)) => Some(EntryRef { owner, place: &places[place] }),
            None => None,
        };
        found.expect("indexes are published after their entries")
    }

    /// Adds an entry over ranges of `owner`, or over a copy if they can't be expressed in the small fields. Returns it,
    /// its index, and the bytes that were allocated for it.
    ///
    /// # Panics
    ///
    /// When a range is not inside `owner`, or longer than the limits of the store; when the store is full.
    pub(crate) fn put(
        &self,
        writer: &mut EntryWriter,
        owner: &Arc<[u8]>,
        key: Range<usize>,
        value: Range<usize>,
        packed: Packed,
    ) -> (EntryRef<'_>, u32, usize) {
        let (owner, place) = match Place::new(owner, &key, &value, packed) {
            Some(place) => (Arc::clone(owner), place),
            None => {
                let copy: Arc<[u8]> = Arc::from([&owner[key.clone()], &owner[value.clone()]].concat());
                let place = Place::new(&copy, &(0..key.len()), &(key.len()..copy.len()), packed);
                (copy, place.expect("keys are limited to 65,535 bytes and values to 1 GiB"))
            }
        };
        let allocated = if writer.free.is_empty() { self.add_cells(writer) } else { 0 };
        let index = writer.free.next().expect("a block of cells is not empty");
        let (shelf, block, at) = locate(index);
        let cells = match self.shelves[shelf].get().and_then(|shelf| shelf[block].get()) {
            Some(Block::Cells(cells)) => cells,
            _ => unreachable!("free indexes are those of cells"),
        };
        assert!(cells[at].set((owner, place)).is_ok(), "an entry is written once");
        let (owner, place) = cells[at].get().expect("it was set just now");
        (EntryRef { owner, place }, index, allocated)
    }

    #[cold]
    fn add_cells(&self, writer: &mut EntryWriter) -> usize {
        writer.cells = (writer.cells * 2).clamp(CELLS_MIN, BLOCK);
        let cells: Box<[Cell]> = (0..writer.cells).map(|_| OnceLock::new()).collect();
        let bytes = size_of_val(&*cells);
        let (first, allocated) = self.add_block(writer, Block::Cells(cells));
        writer.free = first..first + writer.cells as u32;
        allocated + bytes
    }

    /// Adds the entries of a batch. Returns the index of the first, which the others follow, and the bytes that were
    /// allocated for them.
    ///
    /// # Panics
    ///
    /// When the store is full.
    pub(crate) fn put_block(&self, writer: &mut EntryWriter, new: NewBlock<'_>) -> (u32, usize) {
        let places = new.places.into_boxed_slice();
        let bytes = size_of_val(&*places);
        let (first, allocated) = self.add_block(writer, Block::Batch(Arc::clone(new.owner), places));
        (first, allocated + bytes)
    }

    /// Adds a block. Returns its first index, and the bytes of a new shelf.
    fn add_block(&self, writer: &mut EntryWriter, block: Block) -> (u32, usize) {
        assert!(writer.blocks < BLOCKS, "a memtable is full");
        let first = writer.blocks * BLOCK as u32;
        writer.blocks += 1;
        let (shelf, at, _) = locate(first);
        let mut allocated = 0;
        let blocks = self.shelves[shelf].get_or_init(|| {
            allocated += (FIRST << shelf) * size_of::<OnceLock<Block>>();
            (0..FIRST << shelf).map(|_| OnceLock::new()).collect()
        });
        assert!(blocks[at].set(block).is_ok(), "a block is added once");
        (first, allocated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_entries() {
        assert_eq!(size_of::<Cell>(), 48);
        assert_eq!(size_of::<Place>(), 24);
        assert_eq!(size_of::<OnceLock<Block>>(), 40);
    }

    #[test]
    fn places_follow_each_other() {
        let mut expected = (0, 0, 0);
        for index in 0..2_000_000 {
            assert_eq!(locate(index), expected, "index {index}");
            expected.2 += 1;
            if expected.2 == BLOCK {
                expected = (expected.0, expected.1 + 1, 0);
            }
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0, 0);
            }
        }
        assert!(locate(u32::MAX).0 < SHELVES);
        assert!(BLOCKS as usize * BLOCK < NONE as usize);
    }

    fn put_alone(store: &EntryStore, owner: &Arc<[u8]>, key: Range<usize>, value: Range<usize>) -> u32 {
        store.put(&mut EntryWriter::default(), owner, key, value, Packed::new(5, ValueKind::Put)).1
    }

    #[test]
    fn far_apart_ranges_are_copied() {
        let owner: Arc<[u8]> = Arc::from(vec![7; 100_000]);
        let store = EntryStore::default();
        let entry = store.get(put_alone(&store, &owner, 10..13, 90_000..90_100));
        assert_eq!((entry.user_key(), entry.value()), (&[7; 3][..], &[7; 100][..]));
        assert!(!Arc::ptr_eq(entry.owner().0, &owner));
        let store = EntryStore::default();
        let entry = store.get(put_alone(&store, &owner, 100..103, 50..60));
        assert_eq!((entry.user_key(), entry.value()), (&[7; 3][..], &[7; 10][..]));
        let store = EntryStore::default();
        let entry = store.get(put_alone(&store, &owner, 10..13, 14..20));
        assert!(Arc::ptr_eq(entry.owner().0, &owner));
        assert_eq!((entry.packed().seq(), entry.packed().kind()), (5, ValueKind::Put));
    }

    /// Cells that are free stay so when a batch comes in between.
    #[test]
    fn batches_and_single_entries_take_turns() {
        let owner: Arc<[u8]> = (0..=255).collect();
        let (store, writer) = (EntryStore::default(), &mut EntryWriter::default());
        let mut indexes = Vec::new();
        for round in 0..1000_usize {
            let seq = round as u64;
            if round % 7 == 0 {
                let mut block = NewBlock::new(&owner, round % 100 + 1);
                for at in 0..round % 100 + 1 {
                    block.push(&(at..at + 1), &(at + 2..at + 4), Packed::new(seq, ValueKind::Put));
                }
                let (first, _) = store.put_block(writer, block);
                indexes.extend((0..round % 100 + 1).map(|at| (first + at as u32, at, seq)));
            } else {
                let at = round % 200;
                let packed = Packed::new(seq, ValueKind::Put);
                indexes.push((store.put(writer, &owner, at..at + 1, at + 2..at + 4, packed).1, at, seq));
            }
        }
        for (index, at, seq) in indexes {
            let entry = store.get(index);
            let at = at as u8;
            assert_eq!((entry.user_key(), entry.value()), (&[at][..], &[at + 2, at + 3][..]), "{index}");
            assert_eq!((entry.packed().seq(), entry.prev()), (seq, NONE));
        }
    }
}
