//! Damage: every byte of every file of two small databases is flipped, one at a time, and every file is cut at every
//! length. What is read is right or a named error; nothing panics, hangs, or allocates much.
//!
//! One database was closed, so that any damage to its manifest must be told; the other one was killed, so that its log
//! counts. There, what was not synced may be missing after damage to it, as a suffix (rule W3); what was synced may not.

use std::time::Duration;

use esker::vfs::{CrashMode, MemVfs};
use esker::{Compression, Db, Error, ErrorKind, Options};
use esker_testkit::{Coverage, History, Patience, Promise, Verdict, WriteOp, value_for};

use crate::support::{Content, Rig, content, small, write};

/// Most bytes that may be allocated at once: a constant, and what the sizes of file and store give reason for.
fn allocation_max(store_bytes: u64) -> u64 {
    (1 << 20) + 24 * store_bytes
}

/// A database on a disk, and what it holds.
struct Store {
    mem: MemVfs,
    options: Options,
    content: Content,
    history: History,
    bytes: u64,
}

impl Store {
    /// Tables at several levels, made of puts, overwrites and deletes; then a clean close or a kill with a full log.
    fn new(clean: bool, compression: Compression) -> Self {
        let rig = Rig::new();
        let options = small().compression(compression).l0_trigger(4);
        let db = rig.open_inline(&options).unwrap();
        let mut history = History::new(Promise::Buffered);
        let mut number = 0;
        let mut put = |db: &Db, history: &mut History, key: u64, promise: Promise| {
            number += 1;
            let key = format!("key{:03}", key % 60).into_bytes();
            let value = value_for(number, &key, 20 + (number % 30) as usize);
            let op = if number % 7 == 0 { WriteOp::Delete(key) } else { WriteOp::Put(key, value) };
            let ops = vec![op];
            history.begin(&ops, promise);
            write(db, &ops, promise).unwrap();
            history.acknowledge();
        };
        (0..60).for_each(|key| put(&db, &mut history, key, Promise::Default));
        db.compact_range::<&[u8], _>(..).unwrap();
        (0..30).for_each(|key| put(&db, &mut history, key * 7, Promise::Default));
        db.flush().unwrap();
        (0..12).for_each(|key| put(&db, &mut history, key * 11, Promise::Default));
        db.flush().unwrap();
        history.flushed();
        // Of the last ones, a half is synced, and the records after them say so.
        (0..6).for_each(|key| put(&db, &mut history, key * 13, Promise::Sync));
        (0..6).for_each(|key| put(&db, &mut history, key * 17, Promise::Default));
        let content = content(&db).unwrap();
        let levels = db.stats().levels.iter().filter(|level| level.tables > 0).count();
        assert!(levels >= 2, "tables at one level only:\n{}", db.stats());
        if clean {
            db.close().unwrap();
            history.flushed();
        } else {
            drop(db);
        }
        let mem = rig.mem.crash_clone_with(CrashMode::Keep);
        Store { bytes: mem.total_bytes(), mem, options, content, history }
    }

    /// Opens a damaged copy, reads everything in every way, and judges. Returns whether the damage was told.
    fn examine(&self, mem: MemVfs, what: &str, power_lost: bool) -> bool {
        let rig = Rig::on(mem);
        let mut told = false;
        let info = allocation_counter::measure(|| {
            told = match rig.open_inline(&self.options) {
                Ok(db) => self.read(&db, what, power_lost),
                Err(error) => {
                    assert_named(&error, what);
                    true
                }
            };
        });
        let limit = allocation_max(self.bytes);
        assert!(info.bytes_max < limit, "{what}: {} bytes allocated at once, limit {limit}", info.bytes_max);
        told
    }

    fn read(&self, db: &Db, what: &str, power_lost: bool) -> bool {
        let mut errors = 0;
        let mut found = Content::new();
        for number in 0..70 {
            let key = format!("key{number:03}").into_bytes();
            match db.get(&key) {
                Ok(Some(value)) => drop(found.insert(key, value.to_vec())),
                Ok(None) => {}
                Err(error) => {
                    assert_named(&error, what);
                    errors += 1;
                    // As good as right: the comparison is about the others.
                    if let Some(value) = self.content.get(&key) {
                        found.insert(key, value.clone());
                    }
                }
            }
        }
        let verdict = match errors {
            0 => self.history.judge(&found, power_lost),
            _ if found == self.content => Verdict::Prefix(0),
            _ => Verdict::Wrong("beside keys with an error there are wrong ones".to_owned()),
        };
        if let Verdict::Wrong(why) = verdict {
            panic!("{what}: {why}");
        }
        // A scan may meet damage where no get does: deleted entries, and those that are overwritten.
        errors += scan(db.iter(), found.iter(), what);
        errors += scan(db.iter().rev(), found.iter().rev(), what);
        let report = db.verify().expect("the database is open");
        report.faults.iter().for_each(|fault| assert_named(fault, what));
        if errors > 0 {
            assert!(!report.is_clean(), "{what}: reads fail, and verify finds nothing");
        }
        !report.is_clean()
    }
}

/// Compares a scan as far as it goes; 1 when it ends with an error.
fn scan<'a>(
    scan: impl Iterator<Item = esker::Result<(esker::Slice, esker::Slice)>>,
    mut wanted: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
    what: &str,
) -> usize {
    for entry in scan {
        match entry {
            Ok((key, value)) => {
                let wanted = wanted.next().map(|(key, value)| (&key[..], &value[..]));
                assert_eq!(Some((&key[..], &value[..])), wanted, "{what}: a scan");
            }
            Err(error) => {
                assert_named(&error, what);
                return 1;
            }
        }
    }
    assert!(wanted.next().is_none(), "{what}: a scan ended early");
    0
}

fn assert_named(error: &Error, what: &str) {
    let named = matches!(error.kind(), ErrorKind::Corruption { .. } | ErrorKind::UnsupportedFormat { .. });
    assert!(named, "{what}: {error:?}");
}

/// What kind of file a name stands for, for counts.
fn kind_of(name: &str) -> &'static str {
    ["sst", "wal", "MANIFEST", "CURRENT", "LOCK"]
        .into_iter()
        .find(|kind| name.contains(kind))
        .unwrap_or("other")
}

fn flip_every_byte(clean: bool, compression: Compression, masks: &[u8]) {
    let store = Store::new(clean, compression);
    let patience = Patience::new(Duration::from_secs(20));
    let mut coverage = Coverage::default();
    assert!(!store.examine(store.mem.crash_clone_with(CrashMode::Keep), "no damage", !clean));
    for (path, bytes) in store.mem.files() {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        for offset in 0..bytes.len() {
            for &mask in masks {
                let what = format!("{name} @ {offset} ^ {mask:#04x}");
                patience.next(&*what);
                let mem = store.mem.crash_clone_with(CrashMode::Keep);
                mem.flip(&path, offset as u64, mask).unwrap();
                let told = store.examine(mem, &what, !clean);
                let kind = kind_of(&name);
                coverage.hit(kind);
                // A log after an unclean end may be cut without a word; nothing else may be.
                assert!(told || kind == "wal", "{what}: nothing tells of the damage");
                coverage.hit(if told { "told" } else { "cut" });
            }
        }
    }
    println!("clean {clean}: {coverage}");
    coverage.demand(&["sst", "wal", "MANIFEST", "CURRENT", "told"]);
}

/// CO06, CO07. Mutation: a block, a record or an edit whose checksum is not compared.
#[test]
fn co07_every_flipped_byte_of_a_closed_database() {
    flip_every_byte(true, Compression::None, &[0x01, 0xff]);
}

/// CO06 with a log that counts. Mutation: `proof` of the log's recovery answers "not durable".
#[test]
fn co06_every_flipped_byte_of_a_killed_database() {
    flip_every_byte(false, Compression::Snappy, &[0x80]);
}

/// CO11, CO10, DM12: every file is cut at every length, and cut files are filled up with zeros. Mutation: the manifest's
/// sizes of tables are not compared.
#[test]
fn co11_every_file_cut_at_every_length() {
    for clean in [true, false] {
        let mut store = Store::new(clean, Compression::None);
        if !clean {
            // A log whose end is gone has nothing left that says what was synced: any prefix of it will do.
            let tables = store.history.content_of(102);
            store.history = without_promises(&store.history, &tables);
        }
        let patience = Patience::new(Duration::from_secs(20));
        for (path, bytes) in store.mem.files() {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            for len in 0..bytes.len() {
                for zeros in [0, bytes.len() - len] {
                    let what = format!("{name} cut to {len} of {} and {zeros} zeros", bytes.len());
                    patience.next(&*what);
                    let mem = store.mem.crash_clone_with(CrashMode::Keep);
                    let cut = [&bytes[..len], &vec![0; zeros]].concat();
                    if cut == bytes {
                        continue;
                    }
                    mem.write_file(&path, cut).unwrap();
                    let told = store.examine(mem, &what, !clean);
                    assert!(told || kind_of(&name) == "wal", "{what}: nothing tells of the damage");
                }
            }
        }
    }
}

/// The history with what is in tables as its first batch, and nothing promised about the rest.
fn without_promises(history: &History, tables: &Content) -> History {
    let mut next = History::new(Promise::Memory);
    next.restart(tables);
    let mut before = tables.clone();
    for count in 103..=history.len() {
        let after = history.content_of(count);
        let mut ops = Vec::new();
        for (key, value) in after.iter().filter(|(key, value)| before.get(*key) != Some(value)) {
            ops.push(WriteOp::Put(key.clone(), value.clone()));
        }
        for key in before.keys().filter(|key| !after.contains_key(*key)) {
            ops.push(WriteOp::Delete(key.clone()));
        }
        next.begin(&ops, Promise::Memory);
        next.acknowledge();
        before = after;
    }
    next
}

/// A missing file is told, also a log that held nothing: whoever goes on without it may not know that.
/// Mutation: the open does not ask for the segment that the manifest names.
#[test]
fn dw22_every_missing_file() {
    for clean in [true, false] {
        let store = Store::new(clean, Compression::None);
        for path in store.mem.paths() {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let mem = store.mem.crash_clone_with(CrashMode::Keep);
            esker::vfs::Vfs::remove(&mem, &path).unwrap();
            let told = store.examine(mem, &format!("{name} is missing"), !clean);
            assert!(
                told || ["LOCK"].contains(&kind_of(&name)) || clean,
                "{name} is missing, and nothing tells"
            );
        }
    }
}
