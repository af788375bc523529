//! How a cursor goes on in a block alone: takes the block out of the merge, and gives it back.

use super::{Cursor, Place};
use esker_base::InternalKeyRef;
use esker_sstable::RunLimits;

/// Steps within one source after which it is worth a search how far it goes on.
const STREAK_BEFORE_SEARCH: u32 = 4;

impl Cursor {
    /// The merged iterator stands on the shown entry: goes on in its block alone, if that is possible.
    #[inline]
    pub(super) fn enter_run(&mut self, forward: bool) {
        // Where sources take turns entry by entry, there is nothing to look for.
        if self.merged.streak() > 0 {
            self.find_run(forward);
        }
    }

    fn find_run(&mut self, forward: bool) {
        let search = self.merged.streak() >= STREAK_BEFORE_SEARCH;
        let Some((winner, other)) = self.merged.winner() else { return };
        let Some(table) = winner.table() else { return };
        // Going backward, the newest version of a key comes last.
        let other = match other {
            Some((key, head)) if !forward => Some((InternalKeyRef::behind(key.user_key), head)),
            other => other,
        };
        let bound = self.bounds.end(forward);
        if table.lend(&mut self.run, &RunLimits { seq: self.seq, forward, other, search, bound }) {
            self.place = Place::InRun;
        }
    }

    /// Gives the block back, and so takes the merged iterator to the shown entry.
    #[inline]
    pub(super) fn leave_run(&mut self) {
        if self.place == Place::InRun {
            self.place = Place::On;
            if let Some((winner, _)) = self.merged.winner()
                && let Some(table) = winner.table()
            {
                table.take_back(&mut self.run);
            }
            self.merged.winner_moved();
        }
    }
}
