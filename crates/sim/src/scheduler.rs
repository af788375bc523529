//! [`SimScheduler`]: background work on the caller's thread, at moments that a seed chooses.
//!
//! The engine does its background work in bounded steps. Here each occasion (a call of the engine, or of the harness
//! between two operations) runs a random number of them, often none, so that a flush or a compaction is found in every
//! state by the operations between its steps. A run is a function of its seed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use esker::scheduler::{BackgroundWork, Scheduler};
use esker_base::SplitMix64;

/// Waits without any progress after which the engine is taken to hang.
const IDLE_MAX: u32 = 10_000;

/// How background work gets on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// All of it at once: as the engine's inline scheduler.
    AtOnce,
    /// At each occasion up to so many steps.
    UpTo(u64),
    /// Only when somebody waits for it, and then a step at a time.
    Starved,
    /// Long times of nothing, then all of it.
    Bursts,
}

impl Pace {
    /// One of the paces.
    pub fn from_rng(rng: &mut SplitMix64) -> Self {
        match rng.below(8) {
            0 => Pace::AtOnce,
            1 | 2 => Pace::UpTo(1),
            3 | 4 => Pace::UpTo(3),
            5 => Pace::UpTo(10),
            6 => Pace::Starved,
            _ => Pace::Bursts,
        }
    }
}

/// A scheduler without threads whose choices come from a seed.
#[derive(Debug)]
pub struct SimScheduler {
    state: Mutex<State>,
    steps: AtomicU64,
    waits: AtomicU64,
}

struct State {
    rng: SplitMix64,
    pace: Pace,
    work: Option<Weak<dyn BackgroundWork>>,
    /// A step is under way: the engine must not be entered again from it.
    busy: bool,
    stopped: bool,
    idle: u32,
    /// Somebody wants a sync of the log, and has been put off.
    sync_wanted: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("pace", &self.pace).finish_non_exhaustive()
    }
}

impl SimScheduler {
    /// A scheduler whose choices come from `seed`.
    pub fn new(seed: u64, pace: Pace) -> Self {
        let state = State {
            rng: SplitMix64::new(seed ^ 0x5c4e_d01e),
            pace,
            work: None,
            busy: false,
            stopped: false,
            idle: 0,
            sync_wanted: false,
        };
        SimScheduler { state: Mutex::new(state), steps: AtomicU64::new(0), waits: AtomicU64::new(0) }
    }

    /// An occasion between two operations.
    pub fn pump(&self) {
        self.sync_late();
        self.occasion(None);
    }

    /// One step, whatever the pace; whether it did something.
    pub fn step_once(&self) -> bool {
        self.run(1)
    }

    /// Steps that did something.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// How often the engine waited.
    pub fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the sync that was put off, at most occasions.
    fn sync_late(&self) {
        let work = {
            let mut state = self.state();
            if !state.sync_wanted || state.busy || state.stopped || state.rng.below(8) == 0 {
                return;
            }
            state.sync_wanted = false;
            state.work.as_ref().and_then(Weak::upgrade)
        };
        if let Some(work) = work {
            work.sync();
        }
    }

    fn occasion(&self, work: Option<&Arc<dyn BackgroundWork>>) {
        let steps = {
            let mut state = self.state();
            if let Some(work) = work {
                state.work = Some(Arc::downgrade(work));
            }
            let pace = state.pace;
            match pace {
                Pace::AtOnce => u64::MAX,
                Pace::UpTo(most) => state.rng.below(most + 1),
                Pace::Starved => 0,
                Pace::Bursts if state.rng.below(60) == 0 => u64::MAX,
                Pace::Bursts => 0,
            }
        };
        self.run(steps);
    }

    /// Does up to so many steps; whether the last one did something.
    fn run(&self, steps: u64) -> bool {
        let work = {
            let mut state = self.state();
            if state.busy || state.stopped || steps == 0 {
                return false;
            }
            let Some(work) = state.work.as_ref().and_then(Weak::upgrade) else { return false };
            state.busy = true;
            work
        };
        let mut did = false;
        for _ in 0..steps {
            did = work.step();
            if !did {
                break;
            }
            self.steps.fetch_add(1, Ordering::Relaxed);
        }
        // The core may end with this reference, and its end calls back: not while the state is locked.
        self.state().busy = false;
        drop(work);
        did
    }
}

impl Scheduler for SimScheduler {
    fn work_available(&self, work: &Arc<dyn BackgroundWork>) {
        self.occasion(Some(work));
    }

    fn progressed(&self) {}

    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, seen: u64) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let steps = {
            let mut state = self.state();
            state.work = Some(Arc::downgrade(work));
            1 + state.rng.below(3)
        };
        let did = self.run(steps);
        let mut state = self.state();
        if did || work.progress() != seen || state.stopped {
            state.idle = 0;
        } else {
            state.idle += 1;
            assert!(state.idle < IDLE_MAX, "a hang: the engine waits for work that is not there");
        }
    }

    fn sync_wanted(&self, work: &Arc<dyn BackgroundWork>) {
        let now = {
            let mut state = self.state();
            state.work = Some(Arc::downgrade(work));
            let now = state.pace == Pace::AtOnce || state.rng.below(2) == 0;
            state.sync_wanted |= !now;
            now
        };
        if now {
            work.sync();
        }
    }

    fn delay(&self, _duration: Duration) {
        self.run(1);
    }

    fn stop(&self) {
        self.state().stopped = true;
    }
}
