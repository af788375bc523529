//! Opening a database that was not closed: the log is replayed.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use esker::vfs::CrashMode;
use esker_bench::fixture;

fn recovery(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("open after an unclean end");
    group.sample_size(20);
    for entries in [0, 2_000, 20_000, 200_000] {
        let vfs = fixture::unclean_end(entries);
        group.throughput(Throughput::Elements(entries.max(1) as u64));
        group.bench_function(BenchmarkId::from_parameter(entries), |bencher| {
            bencher.iter_batched(
                || vfs.crash_clone_with(CrashMode::Keep),
                |vfs| fixture::open_on(vfs, fixture::options()),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, recovery);
criterion_main!(benches);
