//! What a commit does, and the log's end on which it does it.
//!
//! The order is: log, memtable, publish, and then, without the log's lock, sync if asked. A batch is visible only when all
//! of it is in the memtable, and an `Ok` is given only after the durability that was asked for.

use crate::commit::{Request, SyncLog};
use crate::core::Core;
use crate::scheduler::BackgroundWork;
use crate::super_version::Generation;
use crate::{Durability, Error, Result};
use esker_base::{ErrorKind, FileKind, LAST_SEQUENCE, SequenceNumber, planted, points};
use esker_wal::{LogKind, LogWriter, Mark, SegmentHeader, SyncPoint};
use std::sync::Arc;

/// Bytes of `Durability::Memory` writes that gather before they go to the operating system.
const MEMORY_BUFFER: usize = 64 << 10;

/// The end of the log, and the memtables that it covers. Guarded by [`Core::log`].
#[derive(Debug)]
pub(crate) struct LogEnd {
    pub(crate) writer: LogWriter,
    /// The ends of segments before the present one that may not be synced, oldest first.
    pub(crate) unsynced: Vec<SyncPoint>,
    /// The last sequence number that was given out.
    pub(crate) last_seq: SequenceNumber,
    /// Numbers that were given out without the log, and which no skip record covers yet: first and count.
    pub(crate) skipped: Option<(SequenceNumber, u64)>,
    /// The length of the log at which the free space is looked at next.
    pub(crate) look_for_room_at: u64,
    /// Whether a resume has begun a new segment, and not yet written to tables what was in memory: then the log lacks some
    /// of that, and a sync of it would prove nothing.
    pub(crate) lacks_some: bool,
    /// How often a resume has written all of it.
    pub(crate) resumes: u64,
    /// The memtables of the present segment: the same as `State::active`.
    pub(crate) active: Arc<Generation>,
    /// Whether the database is closed, and its files are no longer ours.
    pub(crate) ended: bool,
}

/// What a sync is about to make durable, oldest first.
struct SyncPlan {
    older: Vec<SyncPoint>,
    present: SyncPoint,
    /// [`LogEnd::resumes`] when it was made.
    resumes: u64,
}

impl SyncLog for Core {
    fn now(&self) -> std::time::Duration {
        self.components.clock.now()
    }

    /// Makes everything in the log durable, older segments first (F7). The log is locked only to see what there is, so it
    /// takes writes meanwhile. After a failure the outcome of the unsynced writes is unknown, and nothing is synced again.
    fn sync_log(&self) -> Result<SequenceNumber> {
        let planned = {
            let mut log = self.log.lock();
            if log.ended {
                return Err(Error::closed());
            }
            if log.lacks_some {
                return Err(unknown(self.failure().unwrap_or_else(Error::closed)));
            }
            self.plan_sync(&mut log).map_err(unknown).inspect_err(|error| self.fail(error))
        };
        let synced = planned.and_then(|plan| {
            self.run_sync(&plan).map_err(unknown).inspect_err(|error| {
                // After a resume, which has written all of it anew, this failure is of the past.
                let log = self.log.lock();
                if plan.resumes == log.resumes {
                    self.fail(error);
                }
            })
        });
        if synced.is_err() {
            self.report_failure();
        }
        synced
    }
}

impl Core {
    /// Writes a batch that admission has let in to the log and the memtable, and publishes it. Returns the last sequence
    /// number up to then; what has to be synced is for the caller to wait for. Where the batch must seal a memtable, and
    /// flushes or level 0 lag too far for that, it waits, or fails with `WouldStall`.
    pub(crate) fn commit(&self, request: &Request, may_wait: bool) -> Result<SequenceNumber> {
        let mut may_seal = false;
        let (rotated, result) = loop {
            points::here(points::Point::Admitted);
            let mut log = self.log.lock();
            self.check_writable()?;
            let full = self.is_full(&log);
            if full && !may_seal {
                drop(log);
                self.admit_seal(may_wait)?;
                may_seal = true;
                continue;
            }
            let seal = full || self.seals_for_scans(&log.active);
            let ready = if seal { self.rotate(&mut log) } else { Ok(()) };
            break (seal, ready.and_then(|()| self.append(&mut log, request)));
        };
        if rotated {
            self.divide_memory();
            self.work_available();
        }
        if result.is_err() {
            self.report_failure();
        }
        result
    }

    fn is_full(&self, log: &LogEnd) -> bool {
        let full = log.active.memory_usage() >= self.options.effective_memtable_size()
            || log.writer.len_of_all() >= self.options.wal_segment_size;
        full && !log.active.is_empty()
    }

    fn append(&self, log: &mut LogEnd, request: &Request) -> Result<SequenceNumber> {
        let count = u64::from(request.count);
        let first = log.last_seq + 1;
        if first + count > LAST_SEQUENCE {
            return Err(Error::fatal("the sequence numbers are used up"));
        }
        self.look_for_room(log, request)?;
        let mark = log.writer.mark();
        let mut logged = self.log_batch(log, request, first);
        if planted::is(planted::Fault::LogErrorIgnored) {
            logged = Ok(());
        }
        if let Err(error) = logged {
            self.fail(&error);
            log.take_back(mark, count);
            return Err(error);
        }
        if planted::is(planted::Fault::PublishedBeforeApplied) {
            self.visible.publish(log.last_seq + count);
            planted::pause();
        }
        points::here(points::Point::Logged);
        // A failure here is a bug: the operations were checked before they were logged.
        self.apply(&log.active, request, first).inspect_err(|error| self.fail(error))?;
        points::here(points::Point::Applied);
        log.last_seq += count;
        self.visible.publish(log.last_seq);
        points::here(points::Point::Published);
        self.metrics.committed(count);
        Ok(log.last_seq)
    }

    /// Writes the batch's record, and hands it to the operating system unless it may stay in the buffer.
    fn log_batch(&self, log: &mut LogEnd, request: &Request, first: SequenceNumber) -> Result<()> {
        let count = u64::from(request.count);
        if !request.wal {
            log.skip(first, count);
            return Ok(());
        }
        log.record_skip()?;
        log.writer.append_batch(first, count, &request.payload)?;
        if request.durability == Durability::Memory && log.writer.buffered() < MEMORY_BUFFER {
            return Ok(());
        }
        log.writer.flush()
    }

    /// Inserts a batch into the memtables.
    fn apply(&self, active: &Generation, request: &Request, first: SequenceNumber) -> Result<()> {
        let mut writer = active.memtables[0].writer();
        let inserted = writer.insert_batch(&request.payload, first, request.count, |seq| {
            if planted::is(planted::Fault::HalfBatchVisible) {
                self.visible.publish(seq);
                planted::pause();
            }
            points::here(points::Point::Inserted);
        });
        inserted.map_err(|offset| Error::fatal(format!("operation at byte {offset} of a batch")))
    }

    /// Sees to it that what is wanted of the commit queue is done, by a thread of the background if there is one. Called
    /// without a lock.
    pub(crate) fn serve_commits(&self) {
        if !self.queue.is_served()
            && let Some(this) = self.this.upgrade()
        {
            let work: Arc<dyn BackgroundWork> = this;
            self.components.scheduler.sync_wanted(&work);
        }
    }

    /// What must be synced so that everything up to now is durable.
    fn plan_sync(&self, log: &mut LogEnd) -> Result<SyncPlan> {
        self.drop_flushed_segments(log);
        log.record_skip()?;
        log.writer.flush()?;
        log.writer.extend_for_sync();
        let present = log.writer.sync_point();
        Ok(SyncPlan { older: log.unsynced.clone(), present, resumes: log.resumes })
    }

    fn run_sync(&self, plan: &SyncPlan) -> Result<SequenceNumber> {
        if !planted::is(planted::Fault::OldLogNotSynced) {
            for older in &plan.older {
                older.sync()?;
            }
        }
        points::here(points::Point::Unsynced);
        plan.present.previous_is_durable();
        plan.present.sync()?;
        self.metrics.log_synced();
        if planted::is(planted::Fault::SyncCoversLater) {
            planted::pause();
            self.queue.raise(self.visible.load());
        }
        Ok(plan.present.last_sequence())
    }

    /// Forgets the log segments that are synced to their ends, and those whose writes are all in tables: as long as one is
    /// open, its space does not come back, and a database that never syncs would keep them all.
    pub(crate) fn drop_flushed_segments(&self, log: &mut LogEnd) {
        if log.unsynced.is_empty() {
            return;
        }
        let oldest_needed = self.state.lock().oldest_log();
        log.unsynced.retain(|segment| segment.number() >= oldest_needed && !segment.is_synced());
    }

    /// Hands what `Durability::Memory` writes have left in the buffer to the operating system. Idle background threads
    /// call this twice a second.
    pub(crate) fn flush_log_buffer(&self) {
        if points::log_is_held() {
            return;
        }
        let mut log = self.log.lock();
        if log.writer.buffered() > 0 && self.check_writable().is_ok() {
            let flushed = log.record_skip().and_then(|()| log.writer.flush());
            drop(log);
            if let Err(error) = flushed {
                self.fail(&error);
                self.report_failure();
            }
        }
    }

    /// Seals the active memtables and starts a new log segment with new ones. The caller tells the scheduler.
    pub(crate) fn rotate(&self, log: &mut LogEnd) -> Result<()> {
        log.record_skip().and_then(|()| log.writer.flush()).inspect_err(|error| self.fail(error))?;
        let number = self.new_file_number();
        let previous = log.writer.end();
        let header = SegmentHeader { kind: LogKind::Wal, store_id: self.tables.store_id, number, previous };
        let writer = self.create_segment(header, log.writer.durable_sequence())?;
        points::here(points::Point::SegmentMade);
        let memtable_size = self.options.effective_memtable_size();
        let keyspaces = log.active.memtables.len();
        let fresh = Generation::new(number, log.last_seq, self.tables.hash_seed, keyspaces, memtable_size);
        let sealed = std::mem::replace(&mut log.active, fresh);
        sealed.seal(log.last_seq);
        let mut ended = std::mem::replace(&mut log.writer, writer);
        ended.trim();
        log.unsynced.push(ended.sync_point());
        log.look_for_room_at = 0;
        points::here(points::Point::Sealed);
        let mut state = self.state.lock();
        state.immutables.insert(0, sealed);
        state.active = Arc::clone(&log.active);
        self.publish(&mut state);
        Ok(())
    }

    /// Creates a log segment whose name is durable. A half-made one is removed again, and durably so: after a loss of
    /// power its header would say that the segment before it ends here, and hide what is appended to that later.
    pub(crate) fn create_segment(&self, header: SegmentHeader, durable: SequenceNumber) -> Result<LogWriter> {
        let vfs = &self.components.vfs;
        let path = self.file_path(FileKind::Wal, header.number);
        let created = LogWriter::create(vfs.as_ref(), &path, header, durable).and_then(|mut writer| {
            writer.keep_buffer(self.options.log_buffer_kept());
            if planted::is(planted::Fault::LogNameNotSynced) {
                return Ok(writer);
            }
            vfs.sync_dir(&self.dir).map(|()| writer).map_err(|e| Error::io("sync", &self.dir, e))
        });
        created.inspect_err(|error| {
            // One that was there is not ours.
            if error.io_kind() == Some(std::io::ErrorKind::AlreadyExists) {
                return;
            }
            let gone = match vfs.remove(&path) {
                Ok(()) => vfs.sync_dir(&self.dir).is_ok(),
                Err(remove) => remove.kind() == std::io::ErrorKind::NotFound,
            };
            if !gone {
                self.fail(error);
            }
        })
    }
}

impl LogEnd {
    /// Remembers sequence numbers that go without the log.
    fn skip(&mut self, first: SequenceNumber, count: u64) {
        match &mut self.skipped {
            Some((_, skipped)) => *skipped += count,
            None => self.skipped = Some((first, count)),
        }
    }

    /// Takes a batch of `count` operations, which could not be logged, out of the buffer: it must not reach the file with
    /// what others sync later. Its numbers are given to nobody else.
    #[cold]
    fn take_back(&mut self, mark: Mark, count: u64) {
        if self.writer.rollback(mark).is_ok() {
            let logged = self.writer.last_sequence();
            self.last_seq += count;
            self.skipped = Some((logged + 1, self.last_seq - logged));
        }
    }

    /// Records the numbers that went without the log, so that a gap in the log is always damage.
    pub(crate) fn record_skip(&mut self) -> Result<()> {
        if let Some((first, count)) = self.skipped.take() {
            self.writer.append_skip(first, count)?;
        }
        Ok(())
    }
}

/// The error of a failed sync: the writer says `WriteUnknown` itself once it is poisoned.
pub(crate) fn unknown(error: Error) -> Error {
    if matches!(error.kind(), ErrorKind::WriteUnknown { .. }) { error } else { Error::write_unknown(error) }
}
