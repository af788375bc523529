//! [`BlockCache`]: blocks that were read, shared by many tables, bounded in bytes.
//!
//! Each open table has a [`Slots`]: one place for each of its data blocks. A read looks into the place, and takes no lock,
//! computes no hash and counts no reference. What is kept is decided when a block comes in: a *young* block goes after a
//! tenth of the cache has come in behind it, unless it was used meanwhile; then it is *old*, and old blocks stay as long
//! as each round over them finds that they were used (S3-FIFO: Yang, Zhang, Qiu, Yue, Rashmi, SOSP 2023). So a scan that
//! reads each block once drives out only what is young. A block that comes back soon after it went is old at once.
//!
//! Places change only under the lock of their shard. A ticket in a queue stands for a place that holds a block; it does
//! not keep the table's places alive, and one whose table is gone is skipped.

use crate::block::{Block, Damage};
use crate::image::Image;
use crate::image_builder::Workbench;
use arc_swap::{ArcSwapOption, Guard};
use esker_base::sync::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Bytes of a cached block beside its payload: its head, its ticket, and two allocations' heads.
const OVERHEAD: u64 = (size_of::<CachedBlock>() + size_of::<Ticket>() + 48) as u64;

/// Smallest capacity of a shard, while there is more than one.
const SHARD_MIN: u64 = 4 << 20;

/// Most shards.
const SHARDS_MAX: u64 = 16;

/// The part of a shard that young blocks may always take.
const YOUNG_DIVISOR: u64 = 10;

/// Blocks in memory. A capacity of 0 caches nothing.
///
/// Safe to share between threads and tables. Only blocks whose checksum matched are ever in it.
pub struct BlockCache {
    shards: Box<[Shard]>,
    /// Whether anything is ever kept: not when it was made with a capacity of 0.
    keeps: bool,
    /// Spreads the blocks of tables over the shards.
    next_table: AtomicU64,
    misses: AtomicU64,
    heals: AtomicU64,
    /// Hits of blocks that are gone.
    past_hits: AtomicU64,
}

/// What a cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Blocks that were found. Reads of one block by several threads at once may be counted as fewer.
    pub hits: u64,
    /// Blocks that had to be read.
    pub misses: u64,
    /// Blocks that were found changed in memory and were dropped, by tables that verify their reads.
    pub heals: u64,
    /// Bytes in use, with the overhead of the entries.
    pub bytes: u64,
    /// Blocks in the cache.
    pub blocks: u64,
    /// Limit of `bytes`.
    pub capacity: u64,
}

/// What is in memory of a data block.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CachedBlock {
    /// How often it was found here. Counted without a locked instruction: see [`CacheStats::hits`].
    hits: AtomicU64,
    pub(crate) form: Form,
}

/// How a block lies in memory.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) enum Form {
    /// Laid out for lookups.
    Image(Image),
    /// As it was read: when no image can be made, or when it is read once.
    Block(Block),
}

/// A part of the cache with a lock of its own.
#[derive(Debug)]
struct Shard {
    /// Written under the lock.
    capacity: AtomicU64,
    /// Written under the lock, and by tables that go.
    bytes: AtomicU64,
    blocks: AtomicU64,
    queues: Mutex<Queues>,
}

#[derive(Debug, Default)]
struct Queues {
    young: VecDeque<Ticket>,
    old: VecDeque<Ticket>,
    young_bytes: u64,
    /// How many young blocks have gone without a use.
    gone: u32,
}

/// A place that held a block when the ticket was written.
#[derive(Debug)]
struct Ticket {
    slots: Weak<Slots>,
    number: usize,
    weight: u64,
    /// Hits of the block when it came into the queue.
    hits: u64,
}

/// The places for the data blocks of one open table.
#[derive(Debug)]
pub(crate) struct Slots {
    cache: Arc<BlockCache>,
    table: u64,
    blocks: Box<[ArcSwapOption<CachedBlock>]>,
    /// For each place [`TICKET`], or when its block went, or 0.
    marks: Box<[AtomicU32]>,
}

/// A queue has a ticket for the place.
const TICKET: u32 = u32::MAX;

impl CachedBlock {
    /// An image of the block with this payload, if there can be one, else the block. It notes its checksum if `seal`.
    pub(crate) fn new(
        payload: &[u8],
        hash_seed: u64,
        seal: bool,
        bench: &mut Workbench,
    ) -> Result<Self, Damage> {
        let block = Block::parse(payload, payload.len())?;
        let form = match (Image::build(&block, hash_seed, bench), seal) {
            (Some(image), false) => Form::Image(image),
            (Some(image), true) => Form::Image(image.sealed()),
            (None, _) => return Ok(Self::whole(Block::parse(Arc::from(payload), payload.len())?, seal)),
        };
        Ok(Self::of(form))
    }

    /// The block as it was read, to be kept. It notes its checksum if `seal`.
    pub(crate) fn whole(block: Block, seal: bool) -> Self {
        Self::plain(if seal { block.sealed() } else { block })
    }

    pub(crate) fn of(form: Form) -> Self {
        CachedBlock { form, hits: AtomicU64::new(0) }
    }

    /// The block as it was read.
    pub(crate) fn plain(block: Block) -> Self {
        Self::of(Form::Block(block))
    }

    /// Whether the memory still is what it was when it was sealed, if it was.
    pub(crate) fn is_intact(&self) -> bool {
        match &self.form {
            Form::Image(image) => image.is_intact(),
            Form::Block(block) => block.is_intact(),
        }
    }

    /// Counts a use.
    #[inline]
    pub(crate) fn hit(&self) {
        self.hits.store(self.hits.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// How often it was found.
    #[inline]
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    fn weight(&self) -> u64 {
        let bytes = match &self.form {
            Form::Image(image) => image.memory(),
            Form::Block(block) => block.memory(),
        };
        bytes as u64 + OVERHEAD
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` bytes. One of 0 bytes caches nothing, whatever capacity it is given later.
    pub fn new(capacity_bytes: u64) -> Self {
        let shards = (capacity_bytes / SHARD_MIN).clamp(1, SHARDS_MAX);
        let shard = |_| Shard {
            capacity: AtomicU64::new(capacity_bytes / shards),
            bytes: AtomicU64::new(0),
            blocks: AtomicU64::new(0),
            queues: Mutex::default(),
        };
        BlockCache {
            shards: (0..shards).map(shard).collect(),
            keeps: capacity_bytes > 0,
            next_table: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            heals: AtomicU64::new(0),
            past_hits: AtomicU64::new(0),
        }
    }

    /// Limit of [`bytes`](Self::bytes).
    pub fn capacity(&self) -> u64 {
        self.shards.iter().map(|shard| shard.capacity.load(Relaxed)).sum()
    }

    /// Bytes in use, with the overhead of the entries. Cheap, unlike [`stats`](Self::stats).
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.bytes.load(Relaxed)).sum()
    }

    /// Changes the limit. What no longer fits is dropped before the call returns, in the order in which it would have gone
    /// anyway; readers are not disturbed. The cache is divided into parts (at least 4 MiB each at first, at most 16), and
    /// each gets its share of the new limit: a block that is larger than that is not kept.
    ///
    /// ```
    /// use esker_sstable::BlockCache;
    ///
    /// let cache = BlockCache::new(8 << 20);
    /// cache.set_capacity(1 << 20);
    /// assert_eq!(cache.capacity(), 1 << 20);
    /// ```
    pub fn set_capacity(&self, capacity_bytes: u64) {
        if !self.keeps {
            return;
        }
        let share = capacity_bytes / self.shards.len() as u64;
        for shard in &self.shards {
            let mut queues = shard.queues.lock();
            shard.capacity.store(share, Relaxed);
            shard.make_room(&mut queues);
        }
    }

    /// What the cache has done so far. Counted without order between threads. Looks at every block.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats {
            hits: self.past_hits.load(Relaxed),
            misses: self.misses.load(Relaxed),
            heals: self.heals.load(Relaxed),
            capacity: self.capacity(),
            ..CacheStats::default()
        };
        for shard in &self.shards {
            let queues = shard.queues.lock();
            for ticket in queues.young.iter().chain(&queues.old) {
                if let Some(found) = ticket.slots.upgrade() {
                    let block = found.blocks[ticket.number].load();
                    stats.hits += block.as_ref().map_or(0, |block| block.hits.load(Relaxed));
                }
            }
            stats.bytes += shard.bytes.load(Relaxed);
            stats.blocks += shard.blocks.load(Relaxed);
        }
        stats
    }

    /// Drops all blocks. Those in use stay alive with their users.
    pub fn clear(&self) {
        for shard in &self.shards {
            let mut queues = shard.queues.lock();
            let Queues { young, old, young_bytes, .. } = &mut *queues;
            for ticket in young.drain(..).chain(old.drain(..)) {
                if let Some(slots) = ticket.slots.upgrade() {
                    slots.marks[ticket.number].store(0, Relaxed);
                    slots.take(ticket.number);
                }
            }
            *young_bytes = 0;
        }
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockCache").field(&self.stats()).finish()
    }
}

impl Slots {
    /// Places for `blocks` blocks.
    pub(crate) fn new(cache: &Arc<BlockCache>, blocks: usize) -> Arc<Self> {
        let blocks = if cache.keeps { blocks } else { 0 };
        Arc::new(Slots {
            cache: Arc::clone(cache),
            table: cache.next_table.fetch_add(1, Relaxed),
            blocks: (0..blocks).map(|_| ArcSwapOption::empty()).collect(),
            marks: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
        })
    }

    /// Whether anything is ever kept.
    pub(crate) fn keeps(&self) -> bool {
        !self.blocks.is_empty()
    }

    /// Bytes of memory without the blocks.
    pub(crate) fn memory(&self) -> usize {
        12 * self.blocks.len()
    }

    /// The place of block `number`.
    #[inline]
    pub(crate) fn look(&self, number: usize) -> Option<Guard<Option<Arc<CachedBlock>>>> {
        self.blocks.get(number).map(ArcSwapOption::load)
    }

    /// Notes that a block was not there.
    pub(crate) fn missed(&self) {
        self.cache.misses.fetch_add(1, Relaxed);
    }

    /// Drops a block that is no longer what was read.
    #[cold]
    pub(crate) fn heal(&self, number: usize) {
        self.remove(number);
        self.cache.heals.fetch_add(1, Relaxed);
    }

    /// Drops a block. Its ticket stays, and stands for what comes in next.
    pub(crate) fn remove(&self, number: usize) {
        if number < self.blocks.len() {
            let _queues = self.shard(number).queues.lock();
            self.take(number);
        }
    }

    /// Drops all blocks.
    pub(crate) fn remove_all(&self) {
        (0..self.blocks.len())
            .filter(|number| self.blocks[*number].load().is_some())
            .for_each(|number| self.remove(number));
    }

    /// Keeps a block, and drops others as far as the capacity needs it.
    pub(crate) fn insert(self: &Arc<Self>, number: usize, block: Arc<CachedBlock>) {
        let Some(place) = self.blocks.get(number) else { return };
        let shard = self.shard(number);
        let weight = block.weight();
        let mut queues = shard.queues.lock();
        if weight > shard.capacity.load(Relaxed) {
            return;
        }
        let hits = block.hits.load(Relaxed);
        shard.bytes.fetch_add(weight, Relaxed);
        shard.blocks.fetch_add(1, Relaxed);
        // One exchange for both: each one looks at what all threads are lent.
        self.forget(number, place.swap(Some(block)));
        let mark = self.marks[number].load(Relaxed);
        if mark != TICKET {
            self.marks[number].store(TICKET, Relaxed);
            let ticket = Ticket { slots: Arc::downgrade(self), number, weight, hits };
            if mark != 0 && queues.gone.wrapping_sub(mark) as usize <= queues.old.len() {
                queues.old.push_back(ticket);
            } else {
                queues.young_bytes += weight;
                queues.young.push_back(ticket);
            }
        }
        shard.make_room(&mut queues);
    }

    #[inline]
    fn shard(&self, number: usize) -> &Shard {
        let shards = &self.cache.shards;
        &shards[(self.table as usize).wrapping_add(number) % shards.len()]
    }

    /// Empties a place, under the lock of its shard or with nobody else around.
    fn take(&self, number: usize) {
        self.forget(number, self.blocks[number].swap(None));
    }

    /// Takes a block that had the place out of the sums.
    fn forget(&self, number: usize, block: Option<Arc<CachedBlock>>) {
        if let Some(block) = block {
            let shard = self.shard(number);
            shard.bytes.fetch_sub(block.weight(), Relaxed);
            shard.blocks.fetch_sub(1, Relaxed);
            self.cache.past_hits.fetch_add(block.hits.load(Relaxed), Relaxed);
        }
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        (0..self.blocks.len()).for_each(|number| self.take(number));
    }
}

impl Shard {
    /// Drops blocks until the others fit.
    fn make_room(&self, queues: &mut Queues) {
        // With these many, every block was looked at twice: who finds them used nevertheless takes them away from others
        // that use them at this very moment.
        let mut patience = 2 * (queues.young.len() + queues.old.len());
        let capacity = self.capacity.load(Relaxed);
        while self.bytes.load(Relaxed) > capacity && queues.step(capacity, patience > 0) {
            patience = patience.saturating_sub(1);
        }
        // Tickets of tables that are gone are met by `step` only when there is need of room.
        let live = self.blocks.load(Relaxed) as usize;
        if queues.young.len() + queues.old.len() > 2 * live + 64 {
            queues.forget_the_gone();
        }
    }
}

impl Queues {
    /// Looks at the block whose turn it is, and drops it unless it was used, and `spare`. False when there is none.
    fn step(&mut self, capacity: u64, spare: bool) -> bool {
        let young = self.young_bytes > capacity / YOUNG_DIVISOR || self.old.is_empty();
        let ticket = if young { self.young.pop_front() } else { self.old.pop_front() };
        let Some(mut ticket) = ticket else { return !self.old.is_empty() };
        if young {
            self.young_bytes -= ticket.weight;
        }
        let Some(slots) = ticket.slots.upgrade() else { return true };
        let hits = slots.blocks[ticket.number].load().as_ref().map(|block| block.hits.load(Relaxed));
        let mark = &slots.marks[ticket.number];
        match hits {
            None => mark.store(0, Relaxed),
            Some(hits) if hits != ticket.hits && spare => {
                ticket.hits = hits;
                self.old.push_back(ticket);
            }
            Some(_) => {
                slots.take(ticket.number);
                self.gone = if young { self.gone.wrapping_add(1) } else { self.gone };
                // Neither of the two values with a meaning.
                mark.store(if young { self.gone.clamp(1, TICKET - 1) } else { 0 }, Relaxed);
            }
        }
        true
    }

    /// Takes out the tickets of places that are gone, or empty.
    fn forget_the_gone(&mut self) {
        let lives = |ticket: &Ticket| {
            let Some(slots) = ticket.slots.upgrade() else { return false };
            let lives = slots.blocks[ticket.number].load().is_some();
            if !lives {
                slots.marks[ticket.number].store(0, Relaxed);
            }
            lives
        };
        self.old.retain(lives);
        self.young.retain(lives);
        self.young_bytes = self.young.iter().map(|ticket| ticket.weight).sum();
    }
}

#[cfg(test)]
mod tests;
