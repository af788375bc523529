//! [`BlockCache`]: blocks that were read, shared by many tables, bounded in bytes. By `quick_cache`.

use crate::block::Block;
use crate::image::Image;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a cached block beside its payload: the cache's own entry and two allocations' heads.
const OVERHEAD: u64 = 128;

/// Blocks in memory. A capacity of 0 caches nothing.
///
/// Safe to share between threads and tables. Only blocks whose checksum matched are ever in it.
pub struct BlockCache {
    blocks: Cache<BlockKey, Arc<CachedBlock>, ByBytes, Mix>,
    capacity: u64,
    next_reader: AtomicU64,
    hits: [Stripe; STRIPES],
    misses: AtomicU64,
    heals: AtomicU64,
}

/// Parts of the count of hits, so that threads rarely write to the same cache line.
const STRIPES: usize = 16;

#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

/// What a cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Blocks that were found.
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

/// Reader and offset of a block. Readers of the same file number at different times have different ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BlockKey {
    pub(crate) reader: u64,
    pub(crate) offset: u64,
}

/// What is in memory of a data block.
#[derive(Debug)]
pub(crate) enum CachedBlock {
    /// Laid out for lookups.
    Image(Image),
    /// As it was read: when no image can be made, or when it is read once.
    Block(Block),
}

impl CachedBlock {
    /// With an image of `block`, if there can be one. It notes its checksum if `seal`.
    pub(crate) fn new(block: Block, hash_seed: u64, seal: bool) -> Self {
        match (Image::build(&block, hash_seed), seal) {
            (Some(image), false) => CachedBlock::Image(image),
            (Some(image), true) => CachedBlock::Image(image.sealed()),
            (None, false) => CachedBlock::Block(block),
            (None, true) => CachedBlock::Block(block.sealed()),
        }
    }

    /// Whether the memory still is what it was when it was sealed, if it was.
    pub(crate) fn is_intact(&self) -> bool {
        match self {
            CachedBlock::Image(image) => image.is_intact(),
            CachedBlock::Block(block) => block.is_intact(),
        }
    }

    /// Bytes in memory.
    fn memory(&self) -> usize {
        match self {
            CachedBlock::Image(image) => image.memory(),
            CachedBlock::Block(block) => block.memory(),
        }
    }
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` bytes.
    pub fn new(capacity_bytes: u64) -> Self {
        // One block in 4 KiB is a guess that sizes the first tables only.
        let items = usize::try_from(capacity_bytes / 4096).unwrap_or(usize::MAX).clamp(16, 1 << 20);
        let options = OptionsBuilder::new()
            .shards(if capacity_bytes < 4 << 20 { 1 } else { 16 })
            .estimated_items_capacity(items)
            .weight_capacity(capacity_bytes)
            .build()
            .expect("all options are set");
        BlockCache {
            blocks: Cache::with_options(options, ByBytes, Mix, DefaultLifecycle::default()),
            capacity: capacity_bytes,
            next_reader: AtomicU64::new(0),
            hits: Default::default(),
            misses: AtomicU64::new(0),
            heals: AtomicU64::new(0),
        }
    }

    /// What the cache has done so far. Counted without order between threads.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum(),
            misses: self.misses.load(Ordering::Relaxed),
            heals: self.heals.load(Ordering::Relaxed),
            bytes: self.blocks.weight(),
            blocks: self.blocks.len() as u64,
            capacity: self.capacity,
        }
    }

    /// Drops all blocks. Those in use stay alive with their users.
    pub fn clear(&self) {
        self.blocks.clear();
    }

    /// Whether it keeps blocks at all.
    pub(crate) fn keeps(&self) -> bool {
        self.capacity > 0
    }

    pub(crate) fn reader_id(&self) -> u64 {
        self.next_reader.fetch_add(1, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn block(&self, key: BlockKey) -> Option<Arc<CachedBlock>> {
        let block = self.blocks.get(&key);
        let stripe = (key.offset >> 12) as usize % STRIPES;
        let counter = if block.is_some() { &self.hits[stripe].0 } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        block
    }

    /// As [`block`](Self::block), without a trace: for reads that say nothing about what will be read again.
    pub(crate) fn peek(&self, key: BlockKey) -> Option<Arc<CachedBlock>> {
        self.blocks.peek(&key)
    }

    /// Drops a block that is no longer what was read.
    #[cold]
    pub(crate) fn heal(&self, key: BlockKey) {
        self.blocks.remove(&key);
        self.heals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn insert(&self, key: BlockKey, block: Arc<CachedBlock>) {
        if self.keeps() {
            self.blocks.insert(key, block);
        }
    }

    pub(crate) fn remove(&self, key: BlockKey) {
        self.blocks.remove(&key);
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockCache").field(&self.stats()).finish()
    }
}

/// Weighs a block by its bytes.
#[derive(Clone)]
struct ByBytes;

impl Weighter<BlockKey, Arc<CachedBlock>> for ByBytes {
    fn weight(&self, _key: &BlockKey, block: &Arc<CachedBlock>) -> u64 {
        block.memory() as u64 + OVERHEAD
    }
}

/// Hashes the two numbers of a key. Nobody outside chooses them, so no seed is needed.
#[derive(Clone)]
struct Mix;

impl BuildHasher for Mix {
    type Hasher = MixHasher;

    #[inline]
    fn build_hasher(&self) -> MixHasher {
        MixHasher(0)
    }
}

struct MixHasher(u64);

impl Hasher for MixHasher {
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
