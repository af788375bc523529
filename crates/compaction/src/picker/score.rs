//! How large each level should be, and how urgent it is to make it smaller.
//!
//! Level sizes grow from the bottom. The last level holds nearly everything; each level above is smaller by at most
//! `level_ratio`, up to the *base level*, which has a fixed size. Level 0 is compacted straight into the base level, and
//! the levels between are empty:
//!
//! ```text
//!   little data:   L0 --------------------------> L6
//!   more:          L0 ----------------> L5 64 MiB, L6 up to 640 MiB
//!   still more:    L0 ------> L4 64 MiB, L5 up to 640 MiB, L6 up to 6.4 GiB
//! ```
//!
//! A tombstone counts as if it had the size of the entry that it is going to remove. So a level of tombstones goes down
//! although it is small, and before the levels that only have their size; and the debt that slows writers knows of it.
//!
//! Between the base and the bottom the ratio is the same everywhere (the n-th root of what is needed), so that a tree
//! which has just got another level does not pay the full ratio for it.

use super::PickInput;
use crate::LeveledOptions;
use esker_manifest::{NUM_LEVELS, Version};

const LAST: usize = NUM_LEVELS - 1;

/// The base level, and the target size of each level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelTargets {
    base_level: usize,
    sizes: [u64; NUM_LEVELS],
}

impl LevelTargets {
    /// The targets for the tables of `version`.
    pub fn new(version: &Version, options: &LeveledOptions) -> Self {
        let ratio = options.level_ratio.max(2);
        let base_size = options.base_level_size.max(1);
        let first = (1..LAST).find(|&level| !version.level(level).is_empty()).unwrap_or(LAST);
        let total = version.levels().skip(1).fold(0_u64, |sum, level| sum.saturating_add(level.size_bytes()));
        let bottom = total - total / ratio;

        // Never below a level that has tables: level 0 must not skip over them.
        let mut base_level = LAST;
        let mut size = bottom;
        while base_level > 1 && (base_level > first || size > base_size) {
            size /= ratio;
            base_level -= 1;
        }
        let steps = LAST - base_level;
        let step = if steps == 0 { 1.0 } else { root(bottom as f64 / base_size as f64, steps).max(1.0) };

        let mut sizes = [0; NUM_LEVELS];
        let mut target = base_size as f64;
        for size in &mut sizes[base_level..] {
            *size = target as u64;
            target *= step;
        }
        LevelTargets { base_level, sizes }
    }

    /// The level that level 0 is compacted into. All levels between are empty.
    pub fn base_level(&self) -> usize {
        self.base_level
    }

    /// Target size of a level in bytes; 0 above the base level. The last level's is a guess, and no limit.
    ///
    /// # Panics
    ///
    /// When there is no such level.
    pub fn size(&self, level: usize) -> u64 {
        self.sizes[level]
    }

    /// Estimate of the bytes that compactions must rewrite before no level is too large: what each level has too much,
    /// and what of the next level it will be merged with. It grows with the lag of compaction, and is 0 without one.
    pub fn pending_bytes(&self, version: &Version, options: &LeveledOptions) -> u64 {
        let level0 = version.level(0);
        let due = level0.len() >= options.l0_trigger.max(1) || level0.size_bytes() >= options.l0_bytes;
        let mut incoming = if due { level0.size_bytes() } else { 0 };
        let mut pending = if due {
            incoming.saturating_add(version.level(self.base_level).size_bytes().min(incoming))
        } else {
            0
        };
        let entry_bytes = entry_bytes(version);
        for level in self.base_level..LAST {
            let (here, below) = (version.level(level), version.level(level + 1).size_bytes());
            let bytes = here.size_bytes().saturating_add(incoming);
            let worth = compensated(bytes, here.deletes(), entry_bytes);
            let excess = worth.saturating_sub(self.sizes[level]);
            // What of the level goes down: the same part of it as the excess is of what it is worth.
            let part = |of: u64| (u128::from(of) * u128::from(excess) / u128::from(worth.max(1))) as u64;
            incoming = part(bytes);
            let merged_with = part(below).min(incoming.saturating_mul(options.level_ratio));
            pending = pending.saturating_add(incoming).saturating_add(merged_with);
        }
        pending
    }
}

/// The `n`-th root of `x >= 0`, by bisection: the same on every machine, unlike `powf`.
fn root(x: f64, n: usize) -> f64 {
    let (mut low, mut high) = (0.0_f64, x.max(1.0));
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if (0..n).fold(1.0, |power, _| power * middle) < x {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// A level that is larger than it should be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LevelScore {
    pub(super) level: usize,
    /// Size by target; at least 1.
    pub(super) score: f64,
    /// The score by that of the next level, into which it would go: the order of urgency.
    urgency: f64,
}

/// The levels that are too large, the most urgent first. Busy tables are left out: they are on their way.
pub(super) fn overfull(input: &PickInput<'_>, targets: &LevelTargets) -> Vec<LevelScore> {
    let base = targets.base_level();
    let entry_bytes = entry_bytes(input.version);
    let score = |level: usize| match level {
        0 => score_level0(input),
        _ => idle_worth(input, level, entry_bytes) as f64 / targets.size(level).max(1) as f64,
    };
    let mut levels = Vec::new();
    for level in std::iter::once(0).chain(base..LAST) {
        let score_here = score(level);
        if score_here >= 1.0 {
            let next = if level == 0 { base } else { level + 1 };
            // The last level is where things end: it can't be too full. An empty level is no reason to hurry.
            let score_next = if next == LAST { 1.0 } else { score(next).max(0.1) };
            levels.push(LevelScore { level, score: score_here, urgency: score_here / score_next });
        }
    }
    levels.sort_by(|a, b| b.urgency.total_cmp(&a.urgency));
    levels
}

fn score_level0(input: &PickInput<'_>) -> f64 {
    let waiting =
        || input.version.level(0).tables().iter().filter(|table| !input.busy.contains(&table.number));
    let by_count = waiting().count() as f64 / input.options.l0_trigger.max(1) as f64;
    by_count.max(idle(input, 0).0 as f64 / input.options.l0_bytes.max(1) as f64)
}

/// Bytes and tombstones of the tables of a level that are not busy.
fn idle(input: &PickInput<'_>, level: usize) -> (u64, u64) {
    let level = input.version.level(level);
    if input.busy.is_empty() {
        return (level.size_bytes(), level.deletes());
    }
    let idle = level.tables().iter().filter(|table| !input.busy.contains(&table.number));
    idle.fold((0, 0), |(bytes, deletes), table| {
        (bytes.saturating_add(table.file_size), deletes.saturating_add(table.deletes))
    })
}

fn idle_worth(input: &PickInput<'_>, level: usize, entry_bytes: u64) -> u64 {
    let (bytes, deletes) = idle(input, level);
    compensated(bytes, deletes, entry_bytes)
}

/// Average size of an entry in bytes, over the levels below 0.
pub(super) fn entry_bytes(version: &Version) -> u64 {
    let sums = version.levels().skip(1).fold((0_u64, 0_u64), |(bytes, entries), level| {
        (bytes.saturating_add(level.size_bytes()), entries.saturating_add(level.entries()))
    });
    sums.0 / sums.1.max(1)
}

/// Bytes of which some are tombstones, with each of those as large as an average entry.
pub(super) fn compensated(bytes: u64, deletes: u64, entry_bytes: u64) -> u64 {
    bytes.saturating_add(deletes.saturating_mul(entry_bytes))
}
