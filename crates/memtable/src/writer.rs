//! [`MemtableWriter`]: the right to insert into a memtable, and how that is done.
//!
//! An insert has three steps: the entry is put into the store, its key into the order, and its index into the hash index,
//! from which on gets find it. A batch of some size does the first step for up to 512 entries at once.

use crate::Memtable;
use crate::directory::Directory;
use crate::entries::{BLOCK, EntryRef, EntryWriter, NONE, NewBlock, Packed};
use crate::hash_index::HashWriter;
use crate::mem_key::{ShortKey, WholeKey};
use crate::ordered::OrderedMem;
use esker_base::sync::MutexGuard;
use esker_base::{BatchOp, BatchReader, SequenceNumber, ValueKind, key_hash};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Operations from which on a batch gets blocks of its own in the store.
const BLOCK_MIN: usize = 16;
/// Keys of a batch for each leaf of the order from which on they are sorted, to be put there leaf by leaf.
const SORTED_PER_LEAF: usize = 8;
/// What a buffer takes beside its bytes: two counts, and the allocator's header.
const OWNER_OVERHEAD: usize = 16 + 8;

/// The state of whoever inserts.
#[derive(Debug)]
pub(crate) struct Writer {
    entries: EntryWriter,
    index: HashWriter,
    directory: Directory,
    /// Address of the buffer of the last entry, which is still alive. A buffer's entries come one after the other.
    last_owner: usize,
    /// Hashes of the keys of a batch. Kept for the next one.
    hashes: Vec<u64>,
    /// Keys of a batch that are to be put into the order. Kept too.
    keys: Vec<ShortKey>,
}

impl Writer {
    /// For a memtable that is empty.
    pub(crate) fn new(directory: Directory) -> Self {
        Writer {
            entries: EntryWriter::default(),
            index: HashWriter::default(),
            directory,
            last_owner: 0,
            hashes: Vec::new(),
            keys: Vec::new(),
        }
    }
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

/// The operations of an encoded batch, and the number of the next.
struct Operations<'a> {
    next: SequenceNumber,
    batch: &'a Arc<[u8]>,
    reader: BatchReader<'a>,
}

/// The right to insert into a [`Memtable`]: from [`Memtable::writer`]. A batch takes it once.
#[derive(Debug)]
pub struct MemtableWriter<'a> {
    pub(crate) table: &'a Memtable,
    pub(crate) writer: MutexGuard<'a, Writer>,
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
            let (mut seq, mut ascending, mut last) = (operations.next, true, None);
            while hashes.len() < count.min(BLOCK) {
                let Some(operation) = operations.reader.next() else { break };
                let BatchOp { key, value, kind, .. } = operation?;
                let user_key = &operations.batch[key.clone()];
                ascending = ascending && last.replace(user_key).is_none_or(|last| last < user_key);
                hashes.push(key_hash(table.hash_seed, user_key));
                block.push(&key, &value, Packed::new(operations.next, kind));
                operations.next += 1;
            }
            if hashes.is_empty() {
                break;
            }
            let (first, memory) = table.entries.put_block(&mut writer.entries, block);
            added.memory += memory;
            table.index.touch(&hashes);
            if ascending || hashes.len() >= writer.directory.leaves() * SORTED_PER_LEAF {
                table.link_block(writer, added, first, &hashes, ascending);
            } else {
                for (index, &hash) in (first..).zip(&hashes) {
                    table.link(writer, added, table.entries.get(index), index, hash);
                }
            }
            while seq < operations.next {
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
    /// Makes an entry of the store one that readers find.
    #[inline]
    fn link(&self, writer: &mut Writer, added: &mut Added, entry: EntryRef<'_>, index: u32, hash: u64) {
        if self.index_entry(writer, added, entry, index, hash) {
            added.memory += owner_bytes(writer, entry);
            self.order.insert(&mut writer.directory, &self.entries, entry, index);
        }
    }

    /// The same for the entries of a block, leaf by leaf. They need not be in order, unless `ascending` says so.
    fn link_block(
        &self,
        writer: &mut Writer,
        added: &mut Added,
        first: u32,
        hashes: &[u64],
        ascending: bool,
    ) {
        let mut keys = std::mem::take(&mut writer.keys);
        keys.clear();
        for (index, &hash) in (first..).zip(hashes) {
            let entry = self.entries.get(index);
            if self.index_entry(writer, added, entry, index, hash) {
                keys.push(writer.directory.window.short(WholeKey::of(entry), index));
            }
        }
        if let Some(key) = keys.first() {
            added.memory += owner_bytes(writer, self.entries.get(key.index()));
        }
        if !ascending {
            keys.sort_unstable_by(|a, b| a.cmp_in(b, &self.entries));
        }
        self.order.insert_run(&mut writer.directory, &self.entries, &keys);
        writer.keys = keys;
    }

    /// Lets gets find an entry. Returns false if this version is here already, and then does nothing.
    ///
    /// It need not be in the order yet: that is asked for versions that are visible, and this one is not before all of its
    /// batch is everywhere.
    #[inline]
    fn index_entry(
        &self,
        writer: &mut Writer,
        added: &mut Added,
        entry: EntryRef<'_>,
        index: u32,
        hash: u64,
    ) -> bool {
        let packed = entry.packed();
        debug_assert_eq!(hash, key_hash(self.hash_seed, entry.user_key()), "the hash of another key");
        let spot = self.index.spot(hash, |other| self.entries.get(other).user_key() == entry.user_key());
        let ascending = spot.entry.is_none_or(|newest| self.entries.get(newest).packed() < packed);
        if !ascending && self.contains(entry) {
            return false;
        }
        entry.set_prev(spot.entry.unwrap_or(NONE));
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
        true
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
