//! [`SnapshotRegistry`]: tells compactions what must be kept for snapshots.
//!
//! Depends on little, so that it can be model-checked: see `crates/model-loom`.

use crate::commit::Visible;
use esker_base::sync::Mutex;
use esker_base::{SequenceNumber, planted, points};
use esker_compaction::SnapshotStripes;
use std::collections::BTreeMap;
use std::time::Duration;

/// Which sequence numbers must stay readable.
///
/// Taking a snapshot (read the visible number, register it) and a compaction's capture of the list are both done under
/// the one lock. So a snapshot is either in the list, or it is at least as new as the visible number in the list, and
/// a compaction keeps what is visible at its capture.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRegistry {
    /// By sequence number.
    live: Mutex<BTreeMap<SequenceNumber, Held>>,
}

/// The snapshots at one sequence number.
#[derive(Debug)]
struct Held {
    count: u64,
    /// When the first of them was taken.
    since: Duration,
}

/// How many snapshots there are, and the oldest of them with the time when it was taken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SnapshotSummary {
    pub(crate) count: u64,
    pub(crate) oldest: Option<(SequenceNumber, Duration)>,
}

impl SnapshotRegistry {
    /// Takes a snapshot at the visible number.
    pub(crate) fn take(&self, visible: &Visible, now: Duration) -> SequenceNumber {
        let mut live = self.live.lock();
        points::here(points::Point::SnapshotTaken);
        let seq = visible.load();
        live.entry(seq).or_insert(Held { count: 0, since: now }).count += 1;
        seq
    }

    /// Gives a snapshot back. Returns whether the oldest number that must stay readable may be another now.
    pub(crate) fn release(&self, seq: SequenceNumber) -> bool {
        let mut live = self.live.lock();
        let was_oldest = live.first_key_value().is_some_and(|(&oldest, _)| oldest == seq);
        let Some(held) = live.get_mut(&seq) else { return false };
        held.count -= 1;
        if held.count > 0 {
            return false;
        }
        live.remove(&seq);
        was_oldest
    }

    /// The oldest number that must stay readable: what [`stripes`](Self::stripes) would say, without the list.
    pub(crate) fn oldest(&self, visible: &Visible) -> SequenceNumber {
        let live = self.live.lock();
        let visible = visible.load();
        if planted::is(planted::Fault::SnapshotsForgotten) {
            return visible;
        }
        live.first_key_value().map_or(visible, |(&oldest, _)| oldest.min(visible))
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

    pub(crate) fn summary(&self) -> SnapshotSummary {
        let live = self.live.lock();
        SnapshotSummary {
            count: live.values().map(|held| held.count).sum(),
            oldest: live.iter().next().map(|(&seq, held)| (seq, held.since)),
        }
    }
}
