//! [`Readahead`]: reads many data blocks at once for an iterator that goes forward through a table.
//!
//! A read of 4 KiB costs the system call about as much again as its bytes. Who scans to the end, as compactions do, reads
//! ever larger pieces instead, up to [`MAX_LEN`] or what it is given. Blocks are taken out of the piece one by one and verified as ever.

use crate::block::Block;
use crate::block_io::BlockFile;
use esker_base::Result;
use std::ops::Range;

/// Length of the first piece that is read ahead, in bytes.
const MIN_LEN: u64 = 16 << 10;

/// Length of the largest piece, unless another is asked for.
pub(crate) const MAX_LEN: usize = 256 << 10;

/// A piece of the file that was read ahead.
#[derive(Debug)]
pub(crate) struct Readahead {
    max_len: u64,
    /// Its bytes come first; what is behind is of an earlier one. So the buffer is zeroed only where it grows.
    bytes: Vec<u8>,
    len: usize,
    offset: u64,
    /// Where the block ends that was read last: going on there is going forward.
    last_end: u64,
    /// Length of the next piece; 0 until two blocks were read in a row.
    next_len: u64,
}

impl Readahead {
    /// Nothing yet; pieces of at most `max_len` bytes.
    pub(crate) fn new(max_len: usize) -> Self {
        let max_len = (max_len as u64).max(MIN_LEN);
        Readahead { max_len, bytes: Vec::new(), len: 0, offset: 0, last_end: 0, next_len: 0 }
    }

    /// The block stored at `range`, out of the piece, or with a new one that ends at most at `data_end`.
    pub(crate) fn block(&mut self, file: &BlockFile, range: Range<u64>, data_end: u64) -> Result<Block> {
        let forward = range.start == self.last_end;
        self.last_end = range.end;
        if !forward {
            self.next_len = 0;
            self.len = 0;
            return read_one(file, range);
        }
        if self.piece(&range).is_none() {
            self.next_len = (2 * self.next_len).clamp(MIN_LEN, self.max_len);
            let end = data_end.min(range.start + self.next_len);
            if end < range.end {
                return read_one(file, range);
            }
            self.offset = range.start;
            // At most `max_len`, and inside the file.
            self.len = usize::try_from(end - range.start).unwrap_or(0);
            if self.bytes.len() < self.len {
                self.bytes.resize(self.len, 0);
            }
            if file.read_bytes(range.start, &mut self.bytes[..self.len]).is_err() {
                self.len = 0;
                return read_one(file, range);
            }
        }
        match self.piece(&range).map(|stored| file.block(range.start, stored)) {
            Some(Ok(block)) => Ok(block),
            // Another try, and the error if it is one, comes from a read of this block alone.
            _ => read_one(file, range),
        }
    }

    /// The stored block in the piece that is in memory.
    fn piece(&self, range: &Range<u64>) -> Option<&[u8]> {
        let start = usize::try_from(range.start.checked_sub(self.offset)?).ok()?;
        let end = usize::try_from(range.end.checked_sub(self.offset)?).ok()?;
        self.bytes[..self.len].get(start..end)
    }
}

fn read_one(file: &BlockFile, range: Range<u64>) -> Result<Block> {
    // A length beyond the address space is beyond the limit of a block, too.
    file.read_block(range.start, usize::try_from(range.end - range.start).unwrap_or(usize::MAX))
}
