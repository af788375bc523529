//! [`Memtable`]: the recent writes of one keyspace, in memory.
//!
//! Written by the commit leader, read by everyone. The bytes stay where the write put them: an entry points into the
//! buffer of its batch. Three structures refer to the entries by index:
//!
//! ```text
//! hash index --> newest entry of a key --> older entry --> ...      get
//! order ------------------> entry, entry, entry, ...                iterators, and gets of very old versions
//! entry store: entries by index, each with its range of a shared buffer
//! ```
//!
//! Threads: inserts take a lock among themselves; reads take none and never wait. What a reader may see is decided by its
//! sequence number: the engine makes a number visible only after all entries up to it are here.

use crate::MemtableIterator;
use crate::entries::{EntryRef, EntryStore, NONE, Packed};
use crate::hash_index::HashIndex;
use crate::leaf_list::LeafList;
use crate::mem_key::{ShortKey, WholeKey};
use crate::ordered::{Direction, OrderedMem};
use crate::writer::{MemtableWriter, Writer};
use esker_base::sync::Mutex;
use esker_base::{Lookup, SequenceNumber, Slice, ValueKind, planted};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Older versions that a lookup walks through before it searches the order instead.
const HOPS_MAX: usize = 32;
/// A slot of the hash index is made for this many expected bytes.
const BYTES_PER_SLOT: usize = 512;

/// A version that a lookup found. It may be a tombstone.
#[derive(Clone, Debug)]
pub struct Found {
    /// The number of the write.
    pub seq: SequenceNumber,
    /// What the write did.
    pub kind: ValueKind,
    /// The value; empty for tombstones.
    pub value: Slice,
}

/// The same, borrowed from the memtable.
#[derive(Clone, Copy, Debug)]
pub struct FoundRef<'a> {
    /// The number of the write.
    pub seq: SequenceNumber,
    /// What the write did.
    pub kind: ValueKind,
    /// The value; empty for tombstones.
    pub value: &'a [u8],
}

/// Recent writes, ordered by user key and then newest first.
///
/// To drop a large memtable takes long (hundreds of nanoseconds an entry): do it away from the foreground.
pub struct Memtable {
    pub(crate) entries: EntryStore,
    pub(crate) index: HashIndex,
    pub(crate) order: LeafList,
    writer: Mutex<Writer>,
    /// Set when versions of a key did not come in ascending order: lookups then use the order, not the hash index.
    pub(crate) disordered: AtomicBool,
    pub(crate) hash_seed: u64,
    pub(crate) len: AtomicUsize,
    pub(crate) deletes: AtomicUsize,
    pub(crate) memory: AtomicUsize,
    /// `u64::MAX` while empty.
    pub(crate) smallest_seq: AtomicU64,
    pub(crate) largest_seq: AtomicU64,
}

impl Memtable {
    /// An empty memtable. `hash_seed` is the seed of the hashes that `insert` and lookups are given; `expected_bytes` is
    /// the size at which it will be sealed, and only a hint: the first hash table is made for it.
    pub fn new(hash_seed: u64, expected_bytes: usize) -> Self {
        let index = HashIndex::new(expected_bytes / BYTES_PER_SLOT);
        let order = LeafList::new();
        let writer = Writer::new(order.directory());
        Memtable {
            memory: AtomicUsize::new(size_of::<Memtable>() + index.bytes()),
            entries: EntryStore::default(),
            index,
            order,
            writer: Mutex::new(writer),
            disordered: AtomicBool::new(false),
            hash_seed,
            len: AtomicUsize::new(0),
            deletes: AtomicUsize::new(0),
            smallest_seq: AtomicU64::new(u64::MAX),
            largest_seq: AtomicU64::new(0),
        }
    }

    /// Waits for other writers, and keeps them out until the guard is dropped. Readers are not disturbed.
    #[inline]
    pub fn writer(&self) -> MemtableWriter<'_> {
        MemtableWriter { table: self, writer: self.writer.lock() }
    }

    /// The newest version of a key that the lookup may see. Allocates nothing.
    #[inline]
    pub fn get(&self, lookup: &Lookup<'_>) -> Option<Found> {
        let entry = self.find(lookup)?;
        Some(Found { seq: entry.packed().seq(), kind: entry.packed().kind(), value: entry.value_slice() })
    }

    /// The same, borrowed: copies and counts nothing. Nothing is pinned but the borrow of the memtable itself.
    #[inline]
    pub fn get_ref(&self, lookup: &Lookup<'_>) -> Option<FoundRef<'_>> {
        let entry = self.find(lookup)?;
        Some(FoundRef { seq: entry.packed().seq(), kind: entry.packed().kind(), value: entry.value() })
    }

    #[inline]
    fn find(&self, lookup: &Lookup<'_>) -> Option<EntryRef<'_>> {
        if self.disordered.load(Ordering::Relaxed) {
            return self.search(lookup);
        }
        let mut newest = None;
        self.index.find(lookup.hash, |index| {
            let entry = self.entries.get(index);
            let found = entry.user_key() == lookup.user_key;
            if found {
                newest = Some(entry);
            }
            found
        });
        let newest = newest?;
        if newest.prev() != NONE && planted::is(planted::Fault::OlderVersionFound) {
            return self.older(newest, lookup);
        }
        if newest.packed().seq() <= lookup.seq { Some(newest) } else { self.older(newest, lookup) }
    }

    /// The first entry after `entry` in its chain that the lookup may see.
    #[cold]
    fn older<'a>(&'a self, mut entry: EntryRef<'a>, lookup: &Lookup<'_>) -> Option<EntryRef<'a>> {
        for _ in 0..HOPS_MAX {
            if entry.prev() == NONE {
                return None;
            }
            entry = self.entries.get(entry.prev());
            if entry.packed().seq() <= lookup.seq {
                return Some(entry);
            }
        }
        self.search(lookup)
    }

    /// The lookup by order.
    #[cold]
    fn search(&self, lookup: &Lookup<'_>) -> Option<EntryRef<'_>> {
        // Saturates: a sequence number beyond the largest sees everything.
        let packed = Packed::newest_of(lookup.seq.min(esker_base::MAX_SEQUENCE));
        let found = self.first_at(WholeKey { user_key: lookup.user_key, packed })?;
        (found.user_key() == lookup.user_key).then_some(found)
    }

    /// The first entry at or after `key`.
    pub(crate) fn first_at(&self, key: WholeKey<'_>) -> Option<EntryRef<'_>> {
        let mut first = None;
        self.order.fill(&self.entries, Bound::Included(key), Direction::Forward, 1, |key| {
            first = Some(self.entries.get(key.index()));
        });
        first
    }

    /// An iterator, not positioned yet. It sees at least what is here now.
    pub fn iter(self: &Arc<Self>) -> MemtableIterator {
        MemtableIterator::new(Arc::clone(self))
    }

    /// The same for who reads all keys and values, as a flush does: entries that are not in the processor's caches are read
    /// many at a time.
    pub fn iter_whole(self: &Arc<Self>) -> MemtableIterator {
        MemtableIterator::whole(Arc::clone(self))
    }

    /// Replaces `keys` by those of the entries after `from`, or before it. For iterators.
    pub(crate) fn fill(
        &self,
        from: Bound<WholeKey<'_>>,
        direction: Direction,
        limit: usize,
        keys: &mut Vec<ShortKey>,
    ) {
        keys.clear();
        self.order.fill(&self.entries, from, direction, limit, |key| keys.push(*key));
    }

    /// The entries by index, for iterators.
    #[inline]
    pub(crate) fn entries(&self) -> &EntryStore {
        &self.entries
    }

    /// Bytes in use: structures as allocated, and each buffer once, also if only some of it belongs to this memtable.
    #[inline]
    pub fn memory_usage(&self) -> usize {
        self.memory.load(Ordering::Relaxed) + self.order.bytes()
    }

    /// Number of versions.
    #[inline]
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// Whether there is no version.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of versions that are tombstones.
    #[inline]
    pub fn deletes(&self) -> usize {
        self.deletes.load(Ordering::Relaxed)
    }

    /// Smallest sequence number here; `None` when empty.
    #[inline]
    pub fn smallest_seq(&self) -> Option<SequenceNumber> {
        (!self.is_empty()).then(|| self.smallest_seq.load(Ordering::Relaxed))
    }

    /// Largest sequence number here; `None` when empty.
    #[inline]
    pub fn largest_seq(&self) -> Option<SequenceNumber> {
        (!self.is_empty()).then(|| self.largest_seq.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Memtable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memtable")
            .field("len", &self.len())
            .field("deletes", &self.deletes())
            .field("memory_usage", &self.memory_usage())
            .field("smallest_seq", &self.smallest_seq())
            .field("largest_seq", &self.largest_seq())
            .finish_non_exhaustive()
    }
}
