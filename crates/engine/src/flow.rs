//! Admission of writers: what background work tells the throttle, and how a writer is held up.
//!
//! Writers come here before they take a lock. `stall` and `throttle` decide, both pure; this
//! file collects what they look at, and does the waiting.

use crate::core::Core;
use crate::event::Event;
use crate::rate::RateLimit;
use crate::stall::{Admission, Debt, StallInput, WaitFor, admit};
use crate::throttle::{SLICE_MAX, Throttle};
use crate::{Background, Error, Result};
use esker_base::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What admission knows beside the picture that readers see.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) throttle: Mutex<Throttle>,
    pub(crate) rate_limit: Mutex<RateLimit>,
    /// Level-0 tables that running compactions have done with, in 1/1024.
    level0_done: Arc<AtomicU64>,
    /// The same for sealed memtables and the running flush.
    flushed: Arc<AtomicU64>,
    /// Tombstones in tables that scans have stepped over since a compaction was picked for that.
    pub(crate) scanned_tombstones: AtomicU64,
}

/// One whole input in a counter of [`Flow`].
const UNIT: f64 = 1024.0;

/// How much of its inputs a running job has done with. It counts until the job is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    counter: Arc<AtomicU64>,
    shown: u64,
    inputs: f64,
    entries: f64,
}

impl Share {
    /// The job has read so many of the entries of its inputs.
    pub(crate) fn show(&mut self, entries_read: u64) {
        let part = (entries_read as f64 / self.entries).min(1.0);
        let now = (part * self.inputs * UNIT) as u64;
        if now > self.shown {
            self.counter.fetch_add(now - self.shown, Relaxed);
            self.shown = now;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.shown, Relaxed);
    }
}

impl Flow {
    pub(crate) fn new(background_rate_limit: u64) -> Self {
        Flow {
            throttle: Mutex::default(),
            rate_limit: Mutex::new(RateLimit::new(background_rate_limit)),
            level0_done: Arc::default(),
            flushed: Arc::default(),
            scanned_tombstones: AtomicU64::new(0),
        }
    }

    /// The share of a compaction that brings `tables` tables out of level 0 and has `entries` entries to read.
    pub(crate) fn level0_share(&self, tables: usize, entries: u64) -> Share {
        Self::share(&self.level0_done, tables, entries)
    }

    /// The share of a flush of so many memtables.
    pub(crate) fn flush_share(&self, memtables: usize, entries: u64) -> Share {
        Self::share(&self.flushed, memtables, entries)
    }

    fn share(counter: &Arc<AtomicU64>, inputs: usize, entries: u64) -> Share {
        let (inputs, entries) = (inputs as f64, entries.max(1) as f64);
        Share { counter: Arc::clone(counter), shown: 0, inputs, entries }
    }
}

impl Core {
    /// Waits a moment, if compactions have moved more bytes than they may; `true` if so. Called by a worker without a
    /// lock, between two steps: flushes come first, and a close does not wait for it.
    pub(crate) fn hold_back_compaction(&self) -> bool {
        let limited = self.options.background_rate_limit > 0 && self.check_open().is_ok();
        let some_wait =
            || self.state.lock().compactions_wait() || self.super_version.load().pending_bytes > 0;
        if !limited || !some_wait() {
            return false;
        }
        let before = self.components.clock.now();
        let wait = self.flow.rate_limit.lock().wait(before).min(SLICE_MAX);
        if wait.is_zero() {
            return false;
        }
        self.components.scheduler.delay(wait);
        if self.components.clock.now() == before {
            self.flow.rate_limit.lock().forgive(wait);
        }
        true
    }

    /// Whether compactions have moved more bytes than they may by now.
    pub(crate) fn compactions_owe(&self) -> bool {
        self.options.background_rate_limit > 0
            && !self.flow.rate_limit.lock().wait(self.components.clock.now()).is_zero()
    }

    /// Enters bytes that a compaction has read and written.
    pub(crate) fn charge_compaction(&self, bytes: u64) {
        if self.options.background_rate_limit > 0 && self.options.background != Background::Inline {
            self.flow.rate_limit.lock().charge(bytes, self.components.clock.now());
        }
    }

    /// Holds a writer of `bytes` up as the state of flushes and compactions demands. Called without a lock.
    pub(crate) fn admit_writer(&self, bytes: usize) -> Result<()> {
        let mut planned: Option<(Duration, Debt)> = None;
        let mut delayed = Duration::ZERO;
        loop {
            match admit(self.stall_input(false)) {
                Admission::Go => break,
                Admission::Wait(what) => {
                    self.wait_for_room(what)?;
                }
                Admission::Slow(debt) => {
                    let (delay, _) = *planned.get_or_insert_with(|| {
                        let now = self.components.clock.now();
                        (self.flow.throttle.lock().book(bytes, debt, now), debt)
                    });
                    let slice = delay.saturating_sub(delayed).min(SLICE_MAX);
                    if slice.is_zero() {
                        break;
                    }
                    self.components.scheduler.delay(slice);
                    delayed += slice;
                    self.check_writable()?;
                }
            }
        }
        if let Some((_, debt)) = planned
            && !delayed.is_zero()
        {
            self.metrics.stalled(delayed, debt.of.cause());
        }
        Ok(())
    }

    /// Lets a writer of `bytes` in, or fails with `WouldStall` where [`admit_writer`](Self::admit_writer) would hold it up.
    pub(crate) fn admit_at_once(&self, bytes: usize) -> Result<()> {
        match admit(self.stall_input(false)) {
            Admission::Go => Ok(()),
            Admission::Wait(what) => Err(self.would_wait(what)),
            Admission::Slow(debt) => {
                let now = self.components.clock.now();
                let mut throttle = self.flow.throttle.lock();
                let delay = throttle.delay(now);
                if !delay.is_zero() {
                    return Err(Error::would_stall(debt.of.cause(), delay));
                }
                throttle.book(bytes, debt, now);
                Ok(())
            }
        }
    }

    /// Waits until a memtable may be sealed, or fails with `WouldStall`. Called without a lock.
    pub(crate) fn admit_seal(&self, may_wait: bool) -> Result<()> {
        match admit(self.stall_input(true)) {
            Admission::Wait(what) if may_wait => self.wait_for_room(what),
            Admission::Wait(what) => Err(self.would_wait(what)),
            _ => Ok(()),
        }
    }

    fn would_wait(&self, what: WaitFor) -> Error {
        if let Err(in_vain) = self.check_writable().and_then(|()| self.check_wait_makes_sense(what)) {
            return in_vain;
        }
        let expected = self.flow.throttle.lock().expected_wait(what == WaitFor::Flush);
        // Nobody may be at it: an inline scheduler works only for those who wait.
        self.work_available();
        Error::would_stall(what.cause(), expected)
    }

    fn wait_for_room(&self, what: WaitFor) -> Result<()> {
        let started = self.components.clock.now();
        loop {
            let seen = self.progress_now();
            self.check_writable()?;
            let Admission::Wait(what) = admit(self.stall_input(true)) else { break };
            self.check_wait_makes_sense(what)?;
            self.work_available();
            self.wait_for_progress(seen);
        }
        let took = self.components.clock.now().saturating_sub(started);
        self.metrics.stalled(took, what.cause());
        self.emit(&Event::Stalled { cause: what.cause(), took });
        Ok(())
    }

    /// `seals` says that the write is known to need a new memtable.
    fn stall_input(&self, seals: bool) -> StallInput {
        let picture = self.super_version.load();
        let used = picture.active.memory_usage() as f64 / self.options.effective_memtable_size() as f64;
        StallInput {
            l0_tables: picture.keyspaces.iter().map(|keyspace| keyspace.level0.len()).max().unwrap_or(0),
            l0_done: self.flow.level0_done.load(Relaxed) as f64 / UNIT,
            l0_trigger: self.options.l0_trigger,
            immutables: picture.immutables.len(),
            flushed: self.flow.flushed.load(Relaxed) as f64 / UNIT,
            fill: used.min(1.0),
            pending_bytes: picture.pending_bytes,
            base_level_size: self.options.base_level_size,
            memtable_full: seals || used >= 1.0,
        }
    }
}
