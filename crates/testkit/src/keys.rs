//! [`KeySpace`]: a small set of nasty keys, so that a short test overwrites, collides and finds every corner.

use esker_base::SplitMix64;

/// A fixed set of keys: the empty one, bytes at both ends of the alphabet, numbers, keys behind long shared prefixes,
/// prefixes of each other, and a few long ones.
#[derive(Clone, Debug)]
pub struct KeySpace {
    /// In an order that the seed gives; early ones are picked more often.
    keys: Vec<Vec<u8>>,
}

impl KeySpace {
    /// About `count` keys, none longer than `len_max` bytes (at least 16).
    pub fn new(seed: u64, count: usize, len_max: usize) -> Self {
        let mut rng = SplitMix64::new(seed ^ 0x6b65_7973);
        let mut keys: Vec<Vec<u8>> =
            [&b""[..], b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff", b"k", b"k0"]
                .map(<[u8]>::to_vec)
                .into();
        keys.truncate(count.max(3));
        let shared: Vec<u8> = (0..len_max.min(60)).map(|_| b'a' + rng.below(3) as u8).collect();
        while keys.len() < count {
            let number = rng.below(4 * count as u64);
            let key = match rng.below(20) {
                0..=9 => format!("k{number:05}").into_bytes(),
                10..=14 => {
                    let cut = rng.below(shared.len() as u64 + 1) as usize;
                    [&shared[..cut], format!("/{number}").as_bytes()].concat()
                }
                15..=17 => {
                    (0..rng.below(6)).map(|_| [0, 1, 0x7f, 0xfe, 0xff][rng.below(5) as usize]).collect()
                }
                18 => number.to_be_bytes().to_vec(),
                _ => {
                    let len = rng.below(len_max as u64) as usize;
                    let byte = b'k' + rng.below(2) as u8;
                    let mut key = vec![byte; len];
                    key.extend_from_slice(&number.to_le_bytes()[..2]);
                    key
                }
            };
            if key.len() <= len_max && !keys.contains(&key) {
                keys.push(key);
            }
        }
        for index in (1..keys.len()).rev() {
            keys.swap(index, rng.below(index as u64 + 1) as usize);
        }
        KeySpace { keys }
    }

    /// All keys.
    pub fn keys(&self) -> &[Vec<u8>] {
        &self.keys
    }

    /// A key of the set: half of the time one of the first tenth.
    pub fn pick(&self, rng: &mut SplitMix64) -> &[u8] {
        let count = self.keys.len() as u64;
        let limit = if rng.percent(50) { count.div_ceil(10) } else { count };
        &self.keys[rng.below(limit) as usize]
    }

    /// A key of the set, or a neighbour of one that is probably not in it.
    pub fn pick_near(&self, rng: &mut SplitMix64) -> Vec<u8> {
        let mut key = self.pick(rng).to_vec();
        match rng.below(10) {
            0 => key.push(rng.next_u64() as u8),
            1 => {
                key.pop();
            }
            2 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(1);
                }
            }
            _ => {}
        }
        key
    }
}
