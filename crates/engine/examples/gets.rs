//! How long a get takes out of a compacted database: hits, absent keys, several at a time, and with a small cache.
//!
//! ```sh
//! cargo run --release --example gets                       # 100,000 entries of 16 + 100 bytes
//! cargo run --release --example gets -- 2000000 9          # so many entries, the best of 9 rounds
//! cargo run --release --example gets -- 100000 9 8         # with a cache of 8 MiB
//! ```
//!
//! The database is a temporary directory. In the row `chased` each key depends on the value before, so that no get
//! begins before the last one has ended; in the others a processor may overlap them.

#![allow(clippy::disallowed_methods, reason = "a measurement: it takes the time")]

use esker::{Db, Options};
use std::hint::black_box;
use std::time::Instant;

type Key = [u8; 16];

/// Keys of one call.
const BATCH: usize = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let argument = |at: usize, default| arguments.get(at).copied().unwrap_or(default);
    let (entries, rounds, cache) = (argument(0, 100_000), argument(1, 7), argument(2, 1024));
    let dir = tempfile::tempdir()?;
    let order = shuffled(entries);
    let db = Options::new().cache_size(usize::try_from(cache << 20)?).open(dir.path())?;
    fill(&db, &order)?;

    let keys: Vec<Key> = order.iter().map(|index| key(2 * index)).collect();
    let absent: Vec<Key> = order.iter().map(|index| key(2 * index + 1)).collect();
    let mut sorted = keys.clone();
    sorted.chunks_mut(BATCH).for_each(<[Key]>::sort);
    let mut rows: Vec<(&str, f64)> = Vec::new();
    for _ in 0..=rounds {
        measure(&mut rows, "get_with", entries, || hits(&db, &keys));
        measure(&mut rows, "get_with, chased", entries, || chased(&db, order[0], entries));
        measure(&mut rows, "get", entries, || owned(&db, &keys));
        measure(&mut rows, "get_with, absent", entries, || hits(&db, &absent));
        measure(&mut rows, "multi_get of 256", entries, || several(&db, &keys));
        measure(&mut rows, "multi_get_with of 256", entries, || lent(&db, &keys));
        measure(&mut rows, "multi_get_with of 256, sorted", entries, || lent(&db, &sorted));
    }
    rows.iter().for_each(|(name, nanos)| println!("{name:<30} {nanos:>8.1} ns"));
    let stats = db.stats();
    println!(
        "{} hits, {} misses, {} bytes of cache",
        stats.cache_hits, stats.cache_misses, stats.cache_bytes
    );
    Ok(())
}

/// Keeps the fastest round of each row.
fn measure(
    rows: &mut Vec<(&'static str, f64)>,
    name: &'static str,
    entries: u64,
    work: impl FnOnce() -> u64,
) {
    let start = Instant::now();
    black_box(work());
    let nanos = start.elapsed().as_nanos() as f64 / entries as f64;
    match rows.iter_mut().find(|row| row.0 == name) {
        Some(row) => row.1 = row.1.min(nanos),
        None => rows.push((name, nanos)),
    }
}

/// Each value says which key comes next: one cycle over all of them, in `order`.
fn fill(db: &Db, order: &[u64]) -> esker::Result<()> {
    let next = order.iter().cycle().skip(1);
    for (index, next) in order.iter().zip(next) {
        let mut value = [7; 100];
        value[..8].copy_from_slice(&next.to_le_bytes());
        let mut random = index + 1;
        for chunk in value[8..56].as_chunks_mut::<8>().0 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *chunk = (random ^ random >> 29).to_le_bytes();
        }
        db.put(key(2 * index), value)?;
    }
    db.compact_range::<&[u8], _>(..)
}

/// A number as 16 letters whose order is that of the numbers.
fn key(number: u64) -> Key {
    std::array::from_fn(|at| b'a' + (number >> (60 - 4 * at) & 15) as u8)
}

fn hits(db: &Db, keys: &[Key]) -> u64 {
    let get = |key: &Key| db.get_with(key, first).expect("the tables are sound").unwrap_or(0);
    keys.iter().map(get).fold(0, u64::wrapping_add)
}

fn chased(db: &Db, start: u64, entries: u64) -> u64 {
    let mut index = start;
    for _ in 0..entries {
        index = db.get_with(key(2 * index), first).expect("the tables are sound").expect("there is the key");
    }
    index
}

fn owned(db: &Db, keys: &[Key]) -> u64 {
    let get = |key: &Key| db.get(key).expect("the tables are sound").map_or(0, |value| first(&value));
    keys.iter().map(get).fold(0, u64::wrapping_add)
}

fn several(db: &Db, keys: &[Key]) -> u64 {
    let get = |keys| db.multi_get(keys).into_iter().flatten().flatten().map(|value| first(&value));
    keys.chunks(BATCH).flat_map(get).fold(0, u64::wrapping_add)
}

fn lent(db: &Db, keys: &[Key]) -> u64 {
    let mut sum = 0u64;
    for keys in keys.chunks(BATCH) {
        db.multi_get_with(keys, |_, answer| {
            sum = sum.wrapping_add(answer.expect("the tables are sound").map_or(0, first));
        });
    }
    sum
}

fn first(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The numbers below `count` in a random order.
fn shuffled(count: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut random = 0x2545_F491_4F6C_DD1D_u64;
    for at in (1..order.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        order.swap(at, (random % (at as u64 + 1)) as usize);
    }
    order
}
