//! The published rows, through the engine: `Db` on a memory file system, without background threads.
//!
//! 2,000 keys `k00000`.. in ascending order, values of 64 bytes. Reads ask in a fixed random order, with `Db::get`, and
//! all blocks are in the cache. The number behind a row's name is how many elements one iteration has: 1 means that the
//! time is that of one operation.

use criterion::{BatchSize, Bencher, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use esker::{Db, WriteBatch};
use esker_bench::data::{DataSet, ENTRIES};
use esker_bench::fixture::{self, BeforeCompaction};
use esker_bench::measure::time;
use std::hint::black_box;
use std::time::Duration;

/// Puts in a batch.
const BATCH: usize = 500;

fn row(criterion: &mut Criterion, name: &str, elements: usize, bench: impl FnMut(&mut Bencher<'_>)) {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(elements as u64));
    let mut bench = bench;
    group.bench_function(BenchmarkId::from_parameter(elements), |bencher| bench(bencher));
    group.finish();
}

/// `Db::put` with the log. Every 2,000 puts go to a new database, so that the memtable does not grow for ever; making it
/// is not measured.
fn put(criterion: &mut Criterion) {
    let set = DataSet::sequential();
    row(criterion, "put into memtable", 1, |bencher| {
        bencher.iter_custom(|iterations| {
            let mut left = usize::try_from(iterations).expect("fewer than 2^32");
            let mut took = Duration::ZERO;
            while left > 0 {
                let count = left.min(ENTRIES);
                let db = fixture::open(fixture::options());
                took += time(|| {
                    for (key, value) in &set.entries[..count] {
                        db.put(key, value).expect("memory can be written to");
                    }
                });
                left -= count;
            }
            took
        });
    });
}

fn get_row(criterion: &mut Criterion, name: &str, db: &Db, keys: &[Vec<u8>], hits: bool) {
    let mut keys = keys.iter().cycle();
    row(criterion, name, 1, |bencher| {
        bencher.iter(|| {
            let value = db.get(keys.next().expect("a cycle has no end")).expect("tables are sound");
            assert_eq!(value.is_some(), hits);
            value
        });
    });
}

fn get(criterion: &mut Criterion) {
    let (set, long) = (DataSet::sequential(), DataSet::long_prefix());
    get_row(criterion, "get from memtable", &fixture::in_memtable(&set), &set.shuffled, true);
    get_row(criterion, "get from L0 sstable", &fixture::in_level0(&set), &set.shuffled, true);
    let name = "get from L0 sstable v3 long shared prefix keys";
    get_row(criterion, name, &fixture::in_level0(&long), &long.shuffled, true);
    get_row(criterion, "get from L2 sstable", &fixture::in_level2(&set), &set.shuffled, true);
    // Absent keys that lie between those of the table.
    get_row(criterion, "get miss", &fixture::in_level0(&set), &set.absent, false);
}

fn count(entries: impl Iterator<Item = esker::Result<(esker::Slice, esker::Slice)>>) {
    let mut count = 0;
    for entry in entries {
        black_box(entry.expect("tables are sound"));
        count += 1;
    }
    assert_eq!(count, ENTRIES);
}

/// `Db::iter` over 1,000 entries in the memtable and 1,000 in a table, each between two of the other.
fn scan(criterion: &mut Criterion) {
    let db = fixture::in_memtable_and_level0(&DataSet::sequential());
    row(criterion, "scan 2000 entries memtable + L0", ENTRIES, |bencher| bencher.iter(|| count(db.iter())));
    row(criterion, "scan reverse", ENTRIES, |bencher| bencher.iter(|| count(db.iter().rev())));
    row(criterion, "scan 2000 entries memtable + L0, cursor", ENTRIES, |bencher| {
        bencher.iter(|| {
            let mut cursor = db.cursor().expect("tables are sound");
            cursor.seek_to_first().expect("tables are sound");
            while cursor.valid() {
                black_box((cursor.key(), cursor.value()));
                cursor.next().expect("tables are sound");
            }
        });
    });
}

/// Making a batch of 500 puts and writing it, with the log, to a new database.
fn write_batch(criterion: &mut Criterion) {
    let set = DataSet::sequential();
    row(criterion, "WriteBatch 500 puts", BATCH, |bencher| {
        bencher.iter_batched(
            || fixture::open(fixture::options()),
            |db| {
                let mut batch = WriteBatch::new();
                for (key, value) in &set.entries[..BATCH] {
                    batch.put(key, value);
                }
                db.write(batch).expect("memory can be written to");
                db
            },
            BatchSize::SmallInput,
        );
    });
}

/// `Db::compact_range` that merges 1,000 entries of level 0 with 1,000 of the level below, each between two of the
/// other, into one table. That it was one merge, and no move, is asserted every time.
fn compact(criterion: &mut Criterion) {
    let before = BeforeCompaction::new(&DataSet::sequential(), fixture::options());
    row(criterion, "compact L1 merge", ENTRIES, |bencher| {
        bencher.iter_custom(|iterations| {
            (0..iterations)
                .map(|_| {
                    let db = before.open();
                    let took = time(|| fixture::compact(&db));
                    fixture::assert_compacted(&db, ENTRIES);
                    took
                })
                .sum()
        });
    });
}

criterion_group!(benches, put, get, scan, write_batch, compact);
criterion_main!(benches);
