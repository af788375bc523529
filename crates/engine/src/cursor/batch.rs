//! [`Batch`]: some entries of a scan at once.
//!
//! Over a run, which is most of most scans, a batch is the rest of the run, lent out of the block. Elsewhere entries are
//! copied as the cursor comes by, up to about as many as a block has.

use super::{Cursor, Place};
use crate::{Error, Result};
use esker_base::{EntryBatch, InternalKeyRef, ValueKind};
use esker_sstable::RunColumns;

/// Entries and bytes that are copied for a batch; at least one entry.
const COPIED_ENTRIES: usize = 256;
const COPIED_BYTES: usize = 8 << 10;

/// A value of such a length is not copied: it is a batch of its own.
const LARGE: usize = 4 << 10;

/// A run of so many entries is worth the end of a batch of copies.
const RUN_WORTH: usize = 16;

/// Some entries of a scan in its order, lent for a call: see [`Cursor::next_batch`].
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a>(Entries<'a>);

#[derive(Clone, Copy, Debug)]
enum Entries<'a> {
    Run(RunColumns<'a>),
    Copies(&'a EntryBatch),
    One(&'a [u8], &'a [u8]),
}

impl<'a> Batch<'a> {
    /// How many entries there are.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Entries::Run(columns) => columns.len(),
            Entries::Copies(copies) => copies.len(),
            Entries::One(..) => 1,
        }
    }

    /// Whether there is no entry: at the end of a scan.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Key and value of an entry.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`len`](Self::len).
    #[inline]
    pub fn get(&self, index: usize) -> (&'a [u8], &'a [u8]) {
        match &self.0 {
            Entries::Run(columns) => columns.get(index),
            Entries::Copies(copies) => {
                let (key, value) = copies.get(index);
                (key.user_key, value)
            }
            Entries::One(key, value) => {
                assert!(index == 0, "entry {index} of 1");
                (key, value)
            }
        }
    }

    /// All keys and values, in the order of the scan.
    #[inline]
    pub fn iter(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + ExactSizeIterator + use<'a> {
        let batch = *self;
        (0..batch.len()).map(move |index| batch.get(index))
    }

    /// All keys.
    #[inline]
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        self.iter().map(|(key, _)| key)
    }

    /// What kind of batch it is, for tests that must meet all.
    #[cfg(test)]
    pub(crate) fn kind(&self) -> &'static str {
        match &self.0 {
            Entries::Run(_) => "run",
            Entries::Copies(_) => "copies",
            Entries::One(..) => "one",
        }
    }

    /// All values.
    #[inline]
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + use<'a> {
        self.iter().map(|(_, value)| value)
    }
}

impl Cursor {
    /// Lends `read` the entries from the present one on, at most `most` of them, and goes to the one behind them. For scans
    /// of many entries: where nothing in a block is hidden, its entries are lent together, as they lie there.
    ///
    /// How many there are is the cursor's choice; none only if it is not [`valid`](Self::valid), or `most` is 0. Nothing is
    /// allocated once the buffers of the cursor have grown to the size of a batch.
    ///
    /// # Errors
    ///
    /// As those of [`next`](Self::next), and kept as they are. An error that the cursor meets behind the entries is
    /// returned when these have been read.
    ///
    /// ```
    /// let db = esker::Db::in_memory()?;
    /// for number in 0..1000 {
    ///     db.put(format!("{number:03}"), "value")?;
    /// }
    /// let mut cursor = db.cursor()?;
    /// cursor.seek("500")?;
    /// let mut bytes = 0;
    /// while cursor.valid() {
    ///     bytes += cursor.next_batch(usize::MAX, |batch| batch.values().map(<[u8]>::len).sum::<usize>())?;
    /// }
    /// assert_eq!(bytes, 500 * 5);
    /// # Ok::<(), esker::Error>(())
    /// ```
    #[inline]
    pub fn next_batch<R>(&mut self, most: usize, read: impl FnOnce(&Batch<'_>) -> R) -> Result<R> {
        self.batch(true, most, read)
    }

    /// The same backward: lends the entries from the present one back, in descending order, and goes to the one before
    /// them.
    ///
    /// # Errors
    ///
    /// As those of [`next_batch`](Self::next_batch).
    #[inline]
    pub fn prev_batch<R>(&mut self, most: usize, read: impl FnOnce(&Batch<'_>) -> R) -> Result<R> {
        self.batch(false, most, read)
    }

    #[inline]
    fn batch<R>(&mut self, forward: bool, most: usize, read: impl FnOnce(&Batch<'_>) -> R) -> Result<R> {
        if self.error.is_some() || !self.handle.0.is_open() {
            self.step(forward)?;
        }
        if self.place == Place::InRun
            && let Some(columns) = self.run.columns(forward, most, &mut self.keys)
        {
            let len = columns.len();
            let result = read(&Batch(Entries::Run(columns)));
            if !self.run.skip(forward, len - 1) {
                self.moved(false, |_| Err(Error::fatal("a block in memory has changed")))?;
            }
            self.step(forward)?;
            return Ok(result);
        }
        if self.valid() && most > 0 && self.value().len() >= LARGE {
            let result = read(&Batch(Entries::One(self.key(), self.value())));
            self.step(forward)?;
            return Ok(result);
        }
        let gathered = self.gather(forward, most);
        let result = read(&Batch(Entries::Copies(&self.copies)));
        gathered.map(|()| result)
    }

    /// Copies entries from the present one on, and steps over them.
    fn gather(&mut self, forward: bool, most: usize) -> Result<()> {
        let mut copies = std::mem::take(&mut self.copies);
        copies.clear();
        let gathered = self.gather_into(&mut copies, forward, most);
        self.copies = copies;
        gathered
    }

    fn gather_into(&mut self, copies: &mut EntryBatch, forward: bool, most: usize) -> Result<()> {
        // A run whose entries can't be lent is as good as none.
        let ends_at_run = self.place != Place::InRun;
        let mut bytes = 0;
        while self.valid() && copies.len() < most.min(COPIED_ENTRIES) {
            let (key, value) = (self.key(), self.value());
            bytes += key.len() + value.len();
            if !copies.is_empty() && (bytes > COPIED_BYTES || value.len() >= LARGE) {
                break;
            }
            copies.push(InternalKeyRef::new(key, 0, ValueKind::Put), value);
            self.step(forward)?;
            if ends_at_run && self.place == Place::InRun && self.run.left(forward) >= RUN_WORTH {
                break;
            }
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, forward: bool) -> Result<()> {
        if forward { self.next() } else { self.prev() }
    }
}
