//! Random operations against the model, under many sets of options.
//!
//! Background work is done on the caller's thread, so a seed gives one run; `with_threads_and_readers` runs the same with
//! background threads and with readers beside it. More of what happens between threads is in `concurrency`.

use esker_testkit::{Coverage, KeySpace, Mix, Op, Preset, Promise, Workload, presets};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::support::{Driver, Replay, Rig, Shared, env, options_of, snapshot_content};

/// What the runs must have come across, all together.
const DEMANDED: [&str; 15] = [
    "flushed",
    "moved",
    "rewritten",
    "level 2",
    "level 3",
    "level 4",
    "level 5",
    "level 6",
    "snapshot over a compaction",
    "cursor over a compaction",
    "found",
    "replayed",
    "torn tail",
    "full check",
    "fresh key space",
];

/// One run: `ops` operations under a preset, everything derived from the seed.
fn run(preset: &Preset, seed: u64, ops: u64) -> Coverage {
    let _replay = Replay(format!(
        "ESKER_PRESET={} ESKER_SEED={seed} ESKER_OPS={ops} cargo test -p esker --test it model::replay -- --nocapture",
        preset.name
    ));
    let default = [Promise::Memory, Promise::Buffered, Promise::Sync][usize::from(preset.durability)];
    let mut driver = Driver::new(Rig::new(), options_of(preset), default);
    driver.coverage.hit("fresh key space");
    // Every other run crashes now and then, and so is short between two crashes.
    let mix = Mix { crashes: seed % 2, ..Mix::everything() };
    let keys = KeySpace::new(seed, [40, 200, 800][(seed % 3) as usize], 3000);
    for (number, op) in (0..ops).zip(Workload::new(seed, keys, mix)) {
        if std::env::var("ESKER_TRACE").is_ok() {
            println!("{number}: {op:?}");
        }
        driver.run(&op);
        if number % 2000 == 1999 {
            driver.check();
            driver.coverage.hit("full check");
        }
    }
    driver.finish()
}

fn runs(parts: usize, part: usize) {
    let total = env("ESKER_MODEL_OPS", 1_000_000);
    let presets = presets();
    let seeds = 3;
    let ops = total / (presets.len() as u64 * seeds);
    let base = env("ESKER_MODEL_SEED", 1);
    let mut coverage = Coverage::default();
    let mut done = 0;
    for (index, preset) in presets.iter().enumerate().filter(|(index, _)| index % parts == part) {
        for seed in 0..seeds {
            coverage.merge(&run(preset, base * 1000 + index as u64 * 10 + seed, ops));
            done += ops;
        }
    }
    println!("{done} operations: {coverage}");
    coverage.demand(&Op::NAMES);
    coverage.demand(&DEMANDED);
}

/// In two halves, for the two cores.
#[test]
fn random_operations_first_half() {
    runs(2, 0);
}

#[test]
fn random_operations_second_half() {
    runs(2, 1);
}

/// One run, as the environment says: what a failing run prints.
#[test]
fn replay() {
    let name = std::env::var("ESKER_PRESET").unwrap_or_else(|_| "tiny".to_owned());
    let presets = presets();
    let preset = presets.iter().find(|preset| preset.name == name).expect("a preset of this name");
    println!("{}", run(preset, env("ESKER_SEED", 1), env("ESKER_OPS", 2000)));
}

/// Reads beside the writer until told to stop: whatever moment a reader sees, it sees it in all ways the same.
fn read_along(shared: &Shared, stop: &AtomicBool, passes: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let Some(db) = shared.lock().expect("the writer did not panic").clone() else {
            std::thread::yield_now();
            continue;
        };
        let closed = |error: &esker::Error| matches!(error.kind(), esker::ErrorKind::Closed);
        let snapshot = db.snapshot();
        let first = match snapshot_content(&snapshot) {
            Err(error) if closed(&error) => continue,
            found => found.expect("a scan beside a writer"),
        };
        let reverse = snapshot.iter().rev().collect::<Result<Vec<_>, _>>();
        let reverse = match reverse {
            Err(error) if closed(&error) => continue,
            found => found.expect("a reverse scan beside a writer"),
        };
        let forward = first.iter().map(|(key, value)| (&key[..], &value[..]));
        assert!(
            forward.eq(reverse.iter().rev().map(|(key, value)| (&key[..], &value[..]))),
            "both ways the same"
        );
        for (key, value) in first.iter().step_by(7) {
            match snapshot.get(key) {
                Err(error) if closed(&error) => break,
                found => assert_eq!(found.expect("a get").as_deref(), Some(&value[..]), "get and scan agree"),
            }
        }
        if let Some(Err(error)) = db.iter().find(Result::is_err) {
            assert!(closed(&error), "{error}");
        }
        passes.fetch_add(1, Ordering::Relaxed);
    }
}

/// The same operations with background threads, and two readers beside them.
#[test]
fn with_threads_and_readers() {
    let total = env("ESKER_MODEL_OPS", 1_000_000) / 10;
    let presets = presets();
    let ops = total / presets.len() as u64;
    let base = env("ESKER_MODEL_SEED", 1);
    let mut coverage = Coverage::default();
    let passes = AtomicU64::new(0);
    for (index, preset) in presets.iter().enumerate() {
        let seed = base * 1000 + 500 + index as u64;
        println!(
            "preset {} seed {seed}: the operations are the seed's, the threads' order is not",
            preset.name
        );
        let default = [Promise::Memory, Promise::Buffered, Promise::Sync][usize::from(preset.durability)];
        let mut driver = Driver::with_threads(Rig::new(), options_of(preset), default, 1 + index % 3);
        let stop = AtomicBool::new(false);
        let shared = driver.shared();
        std::thread::scope(|scope| {
            // Set when this scope is left, also by a panic: else the readers would go on for ever.
            let _stop = StopOnDrop(&stop);
            for _ in 0..2 {
                let shared = Arc::clone(&shared);
                let (stop, passes) = (&stop, &passes);
                scope.spawn(move || read_along(&shared, stop, passes));
            }
            // A crash would have to wait for the readers, who keep the old database open.
            let mix = Mix { crashes: 0, ..Mix::everything() };
            let keys = KeySpace::new(seed, [40, 200, 800][(seed % 3) as usize], 3000);
            for op in Workload::new(seed, keys, mix).take(ops as usize) {
                driver.run(&op);
            }
            coverage.merge(&driver.finish());
        });
    }
    println!(
        "{} operations, {} passes of readers: {coverage}",
        ops * presets.len() as u64,
        passes.load(Ordering::Relaxed)
    );
    coverage.demand(&["flushed", "rewritten", "moved", "level 3", "snapshot over a compaction"]);
    assert!(passes.into_inner() > 100, "the readers hardly got to read");
}

/// Sets a flag when it is dropped.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
