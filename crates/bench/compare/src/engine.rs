//! [`Engine`] and [`Reader`]: the few calls that the workloads are written against, and [`Settings`], what is equal
//! for all engines.

use std::path::PathBuf;

/// Any error: it ends the child process that measures.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What is set alike for every engine that has such a thing.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The directory of the database, for nothing else.
    pub(crate) dir: PathBuf,
    /// Bytes of block or page cache.
    pub(crate) cache: usize,
    /// Bytes of a memtable.
    pub(crate) memtable: usize,
    /// Whether each write is on the device before its call returns; otherwise it is handed to the operating system.
    pub(crate) sync: bool,
}

/// Where [`Engine::settle`] brings the entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settle {
    /// Out of memory into tables of the first level.
    FirstLevel,
    /// Merged into the last level.
    LastLevel,
}

/// What an engine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// A log-structured merge tree.
    Lsm,
    /// A tree of pages in place or copied on write.
    Tree,
}

/// A direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

/// A key-value store under test.
pub(crate) trait Engine: Sized + Send + Sync {
    /// What its name is in tables and flags.
    const NAME: &'static str;
    /// What it is.
    const FAMILY: Family;
    /// What its settings are, beyond those that are equal for all, and where its guarantee differs.
    const NOTE: &'static str;
    /// Reads within one thread. For engines with transactions this is one.
    type Reader<'a>: Reader
    where
        Self: 'a;

    /// Its version.
    fn version() -> String;
    /// Opens or creates the database.
    fn open(settings: &Settings) -> Result<Self>;
    /// One put, a transaction of its own.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;
    /// One delete, a transaction of its own.
    fn delete(&self, key: &[u8]) -> Result<()>;
    /// Several puts, atomically.
    fn batch(&self, entries: &[(&[u8], &[u8])]) -> Result<()>;
    /// A reader of the present state.
    fn reader(&self) -> Result<Self::Reader<'_>>;
    /// Moves the entries, waiting for that. False when the engine has no such state.
    fn settle(&self, to: Settle) -> Result<bool>;
    /// Closes it in good order.
    fn close(self) -> Result<()>;
}

/// The reading side of an engine.
pub(crate) trait Reader {
    /// Calls `read` with the value of a key.
    fn get<R>(&mut self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>>;

    /// Calls `each` with the position and the value of each key that is there. Engines without such a call get one
    /// key after another.
    fn multi_get(&mut self, keys: &[&[u8]], mut each: impl FnMut(usize, &[u8])) -> Result<()> {
        for (at, key) in keys.iter().enumerate() {
            self.get(key, |value| each(at, value))?;
        }
        Ok(())
    }

    /// Calls `each` with up to `limit` entries, from `from` on (a forward scan only) or from the end. Returns how many.
    fn scan(
        &mut self,
        from: Option<&[u8]>,
        direction: Direction,
        limit: usize,
        each: impl FnMut(&[u8], &[u8]),
    ) -> Result<usize>;
}
