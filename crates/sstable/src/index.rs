//! The index: from a key to the data block that may hold it.
//!
//! On disk an index is made of blocks like the data, in one level or two. Key of an entry: a separator at or after the
//! last key of the data block and before the first of the next. Its value:
//!
//! ```text
//! varint  stored length of the data block, with its trailer        (one level, and partitions)
//!
//! varint  stored length of the partition, with its trailer         (upper level)
//! varint  offset of the first data block of the partition
//! ```
//!
//! Data blocks lie back to back from the header on, and so do partitions, so the lengths give the offsets.
//!
//! In memory all levels stay as they were read, beside flat arrays: the first 8 bytes of each separator behind what all
//! of its block share, so that a search touches few cache lines and rarely a separator itself.

use crate::block::{Block, Damage};
use crate::block_builder::ascends;
use crate::block_cursor::BlockCursor;
use crate::block_io::BlockFile;
use crate::format::{Footer, HEADER_LEN, TRAILER_LEN};
use crate::image::head;
use esker_base::coding::Reader;
use esker_base::{InternalKey, InternalKeyRef, Result, common_prefix_len};
use std::ops::Range;

/// Fewest bytes of a stored data block: one entry, counts, flags, trailer.
const MIN_STORED_LEN: u64 = 2 + 4 + 1 + TRAILER_LEN as u64;

/// The index of an open table.
#[derive(Debug)]
pub(crate) struct Index {
    /// The upper level, when there are two.
    upper: Option<Level>,
    parts: Vec<Part>,
    /// Where the data blocks start, and where the last one ends.
    offsets: Vec<u64>,
}

/// A block of the index with the arrays over it.
#[derive(Debug)]
struct Level {
    block: Block,
    /// Leading bytes that all separators of the block share.
    common: usize,
    /// The 8 bytes behind those of each separator, filled with zeros.
    heads: Vec<u64>,
    /// Where each entry starts in the block.
    starts: Vec<u32>,
}

#[derive(Debug)]
struct Part {
    level: Level,
    /// Number of the first data block.
    first: usize,
    /// Where the block is stored.
    range: Range<u64>,
}

impl Index {
    /// Reads the index from the tail of the table, which starts at the footer's `filter_offset`.
    pub(crate) fn load(file: &BlockFile, footer: &Footer, tail: &[u8]) -> Result<Self> {
        let mut index = Index { upper: None, parts: Vec::new(), offsets: vec![HEADER_LEN as u64] };
        let range = footer.index_offset()..footer.properties_offset();
        let at = range.start;
        let top = stored_block(file, footer, tail, &range)?;
        if footer.partitions_len == 0 {
            index.load_part(file, footer, top, range)?;
        } else {
            let (upper, partitions) = load_upper(footer, top).map_err(|damage| file.damage(at, damage))?;
            index.upper = Some(upper);
            for (range, first_offset) in partitions {
                if index.end() != first_offset {
                    return Err(file.damage(range.start, Damage("index partition with a wrong first offset")));
                }
                let block = stored_block(file, footer, tail, &range)?;
                index.load_part(file, footer, block, range)?;
            }
        }
        if index.end() != footer.filter_offset {
            return Err(file.damage(at, Damage("the index does not cover the data blocks")));
        }
        index.offsets.shrink_to_fit();
        Ok(index)
    }

    /// Appends a block of the lowest level, stored at `range`.
    fn load_part(
        &mut self,
        file: &BlockFile,
        footer: &Footer,
        block: Block,
        range: Range<u64>,
    ) -> Result<()> {
        let first = self.len();
        let level = Level::load(block, |value| index_block(&mut self.offsets, value, footer.filter_offset));
        let level = level.map_err(|damage| file.damage(range.start, damage))?;
        self.parts.push(Part { level, first, range });
        Ok(())
    }

    /// End of the last data block.
    fn end(&self) -> u64 {
        self.offsets.last().copied().unwrap_or(HEADER_LEN as u64)
    }

    /// Number of data blocks.
    pub(crate) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Where data block `number` is stored, with its trailer.
    ///
    /// # Panics
    ///
    /// When there is no such block.
    #[inline]
    pub(crate) fn block(&self, number: usize) -> Range<u64> {
        self.offsets[number]..self.offsets[number + 1]
    }

    /// The number of the first data block whose separator is at or after `target`: all blocks before it hold only
    /// smaller keys, and so do all of its own that it may hold before `target`.
    #[inline]
    pub(crate) fn find(&self, target: InternalKeyRef<'_>) -> Result<Option<usize>, Damage> {
        let part = match &self.upper {
            None => 0,
            Some(upper) => match upper.find(target)? {
                Some(part) => part,
                None => return Ok(None),
            },
        };
        let Some(part) = self.parts.get(part) else { return Ok(None) };
        Ok(part.level.find(target)?.map(|index| part.first + index))
    }

    /// Where the partitions are stored, when there are two levels.
    pub(crate) fn partitions(&self) -> impl Iterator<Item = Range<u64>> {
        let parts = if self.upper.is_some() { &self.parts[..] } else { &[] };
        parts.iter().map(|part| part.range.clone())
    }

    /// All separators, in order, each with the number of its data block.
    pub(crate) fn for_each_separator(
        &self,
        mut visit: impl FnMut(usize, InternalKeyRef<'_>),
    ) -> Result<(), Damage> {
        for part in &self.parts {
            let mut cursor = BlockCursor::new();
            cursor.set_block(Some(part.level.block.clone()));
            cursor.seek_to_first()?;
            let mut number = part.first;
            while cursor.valid() {
                visit(number, cursor.key());
                number += 1;
                cursor.next()?;
            }
        }
        Ok(())
    }

    /// Bytes of memory, about.
    pub(crate) fn memory(&self) -> usize {
        let levels = self.parts.iter().map(|part| &part.level).chain(&self.upper);
        levels.map(|level| level.block.memory() + 12 * level.heads.len()).sum::<usize>()
            + 8 * self.offsets.len()
    }

    /// Whether the separators of the two levels agree: each partition ends with the separator of its upper entry.
    pub(crate) fn levels_agree(&self) -> Result<bool, Damage> {
        let Some(upper) = &self.upper else { return Ok(true) };
        let mut above = BlockCursor::new();
        above.set_block(Some(upper.block.clone()));
        above.seek_to_first()?;
        for part in &self.parts {
            let mut cursor = BlockCursor::new();
            cursor.set_block(Some(part.level.block.clone()));
            cursor.seek_to_last()?;
            if !above.valid() || !cursor.valid() || above.key() != cursor.key() {
                return Ok(false);
            }
            above.next()?;
        }
        Ok(!above.valid())
    }
}

/// The block stored at `range`, out of the tail.
fn stored_block(file: &BlockFile, footer: &Footer, tail: &[u8], range: &Range<u64>) -> Result<Block> {
    let relative = |at: u64| usize::try_from(at.checked_sub(footer.filter_offset)?).ok();
    let stored = relative(range.start).zip(relative(range.end)).and_then(|(start, end)| tail.get(start..end));
    let stored = stored.ok_or_else(|| file.damage(range.start, Damage("index outside the tail")))?;
    file.block(range.start, stored)
}

/// Where a partition is stored, and the offset of its first data block.
type Partition = (Range<u64>, u64);

/// Reads the upper level.
fn load_upper(footer: &Footer, top: Block) -> Result<(Level, Vec<Partition>), Damage> {
    let section_end = footer.index_offset();
    let mut partitions = Vec::new();
    let mut next = footer.partitions_offset();
    let upper = Level::load(top, |value| {
        let mut reader = Reader::new(value);
        let len = reader.varint().ok_or(Damage("bad length of an index partition"))?;
        let first = reader.varint().ok_or(Damage("bad offset of an index partition"))?;
        let end = next.checked_add(len).filter(|end| *end <= section_end && reader.is_empty());
        let end = end.ok_or(Damage("index partition outside its section"))?;
        if len < MIN_STORED_LEN {
            return Err(Damage("index partition too short"));
        }
        partitions.push((next..end, first));
        next = end;
        Ok(())
    })?;
    if next != section_end {
        return Err(Damage("index partitions do not fill their section"));
    }
    Ok((upper, partitions))
}

/// Takes the value of an index entry: appends the end of its data block, which must not be beyond `data_end`.
fn index_block(offsets: &mut Vec<u64>, value: &[u8], data_end: u64) -> Result<(), Damage> {
    let mut reader = Reader::new(value);
    let len = reader.varint().ok_or(Damage("bad length of a data block"))?;
    let start = offsets.last().copied().unwrap_or(HEADER_LEN as u64);
    let end = start.checked_add(len).filter(|end| *end <= data_end && reader.is_empty());
    let end = end.ok_or(Damage("data block outside its section"))?;
    if len < MIN_STORED_LEN {
        return Err(Damage("data block too short"));
    }
    offsets.push(end);
    Ok(())
}

impl Level {
    /// Walks over the block once; gives each value to `take`.
    fn load(block: Block, mut take: impl FnMut(&[u8]) -> Result<(), Damage>) -> Result<Self, Damage> {
        let mut cursor = BlockCursor::new();
        cursor.set_block(Some(block.clone()));
        cursor.seek_to_last()?;
        let common =
            if cursor.valid() { common_prefix_len(block.first_key(), cursor.key().user_key) } else { 0 };
        let mut level = Level { common, heads: Vec::new(), starts: Vec::new(), block };
        let mut last = InternalKey::default();
        cursor.seek_to_first()?;
        while cursor.valid() {
            let key = cursor.key();
            if !level.heads.is_empty()
                && !ascends(&last, key, common_prefix_len(&last.user_key, key.user_key))
            {
                return Err(Damage("separators out of order"));
            }
            level.heads.push(head(key.user_key.get(common..).unwrap_or(&[])));
            level.starts.push(cursor.offset() as u32);
            take(cursor.value())?;
            last.assign(key);
            cursor.next()?;
        }
        if level.heads.len() != level.block.entry_count() {
            return Err(Damage("an index block with a wrong number of entries"));
        }
        level.heads.shrink_to_fit();
        level.starts.shrink_to_fit();
        Ok(level)
    }

    /// The first entry at or after `target`.
    #[inline]
    fn find(&self, target: InternalKeyRef<'_>) -> Result<Option<usize>, Damage> {
        let prefix = self.block.first_key().get(..self.common).unwrap_or(&[]);
        let Some(rest) = target.user_key.strip_prefix(prefix) else {
            // Before all separators, or behind all of them.
            return Ok((target.user_key < prefix && !self.heads.is_empty()).then_some(0));
        };
        let head = head(rest);
        let index = self.heads.partition_point(|other| *other < head);
        match self.heads.get(index) {
            None => Ok(None),
            Some(other) if *other != head => Ok(Some(index)),
            Some(_) => self.find_among_equals(target),
        }
    }

    /// As [`find`](Self::find), by whole separators.
    #[cold]
    fn find_among_equals(&self, target: InternalKeyRef<'_>) -> Result<Option<usize>, Damage> {
        let Some(position) = self.block.seek(target)? else { return Ok(None) };
        let start = u32::try_from(position.at).map_err(|_| Damage("block beyond the size limit"))?;
        self.starts
            .binary_search(&start)
            .map(Some)
            .map_err(|_| Damage("an index entry lies between two others"))
    }
}
