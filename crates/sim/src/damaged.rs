//! [`Store`]: a database of which everything is known, and the judge of what its damaged copies show.
//!
//! The rule: what is read is right, or an error that names a damaged file; all that is shown, in every way of reading, is
//! the state of one prefix of the batches. A shorter prefix than the whole is fine only after damage to the log of a killed
//! store, and only down to what was promised (rule W3), or where the damage took the proof of the promise with it, down to
//! what is in tables. Errors beside such a prefix come of damage to other files at the same time.

use std::collections::BTreeMap;
use std::path::Path;

use esker::vfs::{CrashMode, MemVfs};
use esker::{Compression, Db, Error, ErrorKind, Options, RecoveryMode, Slice};
use esker_testkit::{History, Promise, Verdict, WriteOp, value_for};

use crate::disk::{Disk, Lie};
use crate::preset::Setup;
use crate::session::{Content, assert_sound, content, write};

/// Keys that are asked for; the store has the first 60 of them at most.
const KEYS: u64 = 70;

/// Most bytes that may be held at once: a constant, and what the size of the store gives reason for.
fn allocation_max(store_bytes: u64) -> u64 {
    (2 << 20) + 24 * store_bytes
}

/// How a store is made.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Closed at the end, instead of killed with a log that counts.
    pub clean: bool,
    /// Of its tables.
    pub compression: Compression,
    /// Writes before a compaction, before a flush, and before another flush.
    pub counts: [u64; 3],
    /// Whether the order of calls is checked where no damage forbids it.
    pub order: bool,
    /// What the disk lies about.
    pub lie: Option<Lie>,
}

/// A database on a disk, and what it holds.
#[derive(Debug)]
pub struct Store {
    /// The disk, to be copied.
    pub mem: MemVfs,
    /// Whether it was closed.
    pub clean: bool,
    options: Options,
    history: History,
    /// Batches that are in tables.
    in_tables: usize,
    bytes: u64,
    order: bool,
    lie: Option<Lie>,
}

/// What was done to a copy of a store, as far as the judge has to know.
#[derive(Clone, Debug, Default)]
pub struct Damage {
    /// For messages.
    pub what: String,
    /// The names of the files that were changed.
    pub files: Vec<String>,
    /// Whether the proof of what was synced last may be gone: that is what comes after it in the log.
    pub proof_gone: bool,
}

impl Damage {
    /// Whether a segment of the log was touched.
    pub fn of_log(&self) -> bool {
        self.files.iter().any(|name| kind_of(name) == "wal")
    }

    /// Whether only the log was touched.
    pub fn of_log_only(&self) -> bool {
        self.files.iter().all(|name| kind_of(name) == "wal")
    }

    /// Fails unless the error is of damage. With `strict` it must also name a file that was touched; an open may name what
    /// the damaged file speaks of, or is spoken of by.
    fn assert_named(&self, error: &Error, strict: bool) {
        let file = match error.kind() {
            ErrorKind::Corruption { file, .. } | ErrorKind::UnsupportedFormat { file, .. } => file,
            _ => panic!("{}: {error:?}", self.what),
        };
        let touched =
            file.file_name().is_some_and(|name| self.files.iter().any(|touched| name == &**touched));
        assert!(touched || !strict, "{}: {error} names another file than {:?}", self.what, self.files);
    }
}

/// What kind of file a name stands for, for counts.
pub fn kind_of(name: &str) -> &'static str {
    ["sst", "wal", "MANIFEST", "CURRENT", "LOCK"]
        .into_iter()
        .find(|kind| name.contains(kind))
        .unwrap_or("other")
}

impl Store {
    /// Tables at several levels, made of puts, overwrites and deletes; then a clean close, or a kill with a full log.
    ///
    /// # Panics
    ///
    /// When a write fails.
    pub fn new(recipe: Recipe) -> Self {
        let options = Setup::tiny().options.compression(recipe.compression).l0_trigger(4);
        let disk = Disk::on(MemVfs::new(), recipe.order, recipe.lie);
        let db = disk.open_inline(&options).expect("a new database opens");
        let mut history = History::new(Promise::Buffered);
        let mut number = 0;
        let mut put = |key: u64, promise: Promise| {
            number += 1;
            let key = format!("key{:03}", key % 60).into_bytes();
            let value = value_for(number, &key, 20 + (number % 30) as usize);
            let ops = [if number % 7 == 0 { WriteOp::Delete(key) } else { WriteOp::Put(key, value) }];
            history.begin(&ops, promise);
            write(&db, &ops, promise).expect("a write");
            history.acknowledge();
        };
        let [compacted, flushed, flushed_last] = recipe.counts;
        (0..compacted).for_each(|key| put(key, Promise::Default));
        db.compact_range::<&[u8], _>(..).expect("compact_range");
        (0..flushed).for_each(|key| put(key * 7, Promise::Default));
        db.flush().expect("flush");
        (0..flushed_last).for_each(|key| put(key * 11, Promise::Default));
        db.flush().expect("flush");
        // Of the last ones, a half is synced, and the records after them say so.
        (0..6).for_each(|key| put(key * 13, Promise::Sync));
        (0..6).for_each(|key| put(key * 17, Promise::Default));
        let in_tables = recipe.counts.iter().sum::<u64>() as usize;
        assert!(content(&db).expect("a scan") == history.content_of(history.len()), "the content is wrong");
        if recipe.clean {
            db.close().expect("close");
            history.flushed();
        } else {
            drop(db);
        }
        let mem = disk.mem.crash_clone_with(CrashMode::Keep);
        let (clean, order, lie) = (recipe.clean, recipe.order, recipe.lie);
        Store { bytes: mem.total_bytes(), mem, clean, options, history, in_tables, order, lie }
    }

    /// A copy of the disk, to be damaged.
    pub fn copy(&self) -> MemVfs {
        self.mem.crash_clone_with(CrashMode::Keep)
    }

    /// Runs `work` on the opened copy, with a bound on the memory that is held. `work` says whether the damage was told;
    /// an open that fails tells it.
    ///
    /// # Panics
    ///
    /// When the open fails for another reason than damage, and when more is allocated than the size gives reason for.
    pub fn open_damaged(&self, mem: MemVfs, damage: &Damage, work: impl FnOnce(&Db) -> bool) -> bool {
        let mut told = false;
        let info = allocation_counter::measure(|| {
            // The checker would believe a damaged manifest.
            let disk = Disk::on(mem, self.order && damage.files.is_empty(), self.lie);
            told = match disk.open_inline(&self.options) {
                Ok(db) => work(&db),
                Err(error) => {
                    damage.assert_named(&error, false);
                    true
                }
            };
        });
        let (what, limit) = (&damage.what, allocation_max(self.bytes));
        assert!(info.bytes_max < limit, "{what}: {} bytes allocated at once, limit {limit}", info.bytes_max);
        told
    }

    /// Opens a damaged copy, reads everything in every way, and judges. Returns whether the damage was told.
    ///
    /// # Panics
    ///
    /// With what is wrong.
    pub fn examine(&self, mem: MemVfs, damage: &Damage) -> bool {
        self.open_damaged(mem, damage, |db| {
            let seen = Seen::of(db);
            seen.errors().for_each(|error| damage.assert_named(error, true));
            self.judge(&seen, damage);
            let report = db.verify().expect("the database is open");
            report.faults.iter().for_each(|fault| damage.assert_named(fault, true));
            let untold = seen.errors().next().is_some() && report.is_clean();
            assert!(!untold, "{}: reads fail, and verify finds nothing", damage.what);
            !report.is_clean()
        })
    }

    /// Fails unless all that was seen is of one state that may be there.
    fn judge(&self, seen: &Seen, damage: &Damage) {
        let all = self.history.len();
        let least = match (damage.of_log(), damage.proof_gone) {
            (false, _) => all,
            (true, false) => self.history.power_floor(),
            (true, true) => self.in_tables.min(self.history.power_floor()),
        };
        let least = if self.clean { all } else { least };
        if (least..=all).rev().any(|count| seen.contradicts(&self.history.content_of(count)).is_none()) {
            return;
        }
        let whole = seen.contradicts(&self.history.content_of(all)).unwrap_or_default();
        panic!("{}: no state of {least} to {all} batches; of the last one: {whole}", damage.what);
    }

    /// Whoever asks for as much as can be had of a damaged log gets some prefix of it, and no error.
    ///
    /// # Panics
    ///
    /// When it is not so.
    pub fn recover_to_a_point(&self, mem: MemVfs, what: &str) {
        let disk = Disk::on(mem, false, self.lie);
        let options = self.options.clone().recovery(RecoveryMode::PointInTime);
        let db =
            disk.open_inline(&options).unwrap_or_else(|error| panic!("{what}: to a point in time: {error}"));
        let found = content(&db).unwrap_or_else(|error| panic!("{what}: to a point in time: {error}"));
        if !(self.in_tables..=self.history.len()).any(|count| self.history.content_of(count) == found) {
            let Verdict::Wrong(why) = self.history.judge(&found, true) else { return };
            panic!("{what}: to a point in time: {why}");
        }
        assert_sound(&db);
    }
}

/// Entries of a scan as far as it went, and the error that ended it.
type Scanned = (Vec<(Slice, Slice)>, Option<Error>);

/// Everything that a damaged database shows.
#[derive(Debug)]
struct Seen {
    gets: BTreeMap<Vec<u8>, esker::Result<Option<Slice>>>,
    forward: Scanned,
    backward: Scanned,
}

impl Seen {
    fn of(db: &Db) -> Self {
        let key = |number: u64| format!("key{number:03}").into_bytes();
        Seen {
            gets: (0..KEYS).map(|number| (key(number), db.get(key(number)))).collect(),
            forward: scanned(db.iter()),
            backward: scanned(db.iter().rev()),
        }
    }

    fn errors(&self) -> impl Iterator<Item = &Error> {
        let gets = self.gets.values().filter_map(|got| got.as_ref().err());
        gets.chain(&self.forward.1).chain(&self.backward.1)
    }

    /// What is not as in this state; keys and ends of scans with an error may be anything.
    fn contradicts(&self, state: &Content) -> Option<String> {
        for (key, got) in &self.gets {
            let (Ok(found), wanted) = (got, state.get(key)) else { continue };
            if found.as_deref() != wanted.map(Vec::as_slice) {
                return Some(format!("get {}: {found:?}, not {wanted:?}", key.escape_ascii()));
            }
        }
        let forward = differs(&self.forward, state.iter()).map(|at| format!("entry {at} of a scan"));
        forward.or_else(|| {
            differs(&self.backward, state.iter().rev()).map(|at| format!("entry {at} of a scan backward"))
        })
    }
}

fn scanned(scan: impl Iterator<Item = esker::Result<(Slice, Slice)>>) -> Scanned {
    let mut entries = Vec::new();
    for entry in scan {
        match entry {
            Ok(entry) => entries.push(entry),
            Err(error) => return (entries, Some(error)),
        }
    }
    (entries, None)
}

/// Where a scan is not as wanted: it goes all the way, unless an error ended it.
fn differs<'a>(
    (entries, error): &Scanned,
    mut wanted: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>,
) -> Option<usize> {
    let same = |(key, value): &(Slice, Slice)| {
        wanted.next().is_some_and(|(k, v)| (&key[..], &value[..]) == (&k[..], &v[..]))
    };
    match entries.iter().map(same).position(|same| !same) {
        Some(at) => Some(at),
        None if error.is_none() && wanted.next().is_some() => Some(entries.len()),
        None => None,
    }
}

/// The name of a file.
///
/// # Panics
///
/// When the path has none that is text.
pub fn name_of(path: &Path) -> String {
    path.file_name().and_then(|name| name.to_str()).expect("a file with a plain name").to_owned()
}
