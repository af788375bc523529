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
//! Going forward, the merged iterator stands on the entry that is shown. Going backward, versions come oldest first. If the
//! merged iterator knows that there is only one it stays on that, too. Else the shown entry is known only when it has left
//! the key: it then stands before all versions of the key, and the cursor holds a copy of key and value.

use crate::bounds::Bounds;
use crate::handle::Handle;
use crate::read::unsupported;
use crate::scanned::Met;
use crate::sources::Child;
use crate::super_version::SuperVersion;
use crate::{Error, Result};
use esker_base::{
    InternalIterator, InternalKeyRef, MergingIterator, SequenceNumber, Slice, ValueKind, key_head, planted,
    points,
};
use std::ops::Bound;
use std::sync::Arc;

/// Versions of one key that are stepped over before the cursor seeks past the rest.
const STEPS_BEFORE_SEEK: u32 = 8;

/// Where the merged iterator is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing is shown.
    Nowhere,
    /// On the entry that is shown.
    On,
    /// Before all versions of the shown key; `key` and `value` hold the entry.
    Before,
}

/// A key that a scan has shown, by its head and length: they are all of a key of up to 16 bytes, which needs no copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    head: u128,
    len: usize,
}

impl Passed {
    #[inline]
    fn of(key: &[u8]) -> Self {
        Passed { head: key_head(key), len: key.len() }
    }

    /// Notes `key`, in `long` if it has more than its head.
    #[inline]
    fn note(key: &[u8], long: &mut Vec<u8>) -> Self {
        if key.len() > size_of::<u128>() {
            long.clear();
            long.extend_from_slice(key);
        }
        Self::of(key)
    }

    /// Whether `key` is the one that was noted.
    #[inline]
    fn is(self, key: &[u8], long: &[u8]) -> bool {
        key.len() == self.len && key_head(key) == self.head && (self.len <= size_of::<u128>() || key == long)
    }
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
    /// The shown key while `Before`; else, if it is long, the key whose remaining versions are stepped over.
    key: Vec<u8>,
    /// The shown value while `Before`.
    value: Slice,
    error: Option<Error>,
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
            merged: MergingIterator::new(picture.children(0).map_err(|error| handle.unless_closed(error))?),
            bounds,
            seq,
            place: Place::Nowhere,
            key: Vec::new(),
            value: Slice::empty(),
            error: None,
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
            Place::On => self.merged.value(),
            Place::Before => &self.value,
            Place::Nowhere => panic!("value() of a cursor that is not valid"),
        }
    }

    /// The value here as a [`Slice`], which shares the block or batch that holds it.
    #[inline]
    pub(crate) fn value_slice(&self) -> Slice {
        match self.place {
            Place::On => self.merged.value_slice(),
            Place::Before => self.value.clone(),
            Place::Nowhere => Slice::empty(),
        }
    }

    /// Goes to the first key.
    pub fn seek_to_first(&mut self) -> Result<()> {
        self.run(true, |cursor| {
            match std::mem::replace(&mut cursor.bounds.lower, Bound::Unbounded) {
                Bound::Unbounded => cursor.merged.seek_to_first()?,
                Bound::Included(lower) => {
                    let moved = cursor.merged.seek(InternalKeyRef::before(&lower));
                    cursor.bounds.lower = Bound::Included(lower);
                    moved?;
                }
                Bound::Excluded(lower) => {
                    let moved = cursor.merged.seek(InternalKeyRef::new(&lower, 0, ValueKind::Delete));
                    cursor.bounds.lower = Bound::Excluded(lower);
                    moved?;
                }
            }
            cursor.show_forward(None)
        })
    }

    /// Goes to the last key.
    pub fn seek_to_last(&mut self) -> Result<()> {
        self.run(true, |cursor| {
            match &cursor.bounds.upper {
                Bound::Unbounded => cursor.merged.seek_to_last()?,
                Bound::Included(upper) => {
                    cursor.merged.seek_for_prev(InternalKeyRef::new(upper, 0, ValueKind::Delete))?;
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
        self.run(true, |cursor| {
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
        self.run(true, |cursor| {
            cursor.merged.seek_for_prev(InternalKeyRef::new(key, 0, ValueKind::Delete))?;
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
        self.run(false, |cursor| match cursor.place {
            Place::Nowhere => Ok(()),
            Place::On => {
                let passed = Passed::note(cursor.merged.key().user_key, &mut cursor.key);
                cursor.merged.next()?;
                cursor.show_forward(Some(passed))
            }
            Place::Before => {
                // A seek, which the change of direction would cost in any case. Steps from before the key would meet
                // what was written there since, and `show_forward` may need `key` for that.
                cursor.merged.seek(InternalKeyRef::new(&cursor.key, 0, ValueKind::Delete))?;
                let passed = Passed::of(&cursor.key);
                cursor.show_forward(Some(passed))
            }
        })
    }

    /// Goes to the preceding key. Does nothing when the cursor is not valid.
    #[inline]
    pub fn prev(&mut self) -> Result<()> {
        self.run(false, |cursor| match cursor.place {
            Place::Nowhere => Ok(()),
            Place::On => {
                cursor.key.clear();
                cursor.key.extend_from_slice(cursor.merged.key().user_key);
                cursor.leave_key_backward()?;
                cursor.show_backward()
            }
            Place::Before => cursor.show_backward(),
        })
    }

    /// Runs a movement. Errors are kept, and returned again by every movement but a seek.
    #[inline]
    fn run(&mut self, seeks: bool, movement: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
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

    /// From the present entry of the merged iterator on: shows the first visible one. The versions of the key that was
    /// `passed` are stepped over first.
    #[inline]
    fn show_forward(&mut self, mut passed: Option<Passed>) -> Result<()> {
        self.place = Place::Nowhere;
        let mut steps = 0;
        while self.merged.valid() {
            let entry = self.merged.key();
            let hidden = entry.seq > self.seq && !planted::is(planted::Fault::CursorSeesNewer);
            if passed.is_some_and(|passed| passed.is(entry.user_key, &self.key)) {
                steps += 1;
                if steps > STEPS_BEFORE_SEEK {
                    self.key.clear();
                    self.key.extend_from_slice(entry.user_key);
                    self.merged.seek(InternalKeyRef::new(&self.key, 0, ValueKind::Delete))?;
                    steps = 0;
                    continue;
                }
            } else if hidden {
                steps += 1;
                if steps > STEPS_BEFORE_SEEK {
                    self.key.clear();
                    self.key.extend_from_slice(entry.user_key);
                    passed = None;
                    steps = 0;
                    self.merged.seek(InternalKeyRef::seek_to(&self.key, self.seq))?;
                    continue;
                }
            } else {
                if self.bounds.above(entry.user_key) {
                    return Ok(());
                }
                match entry.kind {
                    ValueKind::Put => {
                        self.place = Place::On;
                        return Ok(());
                    }
                    ValueKind::Delete => {
                        passed = Some(Passed::note(entry.user_key, &mut self.key));
                        steps = 0;
                        if self.met.tombstone(entry.seq) {
                            self.handle.0.tombstones_met(&self.picture, &mut self.met);
                        }
                    }
                    other => return Err(unsupported(other)),
                }
            }
            self.merged.next()?;
        }
        Ok(())
    }

    /// Moves the merged iterator before all versions of `self.key`, on which it stands.
    fn leave_key_backward(&mut self) -> Result<()> {
        let mut steps = 0;
        while self.merged.valid() && self.merged.key().user_key == self.key.as_slice() {
            steps += 1;
            if steps > STEPS_BEFORE_SEEK {
                return self.merged.seek_for_prev(InternalKeyRef::before(&self.key));
            }
            self.merged.prev()?;
        }
        Ok(())
    }

    /// From the present entry of the merged iterator back: shows the last visible key.
    fn show_backward(&mut self) -> Result<()> {
        self.place = Place::Nowhere;
        while self.merged.valid() {
            let entry = self.merged.key();
            if self.bounds.below(entry.user_key) {
                return Ok(());
            }
            if entry.kind == ValueKind::Put && entry.seq <= self.seq && self.merged.is_newest() {
                // The key's only version.
                self.place = Place::On;
                return Ok(());
            }
            self.key.clear();
            self.key.extend_from_slice(entry.user_key);
            if self.newest_version_backward()? {
                self.place = Place::Before;
                return Ok(());
            }
        }
        Ok(())
    }

    /// The merged iterator stands on the oldest version of `self.key`: takes the newest visible one, and moves before
    /// the key. Returns whether it is a value.
    fn newest_version_backward(&mut self) -> Result<bool> {
        let mut newest = None;
        let mut steps = 0;
        while self.merged.valid() {
            let entry = self.merged.key();
            if entry.user_key != self.key.as_slice() || entry.seq > self.seq {
                break;
            }
            newest = Some(entry.kind);
            match entry.kind {
                ValueKind::Put => self.value = self.merged.value_slice(),
                _ if self.met.tombstone(entry.seq) => {
                    self.handle.0.tombstones_met(&self.picture, &mut self.met);
                }
                _ => {}
            }
            steps += 1;
            if steps > STEPS_BEFORE_SEEK {
                // Many versions: the newest visible one is where a seek lands.
                self.merged.seek(InternalKeyRef::seek_to(&self.key, self.seq))?;
                if !self.merged.valid() {
                    return Err(Error::fatal("a version that was just read is gone"));
                }
                newest = Some(self.merged.key().kind);
                self.value = self.merged.value_slice();
                self.merged.seek_for_prev(InternalKeyRef::before(&self.key))?;
                break;
            }
            self.merged.prev()?;
        }
        self.leave_key_backward()?;
        match newest {
            Some(ValueKind::Put) => Ok(true),
            Some(ValueKind::Delete) | None => Ok(false),
            Some(other) => Err(unsupported(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Db;

    /// A cursor goes back and then forward, over many keys that are newer than itself: the following key comes, not the
    /// same one once more. Mutation: `next` steps on from before the key.
    #[test]
    fn it_turning_round_among_newer_keys_goes_on() {
        let db = Db::in_memory().unwrap();
        for key in ["a", "m", "z"] {
            db.put(key, "old").unwrap();
        }
        // In another source, so that the merge does not go on in entries that it has read ahead.
        db.flush().unwrap();
        db.put("b", "old").unwrap();
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_last().unwrap();
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), b"m");
        for number in 0..20 {
            db.put(format!("c{number:02}"), "new").unwrap();
            db.put("m", format!("new {number}")).unwrap();
        }
        cursor.next().unwrap();
        assert_eq!((cursor.key(), cursor.value()), (&b"z"[..], &b"old"[..]));
        cursor.prev().unwrap();
        assert_eq!((cursor.key(), cursor.value()), (&b"m"[..], &b"old"[..]));
        cursor.prev().unwrap();
        assert_eq!(cursor.key(), b"b");
    }
}
