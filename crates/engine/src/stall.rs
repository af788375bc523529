//! When a writer is slowed, and when it waits: a pure policy.
//!
//! Three things can lag, and each has a *debt* between 0 at its soft limit and 1 at its hard limit: tables in level 0,
//! sealed memtables, and bytes that deeper compactions must still rewrite. The largest debt counts. It says which part of
//! the measured drain is admitted (see [`Throttle`](crate::throttle::Throttle)). Only a write that would seal a memtable
//! ever waits for background work to finish.
//!
//! The debts are continuous: a memtable counts by how full it is, and the inputs of a running job by how much of them it
//! has read. A debt that jumped with each table would make the rate jump as well.

use crate::options::MAX_IMMUTABLES;

/// What the policy looks at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StallInput {
    /// Tables in level 0.
    pub(crate) l0_tables: usize,
    /// How many of them running compactions have done with, parts included.
    pub(crate) l0_done: f64,
    /// At how many tables level 0 is compacted.
    pub(crate) l0_trigger: usize,
    /// Sealed memtables that are not flushed.
    pub(crate) immutables: usize,
    /// How many of them the running flush has done with, parts included.
    pub(crate) flushed: f64,
    /// How full the active memtable is, 0 to 1.
    pub(crate) fill: f64,
    /// Bytes that compactions must rewrite before all levels have their size.
    pub(crate) pending_bytes: u64,
    /// Target size of the base level, the measure for them.
    pub(crate) base_level_size: u64,
    /// Whether this write will seal a further memtable: it or its log segment is full.
    pub(crate) memtable_full: bool,
}

/// What a writer does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Admission {
    /// Goes on.
    Go,
    /// Goes on at the rate that this debt allows.
    Slow(Debt),
    /// Waits until something has finished, then asks again.
    Wait(WaitFor),
}

/// How far background work lags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Debt {
    /// From 0 at the soft limit to 1 at the hard limit and beyond.
    pub(crate) part: f64,
    pub(crate) of: DebtOf,
}

/// What lags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DebtOf {
    Level0,
    Memtables,
    DeepLevels,
}

/// What a writer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Flush,
    Compaction,
}

impl DebtOf {
    pub(crate) fn cause(self) -> &'static str {
        match self {
            DebtOf::Level0 => "many tables in level 0",
            DebtOf::Memtables => "memtables wait for their flush",
            DebtOf::DeepLevels => "deep levels wait for their compaction",
        }
    }
}

impl WaitFor {
    pub(crate) fn cause(self) -> &'static str {
        match self {
            WaitFor::Flush => "too many memtables wait for their flush",
            WaitFor::Compaction => "too many tables in level 0",
        }
    }
}

/// Level-0 tables at the soft and at the hard limit of the debt, and those at which writers wait: multiples of the
/// trigger, and their least values. A compaction that has read half of 16 tables leaves a debt of 8, and 16 tables; so
/// there can be about twice as many tables as the debt says.
const L0_SOFT: (usize, usize) = (2, 8);
const L0_HARD: (usize, usize) = (5, 16);
const L0_STOP: (usize, usize) = (8, 24);

/// Memtables, full ones or parts, at the soft and at the hard limit.
const MEMTABLES_SOFT: f64 = 2.5;
const MEMTABLES_HARD: f64 = (MAX_IMMUTABLES + 1) as f64;

/// Bytes that wait for deep compactions, at the soft limit: a multiple of the base level's size, and its least value. The
/// hard limit is at four times as many.
const PENDING_SOFT: (u64, u64) = (32, 256 << 20);

pub(crate) fn admit(input: StallInput) -> Admission {
    if input.memtable_full && input.immutables >= MAX_IMMUTABLES {
        return Admission::Wait(WaitFor::Flush);
    }
    let limit = |(times, least): (usize, usize)| input.l0_trigger.saturating_mul(times).max(least);
    // A write that fits the memtable does not make level 0 larger.
    if input.memtable_full && input.l0_tables >= limit(L0_STOP) {
        return Admission::Wait(WaitFor::Compaction);
    }
    let runs = (input.l0_tables as f64 - input.l0_done).max(0.0) + input.immutables as f64 + input.fill;
    let memtables = (input.immutables as f64 - input.flushed).max(0.0) + input.fill;
    let pending_soft = input.base_level_size.saturating_mul(PENDING_SOFT.0).max(PENDING_SOFT.1) as f64;
    let debts = [
        (DebtOf::Memtables, part(memtables, MEMTABLES_SOFT, MEMTABLES_HARD)),
        (DebtOf::Level0, part(runs, limit(L0_SOFT) as f64, limit(L0_HARD) as f64)),
        (DebtOf::DeepLevels, part(input.pending_bytes as f64, pending_soft, 4.0 * pending_soft)),
    ];
    let (of, part) = debts.into_iter().fold(debts[0], |most, debt| if debt.1 > most.1 { debt } else { most });
    if part > 0.0 { Admission::Slow(Debt { part, of }) } else { Admission::Go }
}

/// Where `value` lies between two limits: 0 at the first, 1 at the second.
fn part(value: f64, soft: f64, hard: f64) -> f64 {
    (value - soft) / (hard - soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(l0_tables: usize, immutables: usize, memtable_full: bool) -> StallInput {
        StallInput {
            l0_tables,
            l0_done: 0.0,
            l0_trigger: 4,
            immutables,
            flushed: 0.0,
            fill: 0.0,
            pending_bytes: 0,
            base_level_size: 64 << 20,
            memtable_full,
        }
    }

    fn debt(input: StallInput) -> f64 {
        match admit(input) {
            Admission::Go => 0.0,
            Admission::Slow(debt) => debt.part,
            Admission::Wait(what) => panic!("{input:?} waits for {what:?}"),
        }
    }

    #[test]
    fn debts_grow_without_jumps() {
        let (mut last, mut steps) = (0.0, 0);
        for tables in 0..30 {
            for fill in 0..10 {
                let now = debt(StallInput { fill: f64::from(fill) / 10.0, ..input(tables, 0, false) });
                assert!(now >= last && now - last < 0.01, "{tables} tables: {last} {now}");
                assert_eq!(now > 0.0, tables * 10 + fill as usize > 80);
                (last, steps) = (now, steps + 1);
            }
        }
        assert!(steps == 300 && last > 1.5);
        // A flush turns a memtable into a table: the sum stays.
        assert_eq!(debt(input(12, 1, false)), debt(input(13, 0, false)));
    }

    #[test]
    fn running_jobs_count_by_what_they_have_left() {
        let half = StallInput { l0_done: 5.0, ..input(15, 0, false) };
        assert_eq!(debt(half), debt(input(10, 0, false)));
        let half = StallInput { flushed: 0.5, ..input(0, 4, false) };
        assert!(debt(half) < debt(input(0, 4, false)));
        // More than there is: a job was installed a moment before it took its share back.
        assert_eq!(debt(StallInput { l0_done: 9.0, flushed: 3.0, ..input(1, 1, false) }), 0.0);
    }

    #[test]
    fn the_largest_debt_counts() {
        let Admission::Slow(memtables) = admit(StallInput { fill: 1.0, ..input(9, 3, false) }) else {
            panic!()
        };
        assert_eq!(memtables.of, DebtOf::Memtables);
        let Admission::Slow(level0) = admit(input(18, 1, false)) else { panic!() };
        assert_eq!(level0.of, DebtOf::Level0);
        let deep = StallInput { pending_bytes: 4 << 30, ..input(9, 0, false) };
        let Admission::Slow(deep) = admit(deep) else { panic!() };
        assert_eq!(deep.of, DebtOf::DeepLevels);
        assert!((deep.part - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn only_a_write_that_seals_ever_waits() {
        assert_eq!(admit(input(32, 0, true)), Admission::Wait(WaitFor::Compaction));
        assert_eq!(admit(input(0, MAX_IMMUTABLES, true)), Admission::Wait(WaitFor::Flush));
        for tables in 0..100 {
            for immutables in 0..=MAX_IMMUTABLES {
                debt(input(tables, immutables, false));
            }
        }
        assert_eq!(admit(input(0, 1, true)), Admission::Go);
    }
}
