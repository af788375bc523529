//! `crash`: an image of the disk at every call of the file system that changes it, as a kill or a power loss at that
//! moment could leave it, of all kinds. Each image is opened and judged: it must hold a prefix of whole batches with
//! everything that was promised, and be sound. Some images crash again, at each call of their recovery.
//!
//! The workload runs once; images share its memory until they change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use esker::scheduler::InlineScheduler;
use esker::vfs::{Call, CrashMode, Event, MemVfs, ObserveVfs, Vfs};
use esker_base::SplitMix64;
use esker_testkit::{
    Coverage, History, KeySpace, Mix, Op, Patience, Promise, Verdict, Workload, WriteOp, is_empty_range,
    value_for,
};

use crate::disk::{Disk, Lie};
use crate::lab::{Case, Harness, attempt};
use crate::preset::Setup;
use crate::scheduler::{Pace, SimScheduler};
use crate::session::{Content, Session, assert_sound, content, write};

/// Crashes at every call.
pub const CRASH: Harness = Harness {
    name: "crash",
    unit: "image",
    parts: &["triples", "random"],
    demands: &[
        "keep",
        "drop",
        "random 10",
        "random 50",
        "random 90",
        "prefix",
        "torn",
        "size only",
        "unlink first",
        "first crash",
        "second crash",
        "third crash",
        "replayed",
        "torn tail",
        "power loss after the open",
        "writes after the crash",
        "put",
        "delete",
        "batch",
        "flush",
        "compact",
        "sync",
        "reopen",
        "take snapshot",
        "drop snapshot",
        "rotate",
        "flushed",
        "rewritten",
    ],
    part_demands: &[],
    demand_after: 400,
    case,
};

/// How deep crashes are nested: a workload, its recovery, the recovery of that.
const DEPTH_MAX: usize = 2;

/// The operations of which all workloads of three are tried.
const ATOMS: [&str; 11] = [
    "put",
    "put sync",
    "put memory",
    "batch",
    "delete",
    "flush",
    "compact",
    "rotate",
    "sync",
    "reopen",
    "snapshot",
];

/// How many workloads of three operations there are.
pub const TRIPLES: u64 = (ATOMS.len() * ATOMS.len() * ATOMS.len()) as u64;

fn mode_name(mode: CrashMode) -> &'static str {
    match mode {
        CrashMode::Keep => "keep",
        CrashMode::Drop => "drop",
        CrashMode::Random { keep_percent: 10, .. } => "random 10",
        CrashMode::Random { keep_percent: 90, .. } => "random 90",
        CrashMode::Random { .. } => "random 50",
        CrashMode::Prefix { .. } => "prefix",
        CrashMode::Torn { .. } => "torn",
        CrashMode::SizeOnly { .. } => "size only",
        _ => "unlink first",
    }
}

/// All kinds of images, with new seeds.
fn all_modes(rng: &mut SplitMix64) -> Vec<CrashMode> {
    let mut seed = || rng.next_u64();
    vec![
        CrashMode::Keep,
        CrashMode::Drop,
        CrashMode::Torn { seed: seed() },
        CrashMode::Prefix { seed: seed() },
        CrashMode::SizeOnly { seed: seed() },
        CrashMode::UnlinkFirst { seed: seed() },
        CrashMode::Random { seed: seed(), keep_percent: 10 },
        CrashMode::Random { seed: seed(), keep_percent: 50 },
        CrashMode::Random { seed: seed(), keep_percent: 90 },
    ]
}

/// One workload, its oracle and what was found so far. Shared with the observer of the disk.
struct Trial {
    setup: Setup,
    order: bool,
    lie: Option<Lie>,
    /// How many kinds of images are taken at each point.
    modes_a_point: usize,
    pace: Pace,
    state: Mutex<TrialState>,
}

struct TrialState {
    history: History,
    rng: SplitMix64,
    coverage: Coverage,
    failure: Option<String>,
}

impl Trial {
    fn state(&self) -> MutexGuard<'_, TrialState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn history<R>(&self, change: impl FnOnce(&mut History) -> R) -> R {
        change(&mut self.state().history)
    }

    /// A file system over the disk on which every changing call is an occasion for crashes.
    fn observed(self: &Arc<Self>, disk: &Disk, power_lost: bool, depth: usize) -> Arc<dyn Vfs> {
        let (trial, mem) = (Arc::clone(self), disk.mem.clone());
        let observe = move |call: &Call<'_>, event: Event| {
            if event == Event::Before && call.kind.is_change() {
                trial.crash_here(&mem, power_lost, depth, &call.to_string());
            }
        };
        Arc::new(ObserveVfs::new(disk.vfs(), Arc::new(observe)))
    }

    /// Takes images of this moment and examines them.
    fn crash_here(self: &Arc<Self>, mem: &MemVfs, power_lost: bool, depth: usize, at: &str) {
        let (modes, history) = {
            let mut state = self.state();
            if state.failure.is_some() {
                return;
            }
            let mut modes = all_modes(&mut state.rng);
            // Fewer where there are many: all kinds come up in turn.
            let most = if depth > 0 { 2 } else { self.modes_a_point };
            if most < modes.len() {
                let first = state.rng.below(modes.len() as u64) as usize;
                modes.rotate_left(first);
                modes.truncate(most);
            }
            (modes, state.history.clone())
        };
        for mode in modes {
            let image = mem.crash_clone_with(mode);
            let power_lost = power_lost || mode != CrashMode::Keep;
            let result = attempt(|| self.examine(image, &history, power_lost, depth));
            let mut state = self.state();
            state.coverage.hit(mode_name(mode));
            state.coverage.hit("image");
            state.coverage.hit(["first crash", "second crash", "third crash"][depth]);
            if let Err(why) = result.and_then(|judged| judged) {
                state
                    .failure
                    .get_or_insert_with(|| format!("crash {mode:?}, depth {depth}, before {at}: {why}"));
                return;
            }
        }
    }

    /// Opens an image and judges it.
    fn examine(
        self: &Arc<Self>,
        image: MemVfs,
        history: &History,
        power_lost: bool,
        depth: usize,
    ) -> Result<(), String> {
        let chance = self.state().rng.below(1000);
        let disk = Disk::on(image, self.order, self.lie);
        let deeper = depth < DEPTH_MAX && chance < [6, 4][depth];
        let vfs = deeper.then(|| self.observed(&disk, power_lost, depth + 1));
        let options = &self.setup.options;
        let db = disk
            .open(options, Arc::new(InlineScheduler::new()), vfs)
            .map_err(|error| format!("it does not open: {error}"))?;
        let found = content(&db).map_err(|error| format!("it can't be read: {error}"))?;
        if let Verdict::Wrong(why) = history.judge(&found, power_lost) {
            return Err(why);
        }
        assert_sound(&db);
        let mut coverage = Coverage::default();
        disk.events.count(&mut coverage, (false, false), false);
        if (200..400).contains(&chance) {
            // What an open has shown it must have made durable.
            coverage.hit("power loss after the open");
            drop(db);
            self.expect(&disk, CrashMode::Drop, &found, "a power loss right after the open")?;
        } else if (400..500).contains(&chance) {
            coverage.hit("writes after the crash");
            let mut wanted = found;
            for number in 0..5 {
                let (key, value) = (format!("after {number}").into_bytes(), value_for(number, b"", 30));
                write(&db, &[WriteOp::Put(key.clone(), value.clone())], Promise::Sync)
                    .map_err(|error| format!("a write after the crash: {error}"))?;
                wanted.insert(key, value);
            }
            drop(db);
            self.expect(&disk, CrashMode::from_seed(chance), &wanted, "synced writes after the crash")?;
            self.expect(&disk, CrashMode::Keep, &wanted, "an open after that")?;
        }
        self.state().coverage.merge(&coverage);
        Ok(())
    }

    /// Opens what a crash leaves now, which must hold exactly `wanted`.
    fn expect(&self, disk: &Disk, mode: CrashMode, wanted: &Content, what: &str) -> Result<(), String> {
        let next = disk.crashed(mode);
        let db = next.open_inline(&self.setup.options).map_err(|error| format!("{what}: {error}"))?;
        let found = content(&db).map_err(|error| format!("{what}: {error}"))?;
        self.state().coverage.hit("image");
        if found == *wanted { Ok(()) } else { Err(format!("{what}: it does not leave what was there")) }
    }

    /// Carries out the operations that change the disk.
    fn run(self: &Arc<Self>, disk: &Disk, seed: u64, ops: impl Iterator<Item = Op>, patience: &Patience) {
        let vfs = self.observed(disk, false, 0);
        let pace = self.pace;
        let open = |number: u64| {
            let scheduler = Arc::new(SimScheduler::new(seed ^ number, pace));
            let db = disk.open(&self.setup.options, Arc::clone(&scheduler) as _, Some(Arc::clone(&vfs)));
            (scheduler, Session::new(db.unwrap_or_else(|error| panic!("it does not open: {error}"))))
        };
        let (mut scheduler, mut session) = open(0);
        for (number, op) in ops.enumerate() {
            patience.next(format!("crash at operation {number}, {op:?}, of seed {seed}"));
            scheduler.pump();
            match &op {
                Op::Write(ops, promise) => {
                    self.history(|history| history.begin(ops, *promise));
                    session.run(&op).unwrap_or_else(|error| panic!("a write: {error}"));
                    self.history(History::acknowledge);
                }
                Op::Reopen => {
                    session.let_go().close().expect("close");
                    self.history(History::flushed);
                    (scheduler, session) = open(number as u64 + 1);
                }
                _ => {
                    session.run(&op).unwrap_or_else(|error| panic!("{op:?}: {error}"));
                    match op {
                        Op::Flush => self.history(History::flushed),
                        // An empty range does nothing at all; another one flushes first.
                        Op::Compact(ref range) if !is_empty_range(range) => self.history(History::flushed),
                        Op::Sync => self.history(History::synced),
                        _ => {}
                    }
                }
            }
            self.state().coverage.hit(op.name());
            self.crash_here(&disk.mem, false, 0, &format!("what follows {}", op.name()));
            if self.state().failure.is_some() {
                return;
            }
        }
        session.let_go().close().expect("close");
        self.history(History::flushed);
        self.crash_here(&disk.mem, false, 0, "nothing: it is closed");
    }
}

/// The workload of three operations with this number, after a few that give them something to work on.
fn triple(number: u64, seed: u64, coverage: &mut Coverage) -> Vec<Op> {
    let mut rng = SplitMix64::new(seed);
    let mut count = 0;
    let mut put = |rng: &mut SplitMix64, key: u64| {
        count += 1;
        let key = format!("k{key}").into_bytes();
        let value = value_for(count, &key, 8 + rng.below(60) as usize);
        WriteOp::Put(key, value)
    };
    let mut ops = vec![
        Op::Write((0..4).map(|key| put(&mut rng, key)).collect(), Promise::Default),
        Op::Flush,
        Op::Write(vec![put(&mut rng, 1)], Promise::Sync),
        Op::Write(vec![put(&mut rng, 2)], Promise::Buffered),
    ];
    let count = ATOMS.len() as u64;
    for atom in [number / (count * count), number / count % count, number % count] {
        let key = rng.below(6);
        match ATOMS[atom as usize] {
            "put" => ops.push(Op::Write(vec![put(&mut rng, key)], Promise::Buffered)),
            "put sync" => ops.push(Op::Write(vec![put(&mut rng, key)], Promise::Sync)),
            "put memory" => ops.push(Op::Write(vec![put(&mut rng, key)], Promise::Memory)),
            "batch" => {
                let batch = vec![put(&mut rng, key), put(&mut rng, key + 1), WriteOp::Delete(b"k0".to_vec())];
                ops.push(Op::Write(batch, Promise::Default));
            }
            "delete" => {
                ops.push(Op::Write(vec![WriteOp::Delete(format!("k{key}").into_bytes())], Promise::Default))
            }
            "flush" => ops.push(Op::Flush),
            "compact" => ops.push(Op::Compact((std::ops::Bound::Unbounded, std::ops::Bound::Unbounded))),
            "rotate" => {
                // More than a memtable and a segment hold: both are changed for new ones.
                coverage.hit("rotate");
                let key = b"large".to_vec();
                let value = value_for(seed, &key, 20_000);
                ops.push(Op::Write(vec![WriteOp::Put(key, value)], Promise::Buffered));
                ops.push(Op::Write(vec![put(&mut rng, 7)], Promise::Default));
            }
            "sync" => ops.push(Op::Sync),
            "reopen" => ops.push(Op::Reopen),
            _ => ops.extend([Op::TakeSnapshot, Op::DropSnapshot(0)].into_iter().take(1 + key as usize % 2)),
        }
    }
    ops
}

/// Makes a write so large that it fills a memtable, which a random workload of this length would not.
fn enlarge(op: &mut Op, rng: &mut SplitMix64, coverage: &mut Coverage) {
    if let Op::Write(ops, _) = op
        && let Some(WriteOp::Put(key, value)) = ops.first_mut()
    {
        coverage.hit("rotate");
        *value = value_for(rng.next_u64(), key, 9_000 + rng.below(9_000) as usize);
    }
}

fn case(case: &mut Case<'_>) {
    let triples = case.part == "triples";
    let setup = if triples && case.settings.preset.is_none() { Setup::tiny() } else { case.setup() };
    let mut rng = case.rng(2);
    let rotating = rng.percent(50);
    let pace = match rng.below(3) {
        0 if rotating => Pace::Starved,
        1 if rotating => Pace::UpTo(1),
        _ => Pace::from_rng(&mut rng),
    };
    let modes_a_point = if triples { usize::MAX } else { 4 };
    let state = TrialState {
        history: History::new(setup.default),
        rng: case.rng(1),
        coverage: Coverage::default(),
        failure: None,
    };
    let trial = Arc::new(Trial {
        setup,
        order: case.settings.order,
        lie: case.settings.lie,
        modes_a_point,
        pace,
        state: Mutex::new(state),
    });
    let disk = Disk::new(case.settings);
    if triples {
        // With both parts in turn, every seed of one parity.
        let number = if case.settings.part.is_some() { case.seed } else { case.seed / 2 } % TRIPLES;
        let ops = triple(number, case.seed, &mut case.coverage);
        trial.run(&disk, case.seed, ops.into_iter(), case.patience);
    } else {
        // Half of the cases fill memtables, and leave them to slow background work.
        let large = if rotating { 25 } else { 0 };
        let mix = Mix {
            flushes: if rotating { 2 } else { 8 },
            compactions: if rotating { 2 } else { 4 },
            value_len_max: if rng.percent(40) { 6000 } else { 300 },
            no_log_permille: if rng.percent(25) { 40 } else { 0 },
            ..Mix::changes()
        };
        let keys = KeySpace::new(case.seed, 6 + rng.below(20) as usize, 200);
        let most = if rng.percent(10) { 180 } else { 50 };
        let count = case.ops(20 + rng.below(most));
        let ops: Vec<Op> = Workload::new(case.seed, keys, mix)
            .take(count as usize)
            .map(|mut op| {
                if rng.percent(large) {
                    enlarge(&mut op, &mut rng, &mut case.coverage);
                }
                op
            })
            .collect();
        trial.run(&disk, case.seed, ops.into_iter(), case.patience);
    }
    let state = trial.state();
    case.coverage.merge(&state.coverage);
    disk.events.count(&mut case.coverage, (false, false), false);
    if let Some(failure) = &state.failure {
        panic!("with preset {}: {failure}", trial.setup.name);
    }
}
