//! [`LeafList`]: the order as a skiplist of leaves, in the manner of a B-link tree.
//!
//! ```text
//! first leaf          skiplist: lower bound -> leaf
//! [ ..k40)   --------> k40 -> [k40..k77)  ----> k77 -> [k77..k90)  ----> k90 -> [k90.. )
//! ```
//!
//! One node for about a hundred entries keeps the skiplist in the processor's cache, where one node an entry leaves it at a
//! few thousand entries. Measured at 100,000 entries, one node an entry beside leaves: insert 630 and 244 ns, seek and ten
//! entries 4,470 and 690 ns, a scan 284 and 60 ns an entry, a backward one 309 and 34, dropping 114 and 8, memory 298 and
//! 249 bytes an entry. Runs that are frozen and merged would insert as fast, but their merges need a thread or pause the
//! writer, and a scan has many of them to merge.
//!
//! A leaf is replaced as a whole, by one atomic swap. When it is split, its upper half is inserted as a leaf of its own
//! first, and then its lower half takes its place. (Where a batch brings many keys, the upper part may be several leaves, which
//! are inserted from the last to the first.) So every entry can be found at any time; a reader that met the lower
//! half too late sees by its `high` that it must look again, and finds the upper half.
//!
//! When the first leaf is split, the keys of all leaves get the window that suits those so far ([`Window::learned`]). A leaf
//! knows its own, so a reader that met the first leaf before compares as that one does.
//!
//! The skiplist is insert-only: `get_or_insert` and reads under a guard are all that is used of the crate, because
//! replacing and removing have windows and leaks in its released versions. A guard lives for one call and never
//! escapes: a pinned thread would stop the reclamation of every user of the epoch collector in the process.

use crate::directory::{Directory, Place};
use crate::entries::{EntryRef, EntryStore};
use crate::leaf::{LOG_MAX, Leaf, piece_len};
use crate::mem_key::{ShortKey, StoredKey, WholeKey, Window};
use crate::ordered::{Direction, OrderedMem};
use arc_swap::ArcSwap;
use crossbeam_epoch as epoch;
use crossbeam_skiplist::SkipList;
use std::cmp::Ordering::{Equal, Greater};
use std::fmt;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// What a leaf takes beside its own bytes: a node of the skiplist with a tower of 2 on average, counts, allocator headers,
/// and a place in the directory, whose arrays are two thirds full.
const LEAF_OVERHEAD: usize = size_of::<StoredKey>() + 8 + 8 + 16 + 16 + 3 * 8 + 84;

/// The order in leaves.
pub(crate) struct LeafList {
    first: ArcSwap<Leaf>,
    rest: SkipList<StoredKey, ArcSwap<Leaf>>,
    /// That of the keys in `rest`. It is set before the first of them is there.
    window: OnceLock<Arc<Window>>,
    bytes: AtomicUsize,
}

impl LeafList {
    pub(crate) fn new() -> Self {
        let first = Leaf::new(&[], None, &Arc::default());
        LeafList {
            bytes: AtomicUsize::new(first.bytes()),
            first: ArcSwap::from_pointee(first),
            rest: SkipList::new(epoch::default_collector().clone()),
            window: OnceLock::new(),
        }
    }

    /// The last place whose lower bound is within `bound`.
    #[inline]
    fn slot<'g>(&'g self, bound: Bound<WholeKey<'_>>, guard: &'g epoch::Guard) -> &'g ArcSwap<Leaf> {
        // If the window is set and the first leaf split right now, the leaf says by its `high` that there is more.
        let Some(window) = self.window.get() else { return &self.first };
        let bound = bound.map(|key| window.mem_key(key));
        self.rest.upper_bound(bound.as_ref(), guard).map_or(&self.first, |entry| entry.value())
    }

    /// Before the first split: finds a window for the keys, given in order, and moves them to it.
    #[cold]
    fn learn(&self, directory: &mut Directory, entries: &EntryStore, keys: &mut [ShortKey]) -> Arc<Window> {
        let window = Window::learned(keys.iter().map(|key| entries.get(key.index()).user_key()));
        for key in &mut *keys {
            *key = window.short(WholeKey::of(entries.get(key.index())), key.index());
        }
        let window = Arc::clone(self.window.get_or_init(|| Arc::new(window)));
        if let [lowest, .., highest] = keys {
            directory.learn(&window, lowest, highest);
        }
        window
    }

    /// Replaces the leaf at `place` by leaves with the keys of its log, and those of `run`, in their bases. `run` is sorted, and
    /// `key` is one of the leaf or of it.
    ///
    /// Leaves that are new come into the skiplist from the last to the first, and then the first takes the place of the old
    /// one: so whoever finds a leaf also finds the next by its `high`, and keys of leaves that are not there yet are in the old one.
    #[cold]
    fn rebuild(
        &self,
        directory: &mut Directory,
        entries: &EntryStore,
        mut place: Place,
        run: &[ShortKey],
        key: WholeKey<'_>,
    ) {
        let guard = epoch::pin();
        let leaf = Arc::clone(&directory.at(place).leaf);
        let mut merged = std::mem::take(&mut directory.merged);
        let behind = leaf.merge_into(entries, run, &mut merged);
        let len = piece_len(merged.len(), behind && leaf.high().is_none());
        let window = if merged.len() > len && self.window.get().is_none() {
            self.learn(directory, entries, &mut merged)
        } else {
            Arc::clone(leaf.window())
        };
        let slot = self.slot(Bound::Included(key), &guard);
        let (mut high, mut added) = (leaf.high().copied(), 0);
        let mut pieces = merged.chunks(len);
        let left = pieces.next().unwrap_or_default();
        for piece in pieces.rev() {
            let Some(&low) = piece.first() else { break };
            let right = Arc::new(Leaf::new(piece, high, &window));
            added += right.bytes() + LEAF_OVERHEAD;
            let stored = StoredKey::of(low, entries.get(low.index()));
            self.rest.get_or_insert(stored, ArcSwap::from(Arc::clone(&right)), &guard).release(&guard);
            place = directory.insert_after(place, low, right);
            high = Some(low);
        }
        let left = Arc::new(Leaf::new(left, high, &window));
        added += left.bytes();
        slot.store(Arc::clone(&left));
        directory.at(place).replace(left);
        merged.clear();
        directory.merged = merged;
        let bytes = self.bytes.load(Ordering::Relaxed) + added - leaf.bytes();
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn fill_forward(
        &self,
        entries: &EntryStore,
        from: Bound<WholeKey<'_>>,
        limit: usize,
        push: &mut impl FnMut(&ShortKey),
    ) -> usize {
        let guard = epoch::pin();
        // Where a key at `from` itself would be: in the last leaf that starts there or before.
        let mut slot = match from {
            Bound::Included(key) | Bound::Excluded(key) => self.slot(Bound::Included(key), &guard),
            Bound::Unbounded => &self.first,
        };
        loop {
            let leaf = slot.load();
            let filled = leaf.fill(entries, from, Direction::Forward, limit, push);
            let Some(high) = leaf.high().filter(|_| filled == 0) else { return filled };
            // Also right when the leaf was split meanwhile: then its upper half starts at `high`.
            slot = self.slot(Bound::Included(WholeKey::of(entries.get(high.index()))), &guard);
        }
    }

    fn fill_backward(
        &self,
        entries: &EntryStore,
        from: Bound<WholeKey<'_>>,
        limit: usize,
        push: &mut impl FnMut(&ShortKey),
    ) -> usize {
        let guard = epoch::pin();
        loop {
            let leaf = self.slot(from, &guard).load();
            let compare = |high: &ShortKey, key| high.cmp_to(&leaf.window().mem_key(key), entries);
            let complete = match (leaf.high(), from) {
                (None, _) => true,
                (Some(_), Bound::Unbounded) => false,
                (Some(high), Bound::Included(key)) => compare(high, key) == Greater,
                (Some(high), Bound::Excluded(key)) => matches!(compare(high, key), Greater | Equal),
            };
            if complete {
                return leaf.fill(entries, from, Direction::Backward, limit, push);
            }
            // The leaf was split after its place was found. Its upper half can be found now.
        }
    }
}

impl OrderedMem for LeafList {
    fn directory(&self) -> Directory {
        let first = self.first.load_full();
        let window = Arc::clone(first.window());
        Directory::new(first, window)
    }

    #[inline]
    fn insert(&self, directory: &mut Directory, entries: &EntryStore, entry: EntryRef<'_>, index: u32) {
        let key = directory.window.short(WholeKey::of(entry), index);
        let place = directory.find(&key, entries);
        let open = directory.at(place);
        open.leaf.append(open.logged, key);
        open.logged += 1;
        if open.logged == LOG_MAX {
            self.rebuild(directory, entries, place, &[], WholeKey::of(entry));
        }
    }

    fn insert_run(&self, directory: &mut Directory, entries: &EntryStore, mut keys: &[ShortKey]) {
        while let Some(first) = keys.first() {
            let place = directory.find(first, entries);
            let (run, rest) = keys.split_at(directory.run_len(place, keys, entries));
            let open = directory.at(place);
            if open.logged + run.len() < LOG_MAX {
                for &key in run {
                    open.leaf.append(open.logged, key);
                    open.logged += 1;
                }
            } else {
                // Only the first of all leaves may learn a window, and then all keys belong to it: none is left.
                self.rebuild(directory, entries, place, run, WholeKey::of(entries.get(first.index())));
            }
            keys = rest;
        }
    }

    fn fill(
        &self,
        entries: &EntryStore,
        from: Bound<WholeKey<'_>>,
        direction: Direction,
        limit: usize,
        mut push: impl FnMut(&ShortKey),
    ) -> usize {
        match direction {
            Direction::Forward => self.fill_forward(entries, from, limit, &mut push),
            Direction::Backward => self.fill_backward(entries, from, limit, &mut push),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for LeafList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafList").field("leaves", &(self.rest.len() + 1)).finish_non_exhaustive()
    }
}
