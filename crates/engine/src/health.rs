//! [`DbState`]: what still works after an error, and how the database gets out of it again.
//!
//! | what failed | state | writes | leaves by |
//! |---|---|---|---|
//! | a compaction | `Degraded` | go on, until level 0 is full | the next success; it is tried again after 1 s to 5 min |
//! | a compaction, over a damaged table | `Degraded` | the same; that table is not compacted any more | reopening, or `resume` |
//! | a flush | `Degraded` | go on, until the memtables are full | the next success |
//! | nothing yet: there is little free space | `LowSpace` | refused, but for deletes | itself, when there is room |
//! | the log | `ReadOnly` | refused | `resume`, which runs by itself after a full disk |
//! | the manifest | `ReadOnly`, and nothing is deleted | refused | `resume` |
//! | an invariant, a panic in a job | `Fatal` | refused | reopening |
//!
//! Reads go on in every state. The first cause is kept, and every refused write names it.

use crate::core::Core;
use crate::event::Event;
use crate::stall::WaitFor;
use crate::state::State;
use crate::{Error, ErrorKind, Result};
use esker_base::FileNumber;
use std::time::Duration;

/// Whether a database takes writes, and if not, why.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum DbState {
    /// All is well.
    Open,
    /// A flush or a compaction has failed and will be tried again. Writes go on until there is no more room for them.
    Degraded {
        /// The latest failure.
        cause: Error,
    },
    /// There is less free space than [`min_free_space`](crate::Options::min_free_space) and a ballast: writes that add
    /// something are refused. Deletes, flushes and compactions go on, and so do writes as soon as there is room.
    LowSpace {
        /// What is free, and what must be.
        cause: Error,
    },
    /// The log or the manifest has failed. [`Db::resume`](crate::Db::resume) may help.
    ReadOnly {
        /// The first failure.
        cause: Error,
    },
    /// An invariant is broken. Reopen the database.
    Fatal {
        /// The first failure.
        cause: Error,
    },
    /// The database was closed.
    Closed,
}

/// What is wrong. Guarded by a lock of its own, which is a leaf.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Why writes are refused.
    latch: Option<Error>,
    /// Why background work is late.
    degraded: Option<Error>,
    /// An error that the listener was not told yet, and whether it latched.
    unreported: Option<(Error, bool)>,
}

/// When failed work is tried again: after a second at first, then after twice the time, at most five minutes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retry {
    /// How often it has failed in a row.
    failures: u32,
    not_before: Duration,
}

const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);

impl Retry {
    pub(crate) fn failed(&mut self, now: Duration) {
        let wait = RETRY_FIRST.saturating_mul(1 << self.failures.min(10)).min(RETRY_MAX);
        self.failures += 1;
        self.not_before = now.saturating_add(wait);
    }

    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether it may be tried now.
    pub(crate) fn is_due(&self, now: impl FnOnce() -> Duration) -> bool {
        self.failures == 0 || now() >= self.not_before
    }
}

impl Core {
    /// Latches the database read-only. The first error stays the cause. May be called with locks held: listeners are
    /// told by [`report_failure`](Self::report_failure), later.
    pub(crate) fn fail(&self, error: &Error) {
        {
            let mut health = self.health.lock();
            if health.latch.is_some() {
                return;
            }
            health.latch = Some(error.clone());
            health.unreported = Some((error.clone(), true));
            self.set_failed(true);
        }
        // Whoever waits for background work would wait in vain.
        self.progressed();
    }

    /// Notes that background work is late. Writes go on.
    pub(crate) fn degrade(&self, error: &Error) {
        let mut health = self.health.lock();
        health.degraded = Some(error.clone());
        health.unreported.get_or_insert_with(|| (error.clone(), false));
    }

    /// Background work has caught up.
    pub(crate) fn recovered(&self) {
        self.health.lock().degraded = None;
    }

    /// Lifts the latch.
    pub(crate) fn unlatch(&self) {
        let mut health = self.health.lock();
        health.latch = None;
        health.degraded = None;
        self.set_failed(false);
    }

    /// Tells the listener of an error, once. Called without a lock.
    pub(crate) fn report_failure(&self) {
        if self.components.listener.is_none() {
            return;
        }
        // A statement of its own, so that the lock is given back before the listener is called.
        let unreported = self.health.lock().unreported.take();
        if let Some((error, latched)) = unreported {
            self.emit(&Event::BackgroundError { error, latched });
        }
    }

    /// The error that refuses writes.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.health.lock().latch.clone()
    }

    /// The error for work that waits for background work which keeps failing.
    pub(crate) fn background_failure(&self) -> Error {
        let health = self.health.lock();
        match (&health.latch, &health.degraded) {
            (Some(cause), _) => Error::read_only(cause.clone()),
            // Writes go on: only what was waited for has failed.
            (None, Some(cause)) => cause.clone(),
            (None, None) => Error::fatal("background work fails without a cause"),
        }
    }

    pub(crate) fn db_state(&self) -> DbState {
        if self.check_open().is_err() {
            return DbState::Closed;
        }
        // Before the health is locked: a listener may be told, and ask.
        let room = self.look_again(0);
        let health = self.health.lock();
        match (&health.latch, &health.degraded) {
            (Some(cause), _) if matches!(cause.kind(), ErrorKind::Fatal { .. }) => {
                DbState::Fatal { cause: cause.clone() }
            }
            (Some(cause), _) => DbState::ReadOnly { cause: cause.clone() },
            (None, _) if room.is_err() => {
                DbState::LowSpace { cause: room.err().unwrap_or_else(Error::closed) }
            }
            (None, Some(cause)) => DbState::Degraded { cause: cause.clone() },
            (None, None) => DbState::Open,
        }
    }

    /// What a failed flush means. Called with the state locked.
    pub(crate) fn flush_failed(&self, state: &mut State, error: &Error) {
        if matches!(error.kind(), ErrorKind::Fatal { .. }) {
            return self.fail(error);
        }
        state.flush_alone = true;
        state.flush_retry.failed(self.components.clock.now());
        state.flush_failures += 1;
        self.degrade(error);
    }

    /// What a failed compaction means. A damaged input is left alone from now on, so that the others can go on.
    pub(crate) fn compaction_failed(&self, state: &mut State, error: &Error, inputs: &[FileNumber]) {
        if matches!(error.kind(), ErrorKind::Fatal { .. }) {
            return self.fail(error);
        }
        state.compaction_retry.failed(self.components.clock.now());
        state.compaction_failures += 1;
        if let ErrorKind::Corruption { file, .. } = error.kind() {
            let damaged = inputs.iter().filter(|&&number| self.tables.path(number) == *file);
            for &number in damaged {
                state.quarantined.insert(number);
                state.busy.insert(number);
            }
        }
        self.degrade(error);
    }

    /// Fails when a writer would wait for work that keeps failing, or that nobody can do.
    pub(crate) fn check_wait_makes_sense(&self, what: WaitFor) -> Result<()> {
        self.note_free_space();
        let (in_vain, no_room) = {
            let state = self.state.lock();
            match what {
                WaitFor::Flush => (state.flush_retry.is_failing(), false),
                WaitFor::Compaction => (
                    state.compaction_retry.is_failing() || self.is_blocked_by_damage(&state),
                    self.is_blocked_by_space(&state),
                ),
            }
        };
        // For a writer it is as if the database took no writes. A disk that is known to be full says so itself.
        let refused = || match self.background_failure() {
            error if matches!(error.kind(), ErrorKind::ReadOnly { .. }) => error,
            error if error.is_no_space() && self.room.is_low() => error,
            cause => Error::read_only(cause),
        };
        match () {
            () if in_vain => Err(refused()),
            () if no_room => Err(self.no_room_for_compactions()),
            () => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_come_later_and_later() {
        let mut retry = Retry::default();
        assert!(retry.is_due(|| Duration::ZERO) && !retry.is_failing());
        let mut now = Duration::from_secs(7);
        for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
            retry.failed(now);
            assert!(!retry.is_due(|| now + Duration::from_secs(wait) - Duration::from_nanos(1)), "{wait}");
            now += Duration::from_secs(wait);
            assert!(retry.is_due(|| now) && retry.is_failing());
        }
        retry.succeeded();
        assert!(!retry.is_failing());
    }
}
