//! What a commit does, and the log's end on which it does it.
//!
//! The order is: log, sync if asked, memtable, publish. A batch is visible only when all of it is in the memtable, and
//! an `Ok` is given only after the durability that was asked for.

use crate::commit::{CommitGroup, Request};
use crate::core::Core;
use crate::super_version::Generation;
use crate::{Durability, Error, Result};
use esker_base::{BatchReader, ErrorKind, FileKind, MAX_SEQUENCE, SequenceNumber, key_hash, planted, points};
use esker_wal::{LogKind, LogWriter, SegmentHeader};
use std::sync::Arc;

/// Bytes of `Durability::Memory` writes that gather before they go to the operating system.
const MEMORY_BUFFER: usize = 64 << 10;

/// Sequence numbers that are never given out, so that no arithmetic near the end can go wrong.
const SEQUENCE_RESERVE: u64 = 1 << 20;

/// The end of the log, and the memtables that it covers. Guarded by [`Core::log`].
#[derive(Debug)]
pub(crate) struct LogEnd {
    pub(crate) writer: LogWriter,
    /// Segments before the present one that were not synced, oldest first.
    pub(crate) unsynced: Vec<LogWriter>,
    /// The last sequence number that was given out.
    pub(crate) last_seq: SequenceNumber,
    /// Numbers that were given out without the log, and which no skip record covers yet: first and count.
    pub(crate) skipped: Option<(SequenceNumber, u64)>,
    /// The length of the log at which the free space is looked at next.
    pub(crate) look_for_room_at: u64,
    /// The memtables of the present segment: the same as `State::active`.
    pub(crate) active: Arc<Generation>,
}

impl CommitGroup for Core {
    fn now(&self) -> std::time::Duration {
        self.components.clock.now()
    }

    fn commit(&self, group: &[&Request]) -> Result<()> {
        self.commit_admitted(group, true)
    }
}

impl Core {
    /// Commits a group that admission has let in. Where it must seal a memtable, and flushes or level 0 lag too far for
    /// that, it waits, or fails with `WouldStall`.
    pub(crate) fn commit_admitted(&self, group: &[&Request], may_wait: bool) -> Result<()> {
        // A sync alone needs no room, and must not wait for it.
        let writes = group.iter().any(|request| request.count > 0);
        let mut may_seal = false;
        let (rotated, result) = loop {
            points::here(points::Point::Admitted);
            let mut log = self.log.lock();
            self.check_writable()?;
            let full = writes && self.is_full(&log);
            if full && !may_seal {
                drop(log);
                self.admit_seal(may_wait)?;
                may_seal = true;
                continue;
            }
            let ready = if full { self.rotate(&mut log) } else { Ok(()) };
            break (full, ready.and_then(|()| self.append_group(&mut log, group)));
        };
        if rotated {
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

    fn append_group(&self, log: &mut LogEnd, group: &[&Request]) -> Result<()> {
        let count: u64 = group.iter().map(|request| u64::from(request.count)).sum();
        let first = log.last_seq + 1;
        if first + count > MAX_SEQUENCE - SEQUENCE_RESERVE {
            return Err(Error::fatal("the sequence numbers are used up"));
        }
        self.look_for_room(log, group)?;
        let mut logged = self.log_group(log, group, first);
        if planted::is(planted::Fault::LogErrorIgnored) {
            logged = Ok(());
        }
        logged.inspect_err(|error| self.fail(error))?;
        if planted::is(planted::Fault::PublishedBeforeApplied) {
            self.visible.publish(log.last_seq + count);
            planted::pause();
        }
        points::here(points::Point::Logged);
        let mut seq = first;
        for request in group {
            // A failure here is a bug: the operations were checked before they were logged.
            seq = self.apply(&log.active, request, seq).inspect_err(|error| self.fail(error))?;
        }
        points::here(points::Point::Applied);
        log.last_seq += count;
        self.visible.publish(log.last_seq);
        points::here(points::Point::Published);
        self.metrics.committed(group.len() as u64, count);
        Ok(())
    }

    /// Writes the group's records, in one piece, and syncs if one of its members asks for that.
    fn log_group(&self, log: &mut LogEnd, group: &[&Request], first: SequenceNumber) -> Result<()> {
        let mut seq = first;
        let mut durability = Durability::Memory;
        for request in group {
            let count = u64::from(request.count);
            if request.wal && count > 0 {
                log.record_skip()?;
                log.writer.append_batch(seq, count, &request.payload)?;
            } else if count > 0 {
                log.skip(seq, count);
            }
            if request.wal || request.durability == Durability::Sync {
                durability = durability.max(request.durability);
            }
            seq += count;
        }
        match durability {
            Durability::Sync => self.sync_log(log),
            Durability::Memory if log.writer.buffered() < MEMORY_BUFFER => Ok(()),
            _ => log.writer.flush(),
        }
    }

    /// Inserts a batch into the memtables. Returns the sequence number after it.
    fn apply(&self, active: &Generation, request: &Request, first: SequenceNumber) -> Result<SequenceNumber> {
        let mut seq = first;
        let mut writer = active.memtables[0].writer();
        for op in BatchReader::new(&request.payload) {
            let op = op.map_err(|offset| Error::fatal(format!("operation at byte {offset} of a batch")))?;
            let hash = key_hash(self.tables.hash_seed, &request.payload[op.key.clone()]);
            writer.insert(&request.payload, op.key, op.value, seq, op.kind, hash);
            if planted::is(planted::Fault::HalfBatchVisible) {
                self.visible.publish(seq);
                planted::pause();
            }
            points::here(points::Point::Inserted);
            seq += 1;
        }
        Ok(seq)
    }

    /// Makes everything in the log durable, older segments first. After a failure the outcome of the unsynced writes
    /// is unknown, and nothing is synced again.
    pub(crate) fn sync_log(&self, log: &mut LogEnd) -> Result<()> {
        let oldest_needed = self.state.lock().oldest_log();
        // What an older segment holds is in tables by now.
        log.unsynced.retain(|segment| segment.header().number >= oldest_needed);
        if !planted::is(planted::Fault::OldLogNotSynced) {
            for segment in &mut log.unsynced {
                segment.sync().map_err(unknown)?;
            }
        }
        log.unsynced.clear();
        log.writer.previous_is_durable();
        log.record_skip()?;
        // What the flush says stands: after a clean cut the group is certainly not in the log.
        log.writer.flush()?;
        points::here(points::Point::Unsynced);
        log.writer.sync().map_err(unknown)?;
        self.set_log_durable(log.writer.durable_sequence());
        Ok(())
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
        let fresh = Generation::new(number, self.tables.hash_seed, log.active.memtables.len(), memtable_size);
        let sealed = std::mem::replace(&mut log.active, fresh);
        sealed.seal(log.last_seq);
        log.unsynced.push(std::mem::replace(&mut log.writer, writer));
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
        let created = LogWriter::create(vfs.as_ref(), &path, header, durable).and_then(|writer| {
            if planted::is(planted::Fault::LogNameNotSynced) {
                return Ok(writer);
            }
            vfs.sync_dir(&self.dir).map(|()| writer).map_err(|e| Error::io("sync", &self.dir, e))
        });
        created.inspect_err(|error| {
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

    /// Records the numbers that went without the log, so that a gap in the log is always damage.
    pub(crate) fn record_skip(&mut self) -> Result<()> {
        if let Some((first, count)) = self.skipped.take() {
            self.writer.append_skip(first, count)?;
        }
        Ok(())
    }
}

/// The error of a failed sync: the writer says `WriteUnknown` itself once it is poisoned.
fn unknown(error: Error) -> Error {
    if matches!(error.kind(), ErrorKind::WriteUnknown { .. }) { error } else { Error::write_unknown(error) }
}
