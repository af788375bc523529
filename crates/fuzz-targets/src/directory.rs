//! `directory`: the files of a database, opened, read, verified, written to and repaired.

use esker::vfs::{CrashMode, MemVfs};
use esker::{Components, Db, ErrorKind, Options, RecoveryMode};
use esker_base::{Checksum, FileKind, FileNumber, parse_file_name};
use esker_manifest::{Current, ManifestEnd};
use esker_sim::disk::{DIR, Disk};
use esker_sim::preset::Setup;
use esker_wal::LogKind;
use std::sync::Arc;

use crate::{Input, assert_of_bytes, seal};

/// More files are not made.
const FILES_MAX: usize = 8;
/// More entries are not scanned.
const ENTRIES_MAX: usize = 50_000;

/// Flags; then for each file kind, number, records to seal, and its bytes behind their length.
pub(crate) fn directory(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let mem = build(&mut input);
    let copy = || mem.crash_clone_with(CrashMode::Keep);
    let mode = if flags & 1 == 0 { RecoveryMode::Strict } else { RecoveryMode::PointInTime };
    let options = Setup::tiny().options.recovery(mode);
    match Disk::on(copy(), false, None).open_inline(&options) {
        Ok(db) => interrogate(&db),
        Err(error) => assert_refusal(&error),
    }
    repair(copy(), &options);
}

/// Makes the files that an input describes.
pub fn build(input: &mut Input<'_>) -> MemVfs {
    let mem = MemVfs::new();
    for _ in 0..FILES_MAX {
        if input.is_empty() {
            break;
        }
        add_file(input, &mem);
    }
    mem
}

fn add_file(input: &mut Input<'_>, mem: &MemVfs) {
    let kind = input.below(5);
    let number = 1 + input.below(32) as u64;
    let records = usize::from(input.byte());
    let mut file = input.large().to_vec();
    let path = match kind {
        0 => {
            seal::table(&mut file);
            seal::path(FileKind::Table, number)
        }
        1 => {
            seal::log(&mut file, LogKind::Wal, number, records);
            seal::path(FileKind::Wal, number)
        }
        2 => {
            seal::log(&mut file, LogKind::Manifest, number, records);
            seal::path(FileKind::Manifest, number)
        }
        3 => {
            file = seal::current(&file);
            seal::path(FileKind::Current, 0)
        }
        _ => {
            // As a writer makes it, for the manifest that is there by now.
            let manifest = mem.read_file(seal::path(FileKind::Manifest, number)).unwrap_or_default();
            let end =
                ManifestEnd { len: manifest.len() as u64, crc: Checksum::new(&[]).bytes(&manifest).finish() };
            let closed = (records & 1 == 1).then_some(end);
            file = Current { manifest: FileNumber(number), closed }.encode().into_bytes();
            seal::path(FileKind::Current, 0)
        }
    };
    mem.write_file(path, file).expect("a memory file");
}

/// The input of a directory as it stands: for a corpus.
pub fn describe(mem: &MemVfs) -> Vec<u8> {
    let mut out = vec![0];
    let mut files: Vec<_> = mem.files().into_iter().collect();
    // `CURRENT` last, since it is made from the manifest.
    files.sort_by_key(|(path, _)| path.ends_with("CURRENT"));
    for (path, bytes) in files {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((kind, number)) = parse_file_name(name) else { continue };
        let (kind, number, bytes) = match kind {
            FileKind::Table => (0, number.0, bytes),
            FileKind::Wal => (1, number.0, bytes),
            FileKind::Manifest => (2, number.0, bytes),
            FileKind::Current => match Current::decode(&bytes, &path) {
                Ok(current) => {
                    let records = if current.closed.is_some() { 1 } else { 0 };
                    out.extend_from_slice(&[4, current.manifest.0 as u8 - 1, records, 0, 0]);
                    continue;
                }
                Err(_) => continue,
            },
            _ => continue,
        };
        out.extend_from_slice(&[kind, number as u8 - 1, 255]);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(&bytes);
    }
    out
}

/// An open refuses with an error that says what is wrong with the directory.
fn assert_refusal(error: &esker::Error) {
    if !matches!(error.kind(), ErrorKind::InvalidArgument { .. }) {
        assert_of_bytes(error);
    }
}

/// Asks everything; answers may be anything, but come to an end, and nothing panics.
fn interrogate(db: &Db) {
    let walk = |mut entries: Box<dyn Iterator<Item = esker::Result<(esker::Slice, esker::Slice)>>>| {
        let mut keys = Vec::new();
        for number in 0.. {
            assert!(number < ENTRIES_MAX, "a scan without end");
            match entries.next() {
                Some(Ok((key, _))) => keys.push(key.to_vec()),
                Some(Err(error)) => {
                    assert_of_bytes(&error);
                    break;
                }
                None => break,
            }
        }
        keys
    };
    let keys = walk(Box::new(db.iter()));
    walk(Box::new(db.iter().rev()));
    let report = db.verify().expect("an open database");
    report.faults.iter().for_each(assert_of_bytes);
    let snapshot = db.snapshot();
    for key in keys.iter().take(16) {
        db.get(key).map(drop).unwrap_or_else(|error| assert_of_bytes(&error));
        snapshot.get(key).map(drop).unwrap_or_else(|error| assert_of_bytes(&error));
        if let Ok(mut cursor) = db.cursor() {
            let _ = cursor.seek(key).and_then(|()| cursor.prev());
            let _ = cursor.seek_for_prev(key).and_then(|()| cursor.next());
        }
    }
    let _ = db.put("new", "value");
    let _ = db.delete(keys.first().map_or(&b"none"[..], Vec::as_slice));
    let _ = db.flush();
    let _ = db.compact_range::<&[u8], _>(..);
    walk(Box::new(db.iter()));
    if let Some(error) = db.background_error() {
        assert!(!error.to_string().contains("panicked"), "{error}");
    }
}

/// What was repaired opens, and nothing is wrong with it.
fn repair(mem: MemVfs, options: &Options) {
    let (_, mut components) = Components::in_memory(1, options.clone());
    components.vfs = Arc::new(mem);
    match Db::repair_with(DIR, options, &components) {
        Ok(_) => {
            let db = Db::open_with(DIR, options.clone(), components).expect("a repaired database opens");
            let report = db.verify().expect("an open database");
            assert!(report.is_clean(), "after a repair: {report}");
            for entry in db.iter() {
                entry.expect("a scan after a repair");
            }
        }
        Err(error) => assert_refusal(&error),
    }
}
