//! [`Driver`]: carries out the operations of a [`Workload`](esker_testkit::Workload) on a database and on the model, and
//! compares every answer.

use std::sync::{Arc, Mutex};

use esker::vfs::CrashMode;
use esker::{Db, Event, Options};
use esker_sim::session::{ModelSession, SNAPSHOTS_MAX, Session, difference};
use esker_testkit::{Coverage, History, Op, Promise, Verdict, WriteOp};

use super::{Content, Rig, assert_sound, content};

/// Prints one command that replays a random test, when it fails.
pub struct Replay(pub String);

impl Drop for Replay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("replay with: {}", self.0);
        }
    }
}

/// A database, the model of it, and what both hold open.
pub struct Driver {
    pub rig: Rig,
    pub options: Options,
    session: Option<Session>,
    pub model: ModelSession,
    pub coverage: Coverage,
    /// What crashes may leave.
    pub history: History,
    default: Promise,
    /// Background threads; 0 for all work on the caller's.
    threads: usize,
    /// Where concurrent readers take the open database from.
    shared: Shared,
}

/// The open database, for readers on other threads. Empty while it is closed.
pub type Shared = Arc<Mutex<Option<Db>>>;

impl Driver {
    /// A new database on the rig's disk. `default` is what the options say about durability.
    pub fn new(rig: Rig, options: Options, default: Promise) -> Self {
        Self::with_threads(rig, options, default, 0)
    }

    /// The same with background threads.
    pub fn with_threads(rig: Rig, options: Options, default: Promise, threads: usize) -> Self {
        let mut driver = Driver {
            rig,
            options,
            session: None,
            model: ModelSession::new(1),
            coverage: Coverage::default(),
            history: History::new(default),
            default,
            threads,
            shared: Shared::default(),
        };
        driver.open();
        driver
    }

    /// Where concurrent readers find the open database. They give it back soon, since a reopen waits for that.
    pub fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    pub fn db(&self) -> &Db {
        self.session.as_ref().expect("the database is open between operations").db()
    }

    /// Carries out one operation and compares.
    pub fn run(&mut self, op: &Op) {
        self.coverage.hit(op.name());
        match op {
            Op::Reopen => self.reopen(),
            Op::Crash(seed) => self.crash(CrashMode::from_seed(*seed)),
            Op::Kill => self.crash(CrashMode::Keep),
            _ => self.compare(op),
        }
        self.watch();
    }

    fn compare(&mut self, op: &Op) {
        if let Op::Write(ops, promise) = op {
            self.history.begin(ops, *promise);
        }
        let session = self.session.as_mut().expect("the database is open between operations");
        let found = session.run(op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        match op {
            Op::Write(..) => self.history.acknowledge(),
            Op::Sync => self.history.synced(),
            Op::Flush => self.all_is_flushed(),
            Op::Get(..) => self.coverage.add("found", found.iter().flatten().count() as u64),
            _ => {}
        }
        let wanted = self.model.run(0, op);
        assert!(found == wanted, "{op:?}: {}", difference(&found, &wanted));
    }

    /// Gives up all that is held open, in the database and in the model.
    fn let_go(&mut self) {
        self.model.let_go();
    }

    fn all_is_flushed(&mut self) {
        // No crash can undo what is there, so the history may start here.
        self.history = History::new(self.default);
        self.history.restart(&self.model.model.content(self.model.model.now()));
    }

    fn close(&mut self) {
        self.let_go();
        self.hide();
        self.session.take().expect("open").let_go().close().expect("close");
    }

    fn reopen(&mut self) {
        self.close();
        self.open();
        self.all_is_flushed();
        self.check();
    }

    fn open(&mut self) {
        let db = match self.threads {
            0 => self.rig.open_inline(&self.options),
            threads => self.rig.open_threads(&self.options, threads),
        };
        let db = db.expect("the database opens");
        *self.shared.lock().expect("no reader panicked") = Some(db.clone());
        self.session = Some(Session::new(db));
    }

    /// Takes the database from the readers.
    fn hide(&mut self) {
        *self.shared.lock().expect("no reader panicked") = None;
    }

    /// Crashes, opens again, and takes what is found as the new state if it is one that may be there.
    fn crash(&mut self, mode: CrashMode) {
        let next = self.rig.crashed(mode);
        self.let_go();
        self.hide();
        self.session = None;
        self.rig = next;
        self.open();
        for event in self.rig.events.take() {
            if let Event::Opened {
                report: esker::RecoveryReport { replayed_batches, dropped_bytes, .. },
                ..
            } = event
            {
                self.coverage.add("replayed", replayed_batches);
                self.coverage.add("torn tail", u64::from(dropped_bytes > 0));
            }
        }
        let found = content(self.db()).expect("a scan after a crash");
        match self.history.judge(&found, mode != CrashMode::Keep) {
            Verdict::Prefix(_) => self.accept(&found),
            Verdict::Wrong(why) => panic!("after a crash {mode:?}: {why}"),
        }
        assert_sound(self.db());
    }

    fn accept(&mut self, found: &Content) {
        let ops: Vec<WriteOp> =
            found.iter().map(|(key, value)| WriteOp::Put(key.clone(), value.clone())).collect();
        self.model = ModelSession::new(1);
        self.model.model.apply(&ops);
        self.history = History::new(self.default);
        self.history.restart(found);
    }

    /// Notes what background work was done under which circumstances.
    fn watch(&mut self) {
        let (snapshots, cursor) = self.session.as_ref().map(Session::holds).unwrap_or_default();
        for event in self.rig.events.take() {
            match event {
                Event::Flushed { .. } => self.coverage.hit("flushed"),
                Event::Compacted { to_level, moved, .. } => {
                    self.coverage.hit(if moved { "moved" } else { "rewritten" });
                    self.coverage.hit(&format!("level {to_level}"));
                    self.coverage.add("snapshot over a compaction", u64::from(snapshots));
                    self.coverage.add("cursor over a compaction", u64::from(cursor));
                }
                Event::BackgroundError { error, .. } => panic!("a background error: {error}"),
                _ => {}
            }
        }
    }

    /// Compares everything: the present in three ways, each held snapshot, and the files with each other.
    pub fn check(&mut self) {
        let model = &self.model.model;
        let wanted = model.content(model.now());
        let found = content(self.db()).expect("a full scan");
        assert!(found == wanted, "the content differs: {} keys, not {}", found.len(), wanted.len());
        for key in model.keys() {
            let found = self.db().get(key).expect("get");
            assert_eq!(found.as_deref(), wanted.get(key).map(Vec::as_slice), "get {key:?}");
        }
        (0..SNAPSHOTS_MAX).for_each(|index| self.compare(&Op::CheckSnapshot(index)));
        assert_sound(self.db());
    }

    /// Checks, lets go of everything and closes.
    pub fn finish(mut self) -> Coverage {
        self.check();
        self.close();
        self.coverage
    }
}
