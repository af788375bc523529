//! Counters, and [`Stats`], the summary that users see.

use crate::core::Core;
use crate::memory::MemoryUsage;
use crate::state::{OldPicture, State};
use esker_base::SequenceNumber;
use esker_base::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters of the write side. Reads are not counted: a shared counter would cost them more than the rest of a hit.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    batches: AtomicU64,
    operations: AtomicU64,
    syncs: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) compactions: AtomicU64,
    pub(crate) moves: AtomicU64,
    pub(crate) compacted_in: AtomicU64,
    pub(crate) compacted_out: AtomicU64,
    stalls: Mutex<BTreeMap<&'static str, StallStats>>,
}

/// How often and how long writers were held up for one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallStats {
    /// How often.
    pub count: u64,
    /// How long in all.
    pub total: Duration,
}

impl Metrics {
    pub(crate) fn committed(&self, operations: u64) {
        // The log is locked, so a load and a store do.
        self.batches.store(self.batches.load(Relaxed) + 1, Relaxed);
        self.operations.store(self.operations.load(Relaxed) + operations, Relaxed);
    }

    pub(crate) fn log_synced(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub(crate) fn stalled(&self, took: Duration, cause: &'static str) {
        let mut stalls = self.stalls.lock();
        let stats = stalls.entry(cause).or_default();
        stats.count += 1;
        stats.total = stats.total.saturating_add(took);
    }
}

/// What a database holds and has done since it was opened. `Display` prints a table.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// The levels, level 0 first.
    pub levels: Vec<LevelStats>,
    /// Bytes of the memtables, active and sealed.
    pub memtable_bytes: u64,
    /// Entries of the memtables.
    pub memtable_entries: u64,
    /// Sealed memtables that wait for their flush.
    pub immutable_memtables: u64,
    /// Bytes of the log segment that is written to.
    pub wal_bytes: u64,
    /// The newest sequence number.
    pub last_sequence: SequenceNumber,
    /// Snapshots that are held.
    pub snapshots: u64,
    /// The oldest of them.
    pub oldest_snapshot: Option<SequenceNumber>,
    /// Batches that were written (a single put or delete is one).
    pub batches: u64,
    /// Operations in them.
    pub operations: u64,
    /// Syncs of the log. Writers that wait at the same time share one.
    pub log_syncs: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes of tables that flushes wrote.
    pub flushed_bytes: u64,
    /// Compactions that rewrote tables.
    pub compactions: u64,
    /// Compactions that only moved tables.
    pub trivial_moves: u64,
    /// Bytes that compactions read.
    pub compaction_bytes_read: u64,
    /// Estimate of the bytes that compactions must rewrite before all levels have their size.
    pub pending_compaction_bytes: u64,
    /// Bytes that compactions wrote.
    pub compaction_bytes_written: u64,
    /// Bytes of cached blocks.
    pub cache_bytes: u64,
    /// Blocks that were found in the cache.
    pub cache_hits: u64,
    /// Blocks that were not.
    pub cache_misses: u64,
    /// Cached blocks that were found damaged in memory and read again (with [`verify_reads`](crate::Options::verify_reads)).
    pub self_heals: u64,
    /// Files that wait until nobody reads them any more.
    pub obsolete_files: u64,
    /// Cursors that are open; an iterator that is moved from both ends has two. A [`Db::multi_get`](crate::Db::multi_get)
    /// counts as one while it runs.
    pub cursors: u64,
    /// How long the oldest snapshot has been held, or, if that is longer, since when the oldest cursor shows what is no
    /// longer the present. One that grows and grows was forgotten somewhere.
    pub oldest_pin_age: Option<Duration>,
    /// Bytes of tables that nothing needs but cursors. What snapshots keep is inside live tables, and not counted.
    pub pinned_table_bytes: u64,
    /// Bytes of flushed memtables that nothing needs but cursors.
    pub pinned_memtable_bytes: u64,
    /// Table files that are open. Shared with other databases if [`Components::open_files`](crate::Components) is.
    pub open_files: u64,
    /// Bytes that must stay free on the device: [`min_free_space`](crate::Options::min_free_space) and the ballast. 0
    /// where the free space is not known.
    pub space_reserve: u64,
    /// Writes that were refused for lack of it.
    pub refused_for_space: u64,
    /// Where the memory goes.
    pub memory: MemoryUsage,
    /// How often writers were held up, by cause.
    pub stalls: BTreeMap<&'static str, StallStats>,
}

/// One level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelStats {
    /// Number of tables.
    pub tables: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Tombstones among these.
    pub tombstones: u64,
}

impl Core {
    pub(crate) fn stats(&self) -> Stats {
        let (wal_bytes, log_buffers) = {
            let log = self.log.lock();
            (log.writer.len_of_all(), log.writer.buffer_capacity())
        };
        let snapshots = self.snapshots.summary();
        let state = self.state.lock();
        let now = self.components.clock.now();
        let oldest_picture = state.pictures.iter().find(|picture| picture.held() > 0).map(|old| old.replaced);
        let oldest_pin = snapshots.oldest.map(|(_, since)| since).into_iter().chain(oldest_picture).min();
        let metrics = &self.metrics;
        let cache = self.tables.memory.cache().stats();
        let mut levels = vec![LevelStats::default(); esker_manifest::NUM_LEVELS];
        for keyspace in &state.keyspaces {
            for (level, table) in keyspace.tables.version.tables() {
                let stats = &mut levels[level];
                stats.tables += 1;
                stats.bytes += table.file_size;
                // As the manifest says, which may say anything.
                stats.entries = stats.entries.saturating_add(table.entries);
                stats.tombstones = stats.tombstones.saturating_add(table.deletes);
            }
        }
        let generations = || std::iter::once(&state.active).chain(&state.immutables);
        Stats {
            levels,
            memtable_bytes: state.memtable_bytes() as u64,
            memtable_entries: generations().flat_map(|g| &g.memtables).map(|m| m.len() as u64).sum(),
            immutable_memtables: state.immutables.len() as u64,
            wal_bytes,
            last_sequence: self.visible.load(),
            snapshots: snapshots.count,
            oldest_snapshot: snapshots.oldest.map(|(seq, _)| seq),
            batches: metrics.batches.load(Relaxed),
            operations: metrics.operations.load(Relaxed),
            log_syncs: metrics.syncs.load(Relaxed),
            flushes: metrics.flushes.load(Relaxed),
            flushed_bytes: metrics.flushed_bytes.load(Relaxed),
            compactions: metrics.compactions.load(Relaxed),
            trivial_moves: metrics.moves.load(Relaxed),
            compaction_bytes_read: metrics.compacted_in.load(Relaxed),
            pending_compaction_bytes: self.super_version.load().pending_bytes,
            compaction_bytes_written: metrics.compacted_out.load(Relaxed),
            cache_bytes: cache.bytes,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            self_heals: cache.heals,
            obsolete_files: (state.obsolete_tables.len() + state.obsolete_files.len()) as u64,
            cursors: self.cursors(&state),
            oldest_pin_age: oldest_pin.map(|since| now.saturating_sub(since)),
            pinned_table_bytes: pinned(&state.obsolete_tables).map(|table| table.meta.file_size).sum(),
            pinned_memtable_bytes: pinned(&state.retired).map(|sealed| sealed.memory_usage() as u64).sum(),
            open_files: self.open_files.count() as u64,
            space_reserve: self.room.reserve(),
            refused_for_space: self.room.refused(),
            memory: self.memory_usage(&state, log_buffers),
            stalls: metrics.stalls.lock().clone(),
        }
    }
}

impl Core {
    /// Cursors, by the pictures that they hold.
    pub(crate) fn cursors(&self, state: &State) -> u64 {
        let old: usize = state.pictures.iter().map(OldPicture::held).sum();
        // One reference is the engine's own, one is ours.
        let present = Arc::strong_count(&self.super_version.load_full()).saturating_sub(2);
        (old + present) as u64
    }
}

/// Those that somebody else holds beside this list.
fn pinned<T>(list: &[Arc<T>]) -> impl Iterator<Item = &Arc<T>> {
    list.iter().filter(|item| Arc::strong_count(item) > 1)
}

impl Stats {
    /// Tables in all levels.
    pub fn tables(&self) -> u64 {
        self.levels.iter().map(|level| level.tables).sum()
    }

    /// Bytes of all tables.
    pub fn table_bytes(&self) -> u64 {
        self.levels.iter().map(|level| level.bytes).sum()
    }

    /// Bytes that flushes and compactions have written for each byte flushed; 0 before the first flush.
    pub fn write_amplification(&self) -> f64 {
        if self.flushed_bytes == 0 {
            return 0.0;
        }
        (self.flushed_bytes + self.compaction_bytes_written) as f64 / self.flushed_bytes as f64
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "level  tables         bytes      entries   tombstones")?;
        for (number, level) in self.levels.iter().enumerate().filter(|(_, level)| level.tables > 0) {
            let LevelStats { tables, bytes, entries, tombstones } = level;
            writeln!(f, "L{number:<5} {tables:>6} {bytes:>13} {entries:>12} {tombstones:>12}")?;
        }
        writeln!(
            f,
            "memtables  {} bytes, {} entries, {} sealed; log {} bytes; sequence {}",
            self.memtable_bytes,
            self.memtable_entries,
            self.immutable_memtables,
            self.wal_bytes,
            self.last_sequence
        )?;
        writeln!(
            f,
            "written    {} operations in {} batches, {} syncs of the log",
            self.operations, self.batches, self.log_syncs
        )?;
        writeln!(f, "flushes    {} ({} bytes)", self.flushes, self.flushed_bytes)?;
        writeln!(
            f,
            "compaction {} rewrites ({} bytes in, {} out), {} moves; write amplification {:.2}",
            self.compactions,
            self.compaction_bytes_read,
            self.compaction_bytes_written,
            self.trivial_moves,
            self.write_amplification()
        )?;
        writeln!(
            f,
            "cache      {} bytes, {} hits, {} misses",
            self.cache_bytes, self.cache_hits, self.cache_misses
        )?;
        writeln!(f, "memory     {}", self.memory)?;
        write!(f, "snapshots  {}; obsolete files {}", self.snapshots, self.obsolete_files)?;
        write!(f, "; open files {}; cursors {}", self.open_files, self.cursors)?;
        if let Some(age) = self.oldest_pin_age {
            let (tables, memtables) = (self.pinned_table_bytes, self.pinned_memtable_bytes);
            write!(f, "\npinned     for {age:?}: {tables} bytes of tables, {memtables} of memtables")?;
        }
        if self.refused_for_space > 0 {
            let (refused, reserve) = (self.refused_for_space, self.space_reserve);
            write!(f, "\nno space   {refused} writes refused to keep {reserve} bytes free")?;
        }
        for (cause, StallStats { count, total }) in &self.stalls {
            write!(f, "\nstalled    {count} times, {total:?} in all: {cause}")?;
        }
        Ok(())
    }
}
