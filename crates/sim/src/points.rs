//! `points` and `pairs` of `schedule`: what other threads may do between any two steps of an operation, played by one thread.
//!
//! The engine calls back at its [`Point`]s. There the callback reads, writes, takes snapshots, moves iterators, or does
//! background steps, as far as the locks held on the way to the point permit, and the [`Timeline`] judges. In `points` a
//! seed chooses the operations and where they are interrupted: everywhere with some chance, at a few places only (so that
//! what needs two or three changes of thread at the right moments comes up often), or with interruptions of interruptions.
//! `pairs` goes through all pairs of points that two small scenarios come to, with every pair of actions there.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use esker::scheduler::{BackgroundWork, Scheduler};
use esker::vfs::{CallKind, CrashMode, Fault, FaultVfs, MemVfs, Vfs};
use esker::{Background, Db, DbIterator, Error, Options, Snapshot, WriteBatch, WriteOptions};
use esker_base::SplitMix64;
use esker_base::points::{self, LOG, MANIFEST, Point, REGISTRY, RESUMING};

use crate::disk::Disk;
use crate::lab::{Case, attempt};
use crate::preset::Setup;
use crate::session::assert_sound;
use crate::timeline::{KEYS, State, Timeline, index_of, key, number_of, value};

thread_local! {
    /// The locks that are held below the innermost callback.
    static HELD: Cell<u8> = const { Cell::new(0) };
    /// Callbacks on the stack.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// More callbacks than this do nothing in one run.
const INTERRUPTIONS_MAX: u64 = 200;

/// More snapshots, or iterators, than this are not held.
const HELD_MAX: usize = 5;

/// What is thrown by an operation in a callback that would wait for the work it has interrupted.
struct Blocked;

/// A scheduler that works when it is told to.
#[derive(Debug, Default)]
struct Steps {
    work: Mutex<Option<Weak<dyn BackgroundWork>>>,
    idle: AtomicU64,
}

impl Steps {
    /// One step; whether it did something. Never with a lock held that it needs.
    fn step(&self) -> bool {
        if HELD.get() & (MANIFEST | REGISTRY | RESUMING) != 0 {
            return false;
        }
        let work = self.work.lock().unwrap_or_else(PoisonError::into_inner).clone();
        work.and_then(|work| work.upgrade()).is_some_and(|work| work.step())
    }
}

impl Scheduler for Steps {
    fn work_available(&self, work: &Arc<dyn BackgroundWork>) {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(work));
    }

    fn progressed(&self) {}

    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, seen: u64) {
        self.work_available(work);
        if self.step() || work.progress() != seen {
            self.idle.store(0, Ordering::Relaxed);
        } else if DEPTH.get() > 0 {
            resume_unwind(Box::new(Blocked));
        } else {
            let idle = self.idle.fetch_add(1, Ordering::Relaxed);
            assert!(idle < 1_000, "a hang: the engine waits for work that is not there");
        }
    }

    fn delay(&self, _duration: Duration) {}

    fn stop(&self) {
        *self.work.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// What a callback, or a scenario, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// Reads everything, in one of five ways.
    Read(u64),
    TakeSnapshot,
    DropSnapshot,
    /// Reads all snapshots that are held.
    CheckSnapshots,
    OpenIterator,
    /// An entry of each iterator that is held.
    MoveIterators,
    Write,
    SyncWrite,
    /// Background steps.
    Step(u64),
    Flush,
    Compact,
    Sync,
    /// Closes and opens again. Not in a callback.
    Reopen,
}

impl Action {
    /// The locks that it takes.
    fn locks(self) -> u8 {
        match self {
            Action::Read(way) if way % 5 != 3 => 0,
            Action::CheckSnapshots | Action::OpenIterator | Action::MoveIterators => 0,
            Action::Read(_) | Action::TakeSnapshot | Action::DropSnapshot => REGISTRY,
            Action::Write | Action::SyncWrite => LOG,
            Action::Step(_) => MANIFEST | REGISTRY | RESUMING,
            Action::Sync => LOG | MANIFEST,
            Action::Flush | Action::Compact | Action::Reopen => LOG | MANIFEST | REGISTRY | RESUMING,
        }
    }

    /// One of those that go with the locks that are held.
    fn choose(rng: &mut SplitMix64, held: u8) -> Self {
        loop {
            let action = match rng.below(20) {
                0..4 => Action::Read(rng.below(5)),
                4 | 5 => Action::TakeSnapshot,
                6 => Action::DropSnapshot,
                7 => Action::CheckSnapshots,
                8 => Action::OpenIterator,
                9 => Action::MoveIterators,
                10..13 => Action::Write,
                13 => Action::SyncWrite,
                14 | 15 => Action::Step(1),
                16 => Action::Step(30),
                17 => Action::Flush,
                18 => Action::Compact,
                _ => Action::Sync,
            };
            if action.locks() & held == 0 {
                return action;
            }
        }
    }
}

/// Where a run is interrupted, and with what.
#[derive(Clone, Debug)]
enum Switches {
    /// At each point with so many percent, in callbacks as deep as this.
    Everywhere { percent: u64, depth: u32 },
    /// At the points of these numbers, counted over the run, with these actions, or else any.
    At(Vec<(u64, Option<Action>)>),
}

/// A snapshot, an iterator and what they must show.
struct Held {
    snapshots: Vec<(Snapshot, State)>,
    iterators: Vec<Moving>,
}

/// An iterator on its way.
struct Moving {
    iter: DbIterator,
    /// The states that it may be of, as far as it has shown.
    may_be: Vec<State>,
    /// The key after the last one that it has shown.
    from: usize,
}

/// One database under test, shared by the run and the callbacks in it.
struct World {
    db: RefCell<Option<Db>>,
    steps: Arc<Steps>,
    rng: RefCell<SplitMix64>,
    timeline: RefCell<Timeline>,
    held: RefCell<Held>,
    switches: Switches,
    /// Points so far, and callbacks in which something was done.
    hits: Cell<u64>,
    interruptions: Cell<u64>,
    reached: RefCell<[u64; Point::ALL.len()]>,
    interrupted: RefCell<[u64; Point::ALL.len()]>,
    /// What was wrong in a callback: the engine catches panics of its background jobs.
    wrong: RefCell<Option<String>>,
    /// A synced write leads the queue: another one would wait for it.
    leads: Cell<bool>,
    /// The database is being closed.
    closing: Cell<bool>,
    /// Some call has failed or may fail.
    faulty: Cell<bool>,
    long_values: bool,
    blocked: Cell<u64>,
    trace: bool,
}

impl World {
    /// The engine is at a point.
    fn at(&self, point: Point) {
        self.reached.borrow_mut()[point as usize] += 1;
        let hit = self.hits.get();
        self.hits.set(hit + 1);
        let action = match &self.switches {
            Switches::Everywhere { percent, depth } => {
                // Each callback comes to many points itself.
                let chance = percent / (1 + 4 * u64::from(DEPTH.get()));
                let room = self.interruptions.get() < INTERRUPTIONS_MAX && DEPTH.get() < *depth;
                if !room || !self.rng.borrow_mut().percent(chance) {
                    return;
                }
                None
            }
            Switches::At(places) => match places.iter().find(|(place, _)| *place == hit) {
                Some((_, action)) => *action,
                None => return,
            },
        };
        let held = HELD.get() | point.locks();
        let action = match action {
            Some(action) if action.locks() & held == 0 => action,
            Some(_) => Action::Read(0),
            None => Action::choose(&mut self.rng.borrow_mut(), held),
        };
        if action == Action::SyncWrite && self.leads.get() {
            return;
        }
        self.interrupted.borrow_mut()[point as usize] += 1;
        self.interruptions.set(self.interruptions.get() + 1);
        let before = (HELD.replace(held), points::set_log_held(held & LOG != 0));
        DEPTH.set(DEPTH.get() + 1);
        if self.trace {
            println!("{}{hit}: at {point:?}: {action:?}", "  ".repeat(DEPTH.get() as usize));
        }
        self.try_to(|| self.act(action), &format!("{action:?} at {point:?}, point {hit}"));
        DEPTH.set(DEPTH.get() - 1);
        HELD.set(before.0);
        points::set_log_held(before.1);
    }

    /// Notes what goes wrong. To be blocked is fine.
    fn try_to(&self, work: impl FnOnce() -> Result<(), String>, what: &str) {
        let result = attempt(|| match catch_unwind(AssertUnwindSafe(work)) {
            Ok(result) => result,
            Err(panic) if panic.is::<Blocked>() => {
                self.blocked.set(self.blocked.get() + 1);
                Ok(())
            }
            Err(panic) => resume_unwind(panic),
        });
        if let Err(why) = result.and_then(|result| result) {
            self.wrong.borrow_mut().get_or_insert_with(|| format!("{what}: {why}"));
        }
    }

    fn db(&self) -> Result<Db, String> {
        self.db.borrow().clone().ok_or_else(|| "no database".to_owned())
    }

    /// An error that there is a reason for.
    fn excuse<T>(&self, result: Result<T, Error>) -> Result<Option<T>, String> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.closing.get() || self.faulty.get() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn act(&self, action: Action) -> Result<(), String> {
        let db = self.db()?;
        match action {
            Action::Read(way) => self.read(&db, way % 5),
            Action::TakeSnapshot => self.take_snapshot(&db),
            Action::DropSnapshot => {
                let snapshot = self.held.borrow_mut().snapshots.pop();
                drop(snapshot);
                Ok(())
            }
            Action::CheckSnapshots => self.check_snapshots(),
            Action::OpenIterator => {
                if self.held.borrow().iterators.len() >= HELD_MAX {
                    return self.move_iterators(KEYS as u64 + 1);
                }
                let mark = self.timeline.borrow().mark();
                let iter = db.iter();
                let may_be = self.timeline.borrow().since(mark);
                self.held.borrow_mut().iterators.push(Moving { iter, may_be, from: 0 });
                Ok(())
            }
            Action::MoveIterators => self.move_iterators(1),
            Action::Write => self.write(&db, &WriteOptions::new()),
            Action::SyncWrite => {
                let led = self.leads.replace(true);
                let result = catch_unwind(AssertUnwindSafe(|| self.write(&db, &WriteOptions::sync())));
                self.leads.set(led);
                result.unwrap_or_else(|panic| resume_unwind(panic))
            }
            Action::Step(count) => {
                (0..count).all(|_| self.steps.step());
                Ok(())
            }
            Action::Flush => self.excuse(db.flush()).map(drop),
            Action::Compact => self.excuse(db.compact_range::<&[u8], _>(..)).map(drop),
            Action::Sync => self.excuse(db.sync()).map(drop),
            Action::Reopen => Err("not an action of a callback".to_owned()),
        }
    }

    fn write(&self, db: &Db, options: &WriteOptions) -> Result<(), String> {
        let ops: Vec<(usize, bool)> = {
            let mut rng = self.rng.borrow_mut();
            let count = 1 + rng.below(3);
            (0..count).map(|_| (rng.below(KEYS as u64) as usize, !rng.percent(25))).collect()
        };
        let batch = self.timeline.borrow_mut().begin(ops);
        let mut write = WriteBatch::new();
        for &(index, puts) in &batch.ops {
            if puts {
                write.put(key(index), value(batch.number, self.long_values));
            } else {
                write.delete(key(index));
            }
        }
        let result = catch_unwind(AssertUnwindSafe(|| db.write_with(write, options)));
        let done = matches!(result, Ok(Ok(())));
        self.timeline.borrow_mut().end(done)?;
        match result {
            Ok(result) => self.excuse(result).map(drop),
            Err(panic) => resume_unwind(panic),
        }
    }

    fn read(&self, db: &Db, way: u64) -> Result<(), String> {
        let mark = self.timeline.borrow().mark();
        let found = match way {
            0 => state_of(db.iter()),
            1 => state_of(db.iter().rev()),
            2 => {
                let found = db.multi_get(&std::array::from_fn::<_, KEYS, _>(key));
                let entries = found.into_iter().enumerate();
                state_of(
                    entries
                        .filter_map(|(index, found)| found.transpose().map(|value| Ok((key(index), value?)))),
                )
            }
            3 => {
                let snapshot = db.snapshot();
                snapshot_state(&snapshot)
            }
            _ => return self.get_all(db),
        };
        match self.excuse(found)? {
            Some(found) => self.timeline.borrow_mut().judge(mark, &found?),
            None => Ok(()),
        }
    }

    /// Each key by itself.
    fn get_all(&self, db: &Db) -> Result<(), String> {
        for index in 0..KEYS {
            let mark = self.timeline.borrow().mark();
            let found = if index % 2 == 0 {
                db.get(key(index)).map(|found| found.map_or(Ok(0), |value| number_of(&value)))
            } else {
                db.get_with(key(index), number_of).map(|found| found.unwrap_or(Ok(0)))
            };
            if let Some(found) = self.excuse(found)? {
                self.timeline.borrow_mut().judge_key(mark, index, found?)?;
            }
        }
        Ok(())
    }

    fn take_snapshot(&self, db: &Db) -> Result<(), String> {
        let mark = self.timeline.borrow().mark();
        let snapshot = db.snapshot();
        if let Some(found) = self.excuse(snapshot_state(&snapshot))? {
            let found = found?;
            self.timeline.borrow_mut().judge(mark, &found)?;
            let mut held = self.held.borrow_mut();
            if held.snapshots.len() < HELD_MAX {
                held.snapshots.push((snapshot, found));
            }
        }
        Ok(())
    }

    fn check_snapshots(&self) -> Result<(), String> {
        let snapshots = std::mem::take(&mut self.held.borrow_mut().snapshots);
        for (snapshot, wanted) in &snapshots {
            let scanned = self.excuse(state_of(snapshot.iter()))?.transpose()?;
            let got = self.excuse(snapshot_state(snapshot))?.transpose()?;
            for found in scanned.into_iter().chain(got) {
                if found != *wanted {
                    let at = snapshot.sequence();
                    return Err(format!("the snapshot at {at} changed: found {found:?}, was {wanted:?}"));
                }
            }
        }
        self.held.borrow_mut().snapshots.extend(snapshots);
        Ok(())
    }

    /// Takes so many entries of each iterator.
    fn move_iterators(&self, count: u64) -> Result<(), String> {
        let mut iterators = std::mem::take(&mut self.held.borrow_mut().iterators);
        for moving in &mut iterators {
            for _ in 0..count {
                let Some(entry) = self.excuse(moving.iter.next().transpose())? else {
                    // After an error it says that it is at its end.
                    moving.from = KEYS;
                    break;
                };
                moving.show(entry.as_ref().map(|(key, value)| (&key[..], &value[..])))?;
                if entry.is_none() {
                    break;
                }
            }
        }
        iterators.retain(|moving| moving.from < KEYS);
        self.held.borrow_mut().iterators.extend(iterators);
        Ok(())
    }

    /// Lets everything go, each checked for the last time.
    fn let_go(&self) -> Result<(), String> {
        self.check_snapshots()?;
        self.move_iterators(KEYS as u64 + 1)?;
        *self.held.borrow_mut() = Held { snapshots: Vec::new(), iterators: Vec::new() };
        Ok(())
    }

    /// Fails with what was wrong in callbacks since the last look.
    fn check(&self) -> Result<(), String> {
        self.wrong.borrow_mut().take().map_or(Ok(()), Err)
    }
}

impl Moving {
    /// The next entry, or the end.
    fn show(&mut self, entry: Option<(&[u8], &[u8])>) -> Result<(), String> {
        let (index, number) = match entry {
            Some((key, value)) => (index_of(key)?, number_of(value)?),
            None => (KEYS, 0),
        };
        if index < self.from {
            return Err(format!("an iterator goes back to key {index}"));
        }
        let skipped = self.from..index;
        self.may_be.retain(|state| {
            state[skipped.clone()].iter().all(|number| *number == 0)
                && state.get(index).is_none_or(|wanted| *wanted == number)
        });
        self.from = index + 1;
        if self.may_be.is_empty() {
            Err(format!("an iterator shows no one state at key {index}"))
        } else {
            Ok(())
        }
    }
}

/// The state that some entries are, or why they are none.
fn state_of<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    entries: impl Iterator<Item = Result<(K, V), Error>>,
) -> Result<Result<State, String>, Error> {
    let mut state = [0; KEYS];
    for entry in entries {
        let (key, value) = entry?;
        match index_of(key.as_ref()).and_then(|index| Ok((index, number_of(value.as_ref())?))) {
            Ok((index, number)) => state[index] = number,
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(state))
}

/// What a snapshot's gets show.
fn snapshot_state(snapshot: &Snapshot) -> Result<Result<State, String>, Error> {
    let entries = (0..KEYS).filter_map(|index| {
        let found = snapshot.get(key(index)).transpose();
        found.map(|value| Ok((key(index), value?)))
    });
    state_of(entries)
}

/// A world with its disk.
struct Run {
    world: Rc<World>,
    disk: Disk,
    options: Options,
    faults: Option<FaultVfs>,
}

impl Run {
    fn new(case: &Case<'_>, switches: Switches, long_values: bool, threads: usize) -> Self {
        let rng = case.rng(7);
        let options = Setup::tiny().options.l0_trigger(2).background(Background::Threads(threads));
        let order = case.settings.order && case.seed.is_multiple_of(16);
        let disk = Disk::on(MemVfs::new(), order, case.settings.lie);
        let world = World {
            db: RefCell::default(),
            steps: Arc::default(),
            rng: RefCell::new(rng),
            timeline: RefCell::default(),
            held: RefCell::new(Held { snapshots: Vec::new(), iterators: Vec::new() }),
            switches,
            hits: Cell::new(0),
            interruptions: Cell::new(0),
            reached: RefCell::new([0; Point::ALL.len()]),
            interrupted: RefCell::new([0; Point::ALL.len()]),
            wrong: RefCell::default(),
            leads: Cell::new(false),
            closing: Cell::new(false),
            faulty: Cell::new(false),
            long_values,
            blocked: Cell::new(0),
            trace: case.settings.trace,
        };
        Run { world: Rc::new(world), disk, options, faults: None }
    }

    /// From the next open on one call of the file system fails, and perhaps all after it.
    fn arm(&mut self, fault: Fault) {
        let faults = FaultVfs::new(self.disk.vfs());
        faults.arm(fault);
        self.faults = Some(faults);
    }

    /// Opens the database without callbacks.
    fn open(&self) {
        let vfs = self.faults.clone().map(|faults| Arc::new(faults) as Arc<dyn Vfs>);
        let db = self.disk.open(&self.options, Arc::clone(&self.world.steps) as _, vfs);
        *self.world.db.borrow_mut() = Some(db.expect("it opens"));
    }

    /// One operation, with callbacks.
    fn act(&self, action: Action) {
        let world = &self.world;
        if world.trace {
            println!("{}: {action:?}", world.hits.get());
        }
        if let Some(faults) = &self.faults {
            world.faulty.set(faults.fired() > 0 || world.faulty.get());
        }
        match action {
            Action::Reopen => {
                self.close();
                self.open();
            }
            _ => world.try_to(|| self.with_points(|| world.act(action)), &format!("{action:?}")),
        }
        world.check().unwrap_or_else(|why| panic!("{why}"));
    }

    fn with_points<R>(&self, work: impl FnOnce() -> R) -> R {
        let world = Rc::clone(&self.world);
        points::set(Some(Rc::new(move |point| world.at(point))));
        let result = catch_unwind(AssertUnwindSafe(work));
        points::set(None);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    fn close(&self) {
        let world = &self.world;
        let db = world.db().expect("an open database");
        world.try_to(|| world.let_go(), "before a close");
        world.closing.set(true);
        let result = self.with_points(|| db.close());
        world.closing.set(false);
        *world.db.borrow_mut() = None;
        *world.held.borrow_mut() = Held { snapshots: Vec::new(), iterators: Vec::new() };
        world.check().unwrap_or_else(|why| panic!("{why}"));
        result.unwrap_or_else(|error| panic!("close: {error}"));
    }

    /// Out of an error.
    fn resume(&self) {
        let world = &self.world;
        if let Some(faults) = &self.faults {
            faults.disarm();
        }
        let db = world.db().expect("an open database");
        let held = HELD.replace(RESUMING);
        let result = self.with_points(|| db.resume());
        HELD.set(held);
        world.check().unwrap_or_else(|why| panic!("{why}"));
        result.unwrap_or_else(|error| panic!("resume: {error}"));
        world.faulty.set(false);
    }

    /// Everything once more, without callbacks; then a close or a kill, and perhaps what the next open shows.
    fn end(self, case: &mut Case<'_>, closes: bool, reopens: bool) {
        let world = &self.world;
        let now = world.timeline.borrow().now();
        let look = |db: &Db, what: &str| {
            for way in 0..5 {
                world.read(db, way).unwrap_or_else(|why| panic!("{what}: {why}"));
            }
            let found = state_of(db.iter()).expect("a scan").expect("known entries");
            assert_eq!(found, now, "{what}");
            assert_sound(db);
        };
        look(&world.db().expect("open"), "at the end");
        if closes {
            self.close();
        } else {
            world.let_go().unwrap_or_else(|why| panic!("at the end: {why}"));
            *world.db.borrow_mut() = None;
        }
        if reopens {
            let next = self.disk.crashed(CrashMode::Keep);
            let db = next.open_inline(&self.options).expect("it opens again");
            look(&db, "opened again");
            case.coverage.hit("opened again");
        }
        let counts = [("at", &self.world.reached), ("inside", &self.world.interrupted)];
        for (prefix, counts) in counts {
            for ((name, _), count) in Point::ALL.iter().zip(*counts.borrow()).filter(|(_, count)| *count > 0)
            {
                case.coverage.add(&format!("{prefix} {name}"), count);
            }
        }
        case.coverage.add("would wait", self.world.blocked.get());
    }
}

/// A random run.
pub fn points(case: &mut Case<'_>) {
    let mut rng = case.rng(8);
    let switches = match rng.below(4) {
        0 => Switches::Everywhere { percent: 3 + rng.below(30), depth: 1 },
        1 => Switches::Everywhere { percent: 3 + rng.below(20), depth: 2 + rng.below(2) as u32 },
        _ => Switches::At((0..1 + rng.below(4)).map(|_| (rng.below(150), None)).collect()),
    };
    let long_values = rng.percent(30);
    let mut run = Run::new(case, switches, long_values, if rng.percent(50) { 1 } else { 3 });
    let faulty = rng.below(12) == 0;
    run.open();
    if faulty {
        // Opened again, so that the fault is under all that follows.
        run.close();
        let kind = [CallKind::Append, CallKind::SyncData, CallKind::SyncDir, CallKind::Create];
        run.arm(Fault::nth(12 + rng.below(40)).kind(kind[rng.below(4) as usize]));
        run.world.faulty.set(true);
        let opened = attempt(|| run.open());
        if opened.is_err() {
            return;
        }
    }
    let eager = rng.below(3);
    for _ in 0..case.ops(10 + rng.below(16)) {
        let action = match rng.below(40) {
            0..20 => Action::Write,
            20..22 => Action::SyncWrite,
            22 if !faulty => Action::Reopen,
            _ => Action::choose(&mut rng, 0),
        };
        run.act(action);
        if rng.below(4) < eager {
            run.act(Action::Step(1 + rng.below(6)));
        }
    }
    if faulty {
        case.coverage
            .add("resumed", u64::from(run.world.db().is_ok_and(|db| db.background_error().is_some())));
        run.resume();
    }
    let (closes, reopens) = (rng.percent(30), rng.percent(20));
    run.end(case, closes, reopens);
}

/// The actions that are tried at each pair.
const PAIR_ACTIONS: [Action; 5] =
    [Action::Read(0), Action::TakeSnapshot, Action::Write, Action::Step(30), Action::Compact];

/// Scenarios of `pairs`: all that the points lie on, but for errors.
const SCENARIOS: [&[Action]; 2] = [
    &[
        Action::Write,
        Action::Write,
        Action::Flush,
        Action::SyncWrite,
        Action::OpenIterator,
        Action::TakeSnapshot,
        Action::Write,
        Action::Compact,
        Action::Read(4),
    ],
    &[
        Action::Write,
        Action::Flush,
        Action::TakeSnapshot,
        Action::Write,
        Action::Flush,
        Action::Step(30),
        Action::Write,
        Action::DropSnapshot,
        Action::Read(0),
        Action::Reopen,
        Action::Read(2),
    ],
];

fn scenario(case: &mut Case<'_>, number: usize, places: Vec<(u64, Option<Action>)>) -> u64 {
    let mut run = Run::new(case, Switches::At(places), false, 3);
    // The operations are the same in every case.
    *run.world.rng.borrow_mut() = SplitMix64::new(5 + number as u64);
    run.faults = None;
    run.open();
    SCENARIOS[number].iter().for_each(|action| run.act(*action));
    let hits = run.world.hits.get();
    run.end(case, true, false);
    hits
}

/// How many points the scenarios come to without interruptions.
fn lengths(case: &mut Case<'_>) -> [u64; 2] {
    static LENGTHS: OnceLock<[u64; 2]> = OnceLock::new();
    *LENGTHS.get_or_init(|| std::array::from_fn(|number| scenario(case, number, Vec::new())))
}

/// The pair of this seed; a row of seeds as long as `pairs in all` has all of them.
pub fn pairs(case: &mut Case<'_>) {
    let lengths = lengths(case);
    let mut index = case.seed;
    let number = (index % 2) as usize;
    index /= 2;
    let mut action = || {
        let action = PAIR_ACTIONS[(index % 5) as usize];
        index /= 5;
        Some(action)
    };
    let (first_action, second_action) = (action(), action());
    // The second point may come a bit after the last one, since interruptions bring points of their own.
    let length = lengths[number] + 10;
    let (mut first, mut rest) = (0, index % (length * (length - 1) / 2));
    while rest >= length - 1 - first {
        rest -= length - 1 - first;
        first += 1;
    }
    let second = first + 1 + rest;
    case.coverage.add("pairs in all", 0);
    scenario(case, number, vec![(first, first_action), (second, second_action)]);
    case.coverage.hit("pair");
}
