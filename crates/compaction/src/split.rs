//! `OutputSplitter`: where one output table ends and the next begins.
//!
//! A table is cut before a new user key (never between versions of one), when
//!
//! - it has reached the target size, or
//! - it has reached half of it, and the key lies past the end of a grandparent (a table of the level below the output).
//!   Outputs that line up with grandparents overlap fewer of them later, or
//! - it overlaps so many bytes of grandparents that its own compaction would be too large.
//!
//! Pure: it sees keys and sizes, no files. Keys come ascending.

use esker_manifest::TableMetadata;
use std::sync::Arc;

/// Decides where output tables are cut.
#[derive(Clone, Debug)]
pub struct OutputSplitter {
    table_size: u64,
    grandparent_bytes_max: u64,
    /// By key.
    grandparents: Vec<Arc<TableMetadata>>,
    /// Grandparents before this index end before the current key.
    at: usize,
    /// Bytes of the grandparents that the current output has gone past.
    passed_bytes: u64,
    /// Whether the current output has an entry.
    open: bool,
}

impl OutputSplitter {
    /// Cuts at about `table_size` bytes, and where an output would overlap more than `grandparent_bytes_max` bytes of
    /// `grandparents`, which are sorted by key.
    pub fn new(table_size: u64, grandparent_bytes_max: u64, grandparents: Vec<Arc<TableMetadata>>) -> Self {
        OutputSplitter {
            table_size,
            grandparent_bytes_max,
            grandparents,
            at: 0,
            passed_bytes: 0,
            open: false,
        }
    }

    /// Never cuts: for flushes.
    pub fn never() -> Self {
        Self::new(u64::MAX, u64::MAX, Vec::new())
    }

    /// Whether to start a new table with `user_key`, the first entry of a new user key. `size` is the estimated size in
    /// bytes of the present table, if there is one.
    #[inline]
    pub fn cut_before(&mut self, user_key: &[u8], size: u64) -> bool {
        let passed = self.pass(user_key);
        let full = size >= self.table_size
            || (passed && size >= self.table_size / 2)
            || self.passed_bytes > self.grandparent_bytes_max;
        let cut = self.open && full;
        if cut || !self.open {
            self.passed_bytes = 0;
        }
        self.open = true;
        cut
    }

    /// Goes past the grandparents that end before `user_key`; whether there were any.
    #[inline]
    fn pass(&mut self, user_key: &[u8]) -> bool {
        let before = self.at;
        while let Some(table) = self.grandparents.get(self.at)
            && table.largest.user_key.as_slice() < user_key
        {
            self.passed_bytes = self.passed_bytes.saturating_add(table.file_size);
            self.at += 1;
        }
        self.at > before
    }
}
