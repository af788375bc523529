//! [`Replay`]: hands out the records of a chain, in order, up to the first that can't be read.

#![deny(clippy::indexing_slicing, clippy::unwrap_used)]

use std::path::PathBuf;

use esker_base::{BatchReader, Error, Result, SequenceNumber};
use esker_vfs::Vfs;

use super::RecoverOptions;
use super::chain::{Chain, Link, LinkFault};
use crate::header::{HeaderFault, LogKind, SegmentEnd, SegmentHeader};
use crate::reader::{LogEnd, LogReader};
use crate::record::{Fault, Record, RecordContext, RecordType};

/// Where and why the replay stopped before the end of the log.
#[derive(Clone, Debug)]
pub(super) struct Stop {
    /// The first sequence number that can't be read.
    pub(super) next: SequenceNumber,
    /// Which link of the chain; its number of links when the log just ends.
    pub(super) link: usize,
    pub(super) file: PathBuf,
    pub(super) offset: u64,
    pub(super) what: String,
    /// No crash leaves this, so it is damage without further proof.
    pub(super) certain: bool,
}

/// The state of a replay.
pub(super) struct Replay<'a> {
    vfs: &'a dyn Vfs,
    options: &'a RecoverOptions,
    chain: &'a Chain,
    /// The sequence number that the next record must have.
    next: SequenceNumber,
    /// End of the good part of the log so far.
    pub(super) end: SegmentEnd,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// The highest durable sequence that a record stated.
    pub(super) durable: SequenceNumber,
}

impl<'a> Replay<'a> {
    pub(super) fn new(vfs: &'a dyn Vfs, options: &'a RecoverOptions, chain: &'a Chain) -> Self {
        let first = chain.links.iter().find_map(|link| link.header.as_ref().ok());
        let last = first.map_or(SequenceNumber::MAX, |header| header.previous.last_sequence);
        let last = last.min(options.first_needed.saturating_sub(1));
        Replay {
            vfs,
            options,
            chain,
            next: last + 1,
            end: SegmentEnd::none(last),
            records: 0,
            bytes: 0,
            durable: 0,
        }
    }

    /// Replays the chain; says where it stopped before its end.
    pub(super) fn run(&mut self, visit: &mut dyn FnMut(Record<'_>) -> Result<()>) -> Result<Option<Stop>> {
        for (index, link) in self.chain.links.iter().enumerate() {
            let stop = match self.check_link(link) {
                Ok(header) => self.replay_segment(index, link, header, visit)?,
                Err((what, certain)) => Some((0, what, certain)),
            };
            if let Some((offset, what, certain)) = stop {
                let file = link.path.clone();
                return Ok(Some(Stop { next: self.next, link: index, file, offset, what, certain }));
            }
        }
        Ok(self.check_whole())
    }

    /// The header of a link, when the segment continues what was replayed; else what is wrong, and whether that is
    /// certainly damage.
    fn check_link(&self, link: &'a Link) -> Result<&'a SegmentHeader, (String, bool)> {
        let header = match &link.header {
            Ok(header) => header,
            Err(LinkFault::Missing) => return Err(("the segment is missing".to_owned(), false)),
            Err(LinkFault::Header(fault)) => {
                let certain =
                    matches!(fault, HeaderFault::Foreign(_) | HeaderFault::Field(_) | HeaderFault::Magic(_));
                return Err((fault.to_string(), certain));
            }
        };
        let previous = header.previous;
        if previous.last_sequence + 1 != self.next {
            let what = format!(
                "the segment starts at sequence {}, but {} comes next",
                previous.last_sequence + 1,
                self.next
            );
            // Before the first segment, older ones may be missing. Between two, lengths matched and numbers do not.
            return Err((what, self.end.number.0 != 0));
        }
        Ok(header)
    }

    /// Replays one segment; returns offset, reason and certainty of a stop.
    fn replay_segment(
        &mut self,
        index: usize,
        link: &Link,
        header: &SegmentHeader,
        visit: &mut dyn FnMut(Record<'_>) -> Result<()>,
    ) -> Result<Option<(u64, String, bool)>> {
        let file = self.vfs.open(&link.path).map_err(|error| Error::io("open", &link.path, error))?;
        let context = RecordContext::new(LogKind::Wal, header.store_id, header.number);
        let mut reader = LogReader::new(file, &link.path, context)?;
        let stated_end = self.stated_end(index, header);
        reader.set_limit(stated_end.unwrap_or(u64::MAX));
        self.end.number = header.number;
        self.end.length = crate::HEADER_LEN;
        while let Some(record) = reader.next_record()? {
            if let Some(what) = self.record_fault(&record) {
                return Ok(Some((record.offset, what, true)));
            }
            self.durable = self.durable.max(record.fields.durable);
            self.next = record.fields.last() + 1;
            self.end.last_sequence = record.fields.last();
            self.end.length = record.offset + record.len;
            if record.fields.last() >= self.options.first_needed {
                self.records += 1;
                self.bytes += record.len;
                visit(record)?;
            }
        }
        Ok(reader.end().and_then(|end| end_fault(end, stated_end)))
    }

    /// The length of the segment at `index`, when its successor states it.
    fn stated_end(&self, index: usize, header: &SegmentHeader) -> Option<u64> {
        let next = self.chain.links.get(index + 1)?.header.as_ref().ok()?;
        (next.previous.number == header.number).then_some(next.previous.length)
    }

    /// What is wrong with an intact record: its numbers (W4), or its content.
    fn record_fault(&self, record: &Record<'_>) -> Option<String> {
        if record.fields.first != self.next {
            let kind = if record.fields.first > self.next { "a gap" } else { "a repeat" };
            return Some(format!("{kind}: sequence {}, but {} comes next", record.fields.first, self.next));
        }
        if record.fields.last() > self.options.last_max {
            return Some(format!("sequence {} is out of reach of any database", record.fields.last()));
        }
        if record.fields.record_type != RecordType::Batch {
            return None;
        }
        let mut operations = 0_u64;
        for operation in BatchReader::new(record.payload) {
            if let Err(at) = operation {
                return Some(format!(
                    "operation {operations} of the batch can't be decoded (payload byte {at})"
                ));
            }
            operations += 1;
        }
        (operations != record.fields.count)
            .then(|| format!("a batch of {operations} operations, its record says {}", record.fields.count))
    }

    /// At the end of all segments: the manifest may know that there was more.
    fn check_whole(&self) -> Option<Stop> {
        if self.options.durable < self.next || self.next < self.options.first_needed {
            return None;
        }
        let file = self.chain.links.last().map_or(&self.options.dir, |link| &link.path).clone();
        Some(Stop {
            next: self.next,
            link: self.chain.links.len(),
            file,
            offset: self.end.length,
            what: format!("the log ends before sequence {}", self.next),
            certain: false,
        })
    }
}

/// Whether a segment did not end where and how it should.
fn end_fault(end: LogEnd, stated_end: Option<u64>) -> Option<(u64, String, bool)> {
    match (end, stated_end) {
        (LogEnd::Faulty { offset, fault }, _) => {
            Some((offset, fault.to_string(), matches!(fault, Fault::Field(_))))
        }
        (LogEnd::Clean { offset, .. }, Some(stated)) if offset != stated => {
            Some((offset, format!("the segment ends here, its successor says at {stated}"), false))
        }
        (LogEnd::Clean { .. }, _) => None,
    }
}
