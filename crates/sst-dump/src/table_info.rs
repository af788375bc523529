//! [`TableInfo`]: what a table says about itself, and where its bytes go.

use crate::fault::Fault;
use crate::target::Target;
use crate::text::{Form, Shown};
use esker_base::{FileNumber, InternalKey};
use esker_sstable::{
    FOOTER_LEN, FilterDump, Footer, HEADER_LEN, OpenTable, TableProperties, TableReader, VERSION,
    read_table_properties,
};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What there is to know about a table. Sizes are in bytes.
#[derive(Clone, Debug, Serialize)]
pub struct TableInfo {
    /// The version of the format.
    pub format_version: u32,
    /// Feature bits that a reader may ignore. Of the others none is defined yet.
    pub optional_features: u32,
    /// The store that the table was written for, in hexadecimal digits.
    pub store_id: String,
    /// The number that the table was written under.
    pub number: u64,
    /// When it was made, in milliseconds since 1970; 0 when that was not to be told.
    pub created_unix_ms: u64,
    /// Name of the order of the keys.
    pub comparator: String,
    /// Entries, by the properties.
    pub entries: u64,
    /// Distinct user keys, by the properties.
    pub user_keys: u64,
    /// Entries by their kind, as counted; `None` when some could not be read.
    pub kinds: Option<BTreeMap<&'static str, u64>>,
    /// Part of the entries that are tombstones, by the properties: 0 to 1.
    pub tombstone_share: f64,
    /// The first user key.
    pub smallest: String,
    /// The last user key.
    pub largest: String,
    /// The smallest sequence number.
    pub smallest_seq: u64,
    /// The largest sequence number.
    pub largest_seq: u64,
    /// Sum of the lengths of the keys, counted for each entry.
    pub raw_key_bytes: u64,
    /// Sum of the lengths of the values.
    pub raw_value_bytes: u64,
    /// The compression that was asked for.
    pub compression: &'static str,
    /// Stored bytes of the data blocks for each byte before compression.
    pub compression_ratio: f64,
    /// Data blocks.
    pub data_blocks: u64,
    /// The block size that was asked for.
    pub block_size: u64,
    /// The restart interval.
    pub restart_interval: u64,
    /// Index partitions; 0 when the index has one level.
    pub index_partitions: u64,
    /// The filter, if there is one that this build can use.
    pub filter: Option<FilterInfo>,
    /// Where the bytes of the file go; they add up to its length.
    pub parts: Vec<Part>,
}

/// What there is to know about a filter.
#[derive(Clone, Debug, Serialize)]
pub struct FilterInfo {
    /// Name of its kind.
    pub kind: &'static str,
    /// Hashes for each key.
    pub hashes: u32,
    /// Bits for each distinct user key, as they are.
    pub bits_per_key: f64,
    /// Part of the bits that are set: 0 to 1.
    pub set_share: f64,
    /// The chance that an absent key passes: 0 to 1.
    pub false_positive_rate: f64,
}

/// One use of bytes of the file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Part {
    /// What they are for.
    pub name: &'static str,
    /// How many. Negative for what compression saved: the parts of the blocks are counted before it.
    pub bytes: i64,
    /// How many for each entry.
    pub bytes_per_entry: f64,
}

impl TableInfo {
    /// Reads all of a table. `None` when its footer or properties can't be read. What is wrong goes to `faults`.
    pub(crate) fn read(target: &Target, form: Form, faults: &mut Vec<Fault>) -> Option<TableInfo> {
        let (footer, properties) = match read_table_properties(&target.file, &target.path) {
            Ok(read) => read,
            Err(error) => {
                faults.push(error.into());
                return None;
            }
        };
        let open = TableReader::open(Arc::clone(&target.file), target.path.clone(), OpenTable::default());
        let reader = match open {
            Ok(reader) => Some(reader),
            Err(error) => {
                faults.push(error.into());
                None
            }
        };
        if let Some(fault) = reader.as_ref().and_then(|reader| reader.filter_fault()) {
            faults.push(fault.into());
        }
        let data_len = footer.filter_offset.saturating_sub(HEADER_LEN as u64);
        let sums = reader.as_ref().map_or(BlockSums { unread: data_len, ..BlockSums::default() }, |reader| {
            BlockSums::measure(reader, faults)
        });
        let filter = reader.as_ref().and_then(|reader| reader.filter_dump());
        let info = TableInfo::new(&footer, &properties, filter, &sums, form);
        let sum = info.parts.iter().fold(0_i64, |sum, part| sum.saturating_add(part.bytes));
        if u64::try_from(sum) != Ok(target.size) {
            let what = format!("the parts of the table add up to {sum} bytes, the file has {}", target.size);
            faults.push(Fault::damage(&target.path, 0, what));
        }
        Some(info)
    }

    fn new(
        footer: &Footer,
        properties: &TableProperties,
        filter: Option<FilterDump>,
        sums: &BlockSums,
        form: Form,
    ) -> TableInfo {
        let key = |key: &InternalKey| shown(&key.user_key, form);
        let entries = properties.entries;
        TableInfo {
            format_version: VERSION,
            optional_features: footer.optional_features,
            store_id: format!("{:032x}", footer.store_id),
            number: footer.number.0,
            created_unix_ms: properties.created_unix_ms,
            comparator: properties.comparator.clone(),
            entries,
            user_keys: properties.user_keys,
            kinds: (sums.unread == 0).then(|| sums.kinds.clone()),
            tombstone_share: ratio(properties.deletes, entries),
            smallest: key(&properties.smallest),
            largest: key(&properties.largest),
            smallest_seq: properties.smallest_seq,
            largest_seq: properties.largest_seq,
            raw_key_bytes: properties.raw_key_bytes,
            raw_value_bytes: properties.raw_value_bytes,
            compression: properties.compression.name(),
            compression_ratio: ratio(sums.stored, sums.payload),
            data_blocks: properties.data_blocks,
            block_size: properties.block_size,
            restart_interval: properties.restart_interval,
            index_partitions: properties.index_partitions,
            filter: filter.map(|filter| FilterInfo::new(&filter, properties.user_keys)),
            parts: parts(footer, sums, entries),
        }
    }
}

impl FilterInfo {
    fn new(filter: &FilterDump, keys: u64) -> Self {
        let bits = 64 * filter.words as u64;
        FilterInfo {
            kind: filter.kind,
            hashes: filter.hashes,
            bits_per_key: ratio(bits, keys),
            set_share: ratio(filter.bits_set, bits),
            false_positive_rate: filter.false_positive_rate(),
        }
    }
}

/// What the data blocks add up to, in bytes.
#[derive(Clone, Debug, Default)]
struct BlockSums {
    lengths: u64,
    seqs: u64,
    keys: u64,
    values: u64,
    /// Restarts, counts and feature byte.
    rest: u64,
    trailers: u64,
    /// Payloads before compression, and as stored.
    payload: u64,
    stored: u64,
    /// Blocks that can't be read.
    unread: u64,
    kinds: BTreeMap<&'static str, u64>,
}

impl BlockSums {
    fn measure(reader: &TableReader, faults: &mut Vec<Fault>) -> Self {
        let mut sums = BlockSums::default();
        let sections: Vec<(u64, u64)> = reader
            .layout()
            .into_iter()
            .filter(|section| section.name == "data block")
            .map(|section| (section.offset, section.len))
            .collect();
        for (number, (_, len)) in sections.into_iter().enumerate() {
            // A damaged block counts as a whole, whatever was read of it before the damage.
            let mut with_block = sums.clone();
            match with_block.add(reader, number) {
                Ok(()) => sums = with_block,
                Err(error) => {
                    sums.unread += len;
                    faults.push(error.into());
                }
            }
        }
        sums
    }

    fn add(&mut self, reader: &TableReader, number: usize) -> esker_base::Result<()> {
        let mut entry_bytes = 0;
        let block = reader.dump_block(number, &mut |entry| {
            let key = entry.key.user_key.len().saturating_sub(entry.shared);
            self.lengths += entry.header_len.saturating_sub(entry.seq_len) as u64;
            self.seqs += entry.seq_len as u64;
            self.keys += key as u64;
            self.values += entry.value.len() as u64;
            entry_bytes += (entry.header_len + key + entry.value.len()) as u64;
            *self.kinds.entry(entry.key.kind.name()).or_default() += 1;
        })?;
        let (payload, trailer) = (block.payload_len as u64, TableReader::BLOCK_TRAILER_LEN as u64);
        self.rest += payload.saturating_sub(entry_bytes);
        self.trailers += trailer;
        self.payload += payload;
        self.stored += block.stored_len.saturating_sub(trailer);
        Ok(())
    }
}

fn parts(footer: &Footer, sums: &BlockSums, entries: u64) -> Vec<Part> {
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let saved = signed(sums.stored) - signed(sums.payload);
    let mut parts = vec![
        ("header", HEADER_LEN as i64),
        ("key and value lengths", signed(sums.lengths)),
        ("sequences and kinds", signed(sums.seqs)),
        ("keys, unshared", signed(sums.keys)),
        ("values", signed(sums.values)),
        ("restarts and counts", signed(sums.rest)),
        ("block trailers", signed(sums.trailers)),
        ("saved by compression", saved),
        ("unreadable blocks", signed(sums.unread)),
        ("filter", footer.filter_len.into()),
        ("index partitions", footer.partitions_len.into()),
        ("index", footer.index_len.into()),
        ("properties", footer.properties_len.into()),
        ("footer", FOOTER_LEN as i64),
    ];
    parts.retain(|(name, bytes)| {
        *bytes != 0 || !matches!(*name, "saved by compression" | "unreadable blocks" | "index partitions")
    });
    let part = |(name, bytes): (_, i64)| Part {
        name,
        bytes,
        bytes_per_entry: round(bytes as f64 / entries.max(1) as f64),
    };
    parts.into_iter().map(part).collect()
}

/// A part of a whole, with four digits; 0 of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { round(part as f64 / whole as f64) }
}

fn round(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

pub(crate) fn shown(bytes: &[u8], form: Form) -> String {
    match serde_json::to_value(Shown::new(bytes, form)) {
        Ok(serde_json::Value::String(text)) => text,
        _ => String::new(),
    }
}

impl fmt::Display for TableInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, text: fmt::Arguments<'_>| writeln!(f, "  {name:<14}{text}");
        line(
            "format",
            format_args!("version {}, optional features {:#x}", self.format_version, self.optional_features),
        )?;
        line("table", format_args!("{} of store {}", FileNumber(self.number), self.store_id))?;
        match self.created_unix_ms {
            0 => line("created", format_args!("not told"))?,
            millis => line("created", format_args!("{}", Utc(millis)))?,
        }
        let Self { entries, user_keys, .. } = self;
        let tombstones = 100.0 * self.tombstone_share;
        line("entries", format_args!("{entries} of {user_keys} keys, {tombstones:.2} % tombstones"))?;
        for (kind, count) in self.kinds.iter().flatten() {
            line("", format_args!("{count} {kind}"))?;
        }
        line("keys", format_args!("\"{}\" .. \"{}\", {}", self.smallest, self.largest, self.comparator))?;
        line("sequences", format_args!("{} .. {}", self.smallest_seq, self.largest_seq))?;
        let ratio = 100.0 * self.compression_ratio;
        line("compression", format_args!("{}, {ratio:.2} % of the data are left", self.compression))?;
        let Self { data_blocks, block_size, restart_interval, .. } = self;
        line(
            "blocks",
            format_args!("{data_blocks}, {block_size} bytes aimed at, a restart every {restart_interval}"),
        )?;
        match &self.filter {
            None => line("filter", format_args!("none"))?,
            Some(filter) => line(
                "filter",
                format_args!(
                    "{}, {} hashes, {:.2} bits a key, {:.2} % set, {:.2} % of absent keys pass",
                    filter.kind,
                    filter.hashes,
                    filter.bits_per_key,
                    100.0 * filter.set_share,
                    100.0 * filter.false_positive_rate
                ),
            )?,
        }
        writeln!(f, "  {:<26}{:>14}{:>12}{:>11}", "where the bytes go", "bytes", "per entry", "share")?;
        let total = self.parts.iter().fold(0_i64, |sum, part| sum.saturating_add(part.bytes));
        for part in &self.parts {
            let share = 100.0 * part.bytes as f64 / total.max(1) as f64;
            writeln!(
                f,
                "    {:<24}{:>14}{:>12.3}{share:>9.2} %",
                part.name, part.bytes, part.bytes_per_entry
            )?;
        }
        let per_entry = total as f64 / (*entries).max(1) as f64;
        writeln!(f, "    {:<24}{total:>14}{per_entry:>12.3}", "all")
    }
}

/// A time as people write it, in UTC.
struct Utc(u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / 1000;
        let (days, second) = (seconds / 86_400, seconds % 86_400);
        // Years start in March, so that leap days come last; an era has 400 years.
        let day = days + 719_468;
        let (era, day_of_era) = (day / 146_097, day % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_767_225_599_999, "2025-12-31 23:59:59 UTC"),
            (4_107_542_400_000, "2100-03-01 00:00:00 UTC"),
        ];
        for (millis, text) in known {
            assert_eq!(Utc(millis).to_string(), text);
        }
        // No time that a file can claim is too large.
        let _ = Utc(u64::MAX).to_string();
    }
}
