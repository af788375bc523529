//! [`Outline`]: what a merge knows of a key without a look at its bytes.

use crate::{InternalKeyRef, SequenceNumber, ValueKind, key_head};
use std::cmp::Ordering;

/// Bytes of a user key that its outline has.
pub const OUTLINE_LEN: usize = size_of::<u128>();

/// The first 16 bytes of a user key, its length, and the other parts of an internal key. Most keys are told apart by
/// these, and user keys of up to 16 bytes always are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// [`key_head`] of the user key.
    pub head: u128,
    /// Length of the user key.
    pub len: usize,
    /// The number of the write.
    pub seq: SequenceNumber,
    /// What the write did.
    pub kind: ValueKind,
}

impl Outline {
    /// The outline of a key.
    #[inline]
    pub fn of(key: InternalKeyRef<'_>) -> Self {
        Outline { head: key_head(key.user_key), len: key.user_key.len(), seq: key.seq, kind: key.kind }
    }

    /// Whether the outline has all of the user key.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.len <= OUTLINE_LEN
    }

    /// The order of two internal keys; `None` when the rest of the user keys must be looked at.
    #[inline]
    pub fn order(&self, other: &Self) -> Option<Ordering> {
        if self.head != other.head {
            return Some(self.head.cmp(&other.head));
        }
        // With equal heads, one that is whole is a prefix of the other.
        let decided = self.len.min(other.len) <= OUTLINE_LEN;
        let versions = || other.seq.cmp(&self.seq).then_with(|| other.kind.cmp(&self.kind));
        decided.then(|| self.len.cmp(&other.len).then_with(versions))
    }

    /// Whether two user keys surely differ. If not, they are equal as far as their outlines go.
    #[inline]
    pub fn differs(&self, other: &Self) -> bool {
        self.head != other.head || self.len != other.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Mutation: lengths decide between longer keys, too; sequence numbers ascend.
        #[test]
        fn outlines_order_as_keys(
            a in prop::collection::vec(0_u8..2, 0..20), b in prop::collection::vec(0_u8..2, 0..20),
            prefix in 0_usize..18, seqs in (0_u64..3, 0_u64..3), deletes: (bool, bool),
        ) {
            let kind = |delete| if delete { ValueKind::Delete } else { ValueKind::Put };
            let key = |rest: &[u8]| [&vec![7; prefix][..], rest].concat();
            let (a, b) = (key(&a), key(&b));
            let one = InternalKeyRef::new(&a, seqs.0, kind(deletes.0));
            let other = InternalKeyRef::new(&b, seqs.1, kind(deletes.1));
            let (x, y) = (Outline::of(one), Outline::of(other));
            match x.order(&y) {
                Some(order) => prop_assert_eq!(order, one.cmp(&other)),
                None => prop_assert!(!x.is_whole() && !y.is_whole()),
            }
            prop_assert!(!x.differs(&y) || a != b);
            prop_assert!(x.differs(&y) || !x.is_whole() || a == b);
        }
    }
}
