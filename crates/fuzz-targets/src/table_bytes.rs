//! Builds a table from an input: each of its parts either well formed, or any bytes under a right checksum.
//!
//! Written from `docs/format/sstable.md`, with the long form of each code.

use esker_base::coding::{put_bytes, put_varint};
use esker_base::{InternalKey, ValueKind, common_prefix_len};

use crate::{Input, seal};

/// Store id and file number of all tables.
pub(crate) const IDENTITY: [u8; 24] =
    [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 7, 0, 0, 0, 0, 0, 0, 0];
/// The hash seed of all tables.
pub(crate) const HASH_SEED: u64 = 42;

type Entry = (InternalKey, Vec<u8>);

/// Which parts of a table are taken as they stand in the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) data: bool,
    pub(crate) index: bool,
    pub(crate) properties: bool,
    pub(crate) partitions: bool,
}

impl Raw {
    pub(crate) fn from_bits(bits: u8) -> Self {
        let bit = |number: u8| bits >> number & 1 == 1;
        Raw { data: bit(0), index: bit(1), properties: bit(2), partitions: bit(3) }
    }
}

struct Table {
    file: Vec<u8>,
}

impl Table {
    /// Appends a block; returns its stored length.
    fn block(&mut self, payload: &[u8], compression: u8) -> u64 {
        let offset = self.file.len();
        self.file.extend_from_slice(payload);
        self.file.push(compression);
        seal::end_block(&mut self.file, &IDENTITY, offset);
        (self.file.len() - offset) as u64
    }
}

/// The file that an input describes. `filter` is the payload of the filter block.
pub(crate) fn build(input: &mut Input<'_>, raw: Raw, filter: Option<&[u8]>) -> Vec<u8> {
    let mut table = Table { file: b"ESKSST\x03\0".to_vec() };
    table.file.extend_from_slice(&IDENTITY);
    let mut separators: Vec<(InternalKey, u64)> = Vec::new();
    let mut totals = Totals::default();
    if raw.data {
        for _ in 0..1 + input.below(3) {
            let (compression, payload) = (input.byte(), input.large());
            let separator = InternalKey::new(input.small(), 0, ValueKind::Delete);
            separators.push((separator, table.block(payload, compression)));
            totals.blocks += 1;
            totals.entries += 1;
        }
    } else {
        let entries = entries(input);
        for block in entries.chunks(1 + input.below(8)) {
            let payload = entry_block(block);
            totals.add(block, payload.len());
            let last = block.last().map_or_else(InternalKey::default, |(key, _)| key.clone());
            separators.push((last, table.block(&payload, 0)));
        }
        end_separators(&mut separators);
    }
    let mut lengths = [0_u64; 5];
    let filter_offset = table.file.len() as u64;
    if let Some(filter) = filter {
        lengths[0] = table.block(filter, 0);
    }
    let mut top = index_entries(&separators);
    if raw.partitions {
        top = partitions(input, &mut table, &separators, &mut lengths[2]);
        totals.partitions = top.len() as u64;
    }
    let index = if raw.index { input.large().to_vec() } else { entry_block(&top) };
    lengths[3] = table.block(&index, 0);
    let properties = if raw.properties { input.large().to_vec() } else { totals.encode() };
    lengths[4] = table.block(&properties, 0);
    let footer = table.file.len();
    table.file.extend_from_slice(&filter_offset.to_le_bytes());
    for length in lengths {
        table.file.extend_from_slice(&(length as u32).to_le_bytes());
    }
    table.file.extend_from_slice(&[0; 8]);
    table.file.extend_from_slice(&IDENTITY);
    table.file.extend_from_slice(&[0, 0, 0, 0, 3, 0, 0, 0]);
    table.file.extend_from_slice(b"ESKERSST");
    debug_assert_eq!(table.file.len() - footer, seal::FOOTER);
    seal::footer(&mut table.file);
    table.file
}

/// Some entries in order.
fn entries(input: &mut Input<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for _ in 0..1 + input.below(24) {
        let head = input.byte();
        let key = input.take(usize::from(head & 7));
        let kind = if head & 8 == 0 { ValueKind::Put } else { ValueKind::Delete };
        let seq = u64::from(head >> 4);
        let value = if kind == ValueKind::Put { input.take(usize::from(head >> 3)) } else { &[] };
        entries.push((InternalKey::new(key, seq, kind), value.to_vec()));
    }
    entries.sort_by(|a, b| a.0.as_ref().cmp(&b.0.as_ref()));
    entries.dedup_by(|a, b| a.0 == b.0);
    entries
}

/// Separators as a builder makes them, as far as they must be.
fn end_separators(separators: &mut [(InternalKey, u64)]) {
    if let Some((last, _)) = separators.last_mut() {
        *last = InternalKey::new(last.user_key.clone(), 0, ValueKind::Delete);
    }
}

/// The entries of a block of the index.
fn index_entries(separators: &[(InternalKey, u64)]) -> Vec<Entry> {
    let value = |length: u64| {
        let mut value = Vec::new();
        put_varint(&mut value, length);
        value
    };
    separators.iter().map(|(key, length)| (key.clone(), value(*length))).collect()
}

/// Writes the lower level of an index, and returns the entries of the upper one.
fn partitions(
    input: &mut Input<'_>,
    table: &mut Table,
    separators: &[(InternalKey, u64)],
    length: &mut u64,
) -> Vec<Entry> {
    let mut top = Vec::new();
    let mut offset = seal::TABLE_HEADER as u64;
    for part in separators.chunks(1 + input.below(4)) {
        let raw = input.byte() & 1 == 1;
        let payload = if raw { input.large().to_vec() } else { entry_block(&index_entries(part)) };
        let stored = table.block(&payload, 0);
        let mut value = Vec::new();
        put_varint(&mut value, stored);
        put_varint(&mut value, offset);
        let key = part.last().map_or_else(InternalKey::default, |(key, _)| key.clone());
        top.push((key, value));
        *length += stored;
        offset += part.iter().map(|(_, length)| length).sum::<u64>();
    }
    top
}

/// The payload of a block of entries, with one restart.
fn entry_block(entries: &[Entry]) -> Vec<u8> {
    let mut payload = Vec::new();
    let mut base = InternalKey::default();
    for (key, value) in entries {
        let shared = common_prefix_len(&base.user_key, &key.user_key);
        let unshared = &key.user_key[shared..];
        // Shared in full, the sequence as a difference, and the lengths where their short forms don't reach.
        let length = if unshared.len() < 14 { unshared.len() as u8 } else { 14 };
        payload.extend_from_slice(&[0xf0 | length, 0xf0 | key.kind as u8]);
        put_varint(&mut payload, shared as u64);
        if length == 14 {
            put_varint(&mut payload, unshared.len() as u64 - 14);
        }
        put_varint(&mut payload, value.len() as u64);
        let step = key.seq as i64 - base.seq as i64;
        put_varint(&mut payload, ((step << 1) ^ (step >> 63)) as u64);
        payload.extend_from_slice(unshared);
        payload.extend_from_slice(value);
        base = key.clone();
    }
    let count = entries.len() as u16;
    payload.extend_from_slice(&count.min(1).to_le_bytes());
    payload.extend_from_slice(&count.to_le_bytes());
    payload.push(0);
    payload
}

/// What the properties say.
#[derive(Debug, Default)]
struct Totals {
    entries: u64,
    deletes: u64,
    user_keys: u64,
    key_bytes: u64,
    value_bytes: u64,
    blocks: u64,
    block_bytes: u64,
    partitions: u64,
    smallest: Option<InternalKey>,
    largest: InternalKey,
    sequences: Option<(u64, u64)>,
}

impl Totals {
    fn add(&mut self, block: &[Entry], payload: usize) {
        for (key, value) in block {
            let new = self.smallest.is_none() || self.largest.user_key != key.user_key;
            self.user_keys += u64::from(new);
            self.entries += 1;
            self.deletes += u64::from(key.kind == ValueKind::Delete);
            self.key_bytes += key.user_key.len() as u64;
            self.value_bytes += value.len() as u64;
            self.smallest.get_or_insert_with(|| key.clone());
            self.largest = key.clone();
            let (least, most) = self.sequences.unwrap_or((key.seq, key.seq));
            self.sequences = Some((least.min(key.seq), most.max(key.seq)));
        }
        self.blocks += 1;
        self.block_bytes += payload as u64;
    }

    fn encode(&self) -> Vec<u8> {
        let key = |key: &InternalKey| {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, key.seq << 3 | key.kind as u64);
            bytes.extend_from_slice(&key.user_key);
            bytes
        };
        let mut out = Vec::new();
        let smallest = self.smallest.clone().unwrap_or_default();
        let texts: [(u64, &[u8]); 5] = [
            (1, b"bytewise"),
            (3, &IDENTITY),
            (5, &HASH_SEED.to_le_bytes()),
            (7, &key(&smallest)),
            (9, &key(&self.largest)),
        ];
        for (tag, bytes) in texts {
            put_varint(&mut out, tag);
            put_bytes(&mut out, bytes);
        }
        let (least, most) = self.sequences.unwrap_or_default();
        let numbers = [
            (10, self.entries),
            (12, self.deletes),
            (14, self.user_keys),
            (16, self.key_bytes),
            (18, self.value_bytes),
            (20, self.blocks),
            (22, self.block_bytes),
            (24, self.partitions),
            (26, least),
            (28, most),
            (34, 4096),
            (36, 16),
        ];
        for (tag, number) in numbers {
            put_varint(&mut out, tag);
            put_varint(&mut out, number);
        }
        out
    }
}
