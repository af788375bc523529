//! How fast 1 to 32 threads write to one database, and how many synced commits share a sync.
//!
//! ```sh
//! cargo run --release --example writers -- memory      # a memory file system
//! cargo run --release --example writers -- disk        # a temporary directory, handed to the system
//! cargo run --release --example writers -- sync        # the same, each write synced
//! ```

#![allow(clippy::disallowed_methods, reason = "a measurement: it takes the time and starts threads")]

use esker::{Db, Options, WriteOptions};
use std::time::{Duration, Instant};

/// Each put: a key of 16 bytes, a value of 100.
const VALUE: [u8; 100] = [7; 100];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mode = std::env::args().nth(1).unwrap_or_else(|| "memory".to_owned());
    let (puts, options) = match mode.as_str() {
        "sync" => (4_000, WriteOptions::sync()),
        "memory" | "disk" => (400_000, WriteOptions::new()),
        _ => return Err("usage: writers [memory|disk|sync]".into()),
    };
    println!("threads     puts/s  of one thread  longest put  puts a commit");
    let mut alone = None;
    for threads in [1, 2, 4, 8, 16, 32] {
        let dir = tempfile::tempdir()?;
        let db = if mode == "memory" { Db::in_memory()? } else { Options::new().open(dir.path())? };
        let start = Instant::now();
        let longest = write(&db, threads, puts / threads, &options)?;
        let rate = f64::from(puts) / start.elapsed().as_secs_f64();
        let stats = db.stats();
        let group = stats.batches as f64 / stats.commit_groups as f64;
        let share = rate / *alone.get_or_insert(rate);
        println!("{threads:>7} {rate:>10.0} {share:>14.2} {longest:>12.1?} {group:>14.2}");
    }
    Ok(())
}

/// Writes from several threads; returns the longest time that a put took.
fn write(db: &Db, threads: u32, puts_each: u32, options: &WriteOptions) -> esker::Result<Duration> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || -> esker::Result<Duration> {
                    let mut longest = Duration::ZERO;
                    let mut random = u64::from(thread) * 7919 + 1;
                    for _ in 0..puts_each {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let start = Instant::now();
                        db.put_with(format!("{random:016x}"), VALUE, options)?;
                        longest = longest.max(start.elapsed());
                    }
                    Ok(longest)
                })
            })
            .collect();
        writers
            .into_iter()
            .map(|writer| writer.join().expect("a writer does not panic"))
            .try_fold(Duration::ZERO, |longest, result| Ok(longest.max(result?)))
    })
}
