//! [`World`]: a database, what is known of it, and what is done to it, by a run or in the middle of the engine's own work.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use esker::scheduler::{BackgroundWork, Scheduler};
use esker::{Db, DbIterator, Error, ErrorKind, Snapshot, WriteBatch, WriteOptions};
use esker_base::SplitMix64;
use esker_base::points::{self, LEAD, LOG, MANIFEST, Point, REGISTRY, RESUMING};

use crate::lab::attempt;
use crate::timeline::{KEYS, Outcome, State, Timeline, index_of, key, number_of, value};

thread_local! {
    /// The locks that are held below the innermost callback.
    pub(crate) static HELD: Cell<u8> = const { Cell::new(0) };
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
pub(crate) struct Steps {
    work: Mutex<Option<Weak<dyn BackgroundWork>>>,
    idle: AtomicU64,
}

impl Steps {
    /// One step; whether it did something. Never with a lock held that it needs.
    pub(crate) fn step(&self) -> bool {
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
pub(crate) enum Action {
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
            Action::Write => LOG,
            Action::SyncWrite => LOG | LEAD,
            Action::Step(_) => MANIFEST | REGISTRY | RESUMING,
            Action::Sync => LOG | MANIFEST | LEAD,
            Action::Flush | Action::Compact | Action::Reopen => LOG | MANIFEST | REGISTRY | RESUMING,
        }
    }

    /// One of those that go with the locks that are held.
    pub(crate) fn choose(rng: &mut SplitMix64, held: u8) -> Self {
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
pub(crate) enum Switches {
    /// At each point with so many percent, in callbacks as deep as this.
    Everywhere { percent: u64, depth: u32 },
    /// At the points of these numbers, counted over the run, with these actions, or else any.
    At(Vec<(u64, Option<Action>)>),
}

/// A snapshot, an iterator and what they must show.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) snapshots: Vec<(Snapshot, State)>,
    pub(crate) iterators: Vec<Moving>,
}

/// An iterator on its way.
pub(crate) struct Moving {
    iter: DbIterator,
    /// The states that it may be of, as far as it has shown.
    may_be: Vec<State>,
    /// The key after the last one that it has shown.
    from: usize,
}

/// One database under test, shared by the run and the callbacks in it.
pub(crate) struct World {
    pub(crate) db: RefCell<Option<Db>>,
    pub(crate) steps: Arc<Steps>,
    pub(crate) rng: RefCell<SplitMix64>,
    pub(crate) timeline: RefCell<Timeline>,
    pub(crate) held: RefCell<Held>,
    pub(crate) switches: Switches,
    /// Points so far, and callbacks in which something was done.
    pub(crate) hits: Cell<u64>,
    pub(crate) interruptions: Cell<u64>,
    pub(crate) reached: RefCell<[u64; Point::ALL.len()]>,
    pub(crate) interrupted: RefCell<[u64; Point::ALL.len()]>,
    /// What was wrong in a callback: the engine catches panics of its background jobs.
    pub(crate) wrong: RefCell<Option<String>>,
    /// The database is being closed.
    pub(crate) closing: Cell<bool>,
    /// Some call has failed or may fail.
    pub(crate) faulty: Cell<bool>,
    pub(crate) long_values: bool,
    pub(crate) blocked: Cell<u64>,
    pub(crate) trace: bool,
}

impl World {
    /// No database yet.
    pub(crate) fn new(rng: SplitMix64, switches: Switches, long_values: bool, trace: bool) -> Self {
        World {
            db: RefCell::default(),
            steps: Arc::default(),
            rng: RefCell::new(rng),
            timeline: RefCell::default(),
            held: RefCell::default(),
            switches,
            hits: Cell::new(0),
            interruptions: Cell::new(0),
            reached: RefCell::new([0; Point::ALL.len()]),
            interrupted: RefCell::new([0; Point::ALL.len()]),
            wrong: RefCell::default(),
            closing: Cell::new(false),
            faulty: Cell::new(false),
            long_values,
            blocked: Cell::new(0),
            trace,
        }
    }

    /// The engine is at a point.
    pub(crate) fn at(&self, point: Point) {
        self.reached.borrow_mut()[point as usize] += 1;
        let hit = self.hits.get();
        self.hits.set(hit + 1);
        if point == Point::Published
            && let Err(why) = self.timeline.borrow_mut().publish()
        {
            self.wrong.borrow_mut().get_or_insert(why);
        }
        match &self.switches {
            Switches::Everywhere { percent, depth } => {
                // Each callback comes to many points itself.
                let chance = percent / (1 + 4 * u64::from(DEPTH.get()));
                let room = self.interruptions.get() < INTERRUPTIONS_MAX && DEPTH.get() < *depth;
                if !room || !self.rng.borrow_mut().percent(chance) {
                    return;
                }
                self.interrupt(point, hit, None);
            }
            Switches::At(places) => {
                places.iter().filter(|(place, _)| *place == hit).for_each(|(_, action)| {
                    self.interrupt(point, hit, *action);
                });
            }
        }
    }

    /// Does something at a point: one thing, or a few that the seed chooses.
    fn interrupt(&self, point: Point, hit: u64, action: Option<Action>) {
        self.interrupted.borrow_mut()[point as usize] += 1;
        self.interruptions.set(self.interruptions.get() + 1);
        let held = HELD.get() | point.locks();
        let count = if action.is_some() { 1 } else { 1 + self.rng.borrow_mut().below(4) };
        for _ in 0..count {
            let action = match action {
                Some(action) if action.locks() & held == 0 => action,
                Some(_) => Action::Read(0),
                None => Action::choose(&mut self.rng.borrow_mut(), held),
            };
            self.act_at(point, hit, held, action);
        }
    }

    fn act_at(&self, point: Point, hit: u64, held: u8, action: Action) {
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
    pub(crate) fn try_to(&self, work: impl FnOnce() -> Result<(), String>, what: &str) {
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

    pub(crate) fn db(&self) -> Result<Db, String> {
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

    pub(crate) fn act(&self, action: Action) -> Result<(), String> {
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
            Action::Write => self.write(&db, false),
            Action::SyncWrite => self.write(&db, true),
            Action::Step(count) => {
                (0..count).all(|_| self.steps.step());
                Ok(())
            }
            Action::Flush => self.promised_by(|| db.flush()),
            Action::Compact => self.excuse(db.compact_range::<&[u8], _>(..)).map(drop),
            Action::Sync => self.promised_by(|| db.sync()),
            Action::Reopen => Err("not an action of a callback".to_owned()),
        }
    }

    /// Does what makes all that was there before it durable.
    fn promised_by(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<(), String> {
        let mark = self.timeline.borrow().mark();
        if self.excuse(work())?.is_some() {
            self.timeline.borrow_mut().promise(mark);
        }
        Ok(())
    }

    fn write(&self, db: &Db, synced: bool) -> Result<(), String> {
        let ops: Vec<(usize, bool)> = {
            let mut rng = self.rng.borrow_mut();
            let count = 1 + rng.below(3);
            (0..count).map(|_| (rng.below(KEYS as u64) as usize, !rng.percent(25))).collect()
        };
        let batch = self.timeline.borrow_mut().begin(ops);
        let options = if synced { WriteOptions::sync() } else { WriteOptions::new() };
        let mut write = WriteBatch::new();
        for &(index, puts) in &batch.ops {
            if puts {
                write.put(key(index), value(batch.number, self.long_values));
            } else {
                write.delete(key(index));
            }
        }
        let result = catch_unwind(AssertUnwindSafe(|| db.write_with(write, &options)));
        let outcome = match &result {
            Ok(Ok(())) => Outcome::Done { synced },
            Ok(Err(error)) if matches!(error.kind(), ErrorKind::WriteUnknown { .. }) => Outcome::Unknown,
            _ => Outcome::Refused,
        };
        self.timeline.borrow_mut().end(outcome)?;
        match result {
            Ok(result) => self.excuse(result).map(drop),
            Err(panic) => resume_unwind(panic),
        }
    }

    pub(crate) fn read(&self, db: &Db, way: u64) -> Result<(), String> {
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
            Some(found) => self.timeline.borrow().judge(mark, &found?),
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
                self.timeline.borrow().judge_key(mark, index, found?)?;
            }
        }
        Ok(())
    }

    fn take_snapshot(&self, db: &Db) -> Result<(), String> {
        let mark = self.timeline.borrow().mark();
        let snapshot = db.snapshot();
        if let Some(found) = self.excuse(snapshot_state(&snapshot))? {
            let found = found?;
            self.timeline.borrow().judge(mark, &found)?;
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
    pub(crate) fn let_go(&self) -> Result<(), String> {
        self.check_snapshots()?;
        self.move_iterators(KEYS as u64 + 1)?;
        *self.held.borrow_mut() = Held::default();
        Ok(())
    }

    /// Fails with what was wrong in callbacks since the last look.
    pub(crate) fn check(&self) -> Result<(), String> {
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
pub(crate) fn state_of<K: AsRef<[u8]>, V: AsRef<[u8]>>(
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
pub(crate) fn snapshot_state(snapshot: &Snapshot) -> Result<Result<State, String>, Error> {
    let entries = (0..KEYS).filter_map(|index| {
        let found = snapshot.get(key(index)).transpose();
        found.map(|value| Ok((key(index), value?)))
    });
    state_of(entries)
}
