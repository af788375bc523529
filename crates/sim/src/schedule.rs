//! `schedule`: many orders of the same things.
//!
//! `clients`: several logical clients on one thread, with background work between any two of their operations as a seed
//! chooses; every answer is compared with the model. `threads`: real writers, readers and background threads over a disk
//! that dawdles at random, and that in some cases fails once; each batch writes the same number under several keys, so
//! that half a batch, a lost one and time that runs backwards show. `points` and `pairs`, in a build with the feature
//! `points`: see `points.rs`.

#![allow(clippy::disallowed_methods, reason = "real threads, and pauses that widen races")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use esker::scheduler::ThreadScheduler;
use esker::vfs::{Call, CallKind, CrashMode, Fault, FaultVfs, InterceptVfs, Interceptor, Vfs};
use esker::{Background, Db, Durability, Error, WriteBatch, WriteOptions};
use esker_base::SplitMix64;
use esker_testkit::{History, KeySpace, Mix, Op, Verdict, Workload};

use crate::disk::Disk;
use crate::lab::{Case, Harness, PartDemand};
use crate::scheduler::{Pace, SimScheduler};
use crate::session::{Answer, ModelSession, Session, assert_sound, content, difference};
use crate::tickets::Tickets;

/// Many orders of the same things.
pub const SCHEDULE: Harness = Harness {
    name: "schedule",
    unit: "schedule",
    parts: PARTS,
    part_demands: PART_DEMANDS,
    demands: &[
        "put",
        "delete",
        "batch",
        "check snapshot",
        "move cursor",
        "flush",
        "compact",
        "flushed",
        "rewritten",
        "snapshot over a compaction",
        "cursor over a compaction",
        "background steps",
        "waits",
        "ticket durable",
        "batches by threads",
        "reads by threads",
        "failed group",
        "crash after threads",
    ],
    demand_after: 100,
    case,
};

#[cfg(not(feature = "points"))]
const PARTS: &[&str] = &["clients", "clients", "clients", "threads"];
#[cfg(feature = "points")]
const PARTS: &[&str] = &["clients", "points", "points", "pairs", "threads"];

#[cfg(not(feature = "points"))]
const PART_DEMANDS: &[PartDemand] = &[];
#[cfg(feature = "points")]
const PART_DEMANDS: &[PartDemand] = &[
    PartDemand { part: "points", demands: esker_base::points::Point::DEMANDS, after: 4_000 },
    PartDemand { part: "points", demands: &["lost power"], after: 100 },
];

fn case(case: &mut Case<'_>) {
    case.coverage.hit("schedule");
    match case.part {
        #[cfg(feature = "points")]
        "points" => crate::points::points(case),
        #[cfg(feature = "points")]
        "pairs" => crate::points::pairs(case),
        "threads" => threads(case),
        _ => clients(case),
    }
}

/// Several clients on one thread.
fn clients(case: &mut Case<'_>) {
    let mut rng = case.rng(1);
    let count = 2 + rng.below(3) as usize;
    let setup = case.setup();
    let disk = Disk::new(case.settings);
    let scheduler = Arc::new(SimScheduler::new(rng.next_u64(), Pace::from_rng(&mut rng)));
    let db = disk.open(&setup.options, Arc::clone(&scheduler) as _, None).expect("a new database opens");
    let mut sessions: Vec<Session> = (0..count).map(|_| Session::new(db.clone())).collect();
    let mut model = ModelSession::new(count);
    let (mut history, mut tickets) = (History::new(setup.default), Tickets::new(case.seed, false));
    let keys = KeySpace::new(case.seed, [10, 30, 150][rng.below(3) as usize], 800);
    let mix = Mix {
        snapshots: 60,
        cursors: 120,
        flushes: 6,
        compactions: 5,
        reopens: 0,
        value_len_max: 1500,
        ..Mix::everything()
    };
    let mut workloads: Vec<Workload> = (0..count)
        .map(|client| Workload::new(case.seed ^ ((client as u64) << 50), keys.clone(), mix.clone()))
        .collect();
    for number in 0..case.ops(100) {
        // A client often goes on for a while.
        let client = rng.below(count as u64) as usize;
        for _ in 0..1 + rng.below(4) {
            let Some(op) = workloads[client].next() else { return };
            if case.settings.trace {
                println!("{number}: client {client}: {op:?}");
            }
            case.coverage.hit(op.name());
            let found = run(&op, &mut sessions[client], &mut history, &mut tickets);
            let found = found.unwrap_or_else(|error| panic!("{op:?}: {error}"));
            let wanted = model.run(client, &op);
            assert!(found == wanted, "client {client}, {op:?}: {}", difference(&found, &wanted));
            let held = sessions.iter().map(Session::holds);
            let holds = held.fold((false, false), |sum, held| (sum.0 || held.0, sum.1 || held.1));
            disk.events.count(&mut case.coverage, holds, false);
        }
        scheduler.pump();
        tickets.settle(&mut history, &mut case.coverage);
    }
    let wanted = model.model.content(model.model.now());
    assert!(content(&db).expect("a scan") == wanted, "the content differs");
    assert_sound(&db);
    // Nobody has to close a database: what was handed over to the system is there.
    drop(sessions);
    if case.seed.is_multiple_of(2) {
        db.sync().expect("sync");
        history.synced();
    }
    let mode = CrashMode::from_seed(case.seed);
    let next = disk.crashed(mode);
    drop(db);
    tickets.restart();
    tickets.end(&mut history, &mut case.coverage).unwrap_or_else(|why| panic!("{why}"));
    let db = next.open_inline(&setup.options).expect("it opens after a crash");
    let found = content(&db).expect("a scan");
    if let Verdict::Wrong(why) = history.judge(&found, mode != CrashMode::Keep) {
        panic!("after a crash {mode:?}: {why}");
    }
    assert_sound(&db);
    case.coverage.add("background steps", scheduler.steps());
    case.coverage.add("waits", scheduler.waits());
}

/// One operation of a client; some of its batches are submitted, and waited for later by whoever comes.
fn run(
    op: &Op,
    session: &mut Session,
    history: &mut History,
    tickets: &mut Tickets,
) -> Result<Answer, Error> {
    match op {
        Op::Write(ops, promise) if tickets.wants_next(*promise) => {
            tickets.submit(session.db(), ops, *promise, history)?;
            return Ok(Answer::new());
        }
        Op::Write(ops, promise) => history.begin(ops, *promise),
        _ => {}
    }
    let found = session.run(op)?;
    match op {
        Op::Write(..) => history.acknowledge(),
        Op::Sync => history.synced(),
        Op::Flush => history.flushed(),
        _ => {}
    }
    Ok(found)
}

/// Pauses at random before and after calls.
#[derive(Debug)]
struct Dawdle {
    draws: AtomicU64,
    seed: u64,
}

impl Dawdle {
    fn pause(&self, call: &Call<'_>) {
        let draw = self.draws.fetch_add(1, Ordering::Relaxed);
        let mut rng = SplitMix64::new(self.seed ^ draw);
        let syncs = if call.kind.is_sync() { 30 } else { 0 };
        match rng.below(100) {
            0..3 => std::thread::sleep(Duration::from_micros(rng.below(300))),
            3..20 => std::thread::yield_now(),
            20.. if rng.below(100) < syncs => std::thread::sleep(Duration::from_micros(50 + rng.below(200))),
            _ => {}
        }
    }
}

impl Interceptor for Dawdle {
    fn call<T>(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.pause(call);
        let result = run();
        if call.kind.is_sync() {
            self.pause(call);
        }
        result
    }
}

/// Keys that one writer writes the same number to, in one batch.
const KEYS_A_WRITER: u64 = 3;

fn writer_key(writer: u64, index: u64) -> Vec<u8> {
    // Those of a writer lie apart, with those of the others between them.
    format!("{index}/writer {writer}").into_bytes()
}

fn number_of(value: &[u8]) -> u64 {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).expect("a number that a writer wrote")
}

/// Of every four writers one leaves the sync out: it commits past the queue of those that sync.
fn syncs(writer: u64) -> bool {
    writer % 4 != 1
}

/// What a writer has done.
#[derive(Debug, Default)]
struct Written {
    acknowledged: AtomicU64,
    submitted: AtomicU64,
}

fn write_numbers(db: &Db, writer: u64, seed: u64, count: u64, written: &Written, may_fail: bool) -> u64 {
    let mut rng = SplitMix64::new(seed ^ (writer << 20));
    let mut failed = 0;
    for number in 1..=count {
        let mut batch = WriteBatch::new();
        let value = format!("{number} {}", "x".repeat(rng.below(200) as usize));
        (0..KEYS_A_WRITER).for_each(|index| {
            batch.put(writer_key(writer, index), value.as_bytes());
        });
        batch.put(format!("filler {writer} {}", rng.below(50)).as_bytes(), [b'f'; 300]);
        written.submitted.store(number, Ordering::SeqCst);
        let durability = if syncs(writer) { Durability::Sync } else { Durability::Buffered };
        let options = WriteOptions::new().with_durability(durability);
        let result = if syncs(writer) && rng.below(2) == 0 {
            db.submit(batch, &options).and_then(|commit| commit.wait_synced())
        } else {
            db.write_with(batch, &options)
        };
        match result {
            Ok(()) => written.acknowledged.store(number, Ordering::SeqCst),
            Err(error) => {
                assert!(may_fail, "a write: {error}");
                failed += 1;
                if failed > 3 {
                    break;
                }
                // A number is given once: the next attempt is another one.
            }
        }
        if let Some(value) = db.get(writer_key(writer, 0)).expect("get") {
            let (seen, least) = (number_of(&value), written.acknowledged.load(Ordering::SeqCst));
            assert!(seen >= least, "writer {writer} reads {seen} after {least} was acknowledged");
        } else {
            assert_eq!(written.acknowledged.load(Ordering::SeqCst), 0, "a writer does not see its own write");
        }
        if rng.below(40) == 0 {
            let _ = db.flush();
        }
        if rng.below(80) == 0 {
            let _ = db.compact_range::<&[u8], _>(..);
        }
    }
    failed
}

/// The numbers of all writers, whole batches only, or a panic.
fn read_numbers(db: &Db, writers: u64, way: u64) -> Vec<u64> {
    let mut numbers = vec![Vec::new(); writers as usize];
    let mut note = |key: &[u8], value: &[u8]| {
        let text = String::from_utf8_lossy(key).into_owned();
        if let Some((_, writer)) = text.split_once("/writer ") {
            let writer: usize = writer.parse().expect("a writer's number");
            numbers[writer].push(number_of(value));
        }
    };
    match way {
        0 => db.iter().for_each(|entry| {
            let (key, value) = entry.expect("an entry");
            note(&key, &value);
        }),
        1 => db.iter().rev().for_each(|entry| {
            let (key, value) = entry.expect("an entry");
            note(&key, &value);
        }),
        2 => {
            let keys: Vec<Vec<u8>> = (0..writers * KEYS_A_WRITER)
                .map(|index| writer_key(index / KEYS_A_WRITER, index % KEYS_A_WRITER))
                .collect();
            for (key, value) in keys.iter().zip(db.multi_get(&keys)) {
                if let Some(value) = value.expect("multi_get") {
                    note(key, &value);
                }
            }
        }
        _ => {
            let snapshot = db.snapshot();
            for index in (0..KEYS_A_WRITER).rev() {
                for writer in 0..writers {
                    let key = writer_key(writer, index);
                    if let Some(value) = snapshot.get(&key).expect("get") {
                        note(&key, &value);
                    }
                }
                std::thread::yield_now();
            }
        }
    }
    let whole = |(writer, numbers): (usize, Vec<u64>)| {
        let first = numbers.first().copied().unwrap_or(0);
        let whole = numbers.is_empty() || numbers.len() as u64 == KEYS_A_WRITER;
        assert!(
            whole && numbers.iter().all(|number| *number == first),
            "way {way}: half a batch of writer {writer}: {numbers:?}"
        );
        first
    };
    numbers.into_iter().enumerate().map(whole).collect()
}

fn keep_reading(db: &Db, written: &[Written], stop: &AtomicBool) -> u64 {
    let mut last = vec![0; written.len()];
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let least: Vec<u64> =
            written.iter().map(|written| written.acknowledged.load(Ordering::SeqCst)).collect();
        let now = read_numbers(db, written.len() as u64, reads % 4);
        let most: Vec<u64> = written.iter().map(|written| written.submitted.load(Ordering::SeqCst)).collect();
        for writer in 0..written.len() {
            let (seen, least) = (now[writer], least[writer].max(last[writer]));
            assert!(seen >= least, "reads of writer {writer} go back: {seen} after {least}");
            assert!(seen <= most[writer], "writer {writer}: {seen} was never written");
        }
        last = now;
        reads += 1;
    }
    reads
}

/// Real threads.
fn threads(case: &mut Case<'_>) {
    let mut rng = case.rng(1);
    let setup = case.setup();
    let options = setup.options.background(Background::Threads(2));
    let disk = Disk::new(case.settings);
    let faults = FaultVfs::new(disk.vfs());
    let dawdle = Dawdle { draws: AtomicU64::new(0), seed: case.seed };
    let vfs: Arc<dyn Vfs> = Arc::new(InterceptVfs::with_interceptor(Arc::new(faults.clone()), dawdle));
    let db = disk.open(&options, Arc::new(ThreadScheduler::new(2)), Some(vfs)).expect("it opens");
    let writers = 2 + rng.below(3);
    let count = case.ops(20 + rng.below(60));
    let may_fail = rng.percent(40);
    if may_fail {
        let kind = if rng.percent(50) { CallKind::SyncData } else { CallKind::Append };
        faults.arm(Fault::nth(5 + rng.below(writers * count / 3)).kind(kind).path_suffix(".wal").forever());
    }
    let written: Vec<Written> = (0..writers).map(|_| Written::default()).collect();
    let stop = AtomicBool::new(false);
    let (failed, reads) = std::thread::scope(|scope| {
        let (db, written, stop, seed) = (&db, &written, &stop, case.seed);
        let writing: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    write_numbers(db, writer, seed, count, &written[writer as usize], may_fail)
                })
            })
            .collect();
        let reading: Vec<_> = (0..2).map(|_| scope.spawn(move || keep_reading(db, written, stop))).collect();
        let failed: Vec<_> = writing.into_iter().map(|thread| thread.join()).collect();
        stop.store(true, Ordering::Relaxed);
        let reads: Vec<_> = reading.into_iter().map(|thread| thread.join()).collect();
        (failed, reads)
    });
    // A panic of a thread is told by its message, which the panic hook noted on that thread.
    let sum = |results: Vec<std::thread::Result<u64>>| -> u64 {
        results.into_iter().map(|result| result.unwrap_or_else(|panic| panic!("{}", text_of(&*panic)))).sum()
    };
    let (failed, reads) = (sum(failed), sum(reads));
    case.coverage.add("failed group", u64::from(failed > 0));
    case.coverage.add("reads by threads", reads);
    case.coverage
        .add("batches by threads", written.iter().map(|w| w.acknowledged.load(Ordering::SeqCst)).sum());
    let mode = CrashMode::from_seed(case.seed);
    let next = disk.crashed(mode);
    let events = Arc::clone(&disk.events);
    if rng.percent(50) && !may_fail {
        db.close().expect("close");
    } else {
        drop(db);
    }
    events.count(&mut case.coverage, (false, false), may_fail);
    let db = next.open_inline(&options).expect("it opens after a crash");
    let numbers = read_numbers(&db, writers, 0);
    for (writer, (found, written)) in numbers.iter().zip(&written).enumerate() {
        let acknowledged = written.acknowledged.load(Ordering::SeqCst);
        let least = if syncs(writer as u64) { acknowledged } else { 0 };
        assert!(
            *found >= least,
            "after {mode:?}: writer {writer} had {least} acknowledged and synced, {found} is left"
        );
    }
    assert_sound(&db);
    case.coverage.hit("crash after threads");
}

/// The message of a thread's panic.
pub(crate) fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
