//! [`Plan`]: which blocks of a damaged table hold its data, and which stretches are lost.
//!
//! ```text
//! footer            --> data end, index, properties
//! no footer         --> index and properties are looked for at the end of the file
//! index             --> every data block; a damaged partition's stretch is scanned
//! no index          --> all data are scanned
//! ```

use crate::block_search::Context;
use crate::salvage_scan::{Found, Scanner};
use crate::target::Target;
use esker_base::FileNumber;
use esker_base::coding::Reader;
use esker_sstable::{Footer, HEADER_LEN, StoredBlock, StoredBlocks, TableProperties, read_table_footer};
use std::ops::Range;

/// Bytes at the end of the file in which index and properties are looked for.
const TAIL_SEARCH: u64 = 1 << 20;

const DATA_START: u64 = HEADER_LEN as u64;

/// How the blocks were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Index,
    Scan,
    Both,
}

/// What to copy.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Where data blocks are, in order; those of an index may be damaged.
    pub(crate) blocks: Vec<Range<u64>>,
    /// Where the data end; `None` when nothing says that.
    pub(crate) data_end: Option<u64>,
    pub(crate) properties: Option<Box<TableProperties>>,
    pub(crate) by: By,
    /// What is wrong with parts that hold no data.
    pub(crate) notes: Vec<String>,
}

/// An index that was read: stretches of data, each with its blocks, or without when they have to be scanned.
type Stretches = Vec<(Range<u64>, Option<Vec<Range<u64>>>)>;

/// Where the end of the table is, by its footer or by a search.
#[derive(Debug, Default)]
struct Tail {
    /// Where the data end, if a footer says that.
    data_end: Option<u64>,
    /// No data are behind this.
    limit: u64,
    stretches: Option<Stretches>,
    properties: Option<Box<TableProperties>>,
    notes: Vec<String>,
}

/// Looks for the data blocks of the table with this id.
pub(crate) fn plan(target: &Target, store_id: u128, number: FileNumber) -> Plan {
    let blocks = StoredBlocks::new(target.file.clone(), target.path.clone(), store_id, number);
    let context = Context::new(store_id, number);
    let mut scanner = Scanner::new(&*target.file, target.size, &blocks, context);
    let mut tail = match read_table_footer(&target.file, &target.path) {
        Ok(footer) if (footer.store_id, footer.number) == (store_id, number) => by_footer(&blocks, &footer),
        Ok(_) => by_search(&mut scanner, &blocks, target.size, "the footer is another table's".to_owned()),
        Err(error) => by_search(&mut scanner, &blocks, target.size, error.to_string()),
    };
    let mut plan = Plan {
        blocks: Vec::new(),
        data_end: tail.data_end,
        properties: None,
        by: By::Index,
        notes: std::mem::take(&mut tail.notes),
    };
    let stretches = match tail.stretches.take() {
        Some(stretches) => {
            plan.data_end = plan.data_end.or(stretches.last().map(|(range, _)| range.end));
            if stretches.iter().any(|(_, blocks)| blocks.is_none()) {
                plan.by = By::Both;
            }
            stretches
        }
        None => {
            plan.by = By::Scan;
            vec![(DATA_START..tail.limit.max(DATA_START), None)]
        }
    };
    for (stretch, known) in stretches {
        match known {
            Some(known) => plan.blocks.extend(known),
            None => {
                let is_last = plan.data_end.is_none_or(|end| end == stretch.end);
                let scanned = scanner.scan(stretch);
                plan.blocks.extend(scanned.blocks);
                if is_last && scanned.data_end.is_some() {
                    plan.data_end = scanned.data_end;
                }
            }
        }
    }
    plan.properties = tail.properties.or_else(|| scanner.properties_behind(plan.data_end?, target.size));
    plan.properties = plan.properties.filter(|found| (found.store_id, found.number) == (store_id, number));
    if plan.properties.is_none() {
        plan.notes.push("the properties can't be read".to_owned());
    }
    plan
}

fn by_footer(blocks: &StoredBlocks, footer: &Footer) -> Tail {
    let mut tail =
        Tail { data_end: Some(footer.filter_offset), limit: footer.filter_offset, ..Tail::default() };
    if let Ok(StoredBlock::Properties(properties)) =
        blocks.classify(footer.properties_offset(), u64::from(footer.properties_len))
    {
        tail.properties = Some(properties);
    }
    if footer.filter_len > 0
        && let Err(error) = blocks.classify(footer.filter_offset, u64::from(footer.filter_len))
    {
        tail.notes.push(format!("filter: {error}"));
    }
    let index = footer.index_offset()..footer.properties_offset();
    let partitions = footer.partitions_offset()..footer.index_offset();
    tail.stretches = match footer.partitions_len {
        0 => lens(blocks, &index).and_then(|lens| one_level(&lens, DATA_START, footer.filter_offset)),
        _ => two_levels(blocks, &index, &partitions, Some(footer.filter_offset)),
    };
    match &tail.stretches {
        None => tail.notes.push("the index can't be read; the data were searched for blocks".to_owned()),
        Some(stretches) if stretches.iter().any(|(_, blocks)| blocks.is_none()) => {
            tail.notes
                .push("a part of the index can't be read; its data were searched for blocks".to_owned());
        }
        Some(_) => {}
    }
    tail
}

fn by_search(scanner: &mut Scanner<'_>, blocks: &StoredBlocks, size: u64, why: String) -> Tail {
    let mut tail = Tail { limit: size, notes: vec![why], ..Tail::default() };
    let start = size.saturating_sub(TAIL_SEARCH).max(DATA_START);
    if start >= size {
        return tail;
    }
    let found = scanner.all(start..size);
    for Found { range, content } in found.into_iter().rev() {
        match content {
            StoredBlock::Properties(properties) if tail.properties.is_none() => {
                tail.properties = Some(properties);
            }
            StoredBlock::Index if tail.stretches.is_none() => {
                tail.stretches = searched_index(blocks, &range);
            }
            _ => {}
        }
    }
    if tail.stretches.is_none() {
        tail.notes.push("no index was found; the file was searched for blocks".to_owned());
    }
    tail
}

/// Reads an index that was found, and believes it only if what lies before it fits.
fn searched_index(blocks: &StoredBlocks, index: &Range<u64>) -> Option<Stretches> {
    let is_filter_or_nothing = |start: u64, end: u64| {
        start == end || start < end && matches!(blocks.classify(start, end - start), Ok(StoredBlock::Filter))
    };
    if let Some(lens) = lens(blocks, index) {
        let end = total(&lens)?.checked_add(DATA_START)?;
        let stretches = one_level(&lens, DATA_START, end)?;
        return is_filter_or_nothing(end, index.start).then_some(stretches);
    }
    let uppers = uppers(blocks, index)?;
    let partitions_len = uppers.iter().try_fold(0_u64, |sum, upper| sum.checked_add(upper.0))?;
    let partitions = index.start.checked_sub(partitions_len)?..index.start;
    two_levels(blocks, index, &partitions, None)
}

fn total(lens: &[u64]) -> Option<u64> {
    lens.iter().try_fold(0_u64, |sum, len| sum.checked_add(*len))
}

/// The values of an index block, read by `parse`. None is shorter than a byte, so they are bounded by the block.
fn values<T>(
    blocks: &StoredBlocks,
    range: &Range<u64>,
    parse: fn(&mut Reader<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let mut values = Some(Vec::new());
    let read = blocks.entries(range.start, range.end.checked_sub(range.start)?, &mut |entry| {
        let mut reader = Reader::new(entry.value);
        match (parse(&mut reader).filter(|_| reader.is_empty()), &mut values) {
            (Some(value), Some(values)) => values.push(value),
            _ => values = None,
        }
    });
    read.ok().and(values)
}

/// The stored lengths of the data blocks in an index block of the lowest level.
fn lens(blocks: &StoredBlocks, range: &Range<u64>) -> Option<Vec<u64>> {
    values(blocks, range, |reader| reader.varint().filter(|len| *len >= StoredBlocks::LEN_MIN))
}

/// Stored length of each partition and offset of its first data block.
fn uppers(blocks: &StoredBlocks, range: &Range<u64>) -> Option<Vec<(u64, u64)>> {
    values(blocks, range, |reader| reader.varint().zip(reader.varint()))
}

/// Blocks of these lengths, which must fill the stretch.
fn one_level(lens: &[u64], start: u64, end: u64) -> Option<Stretches> {
    let (blocks, reached) = back_to_back(lens, start)?;
    (reached == end).then(|| vec![(start..end, Some(blocks))])
}

fn back_to_back(lens: &[u64], mut at: u64) -> Option<(Vec<Range<u64>>, u64)> {
    let mut blocks = Vec::with_capacity(lens.len());
    for len in lens {
        let end = at.checked_add(*len)?;
        blocks.push(at..end);
        at = end;
    }
    Some((blocks, at))
}

/// The stretches of the partitions that the upper level names. Without a footer the end of the last one's data is not
/// known, but by itself.
fn two_levels(
    blocks: &StoredBlocks,
    index: &Range<u64>,
    partitions: &Range<u64>,
    data_end: Option<u64>,
) -> Option<Stretches> {
    let uppers = uppers(blocks, index)?;
    let limit = data_end.unwrap_or(partitions.start);
    let mut at = partitions.start;
    let mut stretches = Vec::with_capacity(uppers.len());
    for (number, (len, first)) in uppers.iter().enumerate() {
        let end = at.checked_add(*len).filter(|end| *end <= partitions.end)?;
        let next = uppers.get(number + 1).map(|(_, first)| *first);
        let expected = if number == 0 { DATA_START } else { *first };
        if *first != expected || next.unwrap_or(limit) <= *first || next.unwrap_or(limit) > limit {
            return None;
        }
        let known = lens(blocks, &(at..end)).and_then(|lens| back_to_back(&lens, *first));
        let known = known.filter(|(_, reached)| match next.or(data_end) {
            Some(end) => *reached == end,
            None => *reached <= limit,
        });
        stretches.push(match known {
            Some((blocks, reached)) => (*first..reached, Some(blocks)),
            None => (*first..next.unwrap_or(limit), None),
        });
        at = end;
    }
    (at == partitions.end && !stretches.is_empty()).then_some(stretches)
}
