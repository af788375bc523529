//! `ManualCompaction`: brings all that is in a range of keys down to the bottom, and cleans it up there.
//!
//! A sweep through each level, the youngest first: tables in the range go one level down (from level 0 to the base level),
//! some at a time. At the deepest level that has tables, those that were not written on the way are rewritten in place,
//! if there can be anything to drop. Afterwards no tombstone and no old version in the range is left that was there at
//! the start and that no snapshot needs.
//!
//! Tables of level 0 with nothing older than the start are left alone and each level is swept once, so that the compaction
//! ends under any load of writes.

use super::inputs::{Tables, sum_bytes};
use super::leveled::overlap_bytes;
use super::{LevelTargets, PickInput};
use crate::{Compaction, Reason};
use esker_base::{FileNumber, SequenceNumber};
use esker_manifest::{NUM_LEVELS, TableMetadata, Version};
use std::sync::Arc;

/// The progress of a compaction of a range. Drive it: [`pick`](Self::pick), execute, [`completed`](Self::completed), and
/// again. A compaction that failed is picked again.
#[derive(Clone, Debug)]
pub struct ManualCompaction {
    begin: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    /// Tables with larger numbers were written after the start.
    newest: FileNumber,
    /// Tables of level 0 with larger sequence numbers only were flushed after the start. Their file numbers don't tell:
    /// level 0 may be merged with itself.
    newest_seq: SequenceNumber,
    /// The level that is being swept.
    level: usize,
    /// Where the sweep has come to: tables that end at or before this user key are done.
    swept: Option<Vec<u8>>,
}

/// What is to be done next for a range.
#[derive(Clone, Debug)]
pub enum ManualPick {
    /// This.
    Compact(Box<Compaction>),
    /// Running compactions are in the way: ask again when one of them has ended.
    Wait,
    /// Nothing: the range is compacted.
    Done,
}

impl ManualCompaction {
    /// A compaction of the user keys from `begin` to `end`, both inclusive, `None` for no bound, in the tables of
    /// `version`. Flush memtables before, to have their keys in it.
    pub fn new(begin: Option<Vec<u8>>, end: Option<Vec<u8>>, version: &Version) -> Self {
        let newest = version.tables().map(|(_, table)| table.number).max().unwrap_or_default();
        let newest_seq = version.tables().map(|(_, table)| table.largest_seq).max().unwrap_or_default();
        ManualCompaction { begin, end, newest, newest_seq, level: 0, swept: None }
    }

    /// The next step.
    pub fn pick(&mut self, input: &PickInput<'_>) -> ManualPick {
        let targets = LevelTargets::new(input.version, input.options);
        while self.level < NUM_LEVELS {
            let bottom = bottom_level(input.version, &targets);
            let start = self.start_tables(input, bottom);
            if !start.is_empty() {
                let picked = match self.level {
                    0 => input.merge(Reason::Manual, 0, start, targets.base_level()),
                    level if level < bottom => input.merge(Reason::Manual, level, start, level + 1),
                    level => input.rewrite(Reason::Manual, level, start),
                };
                return picked
                    .map_or(ManualPick::Wait, |compaction| ManualPick::Compact(Box::new(compaction)));
            }
            self.level += 1;
            self.swept = None;
        }
        ManualPick::Done
    }

    /// Tells that a picked compaction is done and its result is in the version.
    pub fn completed(&mut self, compaction: &Compaction) {
        if compaction.start_level == self.level && self.level > 0 {
            self.swept = self.swept.take().max(compaction.cursor.clone());
        }
    }

    /// The tables of the level in work that go next; none when the sweep is through.
    fn start_tables(&self, input: &PickInput<'_>, bottom: usize) -> Tables {
        if self.level == 0 {
            return self.start_level0(input);
        }
        let at_bottom = self.level >= bottom;
        let wanted = |table: &Arc<TableMetadata>| !at_bottom || self.needs_rewrite(table);
        let output = self.level + usize::from(!at_bottom);
        let mut start = Tables::new();
        for table in self.rest(input.version) {
            if !wanted(table) {
                if start.is_empty() {
                    continue;
                }
                break;
            }
            start.push(Arc::clone(table));
            let below = if at_bottom { 0 } else { overlap_bytes(input.version, &start, output) };
            if start.len() > 1 && sum_bytes(&start).saturating_add(below) > input.options.max_compaction_bytes
            {
                start.pop();
                break;
            }
        }
        start
    }

    /// The tables of the level in the range that the sweep has not reached.
    fn rest<'a>(&'a self, version: &'a Version) -> impl Iterator<Item = &'a Arc<TableMetadata>> {
        let tables = version.level(self.level).overlapping(self.begin.as_deref(), self.end.as_deref());
        tables.filter(|table| self.swept.as_ref().is_none_or(|swept| table.largest.user_key > *swept))
    }

    /// Whether a rewrite of a table at the bottom may drop something. Not if it was written by this compaction, nor if
    /// all its sequence numbers are 0, which means one put for each key.
    fn needs_rewrite(&self, table: &TableMetadata) -> bool {
        table.number <= self.newest && (table.largest_seq > 0 || table.deletes > 0)
    }

    /// The tables of level 0 in the range, with all older ones that overlap them; the oldest only, if that is too much.
    fn start_level0(&self, input: &PickInput<'_>) -> Tables {
        let tables = input.version.level(0).tables();
        let mut taken: Vec<bool> = tables
            .iter()
            .map(|table| {
                table.smallest_seq <= self.newest_seq
                    && table.overlaps_range(self.begin.as_deref(), self.end.as_deref())
            })
            .collect();
        // Newest first, so one pass closes it: whatever is taken takes the older ones it overlaps.
        for newer in 0..tables.len() {
            for older in newer + 1..tables.len() {
                taken[older] |= taken[newer] && tables[older].overlaps(&tables[newer]);
            }
        }
        let mut bytes = 0_u64;
        let mut start = Tables::new();
        for (table, _) in tables.iter().zip(taken).rev().filter(|(_, taken)| *taken) {
            bytes = bytes.saturating_add(table.file_size);
            if !start.is_empty() && bytes > input.options.max_compaction_bytes {
                break;
            }
            start.push(Arc::clone(table));
        }
        start.reverse();
        start
    }
}

/// The deepest level with tables; the base level if that is deeper.
fn bottom_level(version: &Version, targets: &LevelTargets) -> usize {
    let deepest = version.levels().rposition(|level| !level.is_empty()).unwrap_or(0);
    deepest.max(targets.base_level())
}
