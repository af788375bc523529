//! What an open takes: milliseconds, the least of some rounds. First after an unclean end, of a log of puts of 16 and 100 bytes in
//! a random order; then of a database of many tables, and nothing in the log.
//!
//! `cargo run --release -p esker-bench --example opens [DIR [ENTRIES [TABLES]]]`
#![allow(clippy::disallowed_methods, reason = "removes the folder that it has made")]

use esker::{Background, Compression, Db, Options};
use esker_base::SplitMix64;
use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::path::{Path, PathBuf};

const ROUNDS: usize = 15;
/// Bytes of a table, and entries that make about as many.
const TABLE_SIZE: u64 = 1 << 20;
const TABLE_ENTRIES: u64 = 13_000;

fn milliseconds() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn open(dir: &Path) -> esker::Result<Db> {
    let options = Options::new().memtable_size(1 << 30).wal_segment_size(2 << 30).table_size(TABLE_SIZE);
    options.compression(Compression::Snappy).background(Background::Threads(2)).open(dir)
}

fn timed(dir: &Path) -> esker::Result<f64> {
    let start = milliseconds();
    let db = open(dir)?;
    let took = milliseconds() - start;
    drop(db);
    Ok(took)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().unwrap_or_else(|| "/dev/shm".to_owned())).join("opens");
    let mut number = |or| arguments.next().map_or(Ok(or), |text| text.parse::<u64>());
    let (entries, tables) = (number(100_000)?, number(200)?);
    let value: Vec<u8> = (0..100).map(|at| if at < 50 { at * 5 } else { 7 }).collect();
    let (filled, mut least) = (dir.with_extension("filled"), f64::MAX);
    let _ = std::fs::remove_dir_all(&filled);
    let db = open(&filled)?;
    let random = &mut SplitMix64::new(1);
    for _ in 0..entries {
        db.put(format!("{:016x}", random.below(2 * entries)), &value)?;
    }
    drop(db);
    for _ in 0..ROUNDS {
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir)?;
        for file in std::fs::read_dir(&filled)? {
            let file = file?;
            std::fs::copy(file.path(), dir.join(file.file_name()))?;
        }
        least = least.min(timed(&dir)?);
    }
    std::fs::remove_dir_all(&filled)?;
    println!("{entries} entries in the log: {least:.2}");
    let _ = std::fs::remove_dir_all(&dir);
    let db = open(&dir)?;
    for number in 0..tables * TABLE_ENTRIES {
        db.put(format!("{number:016x}"), &value)?;
    }
    db.compact_range::<&[u8], _>(..)?;
    let tables = db.stats().levels.iter().map(|level| level.tables).sum::<u64>();
    db.close()?;
    let least = (0..ROUNDS)
        .map(|_| timed(&dir))
        .try_fold(f64::MAX, |least, took| took.map(|took| least.min(took)))?;
    println!("{tables} tables: {least:.2}");
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
