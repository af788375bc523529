//! A crash at every call of the file system: short workloads, and an image of the disk before each call that changes
//! something. Each image is opened, and what it holds is judged by the history (see `esker_testkit::History`).
//!
//! Some images crash again, at each call of their recovery (DW12, DW19); some are written to and crash then (DW20); some
//! lose power right after the open, which must have made durable what it showed (F5).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use esker::scheduler::InlineScheduler;
use esker::vfs::{Call, CrashMode, Event, MemVfs, ObserveVfs, Vfs};
use esker::{Db, Options};
use esker_base::SplitMix64;
use esker_testkit::{
    Coverage, History, KeySpace, Mix, Op, Patience, Promise, Verdict, Workload, WriteOp, presets, value_for,
};

use crate::support::{Content, Replay, Rig, assert_sound, content, env, options_of, write};

/// The names of the modes, for counts; each must come up.
const MODES: [&str; 7] = ["keep", "drop", "random", "prefix", "torn", "size only", "unlink first"];

/// How deep crashes are nested: a workload, its recovery, the recovery of that.
const DEPTH_MAX: usize = 2;

fn mode_name(mode: CrashMode) -> &'static str {
    match mode {
        CrashMode::Keep => MODES[0],
        CrashMode::Drop => MODES[1],
        CrashMode::Random { .. } => MODES[2],
        CrashMode::Prefix { .. } => MODES[3],
        CrashMode::Torn { .. } => MODES[4],
        CrashMode::SizeOnly { .. } => MODES[5],
        _ => MODES[6],
    }
}

/// One workload, its oracle and the verdicts so far. Shared with the observer of the disk.
struct Trial {
    options: Options,
    state: Mutex<TrialState>,
    patience: Patience,
}

struct TrialState {
    history: History,
    rng: SplitMix64,
    coverage: Coverage,
    failures: Vec<String>,
}

impl Trial {
    fn new(seed: u64, options: Options, default: Promise) -> Arc<Self> {
        let state = TrialState {
            history: History::new(default),
            rng: SplitMix64::new(seed ^ 0xc4a5),
            coverage: Coverage::default(),
            failures: Vec::new(),
        };
        Arc::new(Trial {
            options,
            state: Mutex::new(state),
            patience: Patience::new(Duration::from_secs(60)),
        })
    }

    /// A file system over `rig` on which every changing call is an occasion for crashes.
    fn observed(self: &Arc<Self>, rig: &Rig, power_lost: bool, depth: usize) -> Arc<dyn Vfs> {
        let (trial, mem) = (Arc::clone(self), rig.mem.clone());
        let observe = move |call: &Call<'_>, event: Event| {
            if event == Event::Before && call.kind.is_change() {
                trial.crash_here(&mem, power_lost, depth, &call.to_string());
            }
        };
        Arc::new(ObserveVfs::new(Arc::new(rig.order.clone()), Arc::new(observe)))
    }

    fn open(&self, rig: &Rig, vfs: Arc<dyn Vfs>) -> esker::Result<Db> {
        let mut components = rig.components_on(vfs, &self.options);
        components.scheduler = Arc::new(InlineScheduler::new());
        Db::open_with("/db", self.options.clone(), components)
    }

    /// Takes images of this moment and examines them.
    fn crash_here(self: &Arc<Self>, mem: &MemVfs, power_lost: bool, depth: usize, at: &str) {
        let (modes, history) = {
            let mut state = self.state.lock().unwrap();
            let seed = state.rng.next_u64();
            let rotating = match state.rng.below(4) {
                0 => CrashMode::Prefix { seed },
                1 => CrashMode::SizeOnly { seed },
                2 => CrashMode::UnlinkFirst { seed },
                _ => CrashMode::Random { seed, keep_percent: 50 },
            };
            let torn = CrashMode::Torn { seed };
            let mut modes =
                vec![CrashMode::Keep, CrashMode::Drop, torn, rotating, CrashMode::from_seed(seed ^ 1)];
            if depth > 0 {
                // Fewer where there are many: one of the plain ones, and one other.
                modes.rotate_left(state.rng.below(5) as usize);
                modes.truncate(2);
            }
            (modes, state.history.clone())
        };
        for mode in modes {
            let image = mem.crash_clone_with(mode);
            let power_lost = power_lost || mode != CrashMode::Keep;
            self.patience.next(format!("{mode:?} before {at}"));
            let result = catch_unwind(AssertUnwindSafe(|| self.examine(image, &history, power_lost, depth)));
            let mut state = self.state.lock().unwrap();
            state.coverage.hit(mode_name(mode));
            state.coverage.hit("image");
            state.coverage.hit(["first crash", "second crash", "third crash"][depth]);
            let why = match result {
                Ok(Ok(())) => continue,
                Ok(Err(why)) => why,
                Err(panic) => format!("a panic: {}", text_of(&*panic)),
            };
            state.failures.push(format!("crash {mode:?} number {depth} before {at}: {why}"));
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
        let chance = self.state.lock().unwrap().rng.below(100);
        let rig = Rig::on(image);
        let deeper = depth < DEPTH_MAX && chance < [3, 1][depth];
        let vfs: Arc<dyn Vfs> =
            if deeper { self.observed(&rig, power_lost, depth + 1) } else { Arc::new(rig.order.clone()) };
        let db = self.open(&rig, vfs).map_err(|error| format!("it does not open: {error}"))?;
        let found = content(&db).map_err(|error| format!("it can't be read: {error}"))?;
        if let Verdict::Wrong(why) = history.judge(&found, power_lost) {
            return Err(why);
        }
        assert_sound(&db);
        let mut coverage = Coverage::default();
        for event in rig.events.take() {
            if let esker::Event::Opened {
                report: esker::RecoveryReport { replayed_batches, dropped_bytes, .. },
                ..
            } = event
            {
                coverage.add("replayed", replayed_batches);
                coverage.add("torn tail", u64::from(dropped_bytes > 0));
            }
        }
        if (20..40).contains(&chance) {
            coverage.hit("power loss after the open");
            drop(db);
            self.expect(&rig, CrashMode::Drop, &found, "a power loss right after the open")?;
        } else if (40..50).contains(&chance) {
            coverage.hit("writes after the crash");
            let mut wanted = found;
            for number in 0..5 {
                let (key, value) = (format!("after {number}").into_bytes(), value_for(number, b"", 30));
                write(&db, &[WriteOp::Put(key.clone(), value.clone())], Promise::Sync)
                    .map_err(|error| format!("a write after the crash: {error}"))?;
                wanted.insert(key, value);
            }
            drop(db);
            self.expect(&rig, CrashMode::from_seed(chance), &wanted, "synced writes after the crash")?;
            self.expect(&rig, CrashMode::Keep, &wanted, "an open after that")?;
        }
        self.state.lock().unwrap().coverage.merge(&coverage);
        Ok(())
    }

    /// Opens what a crash leaves now, which must hold exactly `wanted`.
    fn expect(&self, rig: &Rig, mode: CrashMode, wanted: &Content, what: &str) -> Result<(), String> {
        let next = rig.crashed(mode);
        let db =
            self.open(&next, Arc::new(next.order.clone())).map_err(|error| format!("{what}: {error}"))?;
        let found = content(&db).map_err(|error| format!("{what}: {error}"))?;
        if found == *wanted { Ok(()) } else { Err(format!("{what} does not leave what was there")) }
    }

    fn history<R>(&self, change: impl FnOnce(&mut History) -> R) -> R {
        change(&mut self.state.lock().unwrap().history)
    }

    /// Carries out the operations that change the disk.
    fn run(self: &Arc<Self>, ops: impl Iterator<Item = Op>) {
        let rig = Rig::new();
        let vfs = self.observed(&rig, false, 0);
        let mut db = Some(self.open(&rig, Arc::clone(&vfs)).expect("a new database opens"));
        let mut snapshots = Vec::new();
        for op in ops {
            let open = db.as_ref().expect("open between operations");
            match &op {
                Op::Write(ops, promise) => {
                    self.history(|history| history.begin(ops, *promise));
                    write(open, ops, *promise).expect("a write");
                    self.history(History::acknowledge);
                }
                Op::Flush => {
                    open.flush().expect("flush");
                    self.history(History::flushed);
                }
                Op::Compact(range) => {
                    let bounds = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
                    open.compact_range::<&[u8], _>(bounds).expect("compact_range");
                }
                Op::Sync => {
                    open.sync().expect("sync");
                    self.history(History::synced);
                }
                Op::Reopen => {
                    snapshots.clear();
                    db.take().expect("open").close().expect("close");
                    self.history(History::flushed);
                    db = Some(self.open(&rig, Arc::clone(&vfs)).expect("it opens again"));
                }
                Op::TakeSnapshot => snapshots.push(open.snapshot()),
                Op::DropSnapshot(_) => drop(snapshots.pop()),
                _ => continue,
            }
            self.state.lock().unwrap().coverage.hit(op.name());
            self.crash_here(&rig.mem, false, 0, &format!("what follows {}", op.name()));
        }
        snapshots.clear();
        db.take().expect("open").close().expect("close");
        self.history(History::flushed);
        self.crash_here(&rig.mem, false, 0, "nothing: it is closed");
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// One workload, everything derived from the seed.
fn run(seed: u64) -> Coverage {
    let _replay =
        Replay(format!("ESKER_SEED={seed} cargo test -p esker --test it crash::replay -- --nocapture"));
    let presets = presets();
    let preset = &presets[(seed % presets.len() as u64) as usize];
    let default = [Promise::Memory, Promise::Buffered, Promise::Sync][usize::from(preset.durability)];
    let trial = Trial::new(seed, options_of(preset), default);
    let mix = Mix {
        value_len_max: if seed.is_multiple_of(3) { 6000 } else { 300 },
        no_log_permille: if seed % 4 == 3 { 60 } else { 0 },
        ..Mix::changes()
    };
    let keys = KeySpace::new(seed, 8 + (seed % 20) as usize, 200);
    let count = 20 + (seed % 41) as usize;
    trial.run(Workload::new(seed, keys, mix).take(count));
    let state = trial.state.lock().unwrap();
    let failures = &state.failures;
    assert!(failures.is_empty(), "{} failures with preset {}:\n{}", failures.len(), preset.name, failures[0]);
    state.coverage.clone()
}

fn runs(part: u64) {
    let images = env("ESKER_CRASH_IMAGES", 40_000) / 2;
    let base = env("ESKER_CRASH_SEED", 0);
    let mut coverage = Coverage::default();
    let mut seed = base + part;
    while coverage.get("image") < images {
        coverage.merge(&run(seed));
        seed += 2;
    }
    println!("seeds {base} to {seed}: {coverage}");
    coverage.demand(&MODES);
    coverage.demand(&["second crash", "third crash", "replayed", "torn tail"]);
    coverage.demand(&["power loss after the open", "writes after the crash"]);
    coverage.demand(&["put", "delete", "batch", "flush", "compact", "sync", "reopen"]);
}

/// In two halves, for the two cores.
#[test]
fn dw19_crash_at_every_call_even_seeds() {
    runs(0);
}

#[test]
fn dw19_crash_at_every_call_odd_seeds() {
    runs(1);
}

/// One workload, as the environment says: what a failing run prints.
#[test]
fn replay() {
    println!("{}", run(env("ESKER_SEED", 1)));
}
