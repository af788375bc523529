//! [`SyncPoint`]: makes a segment durable up to a point, without its writer.
//!
//! A writer gives out points under its lock, and they are synced without it, so that records are appended while the
//! device works. Writer and points share what is known about the file: how far it is durable, and whether a sync of it
//! has failed.
//!
//! # Thread safety
//!
//! A lock is held across each sync, so there is one at a time for a file: of two at once, the system would tell only one
//! of a failure (F1). The lock is a leaf.

use std::fmt;
use std::path::PathBuf;

use esker_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_base::sync::{Arc, Mutex, MutexGuard};
use esker_base::{Error, FileNumber, Result, SequenceNumber, planted};
use esker_vfs::FileSync;

/// What is known about a segment's file, and shared by its writer and its points.
pub(crate) struct SyncState {
    file: std::sync::Arc<dyn FileSync>,
    path: PathBuf,
    number: FileNumber,
    /// Why the file is never to be written or synced again. Held across a sync.
    failure: Mutex<Option<Error>>,
    /// Whether `failure` is there.
    failed: AtomicBool,
    /// Last sequence number, and length of the file, that a successful sync covered.
    synced: AtomicU64,
    synced_len: AtomicU64,
    /// Whether all earlier segments are synced to their ends.
    previous_durable: AtomicBool,
}

/// The right to touch the file: no sync is running while it is held.
pub(crate) struct FileAlone<'a> {
    state: &'a SyncState,
    failure: MutexGuard<'a, Option<Error>>,
}

impl SyncState {
    /// Of a file of which nothing is synced; `last` is the last number before it.
    pub(crate) fn new(
        file: std::sync::Arc<dyn FileSync>,
        path: PathBuf,
        number: FileNumber,
        last: SequenceNumber,
        previous_durable: bool,
    ) -> Arc<Self> {
        Arc::new(SyncState {
            file,
            path,
            number,
            failure: Mutex::new(None),
            failed: AtomicBool::new(false),
            synced: AtomicU64::new(last),
            synced_len: AtomicU64::new(0),
            previous_durable: AtomicBool::new(previous_durable),
        })
    }

    /// Waits for the sync that is running. Fails when one has failed before.
    pub(crate) fn alone(&self) -> Result<FileAlone<'_>> {
        let failure = self.failure.lock();
        match &*failure {
            Some(error) => Err(error.clone()),
            None => Ok(FileAlone { state: self, failure }),
        }
    }

    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.failed.load(Ordering::Acquire) { Err(self.error()) } else { Ok(()) }
    }

    #[cold]
    fn error(&self) -> Error {
        self.failure.lock().clone().unwrap_or_else(|| Error::fatal("a failed log without an error"))
    }

    pub(crate) fn failure(&self) -> Option<Error> {
        self.check().err()
    }

    pub(crate) fn set_previous_durable(&self) {
        self.previous_durable.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn previous_durable(&self) -> bool {
        self.previous_durable.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn synced(&self) -> SequenceNumber {
        self.synced.load(Ordering::Acquire)
    }

    pub(crate) fn synced_len(&self) -> u64 {
        self.synced_len.load(Ordering::Acquire)
    }
}

impl FileAlone<'_> {
    /// Notes that the file is durable up to there.
    pub(crate) fn synced(&mut self, len: u64, last: SequenceNumber) {
        self.state.synced_len.fetch_max(len, Ordering::AcqRel);
        self.state.synced.fetch_max(last, Ordering::AcqRel);
    }

    /// Notes that the file must not be touched any more, and returns the error for that.
    #[cold]
    pub(crate) fn fail(&mut self, cause: Error) -> Error {
        let error = self.failure.insert(Error::write_unknown(cause)).clone();
        self.state.failed.store(true, Ordering::Release);
        error
    }
}

/// A place in a segment up to which it can be made durable, by any thread, while its writer goes on.
#[derive(Clone)]
pub struct SyncPoint {
    state: Arc<SyncState>,
    /// Length of the file up to here.
    len: u64,
    last: SequenceNumber,
}

impl SyncPoint {
    pub(crate) fn new(state: &Arc<SyncState>, len: u64, last: SequenceNumber) -> Self {
        SyncPoint { state: Arc::clone(state), len, last }
    }

    /// Makes the segment durable up to this point (`fdatasync`), unless a sync that began later has done it.
    ///
    /// # Errors
    ///
    /// `WriteUnknown` when the sync fails, now or at any time before; a file is never synced again after that (F1).
    pub fn sync(&self) -> Result<()> {
        let mut file = self.state.alone()?;
        if self.is_synced() {
            return Ok(());
        }
        let mut synced = self.state.file.sync_data();
        if synced.is_err() && planted::is(planted::Fault::SyncRetried) {
            synced = self.state.file.sync_data();
        }
        match synced {
            Ok(()) => {
                file.synced(self.len, self.last);
                Ok(())
            }
            Err(error) => Err(file.fail(Error::io("sync", &self.state.path, error))),
        }
    }

    /// Whether the segment is known to be durable up to this point.
    pub fn is_synced(&self) -> bool {
        self.state.synced_len() >= self.len
    }

    /// As [`LogWriter::previous_is_durable`](crate::LogWriter::previous_is_durable).
    pub fn previous_is_durable(&self) {
        self.state.set_previous_durable();
    }

    /// The segment's number.
    pub fn number(&self) -> FileNumber {
        self.state.number
    }

    /// The last sequence number up to this point.
    pub fn last_sequence(&self) -> SequenceNumber {
        self.last
    }
}

impl fmt::Debug for SyncPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncPoint")
            .field("path", &self.state.path)
            .field("len", &self.len)
            .field("last", &self.last)
            .field("synced", &self.is_synced())
            .finish()
    }
}
