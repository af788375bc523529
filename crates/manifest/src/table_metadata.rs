//! `TableMetadata`: what the manifest knows about one table.
//!
//! Plain data, never changed after it is made, and shared as `Arc<TableMetadata>` between versions. A table's id is the
//! store's id with the table's file number, so it needs no field here.

use esker_base::{FileNumber, InternalKey, MAX_KEY_LEN, MAX_SEQUENCE, SequenceNumber};
use std::fmt;

/// One table: its file, its bounds and what it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableMetadata {
    /// The number in the file's name.
    pub number: FileNumber,
    /// Size of the file in bytes.
    pub file_size: u64,
    /// Bytes at the end of the file that one read must fetch to open the table; at most `file_size`.
    pub tail_size: u64,
    /// The first entry's key.
    pub smallest: InternalKey,
    /// The last entry's key.
    pub largest: InternalKey,
    /// Smallest sequence number of all entries; 0 when some were zeroed.
    pub smallest_seq: SequenceNumber,
    /// Largest sequence number of all entries.
    pub largest_seq: SequenceNumber,
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of entries that are tombstones; at most `entries`.
    pub deletes: u64,
}

impl TableMetadata {
    /// Whether `user_key` lies within the bounds, both inclusive.
    #[inline]
    pub fn covers(&self, user_key: &[u8]) -> bool {
        self.smallest.user_key.as_slice() <= user_key && user_key <= self.largest.user_key.as_slice()
    }

    /// Whether the two tables' ranges of user keys have a key in common.
    pub fn overlaps(&self, other: &TableMetadata) -> bool {
        self.overlaps_range(Some(&other.smallest.user_key), Some(&other.largest.user_key))
    }

    /// Whether the table reaches into a range of user keys. Both bounds are inclusive; `None` is no bound.
    #[inline]
    pub fn overlaps_range(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> bool {
        begin.is_none_or(|begin| begin <= self.largest.user_key.as_slice())
            && end.is_none_or(|end| self.smallest.user_key.as_slice() <= end)
    }

    /// Says what is impossible about these numbers, wherever they come from.
    pub(crate) fn check(&self) -> Result<(), String> {
        let what = if self.number.0 == 0 {
            "file number 0"
        } else if self.tail_size > self.file_size {
            "a tail larger than the file"
        } else if self.entries == 0 {
            "no entries"
        } else if self.deletes > self.entries {
            "more tombstones than entries"
        } else if self.smallest > self.largest {
            "bounds in the wrong order"
        } else if self.smallest_seq > self.largest_seq || self.largest_seq > MAX_SEQUENCE {
            "an impossible sequence range"
        } else if [&self.smallest, &self.largest].iter().any(|key| key.user_key.len() > MAX_KEY_LEN) {
            "a bound that is too long for a key"
        } else if [&self.smallest, &self.largest]
            .iter()
            .any(|key| !(self.smallest_seq..=self.largest_seq).contains(&key.seq))
        {
            "a bound outside its sequence range"
        } else {
            return Ok(());
        };
        Err(format!("table {} has {what}", self.number))
    }
}

/// One line: number, size, entries, bounds and sequence range.
impl fmt::Display for TableMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} bytes, {} entries ({} deletes) {:?}..{:?} seq {}..{}",
            self.number,
            self.file_size,
            self.entries,
            self.deletes,
            self.smallest,
            self.largest,
            self.smallest_seq,
            self.largest_seq
        )
    }
}
