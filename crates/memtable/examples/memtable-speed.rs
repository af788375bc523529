//! Speed of a memtable beside a bare skiplist of the same entries: nanoseconds of CPU time an operation, the least of five
//! rounds. Keys have 16 bytes, or as many behind a prefix of 40 that all share; values 64 to 100.
//!
//! `cargo run --release -p esker-memtable --example memtable-speed`

use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;
use esker_base::{InternalIterator, InternalKeyRef, Lookup, SplitMix64, WriteBatch, key_hash};
use esker_memtable::Memtable;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;

const ROUNDS: usize = 5;
/// Puts in a batch.
const BATCH: usize = 500;

/// Measures so many entries, each in a buffer of its own, and looks for some keys.
type Measure = fn(usize, &[Arc<[u8]>], &[Vec<u8>]) -> Vec<(&'static str, f64)>;

/// Nanoseconds that this thread has run.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds an operation.
fn time(operations: usize, work: impl FnOnce()) -> f64 {
    let start = cpu_time();
    work();
    (cpu_time() - start) / operations as f64
}

fn user_key(prefix: usize, number: usize) -> Vec<u8> {
    let digits = SplitMix64::new(number as u64).next_u64() % 10_000_000_000_000_000;
    format!("{:p<prefix$}{digits:016}", "").into_bytes()
}

/// A batch of some puts.
fn buffer(prefix: usize, numbers: Range<usize>) -> Arc<[u8]> {
    let mut batch = WriteBatch::new();
    for number in numbers {
        batch.put(user_key(prefix, number), &[number as u8; 100][..64 + number % 37]);
    }
    Arc::from(batch.encoded())
}

fn key_of(buffer: &[u8]) -> &[u8] {
    &buffer[2..2 + usize::from(buffer[1])]
}

fn fill(table: &Memtable, buffers: &[Arc<[u8]>], each: usize) {
    for (number, buffer) in buffers.iter().enumerate() {
        let first = (number * each + 1) as u64;
        table.writer().insert_batch(buffer, first, each as u32, |_| ()).expect("a sound batch");
    }
}

fn memtable(entries: usize, buffers: &[Arc<[u8]>], probes: &[Vec<u8>]) -> Vec<(&'static str, f64)> {
    let batches: Vec<_> = buffers.chunks(BATCH).map(|some| Arc::from(some.concat())).collect();
    let table = Arc::new(Memtable::new(0, 64 << 20));
    let mut results = vec![("insert of 500", time(entries, || fill(&table, &batches, BATCH)))];
    drop(table);
    let table = Arc::new(Memtable::new(0, 64 << 20));
    results.push(("insert", time(entries, || fill(&table, buffers, 1))));
    let get = |missing: bool| {
        for key in probes {
            let mut key = key.clone();
            key[0] |= u8::from(missing) << 7;
            let lookup = Lookup { user_key: &key, hash: key_hash(0, &key), seq: u64::MAX >> 8 };
            assert_eq!(black_box(table.get(&lookup)).is_none(), missing);
        }
    };
    get(false);
    results.push(("get hit", time(probes.len(), || get(false))));
    results.push(("get miss", time(probes.len(), || get(true))));
    results.push(("get_ref hit", {
        time(probes.len(), || {
            for key in probes {
                let lookup = Lookup { user_key: key, hash: key_hash(0, key), seq: u64::MAX >> 8 };
                black_box(table.get_ref(&lookup).unwrap());
            }
        })
    }));
    let mut iter = table.iter();
    let forward = time(entries, || {
        let mut bytes = 0;
        iter.seek_to_first().unwrap();
        while iter.valid() {
            bytes += iter.key().user_key.len() + iter.value().len();
            iter.next().unwrap();
        }
        black_box(bytes);
    });
    results.push(("forward", forward));
    let backward = time(entries, || {
        let mut bytes = 0;
        iter.seek_to_last().unwrap();
        while iter.valid() {
            bytes += iter.key().user_key.len() + iter.value().len();
            iter.prev().unwrap();
        }
        black_box(bytes);
    });
    results.push(("backward", backward));
    let scans = probes.len() / 10;
    let short = time(scans, || {
        for key in &probes[..scans] {
            iter.seek(InternalKeyRef::before(key)).unwrap();
            for _ in 0..10 {
                if iter.valid() {
                    black_box(iter.value());
                }
                iter.next().unwrap();
            }
        }
    });
    results.push(("seek + 10", short));
    drop(iter);
    results.push(("bytes", table.memory_usage() as f64 / entries as f64));
    results.push(("drop", time(entries, || drop(table))));
    results
}

/// The bare crate: encoded keys as an owned vector each, and the value beside it.
fn skiplist(entries: usize, buffers: &[Arc<[u8]>], probes: &[Vec<u8>]) -> Vec<(&'static str, f64)> {
    let list = SkipList::<Vec<u8>, Arc<[u8]>>::new(epoch::default_collector().clone());
    let mut results = vec![(
        "insert",
        time(entries, || {
            for buffer in buffers {
                let guard = epoch::pin();
                list.get_or_insert(key_of(buffer).to_vec(), Arc::clone(buffer), &guard).release(&guard);
            }
        }),
    )];
    results.push((
        "get hit",
        time(probes.len(), || {
            for key in probes {
                let guard = epoch::pin();
                black_box(list.get(&key[..], &guard).unwrap().value());
            }
        }),
    ));
    results.push((
        "forward",
        time(entries, || {
            let guard = epoch::pin();
            for entry in list.iter(&guard) {
                black_box(entry.value().len());
            }
        }),
    ));
    results.push((
        "backward",
        time(entries, || {
            let guard = epoch::pin();
            for entry in list.iter(&guard).rev() {
                black_box(entry.value().len());
            }
        }),
    ));
    results.push(("drop", time(entries, || drop(list))));
    results
}

fn main() {
    for (entries, prefix) in [(2_000, 0), (100_000, 0), (100_000, 40), (500_000, 0)] {
        let buffers: Vec<_> = (0..entries).map(|number| buffer(prefix, number..number + 1)).collect();
        let random = &mut SplitMix64::new(1);
        let mut probe = || user_key(prefix, random.below(entries as u64) as usize);
        let probes: Vec<_> = (0..100_000).map(|_| probe()).collect();
        for (name, measure) in [("memtable", memtable as Measure), ("bare skiplist", skiplist)] {
            let rounds: Vec<_> = (0..ROUNDS).map(|_| measure(entries, &buffers, &probes)).collect();
            print!("{entries:>7} {prefix:>2} {name:<13}");
            for (place, (what, _)) in rounds[0].iter().enumerate() {
                let mut values: Vec<_> = rounds.iter().map(|round| round[place].1).collect();
                values.sort_by(f64::total_cmp);
                print!("  {what} {:.0}", values[0]);
            }
            println!();
        }
    }
}
