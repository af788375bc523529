//! The job over real tables in a file system in memory.

use crate::tree::Entry;
use esker_base::{
    Error, FileNumber, InternalIterator, InternalKey, InternalKeyRef, MergingIterator, Result, Slice,
    ValueKind, VecIterator,
};
use esker_compaction::{CompactionJob, DeeperTables, OutputSink, OutputSplitter, SnapshotStripes, Step};
use esker_manifest::TableMetadata;
use esker_sstable::{OpenTable, TableBuilder, TableIdentity, TableOptions, TableReader, TableSummary};
use esker_vfs::{MemVfs, Vfs};
use std::path::PathBuf;
use std::sync::Arc;

/// Numbers the tables and remembers what they are. Fails in the call at `fail_at`, counted over both methods.
#[derive(Default)]
struct Sink {
    vfs: MemVfs,
    tables: Vec<TableSummary>,
    created: u64,
    calls: usize,
    fail_at: Option<usize>,
}

impl Sink {
    fn call(&mut self) -> Result<()> {
        self.calls += 1;
        if Some(self.calls - 1) == self.fail_at {
            return Err(Error::io("create", "sink", std::io::Error::from(std::io::ErrorKind::StorageFull)));
        }
        Ok(())
    }

    fn path(number: FileNumber) -> PathBuf {
        PathBuf::from(format!("/{number}.sst"))
    }

    fn identity(number: FileNumber) -> TableIdentity {
        TableIdentity { store_id: 1, number, hash_seed: 7 }
    }

    /// The entries of all tables, read back from the files.
    fn read_back(&self) -> Vec<Vec<Entry>> {
        let read = |summary: &TableSummary| {
            let path = Self::path(summary.number);
            let open = OpenTable { identity: Some(Self::identity(summary.number)), ..OpenTable::default() };
            let table = TableReader::open(self.vfs.open(&path).unwrap(), path, open).unwrap();
            let mut iter = table.iter(false);
            iter.seek_to_first().unwrap();
            let mut entries = Vec::new();
            while iter.valid() {
                entries.push((iter.key().to_owned(), Slice::copy_from(iter.value())));
                iter.next().unwrap();
            }
            entries
        };
        self.tables.iter().map(read).collect()
    }
}

impl OutputSink for Sink {
    fn create(&mut self) -> Result<TableBuilder> {
        self.call()?;
        self.created += 1;
        let number = FileNumber(self.created);
        let file = self.vfs.create_new(&Self::path(number)).unwrap();
        let options = TableOptions { block_size: 256, ..TableOptions::default() };
        Ok(TableBuilder::new(file, Self::path(number), &options, Self::identity(number), 0))
    }

    fn finish(&mut self, builder: TableBuilder) -> Result<()> {
        self.call()?;
        assert!(builder.entries() > 0, "no empty tables");
        let mut finished = builder.finish()?;
        finished.file.sync_data().unwrap();
        self.tables.push(finished.summary);
        Ok(())
    }
}

fn put(key: &str, seq: u64) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Put), Slice::copy_from(format!("value {seq}").as_bytes()))
}

fn delete(key: &str, seq: u64) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Delete), Slice::copy_from(b""))
}

/// `keys` keys with three versions each, every third newest one a tombstone.
fn three_versions(keys: u64) -> Vec<Entry> {
    let versions = |n: u64| {
        let key = format!("key{n:06}");
        let newest = if n.is_multiple_of(3) { delete(&key, 2_000_000 + n) } else { put(&key, 2_000_000 + n) };
        [newest, put(&key, 1_000_000 + n), put(&key, 1 + n)]
    };
    (0..keys).flat_map(versions).collect()
}

fn table(number: u64, smallest: &str, largest: &str, file_size: u64) -> Arc<TableMetadata> {
    Arc::new(TableMetadata {
        number: FileNumber(number),
        file_size,
        tail_size: 0,
        smallest: InternalKey::new(smallest, 1, ValueKind::Put),
        largest: InternalKey::new(largest, 1, ValueKind::Put),
        smallest_seq: 1,
        largest_seq: 1,
        entries: 1,
        deletes: 0,
    })
}

fn run<I: InternalIterator>(job: &mut CompactionJob<I>, sink: &mut Sink, entries: usize) -> Result<usize> {
    for steps in 1..1_000_000 {
        let before = job.stats().entries_in;
        let step = job.step(sink, entries)?;
        assert!(job.stats().entries_in - before <= entries as u64, "a step reads no more than it is told to");
        if step == Step::Done {
            return Ok(steps);
        }
    }
    panic!("the job finds no end");
}

/// Purpose: whatever the step size, the same tables come out; they are cut near the target, never inside a user key, and
/// the counters add up.
#[test]
fn v6_steps_of_any_size_give_the_same_tables() {
    let input = three_versions(2_000);
    let stripes = SnapshotStripes::new([1_500_000], 3_000_000);
    let job = |input: &[Entry]| {
        let merged = MergingIterator::new(vec![VecIterator::new(input.to_vec())]);
        let splitter = OutputSplitter::new(8_000, u64::MAX, Vec::new());
        CompactionJob::new(merged, stripes.clone(), DeeperTables::none(), splitter, true)
    };
    let mut expected = Sink::default();
    let mut whole = job(&input);
    assert_eq!(run(&mut whole, &mut expected, usize::MAX).unwrap(), 1);
    for entries in [1, 2, 7, 1_000] {
        let (mut sink, mut job) = (Sink::default(), job(&input));
        let steps = run(&mut job, &mut sink, entries).unwrap();
        assert!(steps >= 6_000 / entries, "{steps} steps of {entries}");
        assert_eq!(sink.tables, expected.tables);
        assert_eq!(job.stats(), whole.stats());
        assert_eq!(job.step(&mut sink, 1).unwrap(), Step::Done, "a job that is done stays done");
    }

    let tables = expected.read_back();
    assert!(tables.len() > 5);
    for (left, right) in tables.iter().zip(&tables[1..]) {
        assert!(left.last().unwrap().0.user_key < right.first().unwrap().0.user_key);
    }
    for summary in &expected.tables[..tables.len() - 1] {
        assert!((7_000..12_000).contains(&summary.file_size), "{summary:?}");
    }
    // Each key: the newest version, and what the snapshot sees, zeroed.
    let entries: Vec<&Entry> = tables.iter().flatten().collect();
    assert_eq!(entries.len(), 4_000);
    assert!(entries.chunks(2).all(|pair| pair[0].0.seq >= 2_000_000 && pair[1].0.seq == 0));
    let stats = whole.stats();
    assert_eq!((stats.entries_in, stats.entries_out, stats.shadowed), (6_000, 4_000, 2_000));
    assert_eq!((stats.zeroed, stats.tables_out), (2_000, tables.len() as u64));
    let size: u64 = expected.tables.iter().map(|summary| summary.file_size).sum();
    assert!(stats.bytes_out.abs_diff(size) < size / 5, "{} estimated, {size} written", stats.bytes_out);
}

/// Purpose: a flush writes one table, keeps sequence numbers, and keeps a tombstone unless its key is nowhere below.
#[test]
fn flush_keeps_sequences_and_needed_tombstones() {
    let input = vec![delete("a", 9), put("b", 8), put("b", 7), delete("c", 6), put("c", 5)];
    let deeper = DeeperTables::new([vec![table(1, "a", "b", 1)]]);
    let mut sink = Sink::default();
    let mut job = CompactionJob::flush(VecIterator::new(input), SnapshotStripes::new([], 10), deeper);
    run(&mut job, &mut sink, 100).unwrap();
    assert_eq!(sink.read_back(), [vec![delete("a", 9), put("b", 8)]]);
}

/// Purpose: when nothing is left, no table is created.
#[test]
fn sp06_nothing_left_makes_no_table() {
    for input in [vec![], vec![delete("a", 9), put("a", 3), delete("b", 1)]] {
        let mut sink = Sink::default();
        let stripes = SnapshotStripes::new([], 10);
        let mut job = CompactionJob::flush(VecIterator::new(input), stripes, DeeperTables::none());
        run(&mut job, &mut sink, 1).unwrap();
        assert_eq!((sink.created, job.stats().tables_out), (0, 0));
    }
}

/// An input that fails in one of its movements.
struct Failing {
    inner: VecIterator,
    movements: usize,
    fail_at: usize,
    failed: bool,
}

impl Failing {
    fn moved(&mut self, movement: impl FnOnce(&mut VecIterator) -> Result<()>) -> Result<()> {
        self.movements += 1;
        if self.movements > self.fail_at {
            self.failed = true;
            return Err(Error::io("read", "000009.sst", std::io::Error::from(std::io::ErrorKind::TimedOut)));
        }
        movement(&mut self.inner)
    }
}

impl InternalIterator for Failing {
    fn seek_to_first(&mut self) -> Result<()> {
        self.moved(VecIterator::seek_to_first)
    }
    fn seek_to_last(&mut self) -> Result<()> {
        unreachable!("compactions go forward")
    }
    fn seek(&mut self, _: InternalKeyRef<'_>) -> Result<()> {
        unreachable!("compactions go forward")
    }
    fn next(&mut self) -> Result<()> {
        self.moved(VecIterator::next)
    }
    fn prev(&mut self) -> Result<()> {
        unreachable!("compactions go forward")
    }
    fn valid(&self) -> bool {
        !self.failed && self.inner.valid()
    }
    fn key(&self) -> InternalKeyRef<'_> {
        self.inner.key()
    }
    fn value(&self) -> &[u8] {
        self.inner.value()
    }
}

/// Purpose: an input error at any movement, under a merge as in a real compaction, ends the job with that error, which
/// stays; the table in the works is never handed over as if the input had ended.
#[test]
fn er05_an_input_error_ends_the_job_at_every_movement() {
    let input = three_versions(30);
    let splitter = || OutputSplitter::new(600, u64::MAX, Vec::new());
    let stripes = SnapshotStripes::new([], 3_000_000);
    let job = |fail_at| {
        let inner = VecIterator::new(input.clone());
        let failing = Failing { inner, movements: 0, fail_at, failed: false };
        let merged = MergingIterator::new(vec![failing]);
        CompactionJob::new(merged, stripes.clone(), DeeperTables::none(), splitter(), true)
    };
    let mut complete = Sink::default();
    run(&mut job(usize::MAX), &mut complete, 10).unwrap();
    // One movement for each entry and one for the end.
    for fail_at in 0..=input.len() {
        let (mut sink, mut job) = (Sink::default(), job(fail_at));
        let error = run(&mut job, &mut sink, 10).expect_err("the input fails");
        assert_eq!(error.io_kind(), Some(std::io::ErrorKind::TimedOut));
        let again = job.step(&mut sink, 10).expect_err("the error stays");
        assert_eq!(again.io_kind(), Some(std::io::ErrorKind::TimedOut));
        assert!(complete.tables.starts_with(&sink.tables), "failing at {fail_at}");
        assert!(
            sink.tables.len() < complete.tables.len(),
            "failing at {fail_at}: the last table is not handed over"
        );
    }
    run(&mut job(input.len() + 1), &mut Sink::default(), 10).unwrap();
}

/// Purpose: an error of the sink ends the job with that error, at every call.
#[test]
fn er05_a_sink_error_ends_the_job_at_every_call() {
    let job = || {
        let input = VecIterator::new(three_versions(1_000));
        let splitter = OutputSplitter::new(600, u64::MAX, Vec::new());
        CompactionJob::new(input, SnapshotStripes::new([], 3_000_000), DeeperTables::none(), splitter, true)
    };
    let mut sink = Sink::default();
    run(&mut job(), &mut sink, 1_000).unwrap();
    assert!(sink.calls > 4);
    for fail_at in 0..sink.calls {
        let mut sink = Sink { fail_at: Some(fail_at), ..Sink::default() };
        let mut job = job();
        assert!(run(&mut job, &mut sink, 1_000).expect_err("the sink fails").is_no_space());
        assert!(job.step(&mut sink, 1_000).expect_err("the error stays").is_no_space());
    }
}

/// Purpose: outputs end where grandparents end, once they are half full, and before they overlap too many of them.
#[test]
fn outputs_are_cut_at_grandparents() {
    let cuts = |mut splitter: OutputSplitter, keys: &str, entry: u64| {
        let (mut size, mut cuts) = (0, String::new());
        for key in keys.chars() {
            if splitter.cut_before(key.to_string().as_bytes(), size) {
                cuts.push('|');
                size = 0;
            }
            cuts.push(key);
            size += entry;
        }
        cuts
    };
    let none = || OutputSplitter::new(40, 1_000, Vec::new());
    assert_eq!(cuts(none(), "abcdefghij", 10), "abcd|efgh|ij");
    assert_eq!(cuts(none(), "abc", 100), "a|b|c");
    assert_eq!(cuts(OutputSplitter::never(), "abcdefghij", 1 << 40), "abcdefghij");

    let aligned = || OutputSplitter::new(40, 1_000, vec![table(1, "a", "c", 50), table(2, "e", "f", 50)]);
    assert_eq!(cuts(aligned(), "abcdefghijkl", 10), "abc|def|ghij|kl");
    // Not yet half full at the first end.
    assert_eq!(cuts(aligned(), "abcdefghijkl", 5), "abcdef|ghijkl");

    let many: Vec<_> = ('a'..='h').map(|key| table(1, &key.to_string(), &key.to_string(), 50)).collect();
    assert_eq!(cuts(OutputSplitter::new(1_000, 100, many), "abcdefghij", 1), "abc|def|ghij");
}
