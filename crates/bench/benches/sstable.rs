//! Tables without an engine: building, opening, looking up, iterating, and the filter.
//!
//! Blocks have no public type of their own; a table of one block stands for one.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use esker_base::{EntryBatch, InternalIterator, InternalKeyRef, Lookup, MAX_SEQUENCE, key_hash};
use esker_bench::data::{DataSet, ENTRIES};
use esker_bench::table::{HASH_SEED, build, open, plain_options};
use esker_sstable::{Compression, TableIterator, TableOptions, TableReader};
use std::hint::black_box;
use std::sync::Arc;

fn building(criterion: &mut Criterion) {
    let set = DataSet::sequential();
    let mut group = criterion.benchmark_group("table build");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    let no_filter = TableOptions { bloom_bits: 0, ..plain_options() };
    let snappy = TableOptions { compression: Compression::Snappy, ..plain_options() };
    // The filter's price is the difference of the first two.
    for (name, options) in [("plain", plain_options()), ("no filter", no_filter), ("snappy", snappy)] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| (), |()| build(&set, &options), BatchSize::SmallInput);
        });
    }
    let (vfs, _) = build(&set, &plain_options());
    group.throughput(Throughput::Elements(1));
    group.bench_function("open", |bencher| bencher.iter(|| open(&vfs)));
    group.finish();
}

fn get_all(table: &TableReader, keys: &[(&[u8], u64)], hits: bool) {
    for (key, hash) in keys {
        let found = table.get(&Lookup { user_key: key, hash: *hash, seq: MAX_SEQUENCE });
        assert_eq!(found.expect("tables are sound").is_some(), hits);
    }
}

fn hashed(keys: &[Vec<u8>]) -> Vec<(&[u8], u64)> {
    keys.iter().map(|key| (&key[..], key_hash(HASH_SEED, key))).collect()
}

fn lookups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("table get");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    let sets = [("fixed keys", DataSet::sequential()), ("long shared prefix", DataSet::long_prefix())];
    for (name, set) in &sets {
        let (vfs, _) = build(set, &plain_options());
        let table = open(&vfs);
        let (present, absent) = (hashed(&set.shuffled), hashed(&set.absent));
        get_all(&table, &present, true);
        group.bench_function(format!("hit, {name}"), |bencher| {
            bencher.iter(|| get_all(&table, &present, true));
        });
        group.bench_function(format!("miss, {name}"), |bencher| {
            bencher.iter(|| get_all(&table, &absent, false));
        });
        group.bench_function(format!("filter query, {name}"), |bencher| {
            bencher.iter(|| absent.iter().filter(|(_, hash)| table.may_contain(*hash)).count());
        });
    }
    // One block: no index to search, so this is the search in a block, with the cache.
    let set = &sets[0].1;
    let whole = TableOptions { block_size: 1 << 20, ..plain_options() };
    let (vfs, summary) = build(set, &whole);
    assert_eq!(summary.data_blocks, 1);
    let (table, present) = (open(&vfs), hashed(&set.shuffled));
    group
        .bench_function("hit, one block of 2000", |bencher| bencher.iter(|| get_all(&table, &present, true)));
    group.finish();
}

fn walk(iter: &mut TableIterator, forward: bool) {
    let start = if forward { iter.seek_to_first() } else { iter.seek_to_last() };
    start.expect("tables are sound");
    while iter.valid() {
        black_box((iter.key(), iter.value()));
        let moved = if forward { iter.next() } else { iter.prev() };
        moved.expect("tables are sound");
    }
}

fn iterating(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("table iterate");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    let set = DataSet::sequential();
    let (vfs, _) = build(&set, &plain_options());
    let table: Arc<TableReader> = open(&vfs);
    let mut iter = table.iter(true);
    walk(&mut iter, true);
    group.bench_function("forward", |bencher| bencher.iter(|| walk(&mut iter, true)));
    group.bench_function("backward", |bencher| bencher.iter(|| walk(&mut iter, false)));
    group.bench_function("seek", |bencher| {
        bencher.iter(|| {
            for key in &set.shuffled {
                iter.seek(InternalKeyRef::before(key)).expect("tables are sound");
                assert!(iter.valid());
            }
        });
    });
    let mut batch = EntryBatch::new();
    group.bench_function("fill 64", |bencher| {
        bencher.iter(|| {
            iter.seek_to_first().expect("tables are sound");
            while iter.valid() {
                batch.clear();
                iter.fill(&mut batch, 64).expect("tables are sound");
            }
        });
    });
    group.finish();
}

criterion_group!(benches, building, lookups, iterating);
criterion_main!(benches);
