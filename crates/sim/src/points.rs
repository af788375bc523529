//! `points` and `pairs` of `schedule`: what other threads may do between any two steps of an operation, played by one thread.
//!
//! The engine calls back at its [`Point`]s. There the callback reads, writes, takes snapshots, moves iterators, or does
//! background steps, as far as the locks held on the way to the point permit, and the [`Timeline`] judges. In `points` a
//! seed chooses the operations and where they are interrupted: everywhere with some chance, at a few places only (so that
//! what needs two or three changes of thread at the right moments comes up often), or with interruptions of interruptions.
//! `pairs` goes through all pairs of points that two small scenarios come to, with every pair of actions there.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use esker::vfs::{CallKind, CrashMode, Fault, FaultVfs, MemVfs, Vfs};
use esker::{Background, Db, Options};
use esker_base::SplitMix64;
use esker_base::points::{self, Point, RESUMING};

use crate::disk::Disk;
use crate::lab::{Case, attempt};
use crate::preset::Setup;
use crate::session::assert_sound;
use crate::world::{Action, HELD, Held, Switches, World, state_of};

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
        let world = World::new(rng, switches, long_values, case.settings.trace);
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
        let mark = world.timeline.borrow().mark();
        world.try_to(|| world.let_go(), "before a close");
        world.closing.set(true);
        let result = self.with_points(|| db.close());
        world.closing.set(false);
        *world.db.borrow_mut() = None;
        *world.held.borrow_mut() = Held::default();
        world.check().unwrap_or_else(|why| panic!("{why}"));
        result.unwrap_or_else(|error| panic!("close: {error}"));
        world.timeline.borrow_mut().promise(mark);
    }

    /// Out of an error.
    fn resume(&self) {
        let world = &self.world;
        if let Some(faults) = &self.faults {
            faults.disarm();
        }
        let db = world.db().expect("an open database");
        let (mark, latched) = (world.timeline.borrow().mark(), db.background_error().is_some());
        let held = HELD.replace(RESUMING);
        let result = self.with_points(|| db.resume());
        HELD.set(held);
        world.check().unwrap_or_else(|why| panic!("{why}"));
        result.unwrap_or_else(|error| panic!("resume: {error}"));
        if latched {
            // All of it is written anew. Without an error there is nothing to do.
            world.timeline.borrow_mut().promise(mark);
        }
        world.faulty.set(false);
    }

    /// What a loss of power would leave now: all that was promised, and no half of anything.
    fn lose_power(&self, case: &mut Case<'_>) {
        let next = self.disk.crashed(CrashMode::from_seed(case.seed));
        let db = next.open_inline(&self.options).expect("it opens after a loss of power");
        let found = state_of(db.iter()).expect("a scan").expect("known entries");
        let judged = self.world.timeline.borrow().judge_crashed(&found);
        judged.unwrap_or_else(|why| panic!("after a loss of power: {why}"));
        assert_sound(&db);
        case.coverage.hit("lost power");
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
    let faulty = rng.below(10) == 0;
    run.open();
    if faulty {
        // Opened again, so that the fault is under all that follows.
        run.close();
        let kind = [CallKind::Append, CallKind::SyncData, CallKind::SyncAll, CallKind::Create];
        run.arm(Fault::nth(3 + rng.below(12)).kind(kind[rng.below(4) as usize]).path_suffix(".wal"));
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
    let (closes, reopens, loses_power) = (rng.percent(30), rng.percent(20), rng.percent(25));
    if loses_power {
        run.lose_power(case);
    }
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

/// The pair of this seed. A row of seeds as long as `pairs in all` says has all of them; the second point may come a bit
/// after the last one, since interruptions bring points of their own.
pub fn pairs(case: &mut Case<'_>) {
    let lengths = lengths(case);
    if case.settings.trace {
        let in_all = lengths.map(|length| 25 * (length + 10) * (length + 11) / 2);
        println!("pairs in all: {in_all:?} of the two scenarios, which take turns");
    }
    let mut index = case.seed;
    let number = (index % 2) as usize;
    index /= 2;
    let mut action = || {
        let action = PAIR_ACTIONS[(index % 5) as usize];
        index /= 5;
        Some(action)
    };
    let (first_action, second_action) = (action(), action());
    let length = lengths[number] + 10;
    let (mut first, mut rest) = (0, index % (length * (length + 1) / 2));
    while rest >= length - first {
        rest -= length - first;
        first += 1;
    }
    // Both may be at the same point, one after the other.
    let second = first + rest;
    scenario(case, number, vec![(first, first_action), (second, second_action)]);
    case.coverage.hit("pair");
}
