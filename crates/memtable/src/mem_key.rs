//! Keys as the order compares them, with the first 16 bytes of the user key inline.
//!
//! Most comparisons are decided by the two words of the head and touch nothing else. There are three forms of a key:
//! [`ShortKey`] finds the rest of its bytes through its entry, [`MemKey`] borrows them (a lookup allocates nothing), and
//! [`StoredKey`] shares the buffer of its batch, so that a skiplist can order it by itself.

use crate::entries::{Entry, EntryStore, kind_of};
use esker_base::{SequenceNumber, ValueKind};
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of the user key that are inline.
pub(crate) const HEAD: usize = 16;

/// The inline part of a key, and where the rest is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShortKey {
    /// The first 16 bytes, big-endian, zeros after the end.
    head: [u64; 2],
    /// `seq << 8 | kind`.
    packed: u64,
    /// Index of the entry; 0 in a lookup.
    index: u32,
    len: u16,
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

impl ShortKey {
    #[inline]
    fn new(user_key: &[u8], packed: u64, index: u32) -> Self {
        let len = u16::try_from(user_key.len()).unwrap_or(u16::MAX);
        ShortKey { head: head_of(user_key), packed, index, len }
    }

    /// The key of an entry.
    #[inline]
    pub(crate) fn of(entry: &Entry, index: u32) -> Self {
        Self::new(entry.user_key(), entry.packed(), index)
    }

    /// Index of the entry.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Length of the user key.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.len)
    }

    /// The number of the write.
    #[inline]
    pub(crate) fn seq(&self) -> SequenceNumber {
        self.packed >> 8
    }

    /// What the write did.
    #[inline]
    pub(crate) fn kind(&self) -> ValueKind {
        kind_of(self.packed)
    }

    /// The first 16 bytes of the user key, zeros after its end.
    #[inline]
    pub(crate) fn head_bytes(&self) -> [u8; HEAD] {
        (u128::from(self.head[0]) << 64 | u128::from(self.head[1])).to_be_bytes()
    }

    /// The first bytes of the user key as they compare: big-endian, zeros after the end.
    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.head[0]
    }

    /// As four numbers, which can be shared between threads without a lock.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; 4] {
        [self.head[0], self.head[1], self.packed, u64::from(self.len) << 32 | u64::from(self.index)]
    }

    /// The key that [`to_words`](Self::to_words) gave.
    #[inline]
    pub(crate) fn from_words([first, second, packed, rest]: [u64; 4]) -> Self {
        ShortKey { head: [first, second], packed, index: rest as u32, len: (rest >> 32) as u16 }
    }

    /// User key ascending, newest first. `tails` compares what follows the heads; it is called only if both keys are
    /// longer than that. Else, with equal heads, one key is a prefix of the other and the lengths decide.
    #[inline]
    fn cmp_with(&self, other: &Self, tails: impl FnOnce() -> Ordering) -> Ordering {
        if self.head[0] != other.head[0] {
            return self.head[0].cmp(&other.head[0]);
        }
        if self.head[1] != other.head[1] {
            return self.head[1].cmp(&other.head[1]);
        }
        let user_key =
            if usize::from(self.len.min(other.len)) <= HEAD { self.len.cmp(&other.len) } else { tails() };
        user_key.then_with(|| other.packed.cmp(&self.packed))
    }

    /// Compares two keys of entries.
    #[inline]
    pub(crate) fn cmp_in(&self, other: &Self, entries: &EntryStore) -> Ordering {
        self.cmp_with(other, || {
            let tail = |key: &Self| &entries.get(key.index).user_key()[HEAD..];
            tail(self).cmp(tail(other))
        })
    }

    /// Compares the key of an entry with a key that has its bytes.
    #[inline]
    pub(crate) fn cmp_to(&self, other: &MemKey<'_>, entries: &EntryStore) -> Ordering {
        self.cmp_with(&other.short, || entries.get(self.index).user_key()[HEAD..].cmp(other.tail()))
    }
}

/// A key with its bytes.
#[derive(Debug)]
pub(crate) struct MemKey<'a> {
    short: ShortKey,
    bytes: KeyBytes<'a>,
}

/// The whole user key, when the head doesn't hold it.
#[derive(Debug)]
enum KeyBytes<'a> {
    InHead,
    Borrowed(&'a [u8]),
    Shared { owner: Arc<[u8]>, start: u32 },
}

impl<'a> MemKey<'a> {
    /// A key to look for. Keys beyond the longest that can be stored compare as they should, too.
    #[inline]
    pub(crate) fn lookup(user_key: &'a [u8], packed: u64) -> Self {
        let bytes = if user_key.len() <= HEAD { KeyBytes::InHead } else { KeyBytes::Borrowed(user_key) };
        MemKey { short: ShortKey::new(user_key, packed, 0), bytes }
    }

    /// The key of an entry, borrowed.
    #[inline]
    pub(crate) fn of(entry: &'a Entry, index: u32) -> Self {
        MemKey { short: ShortKey::of(entry, index), ..Self::lookup(entry.user_key(), 0) }
    }

    #[inline]
    fn tail(&self) -> &[u8] {
        match &self.bytes {
            KeyBytes::InHead => &[],
            KeyBytes::Borrowed(user_key) => &user_key[HEAD..],
            KeyBytes::Shared { owner, start } => {
                let start = *start as usize;
                &owner[start + HEAD..start + usize::from(self.short.len)]
            }
        }
    }
}

impl Ord for MemKey<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.short.cmp_with(&other.short, || self.tail().cmp(other.tail()))
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

/// A key in a skiplist. A type of its own, so that it can be borrowed as a [`MemKey`] of any lifetime: that is what
/// lets a lookup borrow its bytes, in safe code.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredKey(MemKey<'static>);

impl StoredKey {
    /// The key of an entry.
    pub(crate) fn of(entry: &Entry, index: u32) -> Self {
        let bytes = if entry.user_key().len() <= HEAD {
            KeyBytes::InHead
        } else {
            let (owner, start) = entry.owner();
            KeyBytes::Shared { owner: Arc::clone(owner), start }
        };
        StoredKey(MemKey { short: ShortKey::of(entry, index), bytes })
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
    use esker_base::{InternalKeyRef, ValueKind};
    use proptest::prelude::*;

    /// Compares two keys in all forms.
    fn compare(a: InternalKeyRef<'_>, b: InternalKeyRef<'_>) -> Ordering {
        let entries = EntryStore::default();
        for (index, key) in [a, b].into_iter().enumerate() {
            let owner: Arc<[u8]> = Arc::from([b"xyz", key.user_key].concat());
            let entry = Entry::new(&owner, 3..owner.len(), 0..0, pack(key.seq, key.kind));
            entries.put(index as u32, entry);
        }
        let (x, y) = (ShortKey::of(entries.get(0), 0), ShortKey::of(entries.get(1), 1));
        let (p, q) = (StoredKey::of(entries.get(0), 0), StoredKey::of(entries.get(1), 1));
        let order = x.cmp_in(&y, &entries);
        assert_eq!(x.cmp_to(&MemKey::lookup(b.user_key, pack(b.seq, b.kind)), &entries), order);
        assert_eq!(MemKey::lookup(a.user_key, pack(a.seq, a.kind)).cmp(q.borrow()), order);
        assert_eq!(MemKey::of(entries.get(0), 0).cmp(&MemKey::of(entries.get(1), 1)), order);
        assert_eq!(p.cmp(&q), order);
        order
    }

    #[test]
    fn sizes_of_keys() {
        assert_eq!((size_of::<ShortKey>(), size_of::<StoredKey>()), (32, 56));
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
                let key = |user_key| InternalKeyRef::new(user_key, 7, ValueKind::Put);
                assert_eq!(compare(key(a), key(b)), a.cmp(b), "{a:?} {b:?}");
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
            let (a, b) = (InternalKeyRef::new(&a, s, kind), InternalKeyRef::new(&b, t, ValueKind::Put));
            prop_assert_eq!(compare(a, b), a.cmp(&b));
        }
    }
}
