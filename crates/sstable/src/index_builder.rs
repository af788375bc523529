//! [`IndexBuilder`]: collects the index while the data blocks are written. Its bytes are described in [`crate::index`].

use crate::block_builder::BlockBuilder;
use crate::format::{HEADER_LEN, put_trailer};
use crate::options::{Compression, TableOptions};
use esker_base::coding::put_varint;
use esker_base::{Checksum, InternalKey, InternalKeyRef, common_prefix_len};

/// Builds the index while the data blocks are written.
#[derive(Debug)]
pub(crate) struct IndexBuilder {
    partition_size: usize,
    block: BlockBuilder,
    /// The separator added last.
    last: InternalKey,
    /// Offset of the first data block of the present partition, and of the data block to come.
    first_offset: u64,
    next_offset: u64,
    /// Payloads of the closed partitions, one behind the other.
    payloads: Vec<u8>,
    closed: Vec<Closed>,
    value: Vec<u8>,
}

#[derive(Debug)]
struct Closed {
    last: InternalKey,
    first_offset: u64,
    len: usize,
}

/// Lengths of what [`IndexBuilder::finish`] wrote.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexLens {
    pub(crate) partitions: u64,
    pub(crate) partitions_len: u64,
    pub(crate) index_len: u64,
}

impl IndexBuilder {
    pub(crate) fn new(options: &TableOptions) -> Self {
        IndexBuilder {
            partition_size: options.index_partition_size,
            block: BlockBuilder::new(options.restart_interval),
            last: InternalKey::default(),
            first_offset: HEADER_LEN as u64,
            next_offset: HEADER_LEN as u64,
            payloads: Vec::new(),
            closed: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Adds the data block that was written last, `stored_len` bytes long.
    pub(crate) fn add(&mut self, separator: InternalKeyRef<'_>, stored_len: u64) {
        if self.block.len() >= self.partition_size {
            self.close();
        }
        let shared = if self.block.is_empty() {
            0
        } else {
            common_prefix_len(&self.last.user_key, separator.user_key)
        };
        self.value.clear();
        put_varint(&mut self.value, stored_len);
        self.block.add(shared, separator, &self.value);
        self.last.assign(separator);
        self.next_offset += stored_len;
    }

    /// Bytes so far, about.
    pub(crate) fn len(&self) -> usize {
        self.payloads.len() + self.block.len()
    }

    fn close(&mut self) {
        let payload = self.block.finish();
        let len = payload.len();
        self.payloads.extend_from_slice(payload);
        let last = std::mem::take(&mut self.last);
        self.closed.push(Closed { last, first_offset: self.first_offset, len });
        self.block.clear();
        self.first_offset = self.next_offset;
    }

    /// Appends partitions and index to `out`, whose first byte is stored at `base` of the file.
    pub(crate) fn finish(mut self, out: &mut Vec<u8>, base: u64, context: &Checksum) -> IndexLens {
        let start = out.len();
        if self.closed.is_empty() {
            put_block(out, self.block.finish(), base, context);
            let index_len = (out.len() - start) as u64;
            return IndexLens { partitions: 0, partitions_len: 0, index_len };
        }
        self.close();
        let mut upper = BlockBuilder::new(TableOptions::default().restart_interval);
        let mut previous: &[u8] = &[];
        let mut at = 0;
        for partition in &self.closed {
            let before = out.len();
            put_block(out, &self.payloads[at..at + partition.len], base, context);
            at += partition.len;
            self.value.clear();
            put_varint(&mut self.value, (out.len() - before) as u64);
            put_varint(&mut self.value, partition.first_offset);
            let shared = common_prefix_len(previous, &partition.last.user_key);
            upper.add(shared, partition.last.as_ref(), &self.value);
            previous = &partition.last.user_key;
        }
        let partitions_len = (out.len() - start) as u64;
        put_block(out, upper.finish(), base, context);
        let index_len = (out.len() - start) as u64 - partitions_len;
        IndexLens { partitions: self.closed.len() as u64, partitions_len, index_len }
    }
}

/// Appends a metadata block, which is never compressed. The first byte of `out` is stored at `base` of the file.
pub(crate) fn put_block(out: &mut Vec<u8>, payload: &[u8], base: u64, context: &Checksum) {
    let start = out.len();
    out.extend_from_slice(payload);
    put_trailer(out, start, Compression::None, context, base + start as u64);
}
