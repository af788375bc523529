//! [`Throttle`]: how fast writers may go while background work lags. Pure: it is told the time.
//!
//! It measures the *drain*, the payload bytes a second that flushes and compactions of level 0 take off the writers'
//! hands, and admits a multiple of it that falls with the debt: twice the drain at the soft limit, the drain itself at
//! four tenths of the way, an eighth of it at the hard limit. Where the two meet the debt stays as it is, so a steady load
//! finds its rate by itself, whatever the estimate is off by. The curve is flat in the middle, since the debt goes up and
//! down with each large compaction, and the rate should not; and steep at both ends, where that no longer matters.
//!
//! The rate is kept by a time at which the next write may start. Each write moves it on by its bytes. A writer that is
//! little ahead of it goes on at once, since a short sleep costs more than it holds up.

use crate::stall::{Debt, DebtOf};
use std::time::Duration;

/// The longest delay of one write.
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(10);
/// The longest delay without a look at how things are.
pub(crate) const SLICE_MAX: Duration = Duration::from_millis(1);
/// Writers are not held up for less.
const DELAY_MIN: Duration = Duration::from_micros(500);
/// Time that was not used, or was slept too long, and may be made up for.
const BURST: Duration = Duration::from_millis(2);
/// How far the next start may move ahead of the present: what several writers together can owe.
const LEAD_MAX: Duration = Duration::from_millis(100);
/// Bytes a second, before anything is measured and at the least.
const DRAIN_FIRST: f64 = (64 << 20) as f64;
const RATE_MIN: f64 = (32 << 10) as f64;
/// The debt at which as much is admitted as is drained.
const STEADY: f64 = 0.4;
/// Seconds over which a drain is averaged.
const MEMORY: f64 = 5.0;

/// The state of the throttle. Guarded by a lock that is a leaf.
#[derive(Debug)]
pub(crate) struct Throttle {
    flush: Drain,
    level0: Drain,
    /// Payload bytes in a byte of a flushed table.
    payload_by_size: f64,
    /// When the next write may start.
    next_start: Duration,
}

/// A measured rate.
#[derive(Clone, Copy, Debug, Default)]
struct Drain {
    /// Bytes a second; `None` before the first measurement.
    rate: Option<f64>,
    /// The end of the last job, if more work waited then: the time up to the end of the next one counts in full.
    busy_since: Option<Duration>,
    /// How long a job takes, smoothed.
    took: Option<Duration>,
}

impl Drain {
    fn measured(&mut self, bytes: f64, started: Duration, now: Duration, more_waits: bool) {
        let since = self.busy_since.unwrap_or(started);
        let seconds = now.saturating_sub(since).as_secs_f64();
        self.busy_since = more_waits.then_some(now);
        let took = now.saturating_sub(started);
        self.took = Some(self.took.map_or(took, |before| (before * 3 + took) / 4));
        if seconds < 1e-6 {
            // The clock stands still.
            return;
        }
        let weight = if self.rate.is_some() { seconds / (seconds + MEMORY) } else { 1.0 };
        let before = self.rate.unwrap_or(0.0);
        self.rate = Some(before + (bytes / seconds - before) * weight);
    }

    fn rate(&self) -> f64 {
        self.rate.map_or(DRAIN_FIRST, |rate| rate.max(RATE_MIN))
    }
}

impl Default for Throttle {
    fn default() -> Self {
        Throttle {
            flush: Drain::default(),
            level0: Drain::default(),
            payload_by_size: 1.0,
            next_start: Duration::ZERO,
        }
    }
}

impl Throttle {
    /// A flush has made `file_bytes` of tables out of `payload` bytes of keys and values.
    pub(crate) fn flushed(
        &mut self,
        (payload, file_bytes): (u64, u64),
        started: Duration,
        now: Duration,
        more_waits: bool,
    ) {
        self.flush.measured(payload as f64, started, now, more_waits);
        if file_bytes > 0 {
            let ratio = payload as f64 / file_bytes as f64;
            self.payload_by_size += (ratio - self.payload_by_size) / 4.0;
        }
    }

    /// A compaction has brought `file_bytes` of tables out of level 0.
    pub(crate) fn drained_level0(
        &mut self,
        file_bytes: u64,
        started: Duration,
        now: Duration,
        more_waits: bool,
    ) {
        self.level0.measured(file_bytes as f64 * self.payload_by_size, started, now, more_waits);
    }

    /// Payload bytes a second that writers may bring.
    pub(crate) fn rate(&self, debt: Debt) -> f64 {
        let drain = match debt.of {
            DebtOf::Memtables => self.flush.rate(),
            DebtOf::Level0 | DebtOf::DeepLevels => self.flush.rate().min(self.level0.rate()),
        };
        let off = debt.part.clamp(0.0, 1.0) - STEADY;
        // Beyond the hard limit the estimate of the drain must be far off.
        let beyond = debt.part.clamp(1.0, 3.0) - 1.0;
        (drain * (-0.5 * off - 12.5 * off.powi(3) - 4.0 * beyond).exp2()).max(RATE_MIN)
    }

    /// How long a write would be held up now.
    pub(crate) fn delay(&self, now: Duration) -> Duration {
        let ahead = self.next_start.saturating_sub(now);
        if ahead < DELAY_MIN { Duration::ZERO } else { ahead.min(DELAY_MAX) }
    }

    /// Enters a write of `bytes`, and says how long it is held up.
    pub(crate) fn book(&mut self, bytes: usize, debt: Debt, now: Duration) -> Duration {
        let delay = self.delay(now);
        let cost = (bytes as f64 / self.rate(debt)).min(LEAD_MAX.as_secs_f64());
        let start = self.next_start.max(now.saturating_sub(BURST)) + Duration::from_secs_f64(cost);
        self.next_start = start.min(now + LEAD_MAX);
        delay
    }

    /// How long a writer that waits for a flush, or else a compaction of level 0, will wait, as far as can be told.
    pub(crate) fn expected_wait(&self, flush: bool) -> Duration {
        let drain = if flush { &self.flush } else { &self.level0 };
        drain.took.unwrap_or(DELAY_MAX)
    }
}

#[cfg(test)]
#[path = "throttle/tests.rs"]
mod tests;
