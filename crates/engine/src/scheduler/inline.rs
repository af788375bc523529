//! Background work on the caller's stack: one thread, the same order in every run.

use super::{BackgroundWork, Scheduler, in_use};
use crate::Result;
use esker_base::sync::atomic::{AtomicBool, Ordering};
use esker_base::sync::thread;
use std::sync::Arc;
use std::time::Duration;

/// Does all work at once, on the thread that brings it.
#[derive(Debug, Default)]
pub struct InlineScheduler {
    /// Set while some thread does the work; others leave it to that one.
    busy: AtomicBool,
    started: AtomicBool,
    stopped: AtomicBool,
}

impl InlineScheduler {
    /// A scheduler without threads.
    pub fn new() -> Self {
        Self::default()
    }

    fn run(&self, work: &Arc<dyn BackgroundWork>) {
        loop {
            if self.busy.swap(true, Ordering::SeqCst) {
                return;
            }
            let mut worked = false;
            while !self.stopped.load(Ordering::SeqCst) && work.step() {
                worked = true;
            }
            self.busy.store(false, Ordering::SeqCst);
            // Work that came while we were busy was left to us: look once more after giving the flag back.
            if !worked || self.stopped.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}

impl Scheduler for InlineScheduler {
    fn start(&self) -> Result<()> {
        if self.started.swap(true, Ordering::SeqCst) {
            return Err(in_use());
        }
        self.stopped.store(false, Ordering::SeqCst);
        Ok(())
    }

    fn work_available(&self, work: &Arc<dyn BackgroundWork>) {
        self.run(work);
    }

    fn progressed(&self) {}

    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, seen: u64) {
        self.run(work);
        if work.progress() == seen {
            // Another thread does the work.
            thread::yield_now();
        }
    }

    fn delay(&self, _duration: Duration) {}

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        while self.busy.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        self.started.store(false, Ordering::SeqCst);
    }
}
