//! [`Db::resume`](crate::Db::resume): out of the read-only state, without reopening.
//!
//! Nothing that failed is tried again as it was: after a failed sync the system may have dropped the data and report
//! success the next time. Instead the log goes on in a new segment, the manifest in a new file if its end is in doubt, and
//! everything in memory is written to new tables. Only when all of that is durable are writes taken again.

use crate::core::Core;
use crate::super_version::Generation;
use crate::version_set::VersionSet;
use crate::write::LogEnd;
use crate::{Error, ErrorKind, Result};
use esker_base::sync::thread;
use esker_base::{FileKind, planted, points};
use esker_wal::{LogKind, SegmentHeader};
use std::sync::Arc;

impl Core {
    pub(crate) fn resume(&self) -> Result<()> {
        {
            let _alone = self.resuming.lock();
            self.check_open()?;
            self.resume_alone()?;
        }
        // Only now: on the caller's thread, what is done here may fail and want to resume.
        self.progressed();
        self.work_available();
        self.look_again(0)
    }

    /// After a full disk the way out is tried without being asked for, later and later. Returns whether that helped.
    pub(crate) fn resume_after_full_disk(&self) -> bool {
        let mut retry = self.resuming.lock();
        let full = self.failure().is_some_and(|cause| cause.is_no_space() || is_no_space_below(&cause));
        if !full || self.check_open().is_err() {
            return false;
        }
        let now = self.components.clock.now();
        // When the disk has just been found full, it gets a moment.
        let resumed = retry.is_failing() && retry.is_due(|| now) && self.resume_alone().is_ok();
        if resumed {
            retry.succeeded();
            self.progressed();
        } else if retry.is_due(|| now) {
            retry.failed(now);
        }
        resumed
    }

    fn resume_alone(&self) -> Result<()> {
        self.forget_failures();
        if let Some(cause) = self.failure() {
            if matches!(cause.kind(), ErrorKind::Fatal { .. }) {
                return Err(Error::read_only(cause));
            }
            self.restart_log(&mut self.log.lock())?;
            points::here(points::Point::LogRestarted);
            self.restart_manifest(&mut self.manifest.lock())?;
            if !planted::is(planted::Fault::ResumedWithoutFlush) {
                self.flush_all()?;
            }
            points::here(points::Point::Reflushed);
            self.trust_log(&mut self.log.lock())?;
            self.unlatch();
            self.set_leftovers(true);
        }
        Ok(())
    }

    /// Work that failed is tried at once, and damaged tables are compacted again.
    fn forget_failures(&self) {
        let mut state = self.state.lock();
        state.flush_retry.succeeded();
        state.compaction_retry.succeeded();
        for number in std::mem::take(&mut state.quarantined) {
            state.busy.remove(&number);
        }
        self.recovered();
    }

    /// Leaves the present segment where its good part ends, and goes on in a new one. The numbers of batches that failed
    /// are not given to others.
    fn restart_log(&self, log: &mut LogEnd) -> Result<()> {
        let last = log.last_seq.max(log.writer.last_sequence());
        let previous = log.writer.end();
        let number = self.new_file_number();
        let header = SegmentHeader { kind: LogKind::Wal, store_id: self.tables.store_id, number, previous };
        let mut writer = self.create_segment(header, log.writer.durable_sequence())?;
        if last > previous.last_sequence {
            writer.append_skip(previous.last_sequence + 1, last - previous.last_sequence)?;
            writer.flush()?;
        }
        let memtable_size = self.options.effective_memtable_size();
        let keyspaces = log.active.memtables.len();
        let fresh = Generation::new(number, last, self.tables.hash_seed, keyspaces, memtable_size);
        let sealed = std::mem::replace(&mut log.active, fresh);
        sealed.seal(last);
        log.writer.trim();
        log.writer = writer;
        log.lacks_some = true;
        log.look_for_room_at = 0;
        log.last_seq = last;
        // What the numbers stand for is in the sealed memtable, or nowhere.
        log.skipped = None;
        let mut state = self.state.lock();
        state.immutables.insert(0, sealed);
        state.active = Arc::clone(&log.active);
        self.publish(&mut state);
        Ok(())
    }

    /// Starts a new manifest if the end of the present one is in doubt: from the state without the edit that failed.
    fn restart_manifest(&self, versions: &mut VersionSet) -> Result<()> {
        let poisoned = versions.writer.as_ref().is_some_and(|writer| writer.poisoned().is_some());
        if !poisoned && !versions.in_doubt {
            return Ok(());
        }
        self.roll_manifest(versions, &versions.state.clone())?;
        // What the failed edit would have named is named by nobody now.
        let mut state = self.state.lock();
        let doubtful = std::mem::take(&mut state.doubtful);
        state.obsolete_files.extend(doubtful.into_iter().map(|number| (FileKind::Table, number)));
        Ok(())
    }

    /// Flushes every sealed memtable, on this thread: background work stands still.
    fn flush_all(&self) -> Result<()> {
        loop {
            let (job, waiting) = {
                let mut state = self.state.lock();
                (self.next_flush(&mut state), !state.immutables.is_empty())
            };
            match job {
                Some(job) => self.run_step(job)?,
                // A worker has the flush in hand.
                None if waiting => thread::yield_now(),
                None => return Ok(()),
            }
        }
    }

    /// All that earlier segments held is in tables: the new segment's syncs count.
    fn trust_log(&self, log: &mut LogEnd) -> Result<()> {
        log.resumes += 1;
        log.unsynced.clear();
        log.writer.previous_is_durable();
        log.writer.sync()?;
        self.queue.resumed(log.writer.durable_sequence());
        log.lacks_some = false;
        Ok(())
    }
}

/// Whether a write of unknown outcome was caused by a full disk.
fn is_no_space_below(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WriteUnknown { cause } if cause.is_no_space())
}
