//! [`Snapshot`]: the database as of one moment, as users see it.

use crate::bounds::{Bounds, bounds_of, prefix_bounds};
use crate::cursor::Cursor;
use crate::handle::Handle;
use crate::iter::DbIterator;
pub(crate) use crate::registry::SnapshotRegistry;
use crate::{Result, Slice};
use esker_base::SequenceNumber;
use std::ops::RangeBounds;
use std::sync::Arc;

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
        let seq = handle.snapshots.take(&handle.visible, handle.components.clock.now());
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

    /// As [`Db::multi_get_with`](crate::Db::multi_get_with).
    pub fn multi_get_with<K: AsRef<[u8]>>(&self, keys: &[K], each: impl FnMut(usize, Result<Option<&[u8]>>)) {
        self.handle.multi_get_with(keys, Some(self.seq), each);
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

    /// As [`Db::first_key_value`](crate::Db::first_key_value).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn first_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next().transpose()
    }

    /// As [`Db::last_key_value`](crate::Db::last_key_value).
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn last_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next_back().transpose()
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
            // What only the oldest snapshot needed may be dropped now, if a compaction finds it worth while.
            self.handle.oldest_snapshot_gone();
        }
    }
}
