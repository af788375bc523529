//! Tables that are mostly tombstones go down even when no level is too large.
//!
//! A table qualifies when more than half of its entries are tombstones, all of them old enough that no snapshot needs
//! what they hide. It goes to the next level while a deeper level may hold its keys; where none does, it is rewritten in
//! place, and all its tombstones vanish. Each step brings the tombstones deeper or drops them, so it ends.
//!
//! In level 0, where a step may cost the whole base level, the tombstones must also be worth it.

use super::inputs::{Tables, nothing_deeper, range_of, sum_bytes};
use super::leveled::{compensated_bytes, overlap_bytes, pick_level0, sink};
use super::score::entry_bytes;
use super::{LevelTargets, PickInput};
use crate::{Compaction, Reason};
use esker_manifest::{NUM_LEVELS, TableMetadata};
use std::sync::Arc;

/// Level 0 gives up tombstones when the base level's part is at most this many times what they are worth.
const LEVEL0_COST_MAX: u64 = 4;

pub(super) fn pick_tombstones(input: &PickInput<'_>, targets: &LevelTargets) -> Option<Compaction> {
    let level0 = || {
        let entry_bytes = entry_bytes(input.version);
        pick_level0(input, targets, Reason::Tombstones, |group| {
            let gain =
                group.iter().map(|table| compensated_bytes(table, entry_bytes)).fold(0, u64::saturating_add);
            group.iter().any(|table| is_dense(input, table))
                && overlap_bytes(input.version, group, targets.base_level()) / LEVEL0_COST_MAX <= gain
        })
    };
    (1..NUM_LEVELS).find_map(|level| pick_in_level(input, level)).or_else(level0)
}

/// Whether the table is mostly tombstones that can be dropped once nothing is deeper.
fn is_dense(input: &PickInput<'_>, table: &TableMetadata) -> bool {
    table.deletes > table.entries / 2 && table.largest_seq <= input.oldest_snapshot && !input.is_busy(table)
}

fn pick_in_level(input: &PickInput<'_>, level: usize) -> Option<Compaction> {
    let tables = input.version.level(level).tables();
    tables.iter().enumerate().filter(|(_, table)| is_dense(input, table)).find_map(|(at, table)| {
        if nothing_deeper(input.version, level, range_of(table)) {
            return input.rewrite(Reason::Tombstones, level, droppable_run(input, level, &tables[at..]));
        }
        let output = level + 1;
        if input.can_move(table, level, output) {
            let moved = vec![Arc::clone(table)];
            let output = sink(input, level, &moved, output);
            return Some(input.movement(Reason::Tombstones, level, moved, output));
        }
        input.merge(Reason::Tombstones, level, vec![Arc::clone(table)], output)
    })
}

/// The leading tables that can all drop their tombstones where they are: rewritten together, little tables become one.
fn droppable_run(input: &PickInput<'_>, level: usize, tables: &[Arc<TableMetadata>]) -> Tables {
    let droppable = |table: &&Arc<TableMetadata>| {
        is_dense(input, table) && nothing_deeper(input.version, level, range_of(table))
    };
    let mut run = Tables::new();
    for table in tables.iter().take_while(droppable) {
        let bytes = sum_bytes(&run).saturating_add(table.file_size);
        if !run.is_empty() && bytes > input.options.max_compaction_bytes {
            break;
        }
        run.push(Arc::clone(table));
    }
    run
}
