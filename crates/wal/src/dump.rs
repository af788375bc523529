//! [`dump_segment`]: everything that is in a segment, damaged or not, for the inspection tool.
//!
//! Goes on behind damage, reports every fault with its place, and judges nothing: whether a fault is a torn tail or a
//! loss takes the other segments and the manifest ([`recover`](crate::recover)). Prints nothing.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use esker_base::{Error, FileNumber, Result, SequenceNumber};
use esker_vfs::RandomAccessFile;

use crate::header::{HeaderFault, LogKind, SegmentHeader};
use crate::reader::{LogEnd, LogReader};
use crate::record::{Fault, Record, RecordContext};

/// One thing found in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpItem<'a> {
    /// The header.
    Header(SegmentHeader),
    /// There is no intact header.
    HeaderFault(HeaderFault),
    /// An intact record.
    Record(Record<'a>),
    /// The record that comes next does not continue the one before (W4). Also reported behind a fault.
    OutOfOrder {
        /// Where the record starts.
        offset: u64,
        /// Its first number.
        found: SequenceNumber,
        /// The number that should come.
        expected: SequenceNumber,
    },
    /// Bytes that are no record.
    Fault {
        /// Where they start.
        offset: u64,
        /// What they are.
        fault: Fault,
        /// Where the next intact record starts; the end of the segment when there is none.
        until: u64,
        /// Whether there is one.
        resumed: bool,
    },
    /// The end, with the number of zeros before it.
    End {
        /// Where the last record (or fault) ends.
        offset: u64,
        /// Zeros from there to the end of the file.
        zeros: u64,
    },
}

/// The sums over a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentSummary {
    /// Length of the file in bytes.
    pub file_len: u64,
    /// Intact records.
    pub records: u64,
    /// Bytes of them, framing included.
    pub record_bytes: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Faults: a bad header, bytes that are no record, numbers out of order.
    pub faults: u64,
    /// First number of the first intact record.
    pub first: Option<SequenceNumber>,
    /// Last number of the last intact record.
    pub last: Option<SequenceNumber>,
    /// The highest number that a record says was durable when it was written.
    pub durable: SequenceNumber,
}

/// Hands everything in a segment to `visit`, in the order of the file.
///
/// `identity` stands in for kind, store id and number when the header is damaged; without it nothing can be read then.
/// An intact header wins.
///
/// # Errors
///
/// A failed read, `UnsupportedFormat` for a record of an unknown type, and what `visit` returns. Damage is no error.
pub fn dump_segment(
    file: Arc<dyn RandomAccessFile>,
    path: &Path,
    identity: Option<(LogKind, u128, FileNumber)>,
    mut visit: impl FnMut(DumpItem<'_>) -> Result<()>,
) -> Result<SegmentSummary> {
    let file_len = file.len().map_err(|error| Error::io("read the length of", path, error))?;
    let mut summary = SegmentSummary { file_len, ..SegmentSummary::default() };
    let mut expected = None;
    let identity = match LogReader::read_header(&*file, path)? {
        Ok(header) => {
            visit(DumpItem::Header(header))?;
            expected = Some(header.previous.last_sequence + 1);
            Some((header.kind, header.store_id, header.number))
        }
        Err(fault) => {
            summary.faults += 1;
            visit(DumpItem::HeaderFault(fault))?;
            identity
        }
    };
    if let Some((kind, store_id, number)) = identity {
        let mut reader = LogReader::new(file, path, RecordContext::new(kind, store_id, number))?;
        dump_records(&mut reader, expected, &mut summary, &mut visit)?;
    }
    Ok(summary)
}

fn dump_records(
    reader: &mut LogReader,
    mut expected: Option<SequenceNumber>,
    summary: &mut SegmentSummary,
    visit: &mut dyn FnMut(DumpItem<'_>) -> Result<()>,
) -> Result<()> {
    loop {
        while let Some(record) = reader.next_record()? {
            let found = record.fields.first;
            if let Some(expected) = expected.filter(|&expected| expected != found) {
                summary.faults += 1;
                visit(DumpItem::OutOfOrder { offset: record.offset, found, expected })?;
            }
            expected = Some(record.fields.last() + 1);
            summary.add(&record);
            visit(DumpItem::Record(record))?;
        }
        match reader.end() {
            Some(LogEnd::Faulty { offset, fault }) => {
                let resumed_at = reader.resync()?;
                let until = resumed_at.unwrap_or(reader.limit());
                summary.faults += 1;
                visit(DumpItem::Fault { offset, fault, until, resumed: resumed_at.is_some() })?;
                if resumed_at.is_none() {
                    return visit(DumpItem::End { offset: until, zeros: 0 });
                }
            }
            Some(LogEnd::Clean { offset, zeros }) => return visit(DumpItem::End { offset, zeros }),
            None => return Ok(()),
        }
    }
}

impl SegmentSummary {
    fn add(&mut self, record: &Record<'_>) {
        self.records += 1;
        self.record_bytes += record.len;
        self.payload_bytes += record.payload.len() as u64;
        self.first.get_or_insert(record.fields.first);
        self.last = Some(record.fields.last());
        self.durable = self.durable.max(record.fields.durable);
    }
}
