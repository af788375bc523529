//! The small seeded generator behind crash images and garbage bytes.
//!
//! SplitMix64: a counter and a mixing function, so every seed, 0 included, gives a good sequence. It is here, and not
//! taken from a crate, because an image must be the same for a seed for ever.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
}

impl Rng {
    /// Starts the sequence of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Rng { state: seed }
    }

    /// The next 64 random bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which must not be 0. The bias is below 2^-32 for the small bounds used here.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "a number below 0 does not exist");
        (self.next() % bound as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn percent(&mut self, percent: u8) -> bool {
        self.below(100) < usize::from(percent)
    }
}
