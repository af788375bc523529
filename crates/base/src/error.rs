//! The one error type of esker.
//!
//! [`Error`] is one word, cheap to clone (a failed group commit hands the same error to every writer), and says what
//! failed through [`Error::kind`]. `Display` is prose that names file and offset; `source` keeps the cause.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The result of everything that can fail in esker.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with its cause.
///
/// ```
/// # use esker_base as esker;
/// use esker::{Error, ErrorKind};
///
/// let error = Error::corruption("000042.sst", 8192, "block checksum 1a2b, computed 3c4d");
/// assert_eq!(error.to_string(), "000042.sst @ 8192: block checksum 1a2b, computed 3c4d");
/// assert!(matches!(error.kind(), ErrorKind::Corruption { offset: 8192, .. }));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    source: Option<io::Error>,
}

/// The kinds of [`Error`]. More may come.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The operating system refused an operation on a file; `source()` has its error.
    Io {
        /// The operation, for instance `"append"`.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
    },
    /// The device, or a quota, is full.
    NoSpace {
        /// The operation, for instance `"append"`.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
    },
    /// Bytes of a file are not what was written.
    Corruption {
        /// The damaged file.
        file: PathBuf,
        /// Where in the file, in bytes from its start.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },
    /// The directory is open elsewhere, in this process or another one.
    Locked {
        /// The lock file.
        path: PathBuf,
        /// The process that holds it, where it is known.
        pid: Option<u32>,
    },
    /// The database was closed.
    Closed,
    /// A background error has latched the database read-only: writes are refused, reads go on. Also what a call gets
    /// that waited for a flush or a compaction which failed; the database need not be latched then.
    ReadOnly {
        /// The first error, which caused the latch.
        cause: Error,
    },
    /// The write may or may not be there after a restart: the log failed while it was being written or synced.
    WriteUnknown {
        /// What failed.
        cause: Error,
    },
    /// A key, a value or a batch is beyond its limit. Nothing was written.
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// An argument or option that can't be used. Nothing was done.
    InvalidArgument {
        /// What is wrong with it.
        what: String,
    },
    /// A file of a newer or foreign format.
    UnsupportedFormat {
        /// The file.
        file: PathBuf,
        /// What this build does not know.
        what: String,
    },
    /// A conditional write met a newer version. Nothing returns it yet: there are no conditional writes.
    Conflict,
    /// The write would have had to wait for background work, and was told not to. Nothing was written.
    WouldStall {
        /// What lags.
        cause: &'static str,
        /// How long the wait would be, as far as can be told.
        expected_wait: Duration,
    },
    /// An invariant of the engine is broken: close the database and open it again.
    Fatal {
        /// The invariant.
        what: String,
    },
}

impl Error {
    /// An error of this kind, without a deeper cause.
    #[cold]
    pub fn new(kind: ErrorKind) -> Self {
        Error(Arc::new(Inner { kind, source: None }))
    }

    /// An operating-system error. A full device becomes [`ErrorKind::NoSpace`].
    #[cold]
    pub fn io(op: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        let path = path.as_ref().to_path_buf();
        let full = matches!(
            source.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        let kind = if full { ErrorKind::NoSpace { op, path } } else { ErrorKind::Io { op, path } };
        Error(Arc::new(Inner { kind, source: Some(source) }))
    }

    /// Damage in a file.
    #[cold]
    pub fn corruption(file: impl AsRef<Path>, offset: u64, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corruption { file: file.as_ref().to_path_buf(), offset, what: what.into() })
    }

    /// A bad argument or option.
    #[cold]
    pub fn invalid_argument(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument { what: what.into() })
    }

    /// A file of a newer or foreign format.
    #[cold]
    pub fn unsupported(file: impl AsRef<Path>, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::UnsupportedFormat { file: file.as_ref().to_path_buf(), what: what.into() })
    }

    /// Something beyond its limit.
    #[cold]
    pub fn too_large(what: &'static str, size: u64, limit: u64) -> Self {
        Self::new(ErrorKind::TooLarge { what, size, limit })
    }

    /// A broken invariant of the engine itself.
    #[cold]
    pub fn fatal(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Fatal { what: what.into() })
    }

    /// The database was closed.
    #[cold]
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed)
    }

    /// A refused write, with the error that latched the database.
    #[cold]
    pub fn read_only(cause: Error) -> Self {
        Self::new(ErrorKind::ReadOnly { cause })
    }

    /// A write of unknown outcome, with what failed.
    #[cold]
    pub fn write_unknown(cause: Error) -> Self {
        Self::new(ErrorKind::WriteUnknown { cause })
    }

    /// A write that was told not to wait.
    #[cold]
    pub fn would_stall(cause: &'static str, expected_wait: Duration) -> Self {
        Self::new(ErrorKind::WouldStall { cause, expected_wait })
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Whether this is damage in a file.
    pub fn is_corruption(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corruption { .. })
    }

    /// Whether the device or a quota is full. False for a [`ReadOnly`](ErrorKind::ReadOnly) or
    /// [`WriteUnknown`](ErrorKind::WriteUnknown) with such a cause: ask its `cause`.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind(), ErrorKind::NoSpace { .. })
    }

    /// The kind of the operating system's error behind this one, if there is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        self.0.source.as_ref().map(io::Error::kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ErrorKind::Io { op, path } => write!(f, "{op} {}", path.display())?,
            ErrorKind::NoSpace { op, path } => write!(f, "{op} {}: no space left", path.display())?,
            ErrorKind::Corruption { file, offset, what } => {
                write!(f, "{} @ {offset}: {what}", file.display())?
            }
            ErrorKind::Locked { path, pid } => {
                write!(f, "{} is locked: the database is open elsewhere", path.display())?;
                if let Some(pid) = pid {
                    write!(f, " (process {pid})")?;
                }
            }
            ErrorKind::Closed => f.write_str("the database is closed")?,
            ErrorKind::ReadOnly { cause } => write!(f, "the database is read-only after an error: {cause}")?,
            ErrorKind::WriteUnknown { cause } => {
                write!(f, "the outcome of the write is unknown until the next open: {cause}")?;
            }
            ErrorKind::TooLarge { what, size, limit } => {
                write!(f, "{what} of {size} bytes is beyond the limit of {limit}")?;
            }
            ErrorKind::InvalidArgument { what } => write!(f, "invalid argument: {what}")?,
            ErrorKind::UnsupportedFormat { file, what } => {
                write!(f, "{}: unsupported format: {what}", file.display())?;
            }
            ErrorKind::Conflict => f.write_str("the key was changed meanwhile")?,
            ErrorKind::WouldStall { cause, expected_wait } => {
                write!(f, "the write would have had to wait, for about {expected_wait:?}: {cause}")?;
            }
            ErrorKind::Fatal { what } => write!(f, "broken invariant, reopen the database: {what}")?,
        }
        match &self.0.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, \"{self}\")", self.0.kind)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0.kind {
            ErrorKind::ReadOnly { cause } | ErrorKind::WriteUnknown { cause } => Some(cause),
            _ => self.0.source.as_ref().map(|source| source as &(dyn std::error::Error + 'static)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn full_devices_are_told_from_other_io_errors() {
        let full = Error::io("append", "000001.wal", io::Error::from(io::ErrorKind::StorageFull));
        assert!(full.is_no_space());
        let other = Error::io("append", "000001.wal", io::Error::from(io::ErrorKind::PermissionDenied));
        assert!(!other.is_no_space());
        assert_eq!(other.io_kind(), Some(io::ErrorKind::PermissionDenied));
        assert!(other.to_string().starts_with("append 000001.wal: "));
    }

    #[test]
    fn causes_are_kept() {
        let cause = Error::corruption("MANIFEST-000001", 7, "bad record");
        let error = Error::read_only(cause);
        assert_eq!(error.source().unwrap().to_string(), "MANIFEST-000001 @ 7: bad record");
        assert!(error.to_string().contains("bad record"));
    }

    #[test]
    fn an_error_is_one_word() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }
}
