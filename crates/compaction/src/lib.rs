//! Compaction for esker: a pure leveled picker, the rewriting iterator, a resumable job.

mod iter;
mod snapshots;
mod stats;

pub use iter::{CompactionIterator, DeeperKeys};
pub use snapshots::SnapshotStripes;
pub use stats::RewriteStats;
