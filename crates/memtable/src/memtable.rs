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
use crate::entries::{BLOCK, EntryRef, EntryStore, EntryWriter, NONE, NewBlock, Packed};
use crate::hash_index::{HashIndex, HashWriter};
use crate::leaf_list::LeafList;
use crate::mem_key::{ShortKey, WholeKey};
use crate::ordered::{Direction, OrderedMem};
use esker_base::sync::{Mutex, MutexGuard};
use esker_base::{BatchOp, BatchReader, Lookup, SequenceNumber, Slice, ValueKind, key_hash, planted};
use std::fmt;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Older versions that a lookup walks through before it searches the order instead.
const HOPS_MAX: usize = 32;
/// A slot of the hash index is made for this many expected bytes.
const BYTES_PER_SLOT: usize = 512;
/// Operations from which on a batch gets blocks of its own in the store.
const BLOCK_MIN: usize = 16;
/// What a buffer takes beside its bytes: two counts, and the allocator's header.
const OWNER_OVERHEAD: usize = 16 + 8;

/// The operations of an encoded batch, and the number of the next.
struct Operations<'a> {
    next: SequenceNumber,
    batch: &'a Arc<[u8]>,
    reader: BatchReader<'a>,
}

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
    entries: EntryWriter,
    index: HashWriter,
    directory: Directory,
    /// Address of the buffer of the last entry, which is still alive. A buffer's entries come one after the other.
    last_owner: usize,
    /// Hashes of the keys of a batch. Kept for the next one.
    hashes: Vec<u64>,
}

/// What inserts have added, for the counters that others read.
#[derive(Debug)]
struct Added {
    memory: usize,
    len: usize,
    deletes: usize,
    smallest_seq: SequenceNumber,
    largest_seq: SequenceNumber,
}

impl Added {
    fn nothing() -> Self {
        Added { memory: 0, len: 0, deletes: 0, smallest_seq: SequenceNumber::MAX, largest_seq: 0 }
    }
}

/// The right to insert into a [`Memtable`]: from [`Memtable::writer`]. A batch takes it once.
#[derive(Debug)]
pub struct MemtableWriter<'a> {
    table: &'a Memtable,
    writer: MutexGuard<'a, Writer>,
}

impl MemtableWriter<'_> {
    /// Adds a version of a key. `key` and `value` are ranges of `owner`, a buffer that operations may share; `hash` is
    /// [`key_hash`] of the key with the memtable's seed.
    ///
    /// Versions of one key should come in ascending order, as they do from a log: other orders are right, but make lookups
    /// slower from then on. A version that is already here stays as it is.
    ///
    /// # Panics
    ///
    /// When a range is not inside `owner`, a key is longer than 65,535 bytes or a value than 4 GiB, and after 2³² - 512
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
        let mut added = Added::nothing();
        self.insert_one(&mut added, owner, key, value, Packed::new(seq, kind), hash);
        self.table.count(&added);
    }

    #[inline]
    fn insert_one(
        &mut self,
        added: &mut Added,
        owner: &Arc<[u8]>,
        key: Range<usize>,
        value: Range<usize>,
        packed: Packed,
        hash: u64,
    ) {
        let entries = &self.table.entries;
        let (entry, index, memory) = entries.put(&mut self.writer.entries, owner, key, value, packed);
        added.memory += memory;
        self.table.link(&mut self.writer, added, entry, index, hash);
    }

    /// Adds the operations of an encoded batch (see [`esker_base::WriteBatch`]), about `count` of them, which have the
    /// numbers from `first` on. Tells `inserted` the number of each that is in.
    ///
    /// # Errors
    ///
    /// The offset of an operation that can't be decoded. Some of those before it may be in.
    ///
    /// # Panics
    ///
    /// When the memtable is full: see [`insert`](Self::insert).
    pub fn insert_batch(
        &mut self,
        batch: &Arc<[u8]>,
        first: SequenceNumber,
        count: u32,
        mut inserted: impl FnMut(SequenceNumber),
    ) -> Result<(), usize> {
        let mut added = Added::nothing();
        let mut operations = Operations { next: first, batch, reader: BatchReader::new(batch) };
        let done = if (count as usize) < BLOCK_MIN {
            self.insert_some(&mut added, &mut operations, &mut inserted)
        } else {
            self.insert_blocks(&mut added, count as usize, &mut operations, &mut inserted)
        };
        self.table.count(&added);
        done
    }

    #[inline]
    fn insert_some(
        &mut self,
        added: &mut Added,
        operations: &mut Operations<'_>,
        inserted: &mut impl FnMut(SequenceNumber),
    ) -> Result<(), usize> {
        for operation in operations.reader.by_ref() {
            let BatchOp { key, value, kind, .. } = operation?;
            let hash = key_hash(self.table.hash_seed, &operations.batch[key.clone()]);
            let seq = operations.next;
            self.insert_one(added, operations.batch, key, value, Packed::new(seq, kind), hash);
            inserted(seq);
            operations.next += 1;
        }
        Ok(())
    }

    /// As many at a time as have a block in the store: all of them are put there, their places in the hash index are
    /// looked at, for many misses of the caches at once, and then they are linked one by one.
    #[inline(never)]
    fn insert_blocks(
        &mut self,
        added: &mut Added,
        mut count: usize,
        operations: &mut Operations<'_>,
        inserted: &mut impl FnMut(SequenceNumber),
    ) -> Result<(), usize> {
        let table = self.table;
        while count > 0 && self.writer.entries.may_add_batch() {
            let writer = &mut *self.writer;
            let mut block = NewBlock::new(operations.batch, count);
            let mut hashes = std::mem::take(&mut writer.hashes);
            hashes.clear();
            let mut seq = operations.next;
            while hashes.len() < count.min(BLOCK) {
                let Some(operation) = operations.reader.next() else { break };
                let BatchOp { key, value, kind, .. } = operation?;
                hashes.push(key_hash(table.hash_seed, &operations.batch[key.clone()]));
                block.push(&key, &value, Packed::new(operations.next, kind));
                operations.next += 1;
            }
            if hashes.is_empty() {
                break;
            }
            let (first, memory) = table.entries.put_block(&mut writer.entries, block);
            added.memory += memory;
            table.index.touch(&hashes);
            for (index, &hash) in (first..).zip(&hashes) {
                table.link(writer, added, table.entries.get(index), index, hash);
                inserted(seq);
                seq += 1;
            }
            count -= hashes.len();
            writer.hashes = hashes;
        }
        self.insert_some(added, operations, inserted)
    }
}

impl Memtable {
    /// An empty memtable. `hash_seed` is the seed of the hashes that `insert` and lookups are given; `expected_bytes` is
    /// the size at which it will be sealed, and only a hint: the first hash table is made for it.
    pub fn new(hash_seed: u64, expected_bytes: usize) -> Self {
        let index = HashIndex::new(expected_bytes / BYTES_PER_SLOT);
        let order = LeafList::new();
        let writer = Writer {
            entries: EntryWriter::default(),
            index: HashWriter::default(),
            directory: order.directory(),
            last_owner: 0,
            hashes: Vec::new(),
        };
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

    /// Makes an entry of the store one that readers find.
    #[inline]
    fn link(&self, writer: &mut Writer, added: &mut Added, entry: EntryRef<'_>, index: u32, hash: u64) {
        let packed = entry.packed();
        debug_assert_eq!(hash, key_hash(self.hash_seed, entry.user_key()), "the hash of another key");
        let spot = self.index.spot(hash, |other| self.entries.get(other).user_key() == entry.user_key());
        let ascending = spot.entry.is_none_or(|newest| self.entries.get(newest).packed() < packed);
        if !ascending && self.contains(entry) {
            return;
        }
        added.memory += owner_bytes(writer, entry);
        entry.set_prev(spot.entry.unwrap_or(NONE));
        self.order.insert(&mut writer.directory, &self.entries, entry, index);
        if ascending {
            let same_keys = |a: u32, b: u32| self.entries.get(a).user_key() == self.entries.get(b).user_key();
            added.memory += self.index.put(&mut writer.index, hash, index, &spot, same_keys);
        } else {
            self.disordered.store(true, Ordering::Relaxed);
        }
        added.len += 1;
        added.deletes += usize::from(matches!(packed.kind(), ValueKind::Delete | ValueKind::SingleDelete));
        added.smallest_seq = added.smallest_seq.min(packed.seq());
        added.largest_seq = added.largest_seq.max(packed.seq());
    }

    #[cold]
    fn contains(&self, entry: EntryRef<'_>) -> bool {
        self.first_at(WholeKey::of(entry)).is_some_and(|found| found.key() == entry.key())
    }

    /// Called under the writers' lock.
    #[inline]
    fn count(&self, added: &Added) {
        let add =
            |counter: &AtomicUsize, n| counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        add(&self.memory, added.memory);
        if added.len == 0 {
            return;
        }
        if added.deletes > 0 {
            add(&self.deletes, added.deletes);
        }
        let smallest = self.smallest_seq.load(Ordering::Relaxed).min(added.smallest_seq);
        self.smallest_seq.store(smallest, Ordering::Relaxed);
        let largest = self.largest_seq.load(Ordering::Relaxed).max(added.largest_seq);
        self.largest_seq.store(largest, Ordering::Relaxed);
        self.len.store(self.len.load(Ordering::Relaxed) + added.len, Ordering::Release);
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
    fn first_at(&self, key: WholeKey<'_>) -> Option<EntryRef<'_>> {
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

/// Bytes of the entry's buffer, unless it was counted.
#[inline]
fn owner_bytes(writer: &mut Writer, entry: EntryRef<'_>) -> usize {
    let owner = entry.owner().0;
    let address = owner.as_ptr().addr();
    if address == writer.last_owner {
        return 0;
    }
    writer.last_owner = address;
    owner.len() + OWNER_OVERHEAD
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
