//! From a few tables to a whole compaction: everything that must take part, and whether that is possible now.
//!
//! # Why the result is right
//!
//! For each user key, newer versions must never lie deeper than older ones. A compaction from level S to level T moves
//! versions down past the levels between, and next to those of T. So
//!
//! 1. inputs are widened to whole user keys at both levels,
//! 2. from level 0 go, with a table, all older level-0 tables that overlap it,
//! 3. the levels between are empty over the range of the inputs,
//! 4. all tables of T in that range take part, and no running compaction will write there, to T or between.

use super::PickInput;
use crate::{Compaction, Reason};
use esker_base::planted;
use esker_manifest::{NUM_LEVELS, TableMetadata, Version};
use std::sync::Arc;

pub(super) type Tables = Vec<Arc<TableMetadata>>;

/// User keys from the first to the second, both inclusive.
pub(super) type KeyRange<'a> = (&'a [u8], &'a [u8]);

pub(super) fn sum_bytes<'a>(tables: impl IntoIterator<Item = &'a Arc<TableMetadata>>) -> u64 {
    tables.into_iter().fold(0, |sum, table| sum.saturating_add(table.file_size))
}

pub(super) fn range_of(table: &TableMetadata) -> KeyRange<'_> {
    (&table.smallest.user_key, &table.largest.user_key)
}

/// The range from the first to the last key of all `tables`; `None` without tables.
pub(super) fn hull<'a>(tables: impl Iterator<Item = &'a Arc<TableMetadata>> + Clone) -> Option<KeyRange<'a>> {
    let smallest = tables.clone().map(|table| table.smallest.user_key.as_slice()).min()?;
    let largest = tables.map(|table| table.largest.user_key.as_slice()).max()?;
    Some((smallest, largest))
}

pub(super) fn overlapping(version: &Version, level: usize, (begin, end): KeyRange<'_>) -> Tables {
    version.level(level).overlapping(Some(begin), Some(end)).cloned().collect()
}

pub(super) fn overlaps_level(version: &Version, level: usize, (begin, end): KeyRange<'_>) -> bool {
    version.level(level).overlapping(Some(begin), Some(end)).next().is_some()
}

/// Whether the tables below `level` have nothing in the range.
pub(super) fn nothing_deeper(version: &Version, level: usize, range: KeyRange<'_>) -> bool {
    (level + 1..NUM_LEVELS).all(|deeper| !overlaps_level(version, deeper, range))
}

impl PickInput<'_> {
    pub(super) fn is_busy(&self, table: &TableMetadata) -> bool {
        self.busy.contains(&table.number)
    }

    /// Whether a running compaction will write between `start` (exclusive) and `output` (inclusive), in the range.
    pub(super) fn collides(&self, start: usize, output: usize, (begin, end): KeyRange<'_>) -> bool {
        self.running.iter().any(|running| {
            let between = (start < running.level && running.level <= output) || running.level == output;
            between && running.smallest.as_slice() <= end && begin <= running.largest.as_slice()
        })
    }

    /// The compaction of `start` tables of level `start_level` into the deeper `output_level`. Tables of level 0 must
    /// come with all older ones that overlap them. `None` when something is busy or in the way.
    pub(super) fn merge(
        &self,
        reason: Reason,
        start_level: usize,
        start: Tables,
        output_level: usize,
    ) -> Option<Compaction> {
        assert!(start_level < output_level, "a merge goes down");
        let mut start = self.widen(start_level, start);
        let output = self.widen(output_level, overlapping(self.version, output_level, hull(start.iter())?));
        if start_level > 0 {
            start = self.grow(start_level, start, output_level, &output);
        }
        let range = hull(start.iter().chain(&output))?;
        let skipped = (start_level + 1..output_level).any(|level| overlaps_level(self.version, level, range));
        if skipped || self.collides(start_level, output_level, range) {
            return None;
        }
        if start.iter().chain(&output).any(|table| self.is_busy(table)) {
            return None;
        }
        Some(self.assemble(reason, (start_level, start), (output_level, output)))
    }

    /// The compaction of tables of one level into themselves. They must lie side by side.
    pub(super) fn rewrite(&self, reason: Reason, level: usize, tables: Tables) -> Option<Compaction> {
        assert!(level > 0, "level 0 has no place for a rewrite");
        let tables = self.widen(level, tables);
        let range = hull(tables.iter())?;
        if self.collides(level, level, range) || tables.iter().any(|table| self.is_busy(table)) {
            return None;
        }
        Some(self.assemble(reason, (level, tables), (level, Vec::new())))
    }

    /// The move of tables, as they are, to a deeper level where they overlap nothing, nor between.
    pub(super) fn movement(
        &self,
        reason: Reason,
        start_level: usize,
        tables: Tables,
        output_level: usize,
    ) -> Compaction {
        let mut compaction = self.assemble(reason, (start_level, tables), (output_level, Vec::new()));
        compaction.trivial_move = true;
        compaction
    }

    /// Whether a table can be moved from `start` to `output` as it is: nothing is in the way, it would not overlap too
    /// much there, and would not carry tombstones to where a rewrite drops them.
    pub(super) fn can_move(&self, table: &TableMetadata, start: usize, output: usize) -> bool {
        let range = range_of(table);
        let blocked = self.is_busy(table) || self.collides(start, output, range);
        if !blocked && planted::is(planted::Fault::MovedOverOverlap) {
            return true;
        }
        if blocked || (start + 1..=output).any(|level| overlaps_level(self.version, level, range)) {
            return false;
        }
        if table.deletes > 0 && nothing_deeper(self.version, output, range) {
            return false;
        }
        let below = output + 1;
        below == NUM_LEVELS
            || sum_bytes(self.version.level(below).overlapping(Some(range.0), Some(range.1)))
                <= self.options.grandparent_bytes_max()
    }

    /// Adds the neighbours that share a user key. Levels below 0 are disjoint by user key, so this normally adds
    /// nothing; it costs two searches to be sure.
    fn widen(&self, level: usize, mut tables: Tables) -> Tables {
        if level == 0 {
            return tables;
        }
        while let Some(range) = hull(tables.iter()) {
            let wider = overlapping(self.version, level, range);
            if wider.len() == tables.len() {
                break;
            }
            tables = wider;
        }
        tables
    }

    /// Adds tables of the start level that fit into the range of the output's tables, as long as they pull in no more
    /// of those: they come down for free.
    fn grow(
        &self,
        start_level: usize,
        start: Tables,
        output_level: usize,
        output: &[Arc<TableMetadata>],
    ) -> Tables {
        let Some(range) = hull(start.iter().chain(output)) else { return start };
        let wider = self.widen(start_level, overlapping(self.version, start_level, range));
        let fits = wider.len() > start.len()
            && sum_bytes(&wider).saturating_add(sum_bytes(output)) <= self.options.max_compaction_bytes
            && !wider.iter().any(|table| self.is_busy(table))
            && hull(wider.iter()).is_some_and(|range| {
                self.version.level(output_level).overlapping(Some(range.0), Some(range.1)).count()
                    == output.len()
            });
        if fits { wider } else { start }
    }

    fn assemble(&self, reason: Reason, upper: (usize, Tables), lower: (usize, Tables)) -> Compaction {
        let (start_level, output_level) = (upper.0, lower.0);
        let cursor = match start_level {
            0 => None,
            _ => upper.1.iter().map(|table| &table.largest.user_key).max().cloned(),
        };
        let range = hull(upper.1.iter().chain(&lower.1)).expect("a compaction has inputs");
        let deeper: Vec<Tables> =
            (output_level + 1..NUM_LEVELS).map(|level| overlapping(self.version, level, range)).collect();
        Compaction {
            reason,
            start_level,
            output_level,
            grandparents: deeper.first().cloned().unwrap_or_default(),
            deeper,
            inputs: [upper, lower].into_iter().filter(|(_, tables)| !tables.is_empty()).collect(),
            trivial_move: false,
            split_overlap: None,
            cursor,
        }
    }
}
