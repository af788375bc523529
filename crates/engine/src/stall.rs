//! When a writer is slowed, and when it waits: a pure policy.
//!
//! Delays grow smoothly from zero at the soft limit to their maximum at the hard limit, in slices of at most a
//! millisecond. Only at a hard limit does a writer wait for background work to finish.

use crate::options::MAX_IMMUTABLES;
use std::time::Duration;

/// What the policy looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallInput {
    /// Tables in level 0.
    pub(crate) l0_tables: usize,
    /// At how many tables level 0 is compacted.
    pub(crate) l0_trigger: usize,
    /// Sealed memtables that are not flushed.
    pub(crate) immutables: usize,
    /// Whether this write will seal a further one: the memtable or its log segment is full.
    pub(crate) memtable_full: bool,
}

/// What a writer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Goes on.
    Go,
    /// Goes on after a moment.
    Delay(Duration, &'static str),
    /// Waits until something has finished, then asks again.
    Wait(WaitFor),
}

/// What a writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Flush,
    Compaction,
}

impl WaitFor {
    pub(crate) fn cause(self) -> &'static str {
        match self {
            WaitFor::Flush => "too many memtables wait for their flush",
            WaitFor::Compaction => "too many tables in level 0",
        }
    }
}

/// Level-0 tables at which writers are slowed, as a multiple of the trigger.
const L0_SLOW: usize = 3;
/// Level-0 tables at which writers wait, as a multiple of the trigger.
const L0_STOP: usize = 5;
const DELAY_MAX: Duration = Duration::from_millis(1);

pub(crate) fn admit(input: StallInput) -> Admission {
    let StallInput { l0_tables, l0_trigger, immutables, memtable_full } = input;
    if memtable_full && immutables >= MAX_IMMUTABLES {
        return Admission::Wait(WaitFor::Flush);
    }
    let (slow, stop) = ((l0_trigger * L0_SLOW).max(8), (l0_trigger * L0_STOP).max(16));
    if l0_tables >= stop {
        // A write that fits the memtable does not make level 0 larger.
        if memtable_full {
            return Admission::Wait(WaitFor::Compaction);
        }
        return Admission::Delay(DELAY_MAX, WaitFor::Compaction.cause());
    }
    if l0_tables >= slow {
        let part = (l0_tables - slow + 1) as u32;
        return Admission::Delay(DELAY_MAX * part / (stop - slow + 1) as u32, "many tables in level 0");
    }
    Admission::Go
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(l0_tables: usize, immutables: usize, memtable_full: bool) -> StallInput {
        StallInput { l0_tables, l0_trigger: 4, immutables, memtable_full }
    }

    #[test]
    fn delays_grow_smoothly_and_stay_below_a_millisecond() {
        let mut last = Duration::ZERO;
        for tables in 0..40 {
            match admit(input(tables, 0, false)) {
                Admission::Go => assert!(tables < 12 && last.is_zero()),
                Admission::Delay(delay, _) => {
                    assert!(delay >= last && delay <= DELAY_MAX && tables >= 12);
                    last = delay;
                }
                Admission::Wait(_) => panic!("a write that fits the memtable never waits"),
            }
        }
    }

    #[test]
    fn hard_limits_make_a_writer_wait() {
        assert!(matches!(admit(input(20, 0, true)), Admission::Wait(_)));
        assert!(matches!(admit(input(0, MAX_IMMUTABLES, true)), Admission::Wait(_)));
        assert_eq!(admit(input(0, MAX_IMMUTABLES, false)), Admission::Go);
        assert_eq!(admit(input(0, MAX_IMMUTABLES - 1, true)), Admission::Go);
    }
}
