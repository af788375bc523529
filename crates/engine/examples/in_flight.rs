//! One thread that keeps many durable writes under way: it submits, and is told when each is on the device.
//!
//! ```sh
//! cargo run --release --example in_flight
//! ```

#![allow(clippy::disallowed_methods, reason = "a measurement: it takes the time")]

use esker::{Db, WriteBatch, WriteOptions};
use std::sync::mpsc;
use std::time::Instant;

/// Writes in all, and how many of them may be under way at once.
const WRITES: usize = 4_000;
const IN_FLIGHT: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let db = Db::open(dir.path())?;

    let start = Instant::now();
    for number in 0..WRITES / 10 {
        db.write_with(order(number), &WriteOptions::sync())?;
    }
    let waiting = (WRITES / 10) as f64 / start.elapsed().as_secs_f64();
    println!("one after the other: {waiting:>7.0} durable writes/s");

    let start = Instant::now();
    let (done, synced) = mpsc::channel();
    for number in 0..WRITES {
        if number >= IN_FLIGHT {
            // One comes back before the next goes out.
            synced.recv()??;
        }
        let commit = db.submit(order(number), &WriteOptions::sync())?;
        let done = done.clone();
        // Called on a thread of the database: it only passes the result on.
        commit.on_synced(move |result| drop(done.send(result)));
    }
    for _ in 0..IN_FLIGHT {
        synced.recv()??;
    }
    let submitted = WRITES as f64 / start.elapsed().as_secs_f64();
    println!(
        "{IN_FLIGHT} in flight:        {submitted:>7.0} durable writes/s, {:.1} times as many",
        submitted / waiting
    );
    db.close()?;
    Ok(())
}

fn order(number: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(format!("order:{number:08}"), b"three lamps, one of them green");
    batch
}
