//! What `Db::write` of a batch of 500 costs the thread that writes: nanoseconds of its CPU time and of the wall's a put, the
//! median of some databases that are filled. Keys are 16 hexadecimal digits of which the first half are zeros, in a random order
//! and in ascending; values 100 bytes. The making of the batch is included, and shown beside it.
//!
//! `cargo run --release -p esker-bench --example write-batches [DIR [ENTRIES [MEMTABLE_MIB]]]`
#![allow(clippy::disallowed_methods, reason = "removes the folder that it has made")]

use esker::{Background, Durability, Options, WriteBatch};
use esker_base::SplitMix64;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::path::PathBuf;

const BATCH: usize = 500;
const ROUNDS: usize = 9;

fn clock(id: ClockId) -> f64 {
    let time = clock_gettime(id);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

fn now() -> [f64; 2] {
    [clock(ClockId::ThreadCPUTime), clock(ClockId::Monotonic)]
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn keys(entries: usize, random: bool) -> Vec<Vec<u8>> {
    let mut numbers: Vec<usize> = (0..entries).collect();
    let rng = &mut SplitMix64::new(42);
    for at in (1..entries).rev().filter(|_| random) {
        numbers.swap(at, rng.below(at as u64 + 1) as usize);
    }
    numbers.into_iter().map(|number| format!("{:016x}", 2 * number).into_bytes()).collect()
}

fn batch_of(keys: &[Vec<u8>], value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for key in keys {
        batch.put(key, value);
    }
    batch
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "/dev/shm".to_owned())).join("write-batches");
    let entries: usize = arguments.next().map_or(Ok(100_000), |entries| entries.parse())?;
    let mib: usize = arguments.next().map_or(Ok(64), |mib| mib.parse())?;
    let value: Vec<u8> = (0..100).map(|at| if at < 50 { at * 5 } else { 7 }).collect();
    for random in [true, false] {
        let keys = keys(entries, random);
        let mut figures = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            let _ = std::fs::remove_dir_all(&dir);
            let db = Options::new()
                .memtable_size(mib << 20)
                .wal_segment_size(256 << 20)
                .durability(Durability::Buffered)
                .background(Background::Threads(2))
                .open(&dir)?;
            let (mut cpu, mut wall, mut made) = (0.0, 0.0, 0.0);
            for some in keys.chunks(BATCH) {
                let start = now();
                let batch = batch_of(some, &value);
                made += now()[0] - start[0];
                db.write(batch)?;
                let end = now();
                cpu += end[0] - start[0];
                wall += end[1] - start[1];
            }
            for (figures, took) in figures.iter_mut().zip([cpu, wall, made]) {
                figures.push(took / entries as f64);
            }
            drop(db);
        }
        let [cpu, wall, made] = figures.map(median);
        let order = if random { "random" } else { "ascending" };
        println!(
            "{entries} {order:<9} {mib} MiB: CPU {cpu:.0}, wall {wall:.0}, of that making the batch {made:.0}"
        );
    }
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
