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
use std::cmp::Ordering::Greater;
use std::sync::Arc;

/// Leaves in a block before it is split.
const BLOCK_MAX: usize = 128;

/// The leaves in order, for the one that inserts.
#[derive(Debug)]
pub(crate) struct Directory {
    /// That of all keys here.
    pub(crate) window: Arc<Window>,
    /// Where the blocks start.
    firsts: Lows,
    blocks: Vec<Block>,
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

#[derive(Debug)]
struct Block {
    lows: Lows,
    leaves: Vec<Open>,
}

/// Lower bounds in ascending order. The first one counts as lower than everything.
#[derive(Debug, Default)]
struct Lows {
    /// The heads of the keys, together: they decide most searches.
    heads: Vec<u64>,
    keys: Vec<ShortKey>,
}

impl Lows {
    fn insert(&mut self, at: usize, low: ShortKey) {
        self.heads.insert(at, low.head_word());
        self.keys.insert(at, low);
    }

    fn split_off(&mut self, at: usize) -> Lows {
        Lows { heads: self.heads.split_off(at), keys: self.keys.split_off(at) }
    }

    /// Whether the last bound is at or before `key`.
    #[inline]
    fn ends_before(&self, key: &ShortKey, entries: &EntryStore) -> bool {
        self.keys.len() < 2 || self.keys.last().is_some_and(|low| low.cmp_in(key, entries) != Greater)
    }

    /// Index of the last bound at or before `key`.
    #[inline]
    fn floor(&self, key: &ShortKey, entries: &EntryStore) -> usize {
        let end = self.heads.partition_point(|&head| head <= key.head_word());
        if end < 2 || self.heads[end - 1] < key.head_word() {
            return end.saturating_sub(1);
        }
        self.floor_among_equals(end, key, entries)
    }

    /// The same where several bounds may have the head of the key.
    #[inline(never)]
    fn floor_among_equals(&self, end: usize, key: &ShortKey, entries: &EntryStore) -> usize {
        let start = self.heads[..end].partition_point(|&head| head < key.head_word());
        let at_or_before = self.keys[start..end].partition_point(|low| low.cmp_in(key, entries) != Greater);
        (start + at_or_before).saturating_sub(1)
    }
}

impl Directory {
    /// A directory of one leaf, which is empty.
    pub(crate) fn new(first: Arc<Leaf>, window: Arc<Window>) -> Self {
        let mut lows = Lows::default();
        lows.insert(0, ShortKey::default());
        let mut firsts = Lows::default();
        firsts.insert(0, ShortKey::default());
        let leaves = vec![Open { leaf: first, logged: 0 }];
        Directory { window, firsts, blocks: vec![Block { lows, leaves }] }
    }

    /// The place of the leaf where `key` belongs.
    #[inline]
    pub(crate) fn find(&self, key: &ShortKey, entries: &EntryStore) -> Place {
        let last = self.blocks.len() - 1;
        // Many keys come in ascending order, and belong to the last leaf.
        let block =
            if self.firsts.ends_before(key, entries) { last } else { self.firsts.floor(key, entries) };
        let Block { lows, leaves } = &self.blocks[block];
        let leaf = if block == last && lows.ends_before(key, entries) {
            leaves.len() - 1
        } else {
            lows.floor(key, entries)
        };
        Place { block, leaf }
    }

    /// The leaf at a place.
    #[inline]
    pub(crate) fn at(&mut self, place: Place) -> &mut Open {
        &mut self.blocks[place.block].leaves[place.leaf]
    }

    /// Adds a leaf that starts at `low` behind the one at `place`. Places that were found before are void.
    pub(crate) fn insert_after(&mut self, place: Place, low: ShortKey, leaf: Arc<Leaf>) {
        let block = &mut self.blocks[place.block];
        block.lows.insert(place.leaf + 1, low);
        block.leaves.insert(place.leaf + 1, Open { leaf, logged: 0 });
        if block.leaves.len() <= BLOCK_MAX {
            return;
        }
        let half = BLOCK_MAX / 2;
        let right = Block { lows: block.lows.split_off(half), leaves: block.leaves.split_off(half) };
        self.firsts.insert(place.block + 1, right.lows.keys[0]);
        self.blocks.insert(place.block + 1, right);
    }
}
