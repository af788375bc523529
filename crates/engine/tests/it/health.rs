//! The states of section "what still works after an error": each cause, what it refuses, and the way out.

use std::io::ErrorKind as IoKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use esker::scheduler::{InlineScheduler, ThreadScheduler};
use esker::vfs::{CallKind, CrashMode, Fault, FaultVfs, MemVfs, Vfs};
use esker::{Components, Db, DbState, ErrorKind, ManualClock, Options, WriteOptions};

use crate::support::{Rig, assert_sound, key, small, value};

/// A database on a disk that can be told to fail, with a clock that can be moved.
struct Sick {
    rig: Rig,
    faults: FaultVfs,
    clock: Arc<ManualClock>,
    db: Db,
    options: Options,
}

impl Sick {
    fn new() -> Self {
        let rig = Rig::new();
        let faults = FaultVfs::new(Arc::new(rig.order.clone()));
        let clock = Arc::new(ManualClock::new());
        let options = small();
        let components = Components {
            clock: clock.clone(),
            scheduler: Arc::new(InlineScheduler::new()),
            ..rig.components_on(Arc::new(faults.clone()), &options)
        };
        let db = Db::open_with("/db", options.clone(), components).unwrap();
        Sick { rig, faults, clock, db, options }
    }

    fn put(&self, number: u64) -> esker::Result<()> {
        self.db.put_with(key(number), value(number, 40), &WriteOptions::sync())
    }

    fn has(&self, db: &Db, number: u64) -> bool {
        db.get(key(number)).unwrap().is_some_and(|found| found == value(number, 40))
    }

    /// After a loss of power: what `there` names is there, what `gone` names is not.
    fn check_after_power_loss(&self, there: &[u64], gone: &[u64]) {
        let rig = Rig::on(self.rig.mem.crash_clone_with(CrashMode::Drop));
        let db = rig.open_inline(&self.options).unwrap();
        for &number in there {
            assert!(self.has(&db, number), "{number} is lost");
        }
        for &number in gone {
            assert!(db.get(key(number)).unwrap().is_none(), "{number} was never acknowledged, and is there");
        }
        assert_sound(&db);
    }
}

/// ER01 (a) and DW23. Fails when `restart_log` takes the present sequence number for the next record without a skip.
#[test]
fn dw23_a_failed_append_is_left_behind_by_resume() {
    let sick = Sick::new();
    sick.put(1).unwrap();
    sick.faults.arm(Fault::nth(1).kind(CallKind::Append).path_suffix(".wal").error(IoKind::StorageFull));
    assert!(sick.put(2).unwrap_err().is_no_space());
    assert!(matches!(sick.db.state(), DbState::ReadOnly { cause } if cause.is_no_space()));
    let refused = sick.put(3).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::ReadOnly { cause } if cause.is_no_space()), "{refused}");
    assert!(sick.has(&sick.db, 1) && sick.db.get(key(2_u64)).unwrap().is_none());

    sick.db.resume().unwrap();
    assert!(matches!(sick.db.state(), DbState::Open));
    assert!(sick.db.get(key(2_u64)).unwrap().is_none(), "the failed batch is settled: it is not there");
    for number in 4..200 {
        sick.put(number).unwrap();
    }
    sick.check_after_power_loss(&[1, 4, 100, 199], &[2, 3]);
    assert_sound(&sick.db);
}

/// F1, F2, F4: a failed sync is never tried again. Its batch is of unknown outcome; it shows, and a resume writes it anew, so
/// that it stays.
#[test]
fn f4_a_failed_sync_is_left_behind_by_resume() {
    let sick = Sick::new();
    sick.put(1).unwrap();
    sick.faults.arm(Fault::nth(1).kind(CallKind::SyncData).path_suffix(".wal"));
    let error = sick.put(2).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WriteUnknown { .. }), "{error}");
    assert!(matches!(sick.put(3).unwrap_err().kind(), ErrorKind::ReadOnly { .. }));
    assert!(sick.has(&sick.db, 2));
    sick.db.resume().unwrap();
    assert!(sick.has(&sick.db, 2));
    sick.put(4).unwrap();
    sick.check_after_power_loss(&[1, 2, 4], &[3]);
}

/// DM08, DM09, M5: after a failed append nothing goes to that manifest any more, and nothing is deleted before a new one
/// is durable.
#[test]
fn dm08_a_failed_manifest_is_left_behind_by_resume() {
    for kind in [CallKind::Append, CallKind::SyncData] {
        let sick = Sick::new();
        for number in 0..50 {
            sick.put(number).unwrap();
        }
        let before = sick.rig.mem.paths();
        sick.faults.arm(Fault::nth(1).kind(kind).path(|path| path.to_string_lossy().contains("MANIFEST")));
        assert!(matches!(sick.db.flush().unwrap_err().kind(), ErrorKind::ReadOnly { .. }));
        assert!(matches!(sick.db.state(), DbState::ReadOnly { .. }));
        assert!(
            before.iter().all(|path| sick.rig.mem.paths().contains(path)),
            "a file was deleted in an error state"
        );
        sick.check_after_power_loss(&[0, 49], &[]);
        sick.db.resume().unwrap();
        for number in 50..400 {
            sick.put(number).unwrap();
        }
        sick.db.compact_range::<&[u8], _>(..).unwrap();
        sick.check_after_power_loss(&[0, 49, 50, 399], &[]);
        assert_sound(&sick.db);
        sick.db.close().unwrap();
    }
}

/// A flush that fails is tried again after a while; writes go on meanwhile.
#[test]
fn er03_a_failed_flush_degrades_and_heals() {
    let sick = Sick::new();
    sick.put(0).unwrap();
    sick.faults.arm(Fault::always().kind(CallKind::Create).path_suffix(".sst").error(IoKind::StorageFull));
    let error = sick.db.flush().unwrap_err();
    assert!(error.is_no_space() && !matches!(error.kind(), ErrorKind::ReadOnly { .. }), "{error}");
    assert!(matches!(sick.db.state(), DbState::Degraded { .. }));
    sick.put(1).unwrap();
    // Until there is no more room in memory: then the cause is named, and nobody waits for ever.
    let refused = (2..100_000).find_map(|number| sick.put(number).err().map(|error| (number, error)));
    let (first_refused, error) = refused.expect("the memtables never filled up");
    assert!(matches!(error.kind(), ErrorKind::ReadOnly { cause } if cause.is_no_space()), "{error}");
    sick.check_after_power_loss(&[0, 1, first_refused - 1], &[first_refused]);

    sick.faults.disarm();
    sick.clock.advance(Duration::from_secs(600));
    sick.db.flush().unwrap();
    assert!(matches!(sick.db.state(), DbState::Open));
    sick.put(first_refused).unwrap();
    sick.check_after_power_loss(&[0, 1, first_refused], &[]);
}

/// R6: damage in one table stops its compaction, not the database; other keys go on being served.
#[test]
fn r6_a_damaged_table_is_left_alone() {
    let sick = Sick::new();
    for number in 0..400 {
        sick.put(number).unwrap();
    }
    sick.db.compact_range::<&[u8], _>(..).unwrap();
    let table =
        sick.rig.mem.paths().into_iter().find(|path| path.extension().is_some_and(|e| e == "sst")).unwrap();
    let middle = sick.rig.mem.read_file(&table).unwrap().len() as u64 / 3;
    sick.rig.mem.flip(&table, middle, 0x10).unwrap();
    for number in 0..400 {
        sick.put(number).unwrap();
    }
    let error = sick.db.compact_range::<&[u8], _>(..).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corruption { .. }), "{error}");
    assert!(matches!(sick.db.state(), DbState::Degraded { cause } if cause.is_corruption()));
    assert!(!sick.db.verify().unwrap().is_clean());
    let error = sick.db.compact_range::<&[u8], _>(..).unwrap_err();
    assert!(error.to_string().contains("sst"), "{error}");
    for number in 400..800 {
        sick.put(number).unwrap();
    }
    let readable = (0..800_u64).filter(|&number| sick.db.get(key(number)).is_ok()).count();
    // Newer versions above the damaged table are read without it.
    assert!(readable >= 700, "{readable} of 800 keys can be read");
}

/// ER01, B3: after a full disk, writes are taken again without a call, and nothing is lost.
#[test]
fn er01_a_full_disk_heals_by_itself() {
    let mem = MemVfs::new();
    let options = small();
    let components = Components {
        vfs: Arc::new(mem.clone()),
        scheduler: Arc::new(ThreadScheduler::new(2)),
        ..Components::for_options(&options)
    };
    let db = Db::open_with("/db", options.clone(), components).unwrap();
    let mut written = 0_u64;
    mem.set_quota(mem.total_bytes() + 100_000);
    let error = loop {
        match db.put(key(written), value(written, 100)) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("no space"), "{error}");
    for number in 0..written {
        assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number, 100));
    }
    mem.set_quota(u64::MAX);
    let start = Instant::now();
    while let Err(error) = db.put(b"after", b"1") {
        assert!(start.elapsed() < Duration::from_secs(20), "still refused: {error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    drop(db);
    let image: Arc<dyn Vfs> = Arc::new(mem.crash_clone_with(CrashMode::Keep));
    let components = Components { vfs: image, ..Components::for_options(&options) };
    let db = Db::open_with("/db", options, components).unwrap();
    assert_eq!(db.iter().count() as u64, written + 1);
    assert_sound(&db);
}

/// Writes at `Memory` durability do not stay in the buffer for long: idle threads hand them over.
#[test]
fn what_memory_writes_leave_in_the_buffer_goes_out_by_time() {
    let rig = Rig::new();
    let db = rig.open_threads(&small(), 1).unwrap();
    let memory = WriteOptions::new().with_durability(esker::Durability::Memory);
    db.put_with(b"k", b"v", &memory).unwrap();
    let start = Instant::now();
    loop {
        let image = rig.crashed(CrashMode::Keep);
        let there = image.open_inline(&small()).unwrap().get(b"k").unwrap().is_some();
        if there {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "the write is still in the buffer");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A listener may call the database: nothing is locked while it runs.
#[test]
fn b1_a_listener_may_ask_for_the_state() {
    #[derive(Debug, Default)]
    struct Nosy {
        db: std::sync::Mutex<Option<Db>>,
        seen: std::sync::Mutex<Vec<String>>,
    }
    impl esker::EventListener for Nosy {
        fn on_event(&self, event: &esker::Event) {
            let db = self.db.lock().unwrap().clone();
            if let (Some(db), esker::Event::BackgroundError { latched, .. }) = (db, event) {
                let seen = format!("{latched} {:?} {}", db.state(), db.stats());
                self.seen.lock().unwrap().push(seen);
            }
        }
    }
    let rig = Rig::new();
    let faults = FaultVfs::new(Arc::new(rig.order.clone()));
    let nosy = Arc::new(Nosy::default());
    let options = small();
    let components =
        Components { listener: Some(nosy.clone()), ..rig.components_on(Arc::new(faults.clone()), &options) };
    let db = Db::open_with("/db", options, components).unwrap();
    *nosy.db.lock().unwrap() = Some(db.clone());
    db.put(b"k", b"v").unwrap();
    faults.arm(Fault::nth(1).kind(CallKind::SyncAll).path_suffix(".sst"));
    db.flush().unwrap_err();
    faults.arm(Fault::nth(1).kind(CallKind::Append).path_suffix(".wal"));
    db.put(b"k", b"v").unwrap_err();
    let seen = nosy.seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert!(seen[0].starts_with("false Degraded") && seen[1].starts_with("true ReadOnly"), "{seen:?}");
    *nosy.db.lock().unwrap() = None;
}

/// A scheduler serves one database: a second one is refused, and would otherwise wait for ever.
#[test]
fn one_scheduler_serves_one_database_at_a_time() {
    for scheduler in [
        Arc::new(ThreadScheduler::new(1)) as Arc<dyn esker::scheduler::Scheduler>,
        Arc::new(InlineScheduler::new()),
    ] {
        let components = |vfs: &MemVfs| Components {
            vfs: Arc::new(vfs.clone()),
            scheduler: Arc::clone(&scheduler),
            ..Components::for_options(&small())
        };
        let (first, second) = (MemVfs::new(), MemVfs::new());
        let db = Db::open_with("/db", small(), components(&first)).unwrap();
        let refused = Db::open_with("/db", small(), components(&second)).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::InvalidArgument { .. }), "{refused}");
        db.put(b"k", b"v").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let db = Db::open_with("/db", small(), components(&second)).unwrap();
        db.put(b"k", b"v").unwrap();
        db.flush().unwrap();
    }
}
