//! The merging iterator over 2, 5 and 9 children, with 2,000 entries in all, in both directions.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use esker_base::{InternalIterator, InternalKey, MergingIterator, Slice, ValueKind, VecIterator};
use esker_bench::data::{DataSet, ENTRIES};
use std::hint::black_box;

/// Neighbouring entries are in different children; or, if not `interleaved`, each child has a range of its own.
fn children(count: usize, interleaved: bool) -> Vec<VecIterator> {
    let set = DataSet::sequential();
    let mut children = vec![Vec::new(); count];
    for ((place, (key, value)), seq) in set.entries.iter().enumerate().zip(1..) {
        let child = if interleaved { place % count } else { place * count / ENTRIES };
        let key = InternalKey { user_key: key.clone(), seq, kind: ValueKind::Put };
        children[child].push((key, Slice::copy_from(value)));
    }
    children.into_iter().map(VecIterator::new).collect()
}

fn merge(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("merging iterator");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    for (count, interleaved) in [(2, true), (2, false), (5, true), (5, false), (9, true)] {
        let mut merged = MergingIterator::new(children(count, interleaved));
        let kind = if interleaved { "interleaved" } else { "apart" };
        group.bench_function(format!("{count}-way, {kind}"), |bencher| {
            bencher.iter(|| {
                let mut seen = 0;
                merged.seek_to_first().expect("memory can be read");
                while merged.valid() {
                    black_box((merged.key(), merged.value()));
                    seen += 1;
                    merged.next().expect("memory can be read");
                }
                assert_eq!(seen, ENTRIES);
            });
        });
    }
    let mut merged = MergingIterator::new(children(2, true));
    group.bench_function("2-way, interleaved, backward", |bencher| {
        bencher.iter(|| {
            merged.seek_to_last().expect("memory can be read");
            while merged.valid() {
                black_box((merged.key(), merged.value()));
                merged.prev().expect("memory can be read");
            }
        });
    });
    group.finish();
}

criterion_group!(benches, merge);
criterion_main!(benches);
