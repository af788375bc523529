//! `flips`: damaged files. `raw`: flipped bits, cuts, zeroed pages, blocks and files that changed places; whatever is read
//! is right or a named error, and damage is told unless it could be a torn end of the log. `patched`: changes under
//! checksums that match, as a stranger could make them: answers may be wrong, but nothing panics, hangs, or allocates
//! without bound.

use std::path::PathBuf;

use esker::vfs::{CrashMode, MemVfs};
use esker::{Compression, Db, Error, ErrorKind, Options, RecoveryMode};
use esker_base::SplitMix64;
use esker_testkit::{History, Promise, Verdict, WriteOp, value_for};

use crate::disk::{Disk, Lie};
use crate::lab::{Case, Harness};
use crate::patch;
use crate::preset::Setup;
use crate::session::{Content, assert_sound, content, write};

/// Damaged files.
pub const FLIPS: Harness = Harness {
    name: "flips",
    unit: "damage",
    parts: &["raw", "patched"],
    demands: &[
        "flip",
        "cut",
        "zero page",
        "swap inside",
        "swap files",
        "patched",
        "sst",
        "wal",
        "MANIFEST",
        "CURRENT",
        "told",
        "cut without a word",
        "killed store",
        "closed store",
        "point in time",
    ],
    demand_after: 20,
    case,
};

/// Damages in one case, all of one store.
const DAMAGES: u64 = 400;

/// Most bytes that may be held at once: a constant, and what the size of the store gives reason for.
fn allocation_max(store_bytes: u64) -> u64 {
    (2 << 20) + 24 * store_bytes
}

/// A database on a disk, and what it holds.
struct Store {
    mem: MemVfs,
    options: Options,
    content: Content,
    history: History,
    /// The same without what was promised about the log: for damage that takes the proof of a promise with it.
    tables_only: History,
    bytes: u64,
    clean: bool,
    order: bool,
    lie: Option<Lie>,
}

impl Store {
    /// Tables at several levels, made of puts, overwrites and deletes; then a clean close, or a kill with a full log.
    fn new(case: &Case<'_>) -> Self {
        let mut rng = case.rng(1);
        let clean = rng.percent(50);
        let compression = if rng.percent(50) { Compression::Snappy } else { Compression::None };
        let options = Setup::tiny().options.compression(compression).l0_trigger(4);
        let disk = Disk::new(case.settings);
        let db = disk.open_inline(&options).expect("a new database opens");
        let mut history = History::new(Promise::Buffered);
        let mut tables_only = History::new(Promise::Memory);
        let mut number = 0;
        let mut put = |history: &mut History, tables_only: &mut History, key: u64, promise: Promise| {
            number += 1;
            let key = format!("key{:03}", key % 60).into_bytes();
            let value = value_for(number, &key, 20 + (number % 30) as usize);
            let ops = [if number % 7 == 0 { WriteOp::Delete(key) } else { WriteOp::Put(key, value) }];
            history.begin(&ops, promise);
            write(&db, &ops, promise).expect("a write");
            history.acknowledge();
            tables_only.begin(&ops, Promise::Memory);
            tables_only.acknowledge();
        };
        let counts = [20 + rng.below(60), 10 + rng.below(40), 5 + rng.below(20)];
        (0..counts[0]).for_each(|key| put(&mut history, &mut tables_only, key, Promise::Default));
        db.compact_range::<&[u8], _>(..).expect("compact_range");
        (0..counts[1]).for_each(|key| put(&mut history, &mut tables_only, key * 7, Promise::Default));
        db.flush().expect("flush");
        (0..counts[2]).for_each(|key| put(&mut history, &mut tables_only, key * 11, Promise::Default));
        db.flush().expect("flush");
        history.flushed();
        tables_only.flushed();
        (0..6).for_each(|key| put(&mut history, &mut tables_only, key * 13, Promise::Sync));
        (0..6).for_each(|key| put(&mut history, &mut tables_only, key * 17, Promise::Default));
        let content = content(&db).expect("a scan");
        if clean {
            db.close().expect("close");
            history.flushed();
        } else {
            drop(db);
        }
        let mem = disk.mem.crash_clone_with(CrashMode::Keep);
        let (order, lie) = (case.settings.order, case.settings.lie);
        Store { bytes: mem.total_bytes(), mem, options, content, history, tables_only, clean, order, lie }
    }

    /// Opens a damaged copy, reads everything in every way, and judges. Returns whether the damage was told.
    fn examine(&self, mem: MemVfs, what: &str, trusted: bool, proof: bool) -> bool {
        let mut told = false;
        let info = allocation_counter::measure(|| {
            // The checker would believe a damaged manifest.
            let disk = Disk::on(mem, self.order && trusted && what.is_empty(), self.lie);
            told = match disk.open_inline(&self.options) {
                Ok(db) if trusted => self.read(&db, what, proof),
                Ok(db) => interrogate(&db, what),
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

    /// Whoever asks for as much as can be had of a damaged log gets some prefix of it, and no error.
    fn recover_to_a_point(&self, mem: MemVfs, what: &str) {
        let disk = Disk::on(mem, false, self.lie);
        let options = self.options.clone().recovery(RecoveryMode::PointInTime);
        let db =
            disk.open_inline(&options).unwrap_or_else(|error| panic!("{what}: to a point in time: {error}"));
        let found = content(&db).unwrap_or_else(|error| panic!("{what}: to a point in time: {error}"));
        if let Verdict::Wrong(why) = self.tables_only.judge(&found, true) {
            panic!("{what}: to a point in time: {why}");
        }
        assert_sound(&db);
    }

    fn read(&self, db: &Db, what: &str, proof: bool) -> bool {
        let history = if proof { &self.history } else { &self.tables_only };
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
            0 => history.judge(&found, !self.clean),
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
        assert!(errors == 0 || !report.is_clean(), "{what}: reads fail, and verify finds nothing");
        !report.is_clean()
    }
}

/// Asks everything; answers may be anything, but come to an end.
fn interrogate(db: &Db, what: &str) -> bool {
    let limit = 100_000;
    let entries = db.iter().take(limit).filter(|entry| entry.is_ok()).count();
    let back = db.iter().rev().take(limit).filter(|entry| entry.is_ok()).count();
    assert!(entries < limit && back < limit, "{what}: a scan without end");
    for number in 0..70 {
        let _ = db.get(format!("key{number:03}"));
    }
    if let Ok(mut cursor) = db.cursor() {
        for number in [0, 7, 33, 59, 99] {
            let key = format!("key{number:03}");
            let _ = cursor.seek(&key).and_then(|()| cursor.prev());
            let _ = cursor.seek_for_prev(&key).and_then(|()| cursor.next());
        }
    }
    let told = db.verify().map_or(true, |report| !report.is_clean());
    let _ = db.put("key030", "new");
    let _ = db.flush();
    let _ = db.compact_range::<&[u8], _>(..);
    if let Some(error) = db.background_error() {
        assert!(
            !matches!(error.kind(), ErrorKind::Fatal { .. }) || !error.to_string().contains("panicked"),
            "{what}: {error}"
        );
    }
    told
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

/// One damage to a disk, and what it was; `None` when it would change nothing.
struct Damage {
    what: String,
    name: &'static str,
    /// Only the log was touched.
    log_only: bool,
    kind: &'static str,
}

fn damage(mem: &MemVfs, rng: &mut SplitMix64, patched: bool) -> Option<Damage> {
    let files: Vec<(PathBuf, Vec<u8>)> =
        mem.files().into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let (path, bytes) = &files[rng.below(files.len() as u64) as usize];
    let name = path.file_name()?.to_str()?.to_owned();
    let (len, mut new) = (bytes.len() as u64, bytes.clone());
    let mut log_only = kind_of(&name) == "wal";
    let at = rng.below(len) as usize;
    let (kind, what) = if patched {
        let parts = patch::parts(mem, path, bytes);
        if parts.is_empty() {
            return None;
        }
        let part = &parts[rng.below(parts.len() as u64) as usize];
        let mut what = String::new();
        for _ in 0..1 + rng.below(3) {
            what += &patch::change(&mut new, part, rng);
        }
        patch::seal(&mut new, part);
        ("patched", what)
    } else {
        match rng.below(10) {
            0..=5 => {
                let mask = if rng.percent(70) { 1 << rng.below(8) } else { 1 + rng.below(255) as u8 };
                new[at] ^= mask;
                ("flip", format!("@ {at} ^ {mask:#04x}"))
            }
            6 => {
                new.truncate(at);
                if rng.percent(40) {
                    new.resize(bytes.len(), 0);
                }
                ("cut", format!("to {at} of {len}, then {} bytes", new.len()))
            }
            7 => {
                let (start, size) = if rng.percent(50) { (at & !511, 512) } else { (at & !15, 64) };
                let end = (start + size).min(new.len());
                new[start..end].fill(0);
                ("zero page", format!("{start}..{end}"))
            }
            8 => {
                let size = (1 + rng.below(len.div_ceil(2).min(256))) as usize;
                let (a, b) =
                    (rng.below(len - size as u64 + 1) as usize, rng.below(len - size as u64 + 1) as usize);
                let (from_a, from_b) = (bytes[a..a + size].to_vec(), bytes[b..b + size].to_vec());
                new[a..a + size].copy_from_slice(&from_b);
                new[b..b + size].copy_from_slice(&from_a);
                ("swap inside", format!("{size} bytes at {a} and {b}"))
            }
            _ => {
                let (other, content) = &files[rng.below(files.len() as u64) as usize];
                let other_name = other.file_name()?.to_str()?;
                log_only = log_only && kind_of(other_name) == "wal";
                if content == bytes || [kind_of(&name), kind_of(other_name)].contains(&"LOCK") {
                    return None;
                }
                mem.write_file(other, bytes).ok()?;
                new.clone_from(content);
                ("swap files", format!("with {other_name}"))
            }
        }
    };
    if new == *bytes {
        return None;
    }
    mem.write_file(path, &new).ok()?;
    Some(Damage { what: format!("{name}: {kind} {what}"), name: kind, log_only, kind: kind_of(&name) })
}

fn case(case: &mut Case<'_>) {
    let store = Store::new(case);
    let mut rng = case.rng(2);
    let patched = case.part == "patched";
    case.coverage.hit(if store.clean { "closed store" } else { "killed store" });
    assert!(
        !store.examine(store.mem.crash_clone_with(CrashMode::Keep), "", true, true),
        "no damage, and it is told"
    );
    for number in 0..case.ops(DAMAGES) {
        let mem = store.mem.crash_clone_with(CrashMode::Keep);
        let Some(damage) = damage(&mem, &mut rng, patched) else { continue };
        if case.settings.trace {
            println!("{number}: {}", damage.what);
        }
        // What was synced last is proved by what comes after it: when that is gone too, it looks like a torn end.
        let proof = store.clean || damage.kind != "wal" || damage.name == "flip";
        let copy = mem.crash_clone_with(CrashMode::Keep);
        let told = store.examine(mem, &damage.what, !patched, proof);
        // The lock's file holds nothing that is read. A log after an unclean end may be cut without a word.
        let silent = patched || damage.kind == "LOCK" || damage.log_only;
        assert!(told || silent, "{}: nothing tells of the damage", damage.what);
        if damage.log_only && !patched && !store.clean {
            store.recover_to_a_point(copy, &damage.what);
            case.coverage.hit("point in time");
        }
        case.coverage.hit("damage");
        case.coverage.hit(damage.name);
        case.coverage.hit(damage.kind);
        case.coverage.hit(if told { "told" } else { "cut without a word" });
    }
}
