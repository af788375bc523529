//! [`TableOptions`]: how the engine wants its tables. Plain data; a reader needs none of it.

/// How a block's payload is stored. The numbers are on disk and never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Compression {
    /// As it is.
    None = 0,
    /// Snappy, where it saves at least an eighth of the block. Numbers 2 and 3 are reserved for LZ4 and Zstandard.
    #[default]
    Snappy = 1,
}

impl Compression {
    /// The compression with this number, if this build knows it.
    pub fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Compression::None),
            1 => Some(Compression::Snappy),
            _ => None,
        }
    }

    /// Lower-case name, as the tools print it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Snappy => "snappy",
        }
    }
}

/// Settings for building tables. They may differ from table to table; every reader reads them all.
///
/// Values beyond the stated limits are taken as the nearest limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// A data block is closed by the entry that makes it this long, in bytes before compression. 64 B to 64 MiB.
    pub block_size: usize,
    /// Every how many entries a block can be entered by a search. 1 to 256.
    pub restart_interval: usize,
    /// Bits of the filter for each distinct user key, at most 100; 0 means no filter.
    pub bloom_bits: u32,
    /// How data blocks are stored.
    pub compression: Compression,
    /// An index longer than this many bytes is cut into partitions of about this size, with a second level above.
    /// 64 B to 64 MiB.
    pub index_partition_size: usize,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            block_size: 4096,
            restart_interval: 16,
            bloom_bits: 10,
            compression: Compression::Snappy,
            index_partition_size: 64 << 10,
        }
    }
}

impl TableOptions {
    /// The same with every value inside its limits.
    pub(crate) fn clamped(&self) -> Self {
        TableOptions {
            block_size: self.block_size.clamp(64, 64 << 20),
            restart_interval: self.restart_interval.clamp(1, crate::format::MAX_RESTART_INTERVAL),
            bloom_bits: self.bloom_bits.min(100),
            compression: self.compression,
            index_partition_size: self.index_partition_size.clamp(64, 64 << 20),
        }
    }
}
