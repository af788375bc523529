//! Keys, values that can be checked, and a skewed choice: the same for every engine.

use esker_base::SplitMix64;

/// Length of a key in bytes.
pub const KEY_LEN: usize = 16;

/// A key.
pub type Key = [u8; KEY_LEN];

/// A number as a key: 16 hexadecimal digits, in the order of the numbers.
pub fn key(number: u64) -> Key {
    let mut key = [0; KEY_LEN];
    for (at, digit) in key.iter_mut().enumerate() {
        let nibble = (number >> (60 - 4 * at)) & 0xf;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    key
}

/// A number that looks random, another one for each `index`.
pub fn scatter(index: u64) -> u64 {
    let mut x = index.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Makes values of which one half is random, and that say which key they belong to.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    buffer: Vec<u8>,
}

impl Values {
    /// Of up to `longest` bytes.
    pub fn new(seed: u64, longest: usize) -> Self {
        let mut rng = SplitMix64::new(seed);
        let mut pool = vec![b'.'; (longest + 4096).next_multiple_of(16)];
        for chunk in pool.chunks_mut(16) {
            chunk[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        }
        Values { pool, buffer: Vec::new() }
    }

    /// A value of `len` bytes (at least 8) for the key of a number; `salt` makes one differ from the next.
    pub fn value(&mut self, number: u64, len: usize, salt: u64) -> &[u8] {
        let from = (scatter(number ^ salt) % 4096) as usize;
        self.buffer.clear();
        self.buffer.extend_from_slice(&scatter(number).to_le_bytes());
        self.buffer.extend_from_slice(&self.pool[from..from + len - 8]);
        &self.buffer
    }
}

/// The check of a value that was read.
pub fn check(value: &[u8]) -> u64 {
    value.first_chunk::<8>().map_or(1, |mark| u64::from_le_bytes(*mark))
}

/// What [`check`] gives for a value of the key of a number.
pub fn expected(number: u64) -> u64 {
    scatter(number)
}

/// Numbers below a bound of which some are drawn far more often than others: Zipf's law with an exponent of 0.99, by
/// the method of Gray and others (1994) that YCSB uses. The often drawn ones lie scattered.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    bound: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
}

const EXPONENT: f64 = 0.99;

impl Zipf {
    /// Below `bound`, which is not 0.
    pub fn new(bound: u64) -> Self {
        let zeta = |count: u64| (1..=count).map(|rank| (rank as f64).powf(-EXPONENT)).sum::<f64>();
        let all = zeta(bound);
        let eta = (1.0 - (2.0 / bound as f64).powf(1.0 - EXPONENT)) / (1.0 - zeta(2) / all);
        Zipf { bound, zeta: all, alpha: 1.0 / (1.0 - EXPONENT), eta }
    }

    /// The next number.
    pub fn draw(&self, rng: &mut SplitMix64) -> u64 {
        let uniform = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let scaled = uniform * self.zeta;
        let rank = if scaled < 1.0 {
            0
        } else if scaled < 1.0 + 0.5f64.powf(EXPONENT) {
            1
        } else {
            (self.bound as f64 * (self.eta * uniform - self.eta + 1.0).powf(self.alpha)) as u64
        };
        scatter(rank) % self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn keys_are_in_the_order_of_their_numbers() {
        assert_eq!(&key(0x0123_4567_89ab_cdef), b"0123456789abcdef");
        assert!(key(9) < key(10) && key(u64::MAX - 1) < key(u64::MAX));
    }

    #[test]
    fn values_can_be_checked() {
        let mut values = Values::new(1, 1000);
        assert_eq!(check(values.value(7, 1000, 3)), expected(7));
        assert_ne!(check(values.value(8, 8, 3)), expected(7));
        assert_eq!(values.value(8, 100, 3).len(), 100);
    }

    /// The most frequent of 1,000 numbers is drawn in about one of eight draws, and most are drawn at least once.
    #[test]
    fn a_few_numbers_are_drawn_often() {
        let (zipf, mut rng) = (Zipf::new(1_000), SplitMix64::new(5));
        let mut counts = BTreeMap::new();
        for _ in 0..100_000 {
            *counts.entry(zipf.draw(&mut rng)).or_insert(0u32) += 1;
        }
        let most = counts.values().max().unwrap();
        assert!((10_000..16_000).contains(most), "{most}");
        assert!(counts.len() > 500 && *counts.keys().max().unwrap() < 1_000);
    }
}
