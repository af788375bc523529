//! [`Image`]: a data block as it lies in the cache, laid out for lookups instead of for the disk.
//!
//! A block on disk is read from a restart on, each entry relative to the one before. An image is made once, when a block
//! comes into the cache, and knows where each entry is: a lookup goes from a byte of the key's hash to the entry, a seek
//! searches numbers, and a step back costs what a step forward does.
//!
//! ```text
//! u8 * n            tags: the last byte of the hash of each key; not here but in the head when n is at most 64
//! (u16, u16) * n    places: where an entry's key and its value start } left out when all keys are of one length,
//! u16               where the last value ends                        } and all values are of one length
//! u64 * (n + 3)/4   heads: the first 8 bytes of every fourth key, as a number that orders as they do
//! u64 * n           stamps: sequence number and kind; left out when all are puts of number 0
//! prefix            bytes that all keys start with, and which the heads and keys below leave out
//! (key, value) * n
//! ```
//!
//! So a lookup in a usual block reads the head with tags and prefix, which lie side by side, and then the entry: it waits
//! for memory twice.
//!
//! It is no format: it is never written, and may change at any time. It is made of a block only when all of the block is
//! sound and the image is of about its size, below 64 KiB; other blocks are used as they are. See `image_builder`.

use crate::block::Damage;
use esker_base::{InternalKeyRef, Lookup, SequenceNumber, Slice, ValueKind};
use std::cmp::Ordering;
use std::sync::Arc;

/// Entries for one head.
pub(crate) const HEAD_EVERY: usize = 4;

/// As many tags lie in the head.
pub(crate) const HEAD_TAGS: usize = 64;

/// A prefix of so many bytes lies in the head too.
pub(crate) const HEAD_PREFIX: usize = 16;

/// An image. Cloning it clones one counted pointer and copies the head.
///
/// What lookups read lies at the front, in as few cache lines as can be.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Image {
    pub(crate) data: Arc<[u8]>,
    pub(crate) entries: u16,
    /// Bytes of a key and its value, without the prefix, when all entries have as many; else 0.
    pub(crate) stride: u16,
    /// Bytes of a key without the prefix, with a `stride`.
    pub(crate) rest_len: u16,
    pub(crate) places_at: u16,
    pub(crate) heads_at: u16,
    pub(crate) stamps_at: u16,
    pub(crate) prefix_at: u16,
    pub(crate) prefix_end: u16,
    /// The prefix, if it is no longer than that.
    pub(crate) head_prefix: [u8; HEAD_PREFIX],
    /// The tags, if they are no more.
    pub(crate) head_tags: [u8; HEAD_TAGS],
    /// Checksum when it was made, in tables that verify their reads.
    pub(crate) seal: Option<u32>,
    /// If all entries are puts, of different keys.
    pub(crate) span: Option<Span>,
}

/// What a scan has to know of a block whose entries are puts of different keys, to go over them without a look at each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The largest sequence number.
    pub(crate) newest: SequenceNumber,
    /// The first 16 bytes of the first and of the last key, as [`key_head`](esker_base::key_head) orders them.
    pub(crate) first: [u8; 16],
    pub(crate) last: [u8; 16],
}

/// Where an entry is in an image.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spot {
    pub(crate) key_at: u16,
    pub(crate) value_at: u16,
    pub(crate) end: u16,
}

/// What a lookup found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) seq: SequenceNumber,
    pub(crate) kind: ValueKind,
    pub(crate) spot: Spot,
}

/// Memory that is not what was written. Only a fault of the memory does that.
const BROKEN: Damage = Damage("a block in memory has changed");

impl Image {
    /// The same with a checksum of its memory.
    pub(crate) fn sealed(mut self) -> Self {
        self.seal = Some(self.checksum());
        self
    }

    /// Over `data` and what of the head lookups trust.
    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.data);
        hasher.update(&self.head_prefix);
        hasher.update(&self.head_tags);
        for number in [self.entries, self.stride, self.rest_len, self.prefix_at, self.prefix_end] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.finalize()
    }

    /// Whether the memory still is what it was when the image was sealed.
    pub(crate) fn is_intact(&self) -> bool {
        self.seal.is_none_or(|seal| seal == self.checksum())
    }

    /// The same with its last byte changed, behind the back of its seal.
    #[cfg(test)]
    pub(crate) fn scribbled(mut self) -> Self {
        let mut data = self.data.to_vec();
        *data.last_mut().unwrap() ^= 1;
        self.data = Arc::from(data);
        self
    }

    /// Bytes in memory.
    pub(crate) fn memory(&self) -> usize {
        self.data.len()
    }

    /// Number of entries; at least one.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        usize::from(self.entries)
    }

    /// What all keys start with.
    #[inline]
    pub(crate) fn prefix(&self) -> &[u8] {
        self.bytes(self.prefix_at, self.prefix_end)
    }

    /// Whether all entries are puts with the sequence number 0, and so no two of them of one key.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.stamps_at == self.prefix_at
    }

    /// Bytes of the image; none when the range is not in it.
    #[inline]
    fn bytes(&self, start: u16, end: u16) -> &[u8] {
        self.data.get(usize::from(start)..usize::from(end)).unwrap_or(&[])
    }

    /// The key at `spot`, without the prefix.
    #[inline]
    pub(crate) fn rest(&self, spot: &Spot) -> &[u8] {
        self.bytes(spot.key_at, spot.value_at)
    }

    /// The bytes from the key at `spot` on, whatever they are.
    #[inline]
    pub(crate) fn chunk<const N: usize>(&self, spot: &Spot) -> Option<&[u8; N]> {
        self.data.get(usize::from(spot.key_at)..)?.first_chunk::<N>()
    }

    /// The value at `spot`.
    #[inline]
    pub(crate) fn value(&self, spot: &Spot) -> &[u8] {
        self.bytes(spot.value_at, spot.end)
    }

    /// The value at `spot`, sharing the memory of the image.
    #[inline]
    pub(crate) fn value_slice(&self, spot: &Spot) -> Slice {
        let range = usize::from(spot.value_at)..usize::from(spot.end);
        if range.start <= range.end && range.end <= self.data.len() {
            Slice::shared(&self.data, range)
        } else {
            Slice::empty()
        }
    }

    /// The prefix and the tags, out of the head if they are there.
    #[inline]
    fn front(&self) -> (&[u8], &[u8]) {
        let prefix_len = usize::from(self.prefix_end.wrapping_sub(self.prefix_at));
        let prefix = self.head_prefix.get(..prefix_len).unwrap_or_else(|| self.prefix());
        let tags = self.head_tags.get(..self.len()).unwrap_or_else(|| self.bytes(0, self.places_at));
        (prefix, tags)
    }

    /// Where entry `index` is.
    #[inline]
    pub(crate) fn spot(&self, index: usize) -> Result<Spot, Damage> {
        if self.stride != 0 {
            if index >= self.len() {
                return Err(BROKEN);
            }
            let end = usize::from(self.prefix_end) + (index + 1) * usize::from(self.stride);
            let end = u16::try_from(end).map_err(|_| BROKEN)?;
            let key_at = end.wrapping_sub(self.stride);
            return Ok(Spot { key_at, value_at: key_at.wrapping_add(self.rest_len), end });
        }
        let at = usize::from(self.places_at) + 4 * index;
        let bytes = self.data.get(at..).and_then(|bytes| bytes.first_chunk::<6>()).ok_or(BROKEN)?;
        let [k0, k1, v0, v1, e0, e1] = *bytes;
        Ok(Spot {
            key_at: u16::from_le_bytes([k0, k1]),
            value_at: u16::from_le_bytes([v0, v1]),
            end: u16::from_le_bytes([e0, e1]),
        })
    }

    /// Sequence number and kind of entry `index`.
    #[inline]
    pub(crate) fn stamp(&self, index: usize) -> Result<(SequenceNumber, ValueKind), Damage> {
        if self.is_plain() {
            return Ok((0, ValueKind::Put));
        }
        let at = usize::from(self.stamps_at) + 8 * index;
        let bytes = self.data.get(at..).and_then(|bytes| bytes.first_chunk::<8>()).ok_or(BROKEN)?;
        let [kind, ..] = *bytes;
        let kind = ValueKind::from_u8(kind).ok_or(BROKEN)?;
        Ok((u64::from_le_bytes(*bytes) >> 8, kind))
    }

    /// The newest version of the key that the lookup may see.
    #[inline]
    pub(crate) fn get(&self, lookup: &Lookup<'_>) -> Result<Option<Hit>, Damage> {
        let (prefix, tags) = self.front();
        let Some(rest) = lookup.user_key.strip_prefix(prefix) else { return Ok(None) };
        let tag = tag(lookup.hash);
        let (words, tail) = tags.as_chunks::<8>();
        for (number, word) in words.iter().enumerate() {
            let mut zeros = zero_bytes(u64::from_le_bytes(*word) ^ LOW_BITS.wrapping_mul(u64::from(tag)));
            while zeros != 0 {
                let index = 8 * number + (zeros.trailing_zeros() / 8) as usize;
                if let Some(hit) = self.try_entry(index, rest, lookup.seq)? {
                    return Ok(Some(hit));
                }
                zeros &= zeros - 1;
            }
        }
        for (index, other) in tail.iter().enumerate() {
            if *other == tag
                && let Some(hit) = self.try_entry(8 * words.len() + index, rest, lookup.seq)?
            {
                return Ok(Some(hit));
            }
        }
        Ok(None)
    }

    /// The first byte of the first entry whose key may be the one that is looked for.
    #[inline]
    pub(crate) fn guess(&self, lookup: &Lookup<'_>) -> Option<u8> {
        let (_, tags) = self.front();
        let tag = tag(lookup.hash);
        let (words, tail) = tags.as_chunks::<8>();
        let found = words.iter().enumerate().find_map(|(number, word)| {
            let zeros = zero_bytes(u64::from_le_bytes(*word) ^ LOW_BITS.wrapping_mul(u64::from(tag)));
            (zeros != 0).then(|| 8 * number + (zeros.trailing_zeros() / 8) as usize)
        });
        let in_tail = || Some(8 * words.len() + tail.iter().position(|other| *other == tag)?);
        let spot = self.spot(found.or_else(in_tail)?).ok()?;
        self.data.get(usize::from(spot.key_at)).copied()
    }

    /// Entry `index` if it is a version of the key that may be seen. Versions of a key come newest first.
    #[inline]
    fn try_entry(&self, index: usize, rest: &[u8], seq: SequenceNumber) -> Result<Option<Hit>, Damage> {
        let spot = self.spot(index)?;
        if self.rest(&spot) != rest {
            return Ok(None);
        }
        let (found, kind) = self.stamp(index)?;
        Ok((found <= seq).then_some(Hit { seq: found, kind, spot }))
    }

    /// The number of the first entry at or after `target`; the number of entries when there is none.
    pub(crate) fn seek(&self, target: InternalKeyRef<'_>) -> Result<usize, Damage> {
        let prefix = self.prefix();
        let Some(rest) = target.user_key.strip_prefix(prefix) else {
            // Before all keys, or behind all of them.
            return Ok(if target.user_key < prefix { 0 } else { self.len() });
        };
        let (heads, _) = self.bytes(self.heads_at, self.stamps_at).as_chunks::<8>();
        let head = head(rest);
        // Keys of the heads before `at` are before the target. Those from there on are behind it, but for equal heads.
        let at = heads.partition_point(|other| u64::from_le_bytes(*other) < head);
        let mut behind = at;
        while heads.get(behind).is_some_and(|other| u64::from_le_bytes(*other) == head) {
            behind += 1;
        }
        let mut low = at.checked_sub(1).map_or(0, |before| HEAD_EVERY * before + 1);
        let mut high = self.len().min(HEAD_EVERY * behind);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.cmp(middle, rest, target)? == Ordering::Less {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// Entry `index` beside `target`, whose key without the prefix is `rest`.
    fn cmp(&self, index: usize, rest: &[u8], target: InternalKeyRef<'_>) -> Result<Ordering, Damage> {
        let spot = self.spot(index)?;
        Ok(match self.rest(&spot).cmp(rest) {
            Ordering::Equal => {
                let (seq, kind) = self.stamp(index)?;
                target.seq.cmp(&seq).then_with(|| target.kind.cmp(&kind))
            }
            order => order,
        })
    }
}

/// 1 in each byte, and the highest bit of each byte.
const LOW_BITS: u64 = 0x0101_0101_0101_0101;
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// The highest bit of each byte that is zero, and perhaps of some behind the first of them, which are looked at in vain.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(LOW_BITS) & !word & HIGH_BITS
}

#[inline]
pub(crate) fn tag(hash: u64) -> u8 {
    hash.to_le_bytes()[0]
}

/// The first 8 bytes as a number that orders as they do. A shorter key is filled with zeros, so that equal heads need a
/// look at the keys, and different heads never do.
#[inline]
pub(crate) fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; 8];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(chunk)
        }
    }
}

#[cfg(test)]
mod tests;
