//! Random operations against the model, under many sets of options.
//!
//! Background work is done on the caller's thread, so a seed gives one run. The concurrent counterpart is in
//! `concurrency`.

use esker_testkit::{Coverage, KeySpace, Mix, Op, Preset, Promise, Workload, presets};

use crate::support::{Driver, Replay, Rig, env, options_of};

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
