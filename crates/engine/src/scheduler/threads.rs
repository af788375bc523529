//! Background work on threads of its own.

use super::{BackgroundWork, HOUSEKEEPING, Scheduler, in_use};
use crate::Result;
use esker_base::sync::thread::{self, JoinHandle};
use esker_base::sync::{Condvar, Mutex};
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Runs work on a fixed number of threads, which start with the first work and end with [`stop`](Scheduler::stop). One more
/// starts with the first sync that nobody waits for.
pub struct ThreadScheduler {
    shared: Arc<Shared>,
    threads: usize,
}

struct Shared {
    state: Mutex<State>,
    /// Signalled when there is work, and at the stop.
    work: Condvar,
    /// Signalled when something has finished, and at the stop.
    progress: Condvar,
    /// Signalled when a sync is wanted, and at the stop.
    sync: Condvar,
}

#[derive(Default)]
struct State {
    /// Grows with every call of `work_available`.
    calls: u64,
    /// Grows with every call of `sync_wanted`.
    sync_calls: u64,
    started: bool,
    stopped: bool,
    workers: Vec<JoinHandle<()>>,
    syncer: Option<JoinHandle<()>>,
}

impl ThreadScheduler {
    /// A scheduler that will start `threads` threads, at least one.
    pub fn new(threads: usize) -> Self {
        let shared = Shared {
            state: Mutex::default(),
            work: Condvar::new(),
            progress: Condvar::new(),
            sync: Condvar::new(),
        };
        ThreadScheduler { shared: Arc::new(shared), threads: threads.max(1) }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the module that starts threads")]
    fn start_syncer(&self, work: &Arc<dyn BackgroundWork>) -> Option<JoinHandle<()>> {
        let shared = Arc::clone(&self.shared);
        let work = Arc::downgrade(work);
        thread::Builder::new().name("esker-sync".to_owned()).spawn(move || run_syncs(&shared, &work)).ok()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the module that starts threads")]
    fn start_workers(&self, state: &mut State, work: &Arc<dyn BackgroundWork>) {
        for index in 0..self.threads {
            let shared = Arc::clone(&self.shared);
            let work = Arc::downgrade(work);
            let name = format!("esker-{index}");
            // A thread that can't be had is made up for by the others, or by waiting writers.
            if let Ok(worker) = thread::Builder::new().name(name).spawn(move || run(&shared, &work)) {
                state.workers.push(worker);
            }
        }
    }
}

/// A worker: steps while there is work, then sleeps until there is more.
fn run(shared: &Shared, work: &Weak<dyn BackgroundWork>) {
    let mut calls_seen = 0;
    loop {
        {
            let mut state = shared.state.lock();
            if state.calls == calls_seen && !state.stopped {
                state = shared.work.wait_timeout(state, HOUSEKEEPING);
            }
            if state.stopped {
                return;
            }
            calls_seen = state.calls;
        }
        let Some(work) = work.upgrade() else { return };
        while work.step() {
            if shared.state.lock().stopped {
                return;
            }
        }
    }
}

/// The thread for syncs that nobody waits for.
fn run_syncs(shared: &Shared, work: &Weak<dyn BackgroundWork>) {
    let mut calls_seen = 0;
    loop {
        {
            let mut state = shared.state.lock();
            while state.sync_calls == calls_seen && !state.stopped {
                state = shared.sync.wait(state);
            }
            if state.stopped {
                return;
            }
            calls_seen = state.sync_calls;
        }
        let Some(work) = work.upgrade() else { return };
        work.sync();
    }
}

impl Scheduler for ThreadScheduler {
    fn start(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.started {
            return Err(in_use());
        }
        state.started = true;
        state.stopped = false;
        Ok(())
    }

    fn work_available(&self, work: &Arc<dyn BackgroundWork>) {
        let mut state = self.shared.state.lock();
        if state.stopped {
            return;
        }
        if state.workers.is_empty() {
            self.start_workers(&mut state, work);
        }
        state.calls += 1;
        let no_threads = state.workers.is_empty();
        drop(state);
        self.shared.work.notify_all();
        if no_threads {
            while work.step() {}
        }
    }

    fn sync_wanted(&self, work: &Arc<dyn BackgroundWork>) {
        {
            let mut state = self.shared.state.lock();
            if state.stopped {
                return;
            }
            if state.syncer.is_none() {
                state.syncer = self.start_syncer(work);
            }
            state.sync_calls += 1;
            if state.syncer.is_some() {
                // All: one of an earlier database may still be on its way out.
                self.shared.sync.notify_all();
                return;
            }
        }
        work.sync();
    }

    fn progressed(&self) {
        drop(self.shared.state.lock());
        self.shared.progress.notify_all();
    }

    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, seen: u64) {
        let state = self.shared.state.lock();
        // `progressed` takes the lock after the number has grown, so no wake-up is lost between this look and the
        // wait. The time limit is for a worker that died.
        if work.progress() == seen && !state.stopped {
            drop(self.shared.progress.wait_timeout(state, HOUSEKEEPING));
        }
    }

    fn is_parallel(&self) -> bool {
        self.threads > 1
    }

    fn both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        // The other is done here when there is no thread to be had, and then the first has not begun.
        let one = Mutex::new(one);
        std::thread::scope(|scope| {
            let started = std::thread::Builder::new()
                .name("esker-open".to_owned())
                .spawn_scoped(scope, || (*one.lock())());
            other();
            if started.is_err() {
                (*one.lock())();
            }
        });
    }

    #[expect(clippy::disallowed_methods, reason = "this is the module that waits")]
    fn delay(&self, duration: Duration) {
        thread::sleep(duration);
    }

    fn stop(&self) {
        let workers = {
            let mut state = self.shared.state.lock();
            state.stopped = true;
            let mut workers = std::mem::take(&mut state.workers);
            workers.extend(state.syncer.take());
            workers
        };
        self.shared.sync.notify_all();
        self.shared.work.notify_all();
        self.shared.progress.notify_all();
        let this = thread::current().id();
        for worker in workers {
            // The last handle may be dropped by a worker itself; it ends after its step.
            if worker.thread().id() != this {
                let _ = worker.join();
            }
        }
        self.shared.state.lock().started = false;
    }
}

impl fmt::Debug for ThreadScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadScheduler").field("threads", &self.threads).finish_non_exhaustive()
    }
}
