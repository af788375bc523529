//! [`Probe`]: a lookup that knows the block in which its key must be, and has not looked into it.
//!
//! A lookup waits for memory several times, each time for an address that it has just read: the place of the block, its
//! head, the entry. Several lookups, each at the same step, wait together.

use crate::block::{Block, Damage};
use crate::cache::{CachedBlock, Form};
use crate::entry::Entry;
use crate::image::{Image, Spot};
use crate::table_reader::TableReader;
use arc_swap::Guard;
use esker_base::{InternalKeyRef, Lookup, Result, SequenceNumber, Slice, ValueKind};
use std::hint::black_box;
use std::sync::Arc;

/// A version of a key, as a lookup finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of the write.
    pub seq: SequenceNumber,
    /// What the write did.
    pub kind: ValueKind,
    /// The value; empty for tombstones.
    pub value: Slice,
}

/// A lookup between its steps: see [`TableReader::probe`].
#[derive(Debug)]
pub struct Probe<'a> {
    table: &'a TableReader,
    /// Of the data block.
    number: usize,
    cached: Option<Guard<Option<Arc<CachedBlock>>>>,
}

impl TableReader {
    /// The newest version of a key that the lookup may see.
    ///
    /// The hash in `lookup` must be of the table's own seed, which [`properties`](Self::properties) gives; a store has
    /// one seed for all its tables. When the filter excludes the key no block is touched. Allocates nothing when the
    /// block is cached. Fails with `Corruption` or `Io`.
    #[inline]
    pub fn get(&self, lookup: &Lookup<'_>) -> Result<Option<Found>> {
        let Some(probe) = self.probe(lookup)? else { return Ok(None) };
        probe.find(lookup, |seq, kind, value| Found { seq, kind, value: value.slice() })
    }

    /// As [`get`](Self::get), and lends the value instead of sharing it: `read` is called with kind and value.
    #[inline]
    pub fn get_with<R>(
        &self,
        lookup: &Lookup<'_>,
        read: impl FnOnce(ValueKind, &[u8]) -> R,
    ) -> Result<Option<R>> {
        let Some(probe) = self.probe(lookup)? else { return Ok(None) };
        probe.get_with(lookup, read)
    }

    /// The first step of [`get_with`](Self::get_with): asks the filter and the index. `None` when the key is not here.
    ///
    /// For several lookups at once: take each step for all of them before the next one.
    #[inline]
    pub fn probe(&self, lookup: &Lookup<'_>) -> Result<Option<Probe<'_>>> {
        if !self.may_contain(lookup.hash) {
            return Ok(None);
        }
        let target = InternalKeyRef::seek_to(lookup.user_key, lookup.seq);
        let found = self.index.find(target).map_err(|damage| self.index_damage(damage))?;
        Ok(found.map(|number| Probe {
            table: self,
            number,
            cached: self.slots.as_ref().and_then(|slots| slots.look(number)),
        }))
    }
}

impl Probe<'_> {
    /// The second step: touches the head of the block, and waits for nothing.
    #[inline]
    pub fn touch_block(&self) {
        if let Some(Some(block)) = self.cached.as_deref() {
            black_box(block.hits());
        }
    }

    /// The third step: touches what is probably the entry.
    #[inline]
    pub fn touch_entry(&self, lookup: &Lookup<'_>) {
        if let Some(Some(block)) = self.cached.as_deref()
            && let Form::Image(image) = &block.form
        {
            black_box(image.guess(lookup));
        }
    }

    /// The last step, which needs none of the others but the first.
    #[inline]
    pub fn get_with<R>(
        self,
        lookup: &Lookup<'_>,
        read: impl FnOnce(ValueKind, &[u8]) -> R,
    ) -> Result<Option<R>> {
        self.find(lookup, |_, kind, value| read(kind, value.bytes()))
    }

    #[inline]
    fn find<R>(
        self,
        lookup: &Lookup<'_>,
        read: impl FnOnce(SequenceNumber, ValueKind, ValueHere<'_>) -> R,
    ) -> Result<Option<R>> {
        let Probe { table, number, cached } = self;
        let damaged = |damage: Damage| table.block_damage(number, damage);
        let fetched;
        let block = match cached.as_deref().and_then(Option::as_deref) {
            Some(block) if !table.verify_reads || block.is_intact() => {
                block.hit();
                block
            }
            block => {
                fetched = table.fetch(number, block.is_some())?;
                &fetched
            }
        };
        match &block.form {
            Form::Image(image) => {
                let hit = image.get(lookup).map_err(damaged)?;
                Ok(hit.map(|hit| read(hit.seq, hit.kind, ValueHere::InImage(image, &hit.spot))))
            }
            Form::Block(block) => {
                let target = InternalKeyRef::seek_to(lookup.user_key, lookup.seq);
                let Some(position) = block.seek(target).map_err(damaged)? else { return Ok(None) };
                let entry = &position.entry;
                // The entry's first `shared` bytes are those of the target, if the target has as many.
                if lookup.user_key.get(entry.shared as usize..) != Some(entry.suffix(block.entries())) {
                    return Ok(None);
                }
                Ok(Some(read(entry.seq, entry.kind, ValueHere::InBlock(block, entry))))
            }
        }
    }
}

/// A value where it lies.
enum ValueHere<'a> {
    InImage(&'a Image, &'a Spot),
    InBlock(&'a Block, &'a Entry),
}

impl ValueHere<'_> {
    #[inline]
    fn bytes(&self) -> &[u8] {
        match self {
            ValueHere::InImage(image, spot) => image.value(spot),
            ValueHere::InBlock(block, entry) => entry.value(block.entries()),
        }
    }

    #[inline]
    fn slice(&self) -> Slice {
        match self {
            ValueHere::InImage(image, spot) => image.value_slice(spot),
            ValueHere::InBlock(block, entry) => block.value_slice(entry),
        }
    }
}
