//! What to compact next: a pure function of the version and of what is running.
//!
//! [`LeveledPicker`] keeps the levels in shape by itself, [`ManualCompaction`] brings a range down on request. Both make
//! a [`Compaction`] out of tables that nobody else is working on, or nothing.

mod inputs;
mod leveled;
mod manual;
mod part;
mod runs;
mod scans;
mod score;
mod tombstones;

pub use leveled::LeveledPicker;
pub use manual::{ManualCompaction, ManualPick};
pub use score::LevelTargets;

use crate::{Compaction, LeveledOptions, OutputRange};
use esker_base::{FileNumber, SequenceNumber};
use esker_manifest::Version;
use std::collections::BTreeSet;

/// What a picker decides on.
#[derive(Clone, Copy, Debug)]
pub struct PickInput<'a> {
    /// The tables.
    pub version: &'a Version,
    /// Inputs of the compactions that are running. None of them is picked.
    pub busy: &'a BTreeSet<FileNumber>,
    /// [`Compaction::output_range`] of each compaction that is running. Nothing is picked that would collide with it.
    pub running: &'a [OutputRange],
    /// The oldest sequence number that must stay readable: of the oldest live snapshot, or the visible one. Tombstones
    /// that are newer are not picked in order to be dropped.
    pub oldest_snapshot: SequenceNumber,
    /// Tombstones in tables that scans have stepped over since something was picked for their sake, beyond what a job
    /// costs in any case. 0 where nobody counts.
    pub scanned_tombstones: u64,
    /// The shape to work towards.
    pub options: &'a LeveledOptions,
}

/// Decides what to compact next. Pure: the same input gives the same answer.
///
/// If every pick is executed, and nothing is written meanwhile, the answer becomes `None` after a bounded number of
/// picks.
pub trait CompactionPicker: Send + Sync {
    /// The next compaction; `None` when there is nothing to do, or nothing that can be done now.
    fn pick(&self, input: &PickInput<'_>) -> Option<Compaction>;
}
