//! The entries of a flush or a compaction that are worth writing.
//!
//! [`CompactionIterator`] reads all versions of all keys from its input, in order, and gives out those that some reader
//! may still ask for. In the pictures below, `k.PUT.9` is a put of key `k` with sequence number 9; the newest version
//! comes first, and `-->` shows what is left.
//!
//! # The plain case
//!
//! Without snapshots the newest version of a key is all that anyone can read:
//!
//! ```text
//!   a.PUT.9  a.PUT.7  a.PUT.2  b.PUT.4   -->   a.PUT.9  b.PUT.4
//! ```
//!
//! # Complication 1: snapshots
//!
//! A snapshot at 7 reads the newest version at or below 7. So one version is left in each stripe between snapshots
//! (see [`SnapshotStripes`]), and everything that is newer than the capture of the snapshots:
//!
//! ```text
//!   snapshots:           | 7              | 3
//!   a.PUT.9  a.PUT.8     | a.PUT.6 a.DEL.5|  a.PUT.2   -->   a.PUT.9  a.PUT.6  a.PUT.2
//! ```
//!
//! # Complication 2: tombstones
//!
//! A tombstone hides versions of its key that lie deeper, in tables that are no input here. Dropped too early, it brings
//! them back to life. It goes when it is in the oldest stripe (so that nobody reads past it) and no deeper table may
//! hold the key; what it hides in the input goes with it, because it is in the same stripe:
//!
//! ```text
//!   may exist deeper:      a.DEL.9  a.PUT.2   -->   a.DEL.9
//!   can't exist deeper:    a.DEL.9  a.PUT.2   -->   (nothing)
//!   ... snapshot at 5:     a.DEL.9 | a.PUT.2  -->   a.DEL.9  a.PUT.2
//! ```
//!
//! "Deeper" is asked of [`DeeperKeys`] for each key, whatever input the key came from: a check of the upper inputs alone
//! would overlook keys that only the lower input has.
//!
//! # Complication 3: sequence numbers at the bottom
//!
//! A put that everybody can see, with nothing of its key below, needs no number any more: 0 is as good, and shorter. At
//! most one version of a key is in the oldest stripe after the rewrite, so no two get the number 0. Tombstones keep
//! theirs (one that could be zeroed is dropped), and so do versions that a snapshot tells apart:
//!
//! ```text
//!   snapshot at 5, nothing deeper:   a.PUT.9 | a.PUT.2  b.PUT.4   -->   a.PUT.9  a.PUT.0  b.PUT.0
//! ```
//!
//! # Trust
//!
//! The input comes from disk. Kinds that this build does not know, and keys out of order, end the iteration with a
//! corruption error: collapsing versions in a wrong order would drop the wrong ones. An error is final. It is returned
//! again by every later movement, so that it is never taken for the end.
//!
//! # Cost
//!
//! For each entry one look at its key and one at its value, and one comparison with the key before, which also says how many
//! bytes the two share: the table builder needs to know that. One copy of what differs into a buffer that is reused, one
//! search among the snapshots for keys with several versions, and no allocation.

use crate::{RewriteStats, SnapshotStripes};
use esker_base::{
    Error, InternalIterator, InternalKeyRef, Result, SequenceNumber, ValueKind, common_prefix_len, planted,
};
use std::cmp::Ordering;

/// Tells whether levels below the output may hold a key.
pub trait DeeperKeys {
    /// Whether an older version of `user_key` may exist deeper. `true` is always safe.
    ///
    /// Asked with ascending keys, at most once for each, so that cursors make it cheap.
    fn may_exist(&mut self, user_key: &[u8]) -> bool;
}

impl<F: FnMut(&[u8]) -> bool> DeeperKeys for F {
    fn may_exist(&mut self, user_key: &[u8]) -> bool {
        self(user_key)
    }
}

/// Iterates over the versions to keep. Not positioned at first: call [`seek_to_first`](Self::seek_to_first).
#[derive(Debug)]
pub struct CompactionIterator<I, D> {
    input: I,
    stripes: SnapshotStripes,
    deeper: D,
    zero_sequences: bool,
    /// The user key of the last entry read; the current one's while valid.
    user_key: Vec<u8>,
    /// Sequence number of the last entry read.
    last_seq: SequenceNumber,
    /// What [`SnapshotStripes::floor`] says about `last_seq`, or an older question in the same stripe.
    floor: Option<Floor>,
    /// Whether an entry was read, so that `user_key` and `last_seq` mean something.
    started: bool,
    /// Leading bytes of `user_key` that the last entry given out had, too.
    shared: usize,
    /// The current entry; `None` when there is none.
    current: Option<Current>,
    /// Number of entries read at which the search for the next one to keep is interrupted.
    pause_at: u64,
    /// The search was interrupted; the input stands at an entry that was not read.
    paused: bool,
    failed: Option<Error>,
    stats: RewriteStats,
}

/// The answer of [`SnapshotStripes::floor`].
type Floor = Option<SequenceNumber>;

#[derive(Clone, Copy, Debug)]
struct Current {
    seq: SequenceNumber,
    kind: ValueKind,
    first_of_key: bool,
    /// Leading bytes of the user key that the entry given out before has, too.
    shared: usize,
}

/// An entry to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept<'a> {
    /// The key, as it is to be written.
    pub(crate) key: InternalKeyRef<'a>,
    pub(crate) value: &'a [u8],
    /// How many leading bytes of the user key are those of the entry before, and no more; 0 for the first.
    pub(crate) shared: usize,
}

impl<I: InternalIterator, D: DeeperKeys> CompactionIterator<I, D> {
    /// An iterator over what `stripes` and `deeper` leave of `input`. Sequence numbers are zeroed at the bottom only if
    /// `zero_sequences`.
    pub fn new(input: I, stripes: SnapshotStripes, deeper: D, zero_sequences: bool) -> Self {
        CompactionIterator {
            input,
            stripes,
            deeper,
            zero_sequences,
            user_key: Vec::new(),
            last_seq: 0,
            floor: None,
            started: false,
            shared: 0,
            current: None,
            pause_at: u64::MAX,
            paused: false,
            failed: None,
            stats: RewriteStats::default(),
        }
    }

    /// Goes to the first entry. To be called once.
    pub fn seek_to_first(&mut self) -> Result<()> {
        let result = self.input.seek_to_first().and_then(|()| self.find());
        self.latch(result)
    }

    /// Goes to the following entry. Does nothing at the end; returns the first error again after an error.
    #[inline]
    #[allow(
        clippy::should_implement_trait,
        reason = "a movement that can fail, named as in `InternalIterator`"
    )]
    pub fn next(&mut self) -> Result<()> {
        let result = if self.current.take().is_some() {
            self.input.next().and_then(|()| self.find())
        } else if std::mem::take(&mut self.paused) {
            self.find()
        } else {
            return self.failed.clone().map_or(Ok(()), Err);
        };
        self.latch(result)
    }

    /// Whether there is an entry here.
    #[inline]
    pub fn valid(&self) -> bool {
        self.current.is_some()
    }

    /// The key of the entry, as it is to be written.
    ///
    /// # Panics
    ///
    /// When there is no entry here.
    #[inline]
    pub fn key(&self) -> InternalKeyRef<'_> {
        let current = self.current.expect("key needs valid()");
        InternalKeyRef::new(&self.user_key, current.seq, current.kind)
    }

    /// The value of the entry.
    ///
    /// # Panics
    ///
    /// When there is no entry here.
    #[inline]
    pub fn value(&self) -> &[u8] {
        assert!(self.valid(), "value needs valid()");
        self.input.value()
    }

    /// The entry, which counts as read with this: to be called once for each.
    ///
    /// # Panics
    ///
    /// When there is no entry here.
    #[inline]
    pub(crate) fn take(&mut self) -> Kept<'_> {
        let Current { seq, kind, shared, .. } = self.current.expect("an entry needs valid()");
        let value = self.input.value();
        self.stats.bytes_in += (self.user_key.len() + value.len()) as u64;
        Kept { key: InternalKeyRef::new(&self.user_key, seq, kind), value, shared }
    }

    /// The user key of the entry.
    #[inline]
    pub(crate) fn user_key(&self) -> &[u8] {
        &self.user_key
    }

    /// Whether the entry is the first of its user key: the only place where an output table may be cut.
    #[inline]
    pub fn first_of_key(&self) -> bool {
        self.current.is_some_and(|current| current.first_of_key)
    }

    /// Lets movements stop short once this many entries were read in total: then nothing is valid, and
    /// [`paused`](Self::paused). So a long run of entries to drop does not hold up its caller.
    pub(crate) fn pause_at(&mut self, entries_in: u64) {
        self.pause_at = entries_in;
    }

    /// Whether the last movement stopped short. `next` goes on with it.
    pub(crate) fn paused(&self) -> bool {
        self.paused
    }

    /// What was read and dropped so far.
    pub fn stats(&self) -> &RewriteStats {
        &self.stats
    }

    #[inline]
    fn latch(&mut self, result: Result<()>) -> Result<()> {
        if let Err(error) = &result {
            self.current = None;
            self.failed = Some(error.clone());
        }
        result
    }

    /// Starting with the input's present entry, finds the first one to keep.
    #[inline]
    fn find(&mut self) -> Result<()> {
        while self.input.valid() {
            if self.stats.entries_in >= self.pause_at {
                self.paused = true;
                return Ok(());
            }
            let key = self.input.key();
            if !key.kind.is_supported() {
                return Err(unsupported(key));
            }
            self.stats.entries_in += 1;
            let (seq, kind, len) = (key.seq, key.kind, key.user_key.len());

            let same = common_prefix_len(&self.user_key, key.user_key);
            let order = match (self.user_key.get(same), key.user_key.get(same)) {
                _ if !self.started => Ordering::Less,
                (Some(before), Some(here)) => before.cmp(here),
                (before, here) => before.is_some().cmp(&here.is_some()),
            };
            let first_of_key = order != Ordering::Equal;
            self.started = true;
            let mut hidden = false;
            match order {
                Ordering::Less => {
                    self.user_key.truncate(same);
                    self.user_key.extend_from_slice(&key.user_key[same..]);
                    self.shared = self.shared.min(same);
                    self.floor = None;
                }
                Ordering::Equal if seq < self.last_seq => {
                    let (stripes, last) = (&self.stripes, self.last_seq);
                    let floor = *self.floor.get_or_insert_with(|| stripes.floor(last));
                    hidden = floor.is_none_or(|floor| seq > floor);
                    if !hidden {
                        self.floor = None;
                    }
                }
                Ordering::Equal | Ordering::Greater => {
                    return Err(out_of_order(&self.user_key, self.last_seq, key));
                }
            }
            self.last_seq = seq;

            if hidden {
                self.stats.shadowed += 1;
            } else if let Some(seq) = self.keep(seq, kind) {
                self.current = Some(Current { seq, kind, first_of_key, shared: self.shared });
                self.shared = len;
                self.stats.entries_out += 1;
                return Ok(());
            }
            self.stats.bytes_in += (len + self.input.value().len()) as u64;
            self.input.next()?;
        }
        Ok(())
    }

    /// The sequence number to write for a version that no other one hides; `None` for a tombstone without a purpose.
    #[inline]
    fn keep(&mut self, seq: SequenceNumber, kind: ValueKind) -> Option<SequenceNumber> {
        let tombstone = kind == ValueKind::Delete;
        let early = seq <= self.stripes.oldest();
        if early && tombstone && planted::is(planted::Fault::TombstoneDroppedEarly) {
            return None;
        }
        if early && !tombstone && planted::is(planted::Fault::SequenceZeroedEarly) {
            return Some(0);
        }
        if seq > self.stripes.oldest() || !(tombstone || (self.zero_sequences && seq > 0)) {
            return Some(seq);
        }
        if self.deeper.may_exist(&self.user_key) {
            return Some(seq);
        }
        if tombstone {
            self.stats.tombstones_dropped += 1;
            return None;
        }
        self.stats.zeroed += 1;
        Some(0)
    }
}

#[cold]
fn unsupported(key: InternalKeyRef<'_>) -> Error {
    Error::corruption(
        "compaction input",
        0,
        format!("entry {key:?} is of a kind that this build can't compact"),
    )
}

#[cold]
fn out_of_order(last_user_key: &[u8], last_seq: SequenceNumber, key: InternalKeyRef<'_>) -> Error {
    let last = last_user_key.escape_ascii();
    Error::corruption("compaction input", 0, format!("entry {key:?} comes after \"{last}\"#{last_seq}"))
}

#[cfg(test)]
mod tests;
