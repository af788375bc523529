//! [`TableProperties`]: what a table says about itself. Tagged fields, so that later builds can add some.
//!
//! ```text
//! fields in ascending order of their tags, each:
//!   varint  tag; even: a number follows, odd: bytes follow
//!   varint  the number, or how many bytes
//!   bytes   (odd tags)
//! ```
//!
//! A number that is missing is 0, missing bytes are empty. Unknown tags are skipped: what must not be skipped has a
//! feature bit in the footer.

use crate::block::Damage;
use crate::format::{COMPARATOR, TableIdentity};
use crate::options::Compression;
use esker_base::coding::{Reader, put_bytes, put_varint};
use esker_base::{FileNumber, InternalKey, MAX_KEY_LEN, MAX_SEQUENCE, SequenceNumber, ValueKind};

/// What a table says about itself. Sizes are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableProperties {
    /// Name of the order of the keys.
    pub comparator: String,
    /// The store that the table was written for.
    pub store_id: u128,
    /// The number in the file's name.
    pub number: FileNumber,
    /// Seed of the key hash that the filter was built with.
    pub hash_seed: u64,
    /// Entries.
    pub entries: u64,
    /// Entries that are tombstones. All others are puts.
    pub deletes: u64,
    /// Distinct user keys, as the filter counts them.
    pub user_keys: u64,
    /// Sum of the user keys' lengths, counted for each entry.
    pub raw_key_bytes: u64,
    /// Sum of the values' lengths.
    pub raw_value_bytes: u64,
    /// Data blocks.
    pub data_blocks: u64,
    /// Sum of the data blocks' payloads before compression.
    pub raw_block_bytes: u64,
    /// Index partitions; 0 when the index has one level.
    pub index_partitions: u64,
    /// The first key.
    pub smallest: InternalKey,
    /// The last key.
    pub largest: InternalKey,
    /// The smallest sequence number.
    pub smallest_seq: SequenceNumber,
    /// The largest sequence number.
    pub largest_seq: SequenceNumber,
    /// When the table was made, in milliseconds since 1970.
    pub created_unix_ms: u64,
    /// The compression that was asked for.
    pub compression: Compression,
    /// The block size that was asked for.
    pub block_size: u64,
    /// The restart interval.
    pub restart_interval: u64,
    /// Bits of the filter for each distinct user key; 0 when there is no filter.
    pub bloom_bits: u64,
}

mod tag {
    pub(super) const COMPARATOR: u64 = 1;
    pub(super) const TABLE_ID: u64 = 3;
    pub(super) const HASH_SEED: u64 = 5;
    pub(super) const SMALLEST: u64 = 7;
    pub(super) const LARGEST: u64 = 9;
    pub(super) const ENTRIES: u64 = 10;
    pub(super) const DELETES: u64 = 12;
    pub(super) const USER_KEYS: u64 = 14;
    pub(super) const RAW_KEY_BYTES: u64 = 16;
    pub(super) const RAW_VALUE_BYTES: u64 = 18;
    pub(super) const DATA_BLOCKS: u64 = 20;
    pub(super) const RAW_BLOCK_BYTES: u64 = 22;
    pub(super) const INDEX_PARTITIONS: u64 = 24;
    pub(super) const SMALLEST_SEQ: u64 = 26;
    pub(super) const LARGEST_SEQ: u64 = 28;
    pub(super) const CREATED: u64 = 30;
    pub(super) const COMPRESSION: u64 = 32;
    pub(super) const BLOCK_SIZE: u64 = 34;
    pub(super) const RESTART_INTERVAL: u64 = 36;
    pub(super) const BLOOM_BITS: u64 = 38;
}

impl TableProperties {
    /// What the table is, by these properties.
    pub fn identity(&self) -> TableIdentity {
        TableIdentity { store_id: self.store_id, number: self.number, hash_seed: self.hash_seed }
    }

    /// The payload of the properties block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        let mut id = [0; 24];
        id[..16].copy_from_slice(&self.store_id.to_le_bytes());
        id[16..].copy_from_slice(&self.number.0.to_le_bytes());
        let bytes: [(u64, &[u8]); 5] = [
            (tag::COMPARATOR, COMPARATOR.as_bytes()),
            (tag::TABLE_ID, &id),
            (tag::HASH_SEED, &self.hash_seed.to_le_bytes()),
            (tag::SMALLEST, &encode_key(&self.smallest)),
            (tag::LARGEST, &encode_key(&self.largest)),
        ];
        for (tag, bytes) in bytes {
            put_varint(&mut out, tag);
            put_bytes(&mut out, bytes);
        }
        let numbers = [
            (tag::ENTRIES, self.entries),
            (tag::DELETES, self.deletes),
            (tag::USER_KEYS, self.user_keys),
            (tag::RAW_KEY_BYTES, self.raw_key_bytes),
            (tag::RAW_VALUE_BYTES, self.raw_value_bytes),
            (tag::DATA_BLOCKS, self.data_blocks),
            (tag::RAW_BLOCK_BYTES, self.raw_block_bytes),
            (tag::INDEX_PARTITIONS, self.index_partitions),
            (tag::SMALLEST_SEQ, self.smallest_seq),
            (tag::LARGEST_SEQ, self.largest_seq),
            (tag::CREATED, self.created_unix_ms),
            (tag::COMPRESSION, self.compression as u64),
            (tag::BLOCK_SIZE, self.block_size),
            (tag::RESTART_INTERVAL, self.restart_interval),
            (tag::BLOOM_BITS, self.bloom_bits),
        ];
        for (tag, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
            put_varint(&mut out, tag);
            put_varint(&mut out, number);
        }
        out
    }

    /// Reads a payload.
    pub(crate) fn decode(payload: &[u8]) -> Result<Self, Damage> {
        let mut reader = Reader::new(payload);
        // What is missing is 0, whatever the default of an option is.
        let mut properties = TableProperties { compression: Compression::None, ..TableProperties::default() };
        let mut last_tag = None;
        while !reader.is_empty() {
            let tag = reader.varint().ok_or(Damage("bad property tag"))?;
            if last_tag.is_some_and(|last| last >= tag) {
                return Err(Damage("property tags out of order"));
            }
            last_tag = Some(tag);
            let known = if tag % 2 == 1 {
                let bytes = reader.bytes().ok_or(Damage("property longer than the block"))?;
                properties.set_bytes(tag, bytes)
            } else {
                let number = reader.varint().ok_or(Damage("bad number of a property"))?;
                properties.set_number(tag, number)
            };
            known.ok_or(Damage("bad value of a property"))?;
        }
        if properties.comparator != COMPARATOR {
            return Err(Damage("unknown order of keys"));
        }
        if properties.deletes > properties.entries || properties.data_blocks > properties.entries {
            return Err(Damage("counts of the properties contradict each other"));
        }
        Ok(properties)
    }

    fn set_bytes(&mut self, tag: u64, bytes: &[u8]) -> Option<()> {
        let mut reader = Reader::new(bytes);
        match tag {
            tag::COMPARATOR => self.comparator = String::from_utf8(bytes.to_vec()).ok()?,
            tag::TABLE_ID => {
                self.store_id = reader.u128()?;
                self.number = FileNumber(reader.u64()?);
            }
            tag::HASH_SEED => self.hash_seed = reader.u64()?,
            tag::SMALLEST => self.smallest = decode_key(bytes)?,
            tag::LARGEST => self.largest = decode_key(bytes)?,
            _ => {}
        }
        Some(())
    }

    fn set_number(&mut self, tag: u64, number: u64) -> Option<()> {
        let field = match tag {
            tag::ENTRIES => &mut self.entries,
            tag::DELETES => &mut self.deletes,
            tag::USER_KEYS => &mut self.user_keys,
            tag::RAW_KEY_BYTES => &mut self.raw_key_bytes,
            tag::RAW_VALUE_BYTES => &mut self.raw_value_bytes,
            tag::DATA_BLOCKS => &mut self.data_blocks,
            tag::RAW_BLOCK_BYTES => &mut self.raw_block_bytes,
            tag::INDEX_PARTITIONS => &mut self.index_partitions,
            tag::SMALLEST_SEQ => &mut self.smallest_seq,
            tag::LARGEST_SEQ => &mut self.largest_seq,
            tag::CREATED => &mut self.created_unix_ms,
            tag::BLOCK_SIZE => &mut self.block_size,
            tag::RESTART_INTERVAL => &mut self.restart_interval,
            tag::BLOOM_BITS => &mut self.bloom_bits,
            tag::COMPRESSION => {
                self.compression = Compression::from_u8(u8::try_from(number).ok()?)?;
                return Some(());
            }
            _ => return Some(()),
        };
        *field = number;
        Some(())
    }
}

/// A key of the properties: varint of sequence and kind (3 low bits), then the user key.
fn encode_key(key: &InternalKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.user_key.len() + 4);
    put_varint(&mut out, key.seq << 3 | key.kind as u64);
    out.extend_from_slice(&key.user_key);
    out
}

fn decode_key(bytes: &[u8]) -> Option<InternalKey> {
    let mut reader = Reader::new(bytes);
    let seq_and_kind = reader.varint()?;
    let kind = ValueKind::from_u8((seq_and_kind & 7) as u8)?;
    let seq = seq_and_kind >> 3;
    (seq <= MAX_SEQUENCE && reader.remaining() <= MAX_KEY_LEN)
        .then(|| InternalKey::new(reader.rest(), seq, kind))
}
