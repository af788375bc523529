//! A fault at every call of the file system, once and for ever, of several kinds.
//!
//! While the fault lasts, a read gives the right answer or an error, and a write that is refused stays unseen. After the
//! process has died, or the power has gone, a healthy disk gives back everything that was acknowledged, and each failed
//! write whole or not at all.

use std::io::ErrorKind as IoKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use esker::scheduler::InlineScheduler;
use esker::vfs::{CallKind, CrashMode, Fault, FaultMode, FaultVfs, LostData, ObserveVfs, Vfs};
use esker::{Db, ErrorKind, Options};
use esker_testkit::{
    Coverage, History, KeySpace, Mix, Model, Op, OrderChecker, Patience, Promise, Verdict, Workload, WriteOp,
};

use crate::support::{Replay, Rig, assert_sound, content, env, scale, small, write};

/// How a fault is armed.
#[derive(Clone, Copy, Debug)]
struct Plan {
    mode: FaultMode,
    error: IoKind,
    forever: bool,
    /// Only syncs of files fail, and lose what was pending. Not those of directories: what a file system shows there after
    /// a failed sync, nobody could make durable any more.
    lossy_syncs: Option<LostData>,
    /// After each error, the database is asked to resume.
    resume: bool,
}

const ONCE: Plan =
    Plan { mode: FaultMode::Before, error: IoKind::Other, forever: false, lossy_syncs: None, resume: false };

const PLANS: [Plan; 16] = [
    ONCE,
    Plan { error: IoKind::StorageFull, forever: true, ..ONCE },
    Plan { mode: FaultMode::After, ..ONCE },
    Plan { mode: FaultMode::After, error: IoKind::PermissionDenied, forever: true, ..ONCE },
    Plan { mode: FaultMode::Short, error: IoKind::StorageFull, ..ONCE },
    Plan { mode: FaultMode::Short, forever: true, ..ONCE },
    Plan { lossy_syncs: Some(LostData::ReadsNew), ..ONCE },
    Plan { mode: FaultMode::After, forever: true, lossy_syncs: Some(LostData::ReadsNew), ..ONCE },
    Plan { mode: FaultMode::After, lossy_syncs: Some(LostData::ReadsOld), ..ONCE },
    Plan { forever: true, lossy_syncs: Some(LostData::ReadsOld), ..ONCE },
    Plan { resume: true, ..ONCE },
    Plan { mode: FaultMode::After, error: IoKind::StorageFull, resume: true, ..ONCE },
    Plan { mode: FaultMode::Short, resume: true, ..ONCE },
    Plan { lossy_syncs: Some(LostData::ReadsNew), resume: true, ..ONCE },
    Plan { mode: FaultMode::After, lossy_syncs: Some(LostData::ReadsOld), resume: true, ..ONCE },
    Plan { lossy_syncs: Some(LostData::ReadsOld), resume: true, ..ONCE },
];

/// One run of a workload with a fault in it.
struct Trial {
    rig: Rig,
    faults: FaultVfs,
    vfs: Arc<dyn Vfs>,
    options: Options,
    history: History,
    model: Model,
    coverage: Coverage,
}

impl Trial {
    fn new(lossy_syncs: bool) -> Self {
        let mut rig = Rig::new();
        // Lossy syncs need the memory disk right below the faults; otherwise the checker sees what reaches the disk.
        let (faults, vfs): (FaultVfs, Arc<dyn Vfs>) = if lossy_syncs {
            let faults = FaultVfs::over_mem(&rig.mem);
            rig.order = OrderChecker::over(Arc::new(faults.clone()), "/db");
            (faults, Arc::new(rig.order.clone()))
        } else {
            let faults = FaultVfs::new(Arc::new(rig.order.clone()));
            (faults.clone(), Arc::new(faults))
        };
        let vfs: Arc<dyn Vfs> = if std::env::var("ESKER_TRACE").is_ok() {
            Arc::new(ObserveVfs::new(vfs, Arc::new(|call, event| println!("{event:?}: {call}"))))
        } else {
            vfs
        };
        Trial {
            rig,
            faults,
            vfs,
            options: small(),
            history: History::new(Promise::Buffered),
            model: Model::new(),
            coverage: Coverage::default(),
        }
    }

    fn arm(&self, nth: u64, plan: Plan) {
        let mut fault = Fault::nth(nth).mode(plan.mode).error(plan.error);
        if plan.forever {
            fault = fault.forever();
        }
        if let Some(shown) = plan.lossy_syncs {
            fault = fault.kind(CallKind::SyncData).kind(CallKind::SyncAll).lose_pending(shown);
        }
        self.faults.arm(fault);
    }

    fn open(&mut self) -> Option<Db> {
        let mut components = self.rig.components_on(Arc::clone(&self.vfs), &self.options);
        components.scheduler = Arc::new(InlineScheduler::new());
        let opened = Db::open_with("/db", self.options.clone(), components);
        if opened.is_err() {
            self.coverage.hit("failed open");
        }
        opened.ok()
    }

    /// Carries out the operations as far as the fault lets it.
    fn run(&mut self, ops: impl Iterator<Item = Op>, resume: bool) {
        let Some(mut db) = self.open() else { return };
        for op in ops {
            if resume && db.background_error().is_some() {
                self.coverage.hit(if db.resume().is_ok() { "resumed" } else { "failed resume" });
            }
            match &op {
                Op::Write(ops, promise) => self.write(&db, ops, *promise),
                Op::Flush if db.flush().is_ok() => self.history.flushed(),
                Op::Sync if db.sync().is_ok() => self.history.synced(),
                Op::Compact(range) => {
                    let bounds = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
                    let _ = db.compact_range::<&[u8], _>(bounds);
                }
                Op::Get(key, _) => self.read(&db, key),
                Op::Scan(..) => self.scan(&db),
                Op::Reopen => {
                    match db.close() {
                        Ok(()) => self.history.flushed(),
                        Err(_) => self.coverage.hit("failed close"),
                    }
                    // An open replays what was not lost, failed writes perhaps included: the end of this run.
                    match self.open() {
                        Some(opened) if self.faults.fired() == 0 => db = opened,
                        _ => return,
                    }
                }
                _ => {}
            }
        }
        self.scan(&db);
        if db.background_error().is_some() {
            self.coverage.hit("latched");
        }
    }

    fn write(&mut self, db: &Db, ops: &[WriteOp], promise: Promise) {
        self.history.begin(ops, promise);
        match write(db, ops, promise) {
            Ok(()) => {
                self.history.acknowledge();
                self.model.apply(ops);
            }
            Err(error) => match error.kind() {
                ErrorKind::ReadOnly { .. } | ErrorKind::Io { .. } | ErrorKind::NoSpace { .. } => {
                    self.coverage.hit("refused write");
                    self.history.refuse();
                }
                ErrorKind::WriteUnknown { .. } => {
                    self.coverage.hit("write of unknown outcome");
                    self.history.unknown();
                }
                other => panic!("a write failed in an unexpected way: {other:?}"),
            },
        }
    }

    fn read(&mut self, db: &Db, key: &[u8]) {
        match db.get(key) {
            Ok(found) => assert_eq!(found.as_deref(), self.model.get(key, self.model.now()), "get {key:?}"),
            Err(_) => self.coverage.hit("failed read"),
        }
    }

    /// A scan in each direction: a prefix of the right answer, and then the end or an error that stays (ER08).
    fn scan(&mut self, db: &Db) {
        let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
        for backward in [false, true] {
            let mut wanted = self.model.range(&all, self.model.now());
            let mut iter = db.iter();
            loop {
                let (found, wanted) = if backward {
                    (iter.next_back(), wanted.next_back())
                } else {
                    (iter.next(), wanted.next())
                };
                match found {
                    Some(Ok((key, value))) => assert_eq!(Some((&key[..], &value[..])), wanted, "a scan"),
                    None => {
                        assert_eq!(wanted, None, "a scan that ended early");
                        break;
                    }
                    Some(Err(_)) => {
                        self.coverage.hit("failed scan");
                        assert!(iter.next().is_none() && iter.next_back().is_none(), "an error is sticky");
                        break;
                    }
                }
            }
        }
    }

    /// Opens what the process left, on a healthy disk, after a kill and after a power loss.
    /// `gone` says that a failed sync has taken what only the system had, so that a kill may show less too.
    fn judge(&mut self, gone: bool) -> Result<(), String> {
        self.faults.disarm();
        for mode in [CrashMode::Keep, CrashMode::Drop, CrashMode::from_seed(self.history.len() as u64)] {
            let next = self.rig.crashed(mode);
            let db =
                next.open_inline(&self.options).map_err(|error| format!("{mode:?}: no open: {error}"))?;
            let mut found = content(&db).map_err(|error| format!("{mode:?}: no scan: {error}"))?;
            if let Verdict::Wrong(why) = self.history.judge(&found, mode != CrashMode::Keep || gone) {
                return Err(format!("{mode:?}: {why}"));
            }
            assert_sound(&db);
            db.put_with(b"after", b"all", &esker::WriteOptions::sync())
                .map_err(|error| format!("{error}"))?;
            found.insert(b"after".to_vec(), b"all".to_vec());
            drop(db);
            let last = next.crashed(CrashMode::Drop);
            let db = last
                .open_inline(&self.options)
                .map_err(|error| format!("{mode:?}: no second open: {error}"))?;
            if content(&db).ok().as_ref() != Some(&found) {
                return Err(format!("{mode:?}: what was there after the fault is gone after the next crash"));
            }
        }
        Ok(())
    }
}

fn ops(seed: u64) -> impl Iterator<Item = Op> {
    let mix = Mix {
        writes: 60,
        gets: 10,
        scans: 4,
        flushes: 12,
        compactions: 8,
        reopens: 2,
        value_len_max: if seed.is_multiple_of(2) { 3000 } else { 300 },
        ..Mix::changes()
    };
    Workload::new(seed, KeySpace::new(seed, 16, 100), mix).take(30 + (seed % 20) as usize)
}

/// All faults of one plan in one workload.
fn run(seed: u64, plan: Plan, only: Option<u64>, patience: &Patience) -> Coverage {
    let mut coverage = Coverage::default();
    let mut nth = only.unwrap_or(1);
    loop {
        let _replay = Replay(format!(
            "ESKER_SEED={seed} ESKER_NTH={nth} cargo test -p esker --test it fault::replay -- --nocapture # {plan:?}"
        ));
        patience.next(format!("seed {seed}, call {nth}, {plan:?}"));
        let mut trial = Trial::new(plan.lossy_syncs.is_some());
        trial.arm(nth, plan);
        let result = catch_unwind(AssertUnwindSafe(|| trial.run(ops(seed), plan.resume)));
        assert!(result.is_ok(), "a panic at call {nth} with {plan:?}");
        if trial.faults.fired() == 0 && only.is_none() {
            // There are no more calls than this.
            return coverage;
        }
        let gone = plan.lossy_syncs == Some(LostData::ReadsOld);
        trial.judge(gone).unwrap_or_else(|why| panic!("fault at call {nth} with {plan:?}: {why}"));
        coverage.merge(&trial.coverage);
        coverage.hit("run");
        if only.is_some() {
            return coverage;
        }
        nth += 1;
    }
}

fn runs(part: usize) {
    let patience = Patience::new(Duration::from_secs(60));
    let mut coverage = Coverage::default();
    for seed in 0..3 * scale() {
        for plan in PLANS.iter().skip(part).step_by(2) {
            coverage.merge(&run(seed, *plan, None, &patience));
        }
    }
    println!("{coverage}");
    coverage.demand(&["failed open", "failed close", "latched", "refused write"]);
    coverage.demand(&["write of unknown outcome", "failed read", "failed scan", "resumed"]);
    assert!(coverage.get("run") > 1000, "too few runs");
}

/// In two halves, for the two cores.
#[test]
fn er11_a_fault_at_every_call_once() {
    runs(0);
}

#[test]
fn er11_a_fault_at_every_call_for_ever() {
    runs(1);
}

/// One fault under every plan, as the environment says: what a failing run prints.
#[test]
fn replay() {
    let patience = Patience::new(Duration::from_secs(60));
    for plan in PLANS {
        run(env("ESKER_SEED", 1), plan, Some(env("ESKER_NTH", 40)), &patience);
    }
}

/// ER03: no panic and a typed error when the disk is full, whichever file it hits; after space is freed and a reopen,
/// everything acknowledged is there. Mutation: `Error::io` without its case for a full device.
#[test]
fn er03_a_full_disk_gives_typed_errors() {
    for quota in (2_000..60_000).step_by(1_900) {
        let rig = Rig::new();
        rig.mem.set_quota(quota);
        let mut written = 0_u64;
        match rig.open_inline(&small()) {
            Ok(db) => {
                while written < 2000 {
                    match db.put_with(format!("k{written:05}"), [b'v'; 100], &esker::WriteOptions::sync()) {
                        Ok(()) => written += 1,
                        Err(error) => {
                            let text = format!("{error:?}");
                            assert!(text.contains("NoSpace"), "not told that the disk is full: {text}");
                            break;
                        }
                    }
                }
                for number in 0..written {
                    assert!(db.get(format!("k{number:05}")).expect("reads go on").is_some(), "{number}");
                }
            }
            Err(error) => assert!(error.is_no_space(), "{error:?}"),
        }
        rig.mem.set_quota(u64::MAX);
        let db = rig.open_inline(&small()).expect("it opens when there is room again");
        for number in 0..written {
            assert!(db.get(format!("k{number:05}")).unwrap().is_some(), "{number} of {written} is lost");
        }
        assert_sound(&db);
    }
}

/// A count of the calls that tells whether the workloads are worth their name.
#[test]
fn the_workloads_make_calls_of_every_kind() {
    let counting = esker::vfs::CountingVfs::new(Arc::new(esker::vfs::MemVfs::new()));
    let mut trial = Trial::new(false);
    trial.vfs = Arc::new(counting.clone());
    (0..3).for_each(|seed| {
        trial.run(ops(seed), false);
    });
    let counts = counting.counts();
    for kind in [CallKind::Create, CallKind::Append, CallKind::SyncData, CallKind::SyncAll, CallKind::SyncDir]
    {
        assert!(counts.calls(kind) > 0, "{kind:?}");
    }
    for kind in [CallKind::Rename, CallKind::Remove, CallKind::Read, CallKind::List, CallKind::Lock] {
        assert!(counts.calls(kind) > 0, "{kind:?}");
    }
}
