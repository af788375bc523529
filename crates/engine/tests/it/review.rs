//! Interleavings and names that a review of the whole engine asked for.

use std::io::ErrorKind as IoKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::scheduler::{BackgroundWork, InlineScheduler, Scheduler};
use esker::vfs::{CallKind, CrashMode, Fault, FaultVfs, MemVfs};
use esker::{Components, Db, DbState, ErrorKind, Event, EventListener, ManualClock, Options, WriteOptions};

use crate::support::{assert_sound, key, small, value};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `work` on a thread of its own, and fails when it does not come back.
fn in_time<R: Send + 'static>(what: &str, work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} waits for ever"))
}

/// A database on a memory disk that can be told to fail.
struct Bench {
    mem: MemVfs,
    faults: FaultVfs,
    options: Options,
    components: Components,
}

impl Bench {
    fn new(options: Options) -> Self {
        let mem = MemVfs::new();
        let faults = FaultVfs::over_mem(&mem);
        let components = Components {
            vfs: Arc::new(faults.clone()),
            clock: Arc::new(ManualClock::new()),
            scheduler: Arc::new(InlineScheduler::new()),
            ..Components::for_options(&options)
        };
        Bench { mem, faults, options, components }
    }

    fn open(&self) -> Db {
        Db::open_with("/db", self.options.clone(), self.components.clone()).unwrap()
    }

    /// A second opening of the same directory, with a scheduler of its own.
    fn open_again(&self) -> esker::Result<Db> {
        let components = Components {
            scheduler: Arc::new(InlineScheduler::new()),
            listener: None,
            ..self.components.clone()
        };
        Db::open_with("/db", self.options.clone(), components)
    }

    fn tables(&self) -> usize {
        self.mem.paths().iter().filter(|path| path.extension().is_some_and(|e| e == "sst")).count()
    }
}

fn put(db: &Db, number: u64) -> esker::Result<()> {
    db.put_with(key(number), value(number, 100), &WriteOptions::sync())
}

fn of_manifest(path: &Path) -> bool {
    path.to_string_lossy().contains("MANIFEST")
}

/// A listener that stops whoever flushes, once armed, until it is told to go on.
#[derive(Debug)]
struct Gate {
    armed: AtomicBool,
    reached: Mutex<Sender<()>>,
    go_on: Mutex<Receiver<()>>,
}

impl EventListener for Gate {
    fn on_event(&self, event: &Event) {
        if matches!(event, Event::Flushed { .. }) && self.armed.swap(false, Ordering::SeqCst) {
            self.reached.lock().unwrap().send(()).unwrap();
            self.go_on.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
    }
}

fn gate() -> (Arc<Gate>, Receiver<()>, Sender<()>) {
    let (reached, at_gate) = channel();
    let (open_gate, go_on) = channel();
    let gate = Gate { armed: AtomicBool::new(false), reached: Mutex::new(reached), go_on: Mutex::new(go_on) };
    (Arc::new(gate), at_gate, open_gate)
}

/// A full disk that comes back right after a `resume`, in the work that this does on its own thread. Fails (hangs) when
/// that work is begun before `resume` has given its lock back.
#[test]
fn er01_a_resume_may_fail_again_at_once() {
    let bench = Bench::new(small().l0_trigger(2));
    let db = bench.open();
    for number in 0..3 {
        put(&db, number).unwrap();
    }
    db.flush().unwrap();
    put(&db, 3).unwrap();
    bench.faults.arm(Fault::nth(1).kind(CallKind::Append).path_suffix(".wal").error(IoKind::StorageFull));
    put(&db, 4).unwrap_err();
    // The flush of the resume is the first edit, the compaction after it the second.
    bench.faults.arm(Fault::nth(2).kind(CallKind::Append).path(of_manifest).error(IoKind::StorageFull));
    let resumed = in_time("a resume", {
        let db = db.clone();
        move || db.resume()
    });
    resumed.unwrap();
    assert!(matches!(db.state(), DbState::ReadOnly { cause } if cause.is_no_space()), "{:?}", db.state());
    bench.faults.disarm();
    db.resume().unwrap();
    put(&db, 5).unwrap();
    assert_eq!(db.iter().count(), 5);
    assert_sound(&db);
}

/// L1, B6: the lock file is not given back while a `resume` still writes. Fails when `close` does not wait for it.
#[test]
fn l1_a_close_waits_for_a_resume() {
    let (gate, at_gate, open_gate) = gate();
    let mut bench = Bench::new(small());
    bench.components.listener = Some(gate.clone());
    let db = bench.open();
    put(&db, 0).unwrap();
    bench.faults.arm(Fault::nth(1).kind(CallKind::SyncData).path_suffix(".wal"));
    put(&db, 1).unwrap_err();
    gate.armed.store(true, Ordering::SeqCst);
    let resuming = std::thread::spawn({
        let db = db.clone();
        move || db.resume()
    });
    at_gate.recv_timeout(PATIENCE).unwrap();
    let closing = std::thread::spawn(move || db.close());
    std::thread::sleep(Duration::from_millis(100));
    let second = bench.open_again().map(drop).unwrap_err();
    assert!(matches!(second.kind(), ErrorKind::Locked { .. }), "{second}");
    open_gate.send(()).unwrap();
    resuming.join().unwrap().unwrap();
    closing.join().unwrap().unwrap();
    assert!(bench.open_again().unwrap().get(key(0_u64)).unwrap().is_some());
}

/// B6: of two closes at once, neither returns before the database is closed.
#[test]
fn b6_a_second_close_waits_for_the_first() {
    let (gate, at_gate, open_gate) = gate();
    let mut bench = Bench::new(small());
    bench.components.listener = Some(gate.clone());
    let db = bench.open();
    put(&db, 0).unwrap();
    gate.armed.store(true, Ordering::SeqCst);
    let other = db.clone();
    let first = std::thread::spawn(move || db.close());
    at_gate.recv_timeout(PATIENCE).unwrap();
    let (done, second) = channel();
    std::thread::spawn(move || done.send(other.close()));
    assert!(second.recv_timeout(Duration::from_millis(100)).is_err(), "the second close did not wait");
    open_gate.send(()).unwrap();
    first.join().unwrap().unwrap();
    second.recv_timeout(PATIENCE).unwrap().unwrap();
    bench.open_again().unwrap();
}

/// A memtable that is sealed because its log segment is full counts as well: when flushes fail, writers are refused, and
/// memory does not grow without bound. Fails when only the memtable's own size is looked at.
#[test]
fn er03_small_log_segments_are_no_way_past_a_stall() {
    let bench = Bench::new(small().memtable_size(4 << 20).wal_segment_size(16 << 10));
    let db = bench.open();
    bench.faults.arm(Fault::always().kind(CallKind::Create).path_suffix(".sst").error(IoKind::StorageFull));
    let refused = (0..5_000).find_map(|number| put(&db, number).err());
    let error = refused.expect("the memtables never filled up");
    assert!(matches!(error.kind(), ErrorKind::ReadOnly { cause } if cause.is_no_space()), "{error}");
    assert!(db.stats().immutable_memtables <= 4);
}

/// A scheduler that works only while a writer waits.
#[derive(Debug)]
struct Lazy;

impl Scheduler for Lazy {
    fn work_available(&self, _work: &Arc<dyn BackgroundWork>) {}
    fn progressed(&self) {}
    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, seen: u64) {
        while work.progress() == seen && work.step() {}
    }
    fn delay(&self, _duration: Duration) {}
    fn stop(&self) {}
}

/// Damages the first table.
fn damage_a_table(mem: &MemVfs) {
    let paths = mem.paths();
    let table = paths.iter().find(|path| path.extension().is_some_and(|e| e == "sst")).unwrap();
    let middle = mem.read_file(table).unwrap().len() as u64 / 3;
    mem.flip(table, middle, 0x10).unwrap();
}

/// R6: a compaction that fails is no reason to refuse a writer that waits for a flush.
#[test]
fn r6_failing_compactions_do_not_refuse_writers_that_wait_for_a_flush() {
    let mut bench = Bench::new(small().l0_trigger(64));
    bench.components.scheduler = Arc::new(Lazy);
    let db = bench.open();
    for number in 0..200 {
        put(&db, number).unwrap();
    }
    db.compact_range::<&[u8], _>(..).unwrap();
    damage_a_table(&bench.mem);
    put(&db, 0).unwrap();
    put(&db, 199).unwrap();
    db.compact_range::<&[u8], _>(..).unwrap_err();
    assert!(matches!(db.state(), DbState::Degraded { .. }));
    for number in 0..2_000 {
        put(&db, number).unwrap();
    }
    assert!(db.stats().flushes > 2, "no writer had to wait");
}

/// R6: when level 0 is full and a damaged table keeps every compaction from it, writers are refused with that cause; they
/// don't wait for ever.
#[test]
fn r6_writers_do_not_wait_for_a_compaction_that_nobody_can_do() {
    let bench = Bench::new(small().l0_trigger(2));
    let db = bench.open();
    for round in 0..2 {
        for number in 0..20 {
            put(&db, number).unwrap();
        }
        if round == 1 {
            damage_a_table(&bench.mem);
        }
        db.flush().unwrap();
    }
    assert!(matches!(db.state(), DbState::Degraded { .. }), "the damage was not found");
    // It is known now: this is refused at once, and the failure before it is forgotten.
    db.compact_range::<&[u8], _>(..).unwrap_err();
    let error = in_time("a writer", move || {
        (0..100_000)
            .find_map(|number| put(&db, number % 20).err())
            .unwrap_or_else(|| panic!("level 0 never filled up: {}", db.stats()))
    });
    assert!(matches!(error.kind(), ErrorKind::ReadOnly { cause } if cause.is_corruption()), "{error}");
}

/// Files that only a cursor has kept go when it is dropped, not with the next write. Fails when the scheduler is called
/// while the cursor still holds its picture.
#[test]
fn d1_a_dropped_cursor_lets_its_files_go() {
    let bench = Bench::new(small());
    let db = bench.open();
    for round in 0..4 {
        for number in 0..100 {
            put(&db, number + round).unwrap();
        }
        db.flush().unwrap();
    }
    let mut cursor = db.cursor().unwrap();
    let mut iter = db.iter();
    iter.next_back().unwrap().unwrap();
    db.compact_range::<&[u8], _>(..).unwrap();
    let live = db.stats().tables() as usize;
    assert!(bench.tables() > live);
    cursor.seek_to_first().unwrap();
    assert!(iter.next().is_some());
    drop(cursor);
    assert!(bench.tables() > live, "the iterator still reads them");
    drop(iter);
    assert_eq!(bench.tables(), live);
}

/// F1, M3: a segment that was given up must not come back after a loss of power and hide what the segment before it got
/// later. Fails when `create_segment` does not sync the directory after the removal.
#[test]
fn m3_a_segment_that_was_given_up_stays_away() {
    let options = small();
    for seed in 0..200 {
        let bench = Bench::new(options.clone());
        let db = bench.open();
        put(&db, 0).unwrap();
        bench.faults.arm(Fault::nth(1).kind(CallKind::SyncDir));
        db.flush().unwrap_err();
        // The database went on in the old segment.
        put(&db, 1).unwrap();
        let mode = match seed % 2 {
            0 => CrashMode::Random { seed, keep_percent: 50 },
            _ => CrashMode::Prefix { seed },
        };
        let image = Bench::new(options.clone());
        let vfs = Arc::new(bench.mem.crash_clone_with(mode));
        let after = Db::open_with("/db", options.clone(), Components { vfs, ..image.components }).unwrap();
        for number in 0..2_u64 {
            assert!(
                after.get(key(number)).unwrap().is_some(),
                "seed {seed}: acknowledged write {number} is lost"
            );
        }
    }
}

/// Every name that the interface promises, as it is promised.
#[test]
fn every_name_of_the_interface() -> esker::Result<()> {
    use esker::{
        Background, Compression, Cursor, DbIterator, Durability, RecoveryMode, Slice, Snapshot, WriteBatch,
    };
    use std::iter::FusedIterator;

    fn scan<T: DoubleEndedIterator<Item = esker::Result<(Slice, Slice)>> + FusedIterator + Send + 'static>(
        it: T,
    ) -> T {
        it
    }
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn sent<T: Send + 'static>(_: &T) {}

    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("shop");
    drop(Db::open(&path)?);
    let options = Options::new()
        .create_if_missing(true)
        .error_if_exists(false)
        .memtable_size(16 << 10)
        .cache_size(256 << 20)
        .memory_limit(64 << 20)
        .block_size(256)
        .restart_interval(16)
        .table_size(4 << 10)
        .l0_trigger(2)
        .base_level_size(4 << 10)
        .level_ratio(4)
        .wal_segment_size(64 << 10)
        .bloom_bits(10)
        .compression(Compression::None)
        .compression(Compression::Snappy)
        .durability(Durability::Buffered)
        .background(Background::Threads(2))
        .background(Background::Inline)
        .seed(7)
        .recovery(RecoveryMode::PointInTime)
        .recovery(RecoveryMode::Strict)
        .verify_reads(true);
    assert_eq!(Options::default(), Options::new());
    let db = options.open(&path)?;
    shared(&db);
    let _mem: Db = Db::in_memory()?;
    let (seeded, components) = Components::in_memory(1, Options::new());
    let _with = Db::open_with("/x", seeded, components)?;

    db.put(b"u:1", b"ann")?;
    db.put_with(b"u:2", b"bob", &WriteOptions::sync())?;
    assert_eq!(db.get(b"u:1")?.as_deref(), Some(&b"ann"[..]));
    db.delete(b"u:2")?;
    assert_eq!(db.get_with(b"u:1", |v| v.len())?, Some(3));
    let values: Vec<esker::Result<Option<Slice>>> = db.multi_get(&[b"u:1", b"u:2"]);
    assert!(values[0].as_ref().unwrap().is_some() && values[1].as_ref().unwrap().is_none());

    let mut batch = WriteBatch::new();
    batch.put(b"u:3", b"cy").delete(b"u:1");
    db.write(batch)?;
    db.write_with(WriteBatch::new(), &WriteOptions::sync())?;
    db.put_with(b"bulk", b"1", &WriteOptions::wal(false))?;
    for durability in [Durability::Memory, Durability::Buffered, Durability::Sync] {
        db.delete_with(b"bulk", &WriteOptions::new().with_durability(durability))?;
    }
    db.sync()?;

    for kv in scan(db.range(b"u:1".as_slice()..b"u:9".as_slice())) {
        let (k, v) = kv?;
        assert_eq!((&k[..], &v[..]), (&b"u:3"[..], &b"cy"[..]));
    }
    let inverted = db.range("z".."a").count();
    assert_eq!(inverted, 0);
    assert_eq!(scan(db.prefix(b"u:")).rev().take(10).count(), 1);
    let mut iter: DbIterator = scan(db.iter());
    assert!(iter.next().is_some());
    let mut cursor: Cursor = db.cursor()?;
    sent(&cursor);
    cursor.seek(b"u:1")?;
    while cursor.valid() {
        assert_eq!((cursor.key(), cursor.value()), (&b"u:3"[..], &b"cy"[..]));
        cursor.next()?;
    }
    cursor.seek_for_prev(b"u:9")?;
    cursor.prev()?;
    cursor.seek_to_first()?;
    cursor.seek_to_last()?;

    let snapshot: Snapshot = db.snapshot();
    let seen = (snapshot.get(b"u:3")?.is_some(), snapshot.get_with(b"u:3", |v| v.len())?);
    assert_eq!(seen, (true, Some(2)));
    assert_eq!(scan(snapshot.range("a"..="z")).count() + scan(snapshot.prefix("u")).count(), 2);
    assert_eq!(scan(snapshot.iter()).count(), 1);
    snapshot.cursor()?.seek_to_first()?;

    db.flush()?;
    db.compact_range::<&[u8], _>(..)?;
    assert!(!db.stats().to_string().is_empty() && !db.stats().levels.is_empty());
    let other = db.clone();
    db.close()?;
    let closed = |error: esker::Error| matches!(error.kind(), ErrorKind::Closed);
    assert!(closed(other.get(b"u:3").unwrap_err()) && closed(other.put(b"a", b"b").unwrap_err()));
    assert!(closed(other.flush().unwrap_err()) && closed(other.sync().unwrap_err()));
    assert!(closed(other.compact_range::<&[u8], _>(..).unwrap_err()) && closed(other.resume().unwrap_err()));
    assert!(closed(other.cursor().unwrap_err()) && closed(other.iter().next().unwrap().unwrap_err()));
    assert!(closed(other.write(WriteBatch::new()).unwrap_err()) && closed(other.verify().unwrap_err()));
    assert!(
        closed(snapshot.get(b"u:3").unwrap_err()) && closed(snapshot.iter().next().unwrap().unwrap_err())
    );
    assert!(closed(cursor.next().unwrap_err()) && closed(cursor.seek(b"a").unwrap_err()));
    assert!(closed(iter.next().unwrap().unwrap_err()));
    Ok(())
}

/// Every kind of error, by its fields.
#[expect(dead_code, reason = "that it compiles is the test")]
fn every_kind_of_error(error: &esker::Error) -> String {
    use std::error::Error as _;
    let _ = (error.to_string(), error.source());
    match error.kind() {
        ErrorKind::Io { op, path } | ErrorKind::NoSpace { op, path, .. } => {
            format!("{op} {}", path.display())
        }
        ErrorKind::Corruption { file, offset, what } => format!("{} {offset} {what}", file.display()),
        ErrorKind::ReadOnly { cause } => cause.to_string(),
        ErrorKind::Locked { .. } | ErrorKind::Closed | ErrorKind::WriteUnknown { .. } => String::new(),
        ErrorKind::TooLarge { .. } | ErrorKind::InvalidArgument { .. } => String::new(),
        ErrorKind::UnsupportedFormat { .. } | ErrorKind::Conflict | ErrorKind::WouldStall { .. } => {
            String::new()
        }
        ErrorKind::Fatal { .. } => String::new(),
        _ => String::new(),
    }
}
