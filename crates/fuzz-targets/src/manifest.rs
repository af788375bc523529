//! `manifest`: a manifest and the `CURRENT` that names it, read in every way.

use std::path::Path;

use esker_base::{Checksum, FileKind, FileNumber};
use esker_manifest::{
    Current, DumpItem, ManifestEnd, ManifestState, Recovery, VersionEdit, dump_manifest, recover,
};
use esker_sim::disk::DIR;
use esker_vfs::MemVfs;
use esker_wal::LogKind;

use crate::{Input, assert_of_bytes, seal};

/// Number of the manifest.
const NUMBER: u64 = 2;
/// Larger files are not made.
const FILE_MAX: u64 = 1 << 20;
/// All files together take no more.
const FILES_MAX: u64 = 4 << 20;

/// Flags, records to seal, the text of a `CURRENT`, then the manifest.
pub(crate) fn manifest(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (flags, sealed) = (input.byte(), usize::from(input.byte()));
    current(input.small());
    let mut file = input.rest().to_vec();
    if flags & 1 == 0 {
        seal::log(&mut file, LogKind::Manifest, NUMBER, sealed);
    }
    let mem = MemVfs::new();
    let path = seal::path(FileKind::Manifest, NUMBER);
    mem.write_file(&path, &file).expect("a memory file");
    let end = ManifestEnd { len: file.len() as u64, crc: Checksum::new(&[]).bytes(&file).finish() };
    let current = Current { manifest: FileNumber(NUMBER), closed: (flags & 2 != 0).then_some(end) };
    let current_path = seal::path(FileKind::Current, 0);
    mem.write_file(&current_path, current.encode()).expect("a memory file");

    let dumped = match dump_manifest(&mem, &path) {
        Ok(dump) => {
            for item in &dump.items {
                match item {
                    DumpItem::Edit { edit, .. } => round_trip(edit),
                    DumpItem::Fault { error, .. } => assert_of_bytes(error),
                }
            }
            dump.state
        }
        Err(error) => {
            assert_of_bytes(&error);
            None
        }
    };
    if let Some(state) = &dumped {
        round_trip(&state.to_snapshot_edit());
        make_files(&mem, state);
    }
    match recover(&mem, DIR.as_ref()) {
        Ok(Recovery::Store(found)) => examine(&found.state, dumped.as_ref()),
        Ok(Recovery::Missing { .. }) => panic!("there is a CURRENT"),
        Err(error) => assert_of_bytes(&error),
    }
}

fn current(body: &[u8]) {
    let text = seal::current(body);
    match Current::decode(&text, Path::new("/CURRENT")) {
        Ok(current) => assert_eq!(current.encode().as_bytes(), text),
        Err(error) => assert_of_bytes(&error),
    }
}

fn round_trip(edit: &VersionEdit) {
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    let again = VersionEdit::decode(&bytes, Path::new("/MANIFEST"), 0).expect("what was encoded decodes");
    assert_eq!(again, *edit);
}

/// Makes the tables and log segments that a state needs. Leaves off at large ones.
fn make_files(mem: &MemVfs, state: &ManifestState) {
    let mut total = 0;
    for keyspace in state.keyspaces.values() {
        for (_, table) in keyspace.version.tables() {
            total += table.file_size.min(FILES_MAX);
            if table.file_size > FILE_MAX || total > FILES_MAX {
                return;
            }
            let path = seal::path(FileKind::Table, table.number.0);
            mem.write_file(path, vec![0; table.file_size as usize]).expect("a memory file");
        }
        if keyspace.log_number.0 != 0 {
            let path = seal::path(FileKind::Wal, keyspace.log_number.0);
            mem.write_file(path, []).expect("a memory file");
        }
    }
}

/// A state that was accepted obeys the rules, and is what the dump says.
fn examine(state: &ManifestState, dumped: Option<&ManifestState>) {
    round_trip(&state.to_snapshot_edit());
    for keyspace in state.keyspaces.values() {
        for (level, table) in keyspace.version.tables() {
            assert!(table.smallest.as_ref() <= table.largest.as_ref(), "level {level}: {table:?}");
            assert!(table.number < state.next_file, "{table:?}");
            assert!(table.entries > 0 && table.deletes <= table.entries);
        }
    }
    if let Some(dumped) = dumped {
        let tables = |state: &ManifestState| state.table_numbers().collect::<Vec<_>>();
        assert_eq!(tables(dumped), tables(state));
        assert_eq!(dumped.last_sequence, state.last_sequence);
    }
}
