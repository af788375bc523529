//! [`Snapshot`], and the registry that tells compactions what must be kept for snapshots.

use crate::commit::Visible;
use crate::cursor::{Bounds, Cursor};
use crate::handle::Handle;
use crate::iter::{DbIterator, bounds_of, prefix_bounds};
use crate::{Result, Slice};
use esker_base::sync::Mutex;
use esker_base::{SequenceNumber, planted};
use esker_compaction::SnapshotStripes;
use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;

/// Which sequence numbers must stay readable.
///
/// Taking a snapshot (read the visible number, register it) and a compaction's capture of the list are both done under
/// the one lock. So a snapshot is either in the list, or it is at least as new as the visible number in the list, and
/// a compaction keeps what is visible at its capture.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRegistry {
    /// Sequence number to the number of snapshots at it.
    live: Mutex<BTreeMap<SequenceNumber, u64>>,
}

impl SnapshotRegistry {
    /// Takes a snapshot at the visible number.
    pub(crate) fn take(&self, visible: &Visible) -> SequenceNumber {
        let mut live = self.live.lock();
        let seq = visible.load();
        *live.entry(seq).or_default() += 1;
        seq
    }

    /// Gives a snapshot back. Returns whether it was the last one at its number.
    pub(crate) fn release(&self, seq: SequenceNumber) -> bool {
        let mut live = self.live.lock();
        let Some(count) = live.get_mut(&seq) else { return false };
        *count -= 1;
        if *count == 0 {
            live.remove(&seq);
            return true;
        }
        false
    }

    /// What a compaction that starts now must keep.
    pub(crate) fn stripes(&self, visible: &Visible) -> SnapshotStripes {
        let live = self.live.lock();
        let visible = visible.load();
        if planted::is(planted::Fault::SnapshotsForgotten) {
            return SnapshotStripes::new([], visible);
        }
        SnapshotStripes::new(live.keys().copied(), visible)
    }

    /// How many snapshots are held, and the oldest of them.
    pub(crate) fn summary(&self) -> (u64, Option<SequenceNumber>) {
        let live = self.live.lock();
        (live.values().sum(), live.keys().next().copied())
    }
}

/// The database as of one moment.
///
/// A snapshot is cheap to take. While it is held, compactions keep what it shows, so drop it when it is done with. It
/// keeps the database open.
///
/// ```
/// let db = esker::Db::in_memory()?;
/// db.put(b"k", b"old")?;
/// let snapshot = db.snapshot();
/// db.put(b"k", b"new")?;
/// assert_eq!(snapshot.get(b"k")?.as_deref(), Some(&b"old"[..]));
/// assert_eq!(db.get(b"k")?.as_deref(), Some(&b"new"[..]));
/// # Ok::<(), esker::Error>(())
/// ```
#[derive(Debug)]
pub struct Snapshot {
    handle: Arc<Handle>,
    seq: SequenceNumber,
}

impl Snapshot {
    pub(crate) fn new(handle: &Arc<Handle>) -> Self {
        let seq = handle.snapshots.take(&handle.visible);
        Snapshot { handle: Arc::clone(handle), seq }
    }

    /// The newest sequence number that the snapshot sees.
    pub fn sequence(&self) -> SequenceNumber {
        self.seq
    }

    /// As [`Db::get`](crate::Db::get).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.handle.get(key.as_ref(), Some(self.seq))
    }

    /// As [`Db::get_with`](crate::Db::get_with).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.handle.get_with(key.as_ref(), Some(self.seq), read)
    }

    /// As [`Db::multi_get`](crate::Db::multi_get).
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Slice>>> {
        self.handle.multi_get(keys, Some(self.seq))
    }

    /// As [`Db::range`](crate::Db::range).
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> DbIterator {
        DbIterator::new(&self.handle, bounds_of(&range), Some(self.seq))
    }

    /// As [`Db::prefix`](crate::Db::prefix).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> DbIterator {
        DbIterator::new(&self.handle, Some(prefix_bounds(prefix.as_ref())), Some(self.seq))
    }

    /// As [`Db::iter`](crate::Db::iter).
    pub fn iter(&self) -> DbIterator {
        DbIterator::new(&self.handle, Some(Bounds::ALL), Some(self.seq))
    }

    /// As [`Db::cursor`](crate::Db::cursor).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn cursor(&self) -> Result<Cursor> {
        Cursor::new(&self.handle, Bounds::ALL, Some(self.seq))
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        if self.handle.snapshots.release(self.seq) {
            // What only this snapshot needed may be dropped now, if a compaction finds it worth while.
            self.handle.work_available();
        }
    }
}
