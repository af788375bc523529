//! What a table reads from its file and when, and what it does when a read goes wrong.

use crate::support::{Entry, all, build, identity, lookup, plain, put};
use esker_base::{ErrorKind, InternalIterator, InternalKeyRef, Result};
use esker_sstable::{BlockCache, OpenTable, TableOptions, TableReader, TableSummary};
use esker_vfs::RandomAccessFile;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// A file that counts its reads, and whose next reads can be made to go wrong.
#[derive(Debug)]
struct Probe {
    bytes: Mutex<Vec<u8>>,
    reads: Mutex<Vec<(u64, usize)>>,
    /// How many of the next reads flip a bit of what they return.
    flips: Mutex<usize>,
    /// How many of the next reads fail.
    failures: Mutex<usize>,
}

impl Probe {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        let (reads, flips, failures) = Default::default();
        Arc::new(Probe { bytes: Mutex::new(bytes), reads, flips, failures })
    }

    /// The reads since the last call.
    fn reads(&self) -> Vec<(u64, usize)> {
        std::mem::take(&mut self.reads.lock().unwrap())
    }

    fn flip(&self, reads: usize) {
        *self.flips.lock().unwrap() = reads;
    }

    fn fail(&self, reads: usize) {
        *self.failures.lock().unwrap() = reads;
    }
}

fn take_one(counter: &Mutex<usize>) -> bool {
    let mut left = counter.lock().unwrap();
    let any = *left > 0;
    *left -= usize::from(any);
    any
}

impl RandomAccessFile for Probe {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.reads.lock().unwrap().push((offset, buf.len()));
        if take_one(&self.failures) {
            return Err(io::Error::other("the device is on fire"));
        }
        let bytes = self.bytes.lock().unwrap();
        let there = bytes.get(offset as usize..).unwrap_or(&[]);
        let len = there.len().min(buf.len());
        buf[..len].copy_from_slice(&there[..len]);
        if take_one(&self.flips) {
            buf[len / 2] ^= 4;
        }
        Ok(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }
}

fn entries() -> Vec<Entry> {
    (0..200).map(|index| put(format!("{index:05}"), 1, format!("value {index}"))).collect()
}

fn probe() -> (Arc<Probe>, TableSummary) {
    let (bytes, summary) = build(&TableOptions { block_size: 256, ..plain() }, &entries());
    (Probe::new(bytes), summary)
}

fn open(probe: &Arc<Probe>, open: OpenTable) -> Result<Arc<TableReader>> {
    TableReader::open(probe.clone(), PathBuf::from("000007.sst"), open)
}

fn known(summary: &TableSummary, cache: Option<Arc<BlockCache>>) -> OpenTable {
    OpenTable {
        identity: Some(identity()),
        file_size: Some(summary.file_size),
        tail_size: Some(summary.tail_size),
        cache,
        verify_reads: false,
    }
}

#[test]
fn one_read_opens_a_known_table() {
    let (probe, summary) = probe();
    open(&probe, known(&summary, None)).unwrap();
    assert_eq!(probe.reads(), [(summary.file_size - summary.tail_size, summary.tail_size as usize)]);
    open(&probe, OpenTable::default()).unwrap();
    assert_eq!(probe.reads().len(), 2);
}

/// Fails when the filter is asked after the index, or not at all.
#[test]
fn a_lookup_reads_at_most_one_block_and_none_when_it_is_cached_or_excluded() {
    let (probe, summary) = probe();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let table = open(&probe, known(&summary, Some(cache.clone()))).unwrap();
    probe.reads();
    for (key, value) in entries() {
        for round in 0..2 {
            assert_eq!(table.get(&lookup(&key.user_key, 5)).unwrap().unwrap().value, value);
            let reads = probe.reads().len();
            assert!(reads <= 1 - round, "{reads} reads");
        }
    }
    assert_eq!(cache.stats().blocks, summary.data_blocks);
    assert_eq!(cache.stats().misses, summary.data_blocks);
    let excluded = (0..100).filter(|index| {
        cache.clear();
        let key = format!("{index:05}x");
        assert!(table.get(&lookup(key.as_bytes(), 5)).unwrap().is_none());
        probe.reads().is_empty()
    });
    assert!(excluded.count() >= 95);
}

/// A bad read is repeated once; a block that stays bad is an error, is not cached, and hides no other block.
///
/// Fails when the second read is left out, or the block goes into the cache before it is checked.
#[test]
fn a_bad_read_is_repeated_and_never_cached() {
    let (probe, summary) = probe();
    let cache = Arc::new(BlockCache::new(1 << 20));
    let table = open(&probe, known(&summary, Some(cache.clone()))).unwrap();
    let (first, last) = (lookup(b"00000", 5), lookup(b"00199", 5));
    probe.flip(1);
    assert!(table.get(&first).unwrap().is_some());
    cache.clear();
    probe.flip(2);
    assert!(table.get(&first).unwrap_err().is_corruption());
    assert_eq!(cache.stats().blocks, 0);
    assert!(table.get(&last).unwrap().is_some());
    assert!(table.get(&first).unwrap().is_some());

    // Opening does the same.
    probe.flip(1);
    assert!(open(&probe, known(&summary, None)).unwrap().filter_fault().is_none());
    for read in 0..3 {
        probe.fail(1);
        let error = match read {
            0 => open(&probe, OpenTable::default()).unwrap_err(),
            1 => open(&probe, known(&summary, None)).unwrap_err(),
            _ => {
                cache.clear();
                table.get(&first).unwrap_err()
            }
        };
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error}");
    }
    assert!(table.get(&first).unwrap().is_some());
}

/// An iterator that met an error is not valid until it is positioned anew, and then goes on as if nothing was.
///
/// Fails when an error leaves the cursor where it was.
#[test]
fn an_iterator_recovers_by_a_seek_only() {
    let (probe, summary) = probe();
    let table = open(&probe, known(&summary, None)).unwrap();
    let mut iter = table.iter(true);
    for backward in [false, true] {
        if backward { iter.seek_to_last() } else { iter.seek_to_first() }.unwrap();
        probe.flip(2);
        let error = loop {
            match if backward { iter.prev() } else { iter.next() } {
                Ok(()) => assert!(iter.valid(), "the end before the error"),
                Err(error) => break error,
            }
        };
        assert!(error.is_corruption() && !iter.valid());
        iter.next().unwrap();
        assert!(!iter.valid());
        iter.prev().unwrap();
        assert!(!iter.valid());
        iter.seek(InternalKeyRef::before(b"00100")).unwrap();
        assert_eq!(iter.key().user_key, b"00100");
    }
    assert_eq!(all(&table).unwrap(), entries());
}

/// An iterator that leaves the cache alone reads ahead when it goes forward, and only then.
///
/// Fails when each block is read for itself.
#[test]
fn compactions_read_many_blocks_at_once() {
    let entries: Vec<Entry> =
        (0..4000).map(|index| put(format!("{index:05}"), 1, [index as u8; 300])).collect();
    let (bytes, summary) = build(&plain(), &entries);
    let probe = Probe::new(bytes);
    let table = open(&probe, known(&summary, None)).unwrap();
    let mut iter = table.iter(false);
    for round in 0..2 {
        probe.reads();
        let mut seen = 0;
        iter.seek_to_first().unwrap();
        while iter.valid() {
            assert_eq!(iter.key(), entries[seen].0.as_ref());
            assert_eq!(iter.value(), entries[seen].1);
            seen += 1;
            if seen == 5 {
                // In the second round the piece after the first block is bad: its blocks are read once more.
                probe.flip(round);
            }
            iter.next().unwrap();
        }
        assert_eq!(seen, entries.len());
        let reads = probe.reads();
        assert!(reads.len() < 15, "{} reads for {} blocks", reads.len(), summary.data_blocks);
        assert!(
            reads.iter().all(|(offset, len)| offset + *len as u64 <= summary.file_size - summary.tail_size)
        );
    }
    iter.seek_to_last().unwrap();
    while iter.valid() {
        iter.prev().unwrap();
    }
    assert_eq!(probe.reads().len() as u64, summary.data_blocks);
    // Damage in a piece is the error of its block, and of no other.
    let block = table.layout()[20].clone();
    probe.bytes.lock().unwrap()[block.offset as usize + 50] ^= 1;
    iter.seek_to_first().unwrap();
    let error = loop {
        if let Err(error) = iter.next() {
            break error;
        }
    };
    assert!(error.to_string().contains(&format!(" @ {}: ", block.offset)), "{error}");
}

/// A file that is cut under an open table.
#[test]
fn co10_a_table_cut_while_it_is_open() {
    let (probe, summary) = probe();
    let table = open(&probe, known(&summary, None)).unwrap();
    probe.bytes.lock().unwrap().truncate(1000);
    assert!(table.get(&lookup(b"00000", 5)).unwrap().is_some());
    assert!(table.get(&lookup(b"00199", 5)).unwrap_err().is_corruption());
    assert!(all(&table).unwrap_err().is_corruption());
    let mut faults = 0;
    table.verify(&mut |_| faults += 1);
    assert!(faults > 10, "{faults}");
}

/// The cache stays within its bytes, with any capacity, and an iterator for a compaction leaves no trace in it.
#[test]
fn the_cache_is_bounded_and_optional() {
    let (probe, summary) = probe();
    for capacity in [0, 100, 2000, 10_000, 1 << 20] {
        let cache = Arc::new(BlockCache::new(capacity));
        let table = open(&probe, known(&summary, Some(cache.clone()))).unwrap();
        let mut iter = table.iter(false);
        iter.seek_to_first().unwrap();
        while iter.valid() {
            iter.next().unwrap();
        }
        assert_eq!((cache.stats().blocks, cache.stats().misses), (0, 0));
        for _ in 0..3 {
            assert_eq!(all(&table).unwrap(), entries());
            assert!(cache.stats().bytes <= capacity);
        }
        let stats = cache.stats();
        assert_eq!(stats.hits + stats.misses, 3 * summary.data_blocks);
        if capacity == 0 {
            assert_eq!(stats.hits, 0);
        }
        // Two tables of one number do not see each other's blocks.
        let again = open(&probe, known(&summary, Some(cache.clone()))).unwrap();
        let misses = cache.stats().misses;
        assert!(again.get(&lookup(b"00000", 5)).unwrap().is_some());
        assert_eq!(cache.stats().misses, misses + 1);
        table.evict();
        again.evict();
        assert_eq!(cache.stats().blocks, 0);
    }
}

/// Values and iterators outlive the reader's other users, and cross threads.
#[test]
fn readers_are_shared_between_threads() {
    let (probe, summary) = probe();
    let cache = Arc::new(BlockCache::new(4000));
    let table = open(&probe, known(&summary, Some(cache))).unwrap();
    let value = table.get(&lookup(b"00042", 5)).unwrap().unwrap().value;
    std::thread::scope(|scope| {
        for start in 0..4 {
            let mut iter = table.iter(true);
            let table = &table;
            scope.spawn(move || {
                iter.seek_to_first().unwrap();
                for index in (start..200).step_by(3) {
                    let key = format!("{index:05}");
                    let found = table.get(&lookup(key.as_bytes(), 5)).unwrap().unwrap();
                    assert_eq!(found.value, format!("value {index}"));
                    iter.seek(InternalKeyRef::before(key.as_bytes())).unwrap();
                    assert_eq!(iter.value(), format!("value {index}").as_bytes());
                }
            });
        }
    });
    drop(table);
    assert_eq!(value, "value 42");
}
