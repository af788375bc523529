//! [`Block`]: the payload of one block in memory, and the search in it.
//!
//! Bytes of a block are untrusted even though their checksum matched: whatever they are, a block answers or says what is
//! wrong. Cloning a block clones one counted pointer.

use crate::block_builder::WIDE;
use crate::entry::{self, Entry, MIN_ENTRY_LEN};
use crate::format::MAX_BLOCK_LEN;
use esker_base::coding::Reader;
use esker_base::{InternalKeyRef, Slice, common_prefix_len};
use std::ops::Deref;
use std::sync::Arc;

/// What is wrong with a block. Who knows the file and the offset makes a `Corruption` of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

/// A decoded block. Its bytes are its own, or lent while something else is made of it.
#[derive(Clone, Debug)]
pub(crate) struct Block<D = Arc<[u8]>> {
    /// The payload, and possibly its trailer.
    data: D,
    /// End of the entries, where the restart offsets begin.
    entries_end: u32,
    restarts: u32,
    entries: u32,
    wide: bool,
    /// The first entry, base of all restarts. Meaningless when there is none.
    first: Entry,
    /// Checksum of `data` when it was read, in tables that verify their reads.
    seal: Option<u32>,
}

/// An entry in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) entry: Entry,
    /// Where the entry starts.
    pub(crate) at: usize,
    /// The restart at or before it.
    pub(crate) restart: usize,
}

impl<D: Deref<Target = [u8]>> Block<D> {
    /// Reads the end of the payload, which is the first `len` bytes of `data`.
    pub(crate) fn parse(data: D, len: usize) -> Result<Self, Damage> {
        let payload = data.get(..len).ok_or(Damage("block shorter than its payload"))?;
        if len > MAX_BLOCK_LEN {
            return Err(Damage("block beyond the size limit"));
        }
        let (flags, rest) = payload.split_last().ok_or(Damage("empty block"))?;
        let wide = match *flags {
            0 => false,
            WIDE => true,
            _ => return Err(Damage("unknown block flags")),
        };
        let width = if wide { 4 } else { 2 };
        let counts_at = rest.len().checked_sub(2 * width).ok_or(Damage("block too short for its counts"))?;
        let mut counts = Reader::new(&rest[counts_at..]);
        let mut count =
            || if wide { counts.u32() } else { counts.u16().map(u32::from) }.ok_or(Damage("no block counts"));
        let (restarts, entries) = (count()?, count()?);
        let entries_end = (restarts.saturating_sub(1) as usize)
            .checked_mul(width)
            .and_then(|offsets| counts_at.checked_sub(offsets))
            .ok_or(Damage("more restarts than the block holds"))?;
        if (restarts == 0) != (entries == 0) || restarts > entries || (entries == 0) != (entries_end == 0) {
            return Err(Damage("block counts contradict each other"));
        }
        if entries as usize > entries_end / MIN_ENTRY_LEN {
            return Err(Damage("more entries than the block holds"));
        }
        let first = if entries == 0 {
            Entry::ZERO
        } else {
            entry::decode(&payload[..entries_end], 0, &Entry::ZERO).ok_or(Damage("bad first entry"))?
        };
        Ok(Block { entries_end: entries_end as u32, restarts, entries, wide, first, data, seal: None })
    }

    /// The same with a checksum of its memory.
    pub(crate) fn sealed(mut self) -> Self {
        self.seal = Some(crc32fast::hash(&self.data));
        self
    }

    /// Whether the memory still is what it was when the block was sealed.
    pub(crate) fn is_intact(&self) -> bool {
        self.seal.is_none_or(|seal| seal == crc32fast::hash(&self.data))
    }

    /// The bytes of the entries.
    #[inline]
    pub(crate) fn entries(&self) -> &[u8] {
        &self.data[..self.entries_end as usize]
    }

    /// Number of entries that the block claims; iteration shows whether that is true.
    #[inline]
    pub(crate) fn entry_count(&self) -> usize {
        self.entries as usize
    }

    /// Number of restarts.
    #[inline]
    pub(crate) fn restart_count(&self) -> usize {
        self.restarts as usize
    }

    /// Bytes of the payload.
    pub(crate) fn payload_len(&self) -> usize {
        let width = if self.wide { 4 } else { 2 };
        self.entries_end as usize + width * (self.restarts.saturating_sub(1) as usize + 2) + 1
    }

    /// Bytes that the block keeps in memory.
    pub(crate) fn memory(&self) -> usize {
        self.data.len()
    }

    /// The first entry, if there is any.
    #[inline]
    pub(crate) fn first(&self) -> Option<Position> {
        (self.entries > 0).then_some(Position { entry: self.first, at: 0, restart: 0 })
    }

    /// The key of the first entry.
    #[inline]
    pub(crate) fn first_key(&self) -> &[u8] {
        self.first.suffix(self.entries())
    }

    /// Where restart `index` starts; the end of the entries for `index == restart_count`.
    #[inline(always)]
    pub(crate) fn restart_at(&self, index: usize) -> Result<usize, Damage> {
        if index == 0 {
            return Ok(0);
        }
        if index >= self.restarts as usize {
            return Ok(self.entries_end as usize);
        }
        let offsets = &self.data[self.entries_end as usize..];
        let at = if self.wide {
            offsets.as_chunks::<4>().0.get(index - 1).map(|bytes| u32::from_le_bytes(*bytes) as usize)
        } else {
            offsets.as_chunks::<2>().0.get(index - 1).map(|bytes| usize::from(u16::from_le_bytes(*bytes)))
        };
        match at {
            Some(at) if at < self.entries_end as usize => Ok(at),
            _ => Err(Damage("restart outside the entries")),
        }
    }

    /// The entry at restart `index`.
    #[inline(always)]
    pub(crate) fn restart(&self, index: usize) -> Result<Position, Damage> {
        let at = self.restart_at(index)?;
        let entry = if index == 0 {
            self.first
        } else {
            entry::decode(self.entries(), at, &self.first).ok_or(Damage("bad entry at a restart"))?
        };
        Ok(Position { entry, at, restart: index })
    }

    /// The entry at `at`, which follows `base` and is no restart.
    #[inline(always)]
    pub(crate) fn entry(&self, at: usize, base: &Entry) -> Result<Entry, Damage> {
        entry::decode(self.entries(), at, base).ok_or(Damage("bad entry"))
    }

    /// The first entry at or after `target`. Its key is the first `shared` bytes of the *target's* and its own suffix.
    ///
    /// No key is rebuilt: with `matched`, the number of bytes that the target shares with an entry before it, an entry
    /// that shares more with that entry is before the target too, one that shares less is behind, and only in a tie
    /// bytes are compared.
    #[inline]
    pub(crate) fn seek(&self, target: InternalKeyRef<'_>) -> Result<Option<Position>, Damage> {
        let Some(first) = self.first() else { return Ok(None) };
        let entries = self.entries();
        let Some(with_first) = before(entries, &first.entry, target, 0) else { return Ok(Some(first)) };

        // Restart `low` is before the target, restart `high` is not, or is the end.
        let (mut low, mut high) = (first, self.restart_count());
        let mut matched = with_first;
        while high - low.restart > 1 {
            let middle = self.restart(low.restart + (high - low.restart) / 2)?;
            match before(entries, &middle.entry, target, with_first) {
                Some(more) => (low, matched) = (middle, more),
                None => high = middle.restart,
            }
        }

        let end = self.restart_at(high)?;
        let mut base = low.entry;
        let mut at = base.end();
        while at < end {
            let entry = self.entry(at, &base)?;
            match before(entries, &entry, target, matched) {
                Some(more) => matched = more,
                None => return Ok(Some(Position { entry, at, restart: low.restart })),
            }
            base = entry;
            at = entry.end();
        }
        if at != end {
            return Err(Damage("an entry crosses a restart"));
        }
        if high == self.restart_count() {
            return Ok(None);
        }
        let found = self.restart(high)?;
        if found.entry.shared as usize > target.user_key.len() {
            return Err(Damage("restarts out of order"));
        }
        Ok(Some(found))
    }
}

impl Block {
    /// The value of an entry of this block, sharing the block's memory.
    #[inline]
    pub(crate) fn value_slice(&self, entry: &Entry) -> Slice {
        Slice::shared(&self.data, entry.value_at()..entry.end())
    }
}

/// Whether the entry is before the target: then how many leading bytes the two share.
///
/// `matched` is the same number for the entry's base, which is before the target.
#[inline(always)]
fn before(entries: &[u8], entry: &Entry, target: InternalKeyRef<'_>, matched: usize) -> Option<usize> {
    let shared = entry.shared as usize;
    if shared != matched {
        return (shared > matched).then_some(matched);
    }
    let suffix = entry.suffix(entries);
    let rest = &target.user_key[matched..];
    let same = common_prefix_len(suffix, rest);
    let before = match (suffix.get(same), rest.get(same)) {
        (Some(a), Some(b)) => a < b,
        (None, Some(_)) => true,
        (Some(_), None) => false,
        (None, None) => (entry.seq, entry.kind) > (target.seq, target.kind),
    };
    before.then_some(matched + same)
}
