//! [`Filter`]: says for most absent keys that they are not in the table. It is never wrong about a present one.
//!
//! The payload of the filter block:
//!
//! ```text
//! u8       kind: 1: fastbloom
//! u8       number of hashes, 1 to 30
//! u64 * n  words, little-endian; bit i is bit i % 64 of word i / 64
//! ```
//!
//! `fastbloom` has no published format for its bits, so its version is pinned and golden vectors watch over it. With
//! `n` words the first bit of a key with hash `h` is `(h * 64n) >> 64`; `docs/format/sstable.md` has the others.

use crate::block::Damage;
use esker_base::coding::Reader;
use fastbloom::BloomFilter;

/// Number of this kind of filter on disk.
pub(crate) const KIND_FASTBLOOM: u8 = 1;

/// Most hashes that are read from a file.
const MAX_HASHES: u32 = 30;

/// A filter in memory.
#[derive(Debug)]
pub(crate) struct Filter(BloomFilter);

impl Filter {
    /// Reads a payload; `None` for a kind that this build does not know, which may contain anything.
    pub(crate) fn decode(payload: &[u8]) -> Result<Option<Self>, Damage> {
        let mut reader = Reader::new(payload);
        let kind = reader.u8().ok_or(Damage("empty filter"))?;
        if kind != KIND_FASTBLOOM {
            return Ok(None);
        }
        let hashes = u32::from(reader.u8().ok_or(Damage("filter without a number of hashes"))?);
        let (words, rest) = reader.rest().as_chunks::<8>();
        if !(1..=MAX_HASHES).contains(&hashes) || words.is_empty() || !rest.is_empty() {
            return Err(Damage("bad filter parameters"));
        }
        let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Ok(Some(Filter(BloomFilter::from_vec(words).hashes(hashes))))
    }

    /// Whether a key with this hash may be in the table.
    #[inline]
    pub(crate) fn may_contain(&self, hash: u64) -> bool {
        self.0.contains_hash(hash)
    }

    /// Number of the kind of filter.
    pub(crate) fn kind(&self) -> u8 {
        KIND_FASTBLOOM
    }

    /// Number of hashes.
    pub(crate) fn hashes(&self) -> u32 {
        self.0.num_hashes()
    }

    /// The words.
    pub(crate) fn words(&self) -> &[u64] {
        self.0.as_slice()
    }
}

/// The payload of a filter over `hashes` with `bits` bits for each.
pub(crate) fn build(hashes: &[u64], bits: u32) -> Vec<u8> {
    let words = words_for(hashes.len(), bits);
    // As many hashes as leave half of the bits unset: bits * ln 2.
    let count = ((f64::from(bits) * std::f64::consts::LN_2).round() as u32).clamp(1, MAX_HASHES);
    let mut filter = BloomFilter::from_vec(vec![0; words]).hashes(count);
    for hash in hashes {
        filter.insert_hash(*hash);
    }
    let mut payload = Vec::with_capacity(2 + 8 * words);
    payload.extend_from_slice(&[KIND_FASTBLOOM, count as u8]);
    for word in filter.as_slice() {
        payload.extend_from_slice(&word.to_le_bytes());
    }
    payload
}

/// Words of a filter over `keys` keys; at least one.
pub(crate) fn words_for(keys: usize, bits: u32) -> usize {
    (keys.saturating_mul(bits as usize)).div_ceil(64).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters from a file are refused before anything is probed: a filter of zero words would divide by nothing.
    ///
    /// Fails when the number of words is not checked.
    #[test]
    fn fi05_bad_parameters_are_damage_and_unknown_kinds_are_not() {
        let word = [0xff; 8];
        let with =
            |head: [u8; 2], words: &[u8]| Filter::decode(&[&head, words].concat()).map(|some| some.is_some());
        assert_eq!(with([KIND_FASTBLOOM, 7], &word), Ok(true));
        assert_eq!(with([KIND_FASTBLOOM, 30], &word), Ok(true));
        assert_eq!(with([2, 0], &[]), Ok(false));
        for hashes in [0, 31, 255] {
            assert!(with([KIND_FASTBLOOM, hashes], &word).is_err());
        }
        assert!(with([KIND_FASTBLOOM, 7], &[]).is_err());
        assert!(with([KIND_FASTBLOOM, 7], &word[1..]).is_err());
        assert!(Filter::decode(&[]).is_err() && Filter::decode(&[KIND_FASTBLOOM]).is_err());
    }
}
