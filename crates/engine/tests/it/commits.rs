//! Syncs beside writes: what goes on while the device works, what a rotation or a failure in between does, and commits that
//! are not waited for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use esker::scheduler::{BackgroundWork, Scheduler};
use esker::vfs::{Call, CallKind, CrashMode, Fault, FaultVfs, ObserveVfs, Vfs};
use esker::{Background, Commit, Components, Db, ErrorKind, Options, Result, WriteBatch, WriteOptions};
use esker_testkit::within;

use crate::support::{Rig, assert_sound, content, key, small, value};

const MINUTE: Duration = Duration::from_secs(60);

/// Holds up the syncs of the log while it is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    /// Syncs that were held up.
    held: AtomicU64,
    opened: Condvar,
}

impl Gate {
    fn shut(&self) {
        *self.shut.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        let mut shut = self.shut.lock().unwrap();
        if *shut {
            self.held.fetch_add(1, Ordering::SeqCst);
        }
        while *shut {
            shut = self.opened.wait(shut).unwrap();
        }
    }

    /// Waits until a sync is held up.
    fn wait_for_sync(&self) {
        while self.held.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
    }
}

fn is_log_sync(call: &Call<'_>) -> bool {
    call.kind == CallKind::SyncData && call.path.extension().is_some_and(|extension| extension == "wal")
}

/// A database with background threads behind a gate.
fn gated(rig: &Rig, options: &Options) -> (Db, Arc<Gate>) {
    let gate = Arc::new(Gate::default());
    let passed = Arc::clone(&gate);
    let observe = move |call: &Call<'_>, event: esker::vfs::Event| {
        if is_log_sync(call) && event == esker::vfs::Event::Before {
            passed.pass();
        }
    };
    let vfs: Arc<dyn Vfs> = Arc::new(ObserveVfs::new(Arc::new(rig.order.clone()), Arc::new(observe)));
    let options = options.clone().background(Background::Threads(2));
    let components = rig.components_on(vfs, &options);
    (Db::open_with("/db", options, components).unwrap(), gate)
}

fn one(number: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key(number), value(number, 40));
    batch
}

/// While one writer waits for the device, others write and read: also what that one has written. Mutation: the sync with
/// the log locked.
#[test]
fn writers_go_on_beside_a_sync() {
    let rig = Rig::new();
    let (db, gate) = gated(&rig, &Options::new());
    within(MINUTE, "writes beside a sync", move || {
        gate.shut();
        thread::scope(|scope| {
            let synced = scope.spawn(|| db.put_with(key(1_u64), value(1_u64, 40), &WriteOptions::sync()));
            gate.wait_for_sync();
            for number in 2..200 {
                db.put(key(number as u64), value(number as u64, 40)).unwrap();
            }
            assert!(db.get(key(1_u64)).unwrap().is_some(), "visible before it is durable");
            assert!(!synced.is_finished(), "acknowledged before it is durable");
            gate.open();
            synced.join().unwrap().unwrap();
        });
        let found = content(&rig.crashed(CrashMode::Drop).open_inline(&Options::new()).unwrap()).unwrap();
        assert!(found.contains_key(&key(1_u64)));
        assert_sound(&db);
    });
}

/// F7: the log starts new segments while a sync of an old one runs. What was acknowledged is durable, and the next sync
/// takes the older segments first. Mutation: the older segments left out.
#[test]
fn f7_segments_that_start_while_a_sync_runs() {
    let rig = Rig::new();
    let (db, gate) = gated(&rig, &small());
    within(MINUTE, "rotations beside a sync", move || {
        gate.shut();
        thread::scope(|scope| {
            let synced = scope.spawn(|| db.put_with(key(0_u64), value(0_u64, 40), &WriteOptions::sync()));
            gate.wait_for_sync();
            let before = rig.names(".wal").len();
            let mut last = 1_u64;
            while rig.names(".wal").len() < before + 2 {
                db.put(key(last), value(last, 400)).unwrap();
                last += 1;
            }
            gate.open();
            synced.join().unwrap().unwrap();
            let found = content(&rig.crashed(CrashMode::Drop).open_inline(&small()).unwrap()).unwrap();
            assert!(found.contains_key(&key(0_u64)));
            db.put_with(key(last), value(last, 400), &WriteOptions::sync()).unwrap();
            let found = content(&rig.crashed(CrashMode::Drop).open_inline(&small()).unwrap()).unwrap();
            assert_eq!(found.len() as u64, last + 1, "a sync covers all before it");
        });
        assert_sound(&db);
    });
}

/// Many durable writes of one thread share syncs; callbacks come once, in order, and only for what is durable.
#[test]
fn one_thread_keeps_many_writes_under_way() {
    const WRITES: u64 = 300;
    let rig = Rig::new();
    let (db, gate) = gated(&rig, &Options::new());
    within(MINUTE, "commits under way", move || {
        let before = db.stats().log_syncs;
        gate.shut();
        let told: Arc<Mutex<Vec<u64>>> = Arc::default();
        let mut last = None;
        for number in 0..WRITES {
            let commit = db.submit(one(number), &WriteOptions::sync()).unwrap();
            assert!(!commit.is_synced());
            let told = Arc::clone(&told);
            commit.clone().on_synced(move |result| {
                result.unwrap();
                told.lock().unwrap().push(number);
            });
            last = Some(commit);
        }
        assert_eq!(content(&db).unwrap().len() as u64, WRITES);
        assert!(told.lock().unwrap().is_empty());
        gate.open();
        let last = last.unwrap();
        last.wait_synced().unwrap();
        assert!(last.is_synced() && db.stats().log_syncs - before <= 4, "{} syncs", db.stats().log_syncs);
        let found = content(&rig.crashed(CrashMode::Drop).open_inline(&Options::new()).unwrap()).unwrap();
        assert_eq!(found.len() as u64, WRITES);
        db.close().unwrap();
        assert_eq!(*told.lock().unwrap(), (0..WRITES).collect::<Vec<_>>());
    });
}

/// What is asked for is got whatever the durability of the write; an empty batch stands for all before it; a commit that is
/// dropped is one all the same.
#[test]
fn commits_of_every_durability() {
    let rig = Rig::new();
    let db = rig.open_inline(&Options::new()).unwrap();
    let durable = || {
        let db = rig.crashed(CrashMode::Drop).open_inline(&Options::new()).unwrap();
        content(&db).unwrap().len()
    };
    drop(db.submit(one(1), &WriteOptions::sync()).unwrap());
    assert_eq!(durable(), 1);
    let buffered = db.submit(one(2), &WriteOptions::new()).unwrap();
    assert!(!buffered.is_synced() && durable() == 1);
    buffered.wait_synced().unwrap();
    assert_eq!(durable(), 2);
    let memory = WriteOptions::new().with_durability(esker::Durability::Memory);
    let first = db.submit(one(3), &memory).unwrap();
    let second = db.submit(one(4), &memory).unwrap();
    assert!(first.sequence() < second.sequence());
    second.wait_synced().unwrap();
    assert!(first.is_synced() && durable() == 4);
    db.put(key(5_u64), value(5_u64, 40)).unwrap();
    db.submit(WriteBatch::new(), &WriteOptions::sync()).unwrap().wait_synced().unwrap();
    assert_eq!(durable(), 5);
}

/// A callback may use the database, and one that panics harms neither the others nor the database.
#[test]
fn callbacks_may_do_what_they_like() {
    for threads in [false, true] {
        within(MINUTE, "callbacks", move || {
            let rig = Rig::new();
            let options = Options::new();
            let db = if threads { rig.open_threads(&options, 2) } else { rig.open_inline(&options) }.unwrap();
            let (done, told) = std::sync::mpsc::channel();
            db.submit(one(1), &WriteOptions::sync()).unwrap().on_synced(|_| panic!("on purpose"));
            let (inner, done_inner) = (db.clone(), done.clone());
            db.submit(one(2), &WriteOptions::sync()).unwrap().on_synced(move |result| {
                result.unwrap();
                assert!(inner.get(key(2_u64)).unwrap().is_some());
                inner.put_with(key(3_u64), b"put by a callback", &WriteOptions::sync()).unwrap();
                let next = inner.submit(one(4), &WriteOptions::sync()).unwrap();
                next.on_synced(move |result| done_inner.send(result).unwrap());
                done.send(Ok(())).unwrap();
            });
            told.recv().unwrap().unwrap();
            told.recv().unwrap().unwrap();
            assert_eq!(content(&db).unwrap().len(), 4);
            assert_sound(&db);
        });
    }
}

/// Closing, and dropping the last handle, answer everybody who still waits, once.
#[test]
fn a_close_and_a_drop_call_what_is_left() {
    for (close, threads) in [(true, true), (true, false), (false, true), (false, false)] {
        within(MINUTE, "a close with commits under way", move || {
            let rig = Rig::new();
            let options = Options::new();
            let db = if threads { rig.open_threads(&options, 1) } else { rig.open_inline(&options) }.unwrap();
            let told = Arc::new(AtomicU64::new(0));
            let mut kept = None;
            for number in 0..100 {
                let commit = db.submit(one(number), &WriteOptions::new()).unwrap();
                let told = Arc::clone(&told);
                if close {
                    kept = Some(commit.clone());
                }
                commit.on_synced(move |result| {
                    result.unwrap();
                    told.fetch_add(1, Ordering::SeqCst);
                });
            }
            if close {
                db.close().unwrap()
            } else {
                drop(db)
            }
            assert_eq!(told.load(Ordering::SeqCst), 100, "close {close}, threads {threads}");
            if let Some(commit) = kept {
                commit.wait_synced().unwrap();
                let told = Arc::clone(&told);
                commit.on_synced(move |result| {
                    result.unwrap();
                    told.fetch_add(1, Ordering::SeqCst);
                });
            }
            assert_eq!(told.load(Ordering::SeqCst), if close { 101 } else { 100 });
            let db = rig.crashed(CrashMode::Drop).open_inline(&options).unwrap();
            assert_eq!(content(&db).unwrap().len(), 100);
        });
    }
}

/// F2, F4: all that wait for a sync that fails are told so, threads and callbacks. What they wrote shows; a resume makes it
/// durable, and a commit that asks then is told that.
#[test]
fn f2_a_failed_sync_is_told_to_all_and_healed_by_resume() {
    within(MINUTE, "a failed sync", || {
        let rig = Rig::new();
        let faults = FaultVfs::new(Arc::new(rig.order.clone()));
        let options = Options::new().background(Background::Threads(2));
        let components = rig.components_on(Arc::new(faults.clone()), &options);
        let db = Db::open_with("/db", options.clone(), components).unwrap();
        db.put_with(key(0_u64), value(0_u64, 40), &WriteOptions::sync()).unwrap();
        let commits: Vec<Commit> =
            (1..5).map(|number| db.submit(one(number), &WriteOptions::new()).unwrap()).collect();
        faults.arm(Fault::nth(1).kind(CallKind::SyncData).path_suffix(".wal"));
        let told: Arc<Mutex<Vec<Result<()>>>> = Arc::default();
        for commit in &commits {
            let told = Arc::clone(&told);
            commit.clone().on_synced(move |result| told.lock().unwrap().push(result));
        }
        for commit in &commits {
            let error = commit.wait_synced().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::WriteUnknown { .. }), "{error}");
        }
        while told.lock().unwrap().len() < commits.len() {
            thread::yield_now();
        }
        for result in told.lock().unwrap().iter() {
            assert!(matches!(result.as_ref().unwrap_err().kind(), ErrorKind::WriteUnknown { .. }));
        }
        assert!(matches!(db.put(key(9_u64), b"").unwrap_err().kind(), ErrorKind::ReadOnly { .. }));
        assert_eq!(content(&db).unwrap().len(), 5, "they show");
        db.resume().unwrap();
        commits.iter().for_each(|commit| commit.wait_synced().unwrap());
        let found = content(&rig.crashed(CrashMode::Drop).open_inline(&options).unwrap()).unwrap();
        assert_eq!(found.len(), 5, "they stay");
        db.put_with(key(6_u64), value(6_u64, 40), &WriteOptions::sync()).unwrap();
        assert_sound(&db);
    });
}

/// A write that the log refused is not there, also when somebody syncs the log after that: what has failed does not stay
/// in the buffer. Its number is given to nobody else.
#[test]
fn a_refused_write_is_not_logged_by_a_later_sync() {
    for memory in [false, true] {
        let rig = Rig::new();
        let faults = FaultVfs::new(Arc::new(rig.order.clone()));
        let options = Options::new();
        let mut components = rig.components_on(Arc::new(faults.clone()), &options);
        components.scheduler = Arc::new(esker::scheduler::InlineScheduler::new());
        let db = Db::open_with("/db", options.clone(), components).unwrap();
        let durability = if memory { esker::Durability::Memory } else { esker::Durability::Buffered };
        let commit = db.submit(one(1), &WriteOptions::new().with_durability(durability)).unwrap();
        faults.arm(Fault::nth(1).kind(CallKind::Append).path_suffix(".wal").os_error(28));
        let error = db.put(key(2_u64), value(2_u64, 40)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
        faults.disarm();
        let synced = commit.wait_synced();
        let there = content(&rig.crashed(CrashMode::Drop).open_inline(&options).unwrap()).unwrap();
        assert!(!there.contains_key(&key(2_u64)), "it was refused");
        assert!(synced.is_err() || there.contains_key(&key(1_u64)), "{synced:?}");
        db.resume().unwrap();
        let next = db.submit(one(3), &WriteOptions::sync()).unwrap();
        assert!(next.sequence() > commit.sequence() + 1, "a number was given twice");
        let there = content(&rig.crashed(CrashMode::Drop).open_inline(&options).unwrap()).unwrap();
        assert_eq!(there.keys().cloned().collect::<Vec<_>>(), [key(1_u64), key(3_u64)]);
        assert_sound(&db);
    }
}

/// A disk on which faults can be armed, below a gate for the syncs of files whose names end in what the string says.
fn gated_faults(rig: &Rig, options: &Options) -> (Db, FaultVfs, Arc<Gate>, Arc<Mutex<String>>) {
    let faults = FaultVfs::new(Arc::new(rig.order.clone()));
    let gate = Arc::new(Gate::default());
    let held = Arc::new(Mutex::new("none".to_owned()));
    let (passed, suffix) = (Arc::clone(&gate), Arc::clone(&held));
    let observe = move |call: &Call<'_>, event: esker::vfs::Event| {
        let held = matches!(call.kind, CallKind::SyncData | CallKind::SyncAll)
            && event == esker::vfs::Event::Before
            && call.path.to_string_lossy().ends_with(&*suffix.lock().unwrap());
        if held {
            passed.pass();
        }
    };
    let vfs: Arc<dyn Vfs> = Arc::new(ObserveVfs::new(Arc::new(faults.clone()), Arc::new(observe)));
    let options = options.clone().background(Background::Threads(2));
    let db = Db::open_with("/db", options.clone(), rig.components_on(vfs, &options)).unwrap();
    (db, faults, gate, held)
}

/// While a resume writes to tables what is in memory, the new segment stands for nothing: no sync of it is believed.
#[test]
fn f4_no_sync_counts_while_a_resume_is_under_way() {
    let rig = Rig::new();
    let (db, faults, gate, held) = gated_faults(&rig, &Options::new());
    within(MINUTE, "a sync beside a resume", move || {
        let there =
            || content(&rig.crashed(CrashMode::Drop).open_inline(&Options::new()).unwrap()).unwrap().len();
        let memory = WriteOptions::new().with_durability(esker::Durability::Memory);
        let commit = db.submit(one(1), &memory).unwrap();
        faults.arm(Fault::nth(1).kind(CallKind::Append).path_suffix(".wal").os_error(5));
        db.put(key(2_u64), b"").unwrap_err();
        *held.lock().unwrap() = ".sst".to_owned();
        gate.shut();
        thread::scope(|scope| {
            let resumed = scope.spawn(|| db.resume());
            gate.wait_for_sync();
            let synced = commit.wait_synced();
            let kept = there() == 1;
            gate.open();
            assert!(synced.is_err() || kept, "acknowledged, and lost");
            resumed.join().unwrap().unwrap();
        });
        commit.wait_synced().unwrap();
        assert_eq!(there(), 1);
        db.put_with(key(3_u64), b"", &WriteOptions::sync()).unwrap();
        assert_eq!(there(), 2);
        assert_sound(&db);
    });
}

/// A sync that fails after a resume has written everything anew is of the past: the write is durable, and the database
/// stays writable.
#[test]
fn f4_a_sync_that_fails_after_a_resume_is_of_the_past() {
    let rig = Rig::new();
    let (db, faults, gate, held) = gated_faults(&rig, &Options::new());
    let present = rig.names(".wal").pop().unwrap();
    held.lock().unwrap().clone_from(&present);
    within(MINUTE, "a sync that outlives a resume", move || {
        gate.shut();
        thread::scope(|scope| {
            let synced = scope.spawn(|| db.put_with(key(1_u64), value(1_u64, 40), &WriteOptions::sync()));
            gate.wait_for_sync();
            faults.arm(
                Fault::nth(1)
                    .kind(CallKind::SyncData)
                    .path(|path| path.to_string_lossy().contains("MANIFEST")),
            );
            db.flush().unwrap_err();
            assert!(matches!(db.put(key(9_u64), b"").unwrap_err().kind(), ErrorKind::ReadOnly { .. }));
            faults.disarm();
            db.resume().unwrap();
            faults.arm(Fault::nth(1).kind(CallKind::SyncData).path_suffix(&present));
            gate.open();
            synced.join().unwrap().unwrap();
            assert_eq!(faults.fired(), 2);
        });
        db.put_with(key(2_u64), value(2_u64, 40), &WriteOptions::sync()).unwrap();
        let found = content(&rig.crashed(CrashMode::Drop).open_inline(&Options::new()).unwrap()).unwrap();
        assert_eq!(found.len(), 2);
        assert_sound(&db);
    });
}

/// `Closed` says that nothing was written. A writer whose batch is in the log when a close fails is told that its outcome
/// is unknown.
#[test]
fn a_batch_in_the_log_of_a_failed_close_is_unknown() {
    let rig = Rig::new();
    let (db, faults, gate, held) = gated_faults(&rig, &Options::new());
    *held.lock().unwrap() = ".wal".to_owned();
    within(MINUTE, "a failed close", move || {
        gate.shut();
        thread::scope(|scope| {
            let writer = db.clone();
            let first =
                scope.spawn(move || writer.put_with(key(1_u64), value(1_u64, 40), &WriteOptions::sync()));
            gate.wait_for_sync();
            let writer = db.clone();
            let second =
                scope.spawn(move || writer.put_with(key(2_u64), value(2_u64, 40), &WriteOptions::sync()));
            while db.get(key(2_u64)).unwrap().is_none() {
                thread::yield_now();
            }
            faults.arm(
                Fault::always()
                    .kind(CallKind::SyncData)
                    .path(|path| path.to_string_lossy().contains("MANIFEST")),
            );
            db.close().unwrap_err();
            gate.open();
            first.join().unwrap().unwrap();
            let error = second.join().unwrap().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::WriteUnknown { .. }), "{error}");
        });
        let found = content(&rig.copied().open_inline(&Options::new()).unwrap()).unwrap();
        assert_eq!(found.len(), 2);
    });
}

/// A scheduler under which nobody serves those who left a callback.
#[derive(Debug)]
struct NobodySyncs;

impl Scheduler for NobodySyncs {
    fn work_available(&self, _work: &Arc<dyn BackgroundWork>) {}
    fn progressed(&self) {}
    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, _seen: u64) {
        work.step();
    }
    fn sync_wanted(&self, _work: &Arc<dyn BackgroundWork>) {}
    fn delay(&self, _duration: Duration) {}
    fn stop(&self) {}
}

/// F2. A callback that is left over when a latched database is dropped, or closed, is told that nothing is known: its batch is in
/// the log. So is who waits after that. Mutation: `Closed`.
#[test]
fn f2_a_latched_end_leaves_commits_unknown() {
    for closes in [false, true] {
        let rig = Rig::new();
        let faults = FaultVfs::new(Arc::new(rig.order.clone()));
        let components = Components {
            scheduler: Arc::new(NobodySyncs),
            ..rig.components_on(Arc::new(faults.clone()), &small())
        };
        let db = Db::open_with("/db", small(), components).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        db.submit(one(1), &WriteOptions::new()).unwrap().on_synced(move |result| {
            tell.lock().unwrap().push(result);
        });
        faults.arm(Fault::always().kind(CallKind::Append).path_suffix(".wal").os_error(5));
        db.put(b"latches", b"1").unwrap_err();
        faults.disarm();
        assert!(told.lock().unwrap().is_empty());
        if closes {
            let commit = db.submit(WriteBatch::new(), &WriteOptions::new());
            assert!(matches!(commit.unwrap_err().kind(), ErrorKind::ReadOnly { .. }));
            db.close().unwrap_err();
        } else {
            drop(db);
        }
        let told = told.lock().unwrap();
        let [Err(error)] = &told[..] else { panic!("{told:?}") };
        assert!(matches!(error.kind(), ErrorKind::WriteUnknown { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("os error 5"), "the cause: {text}");
        assert!(content(&rig.crashed(CrashMode::Keep).open_inline(&small()).unwrap()).unwrap().len() == 1);
    }
}

/// A commit that is waited for after a close is durable, or of unknown outcome: never only `Closed`.
#[test]
fn f2_waits_across_a_close() {
    let rig = Rig::new();
    let faults = FaultVfs::new(Arc::new(rig.order.clone()));
    for fails in [false, true] {
        let components = Components {
            scheduler: Arc::new(NobodySyncs),
            ..rig.components_on(Arc::new(faults.clone()), &small())
        };
        let db = Db::open_with("/db", small(), components).unwrap();
        let commit = db.submit(one(1), &WriteOptions::new()).unwrap();
        if fails {
            faults.arm(Fault::always().kind(CallKind::SyncData).kind(CallKind::SyncAll).os_error(5));
        }
        assert_eq!(db.close().is_err(), fails);
        faults.disarm();
        match commit.wait_synced() {
            Ok(()) => assert!(!fails),
            Err(error) => assert!(fails && matches!(error.kind(), ErrorKind::WriteUnknown { .. }), "{error}"),
        }
    }
}
