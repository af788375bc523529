//! Whether a write has room on the device.

use super::{COMFORT, FLUSH_SHARE};
use crate::commit::Request;
use crate::core::Core;
use crate::event::Event;
use crate::write::LogEnd;
use crate::{Error, Result};
use esker_base::{BatchReader, ValueKind, points};
use esker_compaction::LeveledOptions;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

impl Core {
    /// Refuses a write that adds something while there is too little space. Called without a lock.
    #[inline]
    pub(crate) fn check_room(&self, request: &Request, may_wait: bool) -> Result<()> {
        if self.room.is_low() { self.check_low_room(request, may_wait) } else { Ok(()) }
    }

    #[cold]
    fn check_low_room(&self, request: &Request, may_wait: bool) -> Result<()> {
        let bytes = request.payload.len() as u64;
        let room = if only_deletes(request) {
            // A database of which nothing but deletes was asked since its open has not looked yet.
            if self.look_again(bytes).is_ok() { Ok(()) } else { self.room_for_deletes(bytes, may_wait) }
        } else {
            self.look_again(bytes).inspect_err(|_| self.seal_for_room())
        };
        room.inspect_err(|_| {
            self.room.refused.fetch_add(1, Relaxed);
        })
    }

    /// Deletes take room in the log, must leave as much as a flush of the memtables takes, and what compactions need to make
    /// room of them. So when little is left, they wait for a flush, and for the compactions that can be done.
    fn room_for_deletes(&self, bytes: u64, may_wait: bool) -> Result<()> {
        let part = self.room.ballast / FLUSH_SHARE;
        let mut flushed = false;
        let (free, needed) = loop {
            let seen = self.progress_now();
            let (free, held) = (self.room.unclaimed(), self.held_by_memtables());
            let more = self.room.manifest_ahead.saturating_add(bytes.saturating_mul(2));
            let tight = held > part || free < more.saturating_add(held);
            if !tight && free >= part * COMFORT {
                return Ok(());
            }
            if may_wait && !flushed && tight && held > 0 {
                flushed = true;
                // Where it has no room either, the log takes what is left.
                if self.flush().is_err() {
                    self.check_writable()?;
                }
                continue;
            }
            if free >= part * COMFORT || !may_wait || !self.compactions_can_go_on() {
                break (free, more);
            }
            self.check_writable()?;
            self.work_available();
            self.wait_for_progress(seen);
        };
        if free >= needed { Ok(()) } else { Err(self.no_room(free, needed)) }
    }

    /// Bytes of log that a flush would give back, about.
    fn held_by_memtables(&self) -> u64 {
        let log = self.log.lock();
        let state = self.state.lock();
        let sealed: usize = state.immutables.iter().map(|sealed| sealed.memory_usage()).sum();
        let active = if log.active.is_empty() { 0 } else { log.writer.len_of_all() };
        active.saturating_add(sealed as u64)
    }

    /// Looks whether there is room for `bytes` again; the error says what is missing. Called without a lock.
    pub(crate) fn look_again(&self, bytes: u64) -> Result<()> {
        if !self.room.is_low() {
            return Ok(());
        }
        let (free, needed) = (self.room.unclaimed(), self.room.reserve.saturating_add(bytes));
        if free >= needed {
            self.room.low.store(false, Relaxed);
            self.room.sealed.store(false, Relaxed);
            if self.room.told.swap(false, Relaxed) {
                self.emit(&Event::SpaceBack { free });
            }
            return Ok(());
        }
        if !self.room.told.swap(true, Relaxed) {
            self.emit(&Event::SpaceLow { free, needed });
        }
        Err(self.no_room(free, needed))
    }

    /// What is in memory goes to tables: what it hides there can go then. Once, when space gets low.
    fn seal_for_room(&self) {
        if self.room.sealed.swap(true, Relaxed) || points::log_is_held() {
            return;
        }
        let sealed = {
            let mut log = self.log.lock();
            let fit = self.check_writable().is_ok() && !log.active.is_empty();
            fit && self.rotate(&mut log).is_ok()
        };
        if sealed {
            self.work_available();
        }
    }

    /// Looks at the free space when the log has grown enough since the last time. A commit that is small against the
    /// reserve still goes through.
    #[inline]
    pub(crate) fn look_for_room(&self, log: &mut LogEnd, request: &Request) -> Result<()> {
        let bytes = request.payload.len();
        let end = log.writer.len_of_all().saturating_add(bytes as u64);
        if end < log.look_for_room_at {
            return Ok(());
        }
        self.look_now(log, request, bytes as u64, end)
    }

    #[cold]
    fn look_now(&self, log: &mut LogEnd, request: &Request, bytes: u64, end: u64) -> Result<()> {
        if self.room.reserve == 0 {
            // Nobody knows what is free.
            log.look_for_room_at = u64::MAX;
            self.options.allow_log_extents(&mut log.writer, u64::MAX);
            return Ok(());
        }
        log.look_for_room_at = end.saturating_add(self.room.look_every());
        let (free, needed) = (self.room.unclaimed(), self.room.reserve.saturating_add(bytes));
        // What the log allocates ahead until the next look is space like any other, and does not touch the reserve.
        self.options.allow_log_extents(&mut log.writer, free.saturating_sub(needed) / 4);
        if free >= needed {
            return Ok(());
        }
        self.room.low.store(true, Relaxed);
        if bytes <= self.room.look_every() || only_deletes(request) {
            return Ok(());
        }
        self.room.refused.fetch_add(1, Relaxed);
        Err(self.no_room(free, needed))
    }

    /// How the tree is to be shaped. Compactions are kept so small that their output has room: it is there before their
    /// inputs can go. [`note_free_space`](Self::note_free_space) has looked before.
    pub(crate) fn leveled_options(&self) -> LeveledOptions {
        let mut options = self.shape.clone();
        // One must not take all that there is: others are there at the same time.
        options.max_compaction_bytes = options.max_compaction_bytes.min(self.room.for_compactions() / 2);
        options
    }

    /// Looks for [`leveled_options`](Self::leveled_options). Called without a lock.
    pub(crate) fn note_free_space(&self) {
        if self.room.reserve > 0 {
            self.room.free_space();
        }
    }

    /// The error for who would wait for compactions that have no room.
    pub(crate) fn no_room_for_compactions(&self) -> Error {
        let what = format!("{} bytes are free, too few for a compaction", self.room.free.load(Relaxed));
        Error::io("write to", &self.dir, io::Error::new(io::ErrorKind::StorageFull, what))
    }

    fn no_room(&self, free: u64, needed: u64) -> Error {
        let what = format!("{free} bytes are free, and this write needs {needed}; deletes are taken");
        Error::io("write to", &self.dir, io::Error::new(io::ErrorKind::StorageFull, what))
    }
}

/// Whether the request adds nothing that stays.
fn only_deletes(request: &Request) -> bool {
    BatchReader::new(&request.payload).all(|op| op.is_ok_and(|op| op.kind == ValueKind::Delete))
}
