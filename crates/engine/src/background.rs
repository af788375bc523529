//! The background work: which job is next, and what becomes of it.
//!
//! A job is decided under the state lock by a pure function, executed step by step without any lock, and installed in
//! one short critical section. Flushes come before compactions of level 0, and these before deeper ones; between two steps
//! of a job what is more urgent is taken first, also when there is one thread only. A rate limit holds back compactions.

use crate::compact::CompactJob;
use crate::core::Core;
use crate::flush::FlushJob;
use crate::scheduler::{BackgroundWork, HOUSEKEEPING};
use crate::state::State;
use crate::{Background, Error, Result};
use esker_base::points;
use std::panic::AssertUnwindSafe;

/// Entries that one step of a job handles: about a millisecond of work.
pub(crate) const ENTRIES_A_STEP: usize = 2048;

/// Work in progress.
#[derive(Debug)]
pub(crate) enum Job {
    Flush(Box<FlushJob>),
    Compact(Box<CompactJob>),
}

/// What a step of a job has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobStep {
    More,
    Done,
}

impl Job {
    fn step(&mut self, core: &Core) -> Result<JobStep> {
        match self {
            Job::Flush(job) => job.step(core),
            Job::Compact(job) => job.step(core),
        }
    }

    /// Takes the job's marks out of the state.
    fn release(&self, state: &mut State) {
        match self {
            Job::Flush(_) => state.flush_running = false,
            Job::Compact(job) => job.release(state),
        }
    }

    /// Removes what a failed job has made, unless a manifest may name it already.
    fn clean_up(&self, core: &Core) {
        let made = match self {
            Job::Flush(job) => job.made(),
            Job::Compact(job) => job.made(),
        };
        for made in made {
            made.remove_all(core.components.vfs.as_ref(), &core.tables);
        }
    }
}

impl BackgroundWork for Core {
    fn step(&self) -> bool {
        if self.is_stopping() {
            return false;
        }
        if self.has_failed() {
            return self.resume_after_full_disk();
        }
        self.divide_memory();
        if matches!(self.seal_for_scans(), Ok(true)) {
            return true;
        }
        let Some(job) = self.next_job() else {
            let waited = self.hold_back_compaction();
            if waited {
                self.keep_house_in_time();
            } else {
                self.keep_house();
            }
            return waited;
        };
        // What a failure means is recorded in there.
        let _ = self.run_step(job);
        self.keep_house_in_time();
        true
    }

    fn progress(&self) -> u64 {
        self.progress_now()
    }

    fn sync(&self) {
        self.queue.serve(self);
    }
}

impl State {
    /// Whether compactions wait to be gone on with, or to be begun.
    pub(crate) fn compactions_wait(&self) -> bool {
        self.next_paused_compaction().is_some() || self.manual_current.is_some() || !self.manual.is_empty()
    }

    /// The place in `paused` of the compaction to go on with: one of level 0, or else the oldest.
    fn next_paused_compaction(&self) -> Option<usize> {
        let level0 = |job: &Job| matches!(job, Job::Compact(job) if job.is_of_level0());
        let any = |job: &Job| matches!(job, Job::Compact(_));
        self.paused.iter().position(level0).or_else(|| self.paused.iter().position(any))
    }
}

impl Core {
    /// What idle workers do: removes what nobody reads any more, and hands what is buffered to the operating system.
    fn keep_house(&self) {
        self.kept_house(self.components.clock.now());
        self.sweep();
        self.flush_log_buffer();
    }

    /// The same for workers that are never idle, or wait for a rate limit, when it was not done for a while. Not inline:
    /// there the log must not depend on the time.
    fn keep_house_in_time(&self) {
        if self.options.background != Background::Inline
            && self.components.clock.now().saturating_sub(self.house_kept_at()) >= HOUSEKEEPING
        {
            self.keep_house();
        }
    }

    /// Runs one step of a job, and does what its outcome asks for.
    pub(crate) fn run_step(&self, mut job: Job) -> Result<()> {
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| job.step(self)));
        let result = outcome.unwrap_or_else(|panic| Err(Error::fatal(panic_message(&*panic))));
        let result = match result {
            Ok(JobStep::More) => {
                self.state.lock().paused.push_back(job);
                return Ok(());
            }
            Ok(JobStep::Done) => {
                points::here(points::Point::JobDone);
                self.job_succeeded(&job);
                Ok(())
            }
            Err(error) => {
                self.job_failed(&job, &error);
                Err(error)
            }
        };
        self.progressed();
        self.sweep();
        result
    }

    fn job_succeeded(&self, job: &Job) {
        let mut state = self.state.lock();
        job.release(&mut state);
        match job {
            Job::Flush(_) => {
                state.flush_alone = false;
                state.flush_retry.succeeded();
            }
            Job::Compact(_) => state.compaction_retry.succeeded(),
        }
        if !state.flush_retry.is_failing()
            && !state.compaction_retry.is_failing()
            && state.quarantined.is_empty()
        {
            self.recovered();
        }
    }

    fn job_failed(&self, job: &Job, error: &Error) {
        job.clean_up(self);
        {
            let mut state = self.state.lock();
            job.release(&mut state);
            match job {
                Job::Flush(job) => {
                    state.doubtful.extend(job.doubtful());
                    self.flush_failed(&mut state, error);
                }
                Job::Compact(job) => {
                    state.doubtful.extend(job.doubtful());
                    let inputs: Vec<_> = job.input_numbers().collect();
                    self.compaction_failed(&mut state, error, &inputs);
                }
            }
        }
        self.report_failure();
    }

    /// Picks up the most urgent job: a flush before a compaction, one in progress before a new one.
    fn next_job(&self) -> Option<Job> {
        self.note_free_space();
        self.look_at_snapshots();
        let mut state = self.state.lock();
        let done = state.manual_done;
        let job = self.next_job_of(&mut state);
        let manual_ended = state.manual_done != done;
        drop(state);
        if manual_ended {
            self.progressed();
        }
        job
    }

    fn next_job_of(&self, state: &mut State) -> Option<Job> {
        let now = || self.components.clock.now();
        if state.flush_retry.is_due(now)
            && let Some(flush) = self.next_flush(state)
        {
            return Some(flush);
        }
        if self.check_open().is_err() {
            // Closing waits for flushes only. Compactions are given up between two steps.
            return None;
        }
        let due = state.compaction_retry.is_due(now);
        if self.compactions_owe() {
            return None;
        }
        if let Some(at) = state.next_paused_compaction() {
            // A long compaction of deep levels must not keep level 0 waiting.
            if due
                && !matches!(&state.paused[at], Job::Compact(job) if job.is_of_level0())
                && let Some(level0) = self.plan_pressing_level0(state)
            {
                return Some(Job::Compact(Box::new(level0)));
            }
            return state.paused.remove(at);
        }
        if !due {
            return None;
        }
        self.plan_compaction(state).map(|job| Job::Compact(Box::new(job)))
    }

    /// The flush in progress, or the next one.
    pub(crate) fn next_flush(&self, state: &mut State) -> Option<Job> {
        if let Some(at) = state.paused.iter().position(|job| matches!(job, Job::Flush(_))) {
            return state.paused.remove(at);
        }
        self.plan_flush(state).map(|job| Job::Flush(Box::new(job)))
    }

    /// Compactions that may run at once: one thread is left for flushes.
    pub(crate) fn compactions_max(&self) -> usize {
        match self.options.background {
            Background::Threads(threads) => threads.saturating_sub(1).max(1),
            Background::Inline => 1,
        }
    }

    /// Gives up all jobs that are between two steps. Called when no step can run any more.
    pub(crate) fn drop_paused_jobs(&self) {
        let paused = std::mem::take(&mut self.state.lock().paused);
        for job in paused {
            job.clean_up(self);
            job.release(&mut self.state.lock());
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a background job panicked: {}", text.unwrap_or("(no message)"))
}

#[cfg(test)]
mod tests;
