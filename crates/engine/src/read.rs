//! Point reads: the newest visible version of a key, from the youngest component that has one.
//!
//! A component that can't be read ends the lookup with its error: an older value from a deeper level would be wrong.

use crate::core::Core;
use crate::super_version::SuperVersion;
use crate::{Error, Result};
use esker_base::{Lookup, MAX_KEY_LEN, SequenceNumber, Slice, ValueKind, key_hash, planted, points};
use esker_sstable::TableReader;

impl Core {
    /// The value of `key` as of `seq`, or as of now.
    #[inline]
    pub(crate) fn get(&self, key: &[u8], seq: Option<SequenceNumber>) -> Result<Option<Slice>> {
        self.check_open()?;
        // The picture first, the visible sequence second: the other order misses writes that are flushed in between.
        let picture = self.super_version.load();
        points::here(points::Point::Pictured);
        let seq = seq.unwrap_or_else(|| self.visible.load());
        self.lookup(&picture, key, seq)
    }

    /// Calls `read` with the value of `key`, where it lies.
    #[inline]
    pub(crate) fn get_with<R>(
        &self,
        key: &[u8],
        seq: Option<SequenceNumber>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        self.check_open()?;
        if key.len() > MAX_KEY_LEN {
            return Ok(None);
        }
        let picture = self.super_version.load();
        points::here(points::Point::Pictured);
        let seq = seq.unwrap_or_else(|| self.visible.load());
        let lookup = Lookup { user_key: key, hash: key_hash(self.tables.hash_seed, key), seq };
        for generation in std::iter::once(&picture.active).chain(&picture.immutables) {
            if let Some(found) = generation.memtables[0].get_ref(&lookup) {
                return match found.kind {
                    ValueKind::Put => Ok(Some(read(found.value))),
                    ValueKind::Delete => Ok(None),
                    other => Err(unsupported(other)),
                };
            }
        }
        let mut read = Some(read);
        let found = picture.find_in_tables(0, key, |table| {
            table.get_with(&lookup, |kind, value| match kind {
                ValueKind::Put => Ok(read.take().map(|read| read(value))),
                ValueKind::Delete => Ok(None),
                other => Err(unsupported(other)),
            })
        });
        found.map_err(|error| self.unless_closed(error))?.unwrap_or(Ok(None))
    }

    /// The values of several keys as of one moment. An error is the answer for its key only.
    pub(crate) fn multi_get<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        seq: Option<SequenceNumber>,
    ) -> Vec<Result<Option<Slice>>> {
        if let Err(error) = self.check_open() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        let picture = self.super_version.load_full();
        points::here(points::Point::Pictured);
        let seq = seq.unwrap_or_else(|| self.visible.load());
        keys.iter().map(|key| self.lookup(&picture, key.as_ref(), seq)).collect()
    }

    fn lookup(&self, picture: &SuperVersion, key: &[u8], seq: SequenceNumber) -> Result<Option<Slice>> {
        if key.len() > MAX_KEY_LEN {
            return Ok(None);
        }
        let lookup = Lookup { user_key: key, hash: key_hash(self.tables.hash_seed, key), seq };
        picture.get(0, &lookup).map_err(|error| self.unless_closed(error))
    }
}

impl SuperVersion {
    #[inline]
    fn get(&self, position: usize, lookup: &Lookup<'_>) -> Result<Option<Slice>> {
        if let Some(found) = self.active.memtables[position].get(lookup) {
            return value(found.kind, found.value);
        }
        for generation in &self.immutables {
            if let Some(found) = generation.memtables[position].get(lookup) {
                return value(found.kind, found.value);
            }
        }
        match self.find_in_tables(position, lookup.user_key, |table| table.get(lookup))? {
            Some(found) => value(found.kind, found.value),
            None => Ok(None),
        }
    }

    /// Asks the tables that may hold a key, youngest first, until one has an answer.
    #[inline]
    fn find_in_tables<R>(
        &self,
        position: usize,
        user_key: &[u8],
        mut ask: impl FnMut(&TableReader) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        let tables = &*self.keyspaces[position];
        if planted::is(planted::Fault::UnreadableTableSkipped) {
            let deeper = tables.levels.iter().filter_map(|level| level.find(user_key));
            let level0 = tables.level0.iter().filter(|table| table.meta.covers(user_key));
            return Ok(level0.chain(deeper).find_map(|table| ask(table.reader().ok()?).ok()?));
        }
        for table in &tables.level0 {
            if table.meta.covers(user_key)
                && let Some(found) = ask(table.reader()?)?
            {
                return Ok(Some(found));
            }
        }
        for level in &tables.levels {
            if let Some(table) = level.find(user_key)
                && let Some(found) = ask(table.reader()?)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// What an entry means for a reader.
#[inline]
fn value(kind: ValueKind, value: Slice) -> Result<Option<Slice>> {
    match kind {
        ValueKind::Put => Ok(Some(value)),
        ValueKind::Delete => Ok(None),
        other => Err(unsupported(other)),
    }
}

#[cold]
pub(crate) fn unsupported(kind: ValueKind) -> Error {
    Error::unsupported("a table", format!("an entry of kind {}, which this build does not read", kind.name()))
}
