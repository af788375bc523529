//! [`HashIndex`]: from the hash of a key to the index of its newest entry. Exact, and the whole of a point lookup.
//!
//! An open-addressing table of 64-bit slots. The upper half of a slot holds 32 bits of the hash, the lower half the index
//! of the entry plus one; zero is an empty slot:
//!
//! ```text
//! slot := hash:32 (entry + 1):32        position := the upper bits of hash:32, then linear probing
//! ```
//!
//! One writer, any number of readers. A slot is stored with `Release` after its entry, and read with `Acquire`.
//!
//! Growth has no pause: when the table is half full, one of twice the size is added, and every insert moves a few slots.
//! Since positions are the upper bits of the hash, moving is a walk through both tables in the same order, and touches no
//! entry. While it lasts, lookups try the new table first, then the old one. Nothing is taken out of the old table, so
//! a reader that looks there is never late: what it misses is newer than what it may see.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Slots in the smallest table.
const SLOTS_MIN: usize = 64;
/// Slots in the largest first table.
const SLOTS_FIRST_MAX: usize = 1 << 20;
/// Tables, each twice as large as the one before.
const TABLES: usize = 27;
/// Slots that an insert moves to the new table.
const MOVES: usize = 16;

type Table = Box<[AtomicU64]>;

/// Where a slot for a hash is, or could be.
enum Place {
    /// A slot with this hash and an entry that was accepted.
    Taken { position: usize, entry: u32 },
    /// The empty slot that ends the search.
    Vacant { position: usize },
}

/// Where the newest version of a key is, or will be.
#[derive(Debug)]
pub(crate) struct Spot {
    /// Slot of the newest table.
    position: usize,
    /// Whether that is empty.
    vacant: bool,
    /// The newest version so far.
    pub(crate) entry: Option<u32>,
}

/// From hashes to the newest entries.
#[derive(Debug)]
pub(crate) struct HashIndex {
    tables: [OnceLock<Table>; TABLES],
    /// Number of the newest table, times two, plus one while slots are moved to it.
    state: AtomicU32,
}

/// What only the writer of a [`HashIndex`] knows.
#[derive(Debug, Default)]
pub(crate) struct HashWriter {
    /// Slots in use in the newest table.
    used: usize,
    /// Slots of the older table that were moved.
    moved: usize,
}

impl HashIndex {
    /// An index that starts with about `slots` slots.
    pub(crate) fn new(slots: usize) -> Self {
        let first = slots.next_power_of_two().clamp(SLOTS_MIN, SLOTS_FIRST_MAX);
        let mut tables = [const { OnceLock::new() }; TABLES];
        tables[0] = OnceLock::from(empty_table(first));
        HashIndex { tables, state: AtomicU32::new(0) }
    }

    #[inline]
    fn table(&self, number: usize) -> &[AtomicU64] {
        self.tables[number].get().expect("a table is there before its number is known")
    }

    /// The newest entry with this hash that `accept` takes.
    #[inline]
    pub(crate) fn find(&self, hash: u64, mut accept: impl FnMut(u32) -> bool) -> Option<u32> {
        let hash = upper(hash);
        let state = self.state.load(Ordering::Acquire);
        let newest = (state / 2) as usize;
        match search(self.table(newest), hash, &mut accept) {
            Place::Taken { entry, .. } => Some(entry),
            Place::Vacant { .. } if state % 2 == 1 => match search(self.table(newest - 1), hash, &mut accept)
            {
                Place::Taken { entry, .. } => Some(entry),
                Place::Vacant { .. } => None,
            },
            Place::Vacant { .. } => None,
        }
    }

    /// The newest entry with this hash that `accept` takes, and where a newer one goes. The writer only, which must put
    /// that entry next.
    #[inline]
    pub(crate) fn spot(&self, hash: u64, mut accept: impl FnMut(u32) -> bool) -> Spot {
        let hash = upper(hash);
        let state = self.state.load(Ordering::Relaxed);
        let newest = (state / 2) as usize;
        match search(self.table(newest), hash, &mut accept) {
            Place::Taken { position, entry } => Spot { position, vacant: false, entry: Some(entry) },
            Place::Vacant { position } => {
                let mut entry = None;
                if state % 2 == 1
                    && let Place::Taken { entry: older, .. } =
                        search(self.table(newest - 1), hash, &mut accept)
                {
                    entry = Some(older);
                }
                Spot { position, vacant: true, entry }
            }
        }
    }

    /// Looks at where the hashes belong, so that the memory is near when they are put. The writer only.
    #[inline]
    pub(crate) fn touch(&self, hashes: &[u64]) {
        let table = self.table((self.state.load(Ordering::Relaxed) / 2) as usize);
        let seen = hashes
            .iter()
            .fold(0, |seen, &hash| seen ^ table[start_of(table, upper(hash))].load(Ordering::Relaxed));
        black_box(seen);
    }

    /// Makes `entry` the newest one of its key, at the spot that was found for it. Returns the bytes that were allocated.
    ///
    /// `same_keys` says whether two older entries share a key.
    #[inline]
    pub(crate) fn put(
        &self,
        writer: &mut HashWriter,
        hash: u64,
        entry: u32,
        spot: &Spot,
        same_keys: impl Fn(u32, u32) -> bool,
    ) -> usize {
        let hash = upper(hash);
        let state = self.state.load(Ordering::Relaxed);
        let newest = (state / 2) as usize;
        let table = self.table(newest);
        writer.used += usize::from(spot.vacant);
        table[spot.position].store(slot(hash, entry), Ordering::Release);
        if state % 2 == 1 {
            self.move_some(writer, newest, same_keys);
            0
        } else if writer.used * 2 > table.len() {
            self.grow(writer, newest)
        } else {
            0
        }
    }

    #[cold]
    fn grow(&self, writer: &mut HashWriter, newest: usize) -> usize {
        if newest + 1 == TABLES {
            return 0;
        }
        let slots = self.table(newest).len() * 2;
        self.tables[newest + 1].get_or_init(|| empty_table(slots));
        *writer = HashWriter::default();
        self.state.store((newest as u32 + 1) * 2 + 1, Ordering::Release);
        slots * size_of::<AtomicU64>()
    }

    /// Moves a few slots from the table before `newest` to it, unless there is a newer entry of the same key.
    fn move_some(&self, writer: &mut HashWriter, newest: usize, same_keys: impl Fn(u32, u32) -> bool) {
        let (old, new) = (self.table(newest - 1), self.table(newest));
        let end = old.len().min(writer.moved + MOVES);
        for moving in &old[writer.moved..end] {
            let moving = moving.load(Ordering::Relaxed);
            let Some(entry) = entry_of(moving) else { continue };
            if let Place::Vacant { position } = search(new, upper(moving), |newer| same_keys(newer, entry)) {
                new[position].store(moving, Ordering::Release);
                writer.used += 1;
            }
        }
        writer.moved = end;
        if end == old.len() {
            self.state.store(newest as u32 * 2, Ordering::Release);
        }
    }

    /// Bytes of all tables.
    pub(crate) fn bytes(&self) -> usize {
        self.tables.iter().filter_map(OnceLock::get).map(|table| size_of_val(&**table)).sum()
    }
}

/// The half of the hash that is kept.
#[inline]
fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[inline]
fn slot(hash: u32, entry: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(entry + 1)
}

#[inline]
fn entry_of(slot: u64) -> Option<u32> {
    (slot as u32).checked_sub(1)
}

/// Where a search begins.
#[inline]
fn start_of(table: &[AtomicU64], hash: u32) -> usize {
    ((u64::from(hash) * table.len() as u64) >> 32) as usize
}

/// Tables are at most half full, so that a search meets an empty slot; a full one ends at its start.
#[inline]
fn search(table: &[AtomicU64], hash: u32, mut accept: impl FnMut(u32) -> bool) -> Place {
    let start = start_of(table, hash);
    let mut position = start;
    loop {
        let slot = table[position].load(Ordering::Acquire);
        let Some(entry) = entry_of(slot) else { return Place::Vacant { position } };
        if upper(slot) == hash && accept(entry) {
            return Place::Taken { position, entry };
        }
        position += 1;
        if position == table.len() {
            position = 0;
        }
        assert!(position != start, "a hash table is full");
    }
}

/// A table of empty slots. It is collected in place over zeroed memory, so that a large one costs page faults when its
/// slots are used and not before.
fn empty_table(slots: usize) -> Table {
    vec![0; slots].into_iter().map(AtomicU64::new).collect::<Vec<_>>().into_boxed_slice()
}
