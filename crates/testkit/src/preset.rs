//! [`Preset`]: sets of options under which a small database flushes, compacts and reopens all the time.
//!
//! Plain data: the engine's tests turn one into its options.

/// One set of options. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the engine's option of that name")]
pub struct Preset {
    pub name: &'static str,
    pub memtable_size: usize,
    pub cache_size: usize,
    pub block_size: usize,
    pub restart_interval: usize,
    pub table_size: u64,
    pub l0_trigger: usize,
    pub base_level_size: u64,
    pub level_ratio: u64,
    pub wal_segment_size: u64,
    pub bloom_bits: u32,
    pub snappy: bool,
    /// 0 memory, 1 buffered, 2 sync.
    pub durability: u8,
    pub verify_reads: bool,
}

/// Everything as small as it may be.
pub const TINY: Preset = Preset {
    name: "tiny",
    memtable_size: 16 << 10,
    cache_size: 8 << 10,
    block_size: 256,
    restart_interval: 4,
    table_size: 4 << 10,
    l0_trigger: 2,
    base_level_size: 4 << 10,
    level_ratio: 4,
    wal_segment_size: 16 << 10,
    bloom_bits: 10,
    snappy: false,
    durability: 1,
    verify_reads: false,
};

/// All presets; the first one is the tiniest.
pub fn presets() -> Vec<Preset> {
    vec![
        TINY,
        Preset { name: "no-cache", cache_size: 0, ..TINY },
        Preset { name: "no-filter", bloom_bits: 0, snappy: true, ..TINY },
        Preset { name: "restart-1", restart_interval: 1, block_size: 512, ..TINY },
        Preset { name: "restart-255", restart_interval: 255, block_size: 4096, snappy: true, ..TINY },
        Preset { name: "snappy", snappy: true, block_size: 1024, restart_interval: 16, ..TINY },
        Preset { name: "l0-1", l0_trigger: 1, ..TINY },
        Preset { name: "l0-4", l0_trigger: 4, memtable_size: 32 << 10, ..TINY },
        Preset { name: "ratio-2", level_ratio: 2, ..TINY },
        Preset { name: "ratio-10", level_ratio: 10, base_level_size: 16 << 10, table_size: 8 << 10, ..TINY },
        Preset { name: "memory", durability: 0, wal_segment_size: 64 << 10, ..TINY },
        Preset { name: "sync", durability: 2, verify_reads: true, ..TINY },
        Preset { name: "one-table", table_size: 1 << 20, block_size: 1 << 16, bloom_bits: 64, ..TINY },
        Preset {
            name: "roomy",
            memtable_size: 256 << 10,
            cache_size: 1 << 20,
            block_size: 4096,
            restart_interval: 16,
            table_size: 64 << 10,
            base_level_size: 128 << 10,
            wal_segment_size: 1 << 20,
            snappy: true,
            verify_reads: true,
            ..TINY
        },
    ]
}
