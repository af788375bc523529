//! [`Room`]: writes are refused before the disk is full, so that flushes and compactions can go on and free space.
//!
//! What must stay free is [`min_free_space`](crate::Options::min_free_space) and a *ballast*: one log segment's and four
//! tables' worth, with which the oldest memtable can always be flushed, its log segment be removed, and a small compaction be
//! done. On a small device
//! memtables, log segments and tables are smaller ([`fitted`]), and the ballast is a sixteenth of what was there at the open.
//!
//! The leader of a commit looks at the free space now and then, as the log grows, and never for each write. Once there is
//! too little, every write that adds something looks itself and is refused, until there is enough again; nothing is
//! latched. Deletes, flushes and compactions are what frees space, so they go on, each down to a floor of its own:
//!
//! | who | leaves free |
//! |---|---|
//! | writes that add something | the reserve: `min_free_space` and the ballast |
//! | compactions, all together | an eighth of the ballast: for flushes |
//! | deletes | as much as the memtables, which are flushed early, and what compactions need as long as some can be done |
//! | flushes | what the manifest needs next |
//! | edits of the manifest | nothing; their room is taken from the device before anything is written |
//!
//! Jobs keep to it in two ways. What all running ones are going to write is counted ([`Claim`]), and compactions are
//! planned, cut or put off so that it fits. And each write of a table asks ([`Room::guard`]), so that a job that was
//! planned too large, or whose room somebody else has taken, ends without harm.

mod guarded_file;
mod writes;

use self::guarded_file::GuardedFile;
use crate::Options;
use esker_base::sync::Mutex;
use esker_vfs::{Vfs, WritableFile};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The part of a small device that the ballast may take.
const BALLAST_SHARE: u64 = 16;

/// How many tables the ballast holds beside a log segment: a compaction replaces a few at least.
const BALLAST_TABLES: u64 = 4;

/// What memtables, log segments and tables may have on the smallest of devices.
const SMALLEST: u64 = 64 << 10;

/// Bytes of log from one look at the free space to the next, at most.
const LOOK_EVERY_MAX: u64 = 4 << 20;

/// Bytes of tables from one look at the free space to the next, at most.
const JOBS_LOOK_EVERY: u64 = 64 << 10;

/// Bytes of room that the manifest has ahead of its end, at most; and the part of the ballast that this may be.
const MANIFEST_AHEAD: u64 = 16 << 10;
const MANIFEST_SHARE: u64 = 16;

/// The part of the ballast that is for flushes while space is low: with so much in the log, the memtables are flushed.
const FLUSH_SHARE: u64 = 8;

/// With so many of these parts free, deletes need not wait for compactions.
const COMFORT: u64 = 5;

/// The options for a device that has so much for the database: memtables, log segments and tables are so small that one
/// of them is a small part of it, since each must be written anew before an old one can go.
pub(crate) fn fitted(options: &Options, available: Option<u64>) -> Options {
    let most = (available.unwrap_or(u64::MAX) / BALLAST_SHARE / (1 + BALLAST_TABLES)).max(SMALLEST);
    let mut fitted = options.clone();
    fitted.memtable_size = fitted.memtable_size.min(usize::try_from(most).unwrap_or(usize::MAX));
    fitted.wal_segment_size = fitted.wal_segment_size.min(most);
    fitted.table_size = fitted.table_size.min(most);
    fitted
}

/// Who takes room on the device, and so how much must be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    Flush,
    Compaction,
}

/// What must stay free, and whether it does.
#[derive(Debug)]
pub(crate) struct Room {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    /// Bytes that must stay free; 0 when nobody knows how many are.
    reserve: u64,
    ballast: u64,
    /// Bytes that the manifest is to have ahead of its end.
    manifest_ahead: u64,
    low: AtomicBool,
    /// What was free at the last look.
    free: AtomicU64,
    /// What running jobs are going to write.
    claimed: Arc<AtomicU64>,
    /// What the jobs know of the device. A leaf.
    guarded: Mutex<Guarded>,
    /// Whether the listener was told of it.
    told: AtomicBool,
    /// Whether what is in memory was sealed because of it.
    sealed: AtomicBool,
    refused: AtomicU64,
}

/// What is free, as far as the jobs know.
#[derive(Debug, Default)]
struct Guarded {
    free: u64,
    /// Bytes that may be written before somebody looks again.
    unlooked: u64,
}

/// Room on the device that a running job is going to take.
#[derive(Debug)]
pub(crate) struct Claim {
    claimed: Arc<AtomicU64>,
    bytes: u64,
    written: u64,
}

impl Claim {
    /// The job has written so many bytes in all.
    pub(crate) fn written(&mut self, bytes: u64) {
        let now = bytes.clamp(self.written, self.bytes);
        self.claimed.fetch_sub(now - self.written, Relaxed);
        self.written = now;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.claimed.fetch_sub(self.bytes - self.written, Relaxed);
    }
}

impl Room {
    /// `available` is what the device has free and what the database has on it, at the open, where that is known.
    pub(crate) fn new(options: &Options, available: Option<u64>, vfs: &Arc<dyn Vfs>, dir: &Path) -> Self {
        let ballast = available.map_or(0, |available| {
            let segment = options.wal_segment_size.min(options.effective_memtable_size() as u64);
            segment
                .saturating_add(options.table_size.saturating_mul(BALLAST_TABLES))
                .min(available / BALLAST_SHARE)
        });
        let reserve = if available.is_some() { options.min_free_space.saturating_add(ballast) } else { 0 };
        // The first write looks.
        Room {
            vfs: Arc::clone(vfs),
            dir: dir.to_path_buf(),
            reserve,
            ballast,
            manifest_ahead: (ballast / MANIFEST_SHARE).min(MANIFEST_AHEAD),
            low: AtomicBool::new(reserve > 0),
            free: AtomicU64::new(u64::MAX),
            claimed: Arc::default(),
            guarded: Mutex::default(),
            told: AtomicBool::default(),
            sealed: AtomicBool::default(),
            refused: AtomicU64::default(),
        }
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Bytes that the manifest is to have ahead of its end.
    pub(crate) fn manifest_ahead(&self) -> u64 {
        self.manifest_ahead
    }

    /// Whether there was too little at the last look.
    #[inline]
    pub(crate) fn is_low(&self) -> bool {
        self.low.load(Relaxed)
    }

    fn look_every(&self) -> u64 {
        (self.reserve / 4).min(LOOK_EVERY_MAX)
    }

    /// Bytes that can still be written. A file system that cannot tell has enough: the write will show it.
    fn free_space(&self) -> u64 {
        let free = self.vfs.free_space(&self.dir).ok().flatten().unwrap_or(u64::MAX);
        self.free.store(free, Relaxed);
        free
    }

    /// What is free without what running jobs are going to write; but of that no more than the ballast, for what they
    /// replace is free then.
    fn unclaimed(&self) -> u64 {
        self.free_space().saturating_sub(self.claimed.load(Relaxed).min(self.ballast))
    }

    fn floor(&self, floor: Floor) -> u64 {
        match floor {
            Floor::Flush => self.manifest_ahead,
            Floor::Compaction => self.manifest_ahead + self.ballast / FLUSH_SHARE,
        }
    }

    /// Counts what a job is going to write, until it is written or the job is dropped.
    pub(crate) fn claim(&self, bytes: u64) -> Claim {
        self.claimed.fetch_add(bytes, Relaxed);
        Claim { claimed: Arc::clone(&self.claimed), bytes, written: 0 }
    }

    /// What a new compaction may write: what was free at the last look, without what the others are going to write.
    pub(crate) fn for_compactions(&self) -> u64 {
        let left = self.free.load(Relaxed).saturating_sub(self.floor(Floor::Compaction));
        let left = left.saturating_sub(self.claimed.load(Relaxed));
        // Tables that are cut elsewhere are not of the same size to the byte.
        left - left / 16
    }

    /// The file, with appends that fail before they take what must stay free.
    pub(crate) fn guard(
        self: &Arc<Self>,
        file: Box<dyn WritableFile>,
        floor: Floor,
    ) -> Box<dyn WritableFile> {
        if self.reserve == 0 {
            return file;
        }
        Box::new(GuardedFile { file, room: Arc::clone(self), floor })
    }

    /// Takes room for a write of a job.
    fn take(&self, bytes: u64, floor: Floor) -> io::Result<()> {
        let floor = self.floor(floor);
        let mut guarded = self.guarded.lock();
        if guarded.unlooked < bytes || guarded.free < floor.saturating_add(bytes) {
            guarded.free = self.free_space();
            // Others write as well: the nearer to the floor, the sooner somebody looks again.
            guarded.unlooked =
                (guarded.free.saturating_sub(floor) / 4).clamp(bytes, JOBS_LOOK_EVERY.max(bytes));
            if guarded.free < floor.saturating_add(bytes) {
                let what = format!(
                    "{} bytes are free, and {floor} are kept for flushes and the manifest",
                    guarded.free
                );
                return Err(io::Error::new(io::ErrorKind::StorageFull, what));
            }
        }
        guarded.free -= bytes;
        guarded.unlooked -= bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_vfs::MemVfs;

    #[test]
    fn parts_fit_the_device() {
        let sizes = |available| {
            let fitted = fitted(&Options::new(), available);
            (fitted.memtable_size as u64, fitted.wal_segment_size, fitted.table_size)
        };
        let (default, asked) = (Options::new(), sizes(None));
        assert_eq!(asked, (default.memtable_size as u64, default.wal_segment_size, default.table_size));
        assert_eq!(sizes(Some(1 << 40)), asked);
        let fifth = (128 << 20) / 16 / 5;
        assert_eq!(sizes(Some(128 << 20)), (fifth, fifth, fifth));
        assert_eq!(sizes(Some(1)), (SMALLEST, SMALLEST, SMALLEST));
    }

    #[test]
    fn the_reserve_fits_the_device() {
        let options = Options::new();
        let vfs: Arc<dyn Vfs> = Arc::new(MemVfs::new());
        let room = |options: &Options, available| Room::new(options, available, &vfs, Path::new("/"));
        let reserve = |options: &Options, available| room(options, available).reserve();
        assert_eq!(reserve(&options, Some(1 << 40)), 128 << 20, "a segment and four tables");
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
