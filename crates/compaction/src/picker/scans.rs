//! Tombstones go when scans have stepped over them often enough.
//!
//! Who asks for the first entry of a queue steps over all that were taken and not yet compacted away, however few bytes
//! they are. `PickInput::scanned_tombstones` says how many such steps there were. A compaction is picked once they are as
//! dear as it would be; of several, the one that meets the most tombstones among its entries. So all that is done here costs
//! at most as much as the scans had cost before.
//!
//! Each pick brings tombstones deeper or drops them, so it ends even where the count stays.

use super::inputs::{Tables, nothing_deeper, range_of};
use super::leveled::{pick_level0, sink};
use super::{LevelTargets, PickInput};
use crate::{Compaction, Reason};
use esker_manifest::{NUM_LEVELS, TableMetadata};
use std::sync::Arc;

/// Tombstones stepped over that are as dear as an entry merged: 25 ns each, by 150.
const MERGED_ENTRY: u64 = 6;

/// The compaction that is worth it, and meets the most tombstones.
pub(super) fn pick_for_scans(input: &PickInput<'_>, targets: &LevelTargets) -> Option<Compaction> {
    let entries_max = input.scanned_tombstones / MERGED_ENTRY;
    if entries_max == 0 {
        return None;
    }
    let level0 = || {
        pick_level0(input, targets, Reason::Scans, |group| group.iter().any(|table| in_the_way(input, table)))
    };
    let deeper = (1..NUM_LEVELS).filter_map(|level| pick_in_level(input, level));
    let affordable = |compaction: &Compaction| compaction.trivial_move || cost(compaction).1 <= entries_max;
    let density = |compaction: &Compaction| {
        let (tombstones, entries) = cost(compaction);
        u128::from(tombstones) * 1024 / u128::from(entries.max(1))
    };
    deeper.chain(level0()).filter(affordable).max_by_key(density)
}

fn in_the_way(input: &PickInput<'_>, table: &TableMetadata) -> bool {
    table.deletes > 0 && table.largest_seq <= input.oldest_snapshot && !input.is_busy(table)
}

/// Tombstones and entries of all inputs.
fn cost(compaction: &Compaction) -> (u64, u64) {
    compaction.input_tables().fold((0, 0), |(tombstones, entries), (_, table)| {
        (tombstones.saturating_add(table.deletes), entries.saturating_add(table.entries))
    })
}

/// The table of a level that has the largest part of tombstones: one level down, or where it is if nothing is below.
fn pick_in_level(input: &PickInput<'_>, level: usize) -> Option<Compaction> {
    let tables = input.version.level(level).tables().iter().filter(|table| in_the_way(input, table));
    let table =
        tables.max_by_key(|table| u128::from(table.deletes) * 1024 / u128::from(table.entries.max(1)))?;
    let tables: Tables = vec![Arc::clone(table)];
    if nothing_deeper(input.version, level, range_of(table)) {
        return input.rewrite(Reason::Scans, level, tables);
    }
    let output = level + 1;
    if input.can_move(table, level, output) {
        let output = sink(input, level, &tables, output);
        return Some(input.movement(Reason::Scans, level, tables, output));
    }
    input.merge(Reason::Scans, level, tables, output)
}
