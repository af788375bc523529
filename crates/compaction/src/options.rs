//! `LeveledOptions`: the shape that leveled compaction works towards.

/// The shape of the tree. Plain data; every value that the fields can hold is safe, if not sensible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeveledOptions {
    /// Number of level-0 tables from which on level 0 is compacted. At least 1; 0 counts as 1.
    pub l0_trigger: usize,
    /// Bytes of level-0 tables from which on level 0 is compacted.
    pub l0_bytes: u64,
    /// Target size in bytes of the base level: the one that level 0 is compacted into.
    pub base_level_size: u64,
    /// How many times larger a level may be than the one above, at most. At least 2; less counts as 2.
    pub level_ratio: u64,
    /// Size in bytes at which output tables are cut.
    pub table_size: u64,
    /// Inputs in bytes beyond which a compaction is not made larger than it must be.
    pub max_compaction_bytes: u64,
}

impl LeveledOptions {
    /// Grandparents in bytes that an output, or a moved table, may overlap.
    pub fn grandparent_bytes_max(&self) -> u64 {
        self.table_size.saturating_mul(10)
    }
}

/// Four level-0 tables, base level 64 MiB, ratio 8, tables of 16 MiB, compactions of about 400 MiB.
///
/// Ratio 8, not 10: with memtables of 64 MiB and uniform overwrites, `examples/simulate` writes at most 11.9 bytes for
/// each byte put while there are five levels (8 GiB: 8.4, 30 GiB: 11.9, 36 GiB with a sixth level: 10.9). With ratio 10
/// it is 12.9 at 40 GiB. A base level of 256 MiB, as large as level 0, saves another 0.5 to 2 at these sizes.
impl Default for LeveledOptions {
    fn default() -> Self {
        LeveledOptions {
            l0_trigger: 4,
            l0_bytes: 256 << 20,
            base_level_size: 64 << 20,
            level_ratio: 8,
            table_size: 16 << 20,
            max_compaction_bytes: 400 << 20,
        }
    }
}
