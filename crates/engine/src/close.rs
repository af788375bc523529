//! Waiting for background work, and closing.

use crate::commit::SyncLog;
use crate::core::Core;
use crate::state::ManualRequest;
use crate::write::unknown;
use crate::{Error, Result};
use esker_base::{FileNumber, planted, points};
use esker_manifest::VersionEdit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

impl Core {
    /// Flushes all that is in memory to tables, and waits for that.
    pub(crate) fn flush(&self) -> Result<()> {
        let sealed = {
            let mut log = self.log.lock();
            self.check_writable()?;
            let rotated = if log.active.is_empty() { Ok(()) } else { self.rotate(&mut log) };
            rotated.map(|()| log.active.log)
        };
        let flushed = sealed.and_then(|sealed| self.wait_for_flush(sealed));
        if flushed.is_err() {
            self.report_failure();
        }
        flushed
    }

    /// Waits until every memtable before the segment `before` is flushed.
    fn wait_for_flush(&self, before: FileNumber) -> Result<()> {
        let failures = {
            let mut state = self.state.lock();
            // Whoever asks for a flush wants it tried now.
            state.flush_retry.succeeded();
            state.flush_failures
        };
        self.work_available();
        loop {
            let seen = self.progress_now();
            {
                let state = self.state.lock();
                if state.oldest_log() >= before {
                    return Ok(());
                }
                if state.flush_failures > failures {
                    drop(state);
                    return Err(self.background_failure());
                }
            }
            self.check_progress_possible()?;
            self.wait_for_progress(seen);
        }
    }

    /// Fails when what is waited for will not come any more.
    fn check_progress_possible(&self) -> Result<()> {
        match self.failure() {
            Some(cause) => Err(Error::read_only(cause)),
            None if self.is_stopping() => Err(Error::closed()),
            None => Ok(()),
        }
    }

    /// Compacts a range of user keys (inclusive bounds) down to the bottom, and waits for that.
    pub(crate) fn compact_range(&self, begin: Option<Vec<u8>>, end: Option<Vec<u8>>) -> Result<()> {
        self.flush()?;
        let failed = Arc::new(AtomicBool::new(false));
        let (ticket, failures) = {
            let mut state = self.state.lock();
            state.manual_asked += 1;
            let ticket = state.manual_asked;
            state.compaction_retry.succeeded();
            state.manual.push_back(ManualRequest { ticket, failed: Arc::clone(&failed), begin, end });
            (ticket, state.compaction_failures)
        };
        self.work_available();
        loop {
            let seen = self.progress_now();
            {
                let mut state = self.state.lock();
                if state.manual_done >= ticket {
                    drop(state);
                    return if failed.load(Relaxed) { Err(self.background_failure()) } else { Ok(()) };
                }
                if state.compaction_failures > failures {
                    state.manual.retain(|request| request.ticket != ticket);
                    if state.manual_current.as_ref().is_some_and(|manual| manual.is_idle(ticket)) {
                        state.manual_current = None;
                    }
                    drop(state);
                    return Err(self.background_failure());
                }
            }
            self.check_open()?;
            self.check_progress_possible()?;
            self.wait_for_progress(seen);
        }
    }

    /// Makes all earlier writes durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check_writable()?;
        self.queue.wait(self.visible.load(), self)
    }

    /// Closes: stops work, and releases the lock. With `clean` the memtables are flushed before, and the manifest is
    /// ended so that the next open finds any damage; without, what is in memory stays in the log. Who comes later gets
    /// what came of it.
    pub(crate) fn shut_down(&self, clean: bool) -> Result<()> {
        // Whoever comes second waits for the first: the database is closed when this returns. But not a callback, for which
        // the first may be waiting.
        let outcome = {
            let waits = !self.queue.is_calling();
            let Some(mut outcome) = (if waits { Some(self.closing.lock()) } else { self.closing.try_lock() })
            else {
                return Err(Error::closed());
            };
            if self.mark_closed() {
                *outcome = self.shut_down_alone(clean);
            }
            outcome.clone()
        };
        // Without the lock: a callback may close, too. What is not durable now may be in the log all the same.
        let cause = outcome.clone().err().or_else(|| self.failure()).unwrap_or_else(Error::closed);
        self.queue.close(&Err(unknown(cause)));
        outcome
    }

    fn shut_down_alone(&self, clean: bool) -> Result<()> {
        // A `resume` that is under way may end; it must not write when the lock file is given back.
        drop(self.resuming.lock());
        points::here(points::Point::Closing);
        let waits = clean && !planted::is(planted::Fault::CloseWithoutFlush);
        let flushed = if waits { self.flush_last() } else { Ok(()) };
        points::here(points::Point::ClosingFlushed);
        self.stop_background();
        points::here(points::Point::ClosingStopped);
        self.drop_paused_jobs();
        let result = flushed.and_then(|()| if clean { self.end_files() } else { self.leave_files() });
        self.log.lock().ended = true;
        self.sweep();
        *self.lock.lock() = None;
        result
    }

    /// Flushes what the last writers left. New ones are refused by now.
    fn flush_last(&self) -> Result<()> {
        let sealed = {
            let mut log = self.log.lock();
            if let Some(cause) = self.failure() {
                return Err(Error::read_only(cause));
            }
            if !log.active.is_empty() {
                self.rotate(&mut log)?;
            }
            log.active.log
        };
        self.wait_for_flush(sealed)
    }

    fn end_files(&self) -> Result<()> {
        self.queue.raise(self.sync_log()?);
        let mut log = self.log.lock();
        log.writer.trim();
        let mut edit = VersionEdit::new();
        edit.last_sequence = Some(log.last_seq);
        edit.durable_sequence = Some(self.queue.durable());
        self.install(edit, &mut false, |_| {})?;
        match self.manifest.lock().writer.take() {
            Some(writer) => writer.write_clean_current(),
            None => Ok(()),
        }
    }

    /// Hands what is buffered to the operating system, unless the log has failed before. Syncs only for commits whose
    /// outcome somebody wants to be told.
    fn leave_files(&self) -> Result<()> {
        if self.has_failed() {
            return Ok(());
        }
        if self.queue.has_wishes() {
            self.queue.raise(self.sync_log()?);
        }
        let mut log = self.log.lock();
        log.record_skip()?;
        log.writer.flush()?;
        log.writer.trim();
        Ok(())
    }
}
