//! [`BlockCursor`]: a position in one block, with the key rebuilt in one reusable buffer. Moves both ways.

use crate::block::{Block, Damage, Position};
use crate::entry::{Entry, ascends};
use crate::format::MAX_RESTART_INTERVAL;
use esker_base::{InternalKeyRef, Slice};

/// A position in a block.
///
/// # Invariants
///
/// - When `valid`, `entry` is the one at `at`, `key` is its user key, and `next_restart` is where the restart after it
///   starts (the end of the entries when there is none).
/// - `back` holds the entries of restart `back_restart` from its start on, if it is not empty.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    block: Option<Block>,
    valid: bool,
    key: Vec<u8>,
    /// The key before a restart, while the two are compared.
    spare: Vec<u8>,
    entry: Entry,
    at: usize,
    restart: usize,
    next_restart: usize,
    /// The entries of one restart interval, for going backward.
    back: Vec<(usize, Entry)>,
    back_restart: usize,
}

impl BlockCursor {
    /// A cursor over no block.
    pub(crate) fn new() -> Self {
        BlockCursor {
            block: None,
            valid: false,
            key: Vec::new(),
            spare: Vec::new(),
            entry: Entry::ZERO,
            at: 0,
            restart: 0,
            next_restart: 0,
            back: Vec::new(),
            back_restart: 0,
        }
    }

    /// Takes another block, or none, and is not valid.
    pub(crate) fn set_block(&mut self, block: Option<Block>) {
        self.block = block;
        self.valid = false;
        self.back.clear();
    }

    /// Lets go of the block.
    pub(crate) fn clear(&mut self) {
        self.set_block(None);
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.valid
    }

    #[inline]
    pub(crate) fn key(&self) -> InternalKeyRef<'_> {
        InternalKeyRef::new(&self.key, self.entry.seq, self.entry.kind)
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match &self.block {
            Some(block) => self.entry.value(block.entries()),
            None => &[],
        }
    }

    pub(crate) fn value_slice(&self) -> Slice {
        match &self.block {
            Some(block) => block.value_slice(&self.entry),
            None => Slice::empty(),
        }
    }

    /// The decoded entry here.
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Where the entry here starts in the block.
    pub(crate) fn offset(&self) -> usize {
        self.at
    }

    /// Whether the entry here is a restart.
    pub(crate) fn at_restart(&self) -> Result<bool, Damage> {
        match &self.block {
            Some(block) => Ok(block.restart_at(self.restart)? == self.at),
            None => Ok(false),
        }
    }

    pub(crate) fn seek_to_first(&mut self) -> Result<(), Damage> {
        self.valid = false;
        let Some(block) = &self.block else { return Ok(()) };
        let Some(first) = block.first() else { return Ok(()) };
        self.key.clear();
        self.key.extend_from_slice(block.first_key());
        self.arrive(first)
    }

    /// Goes to the first entry at or after `target`; not valid when there is none.
    pub(crate) fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<(), Damage> {
        self.valid = false;
        let Some(block) = &self.block else { return Ok(()) };
        let Some(position) = block.seek(target)? else { return Ok(()) };
        let entry = &position.entry;
        self.key.clear();
        self.key.extend_from_slice(&target.user_key[..entry.shared as usize]);
        self.key.extend_from_slice(entry.suffix(block.entries()));
        self.arrive(position)
    }

    pub(crate) fn seek_to_last(&mut self) -> Result<(), Damage> {
        self.valid = false;
        let Some(block) = &self.block else { return Ok(()) };
        let Some(last) = block.restart_count().checked_sub(1) else { return Ok(()) };
        self.decode_back(last)?;
        self.go_back(0, self.back.len() - 1)
    }

    /// Steps to the following entry; not valid behind the last one.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<(), Damage> {
        let Some(block) = &self.block else { return Ok(()) };
        let at = self.entry.end();
        if at == self.next_restart {
            return self.next_interval();
        }
        self.valid = false;
        let entry = block.entry(at, &self.entry)?;
        if entry.end() > self.next_restart {
            return Err(Damage("an entry crosses a restart"));
        }
        let shared = entry.shared as usize;
        let suffix = entry.suffix(block.entries());
        if !ascends(&self.key, &self.entry, suffix, &entry) {
            return Err(Damage("keys out of order"));
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(suffix);
        self.entry = entry;
        self.at = at;
        self.valid = true;
        Ok(())
    }

    /// Steps over a restart, or over the end.
    fn next_interval(&mut self) -> Result<(), Damage> {
        self.valid = false;
        let Some(block) = &self.block else { return Ok(()) };
        let next = self.restart + 1;
        if next == block.restart_count() {
            return Ok(());
        }
        let position = block.restart(next)?;
        let entry = &position.entry;
        std::mem::swap(&mut self.key, &mut self.spare);
        self.key.clear();
        self.key.extend_from_slice(&block.first_key()[..entry.shared as usize]);
        self.key.extend_from_slice(entry.suffix(block.entries()));
        let before = InternalKeyRef::new(&self.spare, self.entry.seq, self.entry.kind);
        if before >= InternalKeyRef::new(&self.key, entry.seq, entry.kind) {
            return Err(Damage("keys out of order"));
        }
        self.arrive(position)
    }

    /// Steps to the preceding entry; not valid before the first one.
    pub(crate) fn prev(&mut self) -> Result<(), Damage> {
        self.valid = false;
        let Some(block) = &self.block else { return Ok(()) };
        if self.at == 0 {
            return Ok(());
        }
        if self.at == block.restart_at(self.restart)? {
            self.decode_back(self.restart - 1)?;
            return self.go_back(0, self.back.len() - 1);
        }
        if self.back.is_empty() || self.back_restart != self.restart {
            self.decode_back(self.restart)?;
        }
        let here = self.back.binary_search_by_key(&self.at, |(at, _)| *at);
        let here = here.map_err(|_| Damage("an entry lies between two others"))?;
        // The key before shares with this one what this one says.
        self.go_back(self.entry.shared as usize, here - 1)
    }

    /// Decodes the entries of restart `restart` into `back`.
    fn decode_back(&mut self, restart: usize) -> Result<(), Damage> {
        self.back.clear();
        let Some(block) = &self.block else { return Ok(()) };
        let end = block.restart_at(restart + 1)?;
        let Position { mut entry, mut at, .. } = block.restart(restart)?;
        loop {
            if self.back.len() == MAX_RESTART_INTERVAL {
                self.back.clear();
                return Err(Damage("too many entries after a restart"));
            }
            self.back.push((at, entry));
            at = entry.end();
            if at >= end {
                break;
            }
            entry = match block.entry(at, &entry) {
                Ok(entry) => entry,
                Err(damage) => {
                    self.back.clear();
                    return Err(damage);
                }
            };
        }
        if at != end {
            self.back.clear();
            return Err(Damage("an entry crosses a restart"));
        }
        self.back_restart = restart;
        Ok(())
    }

    /// Goes to entry `index` of `back`. The first `kept` bytes of the key buffer are those of its key already.
    fn go_back(&mut self, kept: usize, index: usize) -> Result<(), Damage> {
        let Some(block) = &self.block else { return Ok(()) };
        let (at, entry) = self.back[index];
        self.key.resize(entry.key_len as usize, 0);
        // From the end of the key on, each byte is in the suffix of the last entry that does not share it.
        let mut end = entry.key_len as usize;
        let mut from = index + 1;
        while end > kept && from > 0 {
            from -= 1;
            let part = &self.back[from].1;
            let start = (part.shared as usize).max(kept);
            if start < end {
                let suffix = part.suffix(block.entries());
                let skip = start - part.shared as usize;
                self.key[start..end].copy_from_slice(&suffix[skip..skip + (end - start)]);
                end = start;
            }
        }
        if end > kept {
            self.key[kept..end].copy_from_slice(&block.first_key()[kept..end]);
        }
        self.arrive(Position { entry, at, restart: self.back_restart })
    }

    /// Takes a position whose key is in the buffer.
    fn arrive(&mut self, position: Position) -> Result<(), Damage> {
        let Some(block) = &self.block else { return Ok(()) };
        self.next_restart = block.restart_at(position.restart + 1)?;
        if position.entry.end() > self.next_restart {
            return Err(Damage("an entry crosses a restart"));
        }
        self.entry = position.entry;
        self.at = position.at;
        self.restart = position.restart;
        self.valid = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block_builder::BlockBuilder;
    use esker_base::ValueKind;
    use std::sync::Arc;

    fn cursor(entries: u64, restart_interval: usize) -> BlockCursor {
        let mut builder = BlockBuilder::new(restart_interval);
        for seq in (0..entries).rev() {
            builder.add(3, InternalKeyRef::new(b"key", seq, ValueKind::Put), b"");
        }
        let payload: Arc<[u8]> = Arc::from(builder.finish());
        let len = payload.len();
        let mut cursor = BlockCursor::new();
        cursor.set_block(Some(Block::parse(payload, len).unwrap()));
        cursor
    }

    /// Going backward holds the entries of one restart, so their number has a limit.
    ///
    /// Fails when a hostile block may have any number of entries after a restart.
    #[test]
    fn the_run_after_a_restart_is_limited() {
        let mut cursor = cursor(2 * MAX_RESTART_INTERVAL as u64, MAX_RESTART_INTERVAL);
        cursor.seek_to_last().unwrap();
        for seq in 0..2 * MAX_RESTART_INTERVAL as u64 {
            assert_eq!(cursor.key(), InternalKeyRef::new(b"key", seq, ValueKind::Put));
            cursor.prev().unwrap();
        }
        assert!(!cursor.valid());

        let mut cursor = self::cursor(MAX_RESTART_INTERVAL as u64 + 1, MAX_RESTART_INTERVAL + 1);
        assert!(cursor.seek_to_last().is_err() && !cursor.valid());
        cursor.seek_to_first().unwrap();
        assert!(cursor.valid());
    }
}
