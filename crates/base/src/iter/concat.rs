//! One iterator over sources that lie one after another: the tables of a level below level 0.
//!
//! Sources are opened when they are reached, so a scan of a small range opens the tables of that range only.

use super::InternalIterator;
use crate::{InternalKeyRef, Outline, Result, Slice};

/// Sorted, disjoint sources, opened by index.
pub trait ConcatSource {
    /// The iterator over one source.
    type Iter: InternalIterator;

    /// How many sources there are.
    fn count(&self) -> usize;

    /// Index of the first source whose last key is at or after `target`; [`count`](Self::count) when there is none.
    fn find(&self, target: InternalKeyRef<'_>) -> usize;

    /// Opens the source at `index`, which is below [`count`](Self::count).
    fn open(&self, index: usize) -> Result<Self::Iter>;
}

/// Iterates over the sources of a [`ConcatSource`], one after another.
#[derive(Debug)]
pub struct ConcatIterator<S: ConcatSource> {
    source: S,
    /// The open source and its index. It is valid whenever this iterator is.
    current: Option<(usize, S::Iter)>,
}

impl<S: ConcatSource> ConcatIterator<S> {
    /// An iterator over all of `source`. Opens nothing yet.
    pub fn new(source: S) -> Self {
        ConcatIterator { source, current: None }
    }

    /// The iterator over the source that the entry here is in.
    #[inline]
    pub fn current_mut(&mut self) -> Option<&mut S::Iter> {
        self.current.as_mut().map(|(_, iter)| iter)
    }

    /// Makes the source at `index` the current one, reusing it when it is open.
    fn open(&mut self, index: usize) -> Result<()> {
        if self.current.as_ref().is_none_or(|(at, _)| *at != index) {
            self.current = None;
            self.current = Some((index, self.source.open(index)?));
        }
        Ok(())
    }

    /// Runs a movement on the current source; forgets the source when that fails.
    #[inline]
    fn moved(&mut self, movement: impl FnOnce(&mut S::Iter) -> Result<()>) -> Result<()> {
        let Some((_, iter)) = &mut self.current else { return Ok(()) };
        let result = movement(iter);
        if result.is_err() {
            self.current = None;
        }
        result
    }

    /// While the current source is past its end: the first entry of the following one.
    fn skip_forward(&mut self) -> Result<()> {
        while let Some((index, iter)) = &self.current
            && !iter.valid()
        {
            let following = index + 1;
            if following >= self.source.count() {
                self.current = None;
                break;
            }
            self.open(following)?;
            self.moved(InternalIterator::seek_to_first)?;
        }
        Ok(())
    }

    /// While the current source is past its start: the last entry of the preceding one.
    fn skip_backward(&mut self) -> Result<()> {
        while let Some((index, iter)) = &self.current
            && !iter.valid()
        {
            let Some(preceding) = index.checked_sub(1) else {
                self.current = None;
                break;
            };
            self.open(preceding)?;
            self.moved(InternalIterator::seek_to_last)?;
        }
        Ok(())
    }
}

impl<S: ConcatSource> InternalIterator for ConcatIterator<S> {
    fn seek_to_first(&mut self) -> Result<()> {
        if self.source.count() == 0 {
            return Ok(());
        }
        self.open(0)?;
        self.moved(InternalIterator::seek_to_first)?;
        self.skip_forward()
    }

    fn seek_to_last(&mut self) -> Result<()> {
        let Some(last) = self.source.count().checked_sub(1) else { return Ok(()) };
        self.open(last)?;
        self.moved(InternalIterator::seek_to_last)?;
        self.skip_backward()
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        let index = self.source.find(target);
        if index >= self.source.count() {
            self.current = None;
            return Ok(());
        }
        self.open(index)?;
        self.moved(|iter| iter.seek(target))?;
        self.skip_forward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.moved(InternalIterator::next)?;
        if self.current.as_ref().is_some_and(|(_, iter)| iter.valid()) { Ok(()) } else { self.skip_forward() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.moved(InternalIterator::prev)?;
        if self.current.as_ref().is_some_and(|(_, iter)| iter.valid()) {
            Ok(())
        } else {
            self.skip_backward()
        }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.current.is_some()
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        self.current.as_ref().expect("key needs valid()").1.key()
    }

    #[inline]
    fn outline(&self) -> Option<Outline> {
        self.current.as_ref()?.1.outline()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current.as_ref().expect("value needs valid()").1.value()
    }

    #[inline]
    fn is_newest(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, iter)| iter.is_newest())
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.current.as_ref().expect("value_slice needs valid()").1.value_slice()
    }
}
