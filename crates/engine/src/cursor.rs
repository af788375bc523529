//! [`Cursor`]: a position among the keys that a reader sees.
//!
//! Below it, the merged sources yield every version of every key, newest first. The cursor shows, for each key, the
//! newest version that its snapshot sees, unless that is a tombstone.
//!
//! ```text
//! merged:   a#9 put   a#4 put   b#8 delete   b#2 put   c#5 put
//! at #8:    ------    a#4       b is gone              c#5
//! ```
//!
//! Where nothing of that can be, since a block holds one visible value for each of its keys and no other source has anything
//! between them, the cursor takes the block out of the merged iterator, and goes over it alone: see [`BlockRun`].
//!
//! Going forward, the merged iterator stands on the entry that is shown. Going backward, versions come oldest first. If the
//! merged iterator knows that there is only one it stays on that, too. Else the shown entry is known only when it has left
//! the key: it then stands before all versions of the key, and the cursor holds a copy of key and value.

use crate::bounds::Bounds;
use crate::handle::Handle;
use crate::scanned::Met;
use crate::sources::Child;
use crate::super_version::SuperVersion;
use crate::{Error, Result};
use esker_base::{
    EntryBatch, InternalIterator, InternalKeyRef, MergingIterator, Outline, SequenceNumber, Slice, planted,
    points,
};
use esker_sstable::{BlockRun, RunKeys};
use std::ops::Bound;
use std::sync::Arc;

mod batch;
mod run;
mod show;

pub use batch::Batch;

/// Where the merged iterator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing is shown.
    Nowhere,
    /// On the entry that is shown.
    On,
    /// Where `run` began, without its block: `run` is on the entry that is shown. What is between is in the run alone, so
    /// the merged iterator goes on from the end of the run when it has the block back.
    InRun,
    /// Before all versions of the shown key; `key` and `value` hold the entry.
    Before,
}

/// A movable position in a scan, for loops that allocate nothing and touch no reference count per entry.
///
/// A new cursor is not valid. It shows the database as of its creation, or as of its snapshot, whatever is written
/// meanwhile, and keeps the files that it needs. After an error it is not valid, and every movement but a seek returns
/// the error again.
///
/// ```
/// let db = esker::Db::in_memory()?;
/// db.put(b"a", b"1")?;
/// db.put(b"b", b"2")?;
/// let mut cursor = db.cursor()?;
/// cursor.seek_to_last()?;
/// assert_eq!((cursor.key(), cursor.value()), (&b"b"[..], &b"2"[..]));
/// cursor.prev()?;
/// assert_eq!(cursor.key(), b"a");
/// cursor.prev()?;
/// assert!(!cursor.valid());
/// # Ok::<(), esker::Error>(())
/// ```
pub struct Cursor {
    // The iterators are dropped before the picture that keeps their tables, and that before the handle.
    merged: MergingIterator<Child>,
    bounds: Bounds,
    seq: SequenceNumber,
    place: Place,
    run: BlockRun,
    /// The shown key while `Before`; else, if it is long, the key whose remaining versions are stepped over.
    key: Vec<u8>,
    /// The shown value while `Before`.
    value: Slice,
    error: Option<Error>,
    /// The keys of a batch out of a run.
    keys: RunKeys,
    /// A batch of copies.
    copies: EntryBatch,
    /// Tombstones that were stepped over.
    met: Met,
    picture: Arc<SuperVersion>,
    handle: Reader,
}

/// Without the data under it.
impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Cursor");
        out.field("db", &self.handle.0).field("sequence", &self.seq).field("valid", &self.valid());
        out.field("error", &self.error).finish_non_exhaustive()
    }
}

/// The handle of a cursor. Dropped last, when nothing of the cursor keeps a table any more.
#[derive(Debug)]
struct Reader(Arc<Handle>);

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.reader_dropped();
    }
}

impl Cursor {
    /// A cursor over the default keyspace at `seq`, or at the present.
    pub(crate) fn new(handle: &Arc<Handle>, bounds: Bounds, seq: Option<SequenceNumber>) -> Result<Self> {
        handle.check_open()?;
        let seq = if planted::is(planted::Fault::SequenceBeforePicture) {
            let early = seq.unwrap_or_else(|| handle.visible.load());
            planted::pause();
            points::here(points::Point::CursorPictured);
            Some(early)
        } else {
            seq
        };
        let picture = handle.super_version.load_full();
        points::here(points::Point::CursorPictured);
        let seq = seq.unwrap_or_else(|| handle.visible.load());
        Self::over(handle, picture, bounds, seq)
    }

    /// A further cursor over the same picture, not positioned.
    pub(crate) fn twin(&self) -> Result<Self> {
        Self::over(&self.handle.0, Arc::clone(&self.picture), self.bounds.clone(), self.seq)
    }

    fn over(
        handle: &Arc<Handle>,
        picture: Arc<SuperVersion>,
        bounds: Bounds,
        seq: SequenceNumber,
    ) -> Result<Self> {
        Ok(Cursor {
            merged: picture.merged(0).map_err(|error| handle.unless_closed(error))?,
            bounds,
            seq,
            place: Place::Nowhere,
            run: BlockRun::new(),
            key: Vec::new(),
            value: Slice::empty(),
            error: None,
            keys: RunKeys::new(),
            copies: EntryBatch::new(),
            met: Met::new(&picture),
            picture,
            handle: Reader(Arc::clone(handle)),
        })
    }

    /// Whether there is an entry here.
    #[inline]
    pub fn valid(&self) -> bool {
        self.place != Place::Nowhere
    }

    /// The key here.
    ///
    /// # Panics
    ///
    /// When the cursor is not [`valid`](Self::valid).
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.place {
            Place::InRun => self.run.key(),
            Place::On => self.merged.key().user_key,
            Place::Before => &self.key,
            Place::Nowhere => panic!("key() of a cursor that is not valid"),
        }
    }

    /// The value here.
    ///
    /// # Panics
    ///
    /// When the cursor is not [`valid`](Self::valid).
    #[inline]
    pub fn value(&self) -> &[u8] {
        match self.place {
            Place::InRun => self.run.value(),
            Place::On => self.merged.value(),
            Place::Before => &self.value,
            Place::Nowhere => panic!("value() of a cursor that is not valid"),
        }
    }

    /// The value here as a [`Slice`], which shares the block or batch that holds it.
    #[inline]
    pub(crate) fn value_slice(&self) -> Slice {
        match self.place {
            Place::InRun => self.run.value_slice(),
            Place::On => self.merged.value_slice(),
            Place::Before => self.value.clone(),
            Place::Nowhere => Slice::empty(),
        }
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.moved(true, |cursor| {
            match std::mem::replace(&mut cursor.bounds.lower, Bound::Unbounded) {
                Bound::Unbounded => cursor.merged.seek_to_first()?,
                Bound::Included(lower) => {
                    let moved = cursor.merged.seek(InternalKeyRef::before(&lower));
                    cursor.bounds.lower = Bound::Included(lower);
                    moved?;
                }
                Bound::Excluded(lower) => {
                    let moved = cursor.merged.seek(InternalKeyRef::behind(&lower));
                    cursor.bounds.lower = Bound::Excluded(lower);
                    moved?;
                }
            }
            cursor.show_forward(None)
        })
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.moved(true, |cursor| {
            match &cursor.bounds.upper {
                Bound::Unbounded => cursor.merged.seek_to_last()?,
                Bound::Included(upper) => {
                    cursor.merged.seek_for_prev(InternalKeyRef::behind(upper))?;
                }
                Bound::Excluded(upper) => cursor.merged.seek_for_prev(InternalKeyRef::before(upper))?,
            }
            cursor.show_backward()
        })
    }

    /// Goes to the first key at or after `key`.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        if self.bounds.below(key) {
            return self.seek_to_first();
        }
        self.moved(true, |cursor| {
            cursor.merged.seek(InternalKeyRef::seek_to(key, cursor.seq))?;
            cursor.show_forward(None)
        })
    }

    /// Goes to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        let key = key.as_ref();
        if self.bounds.above(key) {
            return self.seek_to_last();
        }
        self.moved(true, |cursor| {
            cursor.merged.seek_for_prev(InternalKeyRef::behind(key))?;
            cursor.show_backward()
        })
    }

    /// Goes to the following key. Does nothing when the cursor is not valid.
    #[inline]
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor is not an iterator: its items borrow from it"
    )]
    pub fn next(&mut self) -> Result<()> {
        if self.place == Place::InRun && self.handle.0.is_open() && self.run.next() {
            return Ok(());
        }
        self.next_merged()
    }

    fn next_merged(&mut self) -> Result<()> {
        self.moved(false, |cursor| match cursor.place {
            Place::Nowhere => Ok(()),
            Place::On | Place::InRun => {
                let passed = cursor.merged.outline();
                cursor.keep_long(passed);
                cursor.merged.next()?;
                cursor.show_forward(passed)
            }
            Place::Before => {
                // A seek, which the change of direction would cost in any case. Steps from before the key would meet
                // what was written there since, and `show_forward` may need `key` for that.
                cursor.merged.seek(InternalKeyRef::behind(&cursor.key))?;
                let passed = Outline::of(InternalKeyRef::behind(&cursor.key));
                cursor.show_forward(Some(passed))
            }
        })
    }

    /// Goes to the preceding key. Does nothing when the cursor is not valid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        if self.place == Place::InRun && self.handle.0.is_open() && self.run.prev() {
            return Ok(());
        }
        self.prev_merged()
    }

    fn prev_merged(&mut self) -> Result<()> {
        self.moved(false, |cursor| match cursor.place {
            Place::Nowhere => Ok(()),
            Place::On | Place::InRun => {
                cursor.keep_key();
                cursor.leave_key_backward()?;
                cursor.show_backward()
            }
            Place::Before => cursor.show_backward(),
        })
    }

    /// Runs a movement of the merged iterator. Errors are kept, and returned again by every movement but a seek.
    #[inline]
    fn moved(&mut self, seeks: bool, movement: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.leave_run();
        if seeks {
            self.error = None;
        } else if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let result = self.handle.0.check_open().and_then(|()| movement(self));
        let result = result.map_err(|error| self.handle.0.unless_closed(error));
        if let Err(error) = &result {
            self.place = Place::Nowhere;
            self.error = Some(error.clone());
        }
        result
    }
}

#[cfg(test)]
mod tests;
