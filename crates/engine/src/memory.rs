//! [`Memory`]: one limit for all that a database keeps in memory, and where it goes.
//!
//! Memtables, the filters and indexes of open tables, and the buffers of readers and jobs take what they need; the block
//! cache gets the rest of [`memory_limit`](crate::Options::memory_limit), and never less than a floor. The division is
//! made anew when a memtable is sealed, before each step of background work, and when a table is opened: never for an
//! operation.

use crate::Options;
use crate::core::Core;
use crate::state::State;
use esker_base::sync::Mutex;
use esker_sstable::BlockCache;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The part of the limit that the block cache always has.
const FLOOR_SHARE: u64 = 16;

/// The part of the limit that nobody gets: for what is not counted, and what comes between two divisions.
const SPARE_SHARE: u64 = 32;

/// The capacity of the cache changes in steps of this part of the limit.
const STEP_SHARE: u64 = 64;

/// The part of the limit that the buffers of a compaction's inputs may take together.
const INPUT_SHARE: usize = 16;

/// Largest piece that a compaction reads ahead of an input, and the smallest that is worth a call.
const READAHEAD: (usize, usize) = (16 << 10, 256 << 10);

/// What an iterator takes beside its blocks, about.
const ITERATOR: usize = 1 << 10;

/// Where the memory of a database goes, in bytes: allocations as the engine counts them, without what the allocator adds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUsage {
    /// The memtables that take writes.
    pub memtables: u64,
    /// Sealed memtables that wait for their flush.
    pub immutables: u64,
    /// Cached blocks, in the form in which they are searched. Those of other databases too if
    /// [`Components::cache`](crate::Components::cache) is shared.
    pub block_cache: u64,
    /// Indexes, filters and descriptions of the tables, as far as they were opened.
    pub table_metadata: u64,
    /// Log records that the operating system does not have yet, and room for them.
    pub log_buffers: u64,
    /// Flushed memtables that cursors still hold, or that are about to be freed; and an estimate of the cursors' buffers.
    pub readers: u64,
    /// Buffers of flushes and compactions.
    pub jobs: u64,
    /// The [`memory_limit`](crate::Options::memory_limit), if there is one.
    pub limit: Option<u64>,
    /// What the cache may take at present.
    pub cache_capacity: u64,
}

impl MemoryUsage {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.others() + self.table_metadata + self.block_cache
    }

    /// All but table metadata and cached blocks.
    fn others(&self) -> u64 {
        self.memtables + self.immutables + self.log_buffers + self.readers + self.jobs
    }
}

impl fmt::Display for MemoryUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.total())?;
        if let Some(limit) = self.limit {
            write!(f, " of {limit}")?;
        }
        let MemoryUsage {
            memtables,
            immutables,
            block_cache,
            table_metadata,
            log_buffers,
            readers,
            jobs,
            ..
        } = self;
        write!(
            f,
            ": memtables {memtables}, sealed {immutables}, cache {block_cache}, tables {table_metadata}"
        )?;
        write!(f, ", log {log_buffers}, readers {readers}, jobs {jobs}")
    }
}

/// What the cache may take of `limit`, when everything else takes `others`. At most `most`.
fn cache_capacity(limit: u64, most: u64, others: u64) -> u64 {
    let rest = limit.saturating_sub(limit / SPARE_SHARE).saturating_sub(others);
    let step = (limit / STEP_SHARE).max(1);
    (rest / step * step).max(limit / FLOOR_SHARE).min(most)
}

/// How far a compaction of so many inputs reads ahead of each.
fn readahead(limit: Option<usize>, inputs: usize) -> usize {
    let (least, most) = READAHEAD;
    limit.map_or(most, |limit| (limit / INPUT_SHARE / inputs.max(1)).clamp(least, most))
}

/// What is counted where it comes and goes, and the cache that gives way to it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// `None` if the cache keeps its capacity.
    limit: Option<u64>,
    /// Largest capacity of the cache.
    most: u64,
    cache: Arc<BlockCache>,
    table_metadata: AtomicU64,
    jobs: Arc<AtomicU64>,
    /// What all but table metadata and the cache took at the last look, with what the active memtables will still take.
    others: AtomicU64,
    /// Held while the capacity is set, so that the last one who sets it knows everything.
    dividing: Mutex<()>,
}

impl Memory {
    /// `shared` is a cache that others use too: it keeps its capacity.
    pub(crate) fn new(options: &Options, shared: Option<Arc<BlockCache>>) -> Self {
        let most = options.largest_cache_size() as u64;
        let limit = options.memory_limit.filter(|_| shared.is_none()).map(|limit| limit as u64);
        Memory {
            limit,
            most,
            cache: shared.unwrap_or_else(|| Arc::new(BlockCache::new(most))),
            table_metadata: AtomicU64::new(0),
            jobs: Arc::default(),
            others: AtomicU64::new(options.effective_memtable_size() as u64),
            dividing: Mutex::default(),
        }
    }

    pub(crate) fn cache(&self) -> &Arc<BlockCache> {
        &self.cache
    }

    /// A table was opened, or is known now. Called without a lock of the engine, or before there are cached blocks.
    pub(crate) fn add_table(&self, bytes: usize) {
        self.table_metadata.fetch_add(bytes as u64, Relaxed);
        self.divide();
    }

    pub(crate) fn remove_table(&self, bytes: usize) {
        self.table_metadata.fetch_sub(bytes as u64, Relaxed);
    }

    /// The share of a job, 0 bytes at first.
    pub(crate) fn job(&self) -> JobMemory {
        JobMemory { jobs: Arc::clone(&self.jobs), shown: 0 }
    }

    /// Gives the cache what the others leave.
    fn divide(&self) {
        let Some(limit) = self.limit else { return };
        let _dividing = self.dividing.lock();
        let others = self.others.load(Relaxed).saturating_add(self.table_metadata.load(Relaxed));
        let capacity = cache_capacity(limit, self.most, others);
        if capacity != self.cache.capacity() {
            self.cache.set_capacity(capacity);
        }
    }
}

/// What a job takes. It counts until the job is dropped.
#[derive(Debug)]
pub(crate) struct JobMemory {
    jobs: Arc<AtomicU64>,
    shown: u64,
}

impl JobMemory {
    /// The job has so many bytes now.
    pub(crate) fn show(&mut self, bytes: usize) {
        let bytes = bytes as u64;
        self.jobs.fetch_add(bytes, Relaxed);
        self.jobs.fetch_sub(self.shown, Relaxed);
        self.shown = bytes;
    }
}

impl Drop for JobMemory {
    fn drop(&mut self) {
        self.jobs.fetch_sub(self.shown, Relaxed);
    }
}

impl Core {
    /// Divides the limit anew. Called without a lock.
    pub(crate) fn divide_memory(&self) {
        if self.tables.memory.limit.is_none() {
            return;
        }
        let mut usage = self.memory_usage(&self.state.lock(), self.options.log_buffer_kept());
        // The next look may come only when it is full.
        usage.memtables = usage.memtables.max(self.options.effective_memtable_size() as u64);
        self.tables.memory.others.store(usage.others(), Relaxed);
        self.tables.memory.divide();
    }

    pub(crate) fn memory_usage(&self, state: &State, log_buffers: usize) -> MemoryUsage {
        let memory = &self.tables.memory;
        let sum = |generations: &[Arc<crate::super_version::Generation>]| {
            generations.iter().map(|generation| generation.memory_usage() as u64).sum::<u64>()
        };
        MemoryUsage {
            memtables: state.active.memory_usage() as u64,
            immutables: sum(&state.immutables),
            block_cache: memory.cache.bytes(),
            table_metadata: memory.table_metadata.load(Relaxed),
            log_buffers: log_buffers as u64,
            readers: sum(&state.retired) + self.cursors(state) * self.cursor_bytes(state) as u64,
            jobs: memory.jobs.load(Relaxed),
            limit: self.options.memory_limit.map(|limit| limit as u64),
            cache_capacity: memory.cache.capacity(),
        }
    }

    /// What a cursor holds, about: a block of each table of level 0 and of each level, and the key where it is.
    fn cursor_bytes(&self, state: &State) -> usize {
        let blocks = state.keyspaces.iter().map(|keyspace| {
            let tables = &keyspace.tables;
            tables.level0.len() + tables.levels.len()
        });
        let memtables = 1 + state.immutables.len();
        blocks.sum::<usize>() * (ITERATOR + 2 * self.options.block_size) + memtables * ITERATOR
    }

    /// How far a compaction reads ahead of each of so many inputs.
    pub(crate) fn readahead(&self, inputs: usize) -> usize {
        readahead(self.options.memory_limit, inputs)
    }

    /// What the inputs of a compaction take: a piece that is read ahead, and a block, of each.
    pub(crate) fn input_bytes(&self, inputs: usize) -> usize {
        inputs * (self.readahead(inputs) + ITERATOR + 2 * self.options.block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_cache_gets_what_is_left() {
        assert_eq!(cache_capacity(64 * MIB, 64 * MIB, 0), 62 * MIB);
        assert_eq!(cache_capacity(64 * MIB, 64 * MIB, 10 * MIB), 52 * MIB);
        assert_eq!(cache_capacity(64 * MIB, 64 * MIB, 10 * MIB + 1), 51 * MIB, "in whole steps");
        assert_eq!(cache_capacity(64 * MIB, 20 * MIB, 10 * MIB), 20 * MIB, "never more than was asked for");
        assert_eq!(cache_capacity(64 * MIB, 0, 0), 0);
        for others in [60 * MIB, 64 * MIB, u64::MAX] {
            assert_eq!(cache_capacity(64 * MIB, 64 * MIB, others), 4 * MIB, "never less than the floor");
        }
    }

    /// Together they keep to every limit, as long as the others leave room for the floor.
    #[test]
    fn the_sum_keeps_to_the_limit() {
        for limit in [256 << 10, 999_999, 2 * MIB, 64 * MIB, 1 << 40, 1 << 50] {
            for part in 0..15 {
                let others = limit / 16 * part;
                let capacity = cache_capacity(limit, u64::MAX, others);
                assert!(capacity + others <= limit, "{limit} {others} {capacity}");
                assert!(part > 10 || capacity + others > limit / 10 * 9, "{limit} {others} {capacity}");
            }
        }
    }

    #[test]
    fn many_inputs_read_less_ahead() {
        assert_eq!(readahead(None, 1000), 256 << 10);
        assert_eq!(readahead(Some(64 << 20), 4), 256 << 10);
        assert_eq!(readahead(Some(64 << 20), 64), 64 << 10);
        assert_eq!(readahead(Some(2 << 20), 100), 16 << 10);
        assert_eq!(readahead(Some(2 << 20), 0), 128 << 10);
    }

    #[test]
    fn jobs_and_tables_are_counted_while_they_are_there() {
        let memory = Memory::new(&Options::new().memory_limit(64 << 20), None);
        let before = memory.cache.capacity();
        memory.add_table(20 << 20);
        assert!(memory.cache.capacity() < before - (10 << 20), "{before} {}", memory.cache.capacity());
        memory.remove_table(20 << 20);
        let mut job = memory.job();
        job.show(100);
        job.show(70);
        assert_eq!(memory.jobs.load(Relaxed), 70);
        drop(job);
        assert_eq!((memory.jobs.load(Relaxed), memory.table_metadata.load(Relaxed)), (0, 0));
    }

    /// A cache that others use keeps its capacity.
    #[test]
    fn a_shared_cache_is_left_alone() {
        let shared = Arc::new(BlockCache::new(8 << 20));
        let memory = Memory::new(&Options::new().memory_limit(1 << 20), Some(Arc::clone(&shared)));
        memory.add_table(4 << 20);
        assert_eq!(shared.capacity(), 8 << 20);
    }
}
