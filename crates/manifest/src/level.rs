//! `Level`: the tables of one level of a version, in the order in which reads visit them.
//!
//! Level 0 holds its tables newest first; they may overlap. The levels below hold them by key, disjoint by user key, so
//! that at most one table can have a key. Never changed after it is made.

use crate::TableMetadata;
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;

/// The tables of one level.
#[derive(Clone, Debug, Default)]
pub struct Level {
    number: usize,
    tables: Vec<Arc<TableMetadata>>,
    size_bytes: u64,
}

impl Level {
    /// Puts the tables of level `number` into order. Does not check them.
    pub(crate) fn new(number: usize, mut tables: Vec<Arc<TableMetadata>>) -> Self {
        if number == 0 {
            tables.sort_by_key(|table| Reverse((table.largest_seq, table.number)));
        } else {
            tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        }
        let size_bytes = tables.iter().fold(0_u64, |sum, table| sum.saturating_add(table.file_size));
        Level { number, tables, size_bytes }
    }

    /// Which level this is: 0 is the youngest.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The tables: newest first in level 0, by key below.
    #[inline]
    pub fn tables(&self) -> &[Arc<TableMetadata>] {
        &self.tables
    }

    /// Number of tables.
    #[inline]
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Whether there is no table.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Sum of the file sizes, in bytes.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The one table that can hold `user_key`.
    ///
    /// # Panics
    ///
    /// In level 0, where several may.
    #[inline]
    pub fn find(&self, user_key: &[u8]) -> Option<&Arc<TableMetadata>> {
        let table = self.tables.get(self.first_ending_at_or_after(user_key))?;
        (table.smallest.user_key.as_slice() <= user_key).then_some(table)
    }

    /// Index of the first table whose last user key is at or after `user_key`: where a seek starts. The number of
    /// tables when there is none.
    ///
    /// # Panics
    ///
    /// In level 0, which is not sorted by key.
    #[inline]
    pub fn first_ending_at_or_after(&self, user_key: &[u8]) -> usize {
        assert!(self.number > 0, "level 0 is not sorted by key");
        self.tables.partition_point(|table| table.largest.user_key.as_slice() < user_key)
    }

    /// The tables that reach into a range of user keys, in the level's order. Both bounds are inclusive; `None` is no
    /// bound. An inverted range has no tables.
    pub fn overlapping<'a>(
        &'a self,
        begin: Option<&'a [u8]>,
        end: Option<&'a [u8]>,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<TableMetadata>> + Clone + 'a {
        let candidates = if self.number == 0 { 0..self.len() } else { self.overlapping_indexes(begin, end) };
        let inverted = matches!((begin, end), (Some(begin), Some(end)) if begin > end);
        self.tables[candidates].iter().filter(move |table| !inverted && table.overlaps_range(begin, end))
    }

    /// Indexes of the tables that reach into a range of user keys. Both bounds are inclusive; `None` is no bound.
    ///
    /// # Panics
    ///
    /// In level 0, where they need not lie side by side.
    pub fn overlapping_indexes(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Range<usize> {
        let first = begin.map_or(0, |begin| self.first_ending_at_or_after(begin));
        let rest = &self.tables[first..];
        let count = match end {
            Some(end) => rest.partition_point(|table| table.smallest.user_key.as_slice() <= end),
            None => rest.len(),
        };
        assert!(self.number > 0, "level 0 is not sorted by key");
        first..first + count
    }
}
