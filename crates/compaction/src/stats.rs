//! What a flush or a compaction read, dropped and wrote.

use std::fmt;
use std::ops::AddAssign;

/// Counters of one rewrite, or of several added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteStats {
    /// Entries read.
    pub entries_in: u64,
    /// Entries given out for writing.
    pub entries_out: u64,
    /// Bytes of user keys and values read, before any encoding.
    pub bytes_in: u64,
    /// Estimated size in bytes of the tables written.
    pub bytes_out: u64,
    /// Tables written.
    pub tables_out: u64,
    /// Entries dropped because a newer one of the key is in the same stripe.
    pub shadowed: u64,
    /// Tombstones dropped because nothing is left for them to hide.
    pub tombstones_dropped: u64,
    /// Puts whose sequence number became 0.
    pub zeroed: u64,
}

impl AddAssign for RewriteStats {
    fn add_assign(&mut self, other: Self) {
        self.entries_in += other.entries_in;
        self.entries_out += other.entries_out;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.tables_out += other.tables_out;
        self.shadowed += other.shadowed;
        self.tombstones_dropped += other.tombstones_dropped;
        self.zeroed += other.zeroed;
    }
}

impl fmt::Display for RewriteStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} entries ({} bytes) in, {} entries in {} tables ({} bytes) out; dropped {} shadowed and {} tombstones, \
             zeroed {}",
            self.entries_in,
            self.bytes_in,
            self.entries_out,
            self.tables_out,
            self.bytes_out,
            self.shadowed,
            self.tombstones_dropped,
            self.zeroed
        )
    }
}
