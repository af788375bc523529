//! `Compaction`: one piece of work that a picker has decided on.
//!
//! Plain data. The engine executes it without asking the picker again: it opens the inputs, runs a
//! [`CompactionJob`](crate::CompactionJob), and installs the result with one version edit. A trivial move skips the
//! rewriting.

use crate::{DeeperTables, LeveledOptions, OutputSplitter};
use esker_base::{FileNumber, KeyspaceId};
use esker_manifest::{AddedTable, CursorChange, DeletedTable, TableMetadata, VersionEdit};
use std::fmt;
use std::sync::Arc;

/// Why a compaction was picked.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// Level 0 has too many tables or bytes. The score is 1 at the limit.
    Level0 {
        /// How full level 0 is.
        score: f64,
    },
    /// A level is larger than its target. The score is 1 at the target.
    LevelSize {
        /// Size by target.
        score: f64,
    },
    /// Most entries of the tables are tombstones, and they can be dropped or brought nearer to what they hide.
    Tombstones,
    /// Scans have stepped over so many tombstones that it is cheaper to be rid of them.
    Scans,
    /// Somebody asked for it.
    Manual,
}

/// The user keys that a running compaction may write to a level, both inclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputRange {
    /// The level.
    pub level: usize,
    /// The first user key of all inputs.
    pub smallest: Vec<u8>,
    /// The last user key of all inputs.
    pub largest: Vec<u8>,
}

/// Tables to be replaced by the merge of their entries, one level down or where they are.
#[derive(Clone, Debug)]
pub struct Compaction {
    /// Why.
    pub reason: Reason,
    /// The level of the upper inputs.
    pub start_level: usize,
    /// The level of the outputs. Equal to `start_level` when tables are rewritten in place, or those of level 0 merged
    /// into one that stays there.
    pub output_level: usize,
    /// The inputs by level, upper first, each in the order of its level: newest first in level 0, by key below. No
    /// level has an empty list.
    pub inputs: Vec<(usize, Vec<Arc<TableMetadata>>)>,
    /// The tables of the level below the output that lie in the range of the inputs, by key.
    pub grandparents: Vec<Arc<TableMetadata>>,
    /// For each level below the output, the tables in the range of the inputs, by key. Before them, for an output in level
    /// 0, each older table there that is in the range, by itself.
    pub deeper: Vec<Vec<Arc<TableMetadata>>>,
    /// The inputs can be moved to the output level as they are.
    pub trivial_move: bool,
    /// The input is rewritten where it is, so that each output overlaps about so many bytes of `grandparents`, which are
    /// the tables that it would have been merged with.
    pub split_overlap: Option<u64>,
    /// Where the next compaction of the start level goes on: after this user key.
    pub cursor: Option<Vec<u8>>,
}

impl Compaction {
    /// All inputs with their level.
    pub fn input_tables(&self) -> impl Iterator<Item = (usize, &Arc<TableMetadata>)> {
        self.inputs.iter().flat_map(|(level, tables)| tables.iter().map(|table| (*level, table)))
    }

    /// The file numbers of all inputs: busy while the compaction runs.
    pub fn input_numbers(&self) -> impl Iterator<Item = FileNumber> {
        self.input_tables().map(|(_, table)| table.number)
    }

    /// Sum of the inputs' file sizes, in bytes.
    pub fn input_bytes(&self) -> u64 {
        self.input_tables().fold(0, |sum, (_, table)| sum.saturating_add(table.file_size))
    }

    /// How many bytes the outputs will have at most, about: 0 for a move. Without deeper tables in the range, tombstones go,
    /// if no snapshot needs them.
    pub fn output_bytes_max(&self) -> u64 {
        self.output_bytes_without(1)
    }

    /// The same if each tombstone that goes removes an entry of the inputs. More is dropped where keys were overwritten.
    pub fn output_bytes_expected(&self) -> u64 {
        self.output_bytes_without(2)
    }

    /// The inputs' bytes without so many entries for each tombstone that goes.
    fn output_bytes_without(&self, entries_each: u64) -> u64 {
        let bytes = self.input_bytes();
        if self.trivial_move {
            return 0;
        }
        if self.deeper.iter().any(|tables| !tables.is_empty()) {
            return bytes;
        }
        let sums = self.input_tables().fold((0_u64, 0_u64), |(entries, deletes), (_, table)| {
            (entries.saturating_add(table.entries), deletes.saturating_add(table.deletes))
        });
        let left = sums.0.saturating_sub(sums.1.saturating_mul(entries_each));
        let part = u128::from(bytes) * u128::from(left) / u128::from(sums.0.max(1));
        u64::try_from(part).unwrap_or(bytes)
    }

    /// Sum of the file sizes of the inputs in level 0, in bytes.
    pub fn level0_bytes(&self) -> u64 {
        let level0 = self.input_tables().filter(|(level, _)| *level == 0);
        level0.fold(0, |sum, (_, table)| sum.saturating_add(table.file_size))
    }

    /// The keys that the outputs may cover: to be handed to the picker while this compaction runs.
    pub fn output_range(&self) -> OutputRange {
        let tables = || self.input_tables().map(|(_, table)| table);
        OutputRange {
            level: self.output_level,
            smallest: tables().map(|table| &table.smallest.user_key).min().cloned().unwrap_or_default(),
            largest: tables().map(|table| &table.largest.user_key).max().cloned().unwrap_or_default(),
        }
    }

    /// Whether sequence numbers may be zeroed where nothing is deeper: not in level 0, whose order they are.
    pub fn zeroes_sequences(&self) -> bool {
        self.output_level > 0
    }

    /// The tables that may hold older versions of the inputs' keys.
    pub fn deeper_tables(&self) -> DeeperTables {
        DeeperTables::new(self.deeper.iter().cloned())
    }

    /// Where the outputs are to be cut: in level 0 only to split a table, since each is one more for reads.
    pub fn splitter(&self, options: &LeveledOptions) -> OutputSplitter {
        if let Some(overlap) = self.split_overlap {
            return OutputSplitter::new(u64::MAX, overlap, self.grandparents.clone());
        }
        if self.output_level == 0 {
            return OutputSplitter::never();
        }
        OutputSplitter::new(options.table_size, options.grandparent_bytes_max(), self.grandparents.clone())
    }

    /// Adds to `edit` what this compaction changes in `keyspace`, but for its outputs: the inputs go, and the cursor
    /// moves. A trivial move adds the inputs at the output level, and is complete.
    pub fn record(&self, keyspace: KeyspaceId, edit: &mut VersionEdit) {
        for (level, table) in self.input_tables() {
            edit.deleted.push(DeletedTable { keyspace, level, number: table.number });
            if self.trivial_move {
                edit.added.push(AddedTable { keyspace, level: self.output_level, table: Arc::clone(table) });
            }
        }
        if self.cursor.is_some() {
            edit.cursors.push(CursorChange {
                keyspace,
                level: self.start_level,
                user_key: self.cursor.clone(),
            });
        }
    }
}

/// One line: what, why, which tables, what it costs.
impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.trivial_move {
            "move"
        } else if self.split_overlap.is_some() {
            "split"
        } else if self.output_level == 0 {
            "merge"
        } else if self.start_level == self.output_level {
            "rewrite"
        } else {
            "compact"
        };
        write!(f, "{verb} L{} -> L{} ({}):", self.start_level, self.output_level, self.reason)?;
        for (level, tables) in &self.inputs {
            write!(f, " L{level}")?;
            for (at, table) in tables.iter().enumerate() {
                write!(f, "{}{}", if at == 0 { " " } else { "," }, table.number)?;
            }
        }
        let grandparents =
            self.grandparents.iter().fold(0_u64, |sum, table| sum.saturating_add(table.file_size));
        write!(f, "; {} bytes over {grandparents}", self.input_bytes())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Level0 { score } => write!(f, "level 0 is at {score:.2}"),
            Reason::LevelSize { score } => write!(f, "the level is at {score:.2} of its target"),
            Reason::Tombstones => f.write_str("mostly tombstones"),
            Reason::Scans => f.write_str("tombstones in the way of scans"),
            Reason::Manual => f.write_str("asked for"),
        }
    }
}
