//! `soak`: writers, readers with snapshots, flushes, compactions, closes and reopens together, over one database that lives
//! through all rounds of a case. The parts are the file systems below it: `memory` (closed or dropped), `crash` (what a loss
//! of power leaves), `faults` (calls of the file system fail), `disk` (real files).
//!
//! Each writer has keys of its own, and each of its batches also says which one it is. So whatever state is found is that
//! after some number of batches, and must be exactly that: in each snapshot while all run, and after each round, when it must
//! hold all that was promised. At the end of a round nothing may be left over: no snapshot, cursor or obsolete file, no open
//! file that the tables do not explain, and on the disk no memory either.

#![allow(clippy::disallowed_methods, reason = "real threads, real files, and the time that a round takes")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use esker::scheduler::ThreadScheduler;
use esker::vfs::{CallKind, CrashMode, Fault, FaultVfs, Vfs};
use esker::{Background, Db, Durability, ErrorKind, Options, Snapshot, WriteBatch, WriteOptions};
use esker_base::SplitMix64;

use crate::disk::Disk;
use crate::lab::{Case, Harness};
use crate::schedule::text_of;
use crate::session::assert_sound;

/// Everything at once, for long.
pub const SOAK: Harness = Harness {
    name: "soak",
    unit: "round",
    parts: &["memory", "crash", "faults", "disk"],
    demands: &[
        "round",
        "batch",
        "refused batch",
        "batch of unknown outcome",
        "snapshot compared",
        "close under load",
        "close",
        "drop",
        "crash",
        "batches lost with the power",
        "leftovers looked for",
    ],
    part_demands: &[],
    demand_after: 60,
    case,
};

/// Rounds of a case, unless the command line says otherwise.
const ROUNDS: u64 = 4;
const WRITERS: u64 = 3;
const READERS: u64 = 2;
/// Keys of a writer.
const KEYS: u64 = 400;
/// Open files that the tables do not explain: of the database, of the program, and its threads'.
const OPEN_BESIDES_MAX: u64 = 64;
/// How long leftovers may take to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// What one batch did to its writer's keys: puts and deletes.
#[derive(Clone, Debug)]
struct Done(Vec<(u64, bool)>);

/// A writer's batches. Number `n` is the `n`-th of its life; `base` is the state after `before` of them.
#[derive(Clone, Debug, Default)]
struct History {
    base: BTreeMap<u64, u64>,
    before: u64,
    batches: Vec<Done>,
}

impl History {
    /// The keys after `count` batches, each with the number of the batch that put it last.
    fn after(&self, count: u64) -> BTreeMap<u64, u64> {
        let mut state = self.base.clone();
        for (number, done) in (self.before + 1..=count).zip(&self.batches) {
            for (key, is_put) in &done.0 {
                if *is_put {
                    state.insert(*key, number);
                } else {
                    state.remove(key);
                }
            }
        }
        state
    }

    /// All up to `count` are certain, and no later one has happened.
    fn settle(&mut self, count: u64) {
        self.base = self.after(count);
        self.before = count;
        self.batches.clear();
    }
}

/// What is known of one writer.
#[derive(Debug, Default)]
struct Written {
    history: Mutex<History>,
    /// The last batch that was acknowledged, and the last that must outlive a loss of power.
    acknowledged: AtomicU64,
    durable: AtomicU64,
}

impl Written {
    fn history(&self) -> std::sync::MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_closed(error: &esker::Error) -> bool {
    matches!(error.kind(), ErrorKind::Closed)
}

fn data_key(writer: u64, key: u64) -> Vec<u8> {
    format!("{writer}/{key:04}").into_bytes()
}

fn last_key(writer: u64) -> Vec<u8> {
    format!("{writer}/last").into_bytes()
}

fn value_of(number: u64, key: u64) -> Vec<u8> {
    let len = (number * 7 + key) % 300;
    format!("{number} {}", "x".repeat(usize::try_from(len).unwrap_or(0))).into_bytes()
}

fn number_of(value: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(value);
    text.split(' ').next().and_then(|number| number.parse().ok()).expect("a value begins with a number")
}

/// What all threads of a round share.
struct Round<'a> {
    db: &'a Db,
    written: &'a [Written],
    stop: AtomicBool,
    /// Whether calls of the file system may fail, and whether the database may be closed beside the threads.
    may_fail: bool,
    may_close: bool,
    refused: AtomicU64,
    unknown: AtomicU64,
    compared: AtomicU64,
}

impl Round<'_> {
    fn write(&self, writer: u64, seed: u64) {
        let written = &self.written[writer as usize];
        let mut rng = SplitMix64::new(seed ^ (writer << 32));
        let syncs = writer == 0;
        let durability = if syncs { Durability::Sync } else { Durability::Buffered };
        let settings = WriteOptions::new().with_durability(durability);
        while !self.stop.load(Ordering::Relaxed) {
            let ops = (0..1 + rng.below(6)).map(|_| (rng.below(KEYS), rng.percent(70)));
            // A key once in a batch, so that its order there does not matter to the model.
            let done = Done(ops.collect::<BTreeMap<u64, bool>>().into_iter().collect());
            let number = {
                let mut history = written.history();
                history.batches.push(done.clone());
                history.before + history.batches.len() as u64
            };
            let mut batch = WriteBatch::new();
            for (key, is_put) in &done.0 {
                if *is_put {
                    batch.put(data_key(writer, *key), value_of(number, *key));
                } else {
                    batch.delete(data_key(writer, *key));
                }
            }
            batch.put(last_key(writer), number.to_string());
            match self.db.write_with(batch, &settings) {
                Ok(()) => {
                    written.acknowledged.store(number, Ordering::SeqCst);
                    if syncs {
                        written.durable.store(number, Ordering::SeqCst);
                    }
                }
                Err(error) => {
                    assert!(self.may_fail || self.may_close && is_closed(&error), "a write: {error}");
                    // It may be there or not: its number is given to no other, so the writer is done.
                    let unknown = matches!(error.kind(), ErrorKind::WriteUnknown { .. });
                    let counter = if unknown { &self.unknown } else { &self.refused };
                    counter.fetch_add(1, Ordering::Relaxed);
                    if !unknown {
                        written.history().batches.pop();
                    }
                    return;
                }
            }
        }
    }

    /// Whether an error of a read is one that may be.
    fn ends(&self, error: &esker::Error) -> bool {
        assert!(self.may_fail || self.may_close && is_closed(error), "a read: {error}");
        true
    }

    fn read(&self, seed: u64) {
        let mut rng = SplitMix64::new(seed);
        let mut held: Option<(Snapshot, Vec<u64>)> = None;
        while !self.stop.load(Ordering::Relaxed) {
            let least: Vec<u64> =
                self.written.iter().map(|written| written.acknowledged.load(Ordering::SeqCst)).collect();
            let snapshot = self.db.snapshot();
            let Ok(numbers) = self.compare(&snapshot, rng.percent(50)) else { return };
            for ((number, least), writer) in numbers.iter().zip(&least).zip(0..) {
                assert!(
                    number >= least,
                    "writer {writer}: {least} was acknowledged, a snapshot shows {number}"
                );
            }
            if let Some((old, before)) = &held {
                let Ok(again) = self.compare(old, rng.percent(50)) else { return };
                assert_eq!(before, &again, "a snapshot shows something else when it is read again");
            }
            if held.is_none() || rng.percent(20) {
                held = Some((snapshot, numbers));
            }
            self.compared.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Compares all that a snapshot shows with the histories; the number of each writer's last batch in it.
    fn compare(&self, snapshot: &Snapshot, backward: bool) -> Result<Vec<u64>, ()> {
        let entries = snapshot.iter();
        let found: Result<Vec<_>, _> = if backward { entries.rev().collect() } else { entries.collect() };
        let found = found.map_err(|error| {
            self.ends(&error);
        })?;
        Ok(compare(found.iter().map(|(key, value)| (&key[..], &value[..])), self.written))
    }

    fn work(&self, seed: u64) {
        let mut rng = SplitMix64::new(seed);
        while !self.stop.load(Ordering::Relaxed) {
            let result = match rng.below(4) {
                0 => self.db.flush(),
                1 => {
                    let writer = rng.below(WRITERS);
                    let from = rng.below(KEYS);
                    self.db.compact_range(data_key(writer, from)..data_key(writer, from + rng.below(KEYS)))
                }
                2 => self.db.sync(),
                _ => Ok(()),
            };
            if let Err(error) = result {
                assert!(self.may_fail || self.may_close && is_closed(&error), "background work: {error}");
                if !self.may_fail {
                    return;
                }
                // As an operator would. Whoever was refused stays away for this round.
                let _ = self.db.resume();
            }
            std::thread::sleep(Duration::from_micros(rng.below(3_000)));
        }
    }
}

/// Compares a whole content with the histories, and gives the number of each writer's last batch in it.
fn compare<'a>(entries: impl Iterator<Item = (&'a [u8], &'a [u8])>, written: &[Written]) -> Vec<u64> {
    let mut numbers = vec![0; written.len()];
    let mut states = vec![BTreeMap::new(); written.len()];
    for (key, value) in entries {
        let text = std::str::from_utf8(key).expect("keys are text");
        let (writer, key) = text.split_once('/').expect("a key of a writer");
        let writer: usize = writer.parse().expect("a writer's number");
        match key.parse::<u64>() {
            Ok(key) => {
                let number = number_of(value);
                assert_eq!(value, value_of(number, key), "the value of key {text}");
                states[writer].insert(key, number);
            }
            Err(_) => numbers[writer] = number_of(value),
        }
    }
    for (writer, state) in states.iter().enumerate() {
        let expected = written[writer].history().after(numbers[writer]);
        assert_eq!(state, &expected, "the keys of writer {writer} after its batch {}", numbers[writer]);
    }
    numbers
}

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Close,
    CloseUnderLoad,
    Drop,
    Crash(CrashMode),
}

/// What a round leaves: the disk of a crash in the middle of it, and the batches that each writer was promised.
struct Left {
    crashed: Option<Disk>,
    promised: Vec<u64>,
}

/// Runs all threads for a while, and ends the round. `disk` is the one to crash.
fn round(
    case: &mut Case<'_>,
    (db, disk): (Db, Option<&Disk>),
    written: &[Written],
    rng: &mut SplitMix64,
    end: End,
    may_fail: bool,
) -> Left {
    let shared = Round {
        db: &db,
        written,
        stop: AtomicBool::new(false),
        may_fail,
        may_close: end == End::CloseUnderLoad,
        refused: AtomicU64::new(0),
        unknown: AtomicU64::new(0),
        compared: AtomicU64::new(0),
    };
    let lasts = Duration::from_millis(20 + rng.below(if case.part == "disk" { 1_000 } else { 200 }));
    let seed = rng.next_u64();
    let mut crashed = None;
    std::thread::scope(|scope| {
        let shared = &shared;
        let mut threads: Vec<_> =
            (0..WRITERS).map(|writer| scope.spawn(move || shared.write(writer, seed))).collect();
        threads.extend((0..READERS).map(|reader| scope.spawn(move || shared.read(seed ^ (reader + 100)))));
        threads.push(scope.spawn(move || shared.work(seed ^ 200)));
        std::thread::sleep(lasts);
        if end == End::CloseUnderLoad {
            db.clone().close().expect("a close under load");
        }
        if let (End::Crash(mode), Some(disk)) = (end, disk) {
            // First what was promised, then the moment of the crash, then whatever comes after it.
            let promised = written.iter().map(|written| written.durable.load(Ordering::SeqCst)).collect();
            crashed = Some(Left { crashed: Some(disk.crashed(mode)), promised });
        }
        shared.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            if let Err(panic) = thread.join() {
                panic!("{}", text_of(&*panic));
            }
        }
    });
    case.coverage.add("refused batch", shared.refused.load(Ordering::Relaxed));
    case.coverage.add("batch of unknown outcome", shared.unknown.load(Ordering::Relaxed));
    case.coverage.add("snapshot compared", shared.compared.load(Ordering::Relaxed));
    let batches: u64 = written.iter().map(|written| written.history().batches.len() as u64).sum();
    case.coverage.add("batch", batches);
    case.coverage.hit("round");
    if end != End::CloseUnderLoad && !may_fail && rng.percent(50) {
        nothing_is_left(&db);
        case.coverage.hit("leftovers looked for");
    }
    match end {
        End::Close if may_fail => drop(db.close()),
        End::Close => db.close().expect("a close"),
        End::CloseUnderLoad | End::Drop | End::Crash(_) => drop(db),
    }
    case.coverage.hit(match end {
        End::Close => "close",
        End::CloseUnderLoad => "close under load",
        End::Drop => "drop",
        End::Crash(_) => "crash",
    });
    crashed.unwrap_or_else(|| Left {
        crashed: None,
        promised: written.iter().map(|written| written.acknowledged.load(Ordering::SeqCst)).collect(),
    })
}

/// When all stand still, what nobody needs is gone in a while.
fn nothing_is_left(db: &Db) {
    db.flush().expect("a flush");
    let start = Instant::now();
    loop {
        let stats = db.stats();
        let left = (stats.snapshots, stats.cursors, stats.obsolete_files, stats.pinned_memtable_bytes);
        if left == (0, 0, 0, 0) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "snapshots, cursors, obsolete files, pinned bytes: {left:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Opens what is left, and compares it with what was promised. From then on that is certain.
fn check(case: &mut Case<'_>, db: &Db, written: &[Written], end: End, promised: &[u64]) {
    let found: Vec<_> = db.iter().map(|entry| entry.expect("an entry")).collect();
    let numbers = compare(found.iter().map(|(key, value)| (&key[..], &value[..])), written);
    for ((written, number), (writer, least)) in written.iter().zip(&numbers).zip(promised.iter().enumerate())
    {
        assert!(number >= least, "after {end:?}: writer {writer} was promised {least}, {number} is there");
        let acknowledged = written.acknowledged.load(Ordering::SeqCst);
        case.coverage.add("batches lost with the power", acknowledged.saturating_sub(*number));
        written.history().settle(*number);
        written.acknowledged.store(*number, Ordering::SeqCst);
        written.durable.store(*number, Ordering::SeqCst);
    }
    assert_sound(db);
}

fn case(case: &mut Case<'_>) {
    let options = case.setup().options.durability(Durability::Buffered).background(Background::Threads(2));
    let written: Vec<Written> = (0..WRITERS).map(|_| Written::default()).collect();
    if case.part == "disk" {
        return on_disk(case, &options, &written);
    }
    let mut rng = case.rng(1);
    let mut disk = Disk::new(case.settings);
    for number in 0..case.ops(ROUNDS) {
        case.patience.next(format!("soak, seed {}, part {}, round {number}", case.seed, case.part));
        let may_fail = case.part == "faults";
        let faults = FaultVfs::new(disk.vfs());
        let vfs: Arc<dyn Vfs> = Arc::new(faults.clone());
        let db = disk.open(&options, Arc::new(ThreadScheduler::new(2)), Some(vfs)).expect("it opens");
        if may_fail {
            let kinds =
                [CallKind::Append, CallKind::SyncData, CallKind::SyncAll, CallKind::Create, CallKind::Read];
            let kind = kinds[rng.below(kinds.len() as u64) as usize];
            let fault = Fault::nth(1 + rng.below(300)).kind(kind);
            faults.arm(if rng.percent(30) { fault.forever() } else { fault });
        }
        let end = match (case.part, rng.below(3)) {
            ("crash", _) => End::Crash(CrashMode::from_seed(rng.next_u64())),
            (_, 0) => End::Drop,
            (_, 1) if !may_fail => End::CloseUnderLoad,
            _ => End::Close,
        };
        let left = round(case, (db, Some(&disk)), &written, &mut rng, end, may_fail);
        disk.events.count(&mut case.coverage, (false, false), may_fail);
        disk = left.crashed.unwrap_or(disk);
        let db = disk.open_inline(&options).expect("it opens again");
        check(case, &db, &written, end, &left.promised);
    }
}

/// The part `disk`: the same on real files, and what the process holds.
fn on_disk(case: &mut Case<'_>, options: &Options, written: &[Written]) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut rng = case.rng(1);
    let mut resident = Vec::new();
    for number in 0..case.ops(ROUNDS) {
        case.patience.next(format!("soak, seed {}, part disk, round {number}", case.seed));
        let end = [End::Close, End::CloseUnderLoad, End::Drop][rng.below(3) as usize];
        let db = options.clone().open(&path).expect("it opens");
        let left = round(case, (db, None), written, &mut rng, end, false);
        let db = options.clone().open(&path).expect("it opens again");
        check(case, &db, written, end, &left.promised);
        files_are_explained(&db, &path);
        resident.push(resident_kib());
        let (first, last) = (resident[..resident.len().div_ceil(3)].iter().max(), resident.last());
        let (first, last) = (first.copied().unwrap_or(0), last.copied().unwrap_or(0));
        assert!(last <= first + first / 4 + (32 << 10), "{last} KiB are resident, and were {first} at first");
    }
}

/// The tables in the directory are those of the version, and no more files are open than they explain.
fn files_are_explained(db: &Db, path: &Path) {
    nothing_is_left(db);
    let count = || {
        let names = std::fs::read_dir(path).expect("the directory");
        let names = names.map(|entry| entry.expect("an entry").file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".sst")).count() as u64
    };
    // Compactions may go on meanwhile.
    let start = Instant::now();
    while count() != db.stats().tables() {
        let (found, known) = (count(), db.stats().tables());
        assert!(start.elapsed() < PATIENCE, "{found} tables in the directory, {known} in the version");
        std::thread::sleep(Duration::from_millis(2));
    }
    let tables = count();
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let open = open.count() as u64;
    assert!(open <= tables + OPEN_BESIDES_MAX, "{open} files are open, with {tables} tables");
}

/// KiB of resident memory; 0 where the system does not tell.
fn resident_kib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
