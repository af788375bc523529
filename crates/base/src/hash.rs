//! The hash of user keys, and the small generator that draws everything random from one seed.

/// The hash of a user key: XXH3-64 with the store's seed.
///
/// Computed once for a lookup and handed to every filter. It is part of the table format.
#[inline]
pub fn key_hash(seed: u64, user_key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(user_key, seed)
}

/// SplitMix64: a stream of numbers from one seed (Steele, Lea and Flood, OOPSLA 2014).
///
/// ```
/// use esker_base::SplitMix64;
///
/// let (mut a, mut b) = (SplitMix64::new(7), SplitMix64::new(7));
/// assert_eq!(a.next_u64(), b.next_u64());
/// assert!(a.below(10) < 10);
/// ```
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A generator that starts at `seed`.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, or 0 when `limit` is 0.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// True in `percent` of 100 cases.
    #[inline]
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is part of the table format: these numbers must never change.
    #[test]
    fn golden_hashes() {
        assert_eq!(key_hash(0, b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(key_hash(0, b"k00000"), xxhash_rust::xxh3::xxh3_64(b"k00000"));
        assert_ne!(key_hash(0, b"k00000"), key_hash(1, b"k00000"));
    }

    #[test]
    fn below_covers_its_range() {
        let mut rng = SplitMix64::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7_000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1_200).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }
}
