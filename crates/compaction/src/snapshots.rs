//! Which versions of a key somebody may still read.
//!
//! The sequence numbers that must stay readable (live snapshots, and the visible sequence at the time of asking) cut
//! the line of sequence numbers into stripes. Readers see the same version of a key wherever they stand in a stripe:
//!
//! ```text
//!   sequence   1 2 3 4 5 | 6 7 8 9 | 10 11 12 | 13 14 ...
//!   boundary             5         9          12
//!   stripe         0          1         2          3: newer than all that was captured
//! ```
//!
//! So of each key a rewrite keeps the newest version in each stripe. Versions in the last stripe were written after
//! the capture; snapshots between them may exist by now, so all of them are kept.
//!
//! Plain data, captured once for each flush or compaction. The capture must be atomic with creating a snapshot and
//! with publishing a write, which is the engine's part.

use esker_base::SequenceNumber;
use std::sync::Arc;

/// The sequence numbers that must stay readable, and the stripes between them. Cloning is cheap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStripes {
    /// Ascending, without doubles, never empty. The last is the visible sequence or a snapshot of the same age.
    boundaries: Arc<[SequenceNumber]>,
}

impl SnapshotStripes {
    /// The stripes for these live snapshots, in any order, and the sequence number visible when they were listed.
    ///
    /// ```
    /// use esker_compaction::SnapshotStripes;
    ///
    /// let stripes = SnapshotStripes::new([9, 5], 12);
    /// assert_eq!([1, 5, 6, 12, 13].map(|seq| stripes.stripe(seq)), [0, 0, 1, 2, 3]);
    /// ```
    pub fn new(snapshots: impl IntoIterator<Item = SequenceNumber>, visible: SequenceNumber) -> Self {
        let mut boundaries: Vec<_> = snapshots.into_iter().collect();
        boundaries.push(visible);
        // Snapshots mostly come in order, which the sort makes use of.
        boundaries.sort();
        boundaries.dedup();
        SnapshotStripes { boundaries: boundaries.into() }
    }

    /// The oldest sequence number that must stay readable. Versions at or below it are in stripe 0.
    #[inline]
    pub fn oldest(&self) -> SequenceNumber {
        self.boundaries[0]
    }

    /// Number of stripes, without the one of versions newer than the capture.
    pub fn count(&self) -> usize {
        self.boundaries.len()
    }

    /// The stripe of a version: how many boundaries can't see it. [`count`](Self::count) for versions newer than all.
    #[inline]
    pub fn stripe(&self, seq: SequenceNumber) -> usize {
        // Most versions are older than all snapshots.
        if seq <= self.boundaries[0] {
            return 0;
        }
        self.boundaries.partition_point(|&boundary| boundary < seq)
    }

    /// The largest sequence number below which a version is hidden by one with `seq`, exclusive: versions `v` of the
    /// same key with `floor < v < seq` are in the same stripe. `None` when the whole rest down to 0 is.
    ///
    /// Versions newer than the capture hide nothing: their floor is `seq` itself.
    #[inline]
    pub(crate) fn floor(&self, seq: SequenceNumber) -> Option<SequenceNumber> {
        let stripe = self.stripe(seq);
        if stripe == self.boundaries.len() {
            return Some(seq);
        }
        stripe.checked_sub(1).map(|below| self.boundaries[below])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Purpose: the binary search agrees with counting, for all sequences around all boundaries.
    #[test]
    fn stripes_count_the_boundaries_below() {
        let snapshots = [30, 7, 7, 12, 0];
        let stripes = SnapshotStripes::new(snapshots, 25);
        assert_eq!((stripes.oldest(), stripes.count()), (0, 5));
        for seq in 0..40 {
            let naive = [0, 7, 12, 25, 30].into_iter().filter(|&boundary| boundary < seq).count();
            assert_eq!(stripes.stripe(seq), naive, "sequence {seq}");
        }
    }

    /// Purpose: `floor` is the short form of "same stripe", and protects what is newer than the capture.
    #[test]
    fn floors_tell_who_is_hidden() {
        let stripes = SnapshotStripes::new([3, 8], 12);
        for newer in 1..20 {
            for older in 0..newer {
                let same = stripes.stripe(newer) == stripes.stripe(older);
                let captured = stripes.stripe(newer) < stripes.count();
                let hidden = stripes.floor(newer).is_none_or(|floor| older > floor);
                assert_eq!(hidden, same && captured, "{newer} over {older}");
            }
        }
    }
}
