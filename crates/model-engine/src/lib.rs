//! The whole engine, under schedules that shuttle chooses.
//!
//! All of the engine's mutexes, condition variables, threads and most of its atomics are shuttle's here (the feature
//! `shuttle` of `esker-base`), so each of them is a place where another thread may come in; who waits for ever is found as a
//! deadlock, and nothing is ever helped by a timeout. The scheduler is the real [`ThreadScheduler`], the disk is in memory.
//! What is not shuttle's does not block: the swap of pictures, the skiplist, the block cache, the memory disk's locks.
//!
//! Each scenario is a function for a run of shuttle; [`check`] runs it under random schedules and under such with few
//! changes of thread.

use std::path::Path;
use std::sync::Arc;

use esker::scheduler::{Scheduler, ThreadScheduler};
use esker::vfs::{CrashMode, Fault, FaultVfs, MemVfs, Vfs};
use esker::{Background, Components, Db, ErrorKind, ManualClock, Options, WriteBatch, WriteOptions};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

/// Runs a scenario under so many random schedules, and under as many with few changes of thread at the worst moments.
///
/// # Panics
///
/// When the scenario does, and when it can't go on; shuttle prints the schedule.
pub fn check(schedules: usize, scenario: fn()) {
    let mut config = Config::new();
    // The engine's calls go deeper than shuttle's own default is made for.
    config.stack_size = 1 << 19;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(scenario);
    Runner::new(PctScheduler::new(3, schedules), config).run(scenario);
}

/// A disk, and how databases on it are opened.
struct Disk {
    mem: MemVfs,
    vfs: Arc<dyn Vfs>,
    options: Options,
}

impl Disk {
    fn new() -> Self {
        let mem = MemVfs::new();
        let options = Options::new()
            .memtable_size(16 << 10)
            .wal_segment_size(64 << 10)
            .table_size(16 << 10)
            .l0_trigger(2)
            .cache_size(0)
            .background(Background::Threads(2))
            .seed(1);
        Disk { vfs: Arc::new(mem.clone()), mem, options }
    }

    fn open(&self) -> Db {
        let components = Components {
            vfs: Arc::clone(&self.vfs),
            clock: Arc::new(ManualClock::default()),
            scheduler: Arc::new(ThreadScheduler::new(2)) as Arc<dyn Scheduler>,
            cache: None,
            open_files: None,
            listener: None,
        };
        Db::open_with(Path::new("/db"), self.options.clone(), components).expect("it opens")
    }

    /// The disk after a crash.
    fn crashed(&self, mode: CrashMode) -> Disk {
        let mem = self.mem.crash_clone_with(mode);
        Disk { vfs: Arc::new(mem.clone()), mem, options: self.options.clone() }
    }
}

/// Two keys of a writer that always hold the same number.
fn keys(writer: u64) -> [String; 2] {
    [format!("a{writer}"), format!("z{writer}")]
}

fn write(db: &Db, writer: u64, number: u64, len: usize, options: &WriteOptions) -> esker::Result<()> {
    let mut batch = WriteBatch::new();
    let mut value = number.to_le_bytes().to_vec();
    value.resize(len, 0);
    for key in keys(writer) {
        batch.put(key, &value);
    }
    db.write_with(batch, options)
}

fn number_of(value: Option<esker::Slice>) -> u64 {
    value.map_or(0, |value| u64::from_le_bytes(*value.first_chunk().expect("eight bytes")))
}

/// The number of a writer, the same under both keys, as a snapshot shows it twice.
fn read(db: &Db, writer: u64) -> u64 {
    let snapshot = db.snapshot();
    let all = || keys(writer).map(|key| number_of(snapshot.get(key).expect("get")));
    let (first, second) = (all(), all());
    assert_eq!(first, second, "a snapshot changes");
    assert_eq!(first[0], first[1], "half a batch of writer {writer}");
    first[0]
}

/// Writes in turn as long as that works. How many were acknowledged.
fn keep_writing(db: &Db, writer: u64, count: u64, len: usize, options: &WriteOptions) -> u64 {
    let mut acknowledged = 0;
    for number in 1..=count {
        if write(db, writer, number, len, options).is_err() {
            break;
        }
        acknowledged = number;
    }
    acknowledged
}

/// Three writers that sync, and a reader: whole batches, nothing acknowledged lost in a power cut.
pub fn synced_writers() {
    let disk = Disk::new();
    let db = disk.open();
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let db = db.clone();
            thread::spawn(move || keep_writing(&db, writer, 2, 40, &WriteOptions::sync()))
        })
        .collect();
    let mut last = 0;
    for _ in 0..2 {
        let seen = read(&db, 0);
        assert!(seen >= last, "time runs backwards");
        last = seen;
    }
    let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
    assert_eq!(acknowledged, [2, 2, 2]);
    let next = disk.crashed(CrashMode::Drop);
    drop(db);
    let db = next.open();
    (0..3).for_each(|writer| assert_eq!(read(&db, writer), 2, "an acknowledged write is lost"));
    db.close().expect("close");
}

/// Writers that fill memtables faster than they are flushed, and wait for that.
pub fn stalled_writers() {
    let disk = Disk::new();
    let db = disk.open();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let db = db.clone();
            thread::spawn(move || keep_writing(&db, writer, 8, 5_000, &WriteOptions::new()))
        })
        .collect();
    for (writer, thread) in writers.into_iter().enumerate() {
        assert_eq!(thread.join().expect("a writer"), 8);
        assert_eq!(read(&db, writer as u64), 8);
    }
    db.close().expect("close");
}

/// A close while others write: it ends, and what was acknowledged is there.
pub fn close_under_load() {
    let disk = Disk::new();
    let db = disk.open();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let db = db.clone();
            let options = if writer == 0 { WriteOptions::sync() } else { WriteOptions::new() };
            thread::spawn(move || {
                let acknowledged = keep_writing(&db, writer, 4, 4_000, &options);
                drop(db);
                acknowledged
            })
        })
        .collect();
    let closed = db.clone().close();
    assert!(matches!(db.get("a0").map_err(|error| error.kind().clone()), Err(ErrorKind::Closed)));
    closed.expect("close");
    let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
    drop(db);
    let db = disk.crashed(CrashMode::Drop).open();
    for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
        assert_eq!(read(&db, writer as u64), acknowledged, "writer {writer}");
    }
    db.close().expect("close");
}

/// Three writers that sync, on a disk whose syncs of the log fail from the second on: who was told `Ok` has it (DW24, F2).
pub fn failing_group() {
    let mut disk = Disk::new();
    let faults = FaultVfs::new(Arc::clone(&disk.vfs));
    disk.vfs = Arc::new(faults.clone());
    let db = disk.open();
    faults.arm(Fault::nth(2).syncs().path_suffix(".wal").forever());
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let db = db.clone();
            thread::spawn(move || keep_writing(&db, writer, 2, 40, &WriteOptions::sync()))
        })
        .collect();
    let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().expect("a writer")).collect();
    let next = disk.crashed(CrashMode::Drop);
    drop(db);
    let db = next.open();
    for (writer, acknowledged) in acknowledged.into_iter().enumerate() {
        let found = read(&db, writer as u64);
        assert!(found >= acknowledged, "writer {writer}: {found} of {acknowledged} acknowledged");
    }
    db.close().expect("close");
}

/// After a failed sync: a resume, a close and a writer at once.
pub fn resume_beside_close() {
    let mut disk = Disk::new();
    let faults = FaultVfs::new(Arc::clone(&disk.vfs));
    disk.vfs = Arc::new(faults.clone());
    let db = disk.open();
    write(&db, 0, 1, 40, &WriteOptions::sync()).expect("a write");
    faults.arm(Fault::nth(1).syncs().path_suffix(".wal"));
    write(&db, 1, 1, 40, &WriteOptions::sync()).expect_err("a failed sync");
    let (resumer, writer) = (db.clone(), db.clone());
    let resumes = thread::spawn(move || resumer.resume().is_ok());
    let writes = thread::spawn(move || keep_writing(&writer, 0, 3, 40, &WriteOptions::sync()));
    let closed = db.close().is_ok();
    let (resumed, written) = (resumes.join().expect("resume"), writes.join().expect("a writer"));
    assert!(resumed || !closed, "closed cleanly without a resume");
    faults.disarm();
    let next = disk.crashed(CrashMode::Drop);
    let db = next.open();
    let found = read(&db, 0);
    // Number 1 was there before; the writer begins with it again.
    assert!(found >= written.max(1) && found <= 3, "found {found}, acknowledged {written}");
    db.close().expect("close");
}

/// Snapshots and scans while tables are flushed and compacted under them.
pub fn snapshots_beside_compaction() {
    let disk = Disk::new();
    let db = disk.open();
    write(&db, 0, 1, 40, &WriteOptions::new()).expect("a write");
    let (compacter, writer) = (db.clone(), db.clone());
    let compacts = thread::spawn(move || {
        compacter.flush().expect("flush");
        compacter.compact_range::<&[u8], _>(..).expect("compact_range");
    });
    let writes = thread::spawn(move || {
        assert_eq!(keep_writing(&writer, 0, 3, 40, &WriteOptions::new()), 3);
        writer.flush().expect("flush");
    });
    let mut last = 0;
    for _ in 0..3 {
        let seen = read(&db, 0);
        assert!(seen >= 1 && seen >= last, "{seen} after {last}");
        last = seen;
        assert_eq!(db.iter().map(|entry| entry.expect("an entry")).count(), 2, "a scan of two keys");
    }
    compacts.join().expect("compacts");
    writes.join().expect("writes");
    assert_eq!(read(&db, 0), 3);
    assert!(db.verify().expect("verify").is_clean());
    // Nobody closes: the last handle does what is left, perhaps beside a worker.
    drop(db);
}
