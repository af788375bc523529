//! `model`: random operations on a database and on the model, every answer compared, under all presets and random
//! options, with background work a step at a time. `metamorphic`: the same operations under six sets of options, all
//! answers equal; no model there.

use std::sync::Arc;

use esker::scheduler::ThreadScheduler;
use esker::vfs::CrashMode;
use esker::{Background, Db, Options};
use esker_base::SplitMix64;
use esker_testkit::{History, KeySpace, Mix, Op, Verdict, Workload, WriteOp};

use crate::disk::Disk;
use crate::lab::{Case, Harness};
use crate::preset::Setup;
use crate::scheduler::{Pace, SimScheduler};
use crate::session::{Content, ModelSession, Session, assert_sound, content, difference};
use crate::tickets::Tickets;

/// Random operations against the model.
pub const MODEL: Harness = Harness {
    name: "model",
    unit: "operation",
    parts: &["model"],
    demands: &[
        "put",
        "delete",
        "batch",
        "empty batch",
        "get",
        "get_with",
        "multi_get",
        "scan forward",
        "scan backward",
        "scan from both ends",
        "prefix",
        "cursor",
        "open cursor",
        "move cursor",
        "close cursor",
        "take snapshot",
        "drop snapshot",
        "check snapshot",
        "flush",
        "compact",
        "sync",
        "reopen",
        "crash",
        "kill",
        "flushed",
        "moved",
        "rewritten",
        "level 2",
        "level 3",
        "level 4",
        "level 5",
        "level 6",
        "snapshot over a compaction",
        "cursor over a compaction",
        "replayed",
        "torn tail",
        "ticket durable",
        "random options",
        "background steps",
        "waits",
    ],
    part_demands: &[],
    demand_after: 300,
    case: model,
};

/// The same operations under several sets of options.
pub const METAMORPHIC: Harness = Harness {
    name: "metamorphic",
    unit: "operation",
    parts: &["metamorphic"],
    demands: &[
        "put",
        "delete",
        "batch",
        "get",
        "cursor",
        "check snapshot",
        "reopen",
        "flush",
        "compact",
        "level 6",
    ],
    part_demands: &[],
    demand_after: 100,
    case: metamorphic,
};

/// A database with all that a case of the model test knows of it.
struct Bench {
    disk: Disk,
    setup: Setup,
    scheduler: Arc<SimScheduler>,
    pace: Pace,
    session: Option<Session>,
    model: ModelSession,
    history: History,
    tickets: Tickets,
    opens: u64,
    seed: u64,
}

impl Bench {
    fn new(case: &Case<'_>) -> Self {
        let setup = case.setup();
        let pace = Pace::from_rng(&mut case.rng(1));
        let mut bench = Bench {
            disk: Disk::new(case.settings),
            scheduler: Arc::new(SimScheduler::new(0, pace)),
            pace,
            session: None,
            model: ModelSession::new(1),
            history: History::new(setup.default),
            tickets: Tickets::new(case.seed, false),
            setup,
            opens: 0,
            seed: case.seed,
        };
        bench.open();
        bench
    }

    fn open(&mut self) {
        self.opens += 1;
        self.scheduler = Arc::new(SimScheduler::new(self.seed ^ (self.opens << 32), self.pace));
        let db = self.disk.open(&self.setup.options, Arc::clone(&self.scheduler) as _, None);
        self.session = Some(Session::new(db.expect("the database opens")));
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("open between operations")
    }

    fn run(&mut self, op: &Op, case: &mut Case<'_>) {
        self.scheduler.pump();
        self.tickets.settle(&mut self.history, &mut case.coverage);
        match op {
            Op::Write(ops, promise) if self.tickets.wants_next(*promise) => {
                let db = self.session.as_ref().expect("open between operations").db();
                let submitted = self.tickets.submit(db, ops, *promise, &mut self.history);
                submitted.unwrap_or_else(|error| panic!("{op:?}, submitted: {error}"));
                self.model.run(0, op);
            }
            Op::Reopen => self.reopen(case),
            Op::Crash(seed) => self.crash(CrashMode::from_seed(*seed), case),
            Op::Kill => self.crash(CrashMode::Keep, case),
            _ => {
                if let Op::Write(ops, promise) = op {
                    self.history.begin(ops, *promise);
                }
                let found = self.session().run(op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
                match op {
                    Op::Write(..) => self.history.acknowledge(),
                    Op::Sync => self.history.synced(),
                    Op::Flush => self.all_is_flushed(),
                    _ => {}
                }
                let wanted = self.model.run(0, op);
                assert!(found == wanted, "{op:?}: {}", difference(&found, &wanted));
            }
        }
        let holds = self.session().holds();
        self.disk.events.count(&mut case.coverage, holds, false);
    }

    /// No crash can undo what is there, so the history may start here.
    fn all_is_flushed(&mut self) {
        let now = self.model.model.content(self.model.model.now());
        self.history = History::new(self.setup.default);
        self.history.restart(&now);
        self.tickets.restart();
    }

    /// Of a database that has ended, whoever waited has been told.
    fn end_tickets(&mut self, case: &mut Case<'_>) {
        let ended = self.tickets.end(&mut self.history, &mut case.coverage);
        ended.unwrap_or_else(|why| panic!("{why}"));
    }

    fn count_steps(&self, case: &mut Case<'_>) {
        case.coverage.add("background steps", self.scheduler.steps());
        case.coverage.add("waits", self.scheduler.waits());
    }

    fn reopen(&mut self, case: &mut Case<'_>) {
        self.count_steps(case);
        self.model.let_go();
        let db = self.session.take().expect("open").let_go();
        db.close().expect("close");
        self.end_tickets(case);
        self.open();
        self.all_is_flushed();
        self.check();
    }

    fn crash(&mut self, mode: CrashMode, case: &mut Case<'_>) {
        self.count_steps(case);
        let next = self.disk.crashed(mode);
        self.model.let_go();
        self.session = None;
        // What the old disk's database says from here on is not of the image.
        self.tickets.restart();
        self.end_tickets(case);
        self.disk = next;
        self.open();
        let found = content(self.session().db()).expect("a scan after a crash");
        if let Verdict::Wrong(why) = self.history.judge(&found, mode != CrashMode::Keep) {
            panic!("after a crash {mode:?}: {why}");
        }
        let ops: Vec<WriteOp> =
            found.iter().map(|(key, value)| WriteOp::Put(key.clone(), value.clone())).collect();
        self.model = ModelSession::new(1);
        self.model.model.apply(&ops);
        self.all_is_flushed();
        assert_sound(self.session().db());
    }

    fn check(&mut self) {
        let wanted = self.model.model.content(self.model.model.now());
        let keys: Vec<Vec<u8>> = self.model.model.keys().map(<[u8]>::to_vec).collect();
        check_content(self.session().db(), &wanted, keys.iter());
    }
}

/// Compares everything in three ways, deleted keys included, and the files with each other.
fn check_content<'a>(db: &Db, wanted: &Content, keys: impl Iterator<Item = &'a Vec<u8>>) {
    let found = content(db).expect("a full scan");
    if found != *wanted {
        let keys = found.keys().chain(wanted.keys());
        let key = keys.into_iter().find(|key| found.get(*key) != wanted.get(*key));
        panic!("the content differs at {key:?}");
    }
    for key in keys {
        let found = db.get(key).expect("get");
        assert_eq!(found.as_deref(), wanted.get(key).map(Vec::as_slice), "get {key:?}");
    }
    assert_sound(db);
}

fn keys_of(case: &Case<'_>) -> KeySpace {
    KeySpace::new(case.seed, [12, 40, 200, 800][(case.rng(2).below(4)) as usize], 3000)
}

/// A mix of its own for every case: where some operations are rare and others frequent, they meet in ways that an even
/// mix never gives. Every other case crashes now and then, and so is short between two crashes.
fn swarm(rng: &mut SplitMix64) -> Mix {
    let mix = Mix { crashes: rng.below(2) * 2, ..Mix::everything() };
    if rng.percent(40) {
        return mix;
    }
    let mut weight = |usual: u64| (usual * [0, 1, 4, 10, 30][rng.below(5) as usize]).div_ceil(4);
    Mix {
        writes: weight(mix.writes).max(100),
        gets: weight(mix.gets),
        scans: weight(mix.scans).min(120),
        cursors: weight(mix.cursors).min(400),
        snapshots: weight(mix.snapshots).min(100),
        flushes: weight(mix.flushes).min(20),
        compactions: weight(mix.compactions).min(5),
        syncs: weight(mix.syncs),
        reopens: weight(mix.reopens).min(4),
        delete_percent: weight(20).min(80),
        batch_percent: weight(15).min(80),
        // Each unlogged batch doubles the states that a crash may leave, until a flush; the oracle follows them all.
        no_log_permille: if mix.crashes > 0 { 0 } else { mix.no_log_permille },
        ..mix
    }
}

fn model(case: &mut Case<'_>) {
    let mut bench = Bench::new(case);
    case.coverage.add("random options", u64::from(bench.setup.name == "random"));
    let mix = swarm(&mut case.rng(3));
    let ops = case.ops(3000);
    for (number, op) in (0..ops).zip(Workload::new(case.seed, keys_of(case), mix)) {
        if case.settings.trace {
            println!("{number}: {op:?}");
        }
        case.coverage.hit(op.name());
        case.coverage.hit("operation");
        bench.run(&op, case);
        if number % 1000 == 999 {
            bench.check();
        }
    }
    bench.check();
    bench.count_steps(case);
    bench.model.let_go();
    bench.session.take().expect("open").let_go().close().expect("close");
    bench.end_tickets(case);
    case.coverage.hit("full check");
}

/// One of the databases of a metamorphic case.
struct Variant {
    name: String,
    disk: Disk,
    options: Options,
    /// `None` for real threads.
    pace: Option<Pace>,
    scheduler: Option<Arc<SimScheduler>>,
    session: Option<Session>,
}

impl Variant {
    fn new(case: &Case<'_>, number: u64) -> Self {
        let mut rng = case.rng(10 + number);
        let (name, options, pace) = match number {
            // The simplest: nothing is flushed, unless asked for.
            0 => (
                "default".to_owned(),
                Options::new().cache_size(1 << 20).background(Background::Inline),
                Some(Pace::AtOnce),
            ),
            1 => {
                let setup = Setup::choose(case.settings.preset.as_deref(), case.seed);
                (format!("{} on threads", setup.name), setup.options.background(Background::Threads(2)), None)
            }
            _ => {
                let setup = Setup::choose(None, rng.next_u64());
                (setup.name.to_owned(), setup.options, Some(Pace::from_rng(&mut rng)))
            }
        };
        let mut variant =
            Variant { name, disk: Disk::new(case.settings), options, pace, scheduler: None, session: None };
        variant.open(rng.next_u64());
        variant
    }

    fn open(&mut self, seed: u64) {
        let db = match self.pace {
            Some(pace) => {
                let scheduler = Arc::new(SimScheduler::new(seed, pace));
                self.scheduler = Some(Arc::clone(&scheduler));
                self.disk.open(&self.options, scheduler, None)
            }
            None => self.disk.open(&self.options, Arc::new(ThreadScheduler::new(2)), None),
        };
        self.session = Some(Session::new(db.expect("the database opens")));
    }

    fn reopen(&mut self, seed: u64) {
        let db = self.session.take().expect("open").let_go();
        db.close().expect("close");
        self.open(seed);
    }
}

fn metamorphic(case: &mut Case<'_>) {
    let mut variants: Vec<Variant> = (0..6).map(|number| Variant::new(case, number)).collect();
    let ops = case.ops(1500);
    for (number, op) in (0..ops).zip(Workload::new(case.seed, keys_of(case), Mix::everything())) {
        case.coverage.hit(op.name());
        case.coverage.hit("operation");
        let mut first = None;
        for variant in &mut variants {
            if let Some(scheduler) = &variant.scheduler {
                scheduler.pump();
            }
            if op == Op::Reopen {
                variant.reopen(number);
                continue;
            }
            let session = variant.session.as_mut().expect("open");
            let answer = session.run(&op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
            let holds = session.holds();
            variant.disk.events.count(&mut case.coverage, holds, false);
            match &first {
                None => first = Some(answer),
                Some(first) => assert!(
                    answer == *first,
                    "operation {number} {op:?}: {} differs from default: {}",
                    variant.name,
                    difference(&answer, first)
                ),
            }
        }
    }
    let mut first: Option<Content> = None;
    for variant in &mut variants {
        let db = variant.session.take().expect("open").let_go();
        let found = content(&db).expect("a full scan");
        assert!(first.as_ref().is_none_or(|first| *first == found), "the end of {} differs", variant.name);
        assert_sound(&db);
        first = Some(found);
        db.close().expect("close");
    }
}
