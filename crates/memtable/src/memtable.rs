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
use crate::directory::Directory;
use crate::entries::{Entry, EntryStore, NONE, pack};
use crate::hash_index::{HashIndex, HashWriter};
use crate::leaf_list::LeafList;
use crate::mem_key::{MemKey, ShortKey};
use crate::ordered::{Direction, OrderedMem};
use esker_base::sync::{Mutex, MutexGuard};
use esker_base::{Lookup, SequenceNumber, Slice, ValueKind, key_hash, planted};
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Older versions that a lookup walks through before it searches the order instead.
const HOPS_MAX: usize = 32;
/// A slot of the hash index is made for this many expected bytes.
const BYTES_PER_SLOT: usize = 512;
/// What a buffer takes beside its bytes: two counts, and the allocator's header.
const OWNER_OVERHEAD: usize = 16 + 8;

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
    entries: EntryStore,
    index: HashIndex,
    order: LeafList,
    writer: Mutex<Writer>,
    /// Set when versions of a key did not come in ascending order: lookups then use the order, not the hash index.
    disordered: AtomicBool,
    hash_seed: u64,
    len: AtomicUsize,
    deletes: AtomicUsize,
    memory: AtomicUsize,
    /// `u64::MAX` while empty.
    smallest_seq: AtomicU64,
    largest_seq: AtomicU64,
}

/// The state of whoever inserts.
#[derive(Debug)]
struct Writer {
    /// Entries in the store.
    entries: u32,
    index: HashWriter,
    directory: Directory,
    /// Address of the buffer of the last entry, which is still alive. A buffer's entries come one after the other.
    last_owner: usize,
}

/// The right to insert into a [`Memtable`]: from [`Memtable::writer`]. A batch takes it once.
#[derive(Debug)]
pub struct MemtableWriter<'a> {
    table: &'a Memtable,
    writer: MutexGuard<'a, Writer>,
}

impl MemtableWriter<'_> {
    /// Adds a version of a key. `key` and `value` are ranges of `owner`, the buffer that all operations of a batch share;
    /// `hash` is [`key_hash`] of the key with the memtable's seed.
    ///
    /// Versions of one key should come in ascending order, as they do from a log: other orders are right, but make lookups
    /// slower from then on. A version that is already here stays as it is.
    ///
    /// # Panics
    ///
    /// When a range is not inside `owner`, a key is longer than 65,535 bytes or a value than 4 GiB, and after 2³² - 2
    /// entries.
    #[inline]
    pub fn insert(
        &mut self,
        owner: &Arc<[u8]>,
        key: Range<usize>,
        value: Range<usize>,
        seq: SequenceNumber,
        kind: ValueKind,
        hash: u64,
    ) {
        debug_assert_eq!(
            hash,
            key_hash(self.table.hash_seed, &owner[key.clone()]),
            "the hash of another key"
        );
        let entry = Entry::new(owner, key, value, pack(seq, kind));
        self.table.insert_entry(&mut self.writer, entry, hash);
    }
}

impl Memtable {
    /// An empty memtable. `hash_seed` is the seed of the hashes that `insert` and lookups are given; `expected_bytes` is
    /// the size at which it will be sealed, and only a hint: the first hash table is made for it.
    pub fn new(hash_seed: u64, expected_bytes: usize) -> Self {
        let index = HashIndex::new(expected_bytes / BYTES_PER_SLOT);
        let order = LeafList::new();
        let writer =
            Writer { entries: 0, index: HashWriter::default(), directory: order.directory(), last_owner: 0 };
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

    /// Adds one version of a key: [`MemtableWriter::insert`] with a guard for it alone.
    ///
    /// # Panics
    ///
    /// As there.
    pub fn insert(
        &self,
        owner: &Arc<[u8]>,
        key: Range<usize>,
        value: Range<usize>,
        seq: SequenceNumber,
        kind: ValueKind,
        hash: u64,
    ) {
        self.writer().insert(owner, key, value, seq, kind, hash);
    }

    fn insert_entry(&self, writer: &mut Writer, entry: Entry, hash: u64) {
        let index = writer.entries;
        assert!(index < NONE - 1, "a memtable is full");
        let (seq, kind) = (entry.seq(), entry.kind());
        let spot = self.index.spot(hash, |other| self.entries.get(other).user_key() == entry.user_key());
        let ascending = spot.entry.is_none_or(|newest| self.entries.get(newest).packed() < entry.packed());
        if !ascending && self.contains(&entry) {
            return;
        }
        let mut memory = self.owner_bytes(writer, &entry);
        let key = ShortKey::of(&entry, index);
        memory += self.entries.put(index, entry.after(spot.entry.unwrap_or(NONE)));
        writer.entries += 1;
        self.order.insert(&mut writer.directory, &self.entries, key);
        if ascending {
            let same_keys = |a: u32, b: u32| self.entries.get(a).user_key() == self.entries.get(b).user_key();
            memory += self.index.put(&mut writer.index, hash, index, &spot, same_keys);
        } else {
            self.disordered.store(true, Ordering::Relaxed);
        }
        self.memory.store(self.memory.load(Ordering::Relaxed) + memory, Ordering::Relaxed);
        self.count(seq, kind);
    }

    #[cold]
    fn contains(&self, entry: &Entry) -> bool {
        let key = MemKey::of(entry, 0);
        self.first_at(&key).is_some_and(|found| found.key() == entry.key())
    }

    /// Bytes of the entry's buffer, unless it was counted.
    fn owner_bytes(&self, writer: &mut Writer, entry: &Entry) -> usize {
        let owner = entry.owner().0;
        let address = owner.as_ptr().addr();
        if address == writer.last_owner {
            return 0;
        }
        writer.last_owner = address;
        owner.len() + OWNER_OVERHEAD
    }

    /// Called under the writers' lock.
    fn count(&self, seq: SequenceNumber, kind: ValueKind) {
        let add =
            |counter: &AtomicUsize, n| counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        if matches!(kind, ValueKind::Delete | ValueKind::SingleDelete) {
            add(&self.deletes, 1);
        }
        let smallest = self.smallest_seq.load(Ordering::Relaxed).min(seq);
        self.smallest_seq.store(smallest, Ordering::Relaxed);
        let largest = self.largest_seq.load(Ordering::Relaxed).max(seq);
        self.largest_seq.store(largest, Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed) + 1;
        self.len.store(len, Ordering::Release);
    }

    /// The newest version of a key that the lookup may see. Allocates nothing.
    #[inline]
    pub fn get(&self, lookup: &Lookup<'_>) -> Option<Found> {
        let entry = self.find(lookup)?;
        Some(Found { seq: entry.seq(), kind: entry.kind(), value: entry.value_slice() })
    }

    /// The same, borrowed: copies and counts nothing. Nothing is pinned but the borrow of the memtable itself.
    #[inline]
    pub fn get_ref(&self, lookup: &Lookup<'_>) -> Option<FoundRef<'_>> {
        let entry = self.find(lookup)?;
        Some(FoundRef { seq: entry.seq(), kind: entry.kind(), value: entry.value() })
    }

    #[inline]
    fn find(&self, lookup: &Lookup<'_>) -> Option<&Entry> {
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
        if newest.seq() <= lookup.seq { Some(newest) } else { self.older(newest, lookup) }
    }

    /// The first entry after `entry` in its chain that the lookup may see.
    #[cold]
    fn older<'a>(&'a self, mut entry: &'a Entry, lookup: &Lookup<'_>) -> Option<&'a Entry> {
        for _ in 0..HOPS_MAX {
            if entry.prev() == NONE {
                return None;
            }
            entry = self.entries.get(entry.prev());
            if entry.seq() <= lookup.seq {
                return Some(entry);
            }
        }
        self.search(lookup)
    }

    /// The lookup by order.
    #[cold]
    fn search(&self, lookup: &Lookup<'_>) -> Option<&Entry> {
        // Saturates: a sequence number beyond the largest sees everything.
        let packed = pack(lookup.seq.min(esker_base::MAX_SEQUENCE), ValueKind::Delete) | 0xff;
        let found = self.first_at(&MemKey::lookup(lookup.user_key, packed))?;
        (found.user_key() == lookup.user_key).then_some(found)
    }

    /// The first entry at or after `key`.
    fn first_at(&self, key: &MemKey<'_>) -> Option<&Entry> {
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

    /// Replaces `keys` by those of the entries after `from`, or before it. For iterators.
    pub(crate) fn fill(
        &self,
        from: Bound<&MemKey<'_>>,
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
