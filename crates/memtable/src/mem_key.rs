//! Keys as the order compares them, with 16 bytes of the user key inline.
//!
//! Most comparisons are decided by the two words of this head and touch nothing else. Which bytes those are says the
//! [`Window`]: the first ones, or those behind a prefix that the keys share. There are three forms of a key: [`ShortKey`]
//! finds the rest of its bytes through its entry, [`MemKey`] borrows them (a lookup allocates nothing), and [`StoredKey`]
//! shares the buffer of its batch, so that a skiplist can order it by itself. Only keys of one window can be compared.

use crate::entries::{EntryRef, EntryStore, Packed};
use esker_base::common_prefix_len;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::sync::Arc;

/// Bytes of the user key that are inline.
pub(crate) const HEAD: usize = 16;

/// Stands for "not in the window" in [`ShortKey::rest`].
const OUTSIDE: u16 = u16::MAX;

/// Bytes of the head that lie before the place where keys start to differ, so that counters may grow.
const ROOM: usize = 6;

/// A key to look for, or that of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WholeKey<'a> {
    pub(crate) user_key: &'a [u8],
    pub(crate) packed: Packed,
}

impl<'a> WholeKey<'a> {
    #[inline]
    pub(crate) fn of(entry: EntryRef<'a>) -> Self {
        WholeKey { user_key: entry.user_key(), packed: entry.packed() }
    }
}

/// Which bytes of the user keys are in their heads: those behind a prefix. Keys without the prefix are *outside*: their
/// heads are the lowest or the highest number, so that heads ascend with the keys, and whole keys decide between equals.
#[derive(Debug, Default)]
pub(crate) struct Window {
    prefix: Box<[u8]>,
}

impl Window {
    /// A window that suits some keys, given in ascending order, and hopefully those that will follow.
    ///
    /// With too short a prefix many heads are equal, with too long a one later keys are outside: sorted numbers soon lack
    /// the leading digits that the first ones share. So the place where most neighbours differ comes behind [`ROOM`] bytes.
    pub(crate) fn learned<'a>(keys: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        if keys.clone().all(|key| key.len() <= HEAD) {
            // The heads are all of the keys, and iterators need no entries to tell them.
            return Self::default();
        }
        let neighbours = keys.clone().zip(keys.clone().skip(1)).filter(|(one, other)| one != other);
        let mut common: Vec<usize> = neighbours.map(|(one, other)| common_prefix_len(one, other)).collect();
        common.sort_unstable();
        let Some(&differ_at) = common.get(common.len() * 3 / 4) else { return Self::default() };
        let (Some(first), Some(last)) = (keys.clone().next(), keys.last()) else { return Self::default() };
        let len = differ_at.saturating_sub(ROOM).min(common_prefix_len(first, last));
        Window { prefix: Box::from(&first[..len.min(usize::from(OUTSIDE - 1))]) }
    }

    /// The key of an entry at `index`, or to look for.
    #[inline]
    pub(crate) fn short(&self, key: WholeKey<'_>, index: u32) -> ShortKey {
        let WholeKey { user_key, packed } = key;
        let len = u16::try_from(user_key.len()).unwrap_or(u16::MAX);
        if self.prefix.is_empty() {
            return ShortKey { head: head_of(user_key), packed, index, len, rest: len };
        }
        let (head, rest) = match user_key.strip_prefix(&*self.prefix) {
            Some(rest) => (head_of(rest), len - self.prefix.len() as u16),
            None if *user_key < *self.prefix => ([0; 2], OUTSIDE),
            None => ([u64::MAX; 2], OUTSIDE),
        };
        ShortKey { head, packed, index, len, rest }
    }

    /// The same with all bytes.
    #[inline]
    pub(crate) fn mem_key<'a>(&self, key: WholeKey<'a>) -> MemKey<'a> {
        MemKey { short: self.short(key, 0), bytes: KeyBytes::Borrowed(key.user_key) }
    }
}

/// The inline part of a key, and where the rest is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShortKey {
    /// The first 16 bytes of the window, big-endian, zeros after the end.
    head: [u64; 2],
    packed: Packed,
    /// Index of the entry; 0 in a lookup.
    index: u32,
    len: u16,
    /// Bytes from the start of the window on, or [`OUTSIDE`].
    rest: u16,
}

#[inline]
fn head_of(bytes: &[u8]) -> [u64; 2] {
    let mut head = [0; HEAD];
    match bytes.first_chunk::<HEAD>() {
        Some(first) => head = *first,
        None => head[..bytes.len()].copy_from_slice(bytes),
    }
    let (words, _) = head.as_chunks::<8>();
    [u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])]
}

impl ShortKey {
    /// Index of the entry.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The number of the write and what it did.
    #[inline]
    pub(crate) fn packed(&self) -> Packed {
        self.packed
    }

    /// Length of the user key, if the head is all of it.
    #[inline]
    pub(crate) fn len_in_head(&self) -> Option<usize> {
        let len = usize::from(self.len);
        (self.len == self.rest && len <= HEAD).then_some(len)
    }

    /// Whether it is a version of the user key of `other`.
    #[inline]
    pub(crate) fn same_user_key(&self, other: &Self, entries: &EntryStore) -> bool {
        let same_head = (self.head, self.len, self.rest) == (other.head, other.len, other.rest);
        let whole = usize::from(self.rest) <= HEAD;
        same_head && (whole || entries.get(self.index).user_key() == entries.get(other.index).user_key())
    }

    /// 16 bytes of the user key, zeros after its end.
    #[inline]
    pub(crate) fn head_bytes(&self) -> [u8; HEAD] {
        self.head().to_be_bytes()
    }

    /// The same as they compare: big-endian.
    #[inline]
    pub(crate) fn head(&self) -> u128 {
        u128::from(self.head[0]) << 64 | u128::from(self.head[1])
    }

    /// As four numbers, which can be shared between threads without a lock. The last is never 0.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; 4] {
        let rest = u64::from(self.rest) << 48 | u64::from(self.len) << 32 | (u64::from(self.index) + 1);
        [self.head[0], self.head[1], self.packed.to_word(), rest]
    }

    /// The key that [`to_words`](Self::to_words) gave.
    #[inline]
    pub(crate) fn from_words([first, second, packed, rest]: [u64; 4]) -> Self {
        ShortKey {
            head: [first, second],
            packed: Packed::from_word(packed),
            index: (rest as u32).wrapping_sub(1),
            len: (rest >> 32) as u16,
            rest: (rest >> 48) as u16,
        }
    }

    /// User key ascending, newest first. `tails` compares the user keys from an offset on; it is called only if the heads
    /// don't tell. Else, with equal heads, one key is a prefix of the other and the lengths decide.
    #[inline]
    fn cmp_with(&self, other: &Self, tails: impl FnOnce(usize) -> Ordering) -> Ordering {
        if self.head[0] != other.head[0] {
            return self.head[0].cmp(&other.head[0]);
        }
        if self.head[1] != other.head[1] {
            return self.head[1].cmp(&other.head[1]);
        }
        let user_key = if self.rest.max(other.rest) == OUTSIDE {
            tails(0)
        } else if usize::from(self.rest.min(other.rest)) <= HEAD {
            self.rest.cmp(&other.rest)
        } else {
            tails(usize::from(self.len - self.rest) + HEAD)
        };
        user_key.then_with(|| other.packed.cmp(&self.packed))
    }

    /// Compares two keys of entries.
    #[inline]
    pub(crate) fn cmp_in(&self, other: &Self, entries: &EntryStore) -> Ordering {
        self.cmp_with(other, |from| {
            let tail = |key: &Self| &entries.get(key.index).user_key()[from..];
            tail(self).cmp(tail(other))
        })
    }

    /// Compares the key of an entry with a key that has its bytes.
    #[inline]
    pub(crate) fn cmp_to(&self, other: &MemKey<'_>, entries: &EntryStore) -> Ordering {
        self.cmp_with(&other.short, |from| {
            entries.get(self.index).user_key()[from..].cmp(&other.user_key()[from..])
        })
    }
}

/// A key with its bytes.
#[derive(Debug)]
pub(crate) struct MemKey<'a> {
    short: ShortKey,
    bytes: KeyBytes<'a>,
}

/// The whole user key.
#[derive(Debug)]
enum KeyBytes<'a> {
    Borrowed(&'a [u8]),
    Shared { owner: Arc<[u8]>, start: u32 },
}

impl MemKey<'_> {
    #[inline]
    fn user_key(&self) -> &[u8] {
        match &self.bytes {
            KeyBytes::Borrowed(user_key) => user_key,
            KeyBytes::Shared { owner, start } => {
                let start = *start as usize;
                &owner[start..start + usize::from(self.short.len)]
            }
        }
    }
}

impl Ord for MemKey<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.short.cmp_with(&other.short, |from| self.user_key()[from..].cmp(&other.user_key()[from..]))
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
    pub(crate) fn of(key: ShortKey, entry: EntryRef<'_>) -> Self {
        let (owner, start) = entry.owner();
        StoredKey(MemKey { short: key, bytes: KeyBytes::Shared { owner: Arc::clone(owner), start } })
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
    use crate::entries::EntryWriter;
    use esker_base::{InternalKeyRef, ValueKind};
    use proptest::prelude::*;

    /// Compares two keys in all forms, in one window.
    fn compare(window: &Window, a: InternalKeyRef<'_>, b: InternalKeyRef<'_>) -> Ordering {
        let (entries, writer) = (EntryStore::default(), &mut EntryWriter::default());
        let [(x, p), (y, q)] = [a, b].map(|key| {
            let owner: Arc<[u8]> = Arc::from([b"xyz", key.user_key].concat());
            let packed = Packed::new(key.seq, key.kind);
            let (_, index, _) = entries.put(writer, &owner, 3..owner.len(), 0..0, packed);
            let short = window.short(WholeKey::of(entries.get(index)), index);
            (short, StoredKey::of(short, entries.get(index)))
        });
        let whole = |key: InternalKeyRef<'_>| Packed::new(key.seq, key.kind);
        let (m, n) = (
            window.mem_key(WholeKey { user_key: a.user_key, packed: whole(a) }),
            window.mem_key(WholeKey { user_key: b.user_key, packed: whole(b) }),
        );
        let order = x.cmp_in(&y, &entries);
        assert_eq!(x.cmp_to(&n, &entries), order);
        assert_eq!(m.cmp(q.borrow()), order);
        assert_eq!(m.cmp(&n), order);
        assert_eq!(p.cmp(&q), order);
        assert_eq!(ShortKey::from_words(x.to_words()).cmp_in(&y, &entries), order);
        assert_eq!(x.same_user_key(&y, &entries), a.user_key == b.user_key);
        if let Some(len) = x.len_in_head() {
            assert_eq!(x.head_bytes()[..len], *a.user_key);
        }
        order
    }

    fn window(prefix: &[u8]) -> Window {
        Window { prefix: Box::from(prefix) }
    }

    #[test]
    fn sizes_of_keys() {
        assert_eq!((size_of::<ShortKey>(), size_of::<StoredKey>()), (32, 56));
    }

    /// Keys that are equal but for zeros and lengths around the end of the head, in windows at several places.
    #[test]
    fn head_ties_fall_to_the_whole_key() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for len in [0, 1, 14, 15, 16, 17, 18, 31, 32, 33, 300, 65_535] {
            for zeros in [0, 1, 2, 3, 17] {
                let mut key = [vec![b'k'; len], vec![0; zeros]].concat();
                key.truncate(65_535);
                keys.push(key);
            }
        }
        keys.extend([
            vec![0xff; 20],
            vec![0xff; 40],
            vec![0xff; 65_535],
            vec![b'k', b'k', 0xff],
            vec![b'k'; 40],
        ]);
        for prefix in [0, 2, 15, 16, 17, 40] {
            let window = window(&vec![b'k'; prefix]);
            for a in &keys {
                for b in &keys {
                    let key = |user_key| InternalKeyRef::new(user_key, 7, ValueKind::Put);
                    assert_eq!(compare(&window, key(a), key(b)), a.cmp(b), "{prefix}: {a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn windows_are_learned() {
        let learn = |keys: &[String]| {
            let mut keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
            keys.sort_unstable();
            Window::learned(keys.into_iter()).prefix.len()
        };
        let prefix = "p".repeat(40);
        let random = |n: u64| esker_base::SplitMix64::new(n).next_u64();
        // Short keys, and keys that differ early, have their first bytes in the head.
        assert_eq!(learn(&(0..100).map(|n| format!("k{n:05}")).collect::<Vec<_>>()), 0);
        assert_eq!(learn(&(0..100).map(|n| format!("{:016x}", random(n))).collect::<Vec<_>>()), 0);
        assert_eq!(learn(&(0..100).map(|n| format!("{n:016}")).collect::<Vec<_>>()), 0);
        assert_eq!(learn(&(0..100).map(|n| format!("{n:017}")).collect::<Vec<_>>()), 10);
        // Behind a prefix, counters keep room for four more digits than these hundred have.
        assert_eq!(learn(&(0..100).map(|n| format!("{prefix}{n:016}")).collect::<Vec<_>>()), 49);
        assert_eq!(learn(&(0..100).map(|n| format!("{prefix}{:016x}", random(n))).collect::<Vec<_>>()), 36);
        // One key that is different does not decide; a shorter prefix that all share does.
        let mut keys: Vec<_> = (0..100).map(|n| format!("{prefix}{n:016}")).collect();
        keys.push("p".repeat(20));
        assert_eq!(learn(&keys), 20);
        assert_eq!(learn(&[]), 0);
        assert_eq!(learn(&vec![prefix; 100]), 0);
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_internal_keys(
            a in prop::collection::vec(0u8..3, 0..40), b in prop::collection::vec(0u8..3, 0..40),
            shared in 0usize..20, s in 0u64..3, t in 0u64..3, put: bool,
            prefix in prop_oneof![Just(vec![]), prop::collection::vec(Just(1u8), 0..25), prop::collection::vec(0u8..3, 0..5)],
        ) {
            let (a, b) = ([vec![1; shared], a].concat(), [vec![1; shared], b].concat());
            let kind = if put { ValueKind::Put } else { ValueKind::Delete };
            let (a, b) = (InternalKeyRef::new(&a, s, kind), InternalKeyRef::new(&b, t, ValueKind::Put));
            prop_assert_eq!(compare(&window(&prefix), a, b), a.cmp(&b));
        }
    }
}
