//! Random histories on a tree in memory: whatever is picked, in whatever order it ends, no reader sees a difference.

use crate::tree::Tree;
use esker_base::SplitMix64;
use esker_compaction::{LevelTargets, LeveledOptions};
use esker_manifest::NUM_LEVELS;

fn tiny_options(rng: &mut SplitMix64) -> LeveledOptions {
    LeveledOptions {
        l0_trigger: 1 + rng.below(4) as usize,
        l0_bytes: u64::MAX,
        base_level_size: 100 + rng.below(1_000),
        level_ratio: 2 + rng.below(4),
        table_size: 30 + rng.below(300),
        max_compaction_bytes: 100 + rng.below(5_000),
    }
}

fn write_some(tree: &mut Tree, rng: &mut SplitMix64, keys: u64, step: u64) {
    for n in 0..rng.below(30) {
        let key = format!("{:03}", if rng.percent(20) { rng.below(keys / 10 + 1) } else { rng.below(keys) });
        if rng.percent(30) {
            tree.delete(key.as_bytes());
        } else {
            tree.put(key.as_bytes(), format!("{step}.{n}").as_bytes());
        }
    }
}

/// Purpose: with flushes, snapshots and up to three compactions at a time, ending in any order, invariants hold after
/// each step and all reads equal the model's.
#[test]
fn v4_v5_v6_random_histories_with_running_compactions() {
    let mut merged_runs = 0;
    for seed in 0..150 {
        let mut rng = SplitMix64::new(seed);
        println!("seed {seed}");
        let mut tree = Tree::new(tiny_options(&mut rng));
        let mut keys = 10 + rng.below(300);
        if seed % 3 == 0 {
            // Much data in the base level, so that level 0 is merged with itself.
            tree.options.base_level_size = 100_000;
            keys += 1_000;
            for n in (0..keys).step_by(2) {
                tree.put(format!("{n:03}").as_bytes(), b"loaded");
            }
            tree.flush();
        }
        for step in 0..60 {
            write_some(&mut tree, &mut rng, keys, step);
            if rng.percent(60) {
                tree.flush();
            }
            if rng.percent(20) {
                tree.snapshot();
            }
            if rng.percent(20) && !tree.snapshots.is_empty() {
                let at = rng.below(tree.snapshots.len() as u64) as usize;
                tree.snapshots.remove(at);
            }
            for _ in 0..rng.below(4) {
                if tree.running.len() < 3
                    && let Some(compaction) = tree.pick()
                {
                    tree.start(compaction);
                }
                if !tree.running.is_empty() && rng.percent(40) {
                    tree.finish(rng.below(tree.running.len() as u64) as usize);
                }
            }
            if rng.percent(15) {
                let (a, b) = (rng.below(keys), rng.below(keys));
                let bounds = (format!("{:03}", a.min(b)), format!("{:03}", a.max(b)));
                let (begin, end) = (bounds.0.into_bytes(), bounds.1.into_bytes());
                if rng.percent(50) {
                    tree.compact_range(Some(&begin), Some(&end));
                } else {
                    tree.start_manual(begin, end);
                }
            }
            if step % 4 == 0 {
                tree.check();
            }
        }
        while !tree.running.is_empty() {
            tree.finish(0);
        }
        tree.check();
        merged_runs += tree.merged_runs;
    }
    assert!(merged_runs > 100, "level 0 was merged with itself {merged_runs} times");
}

/// Purpose: without writes the picker comes to an end, with a snapshot held and without; afterwards no level is above
/// its target.
#[test]
fn pf13_compaction_ends_when_writes_end() {
    for seed in 0..100 {
        let mut rng = SplitMix64::new(seed);
        println!("seed {seed}");
        let mut tree = Tree::new(tiny_options(&mut rng));
        for step in 0..40 {
            write_some(&mut tree, &mut rng, 400, step);
            tree.flush();
            if rng.percent(50) {
                tree.step();
            }
            if step == 20 && rng.percent(50) {
                tree.snapshot();
            }
        }
        tree.settle();
        tree.check();
        assert!(tree.version.level(0).len() < tree.options.l0_trigger);
        let targets = LevelTargets::new(&tree.version, &tree.options);
        for level in 1..NUM_LEVELS - 1 {
            let size = tree.version.level(level).size_bytes();
            assert!(size <= targets.size(level), "level {level} is at {size} of {}", targets.size(level));
        }
    }
}

/// Purpose: a manual compaction of everything leaves one version of each live key at one level, and a second one
/// finds nothing to do.
#[test]
fn manual_compaction_is_complete_and_idempotent() {
    for seed in 0..60 {
        let mut rng = SplitMix64::new(seed);
        println!("seed {seed}");
        let mut tree = Tree::new(tiny_options(&mut rng));
        for step in 0..40 {
            write_some(&mut tree, &mut rng, 200, step);
            tree.flush();
            if rng.percent(70) {
                tree.step();
            }
        }
        tree.compact_range(None, None);
        tree.check();
        let live =
            (0..200).filter(|n| tree.read(format!("{n:03}").as_bytes(), u64::MAX >> 8).is_some()).count();
        assert_eq!(tree.entries(), live as u64);
        assert_eq!(tree.version.levels().filter(|level| !level.is_empty()).count(), 1, "{}", tree.version);
        assert!(tree.version.tables().all(|(_, table)| table.largest_seq == 0 && table.deletes == 0));
        let before = tree.stats;
        tree.compact_range(None, None);
        assert_eq!(tree.stats.entries_in, before.entries_in, "the second compaction reads nothing");
    }
}
