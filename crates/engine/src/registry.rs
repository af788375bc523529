//! [`SnapshotRegistry`]: tells compactions what must be kept for snapshots.
//!
//! Depends on little, so that it can be model-checked: see `crates/model-loom`.

use crate::commit::Visible;
use esker_base::sync::Mutex;
use esker_base::{SequenceNumber, planted, points};
use esker_compaction::SnapshotStripes;
use std::collections::BTreeMap;

/// Which sequence numbers must stay readable.
///
/// Taking a snapshot (read the visible number, register it) and a compaction's capture of the list are both done under
/// the one lock. So a snapshot is either in the list, or it is at least as new as the visible number in the list, and
/// a compaction keeps what is visible at its capture.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRegistry {
    /// Sequence number to the number of snapshots at it.
    live: Mutex<BTreeMap<SequenceNumber, u64>>,
}

impl SnapshotRegistry {
    /// Takes a snapshot at the visible number.
    pub(crate) fn take(&self, visible: &Visible) -> SequenceNumber {
        let mut live = self.live.lock();
        points::here(points::Point::SnapshotTaken);
        let seq = visible.load();
        *live.entry(seq).or_default() += 1;
        seq
    }

    /// Gives a snapshot back. Returns whether it was the last one at its number.
    pub(crate) fn release(&self, seq: SequenceNumber) -> bool {
        let mut live = self.live.lock();
        let Some(count) = live.get_mut(&seq) else { return false };
        *count -= 1;
        if *count == 0 {
            live.remove(&seq);
            return true;
        }
        false
    }

    /// What a compaction that starts now must keep.
    pub(crate) fn stripes(&self, visible: &Visible) -> SnapshotStripes {
        let live = self.live.lock();
        let visible = visible.load();
        if planted::is(planted::Fault::SnapshotsForgotten) {
            return SnapshotStripes::new([], visible);
        }
        SnapshotStripes::new(live.keys().copied(), visible)
    }

    /// How many snapshots are held, and the oldest of them.
    pub(crate) fn summary(&self) -> (u64, Option<SequenceNumber>) {
        let live = self.live.lock();
        (live.values().sum(), live.keys().next().copied())
    }
}
