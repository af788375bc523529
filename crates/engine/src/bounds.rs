//! [`Bounds`]: where a scan may go, in user keys.

use esker_base::{InternalKeyRef, planted};
use std::ops::{Bound, RangeBounds};

/// The bounds of a scan, in user keys.
#[derive(Clone, Debug)]
pub(crate) struct Bounds {
    pub(crate) lower: Bound<Vec<u8>>,
    pub(crate) upper: Bound<Vec<u8>>,
}

impl Bounds {
    pub(crate) const ALL: Bounds = Bounds { lower: Bound::Unbounded, upper: Bound::Unbounded };

    /// Where a scan ends in a direction: it shows what is before this place, or going backward what is behind it.
    #[inline]
    pub(crate) fn end(&self, forward: bool) -> Option<InternalKeyRef<'_>> {
        match if forward { &self.upper } else { &self.lower } {
            Bound::Unbounded => None,
            Bound::Included(key) if forward => Some(InternalKeyRef::behind(key)),
            Bound::Excluded(key) if !forward => Some(InternalKeyRef::behind(key)),
            Bound::Included(key) | Bound::Excluded(key) => Some(InternalKeyRef::before(key)),
        }
    }

    #[inline]
    pub(crate) fn has_lower(&self) -> bool {
        self.lower != Bound::Unbounded
    }

    #[inline]
    pub(crate) fn has_upper(&self) -> bool {
        self.upper != Bound::Unbounded
    }

    #[inline]
    pub(crate) fn below(&self, key: &[u8]) -> bool {
        match &self.lower {
            Bound::Unbounded => false,
            Bound::Included(lower) => key < lower.as_slice(),
            Bound::Excluded(lower) => key <= lower.as_slice(),
        }
    }

    #[inline]
    pub(crate) fn above(&self, key: &[u8]) -> bool {
        match &self.upper {
            Bound::Unbounded => false,
            Bound::Included(upper) => key > upper.as_slice(),
            Bound::Excluded(upper) if planted::is(planted::Fault::BoundIncluded) => key > upper.as_slice(),
            Bound::Excluded(upper) => key >= upper.as_slice(),
        }
    }
}

/// The bounds of a range as owned keys; `None` when no key can lie between them.
pub(crate) fn bounds_of<K: AsRef<[u8]>>(range: &impl RangeBounds<K>) -> Option<Bounds> {
    let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
    let bounds = Bounds { lower: own(range.start_bound()), upper: own(range.end_bound()) };
    let empty = match (&bounds.lower, &bounds.upper) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (Bound::Excluded(lower), Bound::Excluded(upper))
        | (Bound::Included(lower), Bound::Excluded(upper))
        | (Bound::Excluded(lower), Bound::Included(upper)) => lower >= upper,
    };
    (!empty).then_some(bounds)
}

/// The bounds of all keys that start with `prefix`.
pub(crate) fn prefix_bounds(prefix: &[u8]) -> Bounds {
    let lower = if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix.to_vec()) };
    let mut after = prefix.to_vec();
    while let Some(last) = after.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Bounds { lower, upper: Bound::Excluded(after) };
        }
        after.pop();
    }
    Bounds { lower, upper: Bound::Unbounded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_bounds_end_at_the_next_prefix() {
        let upper = |prefix: &[u8]| prefix_bounds(prefix).upper;
        assert_eq!(upper(b"ab"), Bound::Excluded(b"ac".to_vec()));
        assert_eq!(upper(b"a\xff\xff"), Bound::Excluded(b"b".to_vec()));
        assert_eq!(upper(b"\xff\xff"), Bound::Unbounded);
        assert_eq!(upper(b""), Bound::Unbounded);
        assert_eq!(prefix_bounds(b"").lower, Bound::Unbounded);
    }

    /// IT05, IT06: inverted and empty ranges hold nothing, whatever form their bounds have.
    #[test]
    fn it05_empty_ranges_are_known_before_anything_is_read() {
        type Range = (Bound<&'static [u8]>, Bound<&'static [u8]>);
        let (a, b): (&[u8], &[u8]) = (b"a", b"b");
        let empty: [Range; 6] = [
            (Bound::Included(b), Bound::Included(a)),
            (Bound::Included(b), Bound::Excluded(a)),
            (Bound::Excluded(b), Bound::Excluded(a)),
            (Bound::Included(a), Bound::Excluded(a)),
            (Bound::Excluded(a), Bound::Included(a)),
            (Bound::Excluded(a), Bound::Excluded(a)),
        ];
        assert!(empty.iter().all(|range| bounds_of::<&[u8]>(range).is_none()));
        let full: [Range; 4] = [
            (Bound::Included(a), Bound::Included(a)),
            (Bound::Excluded(a), Bound::Excluded(b)),
            (Bound::Unbounded, Bound::Excluded(a)),
            (Bound::Excluded(b), Bound::Unbounded),
        ];
        assert!(full.iter().all(|range| bounds_of::<&[u8]>(range).is_some()));
    }
}
