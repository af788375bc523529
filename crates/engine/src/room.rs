//! [`Room`]: writes are refused before the disk is full, so that flushes and compactions can go on and free space.
//!
//! What must stay free is [`min_free_space`](crate::Options::min_free_space) and a *ballast*: one log segment's and one
//! table's worth, with which the oldest memtable can always be flushed, and its log segment be removed. On a small device
//! memtables, log segments and tables are smaller ([`fitted`]), and the ballast is a sixteenth of what was there at the open.
//!
//! The leader of a commit looks at the free space now and then, as the log grows, and never for each write. Once there is
//! too little, every write that adds something looks itself and is refused, until there is enough again; nothing is
//! latched. Deletes, flushes and compactions are what frees space, so they go on.

use crate::commit::Request;
use crate::core::Core;
use crate::event::Event;
use crate::write::LogEnd;
use crate::{Error, Options, Result};
use esker_base::{BatchReader, ValueKind};
use esker_compaction::LeveledOptions;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The part of a small device that the ballast may take.
const BALLAST_SHARE: u64 = 16;

/// What memtables, log segments and tables may have on the smallest of devices.
const SMALLEST: u64 = 64 << 10;

/// Bytes of log from one look at the free space to the next, at most.
const LOOK_EVERY_MAX: u64 = 4 << 20;

/// The options for a device that has so much for the database: memtables, log segments and tables are so small that one
/// of them is a small part of it, since each must be written anew before an old one can go.
pub(crate) fn fitted(options: &Options, available: Option<u64>) -> Options {
    let most = (available.unwrap_or(u64::MAX) / BALLAST_SHARE / 2).max(SMALLEST);
    let mut fitted = options.clone();
    fitted.memtable_size = fitted.memtable_size.min(usize::try_from(most).unwrap_or(usize::MAX));
    fitted.wal_segment_size = fitted.wal_segment_size.min(most);
    fitted.table_size = fitted.table_size.min(most);
    fitted
}

/// What must stay free, and whether it does.
#[derive(Debug)]
pub(crate) struct Room {
    /// Bytes that must stay free; 0 when nobody knows how many are.
    reserve: u64,
    low: AtomicBool,
    /// What was free at the last look.
    free: AtomicU64,
    /// Whether the listener was told of it.
    told: AtomicBool,
    refused: AtomicU64,
}

impl Room {
    /// `available` is what the device has free and what the database has on it, at the open, where that is known.
    pub(crate) fn new(options: &Options, available: Option<u64>) -> Self {
        let reserve = available.map_or(0, |available| {
            let segment = options.wal_segment_size.min(options.effective_memtable_size() as u64);
            let ballast = (segment + options.table_size).min(available / BALLAST_SHARE);
            options.min_free_space.saturating_add(ballast)
        });
        // The first write looks.
        Room {
            reserve,
            low: AtomicBool::new(reserve > 0),
            free: AtomicU64::new(u64::MAX),
            told: AtomicBool::default(),
            refused: AtomicU64::default(),
        }
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Whether there was too little at the last look.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Relaxed)
    }

    fn look_every(&self) -> u64 {
        (self.reserve / 4).min(LOOK_EVERY_MAX)
    }
}

impl Core {
    /// Refuses a write that adds something while there is too little space. Called without a lock.
    #[inline]
    pub(crate) fn check_room(&self, request: &Request) -> Result<()> {
        if self.room.is_low() { self.check_low_room(request) } else { Ok(()) }
    }

    #[cold]
    fn check_low_room(&self, request: &Request) -> Result<()> {
        if only_deletes(request) {
            return Ok(());
        }
        self.look_again(request.payload.len() as u64).inspect_err(|_| {
            self.room.refused.fetch_add(1, Relaxed);
        })
    }

    /// Looks whether there is room for `bytes` again; the error says what is missing. Called without a lock.
    pub(crate) fn look_again(&self, bytes: u64) -> Result<()> {
        if !self.room.is_low() {
            return Ok(());
        }
        let (free, needed) = (self.free_space(), self.room.reserve.saturating_add(bytes));
        if free >= needed {
            self.room.low.store(false, Relaxed);
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
        let (free, needed) = (self.free_space(), self.room.reserve.saturating_add(bytes));
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

    /// Bytes that can still be written. A file system that cannot tell has enough: the write will show it.
    fn free_space(&self) -> u64 {
        let free = self.components.vfs.free_space(&self.dir).ok().flatten().unwrap_or(u64::MAX);
        self.room.free.store(free, Relaxed);
        free
    }

    /// How the tree is to be shaped. While space is low, compactions are kept so small that their output has room: it is
    /// there before their inputs can go. [`note_free_space`](Self::note_free_space) has looked before.
    pub(crate) fn leveled_options(&self) -> LeveledOptions {
        let mut options = self.shape.clone();
        if self.room.is_low() {
            options.max_compaction_bytes = options.max_compaction_bytes.min(self.room.free.load(Relaxed) / 2);
        }
        options
    }

    /// Looks for [`leveled_options`](Self::leveled_options). Called without a lock.
    pub(crate) fn note_free_space(&self) {
        if self.room.is_low() {
            self.free_space();
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fit_the_device() {
        let sizes = |available| {
            let fitted = fitted(&Options::new(), available);
            (fitted.memtable_size as u64, fitted.wal_segment_size, fitted.table_size)
        };
        let (default, asked) = (Options::new(), sizes(None));
        assert_eq!(asked, (default.memtable_size as u64, default.wal_segment_size, default.table_size));
        assert_eq!(sizes(Some(1 << 40)), asked);
        assert_eq!(sizes(Some(128 << 20)), (4 << 20, 4 << 20, 4 << 20));
        assert_eq!(sizes(Some(1)), (SMALLEST, SMALLEST, SMALLEST));
    }

    #[test]
    fn the_reserve_fits_the_device() {
        let options = Options::new();
        let reserve = |options: &Options, available| Room::new(options, available).reserve();
        assert_eq!(reserve(&options, Some(1 << 40)), 80 << 20, "a segment and a table");
        assert_eq!(reserve(&options, Some(16 << 20)), 1 << 20, "a sixteenth of a small device");
        assert_eq!(reserve(&options, None), 0);
        let asked = options.min_free_space(1 << 30);
        assert_eq!(
            reserve(&asked, Some(16 << 20)),
            (1 << 30) + (1 << 20),
            "what was asked for counts as it is"
        );
    }
}
