//! Time, as a component: tests set it, the engine never asks the system itself.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock. Durations are measured with [`now`](Clock::now) and differences saturate; wall time is data only.
pub trait Clock: Send + Sync + Debug {
    /// Time since some fixed point. Never goes backwards.
    fn now(&self) -> Duration;

    /// Milliseconds since 1970. May jump.
    fn unix_millis(&self) -> u64;
}

/// The system's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[expect(clippy::disallowed_methods, reason = "this is the module that the rest takes its time from")]
    pub fn new() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the module that the rest takes its time from")]
    fn unix_millis(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// A clock at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.nanos.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn unix_millis(&self) -> u64 {
        self.nanos.load(Ordering::SeqCst) / 1_000_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward() {
        let clock = ManualClock::new();
        assert_eq!((clock.now(), clock.unix_millis()), (Duration::ZERO, 0));
        clock.advance(Duration::from_millis(1_500));
        assert_eq!((clock.now(), clock.unix_millis()), (Duration::from_millis(1_500), 1_500));
        let system = SystemClock::new();
        let first = system.now();
        assert!(system.now() >= first && system.unix_millis() > 1_600_000_000_000);
    }
}
