//! [`RateLimit`]: a token bucket for the bytes that compactions read and write. Pure: it is told the time.
//!
//! Bytes are charged after they were moved, a step of a job at a time, and the next step waits until they are paid for. So
//! the limit is kept on average, and nobody waits with half a step done. Flushes are not limited: writers wait for them.

use std::time::Duration;

/// Idle time that may be made up for.
const BURST: Duration = Duration::from_millis(50);
/// What one step can owe at most: a limit that is far too low must not look like a hang.
const OWED_MAX: Duration = Duration::from_secs(2);

/// When the next step may start. Guarded by a lock that is a leaf.
#[derive(Debug)]
pub(crate) struct RateLimit {
    bytes_a_second: u64,
    /// When all that was charged is paid for.
    paid_at: Duration,
}

impl RateLimit {
    /// A limit in bytes a second; 0 is none.
    pub(crate) fn new(bytes_a_second: u64) -> Self {
        RateLimit { bytes_a_second, paid_at: Duration::ZERO }
    }

    /// Enters `bytes` that were read or written.
    pub(crate) fn charge(&mut self, bytes: u64, now: Duration) {
        if self.bytes_a_second == 0 {
            return;
        }
        let cost = Duration::from_secs_f64((bytes as f64 / self.bytes_a_second as f64).min(3600.0));
        let from = self.paid_at.max(now.saturating_sub(BURST));
        self.paid_at = from.saturating_add(cost).min(now.saturating_add(OWED_MAX));
    }

    /// How long the next step has to wait.
    pub(crate) fn wait(&self, now: Duration) -> Duration {
        self.paid_at.saturating_sub(now)
    }

    /// A wait of this length has passed although the clock stands still.
    pub(crate) fn forgive(&mut self, waited: Duration) {
        self.paid_at = self.paid_at.saturating_sub(waited);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_kept_on_average() {
        let mut limit = RateLimit::new(10 << 20);
        let mut now = Duration::from_secs(5);
        let started = now;
        for step in 0..1_000_u64 {
            limit.charge((step % 7) * 10_000, now);
            now += limit.wait(now) + Duration::from_micros(100);
        }
        let bytes: u64 = (0..1_000).map(|step| (step % 7) * 10_000).sum();
        let rate = bytes as f64 / (now - started).as_secs_f64() / f64::from(10 << 20);
        assert!((0.95..1.05).contains(&rate), "{rate}");
    }

    #[test]
    fn idle_time_is_no_credit_and_debts_are_bounded() {
        let mut limit = RateLimit::new(1 << 20);
        let now = Duration::from_secs(1_000);
        limit.charge(1 << 20, now);
        assert_eq!(limit.wait(now), Duration::from_secs(1) - BURST);
        limit.charge(1 << 40, now);
        assert_eq!(limit.wait(now), OWED_MAX);
        limit.forgive(OWED_MAX);
        assert_eq!(limit.wait(now), Duration::ZERO);
        let mut none = RateLimit::new(0);
        none.charge(u64::MAX, now);
        assert_eq!(none.wait(now), Duration::ZERO);
    }
}
