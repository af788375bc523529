//! Scans of 100,000 entries of 16 + 100 bytes in the last level, in memory, all blocks in the cache: nanoseconds an entry
//! or a seek, the fastest of some rounds, all rows in turns.
//!
//! ```sh
//! cargo run --release -p esker-bench --example scans              # all rows, 15 rounds
//! cargo run --release -p esker-bench --example scans -- 40        # another number of rounds
//! valgrind --tool=callgrind target/release/examples/scans 1 seek  # one row only
//! ```

use esker::{Compression, Cursor, Db, Durability, Options};
use esker_base::SplitMix64;
use esker_bench::fixture;
use esker_bench::measure::time;
use std::hint::black_box;
use std::time::Duration;

const ENTRIES: u64 = 100_000;
const SEEKS: usize = 20_000;

fn key(index: u64) -> Vec<u8> {
    format!("{:016x}", 2 * index).into_bytes()
}

fn database() -> Db {
    let options = Options::new().compression(Compression::Snappy).cache_size(256 << 20);
    let db = fixture::open(options.durability(Durability::Buffered));
    let mut rng = SplitMix64::new(7);
    let mut order: Vec<u64> = (0..ENTRIES).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, rng.below(at as u64 + 1) as usize);
    }
    for index in &order {
        let mut value = [0; 100];
        for chunk in value[..50].chunks_mut(8) {
            let bytes = rng.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        db.put(key(*index), value).expect("memory can be written to");
    }
    db.compact_range::<&[u8], _>(..).expect("memory can be written to");
    // As gets would: in no order.
    for index in &order {
        black_box(db.get(key(*index)).expect("tables are sound"));
    }
    db
}

/// Touches key and value, as a program that uses them does.
fn take(sum: &mut u64, key: &[u8], value: &[u8]) {
    let word = |bytes: &[u8]| bytes.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
    *sum = sum.rotate_left(5).wrapping_add(word(key) ^ word(&key[8..]) ^ word(value));
}

fn steps(db: &Db, forward: bool) -> u64 {
    let (mut cursor, mut sum, mut count) = (db.cursor().expect("open"), 0, 0);
    if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.expect("tables are sound");
    while cursor.valid() {
        take(&mut sum, cursor.key(), cursor.value());
        count += 1;
        if forward { cursor.next() } else { cursor.prev() }.expect("tables are sound");
    }
    assert_eq!(count, ENTRIES);
    sum
}

fn batches(db: &Db, forward: bool) -> u64 {
    let (mut cursor, mut sum, mut count) = (db.cursor().expect("open"), 0, 0);
    if forward { cursor.seek_to_first() } else { cursor.seek_to_last() }.expect("tables are sound");
    while cursor.valid() {
        let read = |batch: &esker::Batch<'_>| {
            batch.iter().for_each(|(key, value)| take(&mut sum, key, value));
            batch.len() as u64
        };
        let most = usize::MAX;
        count += if forward { cursor.next_batch(most, read) } else { cursor.prev_batch(most, read) }
            .expect("tables are sound");
    }
    assert_eq!(count, ENTRIES);
    sum
}

fn seek(db: &Db, starts: &[Vec<u8>], limit: usize) -> u64 {
    let mut sum = 0;
    for start in starts {
        let mut cursor = db.cursor().expect("open");
        cursor.seek(start).expect("tables are sound");
        walk(&mut cursor, limit, &mut sum);
    }
    sum
}

fn reseek(db: &Db, starts: &[Vec<u8>], limit: usize) -> u64 {
    let (mut cursor, mut sum) = (db.cursor().expect("open"), 0);
    for start in starts {
        cursor.seek(start).expect("tables are sound");
        walk(&mut cursor, limit, &mut sum);
    }
    sum
}

fn walk(cursor: &mut Cursor, limit: usize, sum: &mut u64) {
    for _ in 0..limit {
        take(sum, cursor.key(), cursor.value());
        cursor.next().expect("tables are sound");
    }
}

type Row<'a> = (&'static str, u64, Box<dyn Fn() -> u64 + 'a>);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().map_or(15, |rounds| rounds.parse().expect("a number of rounds"));
    let only = arguments.next();
    let db = database();
    let mut rng = SplitMix64::new(3);
    let starts: Vec<Vec<u8>> = (0..SEEKS).map(|_| key(rng.below(ENTRIES - 100))).collect();
    let mut sorted = starts.clone();
    sorted.sort_unstable();
    let (db, starts, sorted) = (&db, &starts, &sorted);
    let seeks = SEEKS as u64;
    let rows: Vec<Row<'_>> = vec![
        ("forward", ENTRIES, Box::new(|| steps(db, true))),
        ("reverse", ENTRIES, Box::new(|| steps(db, false))),
        ("forward-batches", ENTRIES, Box::new(|| batches(db, true))),
        ("reverse-batches", ENTRIES, Box::new(|| batches(db, false))),
        ("seek", seeks, Box::new(|| seek(db, starts, 0))),
        ("seek-10", seeks, Box::new(|| seek(db, starts, 10))),
        ("seek-100", seeks, Box::new(|| seek(db, starts, 100))),
        ("reseek-10", seeks, Box::new(|| reseek(db, starts, 10))),
        ("reseek-sorted-10", seeks, Box::new(|| reseek(db, sorted, 10))),
        ("new-cursor", seeks, Box::new(|| starts.iter().map(|_| db.cursor().is_ok() as u64).sum())),
    ];
    let mut best = vec![Duration::MAX; rows.len()];
    for _ in 0..rounds {
        for ((name, _, work), best) in rows.iter().zip(&mut best) {
            if only.as_ref().is_none_or(|only| only == name) {
                *best = (*best).min(time(|| {
                    black_box(work());
                }));
            }
        }
    }
    for ((name, operations, _), best) in rows.iter().zip(best) {
        if best < Duration::MAX {
            println!("{name:18} {:8.1} ns", best.as_nanos() as f64 / *operations as f64);
        }
    }
}
