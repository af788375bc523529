//! Edits as bytes: round trips, and bytes that nobody vouches for.

use crate::{content, small_history, states, table};
use esker_base::coding::{put_bytes, put_varint};
use esker_base::{ErrorKind, FileNumber, SplitMix64};
use esker_manifest::{KeyspaceRecord, ManifestState, VersionEdit};
use std::path::Path;

fn encoded(edit: &VersionEdit) -> Vec<u8> {
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    bytes
}

fn decode(bytes: &[u8]) -> esker_base::Result<VersionEdit> {
    VersionEdit::decode(bytes, Path::new("MANIFEST-000001"), 1000)
}

/// An edit with every field.
fn full_edit() -> VersionEdit {
    let (state, edits) = small_history();
    let mut edit = states(&state, &edits).pop().unwrap().to_snapshot_edit();
    edit.keyspaces.push(KeyspaceRecord { id: 300, name: "metrics".to_owned(), options: vec![1, 0, 255] });
    edit.delete_table(300, 6, FileNumber(77));
    edit.set_cursor(300, 5, None).set_cursor(300, 6, Some(Vec::new()));
    edit
}

#[test]
fn edits_round_trip() {
    let full = full_edit();
    assert_eq!(decode(&encoded(&full)).unwrap(), full);
    assert_eq!(decode(&[]).unwrap(), VersionEdit::new());
    let largest = VersionEdit {
        store_id: Some(u128::MAX),
        hash_seed: Some(u64::MAX),
        next_file: Some(FileNumber(u64::MAX)),
        log_numbers: vec![(u32::MAX, FileNumber(u64::MAX))],
        ..VersionEdit::new()
    };
    assert_eq!(decode(&encoded(&largest)).unwrap(), largest);
}

/// CO01: any change of an edit's bytes, behind a checksum that matches, decodes to something or is refused; in neither
/// case does it panic, here or when it is applied.
#[test]
fn co01_changed_bytes_never_panic() {
    let bytes = encoded(&full_edit());
    let state = ManifestState::new(1, 2);
    let check = |bytes: &[u8]| match decode(bytes) {
        Ok(edit) => drop(state.apply(&edit)),
        Err(error) => {
            let offset = match error.kind() {
                ErrorKind::Corruption { offset, .. } => *offset,
                ErrorKind::UnsupportedFormat { .. } => 1000,
                kind => panic!("{kind:?}"),
            };
            assert!((1000..=1000 + bytes.len() as u64).contains(&offset), "{error}");
        }
    };
    for at in 0..bytes.len() {
        check(&bytes[..at]);
        for value in 0..=255 {
            let mut changed = bytes.clone();
            changed[at] = value;
            check(&changed);
        }
        for large in [1 << 31, u64::from(u32::MAX), 1 << 63, u64::MAX] {
            let mut changed = bytes[..at].to_vec();
            put_varint(&mut changed, large);
            changed.extend_from_slice(&bytes[at + 1..]);
            check(&changed);
        }
    }
    for seed in 0..2_000 {
        let mut rng = SplitMix64::new(seed);
        let random: Vec<u8> = (0..rng.below(60)).map(|_| rng.below(30) as u8).collect();
        check(&random);
    }
}

#[test]
fn m9_unknown_fields_are_refused_unless_ignorable() {
    let with_field = |tag: u64| {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, tag);
        put_bytes(&mut bytes, b"what");
        bytes.extend_from_slice(&encoded(&full_edit()));
        decode(&bytes)
    };
    for tag in [1, 21, 1_000_001, u64::MAX] {
        assert_eq!(with_field(tag).unwrap(), full_edit());
    }
    for tag in [0, 26, 1_000_000, u64::MAX - 1] {
        let error = with_field(tag).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{error}");
    }
    let newer = VersionEdit { format_version: Some(2), ..VersionEdit::new() };
    let error = decode(&encoded(&newer)).unwrap_err();
    assert_eq!(error.to_string(), "MANIFEST-000001: unsupported format: manifest format version 2");
}

#[test]
fn a_field_that_must_be_alone_is_refused_twice() {
    let once = encoded(&VersionEdit { last_sequence: Some(7), ..VersionEdit::new() });
    let error = decode(&once.repeat(2)).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corruption { offset: 1003, .. }), "{error}");
    assert!(error.to_string().contains("twice"), "{error}");
}

#[test]
fn impossible_tables_are_refused() {
    let fields: [fn(&mut esker_manifest::TableMetadata); 7] = [
        |table| table.number = FileNumber(0),
        |table| table.tail_size = table.file_size + 1,
        |table| table.entries = 0,
        |table| table.deletes = table.entries + 1,
        |table| table.smallest.user_key = b"zz".to_vec(),
        |table| table.smallest_seq = table.smallest.seq.min(table.largest.seq) + 1,
        |table| table.largest.user_key = vec![b'z'; 65_536],
    ];
    for (case, spoil) in fields.into_iter().enumerate() {
        let mut table = (*table(3, ("a", 9), ("c", 4))).clone();
        spoil(&mut table);
        let mut edit = VersionEdit::new();
        edit.add_table(0, 2, table.into());
        assert!(decode(&encoded(&edit)).unwrap_err().is_corruption(), "case {case}");
        let error = ManifestState::new(1, 2).apply(&edit).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Fatal { .. }), "case {case}: {error}");
    }
}

/// A snapshot edit makes the state that it was taken from, and numbers never go back.
#[test]
fn m7_snapshots_are_complete_and_numbers_only_grow() {
    let (state, edits) = small_history();
    let state = states(&state, &edits).pop().unwrap();
    assert_eq!(state.next_file, FileNumber(11), "beyond the largest table");
    assert_eq!((state.last_sequence, state.durable_sequence), (70, 40));
    assert_eq!(state.min_log_number(), FileNumber(4));
    let lower = VersionEdit {
        next_file: Some(FileNumber(1)),
        last_sequence: Some(1),
        durable_sequence: Some(1),
        ..VersionEdit::new()
    };
    let same = state.apply(&lower).unwrap();
    assert_eq!(same.to_snapshot_edit(), state.to_snapshot_edit());
    assert_eq!(content(&same), content(&state));
    let mut back = VersionEdit::new();
    back.set_log_number(0, FileNumber(3));
    assert!(state.apply(&back).is_err());
}

#[test]
fn keyspaces_are_known_before_they_are_used() {
    let state = ManifestState::new(1, 2);
    let record = |id, name: &str| KeyspaceRecord { id, name: name.to_owned(), options: Vec::new() };
    let mut edit = VersionEdit::new();
    edit.add_table(7, 1, table(3, ("a", 9), ("c", 4)));
    assert!(state.apply(&edit).unwrap_err().to_string().contains("no keyspace 7"));
    edit.keyspaces.push(record(7, "seven"));
    let with_seven = state.apply(&edit).unwrap();
    assert_eq!(with_seven.keyspaces[&7].version.table_count(), 1);
    assert_eq!(with_seven.keyspaces[&0].version.table_count(), 0);
    for (id, name) in [(7, "other"), (8, "seven")] {
        let again = VersionEdit { keyspaces: vec![record(id, name)], ..VersionEdit::new() };
        assert!(with_seven.apply(&again).is_err(), "{id} {name}");
    }
}
