//! [`Handle`]: what users' values share. The database closes when the last of them is dropped.
//!
//! `Db`, `Snapshot`, `Cursor` and `DbIterator` each hold one. Background threads hold the [`Core`] instead, so they
//! don't keep the database open.

use crate::core::Core;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

pub(crate) struct Handle(pub(crate) Arc<Core>);

/// Names the directory only: what users print around a handle must not hold their data, or the hash seed.
impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.dir.display())
    }
}

impl Handle {
    /// A cursor, an iterator or a snapshot was dropped: files or versions may have been waiting for that.
    pub(crate) fn reader_dropped(&self) {
        if self.has_leftovers() {
            self.work_available();
        }
    }
}

impl Deref for Handle {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.0
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Without a `close` the memtables stay in the log: the next open replays them.
        let _ = self.shut_down(false);
    }
}
