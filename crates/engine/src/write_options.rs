//! [`WriteOptions`]: the settings of one write, and how far it gets.

/// How far a write has got when its call returns `Ok`.
///
/// | level | after a crash of the process | after a loss of power |
/// |---|---|---|
/// | `Memory` | a prefix of all writes | a prefix |
/// | `Buffered` (the default) | there | a prefix: if a write is there, all earlier ones are |
/// | `Sync` | there | there |
///
/// What is lost is always a suffix of the history: never a hole, never half a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Durability {
    /// In esker's own buffer. It goes to the operating system when 64 KiB have gathered, after about half a second
    /// (with background threads), with the next write of a higher level, with [`Db::sync`], [`Db::flush`] and [`Db::close`].
    ///
    /// [`Db::sync`]: crate::Db::sync
    /// [`Db::flush`]: crate::Db::flush
    /// [`Db::close`]: crate::Db::close
    Memory,
    /// Handed to the operating system: survives `kill -9`.
    #[default]
    Buffered,
    /// On the device (`fdatasync`), together with everything before it.
    Sync,
}

/// Settings of one write.
///
/// ```
/// use esker::{Durability, WriteOptions};
///
/// let durable = WriteOptions::sync();
/// assert_eq!(durable, WriteOptions::new().with_durability(Durability::Sync));
/// let bulk = WriteOptions::wal(false);
/// # let _ = bulk;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteOptions {
    pub(crate) durability: Option<Durability>,
    pub(crate) wal: bool,
    pub(crate) no_stall: bool,
}

impl WriteOptions {
    /// The database's default durability, with the log.
    pub const fn new() -> Self {
        WriteOptions { durability: None, wal: true, no_stall: false }
    }

    /// [`Durability::Sync`].
    pub const fn sync() -> Self {
        Self::new().with_durability(Durability::Sync)
    }

    /// With or without the write-ahead log. A write without it survives a crash only once it was flushed to a table
    /// ([`Db::flush`], [`Db::close`], or a full memtable): for bulk loads that can be repeated.
    ///
    /// [`Db::flush`]: crate::Db::flush
    /// [`Db::close`]: crate::Db::close
    pub const fn wal(on: bool) -> Self {
        Self::new().with_wal(on)
    }

    /// A write that fails with [`WouldStall`](crate::ErrorKind::WouldStall) where it would be delayed, or have to wait, since
    /// background work lags. Nothing was written then. It does not wait for other writers' delays either; it does wait for
    /// the log, and with [`Durability::Sync`] for the sync.
    ///
    /// ```
    /// # use esker::{Db, ErrorKind, WriteOptions};
    /// # let db = Db::in_memory()?;
    /// match db.put_with(b"k", b"v", &WriteOptions::no_stall(true)) {
    ///     Err(error) if matches!(error.kind(), ErrorKind::WouldStall { .. }) => { /* drop it, or try later */ }
    ///     other => other?,
    /// }
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub const fn no_stall(on: bool) -> Self {
        Self::new().with_no_stall(on)
    }

    /// The same with this durability.
    pub const fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = Some(durability);
        self
    }

    /// The same with or without [`no_stall`](Self::no_stall).
    pub const fn with_no_stall(mut self, on: bool) -> Self {
        self.no_stall = on;
        self
    }

    /// The same with or without the log.
    pub const fn with_wal(mut self, on: bool) -> Self {
        self.wal = on;
        self
    }
}

impl Default for WriteOptions {
    fn default() -> Self {
        Self::new()
    }
}
