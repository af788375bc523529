//! `memory_limit` against the real heap: every allocation of the thread that does all the work is counted.

use allocation_counter::measure;
use esker::{Background, BlockCache, Components, Db, Options, Snapshot};
use esker_base::SplitMix64;
use std::sync::Arc;

use crate::support::{Rig, key, value};

/// What the heap held, and at most, since the test began.
#[derive(Default)]
struct Heap {
    now: i64,
    most: i64,
}

impl Heap {
    fn during<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let mut result = None;
        let counts = measure(|| result = Some(work()));
        self.most = self.most.max(self.now + counts.bytes_max as i64);
        self.now += counts.bytes_current;
        result.expect("the work was done")
    }
}

/// A database on the disk, so that its files are not in the heap.
fn open(dir: &std::path::Path, limit: usize) -> Db {
    Options::new().memory_limit(limit).background(Background::Inline).seed(1).open(dir).unwrap()
}

/// Writes, reads, scans, snapshots, flushes and compactions, `rounds` times 1,000 operations on `keys` keys.
fn mixed(db: &Db, heap: &mut Heap, rng: &mut SplitMix64, keys: u64, rounds: u64, len: u64) {
    let mut held: Vec<Snapshot> = Vec::new();
    for round in 0..rounds {
        heap.during(|| {
            for _ in 0..1000 {
                let number = rng.below(keys);
                match rng.below(100) {
                    0..60 => db.put(key(number), value(rng.next_u64(), rng.below(len) as usize + 8)).unwrap(),
                    60..65 => db.delete(key(number)).unwrap(),
                    65..98 => drop(db.get(key(number)).unwrap()),
                    _ => assert!(db.range(key(number)..).take(50).all(|entry| entry.is_ok())),
                }
            }
            match round % 16 {
                3 => held.push(db.snapshot()),
                7 => assert!(db.iter().rev().take(5000).all(|entry| entry.is_ok())),
                11 => held.clear(),
                15 => db.flush().unwrap(),
                _ => {}
            }
        });
    }
    heap.during(|| drop(held));
    heap.during(|| db.compact_range::<&[u8], _>(..).unwrap());
}

/// Checks the heap against the limit, and the engine's own count against the heap.
fn check(name: &str, heap: &Heap, limit: usize, db: &Db) {
    let memory = db.stats().memory;
    println!("{name}: limit {limit}, heap {} at most, {} now; {memory}", heap.most, heap.now);
    assert!(heap.most as f64 <= limit as f64 * 1.25, "{name}: the heap had {} bytes", heap.most);
    let missed = heap.now - memory.total() as i64;
    assert!(missed.unsigned_abs() <= limit as u64 / 8, "{name}: {missed} bytes more than counted");
}

fn keeps_to(limit: usize, keys: u64, rounds: u64, len: u64) {
    let dir = tempfile::tempdir().unwrap();
    let (mut heap, mut rng) = (Heap::default(), SplitMix64::new(limit as u64));
    let db = heap.during(|| open(dir.path(), limit));
    mixed(&db, &mut heap, &mut rng, keys, rounds, len);
    check("mixed", &heap, limit, &db);
    // Reads only: the cache takes what nothing else needs.
    heap.during(|| assert!(db.iter().all(|entry| entry.is_ok())));
    for _ in 0..keys {
        heap.during(|| drop(db.get(key(rng.below(keys))).unwrap()));
    }
    check("reads", &heap, limit, &db);
    let stats = db.stats();
    let expected = stats.table_bytes().min(limit as u64 / 2);
    assert!(stats.memory.block_cache >= expected, "the cache has {}", stats.memory);
    // And gives it back.
    mixed(&db, &mut heap, &mut rng, keys, rounds / 2, len);
    check("mixed again", &heap, limit, &db);
    assert!(stats.compactions > 0 && stats.flushes > 5, "{stats}");
    heap.during(|| db.close().unwrap());
    // What a reopen replays is in the heap, too.
    let mut heap = Heap::default();
    let db = heap.during(|| open(dir.path(), limit));
    heap.during(|| assert!(db.iter().all(|entry| entry.is_ok())));
    check("reopened", &heap, limit, &db);
}

/// Mutation: the cache keeps its capacity.
#[test]
fn two_mebibytes() {
    keeps_to(2 << 20, 40_000, 100, 200);
}

#[test]
fn four_mebibytes_of_small_entries() {
    keeps_to(4 << 20, 400_000, 200, 16);
}

#[test]
fn sixty_four_mebibytes() {
    keeps_to(64 << 20, 80_000, 150, 3000);
}

/// Memtables that flushes lag behind with push the cache to its floor, and no further; then it grows again.
/// Mutations: sealed memtables are not counted; jobs are not counted.
#[test]
fn the_cache_gives_way_to_memtables() {
    let limit = 16 << 20;
    let rig = Rig::new();
    let options = Options::new().memory_limit(limit).background(Background::Threads(1)).seed(1);
    let (db, scheduler) = crate::support::StepScheduler::open(&rig, &options);
    let empty = db.stats().memory;
    assert!(empty.cache_capacity > 13 << 20, "{empty:?}");
    (0..6_000_u64).for_each(|number| db.put(key(number), value(number, 1000)).unwrap());
    while db.stats().immutable_memtables > 0 {
        scheduler.step();
    }
    (0..6_000_u64).for_each(|number| drop(db.get(key(number)).unwrap()));
    let cached = db.stats().memory.block_cache;
    assert!(cached > 3 << 20, "{cached}");
    scheduler.hold(true);
    let mut seen = Vec::new();
    for number in 0..7_500_u64 {
        db.put(key(number), value(number, 1000)).unwrap();
        let memory = db.stats().memory;
        if seen.last() != Some(&memory.cache_capacity) {
            seen.push(memory.cache_capacity);
        }
        assert!(memory.block_cache <= memory.cache_capacity);
        assert!(memory.total() <= limit as u64, "{memory}");
    }
    assert!(seen.len() >= 4 && seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    let full = db.stats();
    assert!(full.immutable_memtables >= 3 && full.memory.immutables > 6 << 20, "{full}");
    scheduler.hold(false);
    let mut jobs = 0;
    while scheduler.step() {
        jobs = jobs.max(db.stats().memory.jobs);
    }
    assert!((256 << 10..4 << 20).contains(&jobs), "{jobs} bytes of flushes and compactions");
    let after = db.stats().memory;
    assert!(after.cache_capacity > 12 << 20, "{after:?}");
    assert_eq!((after.immutables, after.jobs), (0, 0), "{after}");
    db.close().unwrap();
}

/// Memtables that a cursor holds are seen, and so is the cursor; a cache of several databases stays as it is.
#[test]
fn readers_and_shared_caches() {
    let rig = Rig::new();
    let shared = Arc::new(BlockCache::new(32 << 20));
    let options = Options::new().memory_limit(4 << 20).background(Background::Inline).seed(1);
    let components = Components { cache: Some(Arc::clone(&shared)), ..rig.components(&options) };
    let db = Db::open_with("/db", options, components).unwrap();
    (0..200_u64).for_each(|number| db.put(key(number), value(number, 1000)).unwrap());
    let cursor = db.cursor().unwrap();
    db.flush().unwrap();
    let held = db.stats().memory;
    assert!(held.readers > 200_000 && held.memtables < 100_000, "{held}");
    drop(cursor);
    assert_eq!(db.stats().memory.readers, 0, "{}", db.stats());
    assert_eq!((shared.capacity(), held.cache_capacity), (32 << 20, 32 << 20));
    assert!(db.stats().to_string().contains("memory     "));
    db.close().unwrap();
}
