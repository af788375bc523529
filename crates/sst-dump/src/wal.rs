//! `wal`: the records of a log segment, with their places, and how the segment ends. Goes on behind damage.

use crate::fault::{Failure, Fault};
use crate::log_ops::Ops;
use crate::target::{Kind, Target, is_directory};
use crate::text::Form;
use esker_base::{Error, FileKind, FileNumber, parse_file_name};
use esker_vfs::{EntryKind, Vfs};
use esker_wal::{
    DumpItem, Fault as LogFault, HeaderFault, LogKind, LogReader, Record, RecordType, dump_segment,
};
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One thing in a log segment, in the order of the file.
#[derive(Debug, Serialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum LogItem<'a> {
    /// The header.
    Header {
        /// Its length in bytes; it starts the file.
        length: u64,
        /// The store, in hexadecimal digits.
        store_id: String,
        /// The number of the segment.
        number: u64,
        /// The number of the segment before; 0 when there is none.
        previous: u64,
        /// Length in bytes of the part of it that counts.
        previous_length: u64,
        /// The last sequence number before this segment.
        previous_last: u64,
    },
    /// A record.
    Record {
        /// Where it starts, in bytes.
        offset: u64,
        /// Its length in bytes, with framing.
        length: u64,
        /// `batch`, `skip` or `edit`.
        kind: &'static str,
        /// Its first sequence number, or edit number.
        first: u64,
        /// The last one.
        last: u64,
        /// How many they are.
        count: u64,
        /// The highest number that was known to be durable when it was written.
        durable: u64,
        /// Its operations, if they were asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        ops: Option<Ops<'a>>,
    },
    /// Something wrong.
    Fault(Fault),
    /// Bytes behind the end that the next segment states: an earlier recovery left them out.
    Discarded {
        /// Where they start.
        offset: u64,
        /// Where the next intact record starts, or the end.
        until: u64,
    },
    /// How the segment ends. Always the last item.
    End(LogEnding),
}

/// How a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogEnding {
    /// In which way.
    pub end: Ending,
    /// Where the last record ends, in bytes.
    pub offset: u64,
    /// Bytes from there to the end of the file.
    pub left: u64,
    /// Records.
    pub records: u64,
}

/// The ways in which a segment ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// With the last record.
    Clean,
    /// With zeros, which were reserved and not written.
    Zeros,
    /// With bytes that are no record and have none behind them: a crash leaves that, and so does damage.
    Torn,
    /// There is damage in it.
    Damaged,
}

impl Ending {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Clean => "clean",
            Ending::Zeros => "zeros",
            Ending::Torn => "torn",
            Ending::Damaged => "damaged",
        }
    }
}

/// Hands out all that is in the log segment at `path`, in order; the last item is the end. With `ops` the operations of
/// batches too, shown in that form.
///
/// # Errors
///
/// When the file is no log segment or can't be opened, and when the visitor fails. Damage is an item.
pub fn wal(
    vfs: &dyn Vfs,
    path: &Path,
    ops: Option<Form>,
    visit: &mut dyn FnMut(LogItem<'_>) -> io::Result<()>,
) -> Result<LogEnding, Failure> {
    let target = Target::open_kind(vfs, path, Kind::Wal, "`info` and `scan` show the others")?;
    let context = LogContext { identity: None, limit: stated_end(vfs, &target) };
    walk_log(&target, LogKind::Wal, context, ops, visit)
}

/// The log segments of a directory, oldest first; of a file, that file.
///
/// # Errors
///
/// When there is nothing, or the directory can't be listed.
pub fn wal_files(vfs: &dyn Vfs, path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !is_directory(vfs, path)? {
        return Ok(vec![path.to_path_buf()]);
    }
    let numbers = segments(vfs, path).map_err(|error| Error::io("list", path, error))?;
    Ok(numbers.into_iter().map(|number| FileKind::Wal.path(path, number)).collect())
}

fn segments(vfs: &dyn Vfs, dir: &Path) -> io::Result<Vec<FileNumber>> {
    let entries = vfs.list(dir)?;
    let regular = entries.iter().filter(|entry| entry.kind == EntryKind::File);
    let mut numbers: Vec<FileNumber> = regular
        .filter_map(|entry| parse_file_name(&entry.name))
        .filter(|(kind, _)| *kind == FileKind::Wal)
        .map(|(_, number)| number)
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Where the next segment, if it lies in the same directory, says that this one ends.
fn stated_end(vfs: &dyn Vfs, target: &Target) -> Option<u64> {
    let number = target.number?;
    let parent = target.path.parent()?;
    let dir = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let later = segments(vfs, dir).ok()?.into_iter().filter(|&later| later > number);
    later
        .filter_map(|later| {
            let path = FileKind::Wal.path(dir, later);
            LogReader::read_header(&*vfs.open(&path).ok()?, &path).ok()?.ok()
        })
        .find(|header| header.previous.number == number)
        .map(|header| header.previous.length)
}

/// What is known about a segment beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogContext {
    /// The store and number to go on with when the header is damaged.
    pub(crate) identity: Option<(u128, FileNumber)>,
    /// Where the next segment says that this one ends.
    pub(crate) limit: Option<u64>,
}

/// Hands out all that is in a log, in order; the last item is the end. Returns the faults too.
pub(crate) fn walk_log(
    target: &Target,
    kind: LogKind,
    context: LogContext,
    ops: Option<Form>,
    visit: &mut dyn FnMut(LogItem<'_>) -> io::Result<()>,
) -> Result<LogEnding, Failure> {
    let mut walk = Walk {
        target,
        kind,
        limit: context.limit.unwrap_or(u64::MAX),
        ops,
        ending: LogEnding { end: Ending::Clean, offset: 0, left: target.size, records: 0 },
        output: None,
        visit,
    };
    let identity = context.identity.map(|(store_id, number)| (kind, store_id, number));
    let dumped = dump_segment(Arc::clone(&target.file), &target.path, identity, |item| walk.item(item));
    if let Some(error) = walk.output {
        return Err(Failure::Output(error));
    }
    if let Err(error) = dumped {
        walk.ending.end = Ending::Damaged;
        (walk.visit)(LogItem::Fault(error.into()))?;
    }
    (walk.visit)(LogItem::End(walk.ending))?;
    Ok(walk.ending)
}

struct Walk<'a> {
    target: &'a Target,
    kind: LogKind,
    limit: u64,
    ops: Option<Form>,
    ending: LogEnding,
    /// Why the visitor can take no more.
    output: Option<io::Error>,
    visit: &'a mut dyn FnMut(LogItem<'_>) -> io::Result<()>,
}

impl Walk<'_> {
    fn item(&mut self, item: DumpItem<'_>) -> Result<(), Error> {
        let path = &self.target.path;
        match item {
            DumpItem::Header(header) => {
                self.ended_at(esker_wal::HEADER_LEN);
                let previous = header.previous;
                self.give(LogItem::Header {
                    length: esker_wal::HEADER_LEN,
                    store_id: format!("{:032x}", header.store_id),
                    number: header.number.0,
                    previous: previous.number.0,
                    previous_length: previous.length,
                    previous_last: previous.last_sequence,
                })?;
                if header.kind != self.kind {
                    self.fault(Fault::damage(path, 0, "it is of another kind of log than its name says"))?;
                }
                if self.target.number.is_some_and(|number| number != header.number) {
                    let what = format!("the header is that of number {}", header.number);
                    self.fault(Fault::damage(path, 0, what))?;
                }
                Ok(())
            }
            // A segment whose header never got to the device.
            DumpItem::HeaderFault(fault @ (HeaderFault::Short { .. } | HeaderFault::Zeros)) => {
                self.ending.end = Ending::Torn;
                self.give(LogItem::Fault(Fault::doubt(path, 0, fault.to_string())))
            }
            DumpItem::HeaderFault(fault) => self.fault(fault.into_error(path).into()),
            DumpItem::Record(record) => self.record(&record),
            DumpItem::OutOfOrder { offset, .. } if offset >= self.limit => Ok(()),
            DumpItem::OutOfOrder { offset, found, expected } => {
                let what = format!("number {found} where {expected} should be");
                self.fault(Fault::damage(path, offset, what))
            }
            DumpItem::Fault { offset, until, .. } if offset >= self.limit => {
                self.give(LogItem::Discarded { offset, until })
            }
            DumpItem::Fault { offset, fault, until, resumed } => {
                self.log_fault(offset, fault, until, resumed)
            }
            DumpItem::End { zeros, .. } => {
                if zeros > 0 {
                    self.ending.end = self.ending.end.max(Ending::Zeros);
                }
                Ok(())
            }
        }
    }

    fn log_fault(&mut self, offset: u64, fault: LogFault, until: u64, resumed: bool) -> Result<(), Error> {
        let path = &self.target.path;
        if resumed {
            let what = format!("{fault}; the next intact record is at {until}");
            return self.fault(Fault::damage(path, offset, what));
        }
        if self.limit < u64::MAX {
            let what = format!("{fault}; the next segment says that this one goes on to {}", self.limit);
            return self.fault(Fault::damage(path, offset, what));
        }
        self.ending.end = self.ending.end.max(Ending::Torn);
        let what = format!("{fault}; no intact record follows: a crash tore it, or it is damaged");
        self.give(LogItem::Fault(Fault::doubt(path, offset, what)))
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let fields = record.fields;
        self.ending.records += 1;
        self.ended_at(record.offset.saturating_add(record.len));
        let kind = match fields.record_type {
            RecordType::Batch => "batch",
            RecordType::Skip => "skip",
            RecordType::Edit => "edit",
        };
        let is_batch = fields.record_type == RecordType::Batch;
        let ops = Ops::new(record.payload, self.ops.unwrap_or_default());
        let fault = if is_batch { ops.fault(fields.count) } else { None };
        self.give(LogItem::Record {
            offset: record.offset,
            length: record.len,
            kind,
            first: fields.first,
            last: fields.last(),
            count: fields.count,
            durable: fields.durable,
            ops: (is_batch && self.ops.is_some()).then_some(ops),
        })?;
        match fault {
            Some(what) => self.fault(Fault::damage(&self.target.path, record.offset, what)),
            None => Ok(()),
        }
    }

    fn ended_at(&mut self, offset: u64) {
        self.ending.offset = offset;
        self.ending.left = self.target.size.saturating_sub(offset);
    }

    fn fault(&mut self, fault: Fault) -> Result<(), Error> {
        self.ending.end = Ending::Damaged;
        self.give(LogItem::Fault(fault))
    }

    fn give(&mut self, item: LogItem<'_>) -> Result<(), Error> {
        (self.visit)(item).map_err(|error| {
            self.output = Some(error);
            // Stops the walk; never seen outside.
            Error::closed()
        })
    }
}

/// One line an item, and one an operation; each ends with a line break.
impl fmt::Display for LogItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LogItem::Header { store_id, number, previous, previous_length, previous_last, .. } => {
                write!(f, "{:>10}  header of {} of store {store_id}", 0, FileNumber(*number))?;
                match previous {
                    0 => writeln!(f, ", the first, after {previous_last}"),
                    _ => writeln!(
                        f,
                        ", after {} with {previous_length} bytes up to {previous_last}",
                        FileNumber(*previous)
                    ),
                }
            }
            LogItem::Record { offset, length, kind, first, last, count, durable, ops } => {
                writeln!(
                    f,
                    "{offset:>10}  {kind} of {length} bytes: {first} .. {last} ({count}), durable {durable}"
                )?;
                ops.iter().flat_map(Ops::iter).try_for_each(|op| writeln!(f, "{:>12}{op}", ""))
            }
            LogItem::Fault(fault) => writeln!(f, "{fault}"),
            LogItem::Discarded { offset, until } => {
                writeln!(f, "{offset:>10}  {} bytes behind the end of the segment", until - offset)
            }
            LogItem::End(ending) => writeln!(f, "{:>10}  {ending}", ending.offset),
        }
    }
}

impl fmt::Display for LogEnding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "end, {}: {} records", self.end.name(), self.records)?;
        match self.left {
            0 => Ok(()),
            left => write!(f, ", {left} bytes after them"),
        }
    }
}
