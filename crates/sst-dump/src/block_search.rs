//! The search for stored blocks by their checksums alone. Used by `salvage`; knows bytes and CRCs, no files.
//!
//! A CRC-32 that runs over a block and its own stored checksum ends in one fixed state, the [`RESIDUE`]. So [`Run`], which
//! starts where a block is known to start, compares one number a byte to find where it ends.
//!
//! Where the start is not known either, [`find_blocks`] finds every pair of start and end in one walk. The state is linear
//! over GF(2): let `A` be the step over a zero byte, `P(u)` the state at `u` from state 0 at the window's start, `I(s)` the
//! state that the context of a block at `s` leads to. From `s` to `e` it becomes `A^(e-s) (I(s) ^ P(s)) ^ P(e)`, so a block
//! lies there exactly when
//!
//! ```text
//! A^-s (I(s) ^ P(s)) = A^-e (RESIDUE ^ P(e))
//! ```
//!
//! Each side depends on one place only, and a hash table joins them: a window of n bytes takes n steps, where trying all
//! pairs takes n * n. `A` is the product with x^8 modulo the CRC's polynomial; bit 31 is x^0.

use esker_base::FileNumber;
use esker_sstable::StoredBlocks;

const POLYNOMIAL: u32 = 0xedb8_8320;

/// The state behind any bytes that are followed by their checksum.
const RESIDUE: u32 = 0xdebb_20e3;

/// x^0.
const ONE: u32 = 1 << 31;

/// Most places that are looked at in the hash table for one position: hostile bytes may make all of them equal.
const PROBES_MAX: usize = 64;

/// Most blocks that one window gives.
const FOUND_MAX: usize = 1 << 18;

/// The state after each byte from state 0.
const FORWARD: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut state = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            state = times_x(state);
            bit += 1;
        }
        table[byte] = state;
        byte += 1;
    }
    table
};

/// The byte whose entry in [`FORWARD`] has this first byte: there is exactly one.
const BACKWARD: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[(FORWARD[byte] >> 24) as usize] = byte as u8;
        byte += 1;
    }
    table
};

const fn times_x(state: u32) -> u32 {
    if state & 1 == 1 { state >> 1 ^ POLYNOMIAL } else { state >> 1 }
}

#[inline]
fn step(state: u32, byte: u8) -> u32 {
    FORWARD[usize::from(state as u8 ^ byte)] ^ state >> 8
}

/// The state before a step over a zero byte.
#[inline]
fn step_back(state: u32) -> u32 {
    let byte = BACKWARD[(state >> 24) as usize];
    (state ^ FORWARD[usize::from(byte)]) << 8 | u32::from(byte)
}

/// The product of two states as polynomials.
#[inline]
fn product(mut a: u32, mut b: u32) -> u32 {
    let mut sum = 0;
    while a != 0 {
        sum ^= b & 0_u32.wrapping_sub(a >> 31);
        a <<= 1;
        b = times_x(b);
    }
    sum
}

/// Which table it is about: the start of every checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(u32);

impl Context {
    pub(crate) fn new(store_id: u128, number: FileNumber) -> Self {
        let bytes = store_id.to_le_bytes().into_iter().chain(number.0.to_le_bytes());
        Context(bytes.fold(u32::MAX, step))
    }

    /// The state in which the block at `offset` begins.
    fn at(self, offset: u64) -> u32 {
        offset.to_le_bytes().into_iter().fold(self.0, step)
    }
}

/// A CRC that runs on from the start of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    state: u32,
    len: u64,
    /// The bytes before, the last one lowest.
    recent: u64,
}

impl Run {
    pub(crate) fn new(context: Context, offset: u64) -> Self {
        Run { state: context.at(offset), len: 0, recent: 0 }
    }

    /// Goes on over `bytes` until a block may end; gives its length, and how many of the bytes it took.
    pub(crate) fn next_end(&mut self, bytes: &[u8]) -> Option<(u64, usize)> {
        for (index, &byte) in bytes.iter().enumerate() {
            self.state = step(self.state, byte);
            self.recent = self.recent << 8 | u64::from(byte);
            if self.state == RESIDUE {
                let len = self.len + index as u64 + 1;
                if len >= StoredBlocks::LEN_MIN && is_compression((self.recent >> 32) as u8) {
                    self.len = len;
                    return Some((len, index + 1));
                }
            }
        }
        self.len += bytes.len() as u64;
        None
    }
}

/// Whether the fifth byte from the end can be a block's. Takes false ends from one in 2^32 to one in 2^39.
fn is_compression(byte: u8) -> bool {
    byte <= 1
}

/// What may be a block: its checksum matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) start: u64,
    pub(crate) len: u64,
}

/// All blocks in `bytes`, which lie at `offset` in the file, that start in the first `starts` of them. In order.
///
/// Takes 8 to 12 bytes of memory for each start.
pub(crate) fn find_blocks(context: Context, offset: u64, bytes: &[u8], starts: usize) -> Vec<Candidate> {
    let mut places = Places::new(starts.min(bytes.len()));
    let mut found = Vec::new();
    // At position u: A^-u of x^0, of x^24 (a byte's highest bit) and of the residue, and of P(u).
    let (mut one, mut byte_bit, mut residue, mut past) = (ONE, 0x80, RESIDUE, 0);
    for at in 0..=bytes.len() {
        let end = residue ^ past;
        if at as u64 >= StoredBlocks::LEN_MIN && bytes.get(at - 5).is_some_and(|byte| is_compression(*byte)) {
            places.for_each(end, |start| {
                let len = (at - start) as u64;
                if len >= StoredBlocks::LEN_MIN && found.len() < FOUND_MAX {
                    found.push(Candidate { start: offset + start as u64, len });
                }
            });
        }
        if at < starts {
            places.insert(product(context.at(offset + at as u64) ^ RESIDUE, one) ^ end, at);
        }
        let Some(&byte) = bytes.get(at) else { break };
        let (mut bit, mut byte) = (byte_bit, byte);
        while byte != 0 {
            past ^= bit & 0_u32.wrapping_sub(u32::from(byte >> 7));
            byte <<= 1;
            bit = times_x(bit);
        }
        one = step_back(one);
        byte_bit = step_back(byte_bit);
        residue = step_back(residue);
    }
    found.sort_unstable();
    found
}

/// From a number to the positions that have it: a hash table of fixed size.
struct Places {
    keys: Vec<u32>,
    /// Index in `keys` plus 1, or 0.
    slots: Vec<u32>,
    shift: u32,
}

impl Places {
    fn new(len: usize) -> Self {
        let size = (2 * len + 1).next_power_of_two();
        Places {
            keys: Vec::with_capacity(len),
            slots: vec![0; size],
            shift: 32 - size.trailing_zeros().min(32),
        }
    }

    fn slots(&self, key: u32) -> impl Iterator<Item = usize> + use<> {
        let (first, mask) = (self.first(key), self.slots.len() - 1);
        (first..first + PROBES_MAX).map(move |slot| slot & mask)
    }

    fn first(&self, key: u32) -> usize {
        key.wrapping_mul(0x9e37_79b1).checked_shr(self.shift).unwrap_or(0) as usize
    }

    /// Inserts positions in order from 0. One that finds no place is left out.
    fn insert(&mut self, key: u32, position: usize) {
        self.keys.push(key);
        let free = self.slots(key).find(|&slot| self.slots[slot] == 0);
        if let (Some(slot), Ok(place)) = (free, u32::try_from(position + 1)) {
            self.slots[slot] = place;
        }
    }

    #[inline]
    fn for_each(&self, key: u32, mut visit: impl FnMut(usize)) {
        for slot in self.slots(key) {
            match self.slots[slot].checked_sub(1) {
                None => return,
                Some(position) if self.keys[position as usize] == key => visit(position as usize),
                Some(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::{Checksum, SplitMix64};

    fn put_block(file: &mut Vec<u8>, payload: &[u8]) {
        let offset = file.len() as u64;
        let start = file.len();
        file.extend_from_slice(payload);
        file.push(1);
        let context = Checksum::new(&[5, 6, 7]).bytes(&offset.to_le_bytes());
        let crc = context.bytes(&file[start..]).finish();
        file.extend_from_slice(&crc.to_le_bytes());
    }

    fn context() -> Context {
        Context::new(6 << 64 | 5, FileNumber(7))
    }

    #[test]
    fn steps_and_products() {
        for state in [0, 1, ONE, RESIDUE, 0x1234_5678] {
            assert_eq!(step_back(step(state, 0)), state);
            assert_eq!(product(ONE, state), state);
            assert_eq!(product(step(ONE, 0), state), step(state, 0));
        }
    }

    /// Blocks of random lengths between random bytes and zeros: the run finds the end of each, the window all of them,
    /// wherever it begins, and next to nothing else.
    #[test]
    fn blocks_are_found_without_knowing_where_they_start() {
        // Pairs that match by chance: about one in 2^39, here of 2^36.
        let mut extra = 0;
        for seed in 0..30 {
            let mut rng = SplitMix64::new(seed);
            let mut bytes = |len: u64| -> Vec<u8> { (0..len).map(|_| rng.below(256) as u8).collect() };
            let (mut file, mut blocks) = (bytes(32), Vec::new());
            let mut sizes = SplitMix64::new(seed ^ 0xabcd);
            for n in 0..40 {
                let start = file.len() as u64;
                put_block(&mut file, &bytes(7 + sizes.below(3000)));
                blocks.push(Candidate { start, len: file.len() as u64 - start });
                match n % 3 {
                    0 => file.extend(bytes(sizes.below(500))),
                    1 => file.resize(file.len() + usize::try_from(sizes.below(500)).unwrap(), 0),
                    _ => {}
                }
            }
            for block in &blocks {
                let start = usize::try_from(block.start).unwrap();
                let mut run = Run::new(context(), block.start);
                let pieces = file[start..].chunks(97);
                let end = pieces.into_iter().find_map(|piece| run.next_end(piece));
                assert_eq!(end.map(|(len, _)| len), Some(block.len), "seed {seed}");
            }
            let from = usize::try_from(sizes.below(file.len() as u64 / 2)).unwrap();
            let found = find_blocks(context(), from as u64, &file[from..], file.len());
            blocks.retain(|block| block.start >= from as u64);
            assert!(blocks.iter().all(|block| found.contains(block)), "seed {seed}");
            extra += found.len() - blocks.len();
        }
        assert!(extra <= 2, "{extra}");
    }

    #[test]
    fn equal_keys_do_not_take_forever() {
        let mut places = Places::new(1 << 16);
        (0..1 << 16).for_each(|position| places.insert(42, position));
        let mut seen = 0;
        places.for_each(42, |_| seen += 1);
        assert_eq!(seen, PROBES_MAX);
    }
}
