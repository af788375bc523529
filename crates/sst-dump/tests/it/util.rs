//! Databases to look at, copies to damage, and the tool to run.

use esker::{Background, Compression, Db, Options, WriteBatch};
use esker_base::{FileNumber, InternalKey, InternalKeyRef, ValueKind};
use esker_manifest::{ManifestState, TableMetadata, VersionEdit};
use esker_sstable::{TableBuilder, TableIdentity, TableOptions};
use esker_vfs::{OsVfs, Vfs};
use esker_wal::{LogKind, LogWriter, SegmentEnd, SegmentHeader};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::SystemTime;

/// What a run of the tool came to.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Ran {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

pub fn tool() -> Command {
    Command::new(env!("CARGO_BIN_EXE_sst-dump"))
}

/// Runs the tool, and checks what must always hold: a documented exit code, no panic, no control byte in the output.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    ran(tool().args(arguments).stdin(Stdio::null()).output().unwrap())
}

pub fn ran(output: Output) -> Ran {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the output is UTF-8");
    let ran = Ran {
        code: output.status.code().expect("no signal ended it"),
        out: text(output.stdout),
        err: text(output.stderr),
    };
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    assert!((0..=4).contains(&ran.code), "exit code {}: {}", ran.code, ran.err);
    for text in [&ran.out, &ran.err] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    }
    ran
}

/// Runs the tool with words and a path behind them.
pub fn run_on(words: &str, path: &Path) -> Ran {
    let path = path.as_os_str();
    run(words.split_whitespace().map(std::ffi::OsStr::new).chain([path]))
}

/// Small tables, inline work and a seed: the same files in each run.
pub fn options() -> Options {
    Options::new()
        .background(Background::Inline)
        .seed(7)
        .memtable_size(16 << 10)
        .table_size(8 << 10)
        .base_level_size(16 << 10)
        .block_size(512)
        .compression(Compression::None)
}

pub fn key(n: u32) -> String {
    format!("k{n:05}")
}

/// Writes 400 keys, every tenth of them deleted again, with a flush in between.
pub fn fill(db: &Db) {
    for n in 0..400 {
        db.put(key(n), format!("value {n}")).unwrap();
        if n == 200 {
            db.flush().unwrap();
        }
    }
    for n in (0..400).step_by(10) {
        db.delete(key(n)).unwrap();
    }
}

/// A database that was closed.
pub fn closed(dir: &Path) {
    let db = options().open(dir).unwrap();
    fill(&db);
    db.close().unwrap();
}

/// A database as a killed process leaves it, with operations in the log.
pub fn crashed(dir: &Path) {
    let alive = tempfile::tempdir().unwrap();
    let db = options().open(alive.path()).unwrap();
    fill(&db);
    db.flush().unwrap();
    for n in 1000..1020 {
        db.put(key(n), "in the log").unwrap();
    }
    db.sync().unwrap();
    copy(alive.path(), dir);
    drop(db);
}

/// The bytes of a file; of a log without the zeros that a crash leaves behind the last record, which ends with text.
pub fn without_room(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "wal") {
        bytes.truncate(bytes.len() - bytes.iter().rev().take_while(|&&byte| byte == 0).count());
    }
    bytes
}

/// Copies the regular files of a directory.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for path in files(from) {
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// The regular files of a directory, sorted by name.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

/// The files with this in their name.
pub fn with_name(dir: &Path, part: &str) -> Vec<PathBuf> {
    let has_part = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().contains(part);
    files(dir).into_iter().filter(has_part).collect()
}

pub fn flip(path: &Path, offset: usize, mask: u8) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[offset] ^= mask;
    std::fs::write(path, bytes).unwrap();
}

/// Content, length and time of change of everything in a directory.
pub fn state(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, SystemTime)> {
    let mut state = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let bytes = match entry.file_type().unwrap().is_file() {
            true => std::fs::read(entry.path()).unwrap(),
            false => Vec::new(),
        };
        state.insert(entry.path(), (bytes, entry.path().symlink_metadata().unwrap().modified().unwrap()));
    }
    state.insert(dir.to_path_buf(), (Vec::new(), dir.metadata().unwrap().modified().unwrap()));
    state
}

/// A small table: `entries` keys `k00000`.., values of `value n`, in blocks of 256 bytes, of the store of
/// [`manifest`].
pub fn table(path: &Path, entries: u32) {
    let identity = TableIdentity { store_id: 5, number: FileNumber(1), hash_seed: 6 };
    let options = TableOptions { block_size: 256, compression: Compression::None, ..TableOptions::default() };
    let file = OsVfs::new().create_new(path).unwrap();
    let mut builder = TableBuilder::new(file, path.into(), &options, identity, 0);
    for n in 0..entries {
        let (kind, value) = match n % 5 {
            4 => (ValueKind::Delete, String::new()),
            _ => (ValueKind::Put, format!("value {n}")),
        };
        let key = key(n);
        builder.add(InternalKeyRef::new(key.as_bytes(), u64::from(n) + 1, kind), value.as_bytes()).unwrap();
    }
    builder.finish().unwrap().file.close().unwrap();
}

/// Writes a manifest whose last edits nobody checked.
pub fn manifest(dir: &Path, edits: &[VersionEdit]) -> PathBuf {
    let path = dir.join("MANIFEST-000001");
    let header = SegmentHeader {
        kind: LogKind::Manifest,
        store_id: 5,
        number: FileNumber(1),
        previous: SegmentEnd::none(0),
    };
    let mut writer = LogWriter::create(&OsVfs::new(), &path, header, 0).unwrap();
    let first = ManifestState::new(5, 6).to_snapshot_edit();
    for (edit, number) in std::iter::once(&first).chain(edits).zip(1..) {
        let mut payload = Vec::new();
        edit.encode(&mut payload);
        writer.append_edit(number, &payload).unwrap();
    }
    writer.sync().unwrap();
    writer.close().unwrap();
    path
}

pub fn metadata(number: u64, from: u32, to: u32, seqs: (u64, u64)) -> Arc<TableMetadata> {
    Arc::new(TableMetadata {
        number: FileNumber(number),
        file_size: 1000,
        tail_size: 100,
        smallest: InternalKey::new(key(from), seqs.0, ValueKind::Put),
        largest: InternalKey::new(key(to), seqs.1, ValueKind::Put),
        smallest_seq: seqs.0,
        largest_seq: seqs.1,
        entries: 10,
        deletes: 0,
    })
}

/// Writes a log segment with three batches of a put and a delete each; returns its end.
pub fn log(dir: &Path, number: u64, previous: SegmentEnd) -> SegmentEnd {
    let path = dir.join(format!("{number:06}.wal"));
    let header = SegmentHeader { kind: LogKind::Wal, store_id: 5, number: FileNumber(number), previous };
    let mut writer = LogWriter::create(&OsVfs::new(), &path, header, previous.last_sequence).unwrap();
    let mut batch = WriteBatch::new();
    batch.put("key", "value").delete("other");
    for n in 0..3 {
        writer.append_batch(previous.last_sequence + 1 + 2 * n, 2, batch.encoded()).unwrap();
    }
    writer.sync().unwrap();
    writer.close().unwrap()
}
