//! Histories that broke other engines, by their number in the list of recipes.

use crate::tree::{Entry, Tree};
use esker_base::{InternalKey, Slice, SplitMix64, ValueKind};
use esker_compaction::LeveledOptions;

fn small() -> LeveledOptions {
    LeveledOptions {
        l0_trigger: 2,
        l0_bytes: u64::MAX,
        base_level_size: 400,
        level_ratio: 3,
        table_size: 100,
        max_compaction_bytes: 2_000,
    }
}

fn put(key: &str, seq: u64) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Put), Slice::copy_from(format!("v{seq}").as_bytes()))
}

fn delete(key: &str, seq: u64) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Delete), Slice::copy_from(b""))
}

/// Purpose: with snapshots held over hot keys, the newest version never sinks below an older one.
#[test]
fn sn01_snapshots_over_hot_keys() {
    let mut rng = SplitMix64::new(1);
    let mut tree = Tree::new(small());
    for n in 0..3_000_u64 {
        let key = format!("hot{:02}", rng.below(20));
        if rng.percent(30) {
            tree.delete(key.as_bytes())
        } else {
            tree.put(key.as_bytes(), &n.to_le_bytes())
        }
        if n % 50 == 0 {
            tree.snapshot();
            if tree.snapshots.len() > 10 {
                tree.snapshots.remove(0);
            }
        }
        if n % 20 == 0 {
            tree.flush();
            while tree.step() {
                tree.check();
            }
        }
    }
}

/// Purpose: after a manual compaction of everything, deleted keys stay deleted.
#[test]
fn sn03_deleted_keys_stay_deleted_after_a_manual_compaction() {
    let mut tree = Tree::new(small());
    for range in ["a", "b"] {
        for n in 0..500 {
            // In a scattered order, so that tables overlap and stay at several levels.
            tree.put(format!("{range}{:05}", n * 307 % 500).as_bytes(), b"value");
            if n % 10 == 0 {
                tree.flush();
                tree.settle();
            }
        }
    }
    assert!(tree.version.levels().filter(|level| !level.is_empty()).count() >= 3, "{}", tree.version);
    for n in 0..500 {
        tree.delete(format!("b{n:05}").as_bytes());
    }
    tree.compact_range(None, None);
    tree.check();
    assert_eq!(tree.entries(), 500);
}

/// Purpose: a snapshot below a tombstone at the bottom keeps its value; after its release nothing is left.
#[test]
fn sn05_released_snapshot_leaves_no_entry() {
    let mut tree = Tree::new(small());
    tree.put(b"k", b"old");
    let snapshot = tree.snapshot();
    tree.delete(b"k");
    tree.compact_range(None, None);
    tree.check();
    assert_eq!(tree.read(b"k", snapshot).map(|value| &**value), Some(&b"old"[..]));
    tree.snapshots.clear();
    tree.compact_range(None, None);
    assert_eq!((tree.entries(), tree.version.table_count()), (0, 0));
}

/// Purpose: level 0 is never compacted past a level that has tables, whatever the sizes ask for.
#[test]
fn sn12_level_0_does_not_skip_a_level_with_tables() {
    let mut tree = Tree::new(LeveledOptions { base_level_size: 1 << 20, ..small() });
    tree.place(3, vec![put("k", 1)]);
    for seq in [5, 6] {
        tree.place(0, vec![delete("k", seq)]);
    }
    let compaction = tree.pick().unwrap();
    assert_eq!((compaction.start_level, compaction.output_level), (0, 3), "{compaction}");
    tree.settle();
    tree.check();
    tree.compact_range(None, None);
    tree.check();
    assert_eq!(tree.entries(), 0);
}

/// Purpose: a tombstone that comes from the lower input, beyond the keys of the upper one, is kept while a still deeper
/// level has its key.
#[test]
fn sn13_a_tombstone_of_the_lower_input_is_kept() {
    let mut tree = Tree::new(LeveledOptions { base_level_size: 30, ..small() });
    tree.place(4, vec![put("k", 1)]);
    tree.place(2, vec![put("b", 6), delete("k", 5)]);
    tree.place(1, vec![put("a", 10), put("b", 11), put("c", 12), put("d", 13)]);
    let compaction = tree.pick().unwrap();
    assert_eq!((compaction.start_level, compaction.output_level), (1, 2), "{compaction}");
    tree.start(compaction);
    tree.finish(0);
    tree.check();
    tree.settle();
    tree.check();
}

/// Purpose: tables of two entries, one hot key with 50 versions that snapshots hold: the versions stay in one table,
/// and each step of the compactor reads the same.
#[test]
fn sn16_hot_key_over_tiny_tables() {
    let mut rng = SplitMix64::new(16);
    let mut tree = Tree::new(LeveledOptions { table_size: 24, base_level_size: 100, ..small() });
    for n in 0..50_u64 {
        tree.put(b"k050", &n.to_le_bytes());
        tree.snapshot();
        for _ in 0..4 {
            tree.put(format!("k{:03}", rng.below(100)).as_bytes(), b"x");
        }
        tree.flush();
        while tree.step() {
            tree.check();
        }
    }
    let versions: usize =
        tree.files.values().map(|file| file.iter().filter(|(key, _)| key.user_key == b"k050").count()).sum();
    assert_eq!(versions, 50);
    assert!(tree.version.table_count() > 20, "{}", tree.version);
}

/// Purpose: of one key in five sources the newest wins, after compactions with none, the oldest, and all snapshots.
#[test]
fn it09_one_key_in_five_sources() {
    for held in [0, 1, 5] {
        let mut tree = Tree::new(LeveledOptions { l0_trigger: 10, ..small() });
        for n in 0..5_u64 {
            tree.put(b"k", &n.to_le_bytes());
            if n < held {
                tree.snapshot();
            }
            tree.flush();
        }
        assert_eq!(tree.version.level(0).len(), 5);
        tree.compact_range(None, None);
        tree.check();
        assert_eq!(tree.entries(), 1.max(held).max(if held == 1 { 2 } else { 0 }));
    }
}

/// Purpose: a queue that was filled and emptied takes no space, without a manual compaction.
#[test]
fn sp05_an_emptied_queue_takes_no_space() {
    let mut tree = Tree::new(LeveledOptions { l0_trigger: 4, ..small() });
    for n in 0..4_000_u64 {
        tree.put(format!("{n:06}").as_bytes(), b"item");
        if n >= 100 {
            tree.delete(format!("{:06}", n - 100).as_bytes());
        }
        if n % 37 == 0 {
            tree.flush();
            tree.settle();
        }
    }
    for n in 3_900..4_000 {
        tree.delete(format!("{n:06}").as_bytes());
    }
    tree.flush();
    tree.settle();
    tree.check();
    assert_eq!(tree.entries(), 0, "{}", tree.version);
}

/// Purpose: put N, delete all, compact: no entries, no tables.
#[test]
fn sp06_everything_deleted_leaves_no_tables() {
    let mut tree = Tree::new(small());
    for delete in [false, true] {
        for n in 0..1_000 {
            let key = format!("{n:04}");
            if delete {
                tree.delete(key.as_bytes())
            } else {
                tree.put(key.as_bytes(), b"value")
            }
            if n % 25 == 0 {
                tree.flush();
                tree.settle();
            }
        }
    }
    tree.compact_range(None, None);
    tree.check();
    assert_eq!((tree.entries(), tree.version.table_count()), (0, 0));
}

/// Purpose: most of a database deleted, then quiet: the space comes back by itself.
#[test]
fn sp07_a_quiet_database_frees_deleted_space() {
    let mut tree = Tree::new(LeveledOptions { l0_trigger: 4, ..small() });
    for n in 0..2_000 {
        tree.put(format!("{n:04}").as_bytes(), &[7; 50]);
        if n % 50 == 0 {
            tree.flush();
            tree.settle();
        }
    }
    for n in (0..2_000).filter(|n| n % 20 != 0) {
        tree.delete(format!("{n:04}").as_bytes());
        if n % 300 == 1 {
            tree.flush();
        }
    }
    tree.flush();
    tree.settle();
    tree.check();
    let live = 100 * (4 + 50 + 8);
    assert!(
        tree.version.size_bytes() < 2 * live,
        "{} bytes for {live}\n{}",
        tree.version.size_bytes(),
        tree.version
    );
}

/// Purpose: a running compaction of level-0 tables with a gap between them may write a table over the gap; newer tables
/// in the gap wait for it.
#[test]
fn v5_nothing_is_compacted_into_the_gap_of_a_running_compaction() {
    let mut tree = Tree::new(LeveledOptions { table_size: 1_000, ..small() });
    tree.place(0, vec![put("a", 1), put("b", 2)]);
    tree.place(0, vec![put("y", 3), put("z", 4)]);
    tree.start_manual(b"a".to_vec(), b"z".to_vec());
    assert_eq!(tree.running[0].compaction.inputs[0].1.len(), 2);
    for seq in [5, 6] {
        tree.place(0, vec![put("m", seq)]);
    }
    assert!(tree.pick().is_none(), "{:?}", tree.pick());
    tree.finish(0);
    tree.settle();
    tree.check();
    assert_eq!(tree.version.level(0).len(), 0);
}

/// Purpose: a manual compaction also takes what a merge inside of level 0, which was running at its start, leaves there.
/// Mutation: tables of level 0 that are newer than the start are told by their file numbers.
#[test]
fn a_manual_compaction_takes_what_level_0_was_merged_to() {
    let mut tree = Tree::new(LeveledOptions { l0_trigger: 2, base_level_size: 100_000, ..small() });
    for n in 0..1_000 {
        tree.put(format!("{n:04}").as_bytes(), &[7; 20]);
    }
    tree.compact_range(None, None);
    for keys in [["0001", "0990"], ["0002", "0991"]] {
        keys.iter().for_each(|key| tree.delete(key.as_bytes()));
        tree.flush();
    }
    let merge = tree.pick().unwrap();
    assert_eq!((merge.output_level, merge.input_tables().count()), (0, 2), "{merge}");
    tree.start(merge);
    tree.compact_range(None, None);
    tree.check();
    assert_eq!((tree.merged_runs, tree.entries()), (1, 996), "{}", tree.version);
    assert!(tree.version.level(0).is_empty());
}
