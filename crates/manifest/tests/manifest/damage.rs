//! Damage: every truncation, every flipped byte, wrong files, missing files. The answer is the right state, the state
//! before the last edit (only after an unclean end), or an error; never a panic and never another state.

use crate::{
    content, create, current_path, dir, empty_disk, manifest_path, position, recovered, small_history,
    small_store, states, table, write_segment, write_table,
};
use esker_base::{ErrorKind, FileKind, FileNumber};
use esker_manifest::{Current, DumpItem, ManifestState, Recovery, VersionEdit, dump_manifest, recover};
use esker_vfs::{MemVfs, Vfs};
use esker_wal::{LogKind, RecordContext, RecordFields, RecordType, SegmentEnd, SegmentHeader, encode_record};

/// Where the records of a manifest start, and where the last one ends.
fn boundaries(mem: &MemVfs) -> Vec<u64> {
    let dump = dump_manifest(mem, &manifest_path(2)).unwrap();
    let mut offsets: Vec<u64> = dump
        .items
        .iter()
        .map(|item| match item {
            DumpItem::Edit { offset, .. } => *offset,
            DumpItem::Fault { error, .. } => panic!("{error}"),
        })
        .collect();
    offsets.push(dump.len);
    offsets
}

fn refuses(vfs: &dyn Vfs) -> esker_base::Error {
    let error = recover(vfs, dir()).unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::Corruption { .. } | ErrorKind::UnsupportedFormat { .. }),
        "{error:?}"
    );
    error
}

#[test]
fn m4_every_truncation_after_an_unclean_end_is_a_prefix_of_whole_edits() {
    let (mem, _writer, states) = small_store();
    let bounds = boundaries(&mem);
    let bytes = mem.read_file(manifest_path(2)).unwrap();
    assert_eq!(bounds.len(), states.len() + 1);
    for len in 0..=bytes.len() {
        for fill in [&[][..], &[0; 5], &[0; 300], &[0xa5; 3]] {
            if !fill.is_empty() && len == bytes.len() {
                continue;
            }
            let image = [&bytes[..len], fill].concat();
            mem.write_file(manifest_path(2), &image).unwrap();
            // A record that ends in zeros is whole again when zeros stand in place of what was cut off.
            let same = image.iter().zip(&bytes).take_while(|(a, b)| a == b).count() as u64;
            let whole = bounds.iter().filter(|bound| **bound <= same).count();
            if whole < 2 {
                refuses(&mem);
                continue;
            }
            let found = recovered(&mem);
            assert_eq!(position(&states, &found.state), whole - 2, "cut to {len}");
            assert!(!found.clean);
            let torn = bounds[whole - 1] != image.len() as u64;
            assert_eq!(found.torn_tail.is_some(), torn, "cut to {len}");
            if let Some(tail) = found.torn_tail {
                assert_eq!((tail.offset, tail.offset + tail.len), (bounds[whole - 1], image.len() as u64));
            }
        }
    }
}

#[test]
fn m4_every_flipped_bit_after_an_unclean_end_costs_at_most_the_last_edit() {
    let (mem, _writer, states) = small_store();
    let bounds = boundaries(&mem);
    let last = bounds[bounds.len() - 2];
    for offset in 0..bounds[bounds.len() - 1] {
        for bit in 0..8 {
            let image = mem.crash_clone_with(esker_vfs::CrashMode::Keep);
            image.flip(manifest_path(2), offset, 1 << bit).unwrap();
            if offset < last {
                refuses(&image);
            } else {
                let found = recovered(&image);
                assert_eq!(position(&states, &found.state), states.len() - 2);
                assert_eq!(found.torn_tail.unwrap().offset, last);
            }
        }
    }
}

#[test]
fn after_a_clean_close_any_change_is_corruption() {
    let (mem, writer, states) = small_store();
    writer.write_clean_current().unwrap();
    let found = recovered(&mem);
    assert!(found.clean && found.torn_tail.is_none());
    assert_eq!(position(&states, &found.state), states.len() - 1);
    assert_eq!(found.manifest_number, FileNumber(2));
    let bytes = mem.read_file(manifest_path(2)).unwrap();
    for len in 0..bytes.len() {
        mem.write_file(manifest_path(2), &bytes[..len]).unwrap();
        refuses(&mem);
        for bit in 0..8 {
            mem.write_file(manifest_path(2), &bytes).unwrap();
            mem.flip(manifest_path(2), len as u64, 1 << bit).unwrap();
            refuses(&mem);
        }
    }
    for tail in [&b"\0"[..], b"x", &[0; 100]] {
        mem.write_file(manifest_path(2), [&bytes, tail].concat()).unwrap();
        refuses(&mem);
    }
}

#[test]
fn every_change_of_current_is_corruption() {
    for clean in [false, true] {
        let (mem, writer, _) = small_store();
        if clean {
            writer.write_clean_current().unwrap();
        }
        let bytes = mem.read_file(current_path()).unwrap();
        for len in 0..bytes.len() {
            mem.write_file(current_path(), &bytes[..len]).unwrap();
            assert!(refuses(&mem).to_string().contains("CURRENT"));
            for bit in 0..8 {
                mem.write_file(current_path(), &bytes).unwrap();
                mem.flip(current_path(), len as u64, 1 << bit).unwrap();
                refuses(&mem);
            }
        }
        for other in [[&bytes[..], b"\n"].concat(), vec![0; bytes.len()], vec![b'x'; 1 << 20], Vec::new()] {
            mem.write_file(current_path(), other).unwrap();
            refuses(&mem);
        }
    }
}

/// AP13: `CURRENT` can't name a path, also behind a checksum that matches.
#[test]
fn ap13_current_holds_a_number_only() {
    let path = current_path();
    for middle in [
        "manifest ../x\nopen\n",
        "manifest /etc/x\nopen\n",
        "manifest 02\nopen\n",
        "manifest +2\nopen\n",
        "manifest 18446744073709551616\nopen\n",
        "manifest 2\nclosed 1\n",
        "manifest 2\nclosed 1 12345678 \n",
        "manifest 2\nclosed 1 ABCDEF00\n",
        "manifest 2\nopen\nopen\n",
        "manifest 2\n",
        "",
    ] {
        let body = format!("esker current 1\n{middle}");
        let text = format!("{body}crc {:08x}\n", esker_base::checksum(&[], body.as_bytes()));
        assert!(Current::decode(text.as_bytes(), &path).unwrap_err().is_corruption(), "{middle:?}");
    }
    let body = "esker current 2\nanything\n";
    let text = format!("{body}crc {:08x}\n", esker_base::checksum(&[], body.as_bytes()));
    let error = Current::decode(text.as_bytes(), &path).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{error}");
}

/// What looks torn is damage when the inputs of the damaged edit are gone already.
#[test]
fn m4_a_torn_edit_is_not_cut_when_older_tables_or_segments_are_gone() {
    let history = || {
        let (state, edits) = small_history();
        let mem = empty_disk();
        (5..=10).for_each(|number| write_table(&mem, number));
        (3..=4).for_each(|number| write_segment(&mem, number));
        (mem, state, edits)
    };
    // The compaction's edit is damaged, and a table that it deleted is gone.
    let (mem, state, edits) = history();
    let mut writer = create(&mem, 2, &state);
    edits[..2].iter().for_each(|edit| writer.append(edit).unwrap());
    mem.flip(manifest_path(2), writer.len() - 1, 1).unwrap();
    assert_eq!(
        position(&states(&state, &edits), &recovered(&mem).state),
        1,
        "all is there, so it may be torn"
    );
    mem.remove(&FileKind::Table.path(dir(), FileNumber(5))).unwrap();
    assert!(refuses(&mem).to_string().contains("000005.sst"));
    // The flush's edit is damaged, and the segment that it made obsolete is gone.
    let (mem, state, edits) = history();
    let mut writer = create(&mem, 2, &state);
    writer.append(&edits[0]).unwrap();
    mem.remove(&FileKind::Wal.path(dir(), FileNumber(3))).unwrap();
    assert_eq!(position(&states(&state, &edits), &recovered(&mem).state), 1);
    mem.flip(manifest_path(2), writer.len() - 1, 1).unwrap();
    assert!(refuses(&mem).to_string().contains("000003.wal"));
}

#[test]
fn m8_tables_must_be_there_with_their_size() {
    let (mem, _writer, _) = small_store();
    let path = FileKind::Table.path(dir(), FileNumber(9));
    mem.write_file(&path, [7; 108]).unwrap();
    assert_eq!(refuses(&mem).to_string(), "/db/000009.sst @ 0: it has 108 bytes, the manifest says 109");
    mem.remove(&path).unwrap();
    assert_eq!(refuses(&mem).to_string(), "/db/000009.sst @ 0: the manifest names it, but it is not there");
}

#[test]
fn a_directory_without_a_store_is_told_from_one_that_lost_its_current() {
    let missing = |mem: &MemVfs| match recover(mem, dir()).unwrap() {
        Recovery::Missing { max_file_number_seen } => max_file_number_seen.0,
        Recovery::Store(_) => panic!("there is no store"),
    };
    assert_eq!(missing(&MemVfs::new()), 0, "not even a directory");
    let mem = empty_disk();
    mem.write_file("/db/LOCK", b"").unwrap();
    mem.write_file("/db/notes.txt", b"none of ours").unwrap();
    assert_eq!(missing(&mem), 0);
    // What a creation leaves that did not finish.
    mem.write_file("/db/MANIFEST-000005", b"half").unwrap();
    mem.write_file("/db/CURRENT.tmp", b"es").unwrap();
    assert_eq!(missing(&mem), 5);
    for name in ["/db/000007.sst", "/db/000007.wal", "/db/000007.wal.lost"] {
        mem.write_file(name, [b'x'; 65]).unwrap();
        assert!(refuses(&mem).to_string().contains("000007"));
        mem.remove(name.as_ref()).unwrap();
    }
    // A log segment without a record: it is made before CURRENT, and may be torn.
    for len in [0, 1, 64] {
        mem.write_file("/db/000007.wal", vec![0; len]).unwrap();
        assert_eq!(missing(&mem), 7);
    }
    let (mem, _writer, _) = small_store();
    mem.remove(&manifest_path(2)).unwrap();
    assert!(refuses(&mem).to_string().contains("CURRENT names it, but it is not there"));
}

#[test]
fn m7_next_file_is_beyond_every_number_in_the_directory() {
    let (mem, _writer, _) = small_store();
    mem.write_file("/db/000500.sst", b"an orphan").unwrap();
    mem.write_file("/db/777777.sst.bak", b"none of ours").unwrap();
    let found = recovered(&mem);
    assert_eq!(found.max_file_number_seen, FileNumber(500));
    assert_eq!(found.state.next_file, FileNumber(501));
    mem.write_file("/db/18446744073709551615.sst", b"x").unwrap();
    assert!(recover(&mem, dir()).unwrap_err().is_corruption());
}

/// An edit number and the bytes of an edit.
type Numbered = (u64, Vec<u8>);

/// Writes a manifest 2 by hand, with checksums that match: a snapshot of `state`, then these numbered payloads.
fn forge(mem: &MemVfs, state: &ManifestState, payloads: &[Numbered]) {
    let (kind, number) = (LogKind::Manifest, FileNumber(2));
    let header = SegmentHeader { kind, store_id: state.store_id, number, previous: SegmentEnd::none(0) };
    let context = RecordContext::new(kind, state.store_id, number);
    let mut bytes = header.encode().to_vec();
    for (first, payload) in payloads {
        let fields =
            RecordFields { record_type: RecordType::Edit, first: *first, count: 1, durable: first - 1 };
        let offset = bytes.len() as u64;
        encode_record(&mut bytes, &context, offset, &fields, payload).unwrap();
    }
    mem.write_file(manifest_path(2), bytes).unwrap();
    mem.write_file(current_path(), Current { manifest: FileNumber(2), closed: None }.encode()).unwrap();
}

fn payload(edit: &VersionEdit) -> Vec<u8> {
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    bytes
}

/// The checksum in `CURRENT` finds another manifest of the same length whose records are all intact.
#[test]
fn after_a_clean_close_another_intact_manifest_is_corruption() {
    let mem = empty_disk();
    let state =
        ManifestState::new(1, 2).apply(&VersionEdit { next_file: Some(FileNumber(3)), ..VersionEdit::new() });
    let state = state.unwrap();
    let edit = |last| VersionEdit { last_sequence: Some(last), ..VersionEdit::new() };
    let mut writer = create(&mem, 2, &state);
    writer.append(&edit(70)).unwrap();
    let len = writer.len();
    writer.write_clean_current().unwrap();
    let current = mem.read_file(current_path()).unwrap();
    for (last, intact) in [(70, true), (71, false)] {
        forge(&mem, &state, &[(1, payload(&state.to_snapshot_edit())), (2, payload(&edit(last)))]);
        assert_eq!(mem.read_file(manifest_path(2)).unwrap().len() as u64, len);
        mem.write_file(current_path(), &current).unwrap();
        match intact {
            true => assert!(recovered(&mem).clean),
            false => assert!(refuses(&mem).to_string().contains("checksum of the whole file")),
        }
    }
}

/// Intact records that contradict each other are damage, with file and offset, not a broken engine.
#[test]
fn m4_sn15_intact_records_that_make_no_sense_are_corruption() {
    let state = ManifestState::new(1, 2);
    let snapshot = payload(&state.to_snapshot_edit());
    let mem = empty_disk();
    write_table(&mem, 3);
    write_table(&mem, 4);
    let add = |level, number, range: (&str, &str)| {
        let mut edit = VersionEdit::new();
        edit.add_table(0, level, table(number, (range.0, 9), (range.1, 8)));
        payload(&edit)
    };
    let mut delete = VersionEdit::new();
    delete.delete_table(0, 1, FileNumber(9));
    let mut no_seed = state.to_snapshot_edit();
    no_seed.hash_seed = None;
    let cases: [(&str, &[Numbered]); 8] = [
        ("there is no snapshot", &[]),
        ("edit 2 where edit 1", &[(2, snapshot.clone())]),
        ("edit 3 where edit 2", &[(1, snapshot.clone()), (3, add(1, 3, ("a", "b")))]),
        ("edit 1 where edit 2", &[(1, snapshot.clone()), (1, snapshot.clone())]),
        ("no format version", &[(1, add(1, 3, ("a", "b")))]),
        ("is no snapshot", &[(1, payload(&no_seed))]),
        ("overlaps", &[(1, snapshot.clone()), (2, add(1, 3, ("a", "c"))), (3, add(1, 4, ("b", "d")))]),
        ("it is not there", &[(1, snapshot.clone()), (2, payload(&delete))]),
    ];
    for (what, payloads) in cases {
        forge(&mem, &state, payloads);
        let error = refuses(&mem);
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.to_string().contains("MANIFEST-000002 @ "), "{error}");
        let dump = dump_manifest(&mem, &manifest_path(2)).unwrap();
        assert!(dump.state.is_none() && dump.faults().count() == 1, "{what}: {dump:#?}");
    }
    forge(&mem, &state, &[(1, snapshot), (2, add(1, 3, ("a", "b"))), (3, add(1, 4, ("c", "d")))]);
    assert_eq!(recovered(&mem).state.keyspaces[&0].version.table_count(), 2);
}

/// CO01 on the whole route: every byte of an edit behind checksums that match, set to anything.
#[test]
fn co01_changed_edits_behind_matching_checksums_never_panic() {
    let (state, edits) = small_history();
    let (mem, writer, states) = small_store();
    drop(writer);
    let snapshot = payload(&state.to_snapshot_edit());
    for (index, edit) in edits.iter().enumerate() {
        let before: Vec<_> = edits[..index].iter().map(payload).collect();
        let bytes = payload(edit);
        for at in 0..bytes.len() {
            for value in [0, 1, 7, 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at].wrapping_add(2)] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let payloads = [&[snapshot.clone()][..], &before, &[changed]].concat();
                let numbered: Vec<_> = (1..).zip(payloads).collect();
                forge(&mem, &state, &numbered);
                match recover(&mem, dir()) {
                    Ok(Recovery::Store(found)) => assert!(found.torn_tail.is_none()),
                    Ok(Recovery::Missing { .. }) => panic!("the store is there"),
                    Err(error) => assert!(
                        matches!(
                            error.kind(),
                            ErrorKind::Corruption { .. } | ErrorKind::UnsupportedFormat { .. }
                        ),
                        "{error:?}"
                    ),
                }
            }
        }
    }
    assert_eq!(states.len(), 4);
}

#[test]
fn a_manifest_of_another_store_or_number_is_refused() {
    let (mem, _writer, _) = small_store();
    let bytes = mem.read_file(manifest_path(2)).unwrap();
    mem.write_file(manifest_path(3), &bytes).unwrap();
    mem.write_file(current_path(), Current { manifest: FileNumber(3), closed: None }.encode()).unwrap();
    assert!(refuses(&mem).to_string().contains("the header is that of manifest 000002"));
}

/// A dump of a damaged file shows every edit that is intact, and every fault.
#[test]
fn dumps_go_on_behind_faults() {
    let (mem, _writer, states) = small_store();
    let whole = dump_manifest(&mem, &manifest_path(2)).unwrap();
    assert_eq!(whole.items.len(), 4);
    assert_eq!(content(whole.state.as_ref().unwrap()), content(&states[3]));
    let bounds = boundaries(&mem);
    for offset in bounds[0]..bounds[4] {
        let image = mem.crash_clone_with(esker_vfs::CrashMode::Keep);
        image.flip(manifest_path(2), offset, 0x10).unwrap();
        let dump = dump_manifest(&image, &manifest_path(2)).unwrap();
        let broken = bounds.iter().filter(|bound| **bound <= offset).count();
        assert_eq!(dump.faults().count(), 1, "{offset}: {dump:#?}");
        let numbers: Vec<u64> = dump
            .items
            .iter()
            .filter_map(|item| match item {
                DumpItem::Edit { number, .. } => Some(*number),
                DumpItem::Fault { .. } => None,
            })
            .collect();
        assert_eq!(numbers, (1..=4).filter(|number| *number != broken as u64).collect::<Vec<_>>());
        assert_eq!(dump.state.is_some(), broken == 4, "the state before a torn tail is known");
    }
}
