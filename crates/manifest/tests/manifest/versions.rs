//! Versions: lookups in the right order, and changes that are refused.

use crate::table;
use esker_base::{ErrorKind, FileNumber, Result, SplitMix64};
use esker_manifest::{TableMetadata, Version, VersionEdit};
use std::sync::Arc;

fn with(version: &Version, tables: &[(usize, Arc<TableMetadata>)]) -> Result<Version> {
    let mut edit = VersionEdit::new();
    for (level, table) in tables {
        edit.add_table(0, *level, Arc::clone(table));
    }
    version.apply(0, &edit)
}

fn numbers<'a>(tables: impl Iterator<Item = &'a Arc<TableMetadata>>) -> Vec<u64> {
    tables.map(|table| table.number.0).collect()
}

fn sample() -> Version {
    with(
        &Version::new(),
        &[
            (0, table(9, ("c", 90), ("x", 81))),
            (0, table(8, ("a", 80), ("d", 71))),
            (1, table(5, ("a", 50), ("c", 41))),
            (1, table(6, ("e", 60), ("g", 20))),
            (6, table(1, ("b", 0), ("h", 0))),
        ],
    )
    .unwrap()
}

#[test]
fn tables_for_asks_newest_first() {
    let version = sample();
    for (key, expected) in [
        ("", &[][..]),
        ("a", &[8, 5]),
        ("c", &[9, 8, 5, 1]),
        ("d", &[9, 8, 1]),
        ("g", &[9, 6, 1]),
        ("h", &[9, 1]),
        ("y", &[]),
    ] {
        assert_eq!(numbers(version.tables_for(key.as_bytes())), expected, "{key:?}");
    }
    assert_eq!(version.size_bytes(), 5 * 100 + 9 + 8 + 5 + 6 + 1);
    version.check_invariants().unwrap();
}

#[test]
fn a_version_prints_its_tree() {
    let mut edit = VersionEdit::new();
    edit.delete_table(0, 0, FileNumber(9)).delete_table(0, 0, FileNumber(8)).delete_table(
        0,
        6,
        FileNumber(1),
    );
    edit.set_cursor(0, 1, Some(b"d\0".to_vec()));
    let version = sample().apply(0, &edit).unwrap();
    assert_eq!(
        version.to_string(),
        "L1: 2 tables, 211 bytes, cursor \"d\\x00\"\n  \
         000005 105 bytes, 9 entries (1 deletes) \"a\"#50,put..\"c\"#41,delete seq 41..50\n  \
         000006 106 bytes, 9 entries (1 deletes) \"e\"#60,put..\"g\"#20,delete seq 20..60\n"
    );
}

/// A move to another level is one edit; levels it does not touch are the same ones.
#[test]
fn moves_and_sharing() {
    let version = sample();
    let mut edit = VersionEdit::new();
    edit.delete_table(0, 1, FileNumber(5)).add_table(0, 2, table(5, ("a", 50), ("c", 41)));
    let moved = version.apply(0, &edit).unwrap();
    assert_eq!(numbers(moved.level(1).tables().iter()), [6]);
    assert_eq!(numbers(moved.level(2).tables().iter()), [5]);
    assert!(std::ptr::eq(version.level(0), moved.level(0)), "untouched levels are shared");
    assert_eq!(numbers(version.level(1).tables().iter()), [5, 6], "the old version is as it was");
    assert_eq!(
        numbers(version.apply(1, &edit).unwrap().level(1).tables().iter()),
        [5, 6],
        "another keyspace"
    );
}

fn refused(result: Result<Version>, what: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Fatal { .. }), "{error}");
    assert!(error.to_string().contains(what), "{error}");
}

#[test]
fn sn15_v5_v6_levels_below_0_stay_disjoint_by_user_key() {
    let version = sample();
    for (smallest, largest) in [(("c", 99), ("d", 98)), (("d", 98), ("e", 97)), (("f", 98), ("f", 97))] {
        refused(with(&version, &[(1, table(20, smallest, largest))]), "overlaps");
    }
    // One user key over two tables, even with versions in the right order, is an overlap too.
    refused(
        with(&Version::new(), &[(3, table(1, ("a", 9), ("b", 8))), (3, table(2, ("b", 7), ("c", 6)))]),
        "level 3",
    );
    with(&version, &[(1, table(20, ("dd", 98), ("dd", 97)))]).unwrap();
}

#[test]
fn sn15_v5_level_0_is_ordered_by_sequence() {
    let version = sample();
    refused(with(&version, &[(0, table(20, ("x", 81), ("z", 70)))]), "level 0");
    refused(with(&version, &[(0, table(20, ("a", 100), ("z", 85)))]), "level 0");
    // Tables of one flush share a range of sequence numbers, and have no key in common.
    with(&version, &[(0, table(20, ("y", 89), ("z", 75))), (0, table(21, ("m0", 100), ("n", 91)))]).unwrap();
    // Zeroed sequence numbers are older than all; only the largest number orders such a table.
    with(&version, &[(0, table(20, ("a", 70), ("z", 0)))]).unwrap();
    refused(
        with(&version, &[(0, table(20, ("a", 0), ("c", 0))), (0, table(21, ("b", 0), ("d", 0)))]),
        "level 0",
    );
}

#[test]
fn v5_an_upper_level_holds_the_newer_version_of_a_key() {
    let version = sample();
    // Level 1 has "a"#50; the same key below must be older, above newer.
    refused(with(&version, &[(2, table(20, ("a", 51), ("a", 51)))]), "level 1 has \"a\"#50");
    with(&version, &[(2, table(20, ("a", 49), ("a", 49)))]).unwrap();
    refused(with(&version, &[(0, table(20, ("a", 50), ("a", 50)))]), "level");
    // Level 6 has "h"#0; a zeroed version above it would be as old.
    refused(with(&version, &[(5, table(20, ("h", 0), ("i", 0)))]), "level 5 has \"h\"#0");
    // Wide ranges of sequence numbers over other keys are fine: level 1 may lie over newer data for other keys.
    with(&version, &[(2, table(20, ("d", 55), ("f", 55)))]).unwrap();
}

#[test]
fn edits_that_contradict_the_version_are_refused() {
    let version = sample();
    let delete = |level, number| {
        let mut edit = VersionEdit::new();
        edit.delete_table(0, level, FileNumber(number));
        version.apply(0, &edit)
    };
    refused(delete(2, 5), "table 000005 is deleted from level 2, it is not there");
    refused(delete(7, 5), "there is no level 7");
    refused(with(&version, &[(3, table(5, ("q", 1), ("q", 1)))]), "table 000005 is added, it is in level 1");
    refused(with(&version, &[(7, table(20, ("q", 1), ("q", 1)))]), "there is no level 7");
    let twice = table(20, ("q", 1), ("q", 1));
    refused(with(&version, &[(3, Arc::clone(&twice)), (4, twice)]), "is added to level 4, it is in level 3");
}

/// Level 0 is refused exactly when two tables overlap both by key and by sequence number, however they are mixed.
#[test]
fn sn15_level_0_agrees_with_a_look_at_every_pair() {
    let (mut accepted, mut refused) = (0, 0);
    for seed in 0..3_000 {
        let mut rng = SplitMix64::new(seed);
        let tables: Vec<_> = (1..2 + rng.below(6))
            .map(|number| {
                let (key, seq) = (rng.below(20), rng.below(40));
                let (last_key, last_seq) = (key + rng.below(5), seq + rng.below(6));
                (0, table(number, (&format!("{key:02}"), seq), (&format!("{last_key:02}"), last_seq)))
            })
            .collect();
        let oldest = |table: &TableMetadata| match table.smallest_seq {
            0 => table.largest_seq,
            smallest => smallest,
        };
        let pairs =
            tables.iter().enumerate().flat_map(|(at, a)| tables[..at].iter().map(move |b| (&a.1, &b.1)));
        let clash = pairs
            .filter(|(a, b)| {
                a.smallest.user_key <= b.largest.user_key && b.smallest.user_key <= a.largest.user_key
            })
            .any(|(a, b)| oldest(a) <= b.largest_seq && oldest(b) <= a.largest_seq);
        // An inverted pair of bounds is refused for another reason.
        if tables.iter().any(|(_, table)| table.smallest > table.largest) {
            continue;
        }
        match with(&Version::new(), &tables) {
            Ok(_) => accepted += 1,
            Err(_) => refused += 1,
        }
        assert_eq!(with(&Version::new(), &tables).is_err(), clash, "seed {seed}: {tables:#?}");
    }
    assert!(accepted > 500 && refused > 100, "{accepted} accepted, {refused} refused");
}
