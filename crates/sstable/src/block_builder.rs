//! [`BlockBuilder`]: collects entries into the payload of one block. Data blocks and index blocks use it.
//!
//! ```text
//! entries                      see `entry`
//! u16|u32 * (restarts - 1)     offsets of the restarts but the first, which is at 0
//! u16|u32                      number of restarts
//! u16|u32                      number of entries
//! u8                           flags: bit 0: the numbers above are u32, else u16; others 0
//! ```

use crate::entry::{self, Entry};
use crate::format::MAX_BLOCK_LEN;
use esker_base::{InternalKey, InternalKeyRef, common_prefix_len};

/// Flag: offsets and counts are `u32`.
pub(crate) const WIDE: u8 = 1;

/// Collects entries in ascending order.
#[derive(Debug)]
pub(crate) struct BlockBuilder {
    buf: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    since_restart: usize,
    entries: u32,
    /// The first entry of the block and its key: the base of every restart.
    first: Entry,
    first_key: Vec<u8>,
    /// The entry added last.
    last: Entry,
}

impl BlockBuilder {
    pub(crate) fn new(restart_interval: usize) -> Self {
        BlockBuilder {
            buf: Vec::new(),
            restarts: Vec::new(),
            restart_interval,
            since_restart: 0,
            entries: 0,
            first: Entry::ZERO,
            first_key: Vec::new(),
            last: Entry::ZERO,
        }
    }

    /// Adds an entry whose key shares `shared` bytes, and no more, with the key added before.
    ///
    /// The caller vouches for the order, and that the block stays below [`MAX_BLOCK_LEN`].
    #[inline]
    pub(crate) fn add(&mut self, shared: usize, key: InternalKeyRef<'_>, value: &[u8]) {
        if self.entries == 0 {
            self.last = entry::encode(&mut self.buf, &Entry::ZERO, 0, key, value);
            self.first = self.last;
            self.first_key.clear();
            self.first_key.extend_from_slice(key.user_key);
            self.since_restart = 0;
        } else if self.since_restart == self.restart_interval {
            self.restarts.push(self.buf.len() as u32);
            let shared = common_prefix_len(&self.first_key, key.user_key);
            self.last = entry::encode(&mut self.buf, &self.first, shared, key, value);
            self.since_restart = 0;
        } else {
            self.last = entry::encode(&mut self.buf, &self.last, shared, key, value);
        }
        self.since_restart += 1;
        self.entries += 1;
    }

    /// Bytes of the payload if it were finished now, about.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.buf.len() + 2 * self.restarts.len() + 5
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The complete payload. [`clear`](Self::clear) starts the next block.
    pub(crate) fn finish(&mut self) -> &[u8] {
        debug_assert!(self.buf.len() <= MAX_BLOCK_LEN);
        let restarts = if self.entries == 0 { 0 } else { self.restarts.len() as u32 + 1 };
        let numbers = self.restarts.iter().copied().chain([restarts, self.entries]);
        if self.buf.len() <= usize::from(u16::MAX) {
            for number in numbers {
                self.buf.extend_from_slice(&(number as u16).to_le_bytes());
            }
            self.buf.push(0);
        } else {
            for number in numbers {
                self.buf.extend_from_slice(&number.to_le_bytes());
            }
            self.buf.push(WIDE);
        }
        &self.buf
    }

    /// Forgets all entries and keeps the buffers.
    pub(crate) fn clear(&mut self) {
        self.buf.clear();
        self.restarts.clear();
        self.entries = 0;
    }
}

/// Whether `key` comes after `last`, when they share `shared` bytes of the user key, and no more.
#[inline]
pub(crate) fn ascends(last: &InternalKey, key: InternalKeyRef<'_>, shared: usize) -> bool {
    match (last.user_key.get(shared), key.user_key.get(shared)) {
        (Some(a), Some(b)) => a < b,
        (None, Some(_)) => true,
        (Some(_), None) => false,
        (None, None) => (last.seq, last.kind) > (key.seq, key.kind),
    }
}
