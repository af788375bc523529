//! Runs of level 0 are merged with each other where a compaction into the base level is dear.
//!
//! It is, when the base level's part would be many times what level 0 brings: with memtables that are small for the base
//! level, or flushed before they are full. Then level 0 first becomes larger, but not longer: its newest tables are merged
//! into one, those of like size together, so that each entry is rewritten a few times at most.
//!
//! # Why the result is right
//!
//! The inputs are the newest tables, side by side by age and all idle, so the result takes their place: it is newer than
//! all tables that stay, by sequence numbers too, and older than what is flushed meanwhile. Tombstones stay if an older
//! table of level 0 or any level may hold their key. Sequence numbers are not zeroed: there may be older versions below.

use super::PickInput;
use super::inputs::{Tables, hull, overlapping, range_of};
use crate::{Compaction, Reason};
use esker_manifest::{NUM_LEVELS, TableMetadata};
use std::sync::Arc;

/// A compaction of level 0 is dear when the base level's part is more than this many times its own.
const DEAR: u64 = 4;

/// An older table joins a run that is at least one part in so many of its size.
const LIKE_SIZE: u64 = 2;

/// Whether level 0 should grow before it goes down like this.
pub(super) fn is_dear(down: &Compaction) -> bool {
    let level0 = down.level0_bytes();
    !down.trivial_move && down.input_bytes().saturating_sub(level0) / DEAR > level0
}

/// The newest tables of level 0 into one, since compacting them down is dear.
pub(super) fn pick_runs(input: &PickInput<'_>, score: f64) -> Option<Compaction> {
    let idle = idle_newest(input);
    let like = like_size(idle, input.options.max_compaction_bytes);
    // If there are only tables of very different sizes, all of them still are less than what they would be merged with.
    let count = if like < 2 { within(idle, input.options.max_compaction_bytes) } else { like };
    merge_newest(input, &idle[..count], score)
}

/// The newest tables of level 0, as far as none is busy.
fn idle_newest<'a>(input: &PickInput<'a>) -> &'a [Arc<TableMetadata>] {
    let tables = input.version.level(0).tables();
    let count = tables.iter().take_while(|table| !input.is_busy(table)).count();
    &tables[..count]
}

/// How many of the newest tables are of like size: no table is much larger than all newer ones together.
fn like_size(tables: &[Arc<TableMetadata>], bytes_max: u64) -> usize {
    let mut sum = 0_u64;
    let joins = |table: &&Arc<TableMetadata>| {
        let like = sum == 0 || table.file_size / LIKE_SIZE <= sum;
        sum = sum.saturating_add(table.file_size);
        like && sum <= bytes_max
    };
    tables.iter().take_while(joins).count()
}

fn within(tables: &[Arc<TableMetadata>], bytes_max: u64) -> usize {
    let mut sum = 0_u64;
    let fits = |table: &&Arc<TableMetadata>| {
        sum = sum.saturating_add(table.file_size);
        sum <= bytes_max
    };
    tables.iter().take_while(fits).count()
}

fn merge_newest(input: &PickInput<'_>, newest: &[Arc<TableMetadata>], score: f64) -> Option<Compaction> {
    let (older, level0) = (&input.version.level(0).tables()[newest.len()..], 0);
    if newest.len() < 2 || !are_newer(newest, older) {
        return None;
    }
    let range = hull(newest.iter())?;
    let reach = |table: &&Arc<TableMetadata>| {
        let (smallest, largest) = range_of(table);
        smallest <= range.1 && range.0 <= largest
    };
    let older = older.iter().filter(reach).map(|table| vec![Arc::clone(table)]);
    let levels = (1..NUM_LEVELS).map(|level| overlapping(input.version, level, range));
    Some(Compaction {
        reason: Reason::Level0 { score },
        start_level: level0,
        output_level: level0,
        inputs: vec![(level0, newest.to_vec())],
        grandparents: Tables::new(),
        deeper: older.chain(levels).collect(),
        trivial_move: false,
        split_overlap: None,
        cursor: None,
    })
}

/// Whether the sequence numbers of `newest` are all larger than those of `older`, as they are after flushes. Tables that
/// came otherwise may interleave; merged, they could overlap what they did not before.
fn are_newer(newest: &[Arc<TableMetadata>], older: &[Arc<TableMetadata>]) -> bool {
    let lowest = newest.iter().map(|table| table.smallest_seq).min().unwrap_or(0);
    older.iter().all(|table| table.largest_seq < lowest)
}
