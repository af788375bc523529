//! [`Directory`]: where the writer finds the leaf of a key, and how full its log is.
//!
//! ```text
//! firsts: [-- k40 k90 ..]      blocks: [-- k07 k22 ..] [k40 k55 ..] [k90 ..]      one place a leaf
//! ```
//!
//! Readers find leaves through the skiplist, whose nodes are all over the memory. The writer has this for itself: sorted
//! arrays, in two tiers, that a search touches in a few cache lines. With it an insert reads nothing that grows with the
//! memtable but this, and touches a leaf only to store.

use crate::entries::EntryStore;
use crate::leaf::Leaf;
use crate::mem_key::{ShortKey, Window};
use std::cmp::Ordering::{Greater, Less};
use std::sync::Arc;

/// Leaves in a block before it is split.
const BLOCK_MAX: usize = 128;

/// The leaves in order, for the one that inserts.
#[derive(Debug)]
pub(crate) struct Directory {
    /// That of all keys here.
    pub(crate) window: Arc<Window>,
    /// That of all heads here.
    word: Word,
    /// Where the blocks start.
    firsts: Lows,
    blocks: Vec<Block>,
    /// How many leaves there are.
    leaves: usize,
    /// Where the keys of a leaf are merged. Kept for the next one.
    pub(crate) merged: Vec<ShortKey>,
}

/// A place in a [`Directory`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    block: usize,
    leaf: usize,
}

/// A leaf that can be appended to.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) leaf: Arc<Leaf>,
    /// Keys in its log.
    pub(crate) logged: usize,
}

impl Open {
    /// Puts a leaf with an empty log here.
    pub(crate) fn replace(&mut self, leaf: Arc<Leaf>) {
        *self = Open { leaf, logged: 0 };
    }
}

/// Which 8 of the 16 bytes of a head are a bound's word: keys that begin with zeros, as numbers do, or with what is the same
/// for all, would have one word for many bounds. A head with other bytes before has the lowest or highest word, so that
/// words ascend with the heads; between equal words whole keys are compared.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    /// Bits before it.
    skipped: u32,
    /// What they are.
    prefix: u64,
}

/// Bits of the word that keys share, so that those to come may differ earlier.
const WORD_ROOM: u32 = 16;

impl Word {
    /// The one that suits some heads, of which these are the lowest and the highest.
    fn between(low: u128, high: u128) -> Self {
        let skipped = (low ^ high).leading_zeros().saturating_sub(WORD_ROOM).min(64);
        Word { skipped, prefix: low.checked_shr(128 - skipped).unwrap_or_default() as u64 }
    }

    #[inline]
    fn of(self, head: u128) -> u64 {
        match head.checked_shr(128 - self.skipped).unwrap_or_default() as u64 {
            prefix if prefix < self.prefix => 0,
            prefix if prefix > self.prefix => u64::MAX,
            _ => ((head << self.skipped) >> 64) as u64,
        }
    }
}

#[derive(Debug)]
struct Block {
    lows: Lows,
    leaves: Vec<Open>,
}

/// Lower bounds in ascending order. The first one counts as lower than everything.
#[derive(Debug, Default)]
struct Lows {
    /// The words of the keys, together: they decide most searches.
    words: Vec<u64>,
    keys: Vec<ShortKey>,
}

impl Lows {
    fn insert(&mut self, at: usize, low: ShortKey, word: u64) {
        self.words.insert(at, word);
        self.keys.insert(at, low);
    }

    fn split_off(&mut self, at: usize) -> Lows {
        Lows { words: self.words.split_off(at), keys: self.keys.split_off(at) }
    }

    /// Whether the last bound is at or before `key`.
    #[inline]
    fn ends_before(&self, key: &ShortKey, entries: &EntryStore) -> bool {
        self.keys.len() < 2 || self.keys.last().is_some_and(|low| low.cmp_in(key, entries) != Greater)
    }

    /// Index of the last bound at or before `key`, of which `word` is the word.
    #[inline]
    fn floor(&self, key: &ShortKey, word: u64, entries: &EntryStore) -> usize {
        let end = self.words.partition_point(|&low| low <= word);
        if end < 2 || self.words[end - 1] < word {
            return end.saturating_sub(1);
        }
        self.floor_among_equals(end, key, word, entries)
    }

    /// The same where several bounds may have the word of the key.
    #[inline(never)]
    fn floor_among_equals(&self, end: usize, key: &ShortKey, word: u64, entries: &EntryStore) -> usize {
        let start = self.words[..end].partition_point(|&low| low < word);
        let at_or_before = self.keys[start..end].partition_point(|low| low.cmp_in(key, entries) != Greater);
        (start + at_or_before).saturating_sub(1)
    }
}

impl Directory {
    /// A directory of one leaf, which is empty.
    pub(crate) fn new(first: Arc<Leaf>, window: Arc<Window>) -> Self {
        let mut lows = Lows::default();
        lows.insert(0, ShortKey::default(), 0);
        let mut firsts = Lows::default();
        firsts.insert(0, ShortKey::default(), 0);
        let leaves = vec![Open { leaf: first, logged: 0 }];
        Directory {
            window,
            word: Word::default(),
            firsts,
            blocks: vec![Block { lows, leaves }],
            leaves: 1,
            merged: Vec::new(),
        }
    }

    /// Tells the window and the lowest and the highest of the keys that the first leaf has when it is split. There are no
    /// bounds yet.
    pub(crate) fn learn(&mut self, window: &Arc<Window>, lowest: &ShortKey, highest: &ShortKey) {
        self.window = Arc::clone(window);
        self.word = Word::between(lowest.head(), highest.head());
    }

    /// The place of the leaf where `key` belongs.
    #[inline]
    pub(crate) fn find(&self, key: &ShortKey, entries: &EntryStore) -> Place {
        let last = self.blocks.len() - 1;
        // Many keys come in ascending order, and belong to the last leaf.
        let word = self.word.of(key.head());
        let block =
            if self.firsts.ends_before(key, entries) { last } else { self.firsts.floor(key, word, entries) };
        let Block { lows, leaves } = &self.blocks[block];
        let leaf = if block == last && lows.ends_before(key, entries) {
            leaves.len() - 1
        } else {
            lows.floor(key, word, entries)
        };
        Place { block, leaf }
    }

    /// How many leaves there are.
    pub(crate) fn leaves(&self) -> usize {
        self.leaves
    }

    /// How many of some sorted keys, of which the first belongs to the leaf at `place`, do.
    #[inline]
    pub(crate) fn run_len(&self, place: Place, keys: &[ShortKey], entries: &EntryStore) -> usize {
        let in_block = self.blocks[place.block].lows.keys.get(place.leaf + 1);
        let Some(next) = in_block.or_else(|| self.firsts.keys.get(place.block + 1)) else {
            return keys.len();
        };
        let beyond = |key: &ShortKey| key.cmp_in(next, entries) != Less;
        if keys.last().is_some_and(|key| !beyond(key)) {
            return keys.len();
        }
        1 + keys.iter().skip(1).position(beyond).unwrap_or_default()
    }

    /// The leaf at a place.
    #[inline]
    pub(crate) fn at(&mut self, place: Place) -> &mut Open {
        &mut self.blocks[place.block].leaves[place.leaf]
    }

    /// Adds a leaf that starts at `low` behind the one at `place`. Places that were found before are void.
    /// Returns that of the one that was at `place`.
    pub(crate) fn insert_after(&mut self, place: Place, low: ShortKey, leaf: Arc<Leaf>) -> Place {
        self.leaves += 1;
        let block = &mut self.blocks[place.block];
        block.lows.insert(place.leaf + 1, low, self.word.of(low.head()));
        block.leaves.insert(place.leaf + 1, Open { leaf, logged: 0 });
        if block.leaves.len() <= BLOCK_MAX {
            return place;
        }
        let half = BLOCK_MAX / 2;
        let right = Block { lows: block.lows.split_off(half), leaves: block.leaves.split_off(half) };
        self.firsts.insert(place.block + 1, right.lows.keys[0], right.lows.words[0]);
        self.blocks.insert(place.block + 1, right);
        match place.leaf.checked_sub(half) {
            Some(leaf) => Place { block: place.block + 1, leaf },
            None => place,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::SplitMix64;

    /// Words ascend with the heads, whichever those were that they suit.
    #[test]
    fn words_ascend_with_the_heads() {
        let random = &mut SplitMix64::new(9);
        let mut any = || {
            let head = u128::from(random.next_u64()) << 64 | u128::from(random.next_u64());
            [head, head >> random.below(128), !(head >> random.below(128)), 0, u128::MAX]
                [random.below(5) as usize]
        };
        for _ in 0..20_000 {
            let (one, other) = (any(), any());
            let word = Word::between(one.min(other), one.max(other));
            let (low, high) = {
                let (a, b) = (any(), any());
                (a.min(b), a.max(b))
            };
            assert!(word.of(low) <= word.of(high), "{word:?}: {low:x} {high:x}");
            assert!(word.of(one.min(other)) <= word.of(one.max(other)));
        }
        // Numbers behind zeros are told apart, with room above them.
        let heads = [*b"0000000000000002", *b"0000000000030d3e"].map(u128::from_be_bytes);
        let word = Word::between(heads[0], heads[1]);
        assert_eq!(word.of(heads[1]), u64::from_be_bytes(*b"00030d3e"));
        assert_eq!(Word::between(0, u128::MAX).skipped, 0);
    }
}
