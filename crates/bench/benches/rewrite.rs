//! Flushes and compactions of a hundred thousand entries: bytes of keys and values a second, on one core.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use esker_bench::data::{DataSet, VALUE_LEN};
use esker_bench::fixture::{self, BeforeCompaction};

const ENTRIES: usize = 100_000;

/// 16 bytes of key in each entry.
const BYTES: u64 = (ENTRIES * (16 + VALUE_LEN)) as u64;

fn rewrite(criterion: &mut Criterion) {
    let set = DataSet::random_of(ENTRIES);
    let mut group = criterion.benchmark_group("rewrite 100,000 entries");
    group.sample_size(10).throughput(Throughput::Bytes(BYTES));
    group.bench_function("flush", |bencher| {
        bencher.iter_batched(
            || {
                let db = fixture::open(fixture::options());
                for (key, value) in set.shuffled.iter().zip(set.entries.iter().map(|(_, value)| value)) {
                    db.put(key, value).expect("memory can be written to");
                }
                db
            },
            |db| {
                db.flush().expect("memory can be written to");
                db
            },
            BatchSize::PerIteration,
        );
    });
    let before = BeforeCompaction::new(&set, fixture::options());
    group.bench_function("compact two tables", |bencher| {
        bencher.iter_batched(
            || before.open(),
            |db| {
                fixture::compact(&db);
                fixture::assert_compacted(&db, ENTRIES);
                db
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, rewrite);
criterion_main!(benches);
