//! [`LogReader`]: reads the records of one segment, and says exactly how it ended. Recovery, the manifest and the dump
//! use it; each has its own rules for what an end means.
//!
//! Reads in chunks, whatever the size of a record. A record longer than a chunk is read only after the check of its
//! length matched and the length fits the file, and one of many megabytes is held in memory only after its checksum matched:
//! a file may be a hole, or made by a stranger. A failed read is an error, never an end (W3).

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::{Error, Result};
use esker_vfs::{RandomAccessFile, Vfs};

use crate::header::{HEADER_LEN, HeaderFault, LogKind, SegmentHeader};
use crate::record::{
    Fault, Head, MAX_HEAD_LEN, MIN_RECORD_LEN, Record, RecordContext, RecordFields, decode_body, decode_head,
    may_start,
};

/// Bytes asked of the file at a time.
const CHUNK_LEN: usize = 256 << 10;
/// The checksum of a longer record is computed before memory is taken for it: that record is read twice.
const TRUSTED_LEN: usize = 16 << 20;
/// Bytes that a search may read in vain beside a quarter of the segment, and at most. Of random bytes one in 2^24 looks like a
/// record.
const SEARCH_MIN: u64 = 1 << 20;
const SEARCH_MAX: u64 = 1 << 30;
/// A buffer that a large record left is given back above this size.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

/// How the readable records of a segment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// At the end of the segment, or in zeros that go on to its end.
    Clean {
        /// Where the last record ends.
        offset: u64,
        /// How many zeros follow.
        zeros: u64,
    },
    /// Something else is there: the end that a crash left, or damage. The bytes alone don't tell which.
    Faulty {
        /// Where the next record should be.
        offset: u64,
        /// What is there instead.
        fault: Fault,
    },
}

impl LogEnd {
    /// Where the last readable record ends.
    pub fn offset(&self) -> u64 {
        match *self {
            LogEnd::Clean { offset, .. } | LogEnd::Faulty { offset, .. } => offset,
        }
    }
}

/// Reads the records of one segment in order.
#[derive(Debug)]
pub struct LogReader {
    file: Arc<dyn RandomAccessFile>,
    path: PathBuf,
    context: RecordContext,
    /// Length of the file, or of the part that counts.
    limit: u64,
    /// Where the next record should be.
    position: u64,
    /// Bytes of the file from `position` on: `buffer[start..filled]`. What is behind them is left of other chunks.
    buffer: Vec<u8>,
    start: usize,
    filled: usize,
    end: Option<LogEnd>,
    /// Bytes of what looked like a record and was none that searches may still spend: so all that is read is linear in the
    /// length, whatever the bytes are.
    search_budget: u64,
}

impl LogReader {
    /// Opens a segment and reads its header. For a log whose header must be right, such as the manifest.
    ///
    /// `Corruption` when the header is damaged, cut short, or of another kind of log; `UnsupportedFormat` when it is
    /// of another version. Store and number are for the caller to compare.
    pub fn open(vfs: &dyn Vfs, path: &Path, kind: LogKind) -> Result<(SegmentHeader, LogReader)> {
        let file = vfs.open(path).map_err(|error| Error::io("open", path, error))?;
        let header = Self::read_header(&*file, path)?;
        let header = header
            .and_then(|header| match header.kind == kind {
                true => Ok(header),
                false => Err(HeaderFault::Foreign("it is of another kind of log")),
            })
            .map_err(|fault| fault.into_error(path))?;
        let context = RecordContext::new(kind, header.store_id, header.number);
        let reader = LogReader::new(file, path, context)?;
        Ok((header, reader))
    }

    /// Reads records after the header, which is not looked at. Fails only when the file's length can't be had.
    pub fn new(file: Arc<dyn RandomAccessFile>, path: &Path, context: RecordContext) -> Result<LogReader> {
        let limit = file.len().map_err(|error| Error::io("read the length of", path, error))?;
        Ok(LogReader {
            file,
            path: path.to_path_buf(),
            context,
            limit,
            position: HEADER_LEN,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            end: None,
            search_budget: (limit / 4).saturating_add(SEARCH_MIN).min(SEARCH_MAX),
        })
    }

    /// Reads the header of a segment. The outer error is a failed read.
    pub fn read_header(
        file: &dyn RandomAccessFile,
        path: &Path,
    ) -> Result<Result<SegmentHeader, HeaderFault>> {
        let mut bytes = [0; 64];
        let read = file.read_at(0, &mut bytes).map_err(|error| Error::io("read", path, error))?;
        Ok(SegmentHeader::decode(bytes.get(..read).unwrap_or_default()))
    }

    /// Leaves out what the file has from `limit` on. For a segment whose successor says where it ends (W11). To be
    /// called before the first record is read.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = self.limit.min(limit);
    }

    /// Reads from `offset` on, not from the end of the header. To be called before the first record is read.
    pub fn start_at(&mut self, offset: u64) {
        self.position = offset;
    }

    /// The next record, or `None` at the end: see [`end`](Self::end).
    ///
    /// # Errors
    ///
    /// A failed read; `UnsupportedFormat` for an intact record of a type that this build doesn't know. The reader must
    /// not be used after an error.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if self.end.is_some() {
            return Ok(None);
        }
        match self.read_record()? {
            Ok((fields, payload)) => {
                let len = u64::try_from(payload.end).unwrap_or(u64::MAX);
                let payload = self.advance(payload);
                let offset = self.position.saturating_sub(len);
                let payload = self.buffer.get(payload).unwrap_or_default();
                Ok(Some(Record { offset, len, fields, payload }))
            }
            Err(Fault::UnknownType(number)) => Err(self.unknown_type(number)),
            Err(fault) => {
                self.end = Some(self.classify(fault)?);
                Ok(None)
            }
        }
    }

    /// How the records ended, once [`next_record`](Self::next_record) has returned `None`.
    pub fn end(&self) -> Option<LogEnd> {
        self.end
    }

    /// After a faulty end: looks for the next intact record behind it, and goes on reading there. Returns its offset.
    ///
    /// Takes time linear in the bytes looked at: the check of a record's length holds only for real records, and a file
    /// that was built to pass it at many places runs into a limit, which is reported as `Corruption`.
    pub fn resync(&mut self) -> Result<Option<u64>> {
        let Some(LogEnd::Faulty { .. }) = self.end else { return Ok(None) };
        self.fill(1)?;
        self.skip(1);
        while self.fill(MIN_RECORD_LEN)? {
            let step = match self.window().windows(8).position(|bytes| may_start(&self.context, bytes)) {
                Some(0) if self.is_record()? => {
                    self.end = None;
                    return Ok(Some(self.position));
                }
                Some(0) => 1,
                Some(step) => step,
                None => self.window().len().saturating_sub(7),
            };
            self.skip(step);
            self.skip_hole()?;
        }
        Ok(None)
    }

    /// Goes over a hole of the file while searching: no record starts in it, and a file may claim any length.
    fn skip_hole(&mut self) -> Result<()> {
        if self.window().iter().any(|&byte| byte != 0) {
            return Ok(());
        }
        let next =
            self.file.next_data(self.position).map_err(|error| Error::io("read", &self.path, error))?;
        // The type of a record is not 0, and 6 bytes behind its start.
        let next = next.min(self.limit).saturating_sub(7);
        if next > self.position {
            self.position = next;
            (self.start, self.filled) = (0, 0);
        }
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes of the part that is read.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Decodes the record at `position`; the range is that of the payload from there.
    fn read_record(&mut self) -> Result<Result<(RecordFields, Range<usize>), Fault>> {
        self.fill(MAX_HEAD_LEN)?;
        let head = match decode_head(&self.context, self.position, self.window(), self.left()) {
            Ok(head) => head,
            Err(fault) => return Ok(Err(fault)),
        };
        if head.body.end > TRUSTED_LEN
            && let Some(fault) = head.fault(&self.context, self.checksum_ahead(&head)?)
        {
            return Ok(Err(fault));
        }
        if !self.fill(head.body.end)? {
            return Ok(Err(Fault::PastEnd { left: self.left() }));
        }
        let record = self.window().get(..head.body.end).unwrap_or_default();
        Ok(decode_body(&self.context, head, record))
    }

    /// Whether an intact record, of whatever type, is at `position`. Spends from the budget.
    fn is_record(&mut self) -> Result<bool> {
        self.fill(MAX_HEAD_LEN)?;
        let Ok(head) = decode_head(&self.context, self.position, self.window(), self.left()) else {
            return Ok(false);
        };
        let cost = u64::try_from(head.body.end).unwrap_or(u64::MAX);
        if cost > self.search_budget && head.body.end <= TRUSTED_LEN {
            return Err(self.too_many_heads());
        }
        if matches!(self.read_record()?, Ok(_) | Err(Fault::UnknownType(_))) {
            return Ok(true);
        }
        self.search_budget = self.search_budget.checked_sub(cost).ok_or_else(|| self.too_many_heads())?;
        Ok(false)
    }

    #[cold]
    fn too_many_heads(&self) -> Error {
        Error::corruption(&self.path, self.position, "more record heads than a log can hold")
    }

    /// The checksum of the record at `position`, in pieces: nothing of it is kept, and holes are not read.
    fn checksum_ahead(&self, head: &Head) -> Result<u32> {
        let failed = |error| Error::io("read", &self.path, error);
        let place = |at: usize| self.position.saturating_add(u64::try_from(at).unwrap_or(u64::MAX));
        let (mut at, end) = (place(head.body.start), place(head.body.end));
        let mut checksum = head.checksum.clone();
        let mut piece = vec![0; CHUNK_LEN];
        while at < end {
            let data = self.file.next_data(at).map_err(failed)?.clamp(at, end);
            let hole = data > at;
            let len = if hole { data.saturating_sub(at) } else { end.saturating_sub(at) };
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(CHUNK_LEN);
            let bytes = piece.get_mut(..len).unwrap_or_default();
            if hole {
                bytes.fill(0);
            } else {
                self.file.read_exact_at(at, bytes).map_err(failed)?;
            }
            checksum = checksum.bytes(bytes);
            at = at.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
        }
        Ok(checksum.finish())
    }

    /// Tells zeros up to the end from other ends.
    fn classify(&mut self, fault: Fault) -> Result<LogEnd> {
        let offset = self.position;
        if offset >= self.limit {
            return Ok(LogEnd::Clean { offset, zeros: 0 });
        }
        let mut position = offset;
        loop {
            let window = self.window();
            let zeros = window.iter().take_while(|&&byte| byte == 0).count();
            let all = zeros == window.len();
            position = position.saturating_add(u64::try_from(zeros).unwrap_or(u64::MAX));
            if !all {
                break;
            }
            self.skip(zeros);
            // A hole is not read: a file may claim any length.
            let next = self.file.next_data(position).map_err(|error| Error::io("read", &self.path, error))?;
            if next > position {
                position = next.min(self.limit);
                self.position = position;
                (self.start, self.filled) = (0, 0);
            }
            if !self.fill(1)? {
                break;
            }
        }
        self.seek(offset);
        let zeros = position.saturating_sub(offset);
        Ok(if position >= self.limit {
            LogEnd::Clean { offset, zeros }
        } else if zeros >= 8 {
            LogEnd::Faulty { offset, fault: Fault::Zeros { until: position } }
        } else {
            LogEnd::Faulty { offset, fault }
        })
    }

    #[cold]
    fn unknown_type(&self, number: u8) -> Error {
        let fault = Fault::UnknownType(number);
        Error::unsupported(&self.path, format!("{fault} (offset {})", self.position))
    }

    /// Bytes from `position` to the end.
    fn left(&self) -> u64 {
        self.limit.saturating_sub(self.position)
    }

    /// The buffered bytes from `position` on.
    fn window(&self) -> &[u8] {
        self.buffer.get(self.start..self.filled).unwrap_or_default()
    }

    /// Goes behind a record, and returns where its payload is in the buffer.
    fn advance(&mut self, payload: Range<usize>) -> Range<usize> {
        let start = self.start;
        self.skip(payload.end);
        start.saturating_add(payload.start)..start.saturating_add(payload.end)
    }

    /// Goes forward by at most the buffered bytes.
    fn skip(&mut self, len: usize) {
        let len = len.min(self.window().len());
        self.start = self.start.saturating_add(len);
        self.position = self.position.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
    }

    /// Goes to `position`; the buffer is kept where it covers the place.
    fn seek(&mut self, position: u64) {
        let back = self.position.saturating_sub(position);
        match usize::try_from(back).ok().and_then(|back| self.start.checked_sub(back)) {
            Some(start) => self.start = start,
            None => {
                (self.start, self.filled) = (0, 0);
            }
        }
        self.position = position;
    }

    /// Makes sure that at least `wanted` bytes from `position` on are buffered; false when fewer are left, which are
    /// buffered then.
    fn fill(&mut self, wanted: usize) -> Result<bool> {
        let have = self.window().len();
        if have >= wanted {
            return Ok(true);
        }
        self.buffer.copy_within(self.start..self.filled, 0);
        (self.start, self.filled) = (0, have);
        let have_bytes = u64::try_from(have).unwrap_or(u64::MAX);
        let missing = self.left().saturating_sub(have_bytes);
        let missing = usize::try_from(missing).unwrap_or(usize::MAX);
        let read = wanted.saturating_sub(have).max(CHUNK_LEN).min(missing);
        if self.buffer.capacity() > BUFFER_KEPT_BYTES && wanted <= CHUNK_LEN {
            self.buffer.truncate(have.max(CHUNK_LEN));
            self.buffer.shrink_to(CHUNK_LEN);
        }
        let target = have.saturating_add(read);
        if let Some(more) = target.checked_sub(self.buffer.len()) {
            if self.buffer.try_reserve(more).is_err() {
                let error = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
                return Err(Error::io("read", &self.path, error));
            }
            self.buffer.resize(target, 0);
        }
        let into = self.buffer.get_mut(have..target).unwrap_or_default();
        self.file
            .read_exact_at(self.position.saturating_add(have_bytes), into)
            .map_err(|error| Error::io("read", &self.path, error))?;
        self.filled = target;
        Ok(target >= wanted)
    }
}
