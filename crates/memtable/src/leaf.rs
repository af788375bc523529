//! [`Leaf`]: a bounded stretch of the order. A sorted base that never changes, and a short log of what came since.
//!
//! ```text
//! base: [k02 k05 k07 k11 ...]  sorted, up to 128      log: [k09 k03 _ _ ...]  as they came, up to 32      high: k40
//! ```
//!
//! The writer appends to the log, in which the last word of a key says that it is there; when the log is full, the leaf is
//! replaced by one or two with everything in the base, or by more if many keys of a batch belong here.
//! Readers sort the part of the log that they need, and merge.

use crate::entries::EntryStore;
use crate::mem_key::{ShortKey, WholeKey, Window};
use crate::ordered::{Direction, RUN_MAX};
use std::cmp::Ordering::{Greater, Less};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keys in the base of a leaf.
pub(crate) const BASE_MAX: usize = 128;
/// Keys in the base of each of some leaves that one is split into.
const SPLIT_TO: usize = BASE_MAX * 3 / 4;
/// Keys in its log. A larger log makes inserts cheaper and scans dearer.
pub(crate) const LOG_MAX: usize = 32;

const _: () = assert!(BASE_MAX + LOG_MAX <= RUN_MAX);

/// A stretch of the order.
#[derive(Debug)]
pub(crate) struct Leaf {
    base: Box<[ShortKey]>,
    /// Plain numbers, not cells that are set once: a cell costs two locked operations. The last one of a key is stored last,
    /// and is 0 before.
    log: [[AtomicU64; 4]; LOG_MAX],
    /// The first key that does not belong here; `None` in the last leaf.
    high: Option<ShortKey>,
    /// That of all keys here.
    window: Arc<Window>,
}

impl Leaf {
    pub(crate) fn new(base: &[ShortKey], high: Option<ShortKey>, window: &Arc<Window>) -> Self {
        Leaf {
            base: Box::from(base),
            log: [const { [const { AtomicU64::new(0) }; 4] }; LOG_MAX],
            high,
            window: Arc::clone(window),
        }
    }

    /// Appends to the log, of which the writer knows that it has `logged` keys, fewer than [`LOG_MAX`]. The writer only:
    /// it need not read the leaf, which may be far from its cache.
    #[inline]
    pub(crate) fn append(&self, logged: usize, key: ShortKey) {
        let ([cells @ .., last], [words @ .., there]) = (&self.log[logged], key.to_words());
        for (cell, word) in cells.iter().zip(words) {
            cell.store(word, Ordering::Relaxed);
        }
        last.store(there, Ordering::Release);
    }

    /// Which bytes of the keys are in their heads.
    #[inline]
    pub(crate) fn window(&self) -> &Arc<Window> {
        &self.window
    }

    /// The first key that does not belong here.
    #[inline]
    pub(crate) fn high(&self) -> Option<&ShortKey> {
        self.high.as_ref()
    }

    /// Bytes that the leaf takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Leaf>() + size_of_val(&*self.base)
    }

    /// Replaces `merged` by all keys of the leaf and those of `run`, which is sorted, in order. Returns whether those of the
    /// log and of `run` are all behind the base.
    pub(crate) fn merge_into(
        &self,
        entries: &EntryStore,
        run: &[ShortKey],
        merged: &mut Vec<ShortKey>,
    ) -> bool {
        let mut buffer = [ShortKey::default(); LOG_MAX];
        let log = self.sorted_log(entries, &mut buffer, |_| true);
        let mut both = Vec::new();
        let new = match (log, run) {
            (log, []) => log,
            ([], run) => run,
            (log, run) => {
                both.reserve(log.len() + run.len());
                merge(log, run, entries, |key| {
                    both.push(*key);
                    true
                });
                &both
            }
        };
        merged.clear();
        merged.reserve(self.base.len() + new.len());
        let behind =
            self.base.last().zip(new.first()).is_none_or(|(base, new)| base.cmp_in(new, entries) == Less);
        if behind {
            merged.extend_from_slice(&self.base);
            merged.extend_from_slice(new);
        } else {
            merge(&self.base, new, entries, |key| {
                merged.push(*key);
                true
            });
        }
        behind
    }

    /// The keys of the log that `wanted` takes, sorted into `buffer`.
    #[inline]
    fn sorted_log<'a>(
        &self,
        entries: &EntryStore,
        buffer: &'a mut [ShortKey; LOG_MAX],
        wanted: impl Fn(&ShortKey) -> bool,
    ) -> &'a [ShortKey] {
        let mut len = 0;
        for [cells @ .., last] in &self.log {
            let there = last.load(Ordering::Acquire);
            if there == 0 {
                break;
            }
            let [first, second, packed] = cells.each_ref().map(|cell| cell.load(Ordering::Relaxed));
            let key = ShortKey::from_words([first, second, packed, there]);
            if wanted(&key) {
                buffer[len] = key;
                len += 1;
            }
        }
        let sorted = &mut buffer[..len];
        sorted.sort_unstable_by(|a, b| a.cmp_in(b, entries));
        sorted
    }

    /// Gives `push` the keys after `from`, or before it, up to `limit` in all. Returns how many.
    pub(crate) fn fill(
        &self,
        entries: &EntryStore,
        from: Bound<WholeKey<'_>>,
        direction: Direction,
        limit: usize,
        push: &mut impl FnMut(&ShortKey),
    ) -> usize {
        let from = from.map(|from| self.window.mem_key(from));
        // Whether a key is before the place where a forward walk starts, or where a backward walk does.
        let outside = |key: &ShortKey| match (&from, direction) {
            (Bound::Unbounded, Direction::Forward) => false,
            (Bound::Included(from), Direction::Forward) => key.cmp_to(from, entries) == Less,
            (Bound::Excluded(from), Direction::Forward) => key.cmp_to(from, entries) != Greater,
            (Bound::Unbounded, Direction::Backward) => true,
            (Bound::Included(from), Direction::Backward) => key.cmp_to(from, entries) != Greater,
            (Bound::Excluded(from), Direction::Backward) => key.cmp_to(from, entries) == Less,
        };
        let mut buffer = [ShortKey::default(); LOG_MAX];
        let (before, after) = self.base.split_at(self.base.partition_point(outside));
        let mut filled = 0;
        let push = |key: &ShortKey| {
            push(key);
            filled += 1;
            filled < limit
        };
        // Keys of the log beyond the last that the base can give are not wanted: a short scan sorts few of them.
        match direction {
            Direction::Forward => {
                let enough = after.get(limit.saturating_sub(1));
                let near = |key: &ShortKey| enough.is_none_or(|enough| key.cmp_in(enough, entries) == Less);
                let log = self.sorted_log(entries, &mut buffer, |key| near(key) && !outside(key));
                merge(after, log, entries, push);
            }
            Direction::Backward => {
                let enough = before.len().checked_sub(limit).and_then(|at| before.get(at));
                let near =
                    |key: &ShortKey| enough.is_none_or(|enough| key.cmp_in(enough, entries) == Greater);
                let log = self.sorted_log(entries, &mut buffer, |key| near(key) && outside(key));
                merge_backward(before, log, entries, push);
            }
        }
        filled
    }
}

/// How many keys each leaf gets when one leaf becomes several with `len` keys in all: as many as are in a base if those that
/// came were behind the others, `in_order`, as keys that come in ascending order should leave full leaves behind.
pub(crate) fn piece_len(len: usize, in_order: bool) -> usize {
    if len <= BASE_MAX || in_order { BASE_MAX } else { len.div_ceil(len.div_ceil(SPLIT_TO)) }
}

/// Merges two sorted slices, until `push` returns false.
#[inline]
fn merge(
    mut base: &[ShortKey],
    mut log: &[ShortKey],
    entries: &EntryStore,
    mut push: impl FnMut(&ShortKey) -> bool,
) {
    while let (Some((b, base_rest)), Some((l, log_rest))) = (base.split_first(), log.split_first()) {
        let key = if b.cmp_in(l, entries) == Less {
            base = base_rest;
            b
        } else {
            log = log_rest;
            l
        };
        if !push(key) {
            return;
        }
    }
    let _ = base.iter().chain(log).all(push);
}

/// The same from the end.
#[inline]
fn merge_backward(
    mut base: &[ShortKey],
    mut log: &[ShortKey],
    entries: &EntryStore,
    mut push: impl FnMut(&ShortKey) -> bool,
) {
    while let (Some((b, base_rest)), Some((l, log_rest))) = (base.split_last(), log.split_last()) {
        let key = if b.cmp_in(l, entries) == Greater {
            base = base_rest;
            b
        } else {
            log = log_rest;
            l
        };
        if !push(key) {
            return;
        }
    }
    let _ = log.iter().chain(base).rev().all(push);
}
