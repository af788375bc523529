//! Golden segments: files that every later build must read, byte for byte as they were written.
//!
//! `REWRITE=1 cargo test -p esker-wal golden` writes them anew, which is right only for a new format version.

#![expect(clippy::disallowed_methods, reason = "the golden files are on the real disk")]

use std::path::{Path, PathBuf};

use esker_base::{FileNumber, WriteBatch};
use esker_vfs::MemVfs;

use super::util::{STORE, header, path, replay};
use crate::{LogKind, LogReader, LogWriter, SegmentEnd, SegmentHeader};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// Compares with the golden file, or writes it.
fn check(name: &str, bytes: &[u8]) -> Vec<u8> {
    let file = golden(name);
    if std::env::var_os("REWRITE").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, bytes).unwrap();
    }
    let stored = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    assert_eq!(stored, bytes, "{name} is no longer written as it was");
    stored
}

/// The two segments of the worked example in `docs/format/wal.md`.
fn example() -> MemVfs {
    let vfs = MemVfs::new();
    let mut first = LogWriter::create(&vfs, &path(1), header(1, SegmentEnd::none(0)), 0).unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"apple", b"red").put(b"pear", b"green");
    first.append_batch(1, 2, batch.encoded()).unwrap();
    first.sync().unwrap();
    batch.clear();
    batch.delete(b"apple");
    first.append_batch(3, 1, batch.encoded()).unwrap();
    first.flush().unwrap();
    let mut second = LogWriter::create(&vfs, &path(2), header(2, first.end()), 2).unwrap();
    second.append_skip(4, 100).unwrap();
    batch.clear();
    batch.put(b"", vec![b'x'; 200]);
    second.append_batch(104, 1, batch.encoded()).unwrap();
    second.flush().unwrap();
    vfs
}

#[test]
fn golden_log_is_read() {
    let vfs = example();
    let stored = MemVfs::new();
    for number in [1, 2] {
        let bytes = check(&format!("{:06}.wal", number), &vfs.read_file(path(number)).unwrap());
        stored.write_file(path(number), bytes).unwrap();
    }
    let (seen, found) = replay(&stored).unwrap();
    let numbers: Vec<_> = seen.iter().map(|record| (record.0, record.1, record.2.len())).collect();
    assert_eq!(numbers, [(1, 2, 23), (3, 1, 7), (4, 100, 0), (104, 1, 204)]);
    assert_eq!(seen[0].2, b"\x01\x05apple\x03red\x01\x04pear\x05green");
    assert_eq!((found.end.last_sequence, found.durable), (104, 2));
}

#[test]
fn golden_manifest_framing_is_read() {
    let vfs = MemVfs::new();
    let header = SegmentHeader {
        kind: LogKind::Manifest,
        store_id: STORE,
        number: FileNumber(4),
        previous: SegmentEnd { number: FileNumber(3), length: 4_096, last_sequence: 17 },
    };
    let mut writer = LogWriter::create(&vfs, &path(4), header, 17).unwrap();
    writer.previous_is_durable();
    writer.append_edit(18, b"snapshot").unwrap();
    writer.sync().unwrap();
    writer.append_edit(19, b"").unwrap();
    writer.flush().unwrap();
    let bytes = check("edits.log", &vfs.read_file(path(4)).unwrap());
    let stored = MemVfs::new();
    stored.write_file(path(4), bytes).unwrap();
    let (read, mut reader) = LogReader::open(&stored, &path(4), LogKind::Manifest).unwrap();
    assert_eq!(read, header);
    let record = reader.next_record().unwrap().unwrap();
    assert_eq!((record.fields.first, record.fields.durable, record.payload), (18, 17, &b"snapshot"[..]));
    let record = reader.next_record().unwrap().unwrap();
    assert_eq!((record.fields.first, record.fields.durable, record.payload), (19, 18, &b""[..]));
    assert!(reader.next_record().unwrap().is_none());
    assert!(LogReader::open(&stored, &path(4), LogKind::Wal).unwrap_err().is_corruption());
}

/// The dumps in the description are the golden files.
#[test]
fn the_worked_example_is_the_golden_log() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/wal.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (name, rows) in [("000001.wal", 8), ("000002.wal", 6)] {
        let bytes = std::fs::read(golden(name)).unwrap();
        for (row, bytes) in bytes.chunks(16).enumerate().take(rows) {
            let hex: String = bytes.iter().enumerate().fold(String::new(), |hex, (at, byte)| {
                format!("{hex}{}{byte:02x}", if at > 0 && at % 2 == 0 { " " } else { "" })
            });
            let line = format!("{:08x}: {hex}", row * 16);
            assert!(page.contains(&line), "{name}: {line}");
        }
    }
}
