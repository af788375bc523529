//! Parts of a compaction that does not fit on the device: its outputs are there before its inputs can go.
//!
//! A part is what is left when all is left out that can be: the oldest tables of level 0, or the first of a deeper level,
//! with what they overlap below. Where even one table overlaps too much, it is *split*: rewritten where it is, cut where it
//! has passed a part of the tables below it. That takes no more than its own size, and each piece overlaps less.
//!
//! # Why a split is right
//!
//! The pieces have the table's keys and sequence numbers, so they take its place: newer than all that is older than it, and
//! the other way round. In level 0 this is asked for by its order, which is by sequence numbers. Tombstones stay where an
//! older table may hold their key, in level 0 too.
//!
//! # Termination
//!
//! A split makes at least two pieces, each with less below it than the table had.

use super::inputs::{Tables, overlapping, overlaps_level, range_of, sum_bytes};
use super::{LeveledPicker, PickInput};
use crate::Compaction;
use esker_manifest::{NUM_LEVELS, TableMetadata};
use std::sync::Arc;

/// A table is split into about this many pieces at most: in level 0 each of them is one more for reads.
const PIECES: u64 = 4;

impl LeveledPicker {
    /// A part of `compaction`, which was picked from the same input, or a split of one of its tables, that needs no more
    /// than `room` bytes at a time; `None` when there is none.
    pub fn part_of(&self, input: &PickInput<'_>, compaction: &Compaction, room: u64) -> Option<Compaction> {
        let (level, output) = (compaction.start_level, compaction.output_level);
        let (upper_level, upper) = compaction.inputs.first()?;
        if compaction.trivial_move || *upper_level != level || (level == 0 && output == 0) {
            return None;
        }
        let make = |tables: Tables| match level == output {
            true => input.rewrite(compaction.reason, level, tables),
            false => input.merge(compaction.reason, level, tables, output),
        };
        // In level 0 the oldest are the last.
        let smaller = |count: usize| match level {
            0 => upper[upper.len() - count..].to_vec(),
            _ => upper[..count].to_vec(),
        };
        let fits = |part: &Compaction| part.output_bytes_max() <= room;
        let mut count = upper.len() - 1;
        while count > 0 {
            if let Some(part) = make(smaller(count)).filter(fits) {
                return Some(part);
            }
            count /= 2;
        }
        let table = smaller(1).pop()?;
        if level < output { split(input, compaction, &table, room) } else { None }
    }
}

/// The table rewritten where it is, cut by what it overlaps in the output level.
fn split(
    input: &PickInput<'_>,
    compaction: &Compaction,
    table: &Arc<TableMetadata>,
    room: u64,
) -> Option<Compaction> {
    let level = compaction.start_level;
    let range = range_of(table);
    let below = overlapping(input.version, compaction.output_level, range);
    let (last, passed) = below.split_last()?;
    let largest = below.iter().map(|table| table.file_size).max()?;
    let overlap_max = (room / 2).saturating_sub(largest).max((sum_bytes(passed) + last.file_size) / PIECES);
    let blocked = input.is_busy(table) || input.collides(level, level, range);
    // The last key lies past all but the last of them, so there is a cut.
    if blocked || table.file_size > room || sum_bytes(passed) <= overlap_max || passed.is_empty() {
        return None;
    }
    let older = match level {
        0 => older_in_level0(input, table)?,
        // A user key of a deeper level is in one table.
        _ if overlapping(input.version, level, range).len() > 1 => return None,
        _ => Vec::new(),
    };
    let levels = (level + 1..NUM_LEVELS).filter(|level| overlaps_level(input.version, *level, range));
    let levels = levels.map(|level| overlapping(input.version, level, range));
    Some(Compaction {
        reason: compaction.reason,
        start_level: level,
        output_level: level,
        inputs: vec![(level, vec![Arc::clone(table)])],
        grandparents: below,
        deeper: older.into_iter().chain(levels).collect(),
        trivial_move: false,
        split_overlap: Some(overlap_max),
        cursor: None,
    })
}

/// The older tables of level 0 that the table overlaps, each by itself; `None` where sequence numbers interleave, so that
/// pieces could change places with other tables.
fn older_in_level0(input: &PickInput<'_>, table: &Arc<TableMetadata>) -> Option<Vec<Tables>> {
    let mut older = Vec::new();
    for other in input.version.level(0).overlapping(Some(range_of(table).0), Some(range_of(table).1)) {
        if other.number == table.number || other.smallest_seq > table.largest_seq {
            continue;
        }
        if other.largest_seq >= table.smallest_seq {
            return None;
        }
        older.push(vec![Arc::clone(other)]);
    }
    Some(older)
}
