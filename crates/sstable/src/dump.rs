//! What a table looks like inside, for tools: sections, blocks with their entries, index, filter.
//!
//! Everything is handed out piece by piece, so that a hostile table cannot make a tool hold more than one block.

use crate::block::Block;
use crate::block_cursor::BlockCursor;
use crate::block_io::BlockFile;
use crate::entry;
use crate::filter::KIND_FASTBLOOM;
use crate::format::{FOOTER_LEN, HEADER_LEN, TRAILER_LEN};
use crate::options::Compression;
use crate::table_reader::TableReader;
use esker_base::{InternalKeyRef, Result};
use std::ops::Range;

/// A part of the file. The sections of a table lie back to back and fill the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What it is: `header`, `data block`, `filter`, `index partition`, `index`, `properties` or `footer`.
    pub name: &'static str,
    /// Where it starts, in bytes from the start of the file.
    pub offset: u64,
    /// Length in bytes, with trailers.
    pub len: u64,
    /// More about it, for people.
    pub detail: String,
}

/// A data block as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockDump {
    /// Number of the block in the table.
    pub number: usize,
    /// Where it starts in the file.
    pub offset: u64,
    /// Bytes in the file, with the trailer.
    pub stored_len: u64,
    /// Bytes of the payload, decompressed.
    pub payload_len: usize,
    /// How it is stored.
    pub compression: Compression,
    /// Entries.
    pub entries: usize,
    /// Restarts.
    pub restarts: usize,
}

/// An entry of a data block.
#[derive(Clone, Copy, Debug)]
pub struct EntryDump<'a> {
    /// Where it starts in the payload.
    pub offset: usize,
    /// Bytes of its header: everything but the key's unshared bytes and the value.
    pub header_len: usize,
    /// Bytes of the header for sequence number and kind. The others are lengths.
    pub seq_len: usize,
    /// Leading key bytes that it shares with the entry before, or, at a restart, with the block's first.
    pub shared: usize,
    /// Whether a search can enter the block here.
    pub restart: bool,
    /// User key, sequence number and kind.
    pub key: InternalKeyRef<'a>,
    /// The value.
    pub value: &'a [u8],
}

/// An entry of the lowest level of the index.
#[derive(Clone, Copy, Debug)]
pub struct IndexEntryDump<'a> {
    /// Number of the data block.
    pub number: usize,
    /// Where it starts in the file.
    pub offset: u64,
    /// Bytes in the file, with the trailer.
    pub stored_len: u64,
    /// The separator: at or after the block's last key, before the next block's first.
    pub separator: InternalKeyRef<'a>,
}

/// Parameters of the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilterDump {
    /// Name of its kind.
    pub kind: &'static str,
    /// Hashes for each key.
    pub hashes: u32,
    /// 64-bit words.
    pub words: usize,
    /// Bits that are set.
    pub bits_set: u64,
}

impl FilterDump {
    /// The chance that an absent key passes, by the bits that are set.
    pub fn false_positive_rate(&self) -> f64 {
        (self.bits_set as f64 / (64.0 * self.words as f64)).powf(f64::from(self.hashes))
    }
}

impl TableReader {
    /// All sections of the file, in order. Their lengths add up to the length of the file.
    pub fn layout(&self) -> Vec<Section> {
        let mut sections =
            vec![section("header", 0..HEADER_LEN as u64, format!("table {}", self.footer.number))];
        for number in 0..self.index.len() {
            sections.push(section("data block", self.index.block(number), format!("block {number}")));
        }
        let footer = &self.footer;
        if footer.filter_len > 0 {
            let detail = match (self.filter_dump(), &self.filter_fault) {
                (_, Some(fault)) => format!("damaged: {fault}"),
                (Some(filter), None) => format!(
                    "{}: {} hashes, {} words, {} of {} bits set",
                    filter.kind,
                    filter.hashes,
                    filter.words,
                    filter.bits_set,
                    64 * filter.words
                ),
                (None, None) => "of a kind that this build does not know".to_owned(),
            };
            sections.push(section("filter", footer.filter_offset..footer.partitions_offset(), detail));
        }
        for (number, range) in self.index.partitions().enumerate() {
            sections.push(section("index partition", range, format!("partition {number}")));
        }
        let detail =
            format!("{} data blocks, {} partitions", self.index.len(), self.index.partitions().count());
        sections.push(section("index", footer.index_offset()..footer.properties_offset(), detail));
        let detail = format!("{} entries", self.properties.entries);
        sections.push(section("properties", footer.properties_offset()..footer.footer_offset(), detail));
        let end = footer.footer_offset() + FOOTER_LEN as u64;
        sections.push(section("footer", footer.footer_offset()..end, String::new()));
        sections
    }

    /// Reads data block `number` from the file and shows each of its entries.
    ///
    /// # Panics
    ///
    /// When `number` is not below [`block_count`](Self::block_count).
    pub fn dump_block(&self, number: usize, visit: &mut dyn FnMut(EntryDump<'_>)) -> Result<BlockDump> {
        dump_block(&self.blocks, number, self.index.block(number), visit)
    }

    /// Shows each entry of the lowest level of the index.
    pub fn dump_index(&self, visit: &mut dyn FnMut(IndexEntryDump<'_>)) -> Result<()> {
        let shown = self.index.for_each_separator(|number, separator| {
            let range = self.index.block(number);
            let stored_len = range.end - range.start;
            visit(IndexEntryDump { number, offset: range.start, stored_len, separator });
        });
        shown.map_err(|damage| self.index_damage(damage))
    }

    /// Parameters of the filter; `None` when there is none that this build can use.
    pub fn filter_dump(&self) -> Option<FilterDump> {
        let filter = self.filter.as_ref()?;
        Some(FilterDump {
            kind: if filter.kind() == KIND_FASTBLOOM { "fastbloom" } else { "unknown" },
            hashes: filter.hashes(),
            words: filter.words().len(),
            bits_set: filter.words().iter().map(|word| u64::from(word.count_ones())).sum(),
        })
    }

    /// Bytes of the trailer that each stored block has behind its payload: compression kind and checksum.
    pub const BLOCK_TRAILER_LEN: usize = TRAILER_LEN;
}

/// Reads the block of entries that is stored at `range` and shows each of them.
pub(crate) fn dump_block(
    blocks: &BlockFile,
    number: usize,
    range: Range<u64>,
    visit: &mut dyn FnMut(EntryDump<'_>),
) -> Result<BlockDump> {
    let damage = |damage| blocks.damage(range.start, damage);
    let stored_len = range.end.saturating_sub(range.start);
    let payload = blocks.read(range.start, usize::try_from(stored_len).unwrap_or(usize::MAX))?;
    let (compression, payload_len) = (payload.compression, payload.len);
    let block = Block::parse(payload.data, payload_len).map_err(damage)?;
    let dump = BlockDump {
        number,
        offset: range.start,
        stored_len,
        payload_len,
        compression,
        entries: block.entry_count(),
        restarts: block.restart_count(),
    };
    let mut cursor = BlockCursor::new();
    cursor.set_block(Some(block));
    cursor.seek_to_first().map_err(damage)?;
    let (mut first_seq, mut last_seq) = (0, 0);
    while cursor.valid() {
        let (offset, seq) = (cursor.offset(), cursor.entry().seq);
        let restart = cursor.at_restart().map_err(damage)?;
        let base_seq = if restart { first_seq } else { last_seq };
        if offset == 0 {
            first_seq = seq;
        }
        last_seq = seq;
        visit(EntryDump {
            offset,
            header_len: cursor.entry().suffix_at as usize - offset,
            seq_len: entry::seq_len(base_seq, seq),
            shared: cursor.entry().shared as usize,
            restart,
            key: cursor.key(),
            value: cursor.value(),
        });
        cursor.next().map_err(damage)?;
    }
    Ok(dump)
}

fn section(name: &'static str, range: Range<u64>, detail: String) -> Section {
    Section { name, offset: range.start, len: range.end - range.start, detail }
}
