//! [`LogWriter`]: appends records to one segment. The engine's log and the manifest each own one, under their lock.
//!
//! Records are encoded into a buffer; [`LogWriter::flush`] hands the whole buffer to the file in one append, so a group
//! of batches is one write. A file is never appended to after a cut that a crash left: every open starts a new segment
//! (W6).
//!
//! ```text
//! durable <= synced <= flushed <= last        (sequence numbers)
//!                      |          `- in the buffer
//!                      `- given to the file: `written` bytes
//! ```
//!
//! Behind `written` the file may have zeros, with room on the device: see [`Extent`](crate::extent).
//!
//! A sync needs no writer: [`LogWriter::sync_point`] gives out what can be synced while records are appended.

use std::fmt;
use std::path::{Path, PathBuf};

use esker_base::sync::Arc;
use esker_base::{Error, Result, SequenceNumber};
use esker_vfs::{Vfs, WritableFile};

use crate::extent::Extent;
use crate::header::{SegmentEnd, SegmentHeader};
use crate::record::{RecordContext, RecordFields, RecordType, encode_record};
use crate::sync::{SyncPoint, SyncState};

/// A buffer larger than this is given back after it was flushed, unless [`LogWriter::keep_buffer`] says otherwise.
const BUFFER_KEPT_BYTES: usize = 1 << 20;

/// Appends records to one segment.
///
/// # Errors, and what they say about the records in the buffer
///
/// | error of `flush` or `sync` | the records that were in the buffer |
/// |---|---|
/// | `Io`, `NoSpace` | certainly not in the file: it was cut back and synced. They are still in the buffer, so call [`rollback`](Self::rollback), or `flush` again |
/// | `WriteUnknown` | may be there after a restart. The writer is poisoned |
///
/// A poisoned writer gives the same error for ever and never touches its file again: after a failed sync the system may
/// have thrown the data away and report success the next time (F1). [`end`](Self::end) still says where the good part
/// ends, for the header of the next segment.
pub struct LogWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    header: SegmentHeader,
    context: RecordContext,
    /// Records that the file does not have yet.
    buffer: Vec<u8>,
    buffer_kept: usize,
    /// Length of the file up to its last good record.
    written: u64,
    /// The zeros behind that.
    extent: Extent,
    last: SequenceNumber,
    flushed: SequenceNumber,
    /// What was known to be durable when the segment was created.
    durable_before: SequenceNumber,
    /// How far the file is durable, and whether it is poisoned.
    sync: Arc<SyncState>,
}

/// A place in a writer's buffer to roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    end: u64,
    last: SequenceNumber,
}

impl LogWriter {
    /// Creates the segment's file, which must not exist, and writes the header.
    ///
    /// `durable` is the highest number known to be durable so far, in earlier segments or in tables. Syncs of this segment
    /// don't raise it before the caller has said that [`previous_is_durable`](Self::previous_is_durable).
    ///
    /// Nothing is synced. The caller syncs the directory before it promises anything that this segment holds (M3); the
    /// first [`sync`](Self::sync) covers the header.
    pub fn create(
        vfs: &dyn Vfs,
        path: &Path,
        header: SegmentHeader,
        durable: SequenceNumber,
    ) -> Result<LogWriter> {
        let mut file = vfs.create_new(path).map_err(|error| Error::io("create", path, error))?;
        let bytes = header.encode();
        file.append(&bytes).map_err(|error| Error::io("append", path, error))?;
        let last = header.previous.last_sequence;
        let first = header.previous.number.0 == 0;
        let sync = SyncState::new(file.syncer(), path.to_path_buf(), header.number, last, first);
        Ok(LogWriter {
            file,
            path: path.to_path_buf(),
            header,
            context: RecordContext::new(header.kind, header.store_id, header.number),
            buffer: Vec::new(),
            buffer_kept: BUFFER_KEPT_BYTES,
            written: bytes.len() as u64,
            extent: Extent::new(),
            last,
            flushed: last,
            durable_before: durable.min(last),
            sync,
        })
    }

    /// Gives the buffer back after a flush when it is larger than `bytes`; 1 MiB at first.
    pub fn keep_buffer(&mut self, bytes: usize) {
        self.buffer_kept = bytes;
        self.extent.bound(bytes);
    }

    /// Bytes that the buffer takes.
    pub fn buffer_capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Reserves room on the device up to `len` bytes of the file. The file's length stays.
    pub fn preallocate(&mut self, len: u64) -> Result<()> {
        self.file.preallocate(len).map_err(|error| Error::io("preallocate", &self.path, error))
    }

    /// Allows zeros behind the records, up to `limit` bytes of the file; 0, as at first, takes it back. With `mapped` records
    /// that are not synced are stored in memory that stands for the file, where the file system is known to be fit for that.
    ///
    /// Failures to allocate or to map are none of the writer's: it goes on with longer and longer files, and with `write`.
    pub fn allow_extents(&mut self, limit: u64, mapped: bool) {
        self.extent.allow(limit, mapped);
    }

    #[cold]
    fn map(&mut self, len: u64) {
        match self.file.map(len) {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => self.extent.cannot_map(),
            // Another one comes out when something is appended, if it lasts.
            _ => {}
        }
    }

    /// Called before a sync: when no zeros are left, adds some. Records that take the place of zeros leave the file's length
    /// as it is, and so are cheaper to sync.
    pub fn extend_for_sync(&mut self) {
        if let Some(len) = self.extent.for_sync(self.written)
            && self.check_poison().is_ok()
        {
            let _ = self.file.extend(len);
        }
    }

    /// Takes the zeros behind the records away. To be called when no more records come; zeros that stay do no harm.
    pub fn trim(&mut self) {
        if self.extent.forget(self.written) && self.check_poison().is_ok() {
            let _ = self.file.truncate(self.written);
        }
    }

    /// Adds a batch of `count` operations, encoded in `payload`, that starts at sequence number `first`.
    ///
    /// `first` must be one more than [`last_sequence`](Self::last_sequence) (W4); anything else is `Fatal`. `TooLarge`
    /// when the payload is close to 4 GiB. After an error the buffer is as it was.
    #[inline]
    pub fn append_batch(&mut self, first: SequenceNumber, count: u64, payload: &[u8]) -> Result<()> {
        self.append(RecordType::Batch, first, count, payload)
    }

    /// Says that the `count` sequence numbers from `first` are not in the log. Errors as for a batch.
    pub fn append_skip(&mut self, first: SequenceNumber, count: u64) -> Result<()> {
        self.append(RecordType::Skip, first, count, &[])
    }

    /// Adds an edit of the manifest. Edit numbers are contiguous. Errors as for a batch.
    pub fn append_edit(&mut self, number: u64, payload: &[u8]) -> Result<()> {
        self.append(RecordType::Edit, number, 1, payload)
    }

    fn append(
        &mut self,
        record_type: RecordType,
        first: SequenceNumber,
        count: u64,
        payload: &[u8],
    ) -> Result<()> {
        self.check_poison()?;
        if first != self.last + 1 || RecordType::from_number(self.header.kind, record_type.number()).is_none()
        {
            return Err(self.misuse(record_type, first));
        }
        let fields = RecordFields { record_type, first, count, durable: self.durable_sequence() };
        let offset = self.len_of_all();
        encode_record(&mut self.buffer, &self.context, offset, &fields, payload)?;
        self.last = fields.last();
        Ok(())
    }

    #[cold]
    fn misuse(&self, record_type: RecordType, first: SequenceNumber) -> Error {
        Error::fatal(format!(
            "{}: a {record_type:?} record with number {first} after {}",
            self.path.display(),
            self.last
        ))
    }

    /// Hands all buffered records to the file in one append.
    ///
    /// For what an error means see [`LogWriter`].
    pub fn flush(&mut self) -> Result<()> {
        self.check_poison()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let unsynced = self.written.saturating_sub(self.sync.synced_len());
        if let Some(len) = self.extent.for_append(self.written, self.buffer.len(), unsynced) {
            self.map(len);
        }
        if let Err(error) = self.file.append(&self.buffer) {
            return Err(self.undo_append(Error::io("append", &self.path, error)));
        }
        self.written += self.buffer.len() as u64;
        self.flushed = self.last;
        self.buffer.clear();
        if self.buffer.capacity() > self.buffer_kept {
            self.buffer = Vec::new();
        }
        Ok(())
    }

    /// Flushes, then makes everything in the file durable (`fdatasync`).
    pub fn sync(&mut self) -> Result<()> {
        self.flush()?;
        self.sync_point().sync()
    }

    /// The present end of the file: what a sync that begins now makes durable. Buffered records are not in it.
    pub fn sync_point(&self) -> SyncPoint {
        SyncPoint::new(&self.sync, self.written, self.flushed)
    }

    /// After a failed append: cuts the file to its good part. The cut is synced, else a power loss could bring the
    /// record back, and the error would have lied.
    #[cold]
    fn undo_append(&mut self, error: Error) -> Error {
        let mut alone = match self.sync.alone() {
            Ok(alone) => alone,
            Err(poison) => return poison,
        };
        self.extent.forget(self.written);
        if self.file.truncate(self.written).and_then(|()| self.file.sync_data()).is_err() {
            return alone.fail(error);
        }
        alone.synced(self.written, self.flushed);
        error
    }

    #[inline]
    fn check_poison(&self) -> Result<()> {
        self.sync.check()
    }

    /// The present end of the buffer.
    pub fn mark(&self) -> Mark {
        Mark { end: self.len_of_all(), last: self.last }
    }

    /// Takes the records after `mark` out of the buffer again. The next record starts at their first number: a skip,
    /// when those numbers were given out. `Fatal` when the records are no longer in the buffer.
    pub fn rollback(&mut self, mark: Mark) -> Result<()> {
        let kept = mark.end.checked_sub(self.written).and_then(|len| usize::try_from(len).ok());
        let Some(kept) = kept.filter(|&kept| kept <= self.buffer.len() && mark.last <= self.last) else {
            return Err(Error::fatal("a roll-back of log records that were flushed"));
        };
        self.buffer.truncate(kept);
        self.last = mark.last;
        Ok(())
    }

    /// Tells the writer that every earlier segment that a recovery would need is synced to its end, so that its own syncs
    /// count (F7): because the segment before [`is_durable`](Self::is_durable), or because tables have all that is older.
    pub fn previous_is_durable(&mut self) {
        self.sync.set_previous_durable();
    }

    /// Whether everything given to the file, header included, and everything before it is durable.
    ///
    /// An empty segment counts too: its header links the segments around it.
    pub fn is_durable(&self) -> bool {
        self.sync.previous_durable() && self.sync.synced_len() >= self.written
    }

    /// The header of the segment.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes given to the file, header included.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Bytes in the buffer: records that not even the operating system has.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Bytes of the segment once the buffer is flushed: what to compare with the size limit.
    #[inline]
    pub fn len_of_all(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    /// The last number appended, buffered records included.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.last
    }

    /// The last number given to the file.
    pub fn flushed_sequence(&self) -> SequenceNumber {
        self.flushed
    }

    /// The highest number up to which the whole log is known to be durable: what the next record, and the manifest,
    /// may promise.
    #[inline]
    pub fn durable_sequence(&self) -> SequenceNumber {
        if self.sync.previous_durable() { self.sync.synced() } else { self.durable_before }
    }

    /// The error that poisoned the writer.
    pub fn poisoned(&self) -> Option<Error> {
        self.sync.failure()
    }

    /// Where the good part of the file ends, for the header of the next segment. Buffered records are not in it.
    pub fn end(&self) -> SegmentEnd {
        SegmentEnd { number: self.header.number, length: self.written, last_sequence: self.flushed }
    }

    /// Flushes and closes the file without a sync; the late errors of the system are reported here.
    pub fn close(mut self) -> Result<SegmentEnd> {
        self.flush()?;
        let end = self.end();
        self.file.close().map_err(|error| Error::write_unknown(Error::io("close", &self.path, error)))?;
        Ok(end)
    }
}

impl fmt::Debug for LogWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogWriter")
            .field("path", &self.path)
            .field("written", &self.written)
            .field("buffered", &self.buffer.len())
            .field("last", &self.last)
            .field("durable", &self.durable_sequence())
            .field("poison", &self.poisoned())
            .finish_non_exhaustive()
    }
}
