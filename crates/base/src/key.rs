//! Keys as the engine orders them: user key ascending, then newest version first.

use std::cmp::Ordering;
use std::fmt;

/// The number of a write. Every operation has its own; later writes have larger ones; 0 stands for "older than
/// everything that anyone can still tell apart".
pub type SequenceNumber = u64;

/// Largest sequence number: 56 bits.
pub const MAX_SEQUENCE: SequenceNumber = (1 << 56) - 1;

/// The largest sequence number that is given out. Honest databases never come near it; the rest are kept so that no
/// arithmetic near the end can go wrong.
pub const LAST_SEQUENCE: SequenceNumber = MAX_SEQUENCE - (1 << 20);

/// Longest user key in bytes. The empty key is valid.
pub const MAX_KEY_LEN: usize = 65_535;

/// Longest value in bytes: 1 GiB.
pub const MAX_VALUE_LEN: usize = 1 << 30;

/// What an entry does to its key. The numbers are on disk and never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ValueKind {
    /// A tombstone: the key is gone. It has no value.
    Delete = 0,
    /// A value.
    Put = 1,
    /// An operand of a merge operator. Reserved.
    Merge = 2,
    /// A tombstone for exactly one earlier put. Reserved.
    SingleDelete = 3,
    /// A tombstone over a range of keys. Reserved.
    RangeDelete = 4,
    /// A pointer to a value in a blob file. Reserved.
    BlobPointer = 5,
    /// A value with a time after which it is gone. Reserved.
    PutExpiring = 6,
}

impl ValueKind {
    /// The kind with this number, if this build knows it.
    #[inline]
    pub fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => ValueKind::Delete,
            1 => ValueKind::Put,
            2 => ValueKind::Merge,
            3 => ValueKind::SingleDelete,
            4 => ValueKind::RangeDelete,
            5 => ValueKind::BlobPointer,
            6 => ValueKind::PutExpiring,
            _ => return None,
        })
    }

    /// Whether this build writes and reads the kind. The others are numbers reserved in the formats.
    #[inline]
    pub fn is_supported(self) -> bool {
        matches!(self, ValueKind::Delete | ValueKind::Put)
    }

    /// Lower-case name, as the tools print it.
    pub fn name(self) -> &'static str {
        match self {
            ValueKind::Delete => "delete",
            ValueKind::Put => "put",
            ValueKind::Merge => "merge",
            ValueKind::SingleDelete => "single-delete",
            ValueKind::RangeDelete => "range-delete",
            ValueKind::BlobPointer => "blob-pointer",
            ValueKind::PutExpiring => "put-expiring",
        }
    }
}

/// A version of a user key, borrowed.
///
/// The order is: user key ascending by bytes, then sequence number *descending*, then kind descending. So a seek to
/// `(key, snapshot, max kind)` lands on the newest version that the snapshot sees.
///
/// ```
/// use esker_base::{InternalKeyRef, ValueKind};
///
/// let newer = InternalKeyRef::new(b"k", 9, ValueKind::Delete);
/// let older = InternalKeyRef::new(b"k", 3, ValueKind::Put);
/// assert!(newer < older);
/// assert!(older < InternalKeyRef::new(b"l", 9, ValueKind::Put));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InternalKeyRef<'a> {
    /// The user's key.
    pub user_key: &'a [u8],
    /// The number of the write.
    pub seq: SequenceNumber,
    /// What the write does.
    pub kind: ValueKind,
}

impl<'a> InternalKeyRef<'a> {
    /// Puts the three parts together.
    #[inline]
    pub fn new(user_key: &'a [u8], seq: SequenceNumber, kind: ValueKind) -> Self {
        InternalKeyRef { user_key, seq, kind }
    }

    /// The place just before the versions of `user_key` that a reader at `seq` sees.
    #[inline]
    pub fn seek_to(user_key: &'a [u8], seq: SequenceNumber) -> Self {
        InternalKeyRef { user_key, seq, kind: ValueKind::PutExpiring }
    }

    /// The place just before all versions of `user_key`.
    #[inline]
    pub fn before(user_key: &'a [u8]) -> Self {
        Self::seek_to(user_key, MAX_SEQUENCE)
    }

    /// The place behind all versions of `user_key`: at its tombstone with the number 0, which no source has.
    #[inline]
    pub fn behind(user_key: &'a [u8]) -> Self {
        InternalKeyRef { user_key, seq: 0, kind: ValueKind::Delete }
    }

    /// An owned copy.
    pub fn to_owned(self) -> InternalKey {
        InternalKey { user_key: self.user_key.to_vec(), seq: self.seq, kind: self.kind }
    }
}

impl Ord for InternalKeyRef<'_> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.user_key
            .cmp(other.user_key)
            .then_with(|| other.seq.cmp(&self.seq))
            .then_with(|| other.kind.cmp(&self.kind))
    }
}

impl PartialOrd for InternalKeyRef<'_> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for InternalKeyRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"#{},{}", self.user_key.escape_ascii(), self.seq, self.kind.name())
    }
}

/// A version of a user key, owned.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct InternalKey {
    /// The user's key.
    pub user_key: Vec<u8>,
    /// The number of the write.
    pub seq: SequenceNumber,
    /// What the write does.
    pub kind: ValueKind,
}

impl InternalKey {
    /// Puts the three parts together.
    pub fn new(user_key: impl Into<Vec<u8>>, seq: SequenceNumber, kind: ValueKind) -> Self {
        InternalKey { user_key: user_key.into(), seq, kind }
    }

    /// The borrowed form.
    #[inline]
    pub fn as_ref(&self) -> InternalKeyRef<'_> {
        InternalKeyRef { user_key: &self.user_key, seq: self.seq, kind: self.kind }
    }

    /// Takes the value of `key`, reusing this key's buffer.
    #[inline]
    pub fn assign(&mut self, key: InternalKeyRef<'_>) {
        self.user_key.clear();
        self.user_key.extend_from_slice(key.user_key);
        self.seq = key.seq;
        self.kind = key.kind;
    }
}

impl Default for InternalKey {
    fn default() -> Self {
        InternalKey { user_key: Vec::new(), seq: 0, kind: ValueKind::Delete }
    }
}

impl Ord for InternalKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for InternalKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for InternalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

/// A point lookup: the key, its hash (computed once), and the newest sequence number that may be seen.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// The user's key.
    pub user_key: &'a [u8],
    /// [`key_hash`](crate::key_hash) of the key with the store's seed.
    pub hash: u64,
    /// Versions with larger sequence numbers are not seen.
    pub seq: SequenceNumber,
}

/// The first 16 bytes as a number that orders as they do. A shorter key is filled with zeros, so that different heads tell
/// the order of two keys, and equal ones do not.
#[inline]
pub fn key_head(key: &[u8]) -> u128 {
    if let Some(chunk) = key.first_chunk::<16>() {
        return u128::from_be_bytes(*chunk);
    }
    // Two words that overlap, of which the second is moved to where the first one ends.
    let (high, low, missing) =
        if let (Some(first), Some(last)) = (key.first_chunk::<8>(), key.last_chunk::<8>()) {
            (u64::from_be_bytes(*first), u64::from_be_bytes(*last), 16 - key.len())
        } else if let (Some(first), Some(last)) = (key.first_chunk::<4>(), key.last_chunk::<4>()) {
            let (first, last) = (u64::from(u32::from_be_bytes(*first)), u64::from(u32::from_be_bytes(*last)));
            let missing = 8 - key.len();
            return u128::from(first << 32 | last << (8 * missing) & 0xffff_ffff) << 64;
        } else {
            let word = key.iter().fold(0, |word, byte| word << 8 | u128::from(*byte));
            return if key.is_empty() { 0 } else { word << (8 * (16 - key.len())) };
        };
    let low = if missing == 8 { 0 } else { low << (8 * missing) };
    u128::from(high) << 64 | u128::from(low)
}

/// How many leading bytes two strings share.
#[inline]
pub fn common_prefix_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (a, b) = (&a[..len], &b[..len]);
    let mut words = 0;
    for (x, y) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let diff = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if diff != 0 {
            return words + (diff.trailing_zeros() / 8) as usize;
        }
        words += 8;
    }
    // The rest, without a loop over its bytes: a last word that overlaps those before.
    if let (Some(x), Some(y)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        let diff = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        return len - 8 + (diff.trailing_zeros() / 8) as usize;
    }
    let half = |x: Option<&[u8; 4]>, y: Option<&[u8; 4]>| {
        x.zip(y).map(|(x, y)| u32::from_le_bytes(*x) ^ u32::from_le_bytes(*y))
    };
    match (half(a.first_chunk(), b.first_chunk()), half(a.last_chunk(), b.last_chunk())) {
        (Some(diff), _) if diff != 0 => (diff.trailing_zeros() / 8) as usize,
        (_, Some(diff)) => len - 4 + (diff.trailing_zeros() / 8) as usize,
        _ => a.iter().zip(b).take_while(|(x, y)| x == y).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kind_numbers_never_change() {
        for number in 0..=6 {
            assert_eq!(ValueKind::from_u8(number).unwrap() as u8, number);
        }
        assert_eq!(ValueKind::from_u8(7), None);
        assert!(ValueKind::Put.is_supported() && !ValueKind::Merge.is_supported());
    }

    #[test]
    fn seeks_land_before_what_they_may_see() {
        let key = InternalKeyRef::new(b"k", 5, ValueKind::Put);
        assert!(InternalKeyRef::seek_to(b"k", 5) < key);
        assert!(InternalKeyRef::seek_to(b"k", 4) > key);
        assert!(InternalKeyRef::before(b"k") < key);
        assert!(InternalKeyRef::before(b"k") > InternalKeyRef::new(b"j", 0, ValueKind::Delete));
    }

    proptest! {
        #[test]
        fn heads_order_as_keys(a in prop::collection::vec(0_u8..3, 0..20), b in prop::collection::vec(0_u8..3, 0..20)) {
            let mut padded = [0; 16];
            let len = a.len().min(16);
            padded[..len].copy_from_slice(&a[..len]);
            prop_assert_eq!(key_head(&a), u128::from_be_bytes(padded));
            let order = key_head(&a).cmp(&key_head(&b));
            prop_assert!(order.is_eq() || order == a.cmp(&b));
        }

        #[test]
        fn common_prefix_is_exact(prefix: Vec<u8>, a: Vec<u8>, b: Vec<u8>) {
            let (x, y) = ([&prefix[..], &a].concat(), [&prefix[..], &b].concat());
            let naive = x.iter().zip(&y).take_while(|(p, q)| p == q).count();
            prop_assert_eq!(common_prefix_len(&x, &y), naive);
        }
    }
}
