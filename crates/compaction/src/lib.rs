//! Compaction for esker: a pure leveled picker, the rewriting iterator, a resumable job.
//!
//! The parts, in the order in which they work:
//!
//! 1. A [`CompactionPicker`] looks at a version and decides on a [`Compaction`]. Pure.
//! 2. The engine opens the inputs, and a [`CompactionJob`] merges them: a [`CompactionIterator`] drops what nobody can
//!    read any more (as the [`SnapshotStripes`] tell), an [`OutputSplitter`] cuts the output into tables.
//! 3. The engine installs the result. A flush is the same job over a memtable.
//!
//! Nothing here knows the engine, its locks, files or threads.

mod compaction;
mod deeper;
mod iter;
mod job;
mod options;
mod picker;
mod snapshots;
mod split;
mod stats;

pub use compaction::{Compaction, OutputRange, Reason};
pub use deeper::DeeperTables;
pub use iter::{CompactionIterator, DeeperKeys};
pub use job::{CompactionJob, OutputSink, Step};
pub use options::LeveledOptions;
pub use picker::{CompactionPicker, LevelTargets, LeveledPicker, ManualCompaction, ManualPick, PickInput};
pub use snapshots::SnapshotStripes;
pub use split::OutputSplitter;
pub use stats::RewriteStats;
