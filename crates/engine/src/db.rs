//! [`Db`]: the handle that users hold.

use crate::bounds::{Bounds, bounds_of, prefix_bounds};
use crate::core::Core;
use crate::cursor::Cursor;
use crate::event::RecoveryReport;
use crate::handle::Handle;
use crate::health::DbState;
use crate::iter::DbIterator;
use crate::metrics::Stats;
use crate::repair::RepairReport;
use crate::verify::VerifyReport;
use crate::{Components, Error, Options, Result, Snapshot};
use esker_base::Slice;
use std::ops::{Bound, RangeBounds};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An open database: ordered byte-string keys to byte-string values.
///
/// # Durability
///
/// A write returns `Ok` when it has the durability that it asked for. By default that is [`Durability::Buffered`]: it
/// was handed to the operating system, so it survives the death of the process; a loss of power may cost the newest
/// writes, but always a suffix of them, never a hole and never half a batch. [`WriteOptions::sync`] makes a write, and
/// all before it, survive that too; so does [`Db::sync`] for all writes so far.
///
/// Readers see a write as soon as it is in the log, so before its sync has ended: other writers go on meanwhile. A reader
/// that acts on what it has read, and must not see it lost with the power, calls [`Db::sync`] first.
///
/// # Handles
///
/// Handles are cheap to clone, and may be used from many threads. The database is closed when the last handle,
/// snapshot, cursor, iterator and [`Commit`](crate::Commit) is dropped, or by [`close`](Db::close).
///
/// # Limits
///
/// Keys have 0 to 65,535 bytes, values up to 1 GiB, batches up to 4 GiB. What is larger is refused with
/// [`TooLarge`](crate::ErrorKind::TooLarge) before anything is written.
///
/// ```
/// use esker::{Db, WriteBatch, WriteOptions};
///
/// let dir = tempfile::tempdir()?;
/// let db = Db::open(dir.path())?;
/// db.put(b"u:1", b"ann")?;
/// db.put_with(b"u:2", b"bob", &WriteOptions::sync())?;
/// assert_eq!(db.get(b"u:1")?.as_deref(), Some(&b"ann"[..]));
///
/// let mut batch = WriteBatch::new();
/// batch.put(b"u:3", b"cy").delete(b"u:1");
/// db.write(batch)?;
///
/// let names: Vec<_> = db.prefix(b"u:").collect::<Result<_, _>>()?;
/// assert_eq!(names.len(), 2);
/// db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Durability::Buffered`]: crate::Durability::Buffered
/// [`WriteOptions::sync`]: crate::WriteOptions::sync
#[derive(Clone, Debug)]
pub struct Db {
    pub(crate) handle: Arc<Handle>,
}

impl Db {
    /// Opens the database in the directory `path` with [`Options::default`], creating it, and the directories above it,
    /// when it is missing.
    ///
    /// # Errors
    ///
    /// As [`open_with`](Db::open_with).
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open(path)
    }

    /// Opens the database in the directory `path`, on the given components. An open writes to the directory, so it needs
    /// the right to. Files in it whose names are none of Esker's are left alone.
    ///
    /// # Errors
    ///
    /// [`Locked`](crate::ErrorKind::Locked) when it is open already, here or in another process; `InvalidArgument` for an
    /// option beyond its limits, a path that is a file, and a database that is missing or there against the options;
    /// `Corruption`, with file and offset, when what was promised can't be read; `UnsupportedFormat` for a newer format;
    /// `Io`; `NoSpace` when there is no room for a new log, or for the tables that the old one is written to. Nothing that
    /// an earlier open could read is lost by a failed one.
    pub fn open_with(path: impl AsRef<Path>, options: Options, components: Components) -> Result<Db> {
        let core = Core::open(path.as_ref().to_path_buf(), options, components)?;
        Ok(Db { handle: Arc::new(Handle(core)) })
    }

    /// A new database on a memory file system of its own: the same engine, gone when it is dropped. So is a
    /// [`checkpoint`](Self::checkpoint) of it, which is made there too.
    ///
    /// # Errors
    ///
    /// None are expected.
    pub fn in_memory() -> Result<Db> {
        Options::new().in_memory()
    }

    /// The directory of the database.
    pub fn path(&self) -> PathBuf {
        self.handle.dir.clone()
    }

    /// The value of a key.
    ///
    /// # Errors
    ///
    /// `Corruption` or `Io` when a file that may hold the newest version can't be read; `Closed`.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.handle.get(key.as_ref(), None)
    }

    /// Calls `read` with the value of a key, if it has one, and returns what that returns. Copies and allocates nothing,
    /// and pins nothing beyond the call.
    ///
    /// # Errors
    ///
    /// As [`get`](Db::get).
    pub fn get_with<R>(&self, key: impl AsRef<[u8]>, read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.handle.get_with(key.as_ref(), None, read)
    }

    /// Whether a key has a value.
    ///
    /// # Errors
    ///
    /// As [`get`](Db::get).
    pub fn contains_key(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.handle.get_with(key.as_ref(), None, |_| ())?.is_some())
    }

    /// The values of several keys, as of one moment, in the order of `keys`. A key that can't be read has its own
    /// error; the others have their answers.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Slice>>> {
        self.handle.multi_get(keys, None)
    }

    /// Lends the values of several keys, as of one moment: calls `each` once for each key with its number in `keys` and
    /// its answer, in any order. Copies and allocates nothing, and pins nothing beyond the call; keys whose blocks are
    /// in memory are looked up several at a time, and cost less than as many calls of [`get_with`](Db::get_with). A key
    /// that can't be read has its own error, as [`get`](Db::get) gives it; the others have their answers.
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// db.put("ice", "melts")?;
    /// db.put("sand", "blows")?;
    /// let keys = ["ice", "rock", "sand"];
    /// let mut lengths = [None; 3];
    /// db.multi_get_with(&keys, |number, answer| {
    ///     lengths[number] = answer.expect("the tables are sound").map(|value| value.len());
    /// });
    /// assert_eq!(lengths, [Some(5), None, Some(5)]);
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn multi_get_with<K: AsRef<[u8]>>(&self, keys: &[K], each: impl FnMut(usize, Result<Option<&[u8]>>)) {
        self.handle.multi_get_with(keys, None, each);
    }

    /// The entries whose keys lie in `range`, ascending; [`rev`](Iterator::rev) for descending. An inverted range is
    /// empty. The iterator shows the present moment, whatever is written later.
    ///
    /// The bounds are values of one type: `&str`, `&[u8]`, `Vec<u8>`, `String`. Literals like `b"a"` are arrays: write
    /// `&b"a"[..]`, or `"a"`. Where the compiler can't tell which type it is, say it:
    ///
    /// ```
    /// # let db = esker::Db::in_memory()?;
    /// # for key in ["a", "b", "c"] { db.put(key, "")?; }
    /// assert_eq!(db.range("a".."c").count(), 2);
    /// assert_eq!(db.range(&b"a"[..]..&b"c"[..]).count(), 2);
    /// let first = String::from("b");
    /// assert_eq!(db.range(first.as_str()..).count(), 2);
    /// assert_eq!(db.range::<String, _>(&first..).count(), 2);        // references to bounds
    /// assert_eq!(db.range::<&[u8], _>(..).count(), 3);               // no bounds; or `iter`
    /// let behind = (std::ops::Bound::Excluded("a"), std::ops::Bound::Unbounded);
    /// assert_eq!(db.range::<&str, _>(behind).count(), 2);
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> DbIterator {
        DbIterator::new(&self.handle, bounds_of(&range), None)
    }

    /// The entries whose keys start with `prefix`, ascending.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> DbIterator {
        DbIterator::new(&self.handle, Some(prefix_bounds(prefix.as_ref())), None)
    }

    /// All entries, ascending.
    pub fn iter(&self) -> DbIterator {
        DbIterator::new(&self.handle, Some(Bounds::ALL), None)
    }

    /// The entry with the smallest key; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    #[doc(alias = "first")]
    pub fn first_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next().transpose()
    }

    /// The entry with the largest key; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    #[doc(alias = "last")]
    pub fn last_key_value(&self) -> Result<Option<(Slice, Slice)>> {
        self.iter().next_back().transpose()
    }

    /// A cursor over all entries, not positioned yet.
    ///
    /// # Errors
    ///
    /// `Closed`, and the error of a table that can't be opened.
    pub fn cursor(&self) -> Result<Cursor> {
        Cursor::new(&self.handle, Bounds::ALL, None)
    }

    /// The database as of now, for as long as the snapshot is held. Cheap; what it shows is kept on disk until it is
    /// dropped.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.handle)
    }

    /// Writes all that is in memory to tables, and waits for that. Everything so far is durable then.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) with the cause when the flush fails; `Closed`.
    pub fn flush(&self) -> Result<()> {
        self.handle.flush()
    }

    /// Flushes, then merges all tables with keys in `range` down to the last level, where deleted and overwritten
    /// entries that no snapshot needs are dropped; waits for that. An inverted range does nothing.
    ///
    /// # Errors
    ///
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly) with the cause when background work fails; `Closed`.
    pub fn compact_range<K: AsRef<[u8]>, R: RangeBounds<K>>(&self, range: R) -> Result<()> {
        let Some(bounds) = bounds_of(&range) else { return self.handle.check_open() };
        // The compaction's bounds are inclusive: a neighbour more does no harm.
        let own = |bound: Bound<Vec<u8>>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        };
        self.handle.compact_range(own(bounds.lower), own(bounds.upper))
    }

    /// Makes all earlier writes durable.
    ///
    /// # Errors
    ///
    /// [`WriteUnknown`](crate::ErrorKind::WriteUnknown) when the sync fails; the database is read-only then.
    pub fn sync(&self) -> Result<()> {
        self.handle.sync()
    }

    /// What the database holds and has done.
    pub fn stats(&self) -> Stats {
        self.handle.stats()
    }

    /// Reads everything and checks it: checksums, order, level invariants, filters, and the files in the directory.
    /// Waits for nothing; writes may go on.
    ///
    /// # Errors
    ///
    /// `Closed`. What is found to be wrong is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.handle.verify(&mut |_, _| {})
    }

    /// [`verify`](Db::verify), with a call of `progress` after each table: bytes checked so far, and bytes in all.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn verify_with(&self, mut progress: impl FnMut(u64, u64)) -> Result<VerifyReport> {
        self.handle.verify(&mut progress)
    }

    /// What the open found in the log and the manifest.
    pub fn recovery_report(&self) -> RecoveryReport {
        self.handle.recovery.clone()
    }

    /// Makes a database that does not open anew from what can be read of it: all tables and log records that are intact.
    /// The old files are moved to a directory `lost-NNNNNN` in it; nothing is deleted. Open it afterwards as usual.
    ///
    /// A last resort: what was lost is lost, older values of lost entries may show, and without an intact manifest deleted
    /// keys may be back. The report says which.
    ///
    /// # Errors
    ///
    /// [`Locked`](crate::ErrorKind::Locked) when it is open; `InvalidArgument` when there is nothing of a database;
    /// `Corruption` when nothing can be read; `Io`. The database is as it was then, or can be repaired again.
    pub fn repair(path: impl AsRef<Path>) -> Result<RepairReport> {
        let options = Options::new();
        let components = Components::for_options(&options);
        Self::repair_with(path, &options, &components)
    }

    /// [`repair`](Db::repair) on the given components; `options` are those of the tables that are written.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn repair_with(
        path: impl AsRef<Path>,
        options: &Options,
        components: &Components,
    ) -> Result<RepairReport> {
        crate::repair::repair(path.as_ref(), options, components)
    }

    /// The background error that has made the database read-only, if there was one.
    pub fn background_error(&self) -> Option<Error> {
        self.handle.failure()
    }

    /// Whether the database takes writes, and what is wrong if it does not.
    pub fn state(&self) -> DbState {
        self.handle.db_state()
    }

    /// After an error of the log or the manifest: starts a new log and, if need be, a new manifest, writes everything in
    /// memory to new tables, and takes writes again. Also lets failed background work be tried at once. Batches whose
    /// outcome was unknown are settled by it: those that reads show are durable then, the others are not there. Does nothing
    /// when nothing is wrong.
    ///
    /// After a full disk background threads try this by themselves, every second at first. With
    /// [`Background::Inline`](crate::Background::Inline) there are none, so it is for the caller to try.
    ///
    /// # Errors
    ///
    /// What still fails: the database stays as it was. [`ReadOnly`](crate::ErrorKind::ReadOnly) after a
    /// [`Fatal`](crate::ErrorKind::Fatal) error, which only reopening helps.
    pub fn resume(&self) -> Result<()> {
        self.handle.resume()
    }

    /// Makes a second database in the directory `path`, with all that was written before the call: a backup that costs
    /// little, since it shares the table files with this one by hard links, and that may be opened beside it, written to,
    /// moved or removed. Where links are refused, as on another file system, the tables are copied. Flushes what is in
    /// memory; reads and writes go on meanwhile. Directories above `path` that are missing are made.
    ///
    /// When it returns, the copy is durable. Until then it does not open as a database that holds anything: its `CURRENT`
    /// comes last. After a crash, remove what is left of it.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` when `path` is there, and is no empty directory; `Locked` when another checkpoint is being made
    /// there; `ReadOnly` and `NoSpace` as for a [`flush`](Self::flush), and the errors of the new files, which are then
    /// removed again, but for the directory and its lock.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (data, backup) = (dir.path().join("data"), dir.path().join("backup"));
    /// let db = esker::Db::open(data)?;
    /// db.put(b"k", b"v")?;
    /// db.checkpoint(&backup)?;
    /// db.put(b"k", b"w")?;
    /// assert_eq!(esker::Db::open(&backup)?.get(b"k")?.as_deref(), Some(&b"v"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "backup")]
    pub fn checkpoint(&self, path: impl AsRef<std::path::Path>) -> Result<()> {
        self.handle.checkpoint(path.as_ref())
    }

    /// Flushes what is in memory, closes the files and releases the lock. Other handles, and cursors and iterators that
    /// are still alive, get [`Closed`](crate::ErrorKind::Closed) from then on. The time is bounded by one flush and one
    /// step of a compaction.
    ///
    /// Dropping the last handle instead leaves what is in memory in the log: the next open replays it.
    ///
    /// # Errors
    ///
    /// What went wrong at the last moment, or the cause of an earlier latch. The database is closed in any case, and
    /// opens again as after a crash.
    pub fn close(self) -> Result<()> {
        self.handle.shut_down(true)
    }
}
