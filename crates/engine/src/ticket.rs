//! [`Commit`]: what a writer holds that does not wait for the device.

use crate::commit::call;
use crate::core::Core;
use crate::handle::Handle;
use crate::write::unknown;
use crate::{Error, ErrorKind, Result};
use esker_base::SequenceNumber;
use std::sync::Arc;

/// A batch that was written, and that readers see; whether it is durable can be asked, waited for, or told.
///
/// [`Db::submit`](crate::Db::submit) returns it. One thread can so have many durable writes under way, which share syncs.
/// All batches before it, by whatever way they came, are durable when it is; of a batch that went without the log
/// ([`WriteOptions::wal`](crate::WriteOptions::wal)) it tells no more than that. Dropping it gives up nothing but the answer.
/// It keeps the database open, as an iterator does.
///
/// ```
/// use esker::{Db, WriteBatch, WriteOptions};
///
/// let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// let mut commits = Vec::new();
/// for number in 0..100_u32 {
///     let mut batch = WriteBatch::new();
///     batch.put(number.to_be_bytes(), b"value");
///     commits.push(db.submit(batch, &WriteOptions::sync())?);
/// }
/// assert!(db.get(99_u32.to_be_bytes())?.is_some());          // visible at once
/// for commit in commits {
///     commit.wait_synced()?;                                  // on the device
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Commit {
    handle: Arc<Handle>,
    last: SequenceNumber,
}

impl Commit {
    pub(crate) fn new(handle: &Arc<Handle>, last: SequenceNumber) -> Self {
        Commit { handle: Arc::clone(handle), last }
    }

    /// The sequence number of the batch's last operation. Batches are numbered in the order in which they became visible.
    pub fn sequence(&self) -> SequenceNumber {
        self.last
    }

    /// Whether the batch is known to be durable. Costs one load.
    pub fn is_synced(&self) -> bool {
        self.handle.queue.durable() >= self.last
    }

    /// Waits until the batch is durable. Syncs the log if nobody else does, whatever durability was asked for.
    ///
    /// # Errors
    ///
    /// [`WriteUnknown`](crate::ErrorKind::WriteUnknown) when a sync that the batch needs has failed: it shows, and whether
    /// it outlives a crash is known at the next open, or after [`Db::resume`](crate::Db::resume), which makes it durable.
    /// So it is when the database was closed without a sync that reached it.
    pub fn wait_synced(&self) -> Result<()> {
        self.handle.queue.wait(self.last, &**self.handle).map_err(|error| match error.kind() {
            // The log may have the batch already.
            ErrorKind::Closed => unknown(error),
            _ => error,
        })
    }

    /// Has `callback` called with what [`wait_synced`](Self::wait_synced) would return, once.
    ///
    /// Callbacks are called one after the other, in the order in which they were left, on a thread of the database that does
    /// nothing else but these calls and the syncs for them, and that holds no lock: so they may use the database, and a
    /// slow one holds up the others. With [`Background::Inline`](crate::Background::Inline) it is the thread that calls this.
    /// What is left at a close or the drop of the last handle is called by that. A panic in a callback is caught. A callback
    /// that closes while somebody else does gets [`Closed`](crate::ErrorKind::Closed) at once, since that one waits for it.
    pub fn on_synced(self, callback: impl FnOnce(Result<()>) + Send + 'static) {
        let core: &Core = &self.handle;
        match core.queue.call(self.last, Box::new(callback)) {
            None => core.serve_commits(),
            Some(callback) => {
                let result = if self.is_synced() { Ok(()) } else { Err(unknown(Error::closed())) };
                call(callback, result);
            }
        }
    }
}
