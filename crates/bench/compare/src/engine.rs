//! [`Engine`] and [`Reader`]: the few calls that the workloads are written against, [`Settings`], what is equal for all
//! engines, and [`walk`], the loop of their scans.

use esker_bench::load::Inside;
use std::path::PathBuf;

/// Any error: it ends the child process that measures.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A result with any error.
pub(crate) type Result<T> = std::result::Result<T, Failure>;

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

/// A direction of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Reverse,
}

/// A key, and its new value; without one it is deleted.
pub(crate) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// A key-value store under test.
pub(crate) trait Engine: Sized + Send + Sync {
    /// What its name is in tables and flags.
    const NAME: &'static str;
    /// Whether it is a log-structured merge tree; else it is a tree of pages.
    const LSM: bool;
    /// What its settings are, beyond those that are equal for all, and where its guarantee differs.
    const NOTE: &'static str;
    /// Reads within one thread. For engines with transactions this is one.
    type Reader<'a>: Reader
    where
        Self: 'a;

    /// Its version.
    fn version() -> String {
        crate::versions::locked(Self::NAME)
    }
    /// Opens or creates the database.
    fn open(settings: &Settings) -> Result<Self>;
    /// Several changes, atomically.
    fn write(&self, changes: &[Change<'_>]) -> Result<()>;
    /// One put, a transaction of its own.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(&[(key, Some(value))])
    }
    /// One delete, a transaction of its own.
    fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(&[(key, None)])
    }
    /// A reader of the present state.
    fn reader(&self) -> Result<Self::Reader<'_>>;
    /// Moves the entries, waiting for that. False when the engine has no such state.
    fn settle(&self, to: Settle) -> Result<bool>;
    /// What it tells of its inside.
    fn inside(&self) -> Inside {
        Inside::default()
    }
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

/// Gives `each` up to `limit` entries in a direction, and counts them: the scan of an engine with an iterator.
#[cfg(any(feature = "fjall", feature = "redb", feature = "sled"))]
pub(crate) fn walk<I: DoubleEndedIterator>(
    entries: I,
    direction: Direction,
    limit: usize,
    each: impl FnMut(I::Item) -> Result<()>,
) -> Result<usize> {
    match direction {
        Direction::Forward => walk_forward(entries, limit, each),
        Direction::Reverse => walk_forward(entries.rev(), limit, each),
    }
}

/// The same for an iterator of one direction.
#[cfg(any(feature = "fjall", feature = "redb", feature = "sled", feature = "lmdb"))]
pub(crate) fn walk_forward<I: Iterator>(
    entries: I,
    limit: usize,
    mut each: impl FnMut(I::Item) -> Result<()>,
) -> Result<usize> {
    let mut count = 0;
    for entry in entries.take(limit) {
        each(entry)?;
        count += 1;
    }
    Ok(count)
}
