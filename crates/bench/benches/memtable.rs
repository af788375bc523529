//! The memtable, and a bare skiplist over the same keys beside it.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;
use esker_base::{InternalIterator, Lookup, MAX_SEQUENCE, ValueKind, key_hash};
use esker_bench::data::{DataSet, ENTRIES};
use esker_memtable::Memtable;
use std::hint::black_box;
use std::sync::Arc;

const SEED: u64 = 7;
const MEMTABLE_SIZE: usize = 64 << 20;

/// Key and value of an entry, in the one buffer that a batch would be.
type Buffer = (Arc<[u8]>, usize);

fn buffers(keys: &[Vec<u8>]) -> Vec<Buffer> {
    keys.iter().map(|key| (Arc::from([&key[..], &[7; 64][..]].concat()), key.len())).collect()
}

fn fill(buffers: &[Buffer]) -> Arc<Memtable> {
    let table = Memtable::new(SEED, MEMTABLE_SIZE);
    for ((buffer, key_len), seq) in buffers.iter().zip(1..) {
        let hash = key_hash(SEED, &buffer[..*key_len]);
        table.writer().insert(buffer, 0..*key_len, *key_len..buffer.len(), seq, ValueKind::Put, hash);
    }
    Arc::new(table)
}

fn memtable(criterion: &mut Criterion) {
    let set = DataSet::sequential();
    let sorted: Vec<Vec<u8>> = set.entries.iter().map(|(key, _)| key.clone()).collect();
    let mut group = criterion.benchmark_group("memtable");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    for (name, keys) in [("insert, ascending keys", &sorted), ("insert, random order", &set.shuffled)] {
        let buffers = buffers(keys);
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| (), |()| fill(&buffers), BatchSize::SmallInput);
        });
    }
    let table = fill(&buffers(&set.shuffled));
    for (name, keys, hits) in [("get, hit", &set.shuffled, true), ("get, miss", &set.absent, false)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for key in keys {
                    let lookup = Lookup { user_key: key, hash: key_hash(SEED, key), seq: MAX_SEQUENCE };
                    assert_eq!(black_box(table.get(&lookup)).is_some(), hits);
                }
            });
        });
    }
    let mut iter = table.iter();
    group.bench_function("iterate", |bencher| {
        bencher.iter(|| {
            iter.seek_to_first().expect("memory can be read");
            while iter.valid() {
                black_box((iter.key(), iter.value()));
                iter.next().expect("memory can be read");
            }
        });
    });
    group.bench_function("iterate backward", |bencher| {
        bencher.iter(|| {
            iter.seek_to_last().expect("memory can be read");
            while iter.valid() {
                black_box((iter.key(), iter.value()));
                iter.prev().expect("memory can be read");
            }
        });
    });
    group.finish();
}

/// A hash table of keys in buffers, and no more: the least that a get can cost that finds a key in a hundred thousand.
struct BareIndex {
    /// Upper half of the hash, then the number of the buffer plus one; 0 is an empty slot.
    slots: Vec<u64>,
    buffers: Vec<Buffer>,
}

impl BareIndex {
    fn new(buffers: &[Buffer]) -> Self {
        let mut index =
            BareIndex { slots: vec![0; (2 * buffers.len()).next_power_of_two()], buffers: buffers.to_vec() };
        for (number, (buffer, key_len)) in buffers.iter().enumerate() {
            let hash = key_hash(SEED, &buffer[..*key_len]);
            let mut at = index.start(hash);
            while index.slots[at] != 0 {
                at = (at + 1) % index.slots.len();
            }
            index.slots[at] = hash >> 32 << 32 | (number as u64 + 1);
        }
        index
    }

    fn start(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize
    }

    fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let hash = key_hash(SEED, key);
        let mut at = self.start(hash);
        loop {
            let slot = self.slots[at];
            let number = (slot as u32).checked_sub(1)?;
            if slot >> 32 == hash >> 32 {
                let (buffer, key_len) = &self.buffers[number as usize];
                if &buffer[..*key_len] == key {
                    return Some(&buffer[*key_len..]);
                }
            }
            at = (at + 1) % self.slots.len();
        }
    }
}

/// Gets and inserts where the caches of the processor don't hold everything.
fn large(criterion: &mut Criterion) {
    let set = DataSet::random_of(100_000);
    let buffers = buffers(&set.shuffled);
    // In ascending order, of which nothing that was inserted in random order knows.
    let probes: Vec<Vec<u8>> = set.entries.iter().map(|(key, _)| key.clone()).collect();
    let mut group = criterion.benchmark_group("memtable of 100,000");
    group.throughput(Throughput::Elements(probes.len() as u64));
    let table = fill(&buffers);
    // Each get waits for the value of the one before: else a processor does several at once, the more the less code they
    // are. All values start with 7, of which the compiler knows nothing.
    let after = |at: usize, value: &[u8]| at + 1 + usize::from(value[0] / 8);
    group.bench_function("get, hit", |bencher| {
        bencher.iter(|| {
            let mut at = 0;
            while let Some(key) = probes.get(at) {
                let lookup = Lookup { user_key: key, hash: key_hash(SEED, key), seq: MAX_SEQUENCE };
                at = after(at, table.get_ref(&lookup).expect("the key is there").value);
            }
        });
    });
    let bare = BareIndex::new(&buffers);
    group.bench_function("get, hit, bare hash index", |bencher| {
        bencher.iter(|| {
            let mut at = 0;
            while let Some(key) = probes.get(at) {
                at = after(at, bare.get(key).expect("the key is there"));
            }
        });
    });
    group.sample_size(10).throughput(Throughput::Elements(buffers.len() as u64));
    group.bench_function("insert, random order", |bencher| {
        bencher.iter_batched(|| (), |()| fill(&buffers), BatchSize::PerIteration);
    });
    group.finish();
}

/// What a memtable would cost that is a skiplist of owned keys and no more.
fn skiplist(criterion: &mut Criterion) {
    let set = DataSet::sequential();
    let fill = |keys: &[Vec<u8>]| {
        let list = SkipList::<Vec<u8>, [u8; 64]>::new(epoch::default_collector().clone());
        for key in keys {
            let guard = epoch::pin();
            list.get_or_insert(key.clone(), [7; 64], &guard).release(&guard);
        }
        list
    };
    let mut group = criterion.benchmark_group("bare skiplist");
    group.throughput(Throughput::Elements(ENTRIES as u64));
    group.bench_function("insert, random order", |bencher| {
        bencher.iter_batched(|| (), |()| fill(&set.shuffled), BatchSize::SmallInput);
    });
    let list = fill(&set.shuffled);
    group.bench_function("get, hit", |bencher| {
        bencher.iter(|| {
            for key in &set.shuffled {
                let guard = epoch::pin();
                black_box(list.get(key, &guard).expect("the key is there").value());
            }
        });
    });
    group.finish();
}

criterion_group!(benches, memtable, large, skiplist);
criterion_main!(benches);
