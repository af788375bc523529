//! [`TableIterator`]: walks over a table in both directions. For scans and compactions.
//!
//! Going forward it checks that keys ascend, which costs one comparison of a byte for an entry: so a damaged table that
//! passed its checksums is not copied into another one.

use crate::block::Damage;
use crate::block_cursor::BlockCursor;
use crate::block_run::{BlockRun, RunLimits};
use crate::cache::Form;
use crate::image_cursor::ImageCursor;
use crate::readahead::Readahead;
use crate::table_reader::TableReader;
use esker_base::{EntryBatch, Error, InternalIterator, InternalKey, InternalKeyRef, Outline, Result, Slice};
use std::sync::Arc;

/// An iterator over one table, which it keeps open. Holds one block, and one buffer with the key of the entry here.
#[derive(Debug)]
pub struct TableIterator {
    table: Arc<TableReader>,
    cursor: EitherCursor,
    /// Number of the data block that the cursor is in.
    number: usize,
    /// For an iterator that leaves the cache alone.
    readahead: Option<Readahead>,
    /// The last key of the block before, while the iterator steps over to the next.
    last: InternalKey,
}

impl TableIterator {
    /// With `readahead` it leaves the cache alone, and reads at most so many bytes ahead.
    pub(crate) fn new(table: Arc<TableReader>, readahead: Option<usize>) -> Self {
        let readahead = readahead.map(Readahead::new);
        let (cursor, last) = (EitherCursor::new(), InternalKey::default());
        TableIterator { table, cursor, number: 0, readahead, last }
    }

    /// The table.
    pub fn table(&self) -> &Arc<TableReader> {
        &self.table
    }

    /// Lends the entries from the present one on to `run`, as far as the limits permit, if that is at least two of them.
    /// The iterator may not be used until [`take_back`](Self::take_back).
    #[inline]
    pub fn lend(&mut self, run: &mut BlockRun, limits: &RunLimits<'_>) -> bool {
        self.cursor.in_image && self.cursor.image.valid() && run.take(&mut self.cursor.image, limits)
    }

    /// Goes where `run` is.
    pub fn take_back(&mut self, run: &mut BlockRun) {
        std::mem::swap(&mut self.cursor.image, &mut run.cursor);
    }

    /// Goes into data block `number`; the cursor is not valid afterwards.
    fn enter(&mut self, number: usize) -> Result<()> {
        self.cursor.clear();
        match &mut self.readahead {
            None => self.table.with_block(number, |block| self.cursor.set(&block.form))?,
            Some(readahead) => self.cursor.set(&self.table.block_once(number, readahead)?.form),
        }
        self.number = number;
        Ok(())
    }

    #[cold]
    fn damage(&mut self, damage: Damage) -> Error {
        self.cursor.clear();
        self.table.block_damage(self.number, damage)
    }

    /// Goes to the first entry of block `number`, if there is such a block.
    fn first_of(&mut self, number: usize) -> Result<()> {
        self.cursor.clear();
        if number < self.table.index.len() {
            self.enter(number)?;
            self.cursor.seek_to_first().map_err(|damage| self.damage(damage))?;
        }
        Ok(())
    }

    /// Steps from the last entry of a block to the first of the next.
    fn next_block(&mut self) -> Result<()> {
        self.last.assign(self.cursor.key());
        self.first_of(self.number + 1)?;
        if self.cursor.valid() && self.cursor.key() <= self.last.as_ref() {
            return Err(self.damage(Damage("the first key is not behind the block before")));
        }
        Ok(())
    }

    /// Goes to the last entry of the block before `end`, if there is one.
    fn last_before(&mut self, end: usize) -> Result<()> {
        self.cursor.clear();
        if let Some(number) = end.checked_sub(1) {
            self.enter(number)?;
            self.cursor.seek_to_last().map_err(|damage| self.damage(damage))?;
        }
        Ok(())
    }
}

/// A cursor over a block, or over the image of one.
#[derive(Debug)]
struct EitherCursor {
    in_image: bool,
    image: ImageCursor,
    block: BlockCursor,
}

macro_rules! either {
    ($self:expr, $cursor:ident => $call:expr) => {
        if $self.in_image {
            let $cursor = &$self.image;
            $call
        } else {
            let $cursor = &$self.block;
            $call
        }
    };
    (mut $self:expr, $cursor:ident => $call:expr) => {
        if $self.in_image {
            let $cursor = &mut $self.image;
            $call
        } else {
            let $cursor = &mut $self.block;
            $call
        }
    };
}

impl EitherCursor {
    fn new() -> Self {
        EitherCursor { in_image: false, image: ImageCursor::new(), block: BlockCursor::new() }
    }

    /// Lets go of its block.
    fn clear(&mut self) {
        either!(mut self, cursor => cursor.clear());
    }

    /// Takes a block, and is not valid.
    fn set(&mut self, block: &Form) {
        self.clear();
        match block {
            Form::Image(image) => self.image.set_image(image.clone()),
            Form::Block(block) => self.block.set_block(Some(block.clone())),
        }
        self.in_image = matches!(block, Form::Image(_));
    }

    fn seek_to_first(&mut self) -> Result<(), Damage> {
        either!(mut self, cursor => cursor.seek_to_first())
    }

    fn seek_to_last(&mut self) -> Result<(), Damage> {
        either!(mut self, cursor => cursor.seek_to_last())
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<(), Damage> {
        either!(mut self, cursor => cursor.seek(target))
    }

    #[inline]
    fn next(&mut self) -> Result<(), Damage> {
        either!(mut self, cursor => cursor.next())
    }

    #[inline]
    fn prev(&mut self) -> Result<(), Damage> {
        either!(mut self, cursor => cursor.prev())
    }

    #[inline]
    fn valid(&self) -> bool {
        either!(self, cursor => cursor.valid())
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        either!(self, cursor => cursor.key())
    }

    #[inline]
    fn outline(&self) -> Option<Outline> {
        if self.in_image {
            self.image.outline()
        } else {
            self.block.valid().then(|| Outline::of(self.block.key()))
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        either!(self, cursor => cursor.value())
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        either!(self, cursor => cursor.value_slice())
    }
}

impl InternalIterator for TableIterator {
    fn seek_to_first(&mut self) -> Result<()> {
        self.first_of(0)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.last_before(self.table.index.len())
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.cursor.clear();
        let found = self.table.index.find(target).map_err(|damage| self.table.index_damage(damage))?;
        let Some(number) = found else { return Ok(()) };
        self.enter(number)?;
        self.cursor.seek(target).map_err(|damage| self.damage(damage))?;
        if self.cursor.valid() {
            return Ok(());
        }
        // The target is between the block's last key and its separator.
        self.first_of(number + 1)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if !self.cursor.valid() {
            return Ok(());
        }
        self.cursor.next().map_err(|damage| self.damage(damage))?;
        if self.cursor.valid() { Ok(()) } else { self.next_block() }
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if !self.cursor.valid() {
            return Ok(());
        }
        self.cursor.prev().map_err(|damage| self.damage(damage))?;
        if self.cursor.valid() { Ok(()) } else { self.last_before(self.number) }
    }

    #[inline]
    fn valid(&self) -> bool {
        self.cursor.valid()
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        self.cursor.key()
    }

    #[inline]
    fn outline(&self) -> Option<Outline> {
        self.cursor.outline()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.cursor.value()
    }

    #[inline]
    fn value_slice(&self) -> Slice {
        self.cursor.value_slice()
    }

    #[inline]
    fn is_newest(&self) -> bool {
        self.cursor.in_image && self.cursor.image.is_newest()
    }

    fn fill(&mut self, batch: &mut EntryBatch, limit: usize) -> Result<usize> {
        let mut filled = 0;
        while filled < limit && self.cursor.valid() {
            batch.push(self.cursor.key(), self.cursor.value());
            filled += 1;
            self.next()?;
        }
        Ok(filled)
    }
}
