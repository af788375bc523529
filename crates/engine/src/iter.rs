//! [`DbIterator`]: a scan as a standard double-ended iterator.

use crate::bounds::Bounds;
use crate::cursor::Cursor;
use crate::handle::Handle;
use crate::{Error, Result};
use esker_base::{SequenceNumber, Slice, planted};
use std::iter::FusedIterator;
use std::sync::Arc;

/// Iterates over the entries of a range, from both ends, as of its creation or of a snapshot.
///
/// An error is an item; after it the iterator is at its end. Each end is positioned by its first call, so a scan that
/// goes one way only opens what it needs.
///
/// ```
/// let db = esker::Db::in_memory()?;
/// for key in ["a", "b", "c"] {
///     db.put(key, "value of ".to_owned() + key)?;
/// }
/// let last = db.iter().next_back().unwrap()?;
/// assert_eq!((&*last.0, &*last.1), (&b"c"[..], &b"value of c"[..]));
/// assert_eq!(db.range::<&str, _>("b"..).count(), 2);
/// # Ok::<(), esker::Error>(())
/// ```
#[derive(Debug)]
pub struct DbIterator {
    state: State,
}

#[derive(Debug)]
enum State {
    /// An error that came up before the first item.
    Failed(Error),
    Open(Box<Open>),
    Done,
}

#[derive(Debug)]
struct Open {
    /// Made at the start, so that the scan's moment is the call that made it.
    front: Cursor,
    front_started: bool,
    back: Option<Cursor>,
}

impl DbIterator {
    pub(crate) fn new(handle: &Arc<Handle>, bounds: Option<Bounds>, seq: Option<SequenceNumber>) -> Self {
        let Some(bounds) = bounds else { return DbIterator { state: State::Done } };
        let state = match Cursor::new(handle, bounds, seq) {
            Ok(front) => State::Open(Box::new(Open { front, front_started: false, back: None })),
            Err(error) => State::Failed(error),
        };
        DbIterator { state }
    }

    #[inline]
    fn step(&mut self, back: bool) -> Option<Result<(Slice, Slice)>> {
        let State::Open(open) = &mut self.state else { return self.end() };
        let moved = if back { open.move_back() } else { open.move_front() };
        match moved {
            Ok(true) => {
                let cursor = if back { open.back.as_ref()? } else { &open.front };
                Some(Ok((Slice::copy_from(cursor.key()), cursor.value_slice())))
            }
            moved => self.end_after(moved),
        }
    }

    /// The last item of an iterator that is not open.
    #[cold]
    fn end(&mut self) -> Option<Result<(Slice, Slice)>> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Failed(error) => self.end_after(Err(error)),
            _ => None,
        }
    }

    /// The last item, given how the last movement ended.
    #[cold]
    fn end_after(&mut self, moved: Result<bool>) -> Option<Result<(Slice, Slice)>> {
        match moved.map(|_| ()) {
            Ok(()) => {
                self.state = State::Done;
                None
            }
            Err(error) => {
                self.state = State::Done;
                if planted::is(planted::Fault::ErrorIsEnd) {
                    return None;
                }
                Some(Err(error))
            }
        }
    }
}

impl Open {
    /// Moves the front; false at the end.
    #[inline]
    fn move_front(&mut self) -> Result<bool> {
        if self.front_started {
            self.front.next()?;
        } else {
            self.front_started = true;
            self.front.seek_to_first()?;
        }
        if !self.front.valid() {
            return Ok(false);
        }
        if let Some(back) = &self.back
            && (!back.valid() || self.front.key() >= back.key())
        {
            return Ok(false);
        }
        Ok(true)
    }

    /// Moves the back; false at the end.
    #[inline]
    fn move_back(&mut self) -> Result<bool> {
        let back = match &mut self.back {
            Some(back) => {
                back.prev()?;
                back
            }
            None => {
                let mut back = self.front.twin()?;
                back.seek_to_last()?;
                self.back.insert(back)
            }
        };
        if !back.valid() {
            return Ok(false);
        }
        if self.front_started && (!self.front.valid() || self.front.key() >= back.key()) {
            return Ok(false);
        }
        Ok(true)
    }
}

impl Iterator for DbIterator {
    type Item = Result<(Slice, Slice)>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.step(false)
    }
}

impl DoubleEndedIterator for DbIterator {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(true)
    }
}

impl FusedIterator for DbIterator {}
