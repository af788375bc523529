//! Speed of a memtable beside a bare skiplist of the same entries: nanoseconds an operation, the least of five rounds.
//!
//! `cargo run --release -p esker-memtable --example memtable-speed`
#![allow(clippy::disallowed_methods, reason = "measures time")]

use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;
use esker_base::{InternalIterator, InternalKeyRef, Lookup, SplitMix64, ValueKind, key_hash};
use esker_memtable::Memtable;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 5;

/// Nanoseconds an operation.
fn time(operations: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64 / operations as f64
}

fn user_key(number: usize) -> [u8; 16] {
    let mut key = [b'0'; 16];
    let digits = format!("{:016}", SplitMix64::new(number as u64).next_u64() % 10_000_000_000_000_000);
    key.copy_from_slice(digits.as_bytes());
    key
}

fn buffer(number: usize) -> Arc<[u8]> {
    let value = [number as u8; 100];
    Arc::from([&[1, 16][..], &user_key(number), &[100], &value[..64 + number % 37]].concat())
}

fn fill(table: &Memtable, buffers: &[Arc<[u8]>]) {
    for (seq, buffer) in buffers.iter().enumerate() {
        let hash = key_hash(0, &buffer[2..18]);
        table.insert(buffer, 2..18, 19..buffer.len(), seq as u64, ValueKind::Put, hash);
    }
}

fn memtable(entries: usize, buffers: &[Arc<[u8]>], probes: &[[u8; 16]]) -> Vec<(&'static str, f64)> {
    let table = Arc::new(Memtable::new(0, 64 << 20));
    let mut results = vec![("insert", time(entries, || fill(&table, buffers)))];
    let get = |missing: bool| {
        for key in probes {
            let mut key = *key;
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
fn skiplist(entries: usize, buffers: &[Arc<[u8]>], probes: &[[u8; 16]]) -> Vec<(&'static str, f64)> {
    let list = SkipList::<Vec<u8>, Arc<[u8]>>::new(epoch::default_collector().clone());
    let mut results = vec![(
        "insert",
        time(entries, || {
            for buffer in buffers {
                let guard = epoch::pin();
                list.get_or_insert(buffer[2..18].to_vec(), Arc::clone(buffer), &guard).release(&guard);
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
    for entries in [2_000, 100_000, 500_000] {
        let buffers: Vec<_> = (0..entries).map(buffer).collect();
        let random = &mut SplitMix64::new(1);
        let probes: Vec<_> = (0..100_000).map(|_| user_key(random.below(entries as u64) as usize)).collect();
        for (name, measure) in [
            ("memtable", memtable as fn(usize, &[Arc<[u8]>], &[[u8; 16]]) -> Vec<(&'static str, f64)>),
            ("bare skiplist", skiplist),
        ] {
            let rounds: Vec<_> = (0..ROUNDS).map(|_| measure(entries, &buffers, &probes)).collect();
            print!("{entries:>7} {name:<13}");
            for (place, (what, _)) in rounds[0].iter().enumerate() {
                let mut values: Vec<_> = rounds.iter().map(|round| round[place].1).collect();
                values.sort_by(f64::total_cmp);
                print!("  {what} {:.0}", values[0]);
            }
            println!();
        }
    }
}
