//! [`Driver`]: carries out the operations of a [`Workload`](esker_testkit::Workload) on a database and on the model, and
//! compares every answer.

use std::ops::Bound;
use std::sync::{Arc, Mutex};

use esker::vfs::CrashMode;
use esker::{Cursor, Db, DbIterator, Event, Options, Slice, Snapshot};
use esker_testkit::{
    Coverage, Direction, History, KeyRange, Model, ModelCursor, Move, Op, Promise, Verdict, View, WriteOp,
    prefix_range,
};

use super::{Content, Rig, assert_sound, content, snapshot_content, write};

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
    pub db: Option<Db>,
    pub model: Model,
    pub coverage: Coverage,
    /// What crashes may leave.
    pub history: History,
    default: Promise,
    snapshots: Vec<(Snapshot, u64)>,
    cursor: Option<(Cursor, ModelCursor)>,
    /// Background threads; 0 for all work on the caller's.
    threads: usize,
    /// Where concurrent readers take the open database from.
    shared: Shared,
    /// Compactions at the last look, to know whether a held snapshot has lived through one.
    compactions_seen: u64,
}

/// The open database, for readers on other threads. Empty while it is closed.
pub type Shared = Arc<Mutex<Option<Db>>>;

/// More snapshots than this are not held.
const SNAPSHOTS_MAX: usize = 12;

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
            db: None,
            model: Model::new(),
            coverage: Coverage::default(),
            history: History::new(default),
            default,
            snapshots: Vec::new(),
            cursor: None,
            threads,
            shared: Shared::default(),
            compactions_seen: 0,
        };
        driver.open();
        driver
    }

    /// Where concurrent readers find the open database. They give it back soon, since a reopen waits for that.
    pub fn shared(&self) -> Shared {
        Arc::clone(&self.shared)
    }

    pub fn db(&self) -> &Db {
        self.db.as_ref().expect("the database is open between operations")
    }

    /// Carries out one operation and compares.
    pub fn run(&mut self, op: &Op) {
        self.coverage.hit(op.name());
        match op {
            Op::Write(ops, promise) => self.write(ops, *promise),
            Op::Get(key, view) => {
                let found = match self.view(*view) {
                    (Some(snapshot), at) => (snapshot.get(key), at),
                    (None, at) => (self.db().get(key), at),
                };
                let found = found.0.expect("get");
                assert_eq!(found.as_deref(), self.model.get(key, self.view(*view).1), "get {key:?}");
                self.coverage.add("found", u64::from(found.is_some()));
            }
            Op::GetWith(key) => {
                let found = self.db().get_with(key, <[u8]>::to_vec).expect("get_with");
                assert_eq!(found.as_deref(), self.model.get(key, self.model.now()), "get_with {key:?}");
            }
            Op::MultiGet(keys) => {
                let found = self.db().multi_get(keys);
                assert_eq!(found.len(), keys.len());
                for (key, found) in keys.iter().zip(found) {
                    let found = found.expect("multi_get");
                    assert_eq!(found.as_deref(), self.model.get(key, self.model.now()), "multi_get {key:?}");
                }
            }
            Op::Scan(range, direction, view, limit) => self.scan(range, *direction, *view, *limit),
            Op::Prefix(prefix, direction, view) => {
                let (snapshot, at) = self.view(*view);
                let iter =
                    snapshot.map_or_else(|| self.db().prefix(prefix), |snapshot| snapshot.prefix(prefix));
                self.compare_scan(iter, &prefix_range(prefix), *direction, at, usize::MAX);
            }
            Op::Cursor(view, moves) => {
                let (snapshot, at) = self.view(*view);
                let cursor = snapshot.map_or_else(|| self.db().cursor(), Snapshot::cursor).expect("cursor");
                let mut pair = (cursor, ModelCursor::new(at));
                moves.iter().for_each(|step| compare_move(&mut pair, step, &self.model));
            }
            Op::OpenCursor => {
                self.close_cursor();
                let at = self.model.snapshot();
                self.cursor = Some((self.db().cursor().expect("cursor"), ModelCursor::new(at)));
            }
            Op::MoveCursor(moves) => {
                if let Some(pair) = &mut self.cursor {
                    moves.iter().for_each(|step| compare_move(pair, step, &self.model));
                }
            }
            Op::CloseCursor => self.close_cursor(),
            Op::TakeSnapshot => {
                if self.snapshots.len() < SNAPSHOTS_MAX {
                    self.snapshots.push((self.db().snapshot(), self.model.snapshot()));
                }
            }
            Op::DropSnapshot(index) => {
                if !self.snapshots.is_empty() {
                    let (_, at) = self.snapshots.swap_remove(index % self.snapshots.len());
                    self.model.release(at);
                }
            }
            Op::CheckSnapshot(index) => {
                if !self.snapshots.is_empty() {
                    let (snapshot, at) = &self.snapshots[index % self.snapshots.len()];
                    let found = snapshot_content(snapshot).expect("a scan of a snapshot");
                    assert!(found == self.model.content(*at), "the content of a held snapshot has changed");
                }
            }
            Op::Flush => {
                self.db().flush().expect("flush");
                self.all_is_flushed();
            }
            Op::Compact(range) => {
                let bounds = (as_slice(&range.0), as_slice(&range.1));
                self.db().compact_range::<&[u8], _>(bounds).expect("compact_range");
            }
            Op::Sync => {
                self.db().sync().expect("sync");
                self.history.synced();
            }
            Op::Reopen => self.reopen(),
            Op::Crash(seed) => self.crash(CrashMode::from_seed(*seed)),
            Op::Kill => self.crash(CrashMode::Keep),
        }
        self.watch();
    }

    fn write(&mut self, ops: &[WriteOp], promise: Promise) {
        self.history.begin(ops, promise);
        write(self.db(), ops, promise).expect("a write");
        self.history.acknowledge();
        self.model.apply(ops);
    }

    /// The snapshot to read at, if it is not the present, and the model's version.
    fn view(&self, view: View) -> (Option<&Snapshot>, u64) {
        match view {
            View::Snapshot(index) if !self.snapshots.is_empty() => {
                let (snapshot, at) = &self.snapshots[index % self.snapshots.len()];
                (Some(snapshot), *at)
            }
            _ => (None, self.model.now()),
        }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, view: View, limit: usize) {
        let (snapshot, at) = self.view(view);
        let bounds = (as_slice(&range.0), as_slice(&range.1));
        let iter = match snapshot {
            Some(snapshot) => snapshot.range::<&[u8], _>(bounds),
            None => self.db().range::<&[u8], _>(bounds),
        };
        self.compare_scan(iter, range, direction, at, limit);
    }

    fn compare_scan(
        &self,
        mut iter: DbIterator,
        range: &KeyRange,
        direction: Direction,
        at: u64,
        limit: usize,
    ) {
        let mut wanted = self.model.range(range, at);
        let mut bits = match direction {
            Direction::Forward => 0,
            Direction::Backward => u64::MAX,
            Direction::Both(bits) => bits,
        };
        for _ in 0..limit {
            let back = bits & 1 == 1;
            bits = bits.rotate_right(1);
            let (found, wanted) =
                if back { (iter.next_back(), wanted.next_back()) } else { (iter.next(), wanted.next()) };
            let found: Option<(Slice, Slice)> = found.map(|entry| entry.expect("an entry of a scan"));
            let found = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
            assert_eq!(found, wanted, "scan {direction:?} of {range:?} at version {at}");
            if wanted.is_none() {
                assert!(iter.next().is_none() && iter.next_back().is_none(), "an iterator is fused");
                return;
            }
        }
    }

    fn close_cursor(&mut self) {
        if let Some((_, cursor)) = self.cursor.take() {
            self.model.release(cursor.version());
        }
    }

    /// Gives up all that is held open, in the database and in the model.
    fn let_go(&mut self) {
        self.cursor = None;
        self.snapshots.clear();
        self.model.release_all();
    }

    fn all_is_flushed(&mut self) {
        // No crash can undo what is there, so the history may start here.
        self.history = History::new(self.default);
        self.history.restart(&self.model.content(self.model.now()));
    }

    fn reopen(&mut self) {
        self.let_go();
        self.hide();
        self.db.take().expect("open").close().expect("close");
        self.open();
        self.all_is_flushed();
        self.check();
    }

    fn open(&mut self) {
        let db = match self.threads {
            0 => self.rig.open_inline(&self.options),
            threads => self.rig.open_threads(&self.options, threads),
        };
        self.db = Some(db.expect("the database opens"));
        *self.shared.lock().expect("no reader panicked") = self.db.clone();
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
        self.db = None;
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
        self.model = Model::new();
        self.model.apply(&ops);
        self.history = History::new(self.default);
        self.history.restart(found);
        self.compactions_seen = 0;
    }

    /// Notes what background work was done under which circumstances.
    fn watch(&mut self) {
        for event in self.rig.events.take() {
            match event {
                Event::Flushed { .. } => self.coverage.hit("flushed"),
                Event::Compacted { to_level, moved, .. } => {
                    self.coverage.hit(if moved { "moved" } else { "rewritten" });
                    self.coverage.hit(&format!("level {to_level}"));
                    self.coverage.add("snapshot over a compaction", u64::from(!self.snapshots.is_empty()));
                    self.coverage.add("cursor over a compaction", u64::from(self.cursor.is_some()));
                }
                Event::BackgroundError { error, .. } => panic!("a background error: {error}"),
                _ => {}
            }
        }
    }

    /// Compares everything: the present in three ways, each held snapshot, and the files with each other.
    pub fn check(&self) {
        let wanted = self.model.content(self.model.now());
        let found = content(self.db()).expect("a full scan");
        assert!(found == wanted, "the content differs: {}", difference(&found, &wanted));
        for key in self.model.keys() {
            let found = self.db().get(key).expect("get");
            assert_eq!(found.as_deref(), wanted.get(key).map(Vec::as_slice), "get {key:?}");
        }
        for (snapshot, at) in &self.snapshots {
            let (found, wanted) = (snapshot_content(snapshot).expect("a scan"), self.model.content(*at));
            assert!(found == wanted, "at a held snapshot: {}", difference(&found, &wanted));
        }
        assert_sound(self.db());
    }

    /// Checks, lets go of everything and closes.
    pub fn finish(mut self) -> Coverage {
        self.check();
        self.let_go();
        self.hide();
        self.db.take().expect("open").close().expect("close");
        self.coverage
    }
}

fn compare_move((cursor, model_cursor): &mut (Cursor, ModelCursor), step: &Move, model: &Model) {
    match step {
        Move::First => cursor.seek_to_first(),
        Move::Last => cursor.seek_to_last(),
        Move::Next => cursor.next(),
        Move::Prev => cursor.prev(),
        Move::Seek(key) => cursor.seek(key),
        Move::SeekForPrev(key) => cursor.seek_for_prev(key),
    }
    .expect("a move of a cursor");
    model_cursor.apply(step, model);
    let found = cursor.valid().then(|| (cursor.key(), cursor.value()));
    assert_eq!(found, model_cursor.entry(model), "cursor after {step:?}");
}

fn as_slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

/// The first keys in which two contents differ.
fn difference(found: &Content, wanted: &Content) -> String {
    let keys: std::collections::BTreeSet<_> = found.keys().chain(wanted.keys()).collect();
    let differing = keys.into_iter().filter(|key| found.get(*key) != wanted.get(*key));
    let mut text = String::new();
    for key in differing.take(5) {
        let text_of =
            |value: Option<&Vec<u8>>| value.map(|value| String::from_utf8_lossy(value).into_owned());
        text += &format!(
            "\n  {key:?}: found {:?}, wanted {:?}",
            text_of(found.get(key)),
            text_of(wanted.get(key))
        );
    }
    text
}
