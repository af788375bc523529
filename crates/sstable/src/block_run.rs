//! [`BlockRun`]: entries of one block that a scan goes over by itself, without a look at other sources.
//!
//! Most entries of a scan lie in blocks in which nothing is hidden: all are puts of different keys, the reader may see all
//! of them, and no other source has anything between them. This is settled once for such a run; a step within it is an
//! index. The run takes the position out of the [`TableIterator`](crate::TableIterator), which gets it back afterwards.
//!
//! ```text
//! block:        a  b  c  d  e  f  g  h         all puts, none newer than the reader
//! others:    .              ^  the next entry of any other source
//! run:             [c  d]                      from the present entry up to there
//! ```

use crate::image::Image;
use crate::image_cursor::ImageCursor;
use esker_base::{InternalKeyRef, SequenceNumber, Slice, key_head};

/// How far a run may go.
#[derive(Clone, Copy, Debug)]
pub struct RunLimits<'a> {
    /// The reader's sequence number.
    pub seq: SequenceNumber,
    /// Whether the scan goes forward.
    pub forward: bool,
    /// The run ends before this place in the direction of the scan: other sources have entries there. Place and head of
    /// its key.
    pub other: Option<(InternalKeyRef<'a>, u128)>,
    /// Whether to search the block for `other`. If not, there is a run only when all of the block is on its side.
    pub search: bool,
    /// The same for the bound of the scan, for which the block is always searched.
    pub bound: Option<InternalKeyRef<'a>>,
}

/// A position among entries of one block.
#[derive(Debug)]
pub struct BlockRun {
    pub(crate) cursor: ImageCursor,
    /// The first and the last entry of the run.
    pub(crate) low: usize,
    pub(crate) high: usize,
}

impl Default for BlockRun {
    fn default() -> Self {
        Self::new()
    }
}

impl BlockRun {
    /// A run over nothing.
    pub fn new() -> Self {
        BlockRun { cursor: ImageCursor::new(), low: 0, high: 0 }
    }

    /// Takes over `cursor`, which stands on an entry of an image, if at least one more entry follows within the limits.
    #[inline]
    pub(crate) fn take(&mut self, cursor: &mut ImageCursor, limits: &RunLimits<'_>) -> bool {
        let Some(range) = reach(cursor, limits) else { return false };
        (self.low, self.high) = range;
        std::mem::swap(&mut self.cursor, cursor);
        true
    }

    /// Goes to the following entry; false, and nothing is done, at the end of the run.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "a run is not an iterator: its items borrow from it")]
    pub fn next(&mut self) -> bool {
        let index = self.cursor.index();
        // An error is met again, and told, by who goes on after the run.
        index < self.high && self.cursor.move_to(index + 1).unwrap_or(false)
    }

    /// Goes to the preceding entry; false, and nothing is done, at the start of the run.
    #[inline]
    pub fn prev(&mut self) -> bool {
        let index = self.cursor.index();
        index > self.low && self.cursor.move_to(index - 1).unwrap_or(false)
    }

    /// The user key here.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.cursor.key().user_key
    }

    /// The value here.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    /// The value here, sharing the memory of the block.
    #[inline]
    pub fn value_slice(&self) -> Slice {
        self.cursor.value_slice()
    }
}

/// The first and the last entry of a run from the present entry on; `None` when it would end here.
#[inline]
fn reach(cursor: &ImageCursor, limits: &RunLimits<'_>) -> Option<(usize, usize)> {
    let image = cursor.image()?;
    let span = image.span.as_ref().filter(|span| span.newest <= limits.seq)?;
    let index = cursor.index();
    // The block before may have a newer version of the first key.
    let (mut low, mut high) = if limits.forward { (index, image.len() - 1) } else { (1, index) };
    let (first, last) = (u128::from_be_bytes(span.first), u128::from_be_bytes(span.last));
    let beyond = |head| if limits.forward { last < head } else { head < first };
    if low >= high {
        return None;
    }
    if let Some((other, head)) = limits.other
        && !beyond(head)
    {
        if !limits.search {
            return None;
        }
        narrow(image, limits.forward, other, &mut low, &mut high)?;
    }
    if let Some(bound) = limits.bound
        && !beyond(key_head(bound.user_key))
    {
        narrow(image, limits.forward, bound, &mut low, &mut high)?;
    }
    (low < high).then_some((low, high))
}

/// Leaves entries on one side of `place` only: those before it, or those behind it when going backward.
#[cold]
fn narrow(
    image: &Image,
    forward: bool,
    place: InternalKeyRef<'_>,
    low: &mut usize,
    high: &mut usize,
) -> Option<()> {
    let at = image.seek(place).ok()?;
    if forward {
        *high = (*high).min(at.checked_sub(1)?);
    } else {
        *low = (*low).max(at);
    }
    Some(())
}
