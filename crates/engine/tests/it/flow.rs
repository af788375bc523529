//! Flow control: delays, waits, and writes that want neither.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use esker::scheduler::{BackgroundWork, Scheduler};
use esker::{Clock, Components, Db, ErrorKind, ManualClock, Options, WriteBatch, WriteOptions};

use crate::support::{Rig, StepScheduler, assert_sound, key, small, value};

/// How long a step of background work takes.
const STEP: Duration = Duration::from_millis(1);

/// Works at a fixed speed beside the writer, by a clock that the test moves.
#[derive(Debug)]
struct Paced {
    clock: Arc<ManualClock>,
    work: Mutex<Option<Weak<dyn BackgroundWork>>>,
    steps: AtomicU64,
    /// Nanoseconds that the writer was delayed for since it was last asked.
    delayed: AtomicU64,
    waits: AtomicU64,
}

impl Paced {
    fn open(rig: &Rig, options: &Options) -> (Db, Arc<Paced>) {
        let clock = Arc::new(ManualClock::new());
        let scheduler = Arc::new(Paced {
            clock: Arc::clone(&clock),
            work: Mutex::default(),
            steps: AtomicU64::new(0),
            delayed: AtomicU64::new(0),
            waits: AtomicU64::new(0),
        });
        let components = Components {
            scheduler: Arc::clone(&scheduler) as Arc<dyn Scheduler>,
            clock,
            ..rig.components(options)
        };
        (Db::open_with("/db", options.clone(), components).unwrap(), scheduler)
    }

    /// Time goes on, and background work with it.
    fn pass(&self, time: Duration) {
        self.clock.advance(time);
        let work = self.work.lock().unwrap().as_ref().and_then(Weak::upgrade);
        while STEP * self.steps.load(Ordering::SeqCst) as u32 <= self.clock.now() {
            self.steps.fetch_add(1, Ordering::SeqCst);
            work.as_ref().map(|work| work.step());
        }
    }
}

impl Scheduler for Paced {
    fn work_available(&self, work: &Arc<dyn BackgroundWork>) {
        *self.work.lock().unwrap() = Some(Arc::downgrade(work));
    }

    fn progressed(&self) {}

    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, seen: u64) {
        self.waits.fetch_add(1, Ordering::SeqCst);
        for _ in 0..10_000 {
            if work.progress() != seen {
                return;
            }
            self.pass(STEP);
        }
    }

    fn delay(&self, duration: Duration) {
        assert!(duration <= Duration::from_millis(1), "{duration:?} in one piece");
        self.delayed.fetch_add(duration.as_nanos() as u64, Ordering::SeqCst);
        self.pass(duration);
    }

    fn stop(&self) {}
}

/// Purpose: a writer far ahead of the background work is delayed, by no more than 10 ms a write, in slices of 1 ms, and
/// with work that goes on meanwhile it never comes to a limit where it must wait. Mutations: the delay is not capped; the
/// throttle admits at a fixed rate.
#[test]
fn delays_are_short_and_keep_a_writer_from_waiting() {
    let rig = Rig::new();
    let options =
        small().l0_trigger(4).memtable_size(1 << 20).wal_segment_size(4 << 20).table_size(256 << 10);
    let (db, scheduler) = Paced::open(&rig, &options.base_level_size(1 << 20));
    let mut delays = 0;
    for number in 0..100_000_u64 {
        db.put(key(number * 7919 % 50_000), value(number, 400)).unwrap();
        scheduler.pass(Duration::from_micros(1));
        let delayed = Duration::from_nanos(scheduler.delayed.swap(0, Ordering::SeqCst));
        assert!(delayed <= Duration::from_millis(10), "{delayed:?} for write {number}");
        delays += u32::from(!delayed.is_zero());
    }
    let stats = db.stats();
    assert!(delays > 50, "{delays} delays\n{stats}");
    assert_eq!(scheduler.waits.load(Ordering::SeqCst), 0, "a write had to wait\n{stats}");
    assert!(stats.stalls.keys().all(|cause| !cause.contains("too many")), "{stats}");
    assert_sound(&db);
    db.close().unwrap();
}

/// Purpose: `no_stall` fails where others would wait, names the cause and a time, and leaves no trace; and goes through
/// when there is room again. Mutations: it waits; it fails after the log has it.
#[test]
fn no_stall_writes_fail_where_others_wait() {
    let rig = Rig::new();
    let (db, scheduler) = StepScheduler::open(&rig, &small());
    scheduler.hold(true);
    let at_once = [WriteOptions::no_stall(true), WriteOptions::sync().with_no_stall(true)];
    let mut written = 0_u64;
    let error = loop {
        match db.put_with(key(written), value(written, 200), &at_once[written as usize % 2]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100_000, "it never stalls");
    };
    let ErrorKind::WouldStall { cause, expected_wait } = error.kind() else { panic!("{error}") };
    assert!(cause.contains("memtables") && *expected_wait > Duration::ZERO, "{error}");
    assert!(error.to_string().contains(cause));
    let before = db.stats();
    let (records, sequence) = (before.wal_bytes, before.last_sequence);
    for options in &at_once {
        let mut batch = WriteBatch::new();
        batch.put(b"never", b"there").delete(key(0_u64));
        let error = db.write_with(batch, options).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WouldStall { .. }), "{error}");
    }
    let after = db.stats();
    assert_eq!((after.wal_bytes, after.last_sequence), (records, sequence));
    assert_eq!(db.get(b"never").unwrap(), None);
    assert_eq!(db.get(key(0_u64)).unwrap().as_deref(), Some(&value(0_u64, 200)[..]));
    // An empty batch brings nothing that could stall.
    db.write_with(WriteBatch::new(), &at_once[1]).unwrap();

    scheduler.hold(false);
    scheduler.run();
    db.put_with(b"never", b"say", &at_once[0]).unwrap();
    for number in 0..written {
        assert_eq!(db.get(key(number)).unwrap().as_deref(), Some(&value(number, 200)[..]), "{number}");
    }
    assert_sound(&db);
    db.close().unwrap();
}

/// Purpose: with work on the caller's thread nothing is ever delayed or refused, and the same operations do the same.
#[test]
fn inline_work_keeps_pace() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    for number in 0..5_000_u64 {
        db.put_with(key(number % 700), value(number, 300), &WriteOptions::no_stall(true)).unwrap();
    }
    let stats = db.stats();
    assert!(stats.flushes > 20 && stats.stalls.is_empty(), "{stats}");
    assert_eq!(stats.pending_compaction_bytes, 0, "{stats}");
    assert_sound(&db);
    db.close().unwrap();
}

/// Purpose: compactions keep to the limit, flushes do not wait for it, and neither does a close. Mutations: the bytes are
/// not charged; a worker sleeps until all is paid for.
#[test]
fn a_rate_limit_holds_compactions_back_and_nothing_else() {
    let rig = Rig::new();
    let options = small().memtable_size(256 << 10).wal_segment_size(1 << 20).table_size(64 << 10);
    let options = options.base_level_size(256 << 10).background_rate_limit(2 << 20);
    let db = rig.open_threads(&options, 2).unwrap();
    let started = Instant::now();
    for number in 0..20_000_u64 {
        db.put(key(number * 7919 % 10_000), value(number, 300)).unwrap();
    }
    db.flush().unwrap();
    let moved = loop {
        let stats = db.stats();
        let moved = stats.compaction_bytes_read + stats.compaction_bytes_written;
        if moved >= 8 << 20 {
            break moved;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{stats}");
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = started.elapsed().as_secs_f64();
    let rate = moved as f64 / took / f64::from(1 << 20);
    // One job's end lies after its last payment.
    assert!(rate < 3.0, "{rate:.2} MiB a second\n{}", db.stats());
    (0..2_000_u64).for_each(|number| db.put(key(number), value(number, 300)).unwrap());
    let closing = Instant::now();
    db.close().unwrap();
    assert!(closing.elapsed() < Duration::from_secs(5), "{:?} for the close", closing.elapsed());
    let db = rig.open_threads(&small(), 2).unwrap();
    assert_sound(&db);
}
