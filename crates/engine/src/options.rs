//! [`Options`]: the settings of a database, plain data.

use crate::{Components, Db, Durability, Error, Result};
use esker_compaction::LeveledOptions;
use esker_sstable::TableOptions;
use esker_wal::LogWriter;
use std::path::Path;

pub use esker_sstable::Compression;

/// Who does the background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Background {
    /// This many threads (1 to 64).
    Threads(usize),
    /// The thread that writes, before its call returns. With a [`seed`](Options::seed) the same operations then
    /// give the same files, byte for byte.
    Inline,
}

/// How records get into the log's file. What survives which crash is the same ([`Durability`]), and so are the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LogSink {
    /// What this version takes for the best: at present, `Mapped`.
    #[default]
    Auto,
    /// A call of the system (`write`) for each write of [`Durability::Buffered`].
    Plain,
    /// Writes are stored in memory that is mapped to the file, as long as few of them are synced: a third of the cost of a
    /// write with a call. What is mapped at a time is at most 256 KiB.
    ///
    /// Where that is safe: on Linux from 5.14 on, on ext2, ext3, ext4, XFS and tmpfs; `Plain` elsewhere. A device or file
    /// system that fails while it is written to is an error of the next sync with both; but with this one the system may also
    /// end the process, with `SIGBUS`, at a write in between. So it does when somebody else cuts a file of the log, or marks it
    /// immutable.
    Mapped,
}

/// What an open does with a log whose end can't be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryMode {
    /// An unsynced end that a crash tore off is dropped; any other damage fails the open. The default.
    #[default]
    Strict,
    /// Recovery stops at the first damage, keeps the log's rest as `*.lost` files, and opens. Writes that were
    /// acknowledged as `Sync` may be missing: for getting at what is left.
    PointInTime,
}

/// The settings of a database. Every setter documents unit, limits and default; [`open`](Options::open) checks them.
///
/// ```
/// use esker::{Durability, Options};
///
/// let dir = tempfile::tempdir()?;
/// let db = Options::new()
///     .create_if_missing(true)
///     .memtable_size(8 << 20)
///     .cache_size(64 << 20)
///     .durability(Durability::Sync)
///     .open(dir.path())?;
/// # drop(db);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub(crate) create_if_missing: bool,
    pub(crate) error_if_exists: bool,
    pub(crate) memtable_size: usize,
    /// `None`: [`DEFAULT_CACHE_SIZE`], or whatever the limit on memory leaves.
    pub(crate) cache_size: Option<usize>,
    pub(crate) memory_limit: Option<usize>,
    pub(crate) block_size: usize,
    pub(crate) restart_interval: usize,
    pub(crate) table_size: u64,
    pub(crate) l0_trigger: usize,
    pub(crate) base_level_size: u64,
    pub(crate) level_ratio: u64,
    pub(crate) wal_segment_size: u64,
    pub(crate) bloom_bits: u32,
    pub(crate) compression: Compression,
    pub(crate) durability: Durability,
    pub(crate) background: Background,
    pub(crate) background_rate_limit: u64,
    pub(crate) seed: Option<u64>,
    pub(crate) recovery: RecoveryMode,
    pub(crate) verify_reads: bool,
    pub(crate) max_open_files: usize,
    pub(crate) min_free_space: u64,
    pub(crate) log_sink: LogSink,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            memtable_size: 64 << 20,
            cache_size: None,
            memory_limit: None,
            block_size: 4 << 10,
            restart_interval: 16,
            table_size: 16 << 20,
            l0_trigger: 4,
            base_level_size: 64 << 20,
            level_ratio: 8,
            wal_segment_size: 64 << 20,
            bloom_bits: 10,
            compression: Compression::Snappy,
            durability: Durability::Buffered,
            background: Background::Threads(2),
            background_rate_limit: 0,
            seed: None,
            recovery: RecoveryMode::Strict,
            verify_reads: false,
            max_open_files: 512,
            min_free_space: 0,
            log_sink: LogSink::Auto,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, value: $type) -> Self {
            self.$name = value;
            self
        })*
    };
}

impl Options {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Create the database when the directory holds none. Default: true.
        create_if_missing: bool,
        /// Fail when the directory already holds a database. Default: false.
        error_if_exists: bool,
        /// Bytes of recent writes, with their overhead, that are kept in memory before they are flushed to a table.
        /// 16 KiB to 4 GiB; default 64 MiB. Larger means fewer, larger flushes and a longer recovery. Up to five
        /// such tables can be in memory when flushing lags. Where the device has less than 32 times that for the
        /// database, a 32nd of what it has.
        memtable_size: usize,
        /// Target size of a data block in bytes, before compression. 256 to 1 MiB; default 4 KiB. Larger means a
        /// better ratio and a slower cold get.
        block_size: usize,
        /// Entries from one restart point of a block to the next. 1 to 255; default 16. Smaller means faster gets
        /// and larger files.
        restart_interval: usize,
        /// Target size of a table file in bytes. 4 KiB to 1 GiB; default 16 MiB.
        table_size: u64,
        /// Number of tables in level 0 at which they are compacted. 1 to 64; default 4. Writes are slowed from twice as
        /// many on, and wait at eight times.
        l0_trigger: usize,
        /// Target size of the first level below level 0, in bytes. 4 KiB or more; default 64 MiB.
        base_level_size: u64,
        /// How many times larger each further level is. 2 to 100; default 8, at which overwrites at random cost least.
        level_ratio: u64,
        /// Bytes after which a new log segment is started, with a new memtable. 16 KiB or more; default 64 MiB; on a
        /// small device smaller, as [`memtable_size`](Self::memtable_size).
        wal_segment_size: u64,
        /// Bits of Bloom filter for each key. 0 (no filter) to 64; default 10, which is 1 false positive in 100.
        bloom_bits: u32,
        /// Compression of data blocks. Default: [`Compression::Snappy`].
        compression: Compression,
        /// Durability of writes that do not say it themselves. Default: [`Durability::Buffered`].
        durability: Durability,
        /// Who does flushes and compactions. Default: two threads.
        background: Background,
        /// Bytes a second that compactions read and write together, at most; 0 is no limit, and the default. Flushes are
        /// not limited. Too low a limit lets level 0 grow until it slows the writers. Without effect with
        /// [`Background::Inline`].
        background_rate_limit: u64,
        /// What an open does with a log whose end can't be read. Default: [`RecoveryMode::Strict`].
        recovery: RecoveryMode,
        /// Check the checksum of a block on every read, not only when it comes from the disk. Finds damage in
        /// memory; costs about 0.2 us a get. Default: false.
        verify_reads: bool,
        /// Table files that are kept open for reading. 1 or more, `usize::MAX` for no limit; default 512, half of what
        /// most systems let a process have. Beyond it the files that were not read for longest are closed, and opened
        /// again when a block of theirs is needed that is not cached: a few microseconds. Their filters and indexes stay
        /// in memory. Besides, a database has 3 to 6 files open, and one for each table that is being written.
        max_open_files: usize,
        /// Bytes that must stay free on the device of the directory, beside a ballast of one log segment's and four tables'
        /// worth (at most a sixteenth of what was free at the open, the database's own files counted in). When there is
        /// less, writes that add something are refused with [`NoSpace`](crate::ErrorKind::NoSpace) and [`Db::state`] says
        /// [`LowSpace`](crate::DbState::LowSpace); reads, deletes, flushes and compactions go on, and writes too as soon
        /// as there is room. Default: 0, so the ballast only. A compaction needs its inputs' size until it ends, and is cut
        /// to what is free: with some hundred megabytes it need not be.
        min_free_space: u64,
        /// How records get into the log's file. Default: [`LogSink::Auto`].
        log_sink: LogSink,
    }

    /// Bytes of table blocks that are kept in memory, uncompressed. 0 or more. Default: 128 MiB, or, with a
    /// [`memory_limit`](Self::memory_limit), what that leaves.
    #[must_use]
    pub fn cache_size(mut self, bytes: usize) -> Self {
        self.cache_size = Some(bytes);
        self
    }

    /// One bound in bytes for all that the database keeps in memory: memtables, cached blocks, filters and indexes of
    /// open tables, buffers of the log, of cursors and of background work. At least 256 KiB; to be kept to the buffers
    /// need 2 MiB. Default: none.
    ///
    /// A memtable gets an eighth, and a table file an eighth at most ([`memtable_size`](Self::memtable_size) and
    /// [`table_size`](Self::table_size) become upper limits). The block cache gets what the others leave: nearly all of it
    /// in a database that is only read, and never less than a sixteenth. [`Stats::memory`](crate::Stats::memory) shows
    /// where it goes.
    ///
    /// Beyond the limit go: filters and indexes, when they alone are larger (1.3 bytes a key); flushed memtables that
    /// cursors hold; a batch or a value that is large against it; a [cache](Components::cache) shared with other
    /// databases, which keeps its own capacity; and what the allocator adds to all that.
    #[must_use]
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// The source of all randomness (store id, hash seed) instead of the operating system's entropy. With
    /// [`Background::Inline`] the same seed and operations then give the same files. Default: none.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the database in the directory at `path`.
    ///
    /// # Errors
    ///
    /// As [`Db::open_with`].
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let components = Components::for_options(&self);
        Db::open_with(path, self, components)
    }

    /// Opens a new database on a memory file system of its own.
    ///
    /// # Errors
    ///
    /// When an option is beyond its limits.
    pub fn in_memory(self) -> Result<Db> {
        let components = Components {
            vfs: std::sync::Arc::new(esker_vfs::MemVfs::new()),
            ..Components::for_options(&self)
        };
        // There is no call of the system to save.
        let log_sink = if self.log_sink == LogSink::Auto { LogSink::Plain } else { self.log_sink };
        Db::open_with("/db", self.log_sink(log_sink), components)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let ranges = [
            ("memtable_size", self.memtable_size as u64, 16 << 10, 4 << 30),
            ("block_size", self.block_size as u64, 256, 1 << 20),
            ("restart_interval", self.restart_interval as u64, 1, 255),
            ("table_size", self.table_size, 4 << 10, 1 << 30),
            ("l0_trigger", self.l0_trigger as u64, 1, 64),
            ("base_level_size", self.base_level_size, 4 << 10, 1 << 50),
            ("level_ratio", self.level_ratio, 2, 100),
            ("wal_segment_size", self.wal_segment_size, 16 << 10, 1 << 40),
            ("bloom_bits", u64::from(self.bloom_bits), 0, 64),
            ("max_open_files", self.max_open_files as u64, 1, u64::MAX),
            ("memory_limit", self.memory_limit.unwrap_or(256 << 10) as u64, 256 << 10, 1 << 50),
        ];
        for (name, value, least, most) in ranges {
            if value < least || value > most {
                return Err(Error::invalid_argument(format!(
                    "{name} is {value}, and must be {least} to {most}"
                )));
            }
        }
        if let Background::Threads(threads) = self.background
            && !(1..=64).contains(&threads)
        {
            return Err(Error::invalid_argument(format!(
                "{threads} background threads, and there must be 1 to 64"
            )));
        }
        Ok(())
    }

    /// The memtable size after [`memory_limit`](Self::memory_limit).
    pub(crate) fn effective_memtable_size(&self) -> usize {
        self.memory_limit
            .map_or(self.memtable_size, |limit| self.memtable_size.min((limit / 8).max(16 << 10)))
    }

    /// The table size after [`memory_limit`](Self::memory_limit): who writes a table keeps 8 to 16 bytes a key.
    pub(crate) fn effective_table_size(&self) -> u64 {
        self.memory_limit
            .map_or(self.table_size, |limit| self.table_size.min((limit as u64 / 8).max(64 << 10)))
    }

    /// The capacity that the cache has when nothing else needs memory.
    pub(crate) fn largest_cache_size(&self) -> usize {
        match (self.cache_size, self.memory_limit) {
            (size, Some(limit)) => size.unwrap_or(limit).min(limit),
            (size, None) => size.unwrap_or(DEFAULT_CACHE_SIZE),
        }
    }

    /// A buffer of the log that is larger is given back after its use.
    pub(crate) fn log_buffer_kept(&self) -> usize {
        self.memory_limit.map_or(LOG_BUFFER_KEPT, |limit| LOG_BUFFER_KEPT.min(limit / 32))
    }

    /// Lets the log's file be allocated ahead of its records, by at most `spare` bytes.
    pub(crate) fn allow_log_extents(&self, writer: &mut LogWriter, spare: u64) {
        let limit = writer.len_of_all().saturating_add(spare).min(self.wal_segment_size);
        writer.allow_extents(if spare == 0 { 0 } else { limit }, self.log_sink != LogSink::Plain);
    }

    pub(crate) fn table_options(&self) -> TableOptions {
        TableOptions {
            block_size: self.block_size,
            restart_interval: self.restart_interval,
            bloom_bits: self.bloom_bits,
            compression: self.compression,
            ..TableOptions::default()
        }
    }

    pub(crate) fn leveled_options(&self) -> LeveledOptions {
        LeveledOptions {
            l0_trigger: self.l0_trigger,
            base_level_size: self.base_level_size,
            level_ratio: self.level_ratio,
            table_size: self.effective_table_size(),
            ..LeveledOptions::default()
        }
    }
}

/// The block cache, if nothing is said about it.
const DEFAULT_CACHE_SIZE: usize = 128 << 20;

/// A buffer of the log that is larger is given back after its use.
const LOG_BUFFER_KEPT: usize = 1 << 20;

/// Memtables that may wait for their flush before writers wait for them.
pub(crate) const MAX_IMMUTABLES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_checked() {
        Options::new().check().unwrap();
        let tiny = Options::new()
            .memtable_size(16 << 10)
            .block_size(256)
            .table_size(4 << 10)
            .l0_trigger(2)
            .level_ratio(4)
            .base_level_size(4 << 10);
        tiny.check().unwrap();
        for bad in [
            Options::new().memtable_size(1),
            Options::new().block_size(255),
            Options::new().restart_interval(0),
            Options::new().level_ratio(1),
            Options::new().background(Background::Threads(0)),
            Options::new().memory_limit(1),
            Options::new().bloom_bits(65),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn one_memory_limit_bounds_the_parts() {
        let options = Options::new().memory_limit(8 << 20);
        assert_eq!(options.largest_cache_size(), 8 << 20);
        assert_eq!(options.effective_memtable_size(), 1 << 20);
        assert_eq!(options.effective_table_size(), 1 << 20);
        let options = options.cache_size(1 << 20).memtable_size(64 << 10).table_size(4 << 10);
        assert_eq!(options.largest_cache_size(), 1 << 20);
        assert_eq!((options.effective_memtable_size(), options.effective_table_size()), (64 << 10, 4 << 10));
        let large = Options::new().memory_limit(1 << 40);
        assert_eq!(large.largest_cache_size(), 1 << 40, "not the default without a limit");
        assert_eq!(large.effective_memtable_size(), 64 << 20);
        assert_eq!(Options::new().largest_cache_size(), 128 << 20);
    }
}
