//! [`Extent`]: how far a segment's file is allocated ahead of its records, and when that is to be done.
//!
//! Zeros behind the last record are a clean end of a segment, whatever a crash leaves of them. They are added
//!
//! - before a sync, so that the records to come change no length: that is a third of the cost of a sync of little data;
//! - with a mapping, before an append that would not fit into the present one.
//!
//! A piece is as long as the file, or what is mapped as long as what is not synced, within bounds. So a small log stays
//! small; and since each mapped page counts as changed, the device writes at most twice as much.

/// A piece has at most so many bytes, and at least so many (the less in a log of small segments).
const LARGEST: u64 = 1 << 20;
const SMALLEST: u64 = 16 << 10;

/// A mapped one has at most so many: a writer waits while it is made, for 50 us.
const LARGEST_MAPPED: u64 = 256 << 10;

/// Nothing is mapped for larger records: a call of the system costs no more than faults for so many pages.
const LARGEST_RECORD: u64 = 2 << 10;

/// The smallest piece is at most this part of a segment.
const SMALLEST_SHARE: u64 = 16;

/// What is known of the zeros behind the records of a segment.
#[derive(Debug)]
pub(crate) struct Extent {
    /// Where the zeros end, or would if the last attempt had not failed; not above `written` when there are none.
    end: u64,
    /// The same of the mapping.
    mapped_end: u64,
    /// Up to where there may be some.
    limit: u64,
    largest_mapped: u64,
    may_map: bool,
}

impl Extent {
    pub(crate) fn new() -> Self {
        Extent { end: 0, mapped_end: 0, limit: 0, largest_mapped: LARGEST_MAPPED, may_map: false }
    }

    pub(crate) fn allow(&mut self, limit: u64, may_map: bool) {
        (self.limit, self.may_map) = (limit, may_map);
    }

    /// A mapping is memory, too.
    pub(crate) fn bound(&mut self, bytes: usize) {
        self.largest_mapped = LARGEST_MAPPED.min(bytes as u64);
    }

    pub(crate) fn cannot_map(&mut self) {
        (self.may_map, self.mapped_end) = (false, 0);
    }

    fn smallest(&self) -> u64 {
        (self.limit / SMALLEST_SHARE).min(SMALLEST).min(self.largest_mapped)
    }

    /// The length that the file is to have for the syncs to come, when it has no zeros.
    pub(crate) fn for_sync(&mut self, written: u64) -> Option<u64> {
        if written < self.end {
            return None;
        }
        let end = self.piece(written, written.min(LARGEST))?;
        self.end = end;
        Some(end)
    }

    /// The length up to which the file is to be mapped before `more` bytes are appended.
    ///
    /// Who syncs each few records is better off with `write`: a mapped page that was just synced costs as much to write to.
    /// So is a large batch.
    #[inline]
    pub(crate) fn for_append(&mut self, written: u64, more: usize, unsynced: u64) -> Option<u64> {
        let more = more as u64;
        if !self.may_map || written.saturating_add(more) <= self.mapped_end {
            return None;
        }
        if unsynced < self.smallest() || more > unsynced.min(self.largest_mapped).min(LARGEST_RECORD) {
            return None;
        }
        let end = self.piece(written, unsynced.min(self.largest_mapped))?;
        // Whether it succeeds or not: it is not tried again for each record.
        self.mapped_end = end;
        self.end = self.end.max(end);
        Some(end)
    }

    /// Where a piece of about `size` bytes ends.
    #[cold]
    fn piece(&self, written: u64, size: u64) -> Option<u64> {
        let end = written.saturating_add(size.max(self.smallest())).min(self.limit);
        (end > written).then_some(end)
    }

    /// Says whether there are zeros behind `written`, and that they are taken away.
    pub(crate) fn forget(&mut self, written: u64) -> bool {
        let some = self.end > written;
        (self.end, self.mapped_end) = (0, 0);
        some
    }
}
