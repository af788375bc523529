//! [`TableBuilder`]: writes a table from front to back, for flushes and compactions.
//!
//! Blocks are collected and written in appends of at least 256 KiB. Nothing is synced: the caller does that with the
//! finished file. The same entries, options and identity give the same bytes.

use crate::block_builder::{BlockBuilder, ascends};
use crate::compression::Compressor;
use crate::filter;
use crate::format::{FOOTER_LEN, Footer, TableIdentity, put_trailer};
use crate::index_builder::{IndexBuilder, put_block};
use crate::options::{Compression, TableOptions};
use crate::properties::TableProperties;
use crate::separator::separator;
use esker_base::{
    Checksum, Error, FileNumber, InternalKey, InternalKeyRef, MAX_KEY_LEN, MAX_SEQUENCE, MAX_VALUE_LEN,
    Result, SequenceNumber, ValueKind, common_prefix_len, key_hash,
};
use esker_vfs::WritableFile;
use std::path::PathBuf;

/// Collected bytes that are written to the file at once.
const WRITE_SIZE: usize = 256 << 10;

/// What the compressor takes, about.
const COMPRESSOR_MEMORY: usize = 64 << 10;

/// Writes one table.
///
/// Dropping a builder leaves an unfinished file behind, which is no table.
#[derive(Debug)]
pub struct TableBuilder {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    options: TableOptions,
    context: Checksum,
    /// Bytes not yet given to the file; the first one belongs at `written`.
    out: Vec<u8>,
    written: u64,
    block: BlockBuilder,
    compressor: Compressor,
    index: IndexBuilder,
    /// Stored length of the data block that is not in the index yet, since its separator needs the key after it.
    pending: Option<u64>,
    separator: Vec<u8>,
    last: InternalKey,
    /// One for each distinct user key.
    hashes: Vec<u64>,
    properties: TableProperties,
}

/// A table that is written and not yet synced.
#[derive(Debug)]
pub struct FinishedTable {
    /// The file: sync it, and its directory, before anything refers to it.
    pub file: Box<dyn WritableFile>,
    /// What was written.
    pub summary: TableSummary,
}

/// What a finished table is. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSummary {
    /// The number in the file's name.
    pub number: FileNumber,
    /// Length of the file.
    pub file_size: u64,
    /// Length of everything behind the data blocks: one read of it opens the table.
    pub tail_size: u64,
    /// The first key.
    pub smallest: InternalKey,
    /// The last key.
    pub largest: InternalKey,
    /// The smallest sequence number.
    pub smallest_seq: SequenceNumber,
    /// The largest sequence number.
    pub largest_seq: SequenceNumber,
    /// Entries.
    pub entries: u64,
    /// Entries that are tombstones.
    pub deletes: u64,
    /// Sum of the user keys' lengths, counted for each entry.
    pub raw_key_bytes: u64,
    /// Sum of the values' lengths.
    pub raw_value_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Length of the filter.
    pub filter_size: u64,
    /// Length of the index.
    pub index_size: u64,
}

impl TableBuilder {
    /// Starts a table in an empty file.
    ///
    /// `path` is for error messages; `created_unix_ms` is written into the table and not used otherwise.
    pub fn new(
        file: Box<dyn WritableFile>,
        path: PathBuf,
        options: &TableOptions,
        identity: TableIdentity,
        created_unix_ms: u64,
    ) -> Self {
        let options = options.clamped();
        let mut out = Vec::with_capacity(WRITE_SIZE + options.block_size.min(WRITE_SIZE));
        out.extend_from_slice(&identity.header());
        TableBuilder {
            file,
            path,
            context: identity.context(),
            out,
            written: 0,
            block: BlockBuilder::new(options.restart_interval),
            compressor: Compressor::new(),
            index: IndexBuilder::new(&options),
            pending: None,
            separator: Vec::new(),
            last: InternalKey::default(),
            hashes: Vec::new(),
            properties: TableProperties {
                store_id: identity.store_id,
                number: identity.number,
                hash_seed: identity.hash_seed,
                smallest_seq: MAX_SEQUENCE,
                created_unix_ms,
                compression: options.compression,
                block_size: options.block_size as u64,
                restart_interval: options.restart_interval as u64,
                bloom_bits: u64::from(options.bloom_bits),
                ..TableProperties::default()
            },
            options,
        }
    }

    /// Adds an entry behind all others.
    ///
    /// Fails with `Fatal` when the key does not ascend or the kind is a reserved one, with `TooLarge` beyond the limits
    /// of keys and values, with `Io` or `NoSpace` when the file refuses. After an error the builder is of no use.
    #[inline]
    pub fn add(&mut self, key: InternalKeyRef<'_>, value: &[u8]) -> Result<()> {
        let shared = common_prefix_len(&self.last.user_key, key.user_key);
        self.add_sharing(key, value, shared)
    }

    /// The same for who has compared the key with the one added before: it has `shared` leading bytes of that, and no more.
    /// For the first entry `shared` means nothing.
    #[inline]
    pub fn add_sharing(&mut self, key: InternalKeyRef<'_>, value: &[u8], shared: usize) -> Result<()> {
        let first = self.properties.entries == 0;
        let shared = if first { 0 } else { shared };
        debug_assert!(first || shared == common_prefix_len(&self.last.user_key, key.user_key));
        self.check(key, value, shared)?;
        // A value as large as a block gets one of its own, so that its neighbours can be read without it.
        let crowded = self.block.len() + value.len() > 2 * self.options.block_size;
        if self.block.len() >= self.options.block_size || (crowded && !self.block.is_empty()) {
            self.finish_block()?;
        }
        if self.pending.is_some() {
            self.index_pending(Some(key));
        }
        self.block.add(shared, key, value);

        let new_key = first || shared < key.user_key.len() || shared < self.last.user_key.len();
        if new_key {
            self.properties.user_keys += 1;
            if self.options.bloom_bits > 0 {
                self.hashes.push(key_hash(self.properties.hash_seed, key.user_key));
            }
            if first {
                self.properties.smallest = key.to_owned();
            }
            self.last.user_key.truncate(shared);
            self.last.user_key.extend_from_slice(&key.user_key[shared..]);
        }
        self.last.seq = key.seq;
        self.last.kind = key.kind;
        self.count(key, value);
        Ok(())
    }

    /// Bytes of the file if it were finished now, about.
    #[inline]
    pub fn estimated_size(&self) -> u64 {
        let filter = self.hashes.len() * self.options.bloom_bits as usize / 8;
        self.offset() + (self.block.len() + filter + self.index.len() + FOOTER_LEN) as u64
    }

    /// Bytes of memory, about, with what [`finish`](Self::finish) will take for filter and index.
    pub fn memory(&self) -> usize {
        let filter = self.hashes.len() * self.options.bloom_bits as usize / 8;
        let buffers = self.out.capacity() + 3 * self.block.len().max(self.options.block_size);
        buffers
            + COMPRESSOR_MEMORY
            + self.hashes.capacity() * size_of::<u64>()
            + 2 * (filter + self.index.len())
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.properties.entries
    }

    /// The key that was added last, if any was.
    pub fn last_key(&self) -> Option<InternalKeyRef<'_>> {
        (self.properties.entries > 0).then(|| self.last.as_ref())
    }

    /// Writes what is left. The file is complete, and not synced. A table without entries is fine.
    pub fn finish(mut self) -> Result<FinishedTable> {
        if !self.block.is_empty() {
            self.finish_block()?;
        }
        if self.pending.is_some() {
            self.index_pending(None);
        }
        let mut footer = Footer {
            filter_offset: self.offset(),
            filter_len: 0,
            partitions_len: 0,
            index_len: 0,
            properties_len: 0,
            optional_features: 0,
            store_id: self.properties.store_id,
            number: self.properties.number,
        };
        let base = self.written;
        if self.options.bloom_bits > 0 {
            let payload = filter::build(&self.hashes, self.options.bloom_bits);
            put_block(&mut self.out, &payload, base, &self.context);
        }
        footer.filter_len = section_len(self.offset() - footer.filter_offset)?;
        let index = self.index.finish(&mut self.out, base, &self.context);
        self.properties.index_partitions = index.partitions;
        footer.partitions_len = section_len(index.partitions_len)?;
        footer.index_len = section_len(index.index_len)?;
        if self.properties.entries == 0 {
            self.properties.smallest_seq = 0;
        }
        self.properties.largest = self.last;
        put_block(&mut self.out, &self.properties.encode(), base, &self.context);
        footer.properties_len = section_len(base + self.out.len() as u64 - footer.properties_offset())?;
        self.out.extend_from_slice(&footer.encode());
        self.file.append(&self.out).map_err(|error| Error::io("append", &self.path, error))?;

        let file_size = base + self.out.len() as u64;
        let properties = self.properties;
        let summary = TableSummary {
            number: properties.number,
            file_size,
            tail_size: file_size - footer.filter_offset,
            smallest: properties.smallest,
            largest: properties.largest,
            smallest_seq: properties.smallest_seq,
            largest_seq: properties.largest_seq,
            entries: properties.entries,
            deletes: properties.deletes,
            raw_key_bytes: properties.raw_key_bytes,
            raw_value_bytes: properties.raw_value_bytes,
            data_blocks: properties.data_blocks,
            filter_size: u64::from(footer.filter_len),
            index_size: index.partitions_len + index.index_len,
        };
        Ok(FinishedTable { file: self.file, summary })
    }

    /// Whether the entry can be added, with so many bytes of the user key those of the last one.
    #[inline]
    fn check(&self, key: InternalKeyRef<'_>, value: &[u8], shared: usize) -> Result<()> {
        if key.user_key.len() > MAX_KEY_LEN {
            return Err(Error::too_large("key", key.user_key.len() as u64, MAX_KEY_LEN as u64));
        }
        if value.len() > MAX_VALUE_LEN {
            return Err(Error::too_large("value", value.len() as u64, MAX_VALUE_LEN as u64));
        }
        if !key.kind.is_supported() || key.seq > MAX_SEQUENCE {
            return Err(Error::fatal(format!("a table cannot hold {key:?}")));
        }
        if self.properties.entries == 0 {
            return Ok(());
        }
        if ascends(&self.last, key, shared) { Ok(()) } else { Err(self.out_of_order(key)) }
    }

    #[cold]
    fn out_of_order(&self, key: InternalKeyRef<'_>) -> Error {
        Error::fatal(format!("keys of a table must ascend: {key:?} after {:?}", self.last))
    }

    #[inline]
    fn count(&mut self, key: InternalKeyRef<'_>, value: &[u8]) {
        let properties = &mut self.properties;
        properties.entries += 1;
        properties.deletes += u64::from(key.kind == ValueKind::Delete);
        properties.raw_key_bytes += key.user_key.len() as u64;
        properties.raw_value_bytes += value.len() as u64;
        properties.smallest_seq = properties.smallest_seq.min(key.seq);
        properties.largest_seq = properties.largest_seq.max(key.seq);
    }

    /// Where the next byte goes in the file.
    fn offset(&self) -> u64 {
        self.written + self.out.len() as u64
    }

    fn finish_block(&mut self) -> Result<()> {
        let offset = self.offset();
        let start = self.out.len();
        let payload = self.block.finish();
        let compressed = match self.options.compression {
            Compression::None => None,
            Compression::Snappy => self.compressor.snappy(payload),
        };
        let kind = if compressed.is_some() { Compression::Snappy } else { Compression::None };
        self.out.extend_from_slice(compressed.unwrap_or(payload));
        put_trailer(&mut self.out, start, kind, &self.context, offset);
        self.properties.data_blocks += 1;
        self.properties.raw_block_bytes += payload.len() as u64;
        self.block.clear();
        self.pending = Some((self.out.len() - start) as u64);
        if self.out.len() >= WRITE_SIZE {
            self.file.append(&self.out).map_err(|error| Error::io("append", &self.path, error))?;
            self.written += self.out.len() as u64;
            self.out.clear();
        }
        Ok(())
    }

    /// Puts the pending data block into the index, now that the key after it is known, or that there is none.
    fn index_pending(&mut self, next: Option<InternalKeyRef<'_>>) {
        let Some(len) = self.pending.take() else { return };
        match next {
            // The versions of one key go on in the next block: only the whole last key tells the two apart.
            Some(next) if next.user_key == self.last.user_key => self.index.add(self.last.as_ref(), len),
            next => {
                match next {
                    Some(next) => separator(&mut self.separator, &self.last.user_key, next.user_key),
                    None => self.separator.clone_from(&self.last.user_key),
                }
                // The last of all versions of the separator, which costs no byte.
                self.index.add(InternalKeyRef::new(&self.separator, 0, ValueKind::Delete), len);
            }
        }
    }
}

/// A length of a section as the footer holds it.
fn section_len(len: u64) -> Result<u32> {
    u32::try_from(len).map_err(|_| Error::too_large("section of a table", len, u64::from(u32::MAX)))
}
