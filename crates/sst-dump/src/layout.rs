//! `layout`: the sections of a file. They lie back to back and add up to its length; where they do not, that is a fault.

use crate::fault::{Failure, Fault};
use crate::table_info::ratio;
use crate::target::{Kind, Target, foreign};
use crate::wal::{LogContext, LogItem, walk_log};
use esker_sstable::{FOOTER_LEN, HEADER_LEN, OpenTable, TableReader, read_table_footer};
use esker_vfs::Vfs;
use esker_wal::LogKind;
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayoutSection {
    /// What it is.
    pub name: &'static str,
    /// Where it starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub length: u64,
    /// More about it.
    pub detail: String,
}

impl fmt::Display for LayoutSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12} {:>12}  {:<16} {}", self.offset, self.length, self.name, self.detail)
    }
}

/// What came out of a layout.
#[derive(Clone, Debug, Serialize)]
pub struct LayoutSummary {
    /// The kind of file.
    pub kind: Kind,
    /// Its length in bytes, which the sections add up to.
    pub size: u64,
    /// What is wrong.
    pub faults: Vec<Fault>,
}

/// Hands out the sections of a file in order. With `blocks` each data block and each record of a log is one.
///
/// # Errors
///
/// When the file can't be opened or is foreign, and when the visitor fails. Damage is in the answer.
pub fn layout(
    vfs: &dyn Vfs,
    path: &Path,
    blocks: bool,
    visit: &mut dyn FnMut(LayoutSection) -> io::Result<()>,
) -> Result<LayoutSummary, Failure> {
    let target = Target::open(vfs, path)?;
    let mut out = Sections { target: &target, end: 0, faults: Vec::new(), visit };
    match target.kind {
        Kind::Table => table_layout(&mut out, blocks)?,
        Kind::Wal => log_layout(&mut out, LogKind::Wal, blocks)?,
        Kind::Manifest => log_layout(&mut out, LogKind::Manifest, blocks)?,
        Kind::Current | Kind::Lock => out.add("text", target.size, String::new())?,
        Kind::Foreign => return Err(foreign(path).into()),
    }
    if out.end != target.size {
        let what = format!("the sections end at {}, the file has {} bytes", out.end, target.size);
        out.faults.push(Fault::damage(path, out.end, what));
    }
    Ok(LayoutSummary { kind: target.kind, size: target.size, faults: out.faults })
}

struct Sections<'a> {
    target: &'a Target,
    end: u64,
    faults: Vec<Fault>,
    visit: &'a mut dyn FnMut(LayoutSection) -> io::Result<()>,
}

impl Sections<'_> {
    fn add(&mut self, name: &'static str, length: u64, detail: String) -> Result<(), Failure> {
        self.place(LayoutSection { name, offset: self.end, length, detail })
    }

    /// Adds a section whose offset is known; a gap before it, or an overlap, is a fault.
    fn place(&mut self, section: LayoutSection) -> Result<(), Failure> {
        if section.offset != self.end {
            let what = format!("a section starts here, the one before ends at {}", self.end);
            self.faults.push(Fault::damage(&self.target.path, section.offset, what));
        }
        self.end = section.offset.saturating_add(section.length);
        (self.visit)(section).map_err(Failure::Output)
    }
}

fn table_layout(out: &mut Sections<'_>, blocks: bool) -> Result<(), Failure> {
    let target = out.target;
    let open = TableReader::open(Arc::clone(&target.file), target.path.clone(), OpenTable::default());
    let reader = match open {
        Ok(reader) => reader,
        Err(error) => {
            out.faults.push(error.into());
            return closed_table_layout(out);
        }
    };
    let (mut first_block, mut block_count, mut block_end) = (None, 0_usize, 0);
    for section in reader.layout() {
        if section.name == "data block" {
            first_block.get_or_insert(section.offset);
            block_end = section.offset.saturating_add(section.len);
            block_count += 1;
            if blocks {
                let detail = block_detail(out, &reader, block_count - 1, section.detail);
                out.place(LayoutSection {
                    name: section.name,
                    offset: section.offset,
                    length: section.len,
                    detail,
                })?;
            }
            continue;
        }
        if let Some(offset) = first_block.take().filter(|_| !blocks) {
            let (length, detail) = (block_end.saturating_sub(offset), format!("{block_count} blocks"));
            out.place(LayoutSection { name: "data blocks", offset, length, detail })?;
        }
        out.place(LayoutSection {
            name: section.name,
            offset: section.offset,
            length: section.len,
            detail: section.detail,
        })?;
    }
    if let Some(fault) = reader.filter_fault() {
        out.faults.push(fault.into());
    }
    Ok(())
}

fn block_detail(out: &mut Sections<'_>, reader: &TableReader, number: usize, name: String) -> String {
    match reader.dump_block(number, &mut |_| {}) {
        Ok(block) => {
            let kind = block.compression.name();
            let left = 100.0 * ratio(block.stored_len, block.payload_len as u64);
            format!(
                "{name}: {} entries, {} restarts, {} bytes, {kind} ({left:.0} % stored)",
                block.entries, block.restarts, block.payload_len
            )
        }
        Err(error) => {
            let fault = Fault::from(error);
            let detail = format!("{name}: {}", fault.what);
            out.faults.push(fault);
            detail
        }
    }
}

/// A table that does not open: as much as its footer tells.
fn closed_table_layout(out: &mut Sections<'_>) -> Result<(), Failure> {
    let target = out.target;
    let Ok(footer) = read_table_footer(&target.file, &target.path) else {
        return out.add("unknown", target.size, "the footer can't be read".to_owned());
    };
    let data = footer.data();
    let lengths = [
        ("header", HEADER_LEN as u64),
        ("data blocks", data.end.saturating_sub(data.start)),
        ("filter", footer.filter_len.into()),
        ("index partitions", footer.partitions_len.into()),
        ("index", footer.index_len.into()),
        ("properties", footer.properties_len.into()),
        ("footer", FOOTER_LEN as u64),
    ];
    for (name, length) in lengths.into_iter().filter(|(_, length)| *length > 0) {
        out.add(name, length, String::new())?;
    }
    Ok(())
}

/// Records in a row that are shown as one section.
#[derive(Default)]
struct Run {
    offset: u64,
    end: u64,
    records: u64,
    first: u64,
    last: u64,
}

fn log_layout(out: &mut Sections<'_>, kind: LogKind, blocks: bool) -> Result<(), Failure> {
    let target = out.target;
    let mut faults = Vec::new();
    let mut run = Run::default();
    // Bytes that are no record lie between two records, or at the end.
    let mut bad = false;
    let walked = walk_log(target, kind, LogContext::default(), None, &mut |item| {
        let placed = match item {
            LogItem::Header { length, number, .. } => out.add("header", length, format!("number {number}")),
            LogItem::Record { offset, length, kind, first, last, .. } => {
                if blocks || std::mem::take(&mut bad) || run.records == 0 {
                    run.give(out)?;
                    if offset > out.end {
                        out.add("damaged", offset - out.end, String::new()).map_err(output)?;
                    }
                    run = Run { offset, end: offset, records: 0, first, last };
                }
                run.records += 1;
                (run.end, run.last) = (offset.saturating_add(length), last);
                if blocks {
                    run.records = 0;
                    out.place(LayoutSection { name: kind, offset, length, detail: span(first, last) })
                } else {
                    Ok(())
                }
            }
            LogItem::Fault(fault) => {
                bad = true;
                faults.push(fault);
                Ok(())
            }
            LogItem::Discarded { .. } => Ok(()),
            LogItem::End(ending) => {
                run.give(out)?;
                let left = target.size.saturating_sub(out.end);
                let name = if ending.end == crate::wal::Ending::Zeros { "zeros" } else { "damaged" };
                if left > 0 { out.add(name, left, String::new()) } else { Ok(()) }
            }
        };
        placed.map_err(output)
    });
    out.faults.append(&mut faults);
    walked.map(|_| ())
}

impl Run {
    fn give(&mut self, out: &mut Sections<'_>) -> io::Result<()> {
        let Run { offset, end, records, first, last } = std::mem::take(self);
        if records == 0 {
            return Ok(());
        }
        let detail = format!("{records} records, {}", span(first, last));
        let section = LayoutSection { name: "records", offset, length: end.saturating_sub(offset), detail };
        out.place(section).map_err(output)
    }
}

fn span(first: u64, last: u64) -> String {
    if first == last { first.to_string() } else { format!("{first} .. {last}") }
}

/// The error behind a failure that can only be one of the output.
fn output(failure: Failure) -> io::Error {
    match failure {
        Failure::Output(error) => error,
        Failure::Fault(fault) => io::Error::other(fault.to_string()),
    }
}
