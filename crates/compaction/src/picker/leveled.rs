//! `LeveledPicker`: keeps each level near its target size, at the least cost of rewriting.
//!
//! In this order:
//!
//! 1. Tombstones that scans have stepped over often enough go, at whatever level they are (see `scans`).
//! 2. The level most above its target (see [`LevelTargets`]) gives tables to the next. Level 0 gives all it can, or
//!    merges its newest tables with each other if that is too dear (see `runs`); a lower level gives the table whose key
//!    range overlaps the fewest bytes below, by its own size, where each tombstone counts as if it had the size of the
//!    entry it is going to remove. Ties go round the level.
//! 3. Tables that are mostly tombstones go down even when no level is too large (see `tombstones`), so that a quiet
//!    database gets rid of what was deleted..
//!
//! Tables that overlap nothing on their way are moved instead of rewritten, many at once.
//!
//! Termination: each pick moves bytes to deeper levels, makes level 0 shorter, or rewrites tables in place of which it is
//! certain that tombstones get dropped.

use super::inputs::{Tables, hull, range_of, sum_bytes};
use super::runs::{is_dear, pick_runs};
use super::scans::pick_for_scans;
use super::score::{LevelScore, compensated, entry_bytes, overfull};
use super::tombstones::pick_tombstones;
use super::{CompactionPicker, LevelTargets, PickInput};
use crate::{Compaction, Reason};
use esker_base::planted;
use esker_manifest::{Level, NUM_LEVELS, TableMetadata, Version};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

const LAST: usize = NUM_LEVELS - 1;

/// The leveled policy. Has no state: cursors are part of the version.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeveledPicker;

impl LeveledPicker {
    /// The compaction of level 0, however urgent other levels are; `None` when it has too few tables, or can't be
    /// compacted now.
    pub fn pick_level0(&self, input: &PickInput<'_>) -> Option<Compaction> {
        let targets = LevelTargets::new(input.version, input.options);
        let scores = overfull(input, &targets);
        let level0 = scores.iter().find(|score| score.level == 0)?;
        pick_full_level0(input, &targets, level0.score)
    }

    /// A compaction that brings tombstones down or drops them, however large other levels are.
    pub fn pick_tombstones(&self, input: &PickInput<'_>) -> Option<Compaction> {
        pick_tombstones(input, &LevelTargets::new(input.version, input.options))
    }
}

impl CompactionPicker for LeveledPicker {
    fn pick(&self, input: &PickInput<'_>) -> Option<Compaction> {
        let targets = LevelTargets::new(input.version, input.options);
        let overfull = || {
            overfull(input, &targets).iter().find_map(|score| match score.level {
                0 => pick_full_level0(input, &targets, score.score),
                _ => pick_level(input, &targets, score),
            })
        };
        pick_for_scans(input, &targets).or_else(overfull).or_else(|| pick_tombstones(input, &targets))
    }
}

/// Level 0, which is too long: into the base level, or its newest tables into one if that is dear.
fn pick_full_level0(input: &PickInput<'_>, targets: &LevelTargets, score: f64) -> Option<Compaction> {
    let down = pick_level0(input, targets, Reason::Level0 { score }, |_| true)?;
    let runs = if is_dear(&down) { pick_runs(input, score) } else { None };
    Some(runs.unwrap_or(down))
}

/// Tables of level 0 into the base level, out of one of the groups that `wanted` accepts.
pub(super) fn pick_level0(
    input: &PickInput<'_>,
    targets: &LevelTargets,
    reason: Reason,
    wanted: impl Fn(&[Arc<TableMetadata>]) -> bool,
) -> Option<Compaction> {
    let groups: Vec<Tables> = level0_groups(input).into_iter().filter(|group| wanted(group)).collect();
    let base = targets.base_level();
    let movable = |group: &Tables| group.len() == 1 && input.can_move(&group[0], 0, base);
    let moved: Tables = groups.iter().filter(|group| movable(group)).flatten().cloned().collect();
    if !moved.is_empty() {
        return Some(input.movement(reason, 0, moved.clone(), sink(input, 0, &moved, base)));
    }
    groups.into_iter().find_map(|mut group| {
        trim_newest(&mut group, input.options.max_compaction_bytes);
        input.merge(reason, 0, group, base)
    })
}

/// The tables of level 0 that can be compacted now, in groups that do not overlap each other; the group with the oldest
/// table first. Within a group the newest are first, and the oldest are there: no table without all older ones that it
/// overlaps.
fn level0_groups(input: &PickInput<'_>) -> Vec<Tables> {
    let mut groups: Vec<Tables> = Vec::new();
    let mut stuck: Tables = Vec::new();
    let mut free: Tables = Vec::new();
    for table in input.version.level(0).tables().iter().rev() {
        // An older table that stays keeps back all newer ones over it.
        if input.is_busy(table) || stuck.iter().any(|older| older.overlaps(table)) {
            stuck.push(Arc::clone(table));
        } else {
            free.push(Arc::clone(table));
        }
    }
    let mut by_key: Vec<&Arc<TableMetadata>> = free.iter().collect();
    by_key.sort_by_key(|table| range_of(table));
    let mut end: Option<&[u8]> = None;
    for table in by_key {
        let (smallest, largest) = range_of(table);
        match groups.last_mut() {
            Some(group) if end.is_some_and(|end| smallest <= end) => group.push(Arc::clone(table)),
            _ => groups.push(vec![Arc::clone(table)]),
        }
        end = end.max(Some(largest));
    }
    for group in &mut groups {
        group.sort_by_key(|table| age(input, table));
    }
    groups.sort_by_key(|group| Reverse(group.last().map(|oldest| age(input, oldest))));
    groups
}

/// Place of a table in level 0: the newest has 0.
fn age(input: &PickInput<'_>, table: &TableMetadata) -> usize {
    let tables = input.version.level(0).tables();
    tables.iter().position(|other| other.number == table.number).unwrap_or(tables.len())
}

/// Leaves out the newest tables of a group that is sorted newest first, until it is small enough or one is left.
fn trim_newest(group: &mut Tables, bytes_max: u64) {
    let mut bytes = 0_u64;
    let fits = group.iter().rev().take_while(|table| {
        bytes = bytes.saturating_add(table.file_size);
        bytes <= bytes_max
    });
    let keep = fits.count().max(1).min(group.len());
    group.drain(..group.len() - keep);
}

/// A table or a few of a level that is too large, into the next one.
fn pick_level(input: &PickInput<'_>, targets: &LevelTargets, score: &LevelScore) -> Option<Compaction> {
    let level = input.version.level(score.level);
    let output = score.level + 1;
    let reason = Reason::LevelSize { score: score.score };
    let excess = level.size_bytes().saturating_sub(targets.size(score.level));

    let mut bytes = 0_u64;
    let overlaps = overlaps_below(input.version, level);
    let free = |overlap: u64| overlap == 0 || planted::is(planted::Fault::MovedOverOverlap);
    let movable = level
        .tables()
        .iter()
        .zip(&overlaps)
        .filter(|(table, overlap)| free(**overlap) && input.can_move(table, score.level, output));
    let moved: Tables = movable
        .map(|(table, _)| table)
        .take_while(|table| {
            let more = bytes < excess.max(1);
            bytes = bytes.saturating_add(table.file_size);
            more
        })
        .cloned()
        .collect();
    if !moved.is_empty() {
        return Some(input.movement(
            reason,
            score.level,
            moved.clone(),
            sink(input, score.level, &moved, output),
        ));
    }
    by_cost(input, level, &overlaps)
        .find_map(|table| input.merge(reason, score.level, vec![Arc::clone(table)], output))
}

/// The deepest level that all the tables can be moved to; they can be moved to `output`.
pub(super) fn sink(
    input: &PickInput<'_>,
    start: usize,
    tables: &[Arc<TableMetadata>],
    output: usize,
) -> usize {
    let fits = |level: &usize| tables.iter().all(|table| input.can_move(table, start, *level));
    (output + 1..=LAST).take_while(fits).last().unwrap_or(output)
}

/// For each table of a level, the bytes of the next level that it overlaps. Both levels are walked once, side by side.
fn overlaps_below(version: &Version, level: &Level) -> Vec<u64> {
    let below = version.level(level.number() + 1).tables();
    let mut first = 0;
    let overlap = |table: &Arc<TableMetadata>| {
        let (begin, end) = range_of(table);
        let passed = below[first..].iter().take_while(|below| below.largest.user_key.as_slice() < begin);
        first += passed.count();
        sum_bytes(below[first..].iter().take_while(|below| below.smallest.user_key.as_slice() <= end))
    };
    level.tables().iter().map(overlap).collect()
}

/// The tables of a level that are not busy, the cheapest to compact into the next level first; ties go by key, those after
/// the cursor before the others. The order is made as far as it is asked for: nearly always the first table will do.
fn by_cost<'a>(
    input: &PickInput<'a>,
    level: &'a Level,
    overlaps: &[u64],
) -> impl Iterator<Item = &'a Arc<TableMetadata>> + use<'a> {
    let cursor = input.version.cursor(level.number());
    let entry_bytes = entry_bytes(input.version);
    let idle =
        level.tables().iter().zip(overlaps).enumerate().filter(|(_, (table, _))| !input.is_busy(table));
    let costs = idle.map(|(at, (table, overlap))| {
        let gain = compensated_bytes(table, entry_bytes).max(1);
        let cost = u128::from(*overlap) * 1024 / u128::from(gain);
        let before_cursor = cursor.is_some_and(|cursor| range_of(table).0 <= cursor);
        Reverse((cost, before_cursor, at))
    });
    let mut heap: BinaryHeap<_> = costs.collect::<Vec<_>>().into();
    std::iter::from_fn(move || heap.pop().map(|Reverse((_, _, at))| &level.tables()[at]))
}

/// What compacting a table is worth: its size, with each tombstone as large as an average entry.
pub(super) fn compensated_bytes(table: &TableMetadata, entry_bytes: u64) -> u64 {
    compensated(table.file_size, table.deletes, entry_bytes)
}

/// The tables that `start` tables of a level would be merged with.
pub(super) fn overlap_bytes(version: &Version, start: &[Arc<TableMetadata>], output: usize) -> u64 {
    let Some((begin, end)) = hull(start.iter()) else { return 0 };
    sum_bytes(version.level(output).overlapping(Some(begin), Some(end)))
}
