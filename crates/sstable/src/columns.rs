//! [`RunColumns`]: entries of a [`BlockRun`] side by side, lent out of the block.
//!
//! Values are where they are in the image of the block. So are keys if they share no prefix; else they are put together in
//! [`RunKeys`], each in a piece of one length, so that the place of a key is a product.
//!
//! ```text
//! image:   prefix "user/", keys "17" "18" "2"
//! keys:    user/17......... user/18......... user/2..........
//! ```

use crate::block_run::BlockRun;
use crate::image::{Image, Spot};
use crate::image_cursor::CHUNK;

/// Bytes of keys that are put together at most.
const KEYS_LEN: usize = 64 << 10;

/// Bytes of a key behind the prefix from which on copies are not worth it.
const REST_MAX: usize = 256;

/// A buffer for the keys of one [`RunColumns`] after the other.
#[derive(Debug, Default)]
pub struct RunKeys {
    bytes: Vec<u8>,
}

impl RunKeys {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts together `len` keys of an image from entry `low` on. False when one of them is too long.
    fn fill(&mut self, image: &Image, low: usize, len: usize, rest_max: usize) -> bool {
        let prefix = image.prefix();
        let stride = prefix.len() + rest_max;
        if self.bytes.len() < len * stride {
            self.bytes.resize(len * stride, 0);
        }
        // Pieces of a fixed length are copied faster than keys are.
        let mut start = [0; CHUNK];
        let short = prefix.len() <= CHUNK;
        if short {
            start[..prefix.len()].copy_from_slice(prefix);
        }
        for (at, piece) in self.bytes.chunks_exact_mut(stride).take(len).enumerate() {
            let Ok(spot) = image.spot(low + at) else { return false };
            let rest = image.rest(&spot);
            if rest.len() > rest_max {
                return false;
            }
            match piece.first_chunk_mut::<CHUNK>() {
                Some(piece) if short => *piece = start,
                _ => piece[..prefix.len()].copy_from_slice(prefix),
            }
            let piece = &mut piece[prefix.len()..];
            match (piece.first_chunk_mut::<CHUNK>(), image.chunk::<CHUNK>(&spot)) {
                (Some(piece), Some(chunk)) if rest.len() <= CHUNK => *piece = *chunk,
                _ => piece[..rest.len()].copy_from_slice(rest),
            }
        }
        true
    }
}

/// Some entries of a block, the first one of the scan first.
#[derive(Clone, Copy, Debug)]
pub struct RunColumns<'a> {
    image: &'a Image,
    /// Empty when keys are lent out of the image.
    keys: &'a [u8],
    stride: usize,
    prefix_len: usize,
    /// The first entry in the order of the block, and how many there are.
    low: usize,
    len: usize,
    forward: bool,
}

impl<'a> RunColumns<'a> {
    /// How many entries there are; at least one.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no entry, which is never so.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Key and value of an entry.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`len`](Self::len).
    #[inline]
    pub fn get(&self, index: usize) -> (&'a [u8], &'a [u8]) {
        assert!(index < self.len, "entry {index} of {}", self.len);
        let at = if self.forward { index } else { self.len - 1 - index };
        // It was asked for when the columns were made.
        let spot = self.image.spot(self.low + at).unwrap_or_default();
        (self.key(at, &spot), self.image.value(&spot))
    }

    #[inline]
    fn key(&self, at: usize, spot: &Spot) -> &'a [u8] {
        if self.prefix_len == 0 {
            return self.image.rest(spot);
        }
        let len = self.prefix_len + usize::from(spot.value_at.saturating_sub(spot.key_at));
        self.keys.get(at * self.stride..).and_then(|keys| keys.get(..len)).unwrap_or(&[])
    }
}

impl BlockRun {
    /// Up to `most` entries of the run, from the present one on in a direction. `None` when they can't be lent together,
    /// since keys are very long, or the memory of the block has changed, which who goes entry by entry is told.
    #[inline]
    pub fn columns<'a>(
        &'a self,
        forward: bool,
        most: usize,
        keys: &'a mut RunKeys,
    ) -> Option<RunColumns<'a>> {
        let image = self.cursor.image()?;
        let prefix_len = image.prefix().len();
        let mut len = self.left(forward).min(most);
        if prefix_len > 0 {
            len = len.min(KEYS_LEN / (prefix_len + CHUNK));
        }
        let index = self.cursor.index();
        let low = |len: usize| if forward { Some(index) } else { (index + 1).checked_sub(len) };
        let mut columns = RunColumns {
            image,
            keys: &[],
            stride: prefix_len + CHUNK,
            prefix_len,
            low: low(len)?,
            len,
            forward,
        };
        let last = columns.low + len.checked_sub(1)?;
        image.spot(last).ok()?;
        if prefix_len > 0 {
            if !keys.fill(image, columns.low, len, CHUNK) {
                columns.stride = prefix_len + REST_MAX;
                columns.len = len.min(KEYS_LEN / columns.stride);
                columns.low = low(columns.len)?;
                if columns.len == 0 || !keys.fill(image, columns.low, columns.len, REST_MAX) {
                    return None;
                }
            }
            columns.keys = &keys.bytes;
        }
        Some(columns)
    }

    /// Entries of the run from the present one on in a direction, which counts.
    #[inline]
    pub fn left(&self, forward: bool) -> usize {
        let index = self.cursor.index();
        let following =
            if forward { self.high.saturating_sub(index) } else { index.saturating_sub(self.low) };
        1 + following
    }

    /// Goes on by some entries, fewer than are [`left`](Self::left). False, and nothing is done, if that fails.
    #[inline]
    pub fn skip(&mut self, forward: bool, entries: usize) -> bool {
        let index = self.cursor.index();
        let to = if forward { index.checked_add(entries) } else { index.checked_sub(entries) };
        to.is_some_and(|to| (self.low..=self.high).contains(&to) && self.cursor.move_to(to).unwrap_or(false))
    }
}
