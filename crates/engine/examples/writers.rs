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
    println!("threads     puts/s  of one thread         p50         p99     longest  puts a sync");
    let mut alone = None;
    for threads in [1, 2, 4, 8, 16, 32] {
        let dir = tempfile::tempdir()?;
        let db = if mode == "memory" { Db::in_memory()? } else { Options::new().open(dir.path())? };
        let start = Instant::now();
        let mut times = write(&db, threads, puts / threads, &options)?;
        let rate = f64::from(puts) / start.elapsed().as_secs_f64();
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() - 1) * percent / 100];
        let stats = db.stats();
        let share = rate / *alone.get_or_insert(rate);
        print!(
            "{threads:>7} {rate:>10.0} {share:>14.2} {:>11.1?} {:>11.1?} {:>11.1?}",
            at(50),
            at(99),
            at(100)
        );
        match stats.log_syncs {
            0 => println!(),
            syncs => println!(" {:>12.2}", stats.batches as f64 / syncs as f64),
        }
    }
    Ok(())
}

/// Writes from several threads; returns how long each put took.
fn write(db: &Db, threads: u32, puts_each: u32, options: &WriteOptions) -> esker::Result<Vec<Duration>> {
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || -> esker::Result<Vec<Duration>> {
                    let mut times = Vec::with_capacity(puts_each as usize);
                    let mut random = u64::from(thread) * 7919 + 1;
                    for _ in 0..puts_each {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let start = Instant::now();
                        db.put_with(format!("{random:016x}"), VALUE, options)?;
                        times.push(start.elapsed());
                    }
                    Ok(times)
                })
            })
            .collect();
        let mut times = Vec::new();
        for writer in writers {
            times.extend(writer.join().expect("a writer does not panic")?);
        }
        Ok(times)
    })
}
