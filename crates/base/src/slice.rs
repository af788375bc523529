//! [`Slice`]: bytes that are cheap to clone and may share a larger buffer.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Longest slice that is held inline.
const INLINE: usize = 30;

/// Immutable bytes: a copy when they are few, else a counted reference into a shared buffer.
///
/// A slice of up to 30 bytes is held inline; a longer one shares its buffer (a cached block of a table, a batch in
/// the memtable) and keeps that alive. To keep a small value for long, and let a large buffer go, copy it with
/// [`to_vec`](slice::to_vec).
///
/// ```
/// # use esker_base as esker;
/// use esker::Slice;
/// use std::sync::Arc;
///
/// let block: Arc<[u8]> = Arc::from(vec![7; 4096]);
/// let slice = Slice::shared(&block, 100..200);
/// assert_eq!(slice.len(), 100);
/// assert_eq!(slice, vec![7; 100]);
/// ```
#[derive(Clone)]
pub struct Slice(Repr);

#[derive(Clone)]
enum Repr {
    Inline { len: u8, data: [u8; INLINE] },
    Shared { owner: Arc<[u8]>, start: u32, len: u32 },
}

impl Slice {
    /// The empty slice.
    #[inline]
    pub const fn empty() -> Self {
        Slice(Repr::Inline { len: 0, data: [0; INLINE] })
    }

    /// A slice with its own copy of `bytes`.
    #[inline]
    pub fn copy_from(bytes: &[u8]) -> Self {
        Self::inline(bytes).unwrap_or_else(|| Self::whole(Arc::from(bytes)))
    }

    /// A slice of `range` in `owner`, which it keeps alive unless the range is short.
    ///
    /// # Panics
    ///
    /// When the range is not inside `owner`.
    #[inline]
    pub fn shared(owner: &Arc<[u8]>, range: Range<usize>) -> Self {
        let bytes = &owner[range.clone()];
        if let Some(inline) = Self::inline(bytes) {
            return inline;
        }
        match (u32::try_from(range.start), u32::try_from(bytes.len())) {
            (Ok(start), Ok(len)) => Slice(Repr::Shared { owner: Arc::clone(owner), start, len }),
            _ => Self::whole(Arc::from(bytes)),
        }
    }

    fn whole(owner: Arc<[u8]>) -> Self {
        let len = u32::try_from(owner.len()).expect("values are limited to 1 GiB");
        Slice(Repr::Shared { owner, start: 0, len })
    }

    #[inline]
    fn inline(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > INLINE {
            return None;
        }
        let mut data = [0; INLINE];
        data[..bytes.len()].copy_from_slice(bytes);
        Some(Slice(Repr::Inline { len: bytes.len() as u8, data }))
    }
}

impl Deref for Slice {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, data } => &data[..usize::from(*len)],
            Repr::Shared { owner, start, len } => {
                let start = *start as usize;
                &owner[start..start + *len as usize]
            }
        }
    }
}

impl AsRef<[u8]> for Slice {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Borrow<[u8]> for Slice {
    #[inline]
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Default for Slice {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<&[u8]> for Slice {
    fn from(bytes: &[u8]) -> Self {
        Self::copy_from(bytes)
    }
}

impl From<Vec<u8>> for Slice {
    fn from(bytes: Vec<u8>) -> Self {
        Self::copy_from(&bytes)
    }
}

impl From<Slice> for Vec<u8> {
    fn from(slice: Slice) -> Self {
        slice.to_vec()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Slice {
    #[inline]
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Slice {}

impl PartialOrd for Slice {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Slice {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Slice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_fits_half_a_cache_line() {
        assert_eq!(size_of::<Slice>(), 32);
        assert_eq!(size_of::<Option<Slice>>(), 32);
    }

    #[test]
    fn short_ones_do_not_keep_their_buffer() {
        let owner: Arc<[u8]> = Arc::from(vec![1; 100]);
        let short = Slice::shared(&owner, 0..INLINE);
        assert_eq!(Arc::strong_count(&owner), 1);
        let long = Slice::shared(&owner, 0..INLINE + 1);
        assert_eq!(Arc::strong_count(&owner), 2);
        assert_eq!(long.len(), short.len() + 1);
        assert_eq!(long[..INLINE], short[..]);
        assert!(short < long);
    }

    #[test]
    fn every_length_round_trips() {
        for len in 0..100 {
            let bytes: Vec<u8> = (0..len).collect();
            assert_eq!(Slice::from(&bytes[..]), bytes);
            assert_eq!(Vec::from(Slice::from(bytes.clone())), bytes);
        }
    }
}
