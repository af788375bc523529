//! Who does the background work: the only place where esker starts threads or waits for progress.

mod inline;
mod threads;

pub use inline::InlineScheduler;
pub use threads::ThreadScheduler;

use crate::{Error, Result};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// How often a worker looks for leftovers (files that an iterator has kept) and at the buffer of the log without being called.
pub(crate) const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// Work that is done a step at a time.
pub trait BackgroundWork: Send + Sync {
    /// Does one bounded step of the most urgent work; `false` when there is nothing to do.
    fn step(&self) -> bool;

    /// A number that grows whenever something has finished that a writer may wait for.
    fn progress(&self) -> u64;

    /// Syncs the log for commits that nobody waits for, and calls what users have left to be called after that; until
    /// there is no more to do, or at once when another thread is doing it.
    fn sync(&self) {}
}

/// Runs the [`BackgroundWork`] of one database at a time.
///
/// All calls but [`progressed`](Scheduler::progressed) are made without any lock of the engine held.
pub trait Scheduler: Send + Sync + Debug {
    /// A database starts to use this scheduler.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when another one uses it, and has not stopped it.
    fn start(&self) -> Result<()> {
        Ok(())
    }

    /// There may be work now.
    fn work_available(&self, work: &Arc<dyn BackgroundWork>);

    /// Something has finished: wakes those who wait for it. Must not call into the engine: its locks may be held.
    fn progressed(&self);

    /// Waits until [`BackgroundWork::progress`] is no longer `seen`, or returns earlier.
    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, seen: u64);

    /// [`BackgroundWork::sync`] has something to do. Without a thread for it, that is done by the caller.
    fn sync_wanted(&self, work: &Arc<dyn BackgroundWork>) {
        work.sync();
    }

    /// Whether [`both`](Scheduler::both) does two things at the same time. If so, an open that has much to replay writes two
    /// tables where it would write one.
    fn is_parallel(&self) -> bool {
        false
    }

    /// Runs both, one after the other or at the same time, and returns when both have ended. Called by an open.
    fn both(&self, one: &mut (dyn FnMut() + Send), other: &mut (dyn FnMut() + Send)) {
        one();
        other();
    }

    /// Holds a writer up for a moment, at most a millisecond.
    fn delay(&self, duration: Duration);

    /// No more work: returns when no step is running any more. Further calls do nothing, until the next start.
    fn stop(&self);
}

/// The error for a second database on one scheduler.
fn in_use() -> Error {
    Error::invalid_argument(
        "the scheduler of these components serves another open database: give each its own",
    )
}
