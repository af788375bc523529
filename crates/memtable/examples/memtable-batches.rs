//! What a put of a batch costs in the memtable: nanoseconds of CPU time, the least of some rounds that each fill an empty
//! memtable. Keys have 16 bytes, in a random order or in ascending; values 100.
//!
//! `cargo run --release -p esker-memtable --example memtable-batches [ENTRIES..]`

use esker_base::{SplitMix64, WriteBatch};
use esker_memtable::Memtable;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;

/// Puts in a batch.
const BATCHES: [usize; 6] = [1, 10, 16, 100, 500, 5_000];

/// Nanoseconds that this thread has run.
fn cpu_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn batches(entries: usize, each: usize, random: bool) -> Vec<(u32, Arc<[u8]>)> {
    let numbers: Vec<usize> = (0..entries).collect();
    let encode = |numbers: &[usize]| {
        let mut batch = WriteBatch::new();
        for &number in numbers {
            let digits = if random {
                SplitMix64::new(number as u64).next_u64() % 10_u64.pow(16)
            } else {
                number as u64
            };
            batch.put(format!("{digits:016}"), [7; 100]);
        }
        (batch.len(), Arc::from(batch.encoded()))
    };
    numbers.chunks(each).map(encode).collect()
}

/// Nanoseconds a put.
fn fill(batches: &[(u32, Arc<[u8]>)], entries: usize) -> f64 {
    let table = Memtable::new(0, 64 << 20);
    let mut first = 1;
    let start = cpu_time();
    for (count, batch) in batches {
        table.writer().insert_batch(batch, first, *count, |_| ()).expect("a sound batch");
        first += u64::from(*count);
    }
    (cpu_time() - start) / entries as f64
}

fn main() {
    let mut sizes: Vec<usize> =
        std::env::args().skip(1).map(|size| size.parse().expect("a number")).collect();
    if sizes.is_empty() {
        sizes = vec![2_000, 100_000, 1_000_000];
    }
    for entries in sizes {
        for random in [true, false] {
            print!("{entries:>8} {:<9}", if random { "random" } else { "ascending" });
            for each in BATCHES.into_iter().filter(|each| *each <= entries) {
                let batches = batches(entries, each, random);
                let rounds = (600_000 / entries).clamp(2, 50);
                let least = (0..rounds).map(|_| fill(&batches, entries)).fold(f64::MAX, f64::min);
                print!("  {each}: {least:.0}");
            }
            println!();
        }
    }
}
