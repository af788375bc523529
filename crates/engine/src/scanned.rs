//! Tombstones that scans step over, and when it pays to get rid of them.
//!
//! A tombstone costs each scan over it some tens of nanoseconds. Who takes the first entry of a queue steps over all that
//! were taken before, so without more the queue gets slower with each. Sealing a memtable, or a compaction, brings its
//! tombstones to what they hide, but costs work of its own. So scans tell here how many they have stepped over, and once
//! that is as dear as the work would be, it is done: together at most twice of what would be best (renting skis).
//!
//! A memtable is sealed by the next writer, or by the background; tables are the picker's choice
//! (`PickInput::scanned_tombstones`).

use crate::core::Core;
use crate::super_version::{Generation, SuperVersion};
use crate::{Background, Result};
use esker_base::SequenceNumber;
use esker_base::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Tombstones stepped over that are as dear as the fixed part of a job: files made and synced.
const JOB: u64 = 2 << 20;

/// Tombstones stepped over that are as dear as an entry flushed.
const FLUSHED_ENTRY: u64 = 8;

/// Tombstones after which a cursor tells.
const TOLD_AT: u32 = 64;

/// What a cursor has met and not told yet. Numbers up to `tables_end` are in tables, those after `sealed_end` in the active
/// memtable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met {
    tables_end: SequenceNumber,
    sealed_end: SequenceNumber,
    in_tables: u32,
    in_active: u32,
    all: u32,
}

impl Met {
    pub(crate) fn new(picture: &SuperVersion) -> Self {
        let oldest = picture.immutables.last().unwrap_or(&picture.active);
        Met { tables_end: oldest.after, sealed_end: picture.active.after, in_tables: 0, in_active: 0, all: 0 }
    }

    /// A tombstone was stepped over. Whether it is time to tell.
    #[inline]
    pub(crate) fn tombstone(&mut self, seq: SequenceNumber) -> bool {
        self.in_tables += u32::from(seq <= self.tables_end);
        self.in_active += u32::from(seq > self.sealed_end);
        self.all += 1;
        self.all == TOLD_AT
    }
}

/// What scans have met in one memtable.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    tombstones: AtomicU64,
    seal_wanted: AtomicBool,
}

impl Generation {
    /// Whether scans would gain by a flush of this memtable.
    #[inline]
    pub(crate) fn is_seal_wanted(&self) -> bool {
        self.scanned.seal_wanted.load(Relaxed)
    }
}

impl Core {
    /// Enters what a cursor over `picture` has met, which then starts anew.
    #[cold]
    pub(crate) fn tombstones_met(&self, picture: &SuperVersion, met: &mut Met) {
        let (in_tables, in_active) = (u64::from(met.in_tables), u64::from(met.in_active));
        (met.in_tables, met.in_active, met.all) = (0, 0, 0);
        let mut wanted = false;
        if in_active > 0 {
            wanted |= self.met_in_active(&picture.active, in_active);
        }
        if in_tables > 0 {
            let before = self.flow.scanned_tombstones.fetch_add(in_tables, Relaxed);
            wanted |= before / JOB < (before + in_tables) / JOB;
        }
        // Inline work would be done by this reader.
        if wanted && self.options.background != Background::Inline {
            self.work_available();
        }
    }

    /// Whether the memtable is now to be sealed.
    fn met_in_active(&self, active: &Generation, met: u64) -> bool {
        let all = active.scanned.tombstones.fetch_add(met, Relaxed) + met;
        let entries: usize = active.memtables.iter().map(|memtable| memtable.len()).sum();
        if all < JOB + FLUSHED_ENTRY * entries as u64 || active.is_seal_wanted() {
            return false;
        }
        active.scanned.tombstones.store(0, Relaxed);
        // What a snapshot needs stays, in a table too: it must be less than half.
        let settled = self.snapshots.oldest(&self.visible).saturating_sub(active.after);
        let droppable = 2 * settled > self.visible.load().saturating_sub(active.after);
        if droppable {
            active.scanned.seal_wanted.store(true, Relaxed);
            // Scans will meet them in level 0 next: what they have cost counts for that, too.
            self.flow.scanned_tombstones.fetch_add(all, Relaxed);
        }
        droppable
    }

    /// Whether the active memtable is to be sealed for the sake of scans now: nothing lags, and there is space. Asked with
    /// the log locked; the wish is then gone, so that a failure does not meet each write.
    pub(crate) fn seals_for_scans(&self, active: &Generation) -> bool {
        active.is_seal_wanted()
            && self.super_version.load().immutables.is_empty()
            && !self.room.is_low()
            && active.scanned.seal_wanted.swap(false, Relaxed)
    }

    /// Seals the active memtable if scans would gain by that and no writer has come to do it.
    pub(crate) fn seal_for_scans(&self) -> Result<bool> {
        if !self.super_version.load().active.is_seal_wanted() {
            return Ok(false);
        }
        let mut log = self.log.lock();
        self.check_writable()?;
        if !self.seals_for_scans(&log.active) {
            return Ok(false);
        }
        self.rotate(&mut log)?;
        Ok(true)
    }

    /// What the picker is told: what was stepped over beyond the fixed cost of a job.
    pub(crate) fn scanned_tombstones(&self) -> u64 {
        self.flow.scanned_tombstones.load(Relaxed).saturating_sub(JOB)
    }

    /// A compaction was picked for the sake of scans.
    pub(crate) fn compacts_for_scans(&self) {
        self.flow.scanned_tombstones.store(0, Relaxed);
    }
}
