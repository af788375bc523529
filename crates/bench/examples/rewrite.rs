//! What a flush and a merge of two tables take of the processor, all threads together: `compare`'s rows `flush.cpu` and
//! `merge.cpu` for esker alone, so that two builds can be run by turns.
//!
//! ```sh
//! cargo run --release -p esker-bench --example rewrite -- /dev/shm 7
//! ```
//!
//! The keys of one half are written and flushed, then all keys are written and flushed; so the merge reads half as many
//! entries again as there are keys.

use esker::{Background, Compression, Db, Options};
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const ENTRIES: u64 = 100_000;
/// Large enough for all of them.
const MEMTABLE: usize = 1 << 30;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().ok_or("a folder, and how often")?;
    let rounds: u32 = arguments.next().map_or(Ok(7), |rounds| rounds.parse())?;
    let mut best = [f64::MAX; 2];
    for _ in 0..rounds {
        let took = round(Path::new(&dir))?;
        println!("flush {:.1}, merge {:.1} ns an entry", took[0], took[1]);
        best = [best[0].min(took[0]), best[1].min(took[1])];
    }
    println!("best of {rounds}: flush {:.1}, merge {:.1}", best[0], best[1]);
    Ok(())
}

/// Nanoseconds of processor time for each entry read: of the flush, and of the merge.
fn round(parent: &Path) -> Result<[f64; 2]> {
    let dir = tempfile::tempdir_in(parent)?;
    let db = Options::new()
        .memtable_size(MEMTABLE)
        .wal_segment_size(2 * MEMTABLE as u64)
        .compression(Compression::Snappy)
        .background(Background::Threads(2))
        .open(dir.path())?;
    let order = shuffled();
    let half = &order[..order.len() / 2];
    put_all(&db, half, 0)?;
    db.flush()?;
    put_all(&db, &order, 1)?;
    let start = processor();
    db.flush()?;
    let flushed = processor();
    db.compact_range::<&[u8], _>(..)?;
    let merged = processor();
    db.close()?;
    let (all, read) = (order.len() as f64, (order.len() + half.len()) as f64);
    Ok([(flushed - start) / all, (merged - flushed) / read])
}

/// Keys of 16 bytes, values of 100, of which 50 are random.
fn put_all(db: &Db, order: &[u64], generation: u64) -> Result<()> {
    for &number in order {
        let key = format!("{:016x}", 2 * number);
        let mut value = [b'.'; 100];
        let mut word = mix(number ^ (generation << 40));
        for bytes in value[..48].as_chunks_mut::<8>().0 {
            *bytes = word.to_le_bytes();
            word = mix(word);
        }
        db.put(key.as_bytes(), value)?;
    }
    Ok(())
}

/// The numbers below [`ENTRIES`] in a random order, always the same.
fn shuffled() -> Vec<u64> {
    let mut order: Vec<u64> = (0..ENTRIES).collect();
    order.sort_unstable_by_key(|number| mix(*number));
    order
}

fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Nanoseconds of the processor that this process has had.
fn processor() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
