//! Keys, values and orders: the same for every engine, all from one seed.
//!
//! A key is 16 hexadecimal digits of an even number, so that every odd number is an absent key between two present
//! ones. A value is 100 bytes: a mark that says which key and generation it belongs to, 42 random bytes, and a
//! constant half that compresses. So every value that comes back can be checked.

/// Length of a key in bytes.
pub(crate) const KEY_LEN: usize = 16;

/// Length of a value in bytes.
pub(crate) const VALUE_LEN: usize = 100;

/// The constant half of a value.
const PATTERN: [u8; 50] = *b"a half that compresses, as text in a store does...";

/// A key.
pub(crate) type Key = [u8; KEY_LEN];

/// A value.
pub(crate) type Value = [u8; VALUE_LEN];

/// SplitMix64: a small generator, the same sequence everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator with a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// The numbers `0..count` in a random order.
pub(crate) fn shuffled(count: u64, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..u32::try_from(count).expect("at most 2^32 entries")).collect();
    let mut rng = Rng::new(seed);
    for at in (1..order.len()).rev() {
        let other = rng.below(at as u64 + 1) as usize;
        order.swap(at, other);
    }
    order
}

/// The present key number `index`.
#[inline]
pub(crate) fn key(index: u64) -> Key {
    hex(2 * index)
}

/// The absent key behind the present key number `index`.
#[inline]
pub(crate) fn absent_key(index: u64) -> Key {
    hex(2 * index + 1)
}

/// A number as 16 hexadecimal digits, high digit first: their order is that of the numbers.
#[inline]
fn hex(number: u64) -> Key {
    let spread = |half: u32| -> u64 {
        let mut x = u64::from(half);
        x = (x | (x << 16)) & 0x0000_FFFF_0000_FFFF;
        x = (x | (x << 8)) & 0x00FF_00FF_00FF_00FF;
        x = (x | (x << 4)) & 0x0F0F_0F0F_0F0F_0F0F;
        // Digits above 9 are letters: 'a' is 39 behind the place after '9'.
        let letters = ((x + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
        x + 0x3030_3030_3030_3030 + letters * 39
    };
    let mut key = [0; KEY_LEN];
    key[..8].copy_from_slice(&spread((number >> 32) as u32).to_be_bytes());
    key[8..].copy_from_slice(&spread(number as u32).to_be_bytes());
    key
}

/// Makes values, and knows what they must be.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pool: Vec<u8>,
}

/// Bytes of the pool that the random part of values comes from.
const POOL: usize = 256 << 10;

impl Values {
    /// With a pool of random bytes from a seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let pool = (0..POOL / 8 + 8).flat_map(|_| rng.next().to_le_bytes()).collect();
        Values { pool }
    }

    /// The value of key number `index` in a generation.
    #[inline]
    pub(crate) fn value(&self, index: u64, generation: u32) -> Value {
        let mark = mark(index, generation);
        let from = mark as usize % POOL;
        let mut value = [0; VALUE_LEN];
        value[..8].copy_from_slice(&mark.to_le_bytes());
        value[8..50].copy_from_slice(&self.pool[from..from + 42]);
        value[50..].copy_from_slice(&PATTERN);
        value
    }
}

/// The first eight bytes of a value: what a read is checked by.
#[inline]
pub(crate) fn mark(index: u64, generation: u32) -> u64 {
    mix(index ^ (u64::from(generation) << 40))
}

/// The check of one value that was read: its mark, if length and end are right too. Sums of it are compared with sums
/// of [`mark`].
#[inline]
pub(crate) fn check(value: &[u8]) -> u64 {
    if value.len() != VALUE_LEN || value[VALUE_LEN - 8..] != PATTERN[42..] {
        return 1;
    }
    u64::from_le_bytes(value[..8].try_into().expect("eight bytes"))
}

/// The check of one key in a scan: together with [`fold`] it depends on the order.
#[inline]
pub(crate) fn key_check(key: &[u8]) -> u64 {
    match key.last_chunk::<8>() {
        Some(tail) => u64::from_be_bytes(*tail),
        None => 1,
    }
}

/// One step of a sum that depends on the order.
#[inline]
pub(crate) fn fold(sum: u64, check: u64) -> u64 {
    sum.rotate_left(1) ^ check
}

#[inline]
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_digits_in_order() {
        for number in [0, 1, 9, 10, 15, 16, 255, 0xdead_beef, u64::MAX / 2 - 1, 0x0123_4567_89ab_cdef / 2] {
            assert_eq!(key(number).as_slice(), format!("{:016x}", 2 * number).as_bytes());
            assert!(key(number) < absent_key(number) && absent_key(number) < key(number + 1));
        }
    }

    #[test]
    fn an_order_holds_every_number_once() {
        let mut order = shuffled(1000, 7);
        assert_ne!(order[..20], (0..20).collect::<Vec<u32>>()[..]);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..1000));
    }

    #[test]
    fn a_changed_value_is_noticed() {
        let values = Values::new(3);
        let value = values.value(17, 1);
        assert_eq!(check(&value), mark(17, 1));
        assert_ne!(check(&value), mark(17, 0));
        assert_ne!(check(&value[..99]), mark(17, 1));
        let mut changed = value;
        changed[99] ^= 1;
        assert_ne!(check(&changed), mark(17, 1));
    }
}
