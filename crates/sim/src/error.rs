//! `error`: an error at every call of the file system, once and for ever, of several kinds.
//!
//! While it lasts, a read gives the right answer or an error, and a refused write stays unseen. Then the disk is well
//! again, and the database either resumes or is opened anew; in both cases everything acknowledged must be there, and
//! stay there after a power loss.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use esker::vfs::{CallKind, CrashMode, Fault, FaultMode, FaultVfs, LostData, MemVfs, ObserveVfs, Vfs};
use esker::{Db, DbState, ErrorKind};
use esker_testkit::{History, KeySpace, Mix, Model, Op, Promise, Verdict, Workload, WriteOp};

use crate::disk::{DIR, Disk};
use crate::lab::{Case, Harness, attempt};
use crate::preset::Setup;
use crate::scheduler::{Pace, SimScheduler};
use crate::session::{assert_sound, batch, bounds, content, write, write_options};
use crate::tickets::Tickets;

/// Errors at every call.
pub const ERROR: Harness = Harness {
    name: "error",
    unit: "run",
    parts: &["once", "for-ever", "lossy-sync", "table-flip"],
    demands: &[
        "Before",
        "After",
        "Short",
        "Flip",
        "ReadsNew",
        "ReadsOld",
        "EIO",
        "ENOSPC",
        "EMFILE",
        "EROFS",
        "EACCES",
        "EDQUOT",
        "failed open",
        "failed close",
        "state open",
        "state degraded",
        "state read-only",
        "refused write",
        "write of unknown outcome",
        "visible write of unknown outcome",
        "failed read",
        "failed scan",
        "resumed",
        "resumed in between",
        "ticket durable",
        "ticket unknown",
        "reopened",
    ],
    part_demands: &[],
    demand_after: 60,
    case,
};

const ERRNOS: [(&str, i32); 6] =
    [("EIO", 5), ("ENOSPC", 28), ("EMFILE", 24), ("EROFS", 30), ("EACCES", 13), ("EDQUOT", 122)];

/// What reads show after a failed sync.
const SHOWN: [LostData; 2] = [LostData::ReadsNew, LostData::ReadsOld];

/// How a fault is armed.
#[derive(Clone, Copy, Debug)]
struct Plan {
    mode: FaultMode,
    errno: (&'static str, i32),
    forever: bool,
    /// Only syncs of files fail, and lose what was pending. Not those of directories: what a file system shows there after
    /// a failed sync, nobody could make durable any more.
    lossy_syncs: Option<LostData>,
    /// Only reads of tables: they succeed, with one bit wrong.
    table_flips: bool,
    /// After each error of the log, the database is asked to resume while the fault may still be there.
    resumes: bool,
}

/// One run of a workload with a fault in it.
struct Trial<'a, 'b> {
    case: &'a mut Case<'b>,
    setup: Setup,
    disk: Disk,
    faults: FaultVfs,
    vfs: Arc<dyn Vfs>,
    history: History,
    model: Model,
    pace: Pace,
    tickets: Tickets,
    opens: u64,
}

impl<'a, 'b> Trial<'a, 'b> {
    fn new(case: &'a mut Case<'b>, setup: &Setup, lossy_syncs: bool) -> Self {
        let (mem, order, lie) = (MemVfs::new(), case.settings.order, case.settings.lie);
        // Lossy syncs need the memory disk right below the faults; otherwise the checker sees what reaches the disk.
        let (disk, faults, mut vfs): (Disk, FaultVfs, Arc<dyn Vfs>) = if lossy_syncs {
            let faults = FaultVfs::over_mem(&mem);
            let disk = Disk::over(mem, Arc::new(faults.clone()), order, lie);
            let vfs = disk.vfs();
            (disk, faults, vfs)
        } else {
            let disk = Disk::on(mem, order, lie);
            let faults = FaultVfs::new(disk.vfs());
            (disk, faults.clone(), Arc::new(faults))
        };
        if case.settings.trace {
            vfs = Arc::new(ObserveVfs::new(vfs, Arc::new(|call, event| println!("{event:?}: {call}"))));
        }
        let (history, pace) = (History::new(setup.default), Pace::from_rng(&mut case.rng(1)));
        let (model, tickets) = (Model::new(), Tickets::new(case.seed, true));
        Trial { case, setup: setup.clone(), disk, faults, vfs, history, model, pace, tickets, opens: 0 }
    }

    fn arm(&self, nth: u64, plan: Plan) {
        let mut fault = Fault::nth(nth).mode(plan.mode).os_error(plan.errno.1);
        if plan.forever {
            fault = fault.forever();
        }
        if ["EROFS", "EACCES"].contains(&plan.errno.0) {
            // The engine takes these from a directory above its own as the sign of one that it has not made.
            fault = fault.path(|path| path.starts_with(DIR));
        }
        if plan.table_flips {
            fault = fault.kind(CallKind::Read).path_suffix(".sst");
        }
        if let Some(shown) = plan.lossy_syncs {
            fault = fault.kind(CallKind::SyncData).kind(CallKind::SyncAll).lose_pending(shown);
        }
        self.faults.arm(fault);
    }

    fn open(&mut self) -> Option<(Db, Arc<SimScheduler>)> {
        self.opens += 1;
        let scheduler = Arc::new(SimScheduler::new(self.case.seed ^ self.opens, self.pace));
        let opened =
            self.disk.open(&self.setup.options, Arc::clone(&scheduler) as _, Some(Arc::clone(&self.vfs)));
        if opened.is_err() {
            self.case.coverage.hit("failed open");
        }
        Some((opened.ok()?, scheduler))
    }

    /// Carries out the operations as far as the fault lets it. The database, if it is still open.
    fn run(&mut self, ops: impl Iterator<Item = Op>, resumes: bool) -> Option<Db> {
        let (mut db, mut scheduler) = self.open()?;
        for op in ops {
            scheduler.pump();
            self.tickets.settle(&mut self.history, &mut self.case.coverage);
            if resumes && db.background_error().is_some() {
                let resumed = db.resume().is_ok();
                self.case.coverage.hit(if resumed { "resumed in between" } else { "failed resume" });
            }
            match &op {
                Op::Write(ops, promise) => self.write(&db, ops, *promise),
                Op::Flush if db.flush().is_ok() => self.history.flushed(),
                Op::Sync if db.sync().is_ok() => self.history.synced(),
                Op::Compact(range) => drop(db.compact_range::<&[u8], _>(bounds(range))),
                Op::Get(key, _) => self.read(&db, key),
                Op::Scan(..) => self.scan(&db),
                Op::Reopen => {
                    match db.close() {
                        Ok(()) => self.history.flushed(),
                        Err(_) => self.case.coverage.hit("failed close"),
                    }
                    // An open replays what was not lost, failed writes perhaps included: the end of this run.
                    match self.open() {
                        Some(opened) if self.faults.fired() == 0 => (db, scheduler) = opened,
                        _ => return None,
                    }
                }
                _ => {}
            }
        }
        self.scan(&db);
        Some(db)
    }

    fn write(&mut self, db: &Db, ops: &[WriteOp], promise: Promise) {
        let submits = self.tickets.wants_next(promise);
        // Of a batch that was submitted, no more is promised than that the system has it.
        let promise = if submits { Promise::Buffered } else { promise };
        self.history.begin(ops, promise);
        let before = db.stats().last_sequence;
        let written = match submits {
            true => db.submit(batch(ops), &write_options(promise)).map(Some),
            false => write(db, ops, promise).map(|()| None),
        };
        let error = match written {
            Ok(commit) => {
                self.history.acknowledge();
                self.model.apply(ops);
                if let Some(commit) = commit {
                    self.tickets.take(commit, &self.history);
                }
                return;
            }
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::ReadOnly { .. } | ErrorKind::Io { .. } | ErrorKind::NoSpace { .. } => {
                self.case.coverage.hit("refused write");
                self.history.refuse();
            }
            ErrorKind::WriteUnknown { .. } => {
                self.case.coverage.hit("write of unknown outcome");
                self.history.unknown();
                if db.stats().last_sequence > before {
                    // Only its sync has failed: it shows, and a resume keeps it.
                    self.case.coverage.hit("visible write of unknown outcome");
                    self.model.apply(ops);
                }
            }
            other => panic!("a write failed in an unexpected way: {other:?}"),
        }
    }

    fn read(&mut self, db: &Db, key: &[u8]) {
        match db.get(key) {
            Ok(found) => {
                assert_eq!(found.as_deref(), self.model.get(key, self.model.now()), "get {key:?}");
            }
            Err(_) => self.case.coverage.hit("failed read"),
        }
    }

    /// A scan in each direction: a prefix of the right answer, and then the end or an error that stays.
    fn scan(&mut self, db: &Db) {
        let all = (Bound::Unbounded, Bound::Unbounded);
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
                        self.case.coverage.hit("failed scan");
                        assert!(iter.next().is_none() && iter.next_back().is_none(), "an error is sticky");
                        break;
                    }
                }
            }
        }
    }

    /// The disk is well again: out of the error without reopening, where the state allows it.
    fn resume(&mut self, db: Db, crash_now: bool) -> Result<(), String> {
        let state = db.state();
        self.case.coverage.hit(match &state {
            DbState::Open => "state open",
            DbState::Degraded { .. } => "state degraded",
            DbState::ReadOnly { .. } => "state read-only",
            DbState::Fatal { .. } => "state fatal",
            _ => "state closed",
        });
        if let DbState::Fatal { cause } = &state {
            return Err(format!("a fault of the disk must not be fatal: {cause}"));
        }
        self.disk.clock.advance(Duration::from_secs(400));
        db.resume().map_err(|error| format!("resume from {state:?}: {error}"))?;
        if !matches!(db.state(), DbState::Open) {
            return Err(format!("after resume the state is {:?}", db.state()));
        }
        self.case.coverage.hit("resumed");
        let found = content(&db).map_err(|error| format!("a scan after resume: {error}"))?;
        if found != self.model.content(self.model.now()) {
            return Err("after resume the content differs".to_owned());
        }
        // Batches of unknown outcome are settled: those that show stay, the others never will be there.
        self.tickets.settle(&mut self.history, &mut self.case.coverage);
        self.history.restart(&found);
        self.tickets.restart();
        let ops = [WriteOp::Put(b"resumed".to_vec(), b"yes".to_vec())];
        self.history.begin(&ops, Promise::Sync);
        write(&db, &ops, Promise::Sync).map_err(|error| format!("a write after resume: {error}"))?;
        self.history.acknowledge();
        if crash_now {
            // What is in memory must have been made durable by the resume itself.
            return Ok(());
        }
        db.flush().map_err(|error| format!("a flush after resume: {error}"))?;
        db.compact_range::<&[u8], _>(..).map_err(|error| format!("a compaction after resume: {error}"))?;
        assert_sound(&db);
        self.history.flushed();
        db.put("later", "1").map_err(|error| format!("a second write after resume: {error}"))?;
        self.history.begin(&[WriteOp::Put(b"later".to_vec(), b"1".to_vec())], Promise::Default);
        self.history.acknowledge();
        Ok(())
    }

    /// Opens what the process left, on a healthy disk, after a kill and after power losses.
    /// `gone` says that a failed sync has taken what only the system had, so that a kill may show less too.
    fn judge(&mut self, gone: bool) -> Result<(), String> {
        for mode in [CrashMode::Keep, CrashMode::Drop, CrashMode::from_seed(self.case.seed)] {
            let next = self.disk.crashed(mode);
            let options = &self.setup.options;
            let db = next.open_inline(options).map_err(|error| format!("{mode:?}: no open: {error}"))?;
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
            let db =
                last.open_inline(options).map_err(|error| format!("{mode:?}: no second open: {error}"))?;
            let left = content(&db).map_err(|error| format!("{mode:?}: no second scan: {error}"))?;
            if left != found {
                let (left, found) = (left.len(), found.len());
                return Err(format!(
                    "{mode:?}: of {found} keys after the fault, {left} are left after the next crash"
                ));
            }
            self.case.coverage.hit("reopened");
        }
        Ok(())
    }
}

fn ops(seed: u64, count: u64) -> impl Iterator<Item = Op> {
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
    Workload::new(seed, KeySpace::new(seed, 16, 100), mix).take(count as usize)
}

/// One workload with one plan, at each call in turn.
fn case(case: &mut Case<'_>) {
    let mut rng = case.rng(3);
    let lossy_syncs = case.part == "lossy-sync";
    let table_flips = case.part == "table-flip";
    let modes = [FaultMode::Before, FaultMode::After, FaultMode::Short][rng.below(3) as usize];
    let errno = ERRNOS[rng.below(ERRNOS.len() as u64) as usize];
    let plan = Plan {
        mode: match errno.0 {
            _ if table_flips => FaultMode::Flip,
            // A system without a handle left has done nothing, and so such a call may be tried once more.
            "EMFILE" => FaultMode::Before,
            _ => modes,
        },
        errno,
        forever: case.part == "for-ever" || ((lossy_syncs || table_flips) && rng.percent(50)),
        lossy_syncs: lossy_syncs.then(|| SHOWN[rng.below(2) as usize]),
        table_flips,
        resumes: rng.percent(30),
    };
    if let Some(shown) = plan.lossy_syncs {
        case.coverage.hit(&format!("{shown:?}"));
    }
    let count = case.ops(20 + rng.below(20));
    let setup = case.setup();
    case.coverage.hit(&format!("{:?}", plan.mode));
    case.coverage.hit(plan.errno.0);
    for nth in 1.. {
        let seed = case.seed;
        case.patience.next(format!("error of seed {seed} at call {nth}, {plan:?}"));
        case.coverage.hit("run");
        let mut trial = Trial::new(case, &setup, lossy_syncs);
        trial.arm(nth, plan);
        let result = attempt(|| {
            let db = trial.run(ops(seed, count), plan.resumes);
            if trial.faults.fired() == 0 {
                // There are no more calls than this.
                return Ok(false);
            }
            trial.faults.disarm();
            // Half of the runs end with the process, half go on.
            if let Some(db) = db.filter(|_| nth % 2 == 0) {
                trial.resume(db, nth % 4 == 0)?;
            }
            trial.tickets.end(&mut trial.history, &mut trial.case.coverage)?;
            trial.judge(plan.lossy_syncs == Some(LostData::ReadsOld)).map(|()| true)
        });
        let events = Arc::clone(&trial.disk.events);
        events.count(&mut case.coverage, (false, false), true);
        match result.and_then(|judged| judged) {
            Ok(true) => {}
            Ok(false) => return,
            Err(why) => panic!("preset {}, {plan:?} at call {nth}: {why}", setup.name),
        }
    }
}
