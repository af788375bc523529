//! [`MemKey`]: what the ordered structure compares, with the first 16 bytes of the user key inline.
//!
//! Most comparisons are decided by the two words of the head and touch nothing but the node. A lookup borrows its key
//! (`MemKey<'a>` over the caller's bytes) and allocates nothing; a stored one shares the buffer of its batch, and only
//! if it is longer than its head.

use esker_base::InternalKeyRef;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of the user key that are inline.
pub(crate) const HEAD: usize = 16;

/// A version of a user key: user key ascending, newest first.
#[derive(Debug)]
pub(crate) struct MemKey<'a> {
    /// The first 16 bytes, big-endian, zeros after the end.
    head: [u64; 2],
    /// `seq << 8 | kind`.
    packed: u64,
    bytes: KeyBytes<'a>,
    len: u16,
    /// Index of the entry; 0 in a lookup.
    index: u32,
}

/// The whole user key, when the head doesn't hold it.
#[derive(Debug)]
enum KeyBytes<'a> {
    InHead,
    Borrowed(&'a [u8]),
    Shared { owner: Arc<[u8]>, start: u32 },
}

#[inline]
fn head_of(user_key: &[u8]) -> [u64; 2] {
    let mut head = [0; HEAD];
    match user_key.first_chunk::<HEAD>() {
        Some(first) => head = *first,
        None => head[..user_key.len()].copy_from_slice(user_key),
    }
    let (words, _) = head.as_chunks::<8>();
    [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])]
}

impl<'a> MemKey<'a> {
    /// A key to look for. Keys beyond the longest that can be stored compare as they should, too.
    #[inline]
    pub(crate) fn lookup(user_key: &'a [u8], packed: u64) -> Self {
        let bytes = if user_key.len() <= HEAD { KeyBytes::InHead } else { KeyBytes::Borrowed(user_key) };
        let len = u16::try_from(user_key.len()).unwrap_or(u16::MAX);
        MemKey { head: head_of(user_key), packed, bytes, len, index: 0 }
    }

    #[inline]
    fn tail(&self) -> &[u8] {
        match &self.bytes {
            KeyBytes::InHead => &[],
            KeyBytes::Borrowed(user_key) => &user_key[HEAD..],
            KeyBytes::Shared { owner, start } => {
                let start = *start as usize;
                &owner[start + HEAD..start + usize::from(self.len)]
            }
        }
    }

    /// Equal heads: either one is no longer than the head, then it is a prefix of the other; or the tails decide.
    #[inline]
    fn cmp_after_head(&self, other: &Self) -> Ordering {
        let user_key = if usize::from(self.len.min(other.len)) <= HEAD {
            self.len.cmp(&other.len)
        } else {
            self.tail().cmp(other.tail())
        };
        user_key.then_with(|| other.packed.cmp(&self.packed))
    }
}

impl Ord for MemKey<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        if self.head[0] != other.head[0] {
            return self.head[0].cmp(&other.head[0]);
        }
        if self.head[1] != other.head[1] {
            return self.head[1].cmp(&other.head[1]);
        }
        self.cmp_after_head(other)
    }
}

impl PartialOrd for MemKey<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for MemKey<'_> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for MemKey<'_> {}

/// A key in the skiplist. A type of its own, so that it can be borrowed as a [`MemKey`] of any lifetime: that is what
/// lets a lookup borrow its bytes, in safe code.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredKey(MemKey<'static>);

impl StoredKey {
    /// A stored key; `owner` holds its bytes from `start`.
    #[inline]
    pub(crate) fn new(key: InternalKeyRef<'_>, owner: (&Arc<[u8]>, u32), index: u32) -> Self {
        let bytes = if key.user_key.len() <= HEAD {
            KeyBytes::InHead
        } else {
            KeyBytes::Shared { owner: Arc::clone(owner.0), start: owner.1 }
        };
        let len = u16::try_from(key.user_key.len()).expect("the entry has checked the length");
        let packed = crate::entries::pack(key.seq, key.kind);
        StoredKey(MemKey { head: head_of(key.user_key), packed, bytes, len, index })
    }

    /// Index of the entry.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.0.index
    }
}

impl<'a> Borrow<MemKey<'a>> for StoredKey {
    #[inline]
    fn borrow(&self) -> &MemKey<'a> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::pack;
    use esker_base::ValueKind;
    use proptest::prelude::*;

    fn stored(user_key: &[u8], seq: u64, kind: ValueKind) -> StoredKey {
        let owner: Arc<[u8]> = Arc::from([b"xyz", user_key].concat());
        StoredKey::new(InternalKeyRef::new(user_key, seq, kind), (&owner, 3), 1)
    }

    #[test]
    fn a_key_takes_56_bytes() {
        assert_eq!(size_of::<StoredKey>(), 56);
    }

    /// Keys that are equal but for zeros and lengths around the end of the head.
    #[test]
    fn head_ties_fall_to_the_whole_key() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for len in [0, 1, 14, 15, 16, 17, 18, 31, 32, 33, 300] {
            for zeros in [0, 1, 2, 3, 17] {
                keys.push([vec![b'k'; len], vec![0; zeros]].concat());
            }
        }
        for a in &keys {
            for b in &keys {
                let expected = a.cmp(b);
                let (x, y) = (stored(a, 7, ValueKind::Put), stored(b, 7, ValueKind::Put));
                assert_eq!(x.cmp(&y), expected, "{a:?} {b:?}");
                assert_eq!(MemKey::lookup(a, pack(7, ValueKind::Put)).cmp(y.borrow()), expected);
            }
        }
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_internal_keys(
            a in prop::collection::vec(0u8..3, 0..40), b in prop::collection::vec(0u8..3, 0..40),
            shared in 0usize..20, s in 0u64..3, t in 0u64..3, put: bool,
        ) {
            let (a, b) = ([vec![1; shared], a].concat(), [vec![1; shared], b].concat());
            let kind = if put { ValueKind::Put } else { ValueKind::Delete };
            let expected = InternalKeyRef::new(&a, s, kind).cmp(&InternalKeyRef::new(&b, t, ValueKind::Put));
            prop_assert_eq!(stored(&a, s, kind).cmp(&stored(&b, t, ValueKind::Put)), expected);
            prop_assert_eq!(MemKey::lookup(&a, pack(s, kind)).cmp(stored(&b, t, ValueKind::Put).borrow()), expected);
        }
    }
}
