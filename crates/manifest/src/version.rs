//! `Version`: the tables of one keyspace at one moment.
//!
//! Readers and iterators hold an `Arc<Version>`, and with it the files it names. A version never changes after it was
//! published: [`Version::apply`] makes the next one, and refuses to make one that breaks an invariant:
//!
//! 1. Levels below 0 are disjoint by *user* key, so one user key never spans two tables of a level (V5, V6).
//! 2. Tables of level 0 that overlap by key hold disjoint ranges of sequence numbers, the newer one the larger.
//! 3. Where the bounds of two tables at different levels are versions of one user key, the upper level's is newer.
//!
//! The third rule speaks of the bounds only. For whole tables it would be wrong: a table of level 1 that was merged from
//! old and new data has a wide sequence range, and legitimately lies over a level-2 table with some sequence numbers in
//! between for *other* keys. A sequence number that was zeroed at the bottom counts as older than everything.

use crate::version_builder::VersionBuilder;
use crate::{Level, TableMetadata, VersionEdit};
use esker_base::{Error, KeyspaceId, Result};
use std::fmt;
use std::sync::Arc;

/// Number of levels.
pub const NUM_LEVELS: usize = 7;

/// The tables of one keyspace at one moment, with the places where compaction goes on.
#[derive(Clone, Debug)]
pub struct Version {
    pub(crate) levels: [Arc<Level>; NUM_LEVELS],
    /// User key after which the next compaction of the level starts; `None` is the level's first key.
    pub(crate) cursors: [Option<Vec<u8>>; NUM_LEVELS],
}

impl Version {
    /// A version without tables.
    pub fn new() -> Self {
        Version {
            levels: std::array::from_fn(|number| Arc::new(Level::new(number, Vec::new()))),
            cursors: Default::default(),
        }
    }

    /// The version after the changes that `edit` makes to `keyspace`; its other parts are ignored. Deletions come
    /// before additions, so an edit may move a table to another level. Levels that the edit does not touch are shared.
    ///
    /// # Errors
    ///
    /// [`Fatal`](esker_base::ErrorKind::Fatal) when the edit deletes a table that is not there, adds one that is, or
    /// leads to a version that breaks an invariant.
    pub fn apply(&self, keyspace: KeyspaceId, edit: &VersionEdit) -> Result<Version> {
        let mut builder = VersionBuilder::new();
        builder
            .apply(keyspace, edit)
            .and_then(|()| builder.build(self))
            .map_err(|what| Error::fatal(format!("version of keyspace {keyspace}: {what}")))
    }

    /// All levels, the youngest first.
    #[inline]
    pub fn levels(&self) -> impl DoubleEndedIterator<Item = &Level> + ExactSizeIterator + Clone {
        self.levels.iter().map(|level| &**level)
    }

    /// One level.
    ///
    /// # Panics
    ///
    /// When `number` is not below [`NUM_LEVELS`].
    #[inline]
    pub fn level(&self, number: usize) -> &Level {
        &self.levels[number]
    }

    /// The user key after which the next compaction of a level starts; `None` is the level's first key.
    ///
    /// # Panics
    ///
    /// When `level` is not below [`NUM_LEVELS`].
    #[inline]
    pub fn cursor(&self, level: usize) -> Option<&[u8]> {
        self.cursors[level].as_deref()
    }

    /// The tables that can hold `user_key`, in the order in which a lookup must ask them: level 0 newest first, then at
    /// most one a level.
    #[inline]
    pub fn tables_for<'a, 'k>(&'a self, user_key: &'k [u8]) -> TablesFor<'a, 'k> {
        TablesFor { version: self, user_key, level0: self.levels[0].tables().iter(), level: 1 }
    }

    /// All tables with their level, the youngest level first.
    pub fn tables(&self) -> impl Iterator<Item = (usize, &Arc<TableMetadata>)> {
        self.levels().flat_map(|level| level.tables().iter().map(|table| (level.number(), table)))
    }

    /// Number of tables.
    pub fn table_count(&self) -> usize {
        self.levels().map(Level::len).sum()
    }

    /// Sum of all file sizes, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.levels().fold(0, |sum, level| sum.saturating_add(level.size_bytes()))
    }

    /// Checks every invariant over all tables. [`apply`](Self::apply) checks those that its edit can break.
    ///
    /// # Errors
    ///
    /// [`Fatal`](esker_base::ErrorKind::Fatal), with the tables that break it.
    pub fn check_invariants(&self) -> Result<()> {
        self.check().map_err(Error::fatal)
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::new()
    }
}

/// The tree: one line a level, then one line a table.
impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for level in self.levels().filter(|level| !level.is_empty()) {
            write!(f, "L{}: {} tables, {} bytes", level.number(), level.len(), level.size_bytes())?;
            match self.cursor(level.number()) {
                Some(cursor) => writeln!(f, ", cursor \"{}\"", cursor.escape_ascii())?,
                None => writeln!(f)?,
            }
            for table in level.tables() {
                writeln!(f, "  {table}")?;
            }
        }
        Ok(())
    }
}

/// Iterates over the tables that can hold a key; see [`Version::tables_for`].
#[derive(Clone, Debug)]
pub struct TablesFor<'a, 'k> {
    version: &'a Version,
    user_key: &'k [u8],
    level0: std::slice::Iter<'a, Arc<TableMetadata>>,
    level: usize,
}

impl<'a> Iterator for TablesFor<'a, '_> {
    type Item = &'a Arc<TableMetadata>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if let Some(table) = self.level0.by_ref().find(|table| table.covers(self.user_key)) {
            return Some(table);
        }
        while let Some(level) = self.version.levels.get(self.level) {
            self.level += 1;
            if let Some(table) = level.find(self.user_key) {
                return Some(table);
            }
        }
        None
    }
}
