//! Tests of the manifest through its public interface, on a file system in memory.
#![allow(
    clippy::disallowed_methods,
    reason = "golden files and timings are outside of the file system under test"
)]

mod crash;
mod damage;
mod edits;
mod golden;
mod replay;
mod versions;

use esker_base::{FileKind, FileNumber, InternalKey, ValueKind};
use esker_manifest::{
    ManifestState, ManifestWriter, Recovered, Recovery, TableMetadata, VersionEdit, recover,
};
use esker_vfs::{MemVfs, Vfs};
use std::path::Path;
use std::sync::Arc;

/// Where the stores of all tests are.
fn dir() -> &'static Path {
    Path::new("/db")
}

/// A file system with an empty, durable directory for a store.
fn empty_disk() -> MemVfs {
    let mem = MemVfs::new();
    mem.create_dir_all(dir()).unwrap();
    mem.sync_dir(Path::new("/")).unwrap();
    mem
}

/// A table of 100 + `number` bytes.
fn table(number: u64, smallest: (&str, u64), largest: (&str, u64)) -> Arc<TableMetadata> {
    Arc::new(TableMetadata {
        number: FileNumber(number),
        file_size: 100 + number,
        tail_size: 40,
        smallest: InternalKey::new(smallest.0, smallest.1, ValueKind::Put),
        largest: InternalKey::new(largest.0, largest.1, ValueKind::Delete),
        smallest_seq: smallest.1.min(largest.1),
        largest_seq: smallest.1.max(largest.1),
        entries: 9,
        deletes: 1,
    })
}

/// Puts the file of [`table`] on the disk.
fn write_table(mem: &MemVfs, number: u64) {
    mem.write_file(FileKind::Table.path(dir(), FileNumber(number)), vec![7; 100 + number as usize]).unwrap();
}

fn write_segment(mem: &MemVfs, number: u64) {
    mem.write_file(FileKind::Wal.path(dir(), FileNumber(number)), b"log").unwrap();
}

/// A state with tables at two levels, and three edits that follow it.
fn small_history() -> (ManifestState, Vec<VersionEdit>) {
    let mut first = VersionEdit::new();
    first.add_table(0, 0, table(6, ("b", 30), ("p", 21))).add_table(0, 1, table(5, ("a", 9), ("m", 4)));
    first.set_log_number(0, FileNumber(3)).set_cursor(0, 1, Some(b"c".to_vec()));
    first.next_file = Some(FileNumber(7));
    let state = ManifestState::new(0x0123_4567_89ab_cdef, 42).apply(&first).unwrap();
    let mut flush = VersionEdit::new();
    flush.add_table(0, 0, table(7, ("", 40), ("z", 31))).set_log_number(0, FileNumber(4));
    flush.durable_sequence = Some(40);
    let mut compaction = VersionEdit::new();
    compaction.delete_table(0, 0, FileNumber(6)).delete_table(0, 1, FileNumber(5));
    compaction.add_table(0, 1, table(8, ("a", 9), ("c", 30))).add_table(0, 1, table(9, ("d", 25), ("p", 21)));
    compaction.set_cursor(0, 1, None);
    let mut last = VersionEdit::new();
    last.last_sequence = Some(70);
    last.add_table(0, 0, table(10, ("k", 70), ("k", 41)));
    (state, vec![flush, compaction, last])
}

/// The states after each edit, the first one included.
fn states(first: &ManifestState, edits: &[VersionEdit]) -> Vec<ManifestState> {
    let mut states = vec![first.clone()];
    for edit in edits {
        states.push(states.last().unwrap().apply(edit).unwrap());
    }
    states
}

/// A durable store with all of [`small_history`], its files, and the open writer of manifest 2.
fn small_store() -> (MemVfs, ManifestWriter, Vec<ManifestState>) {
    let mem = empty_disk();
    (5..=10).for_each(|number| write_table(&mem, number));
    (3..=4).for_each(|number| write_segment(&mem, number));
    let (state, edits) = small_history();
    let states = states(&state, &edits);
    let mut writer = create(&mem, 2, &state);
    edits.iter().for_each(|edit| writer.append(edit).unwrap());
    (mem, writer, states)
}

fn create(mem: &MemVfs, number: u64, state: &ManifestState) -> ManifestWriter {
    ManifestWriter::create(Arc::new(mem.clone()), dir(), FileNumber(number), state).unwrap()
}

/// Recovers a store that must be there.
fn recovered(vfs: &dyn Vfs) -> Recovered {
    match recover(vfs, dir()).unwrap() {
        Recovery::Store(recovered) => *recovered,
        Recovery::Missing { .. } => panic!("the store is missing"),
    }
}

/// All that edits say about a state: all but the next file number, which recovery raises.
fn content(state: &ManifestState) -> VersionEdit {
    VersionEdit { next_file: None, ..state.to_snapshot_edit() }
}

/// Which of the states this is.
fn position(states: &[ManifestState], state: &ManifestState) -> usize {
    let wanted = content(state);
    states
        .iter()
        .position(|state| content(state) == wanted)
        .unwrap_or_else(|| panic!("no such state: {wanted:#?}"))
}

fn manifest_path(number: u64) -> std::path::PathBuf {
    FileKind::Manifest.path(dir(), FileNumber(number))
}

fn current_path() -> std::path::PathBuf {
    FileKind::Current.path(dir(), FileNumber(0))
}
