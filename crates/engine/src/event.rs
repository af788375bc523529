//! [`Event`]: what a database reports while it works.

use crate::Error;
use esker_base::SequenceNumber;
use std::fmt::{self, Debug};
use std::path::PathBuf;
use std::time::Duration;

/// Something that happened. More kinds may come.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The database was opened.
    Opened {
        /// What the open found in the log.
        report: RecoveryReport,
    },
    /// Memtables were written to a level-0 table.
    Flushed {
        /// Entries written.
        entries: u64,
        /// Bytes written.
        bytes: u64,
        /// How long it took.
        took: Duration,
    },
    /// Tables were merged, or moved, from one level to another.
    Compacted {
        /// Where the inputs came from.
        from_level: usize,
        /// Where the outputs went.
        to_level: usize,
        /// Bytes read.
        bytes_in: u64,
        /// Bytes written; 0 for a move.
        bytes_out: u64,
        /// Whether tables were only moved.
        moved: bool,
        /// How long it took.
        took: Duration,
    },
    /// A writer had to wait.
    Stalled {
        /// Why.
        cause: &'static str,
        /// How long.
        took: Duration,
    },
    /// There is too little free space: writes that add something are refused. See
    /// [`Options::min_free_space`](crate::Options::min_free_space).
    SpaceLow {
        /// Bytes that are free.
        free: u64,
        /// Bytes that must be free for the write that was refused.
        needed: u64,
    },
    /// There is enough free space again.
    SpaceBack {
        /// Bytes that are free.
        free: u64,
    },
    /// Something failed in the background, or the log did. See [`DbState`](crate::DbState) for what it means.
    BackgroundError {
        /// The error.
        error: Error,
        /// Whether writes are refused from now on.
        latched: bool,
    },
}

/// What an open found in the log and the manifest. See [`Db::recovery_report`](crate::Db::recovery_report).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Batches that were replayed from the log.
    pub replayed_batches: u64,
    /// Bytes of log that were replayed.
    pub replayed_bytes: u64,
    /// Bytes of log that were left out: an end that a crash tore off, or after a point-in-time recovery the rest of the
    /// log.
    pub dropped_bytes: u64,
    /// The file from which on the log was left out, the offset in it in bytes, and what is there.
    pub dropped_from: Option<(PathBuf, u64, String)>,
    /// The newest write that was promised to be durable and is lost. Only after a point-in-time recovery.
    pub promised: Option<SequenceNumber>,
    /// Where a point-in-time recovery has put what it left out.
    pub lost_files: Vec<PathBuf>,
    /// Whether a torn last edit of the manifest was left out. No leftover file is deleted in such an open.
    pub manifest_tail_dropped: bool,
    /// The newest write that is there.
    pub last_sequence: SequenceNumber,
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecoveryReport { replayed_batches, replayed_bytes, last_sequence, .. } = self;
        write!(
            f,
            "{replayed_batches} batches ({replayed_bytes} bytes) of the log replayed, up to sequence {last_sequence}"
        )?;
        if let Some((file, offset, what)) = &self.dropped_from {
            write!(
                f,
                "; {} bytes left out from {} @ {offset} on: {what}",
                self.dropped_bytes,
                file.display()
            )?;
        }
        if let Some(promised) = self.promised {
            write!(f, "; sequence {promised} was promised and is lost")?;
        }
        if self.manifest_tail_dropped {
            f.write_str("; a torn last edit of the manifest was left out")?;
        }
        self.lost_files.iter().try_for_each(|file| write!(f, "; kept as {}", file.display()))
    }
}

/// Receives events. Called on the thread that caused the event; must return soon and not panic. It may read the database
/// and call [`Db::stats`](crate::Db::stats) and [`Db::state`](crate::Db::state), but what writes, flushes, compacts, resumes
/// or closes would wait for the very thread that it is called on: hand that to another one.
///
/// ```
/// use esker::{Components, Db, Event, EventListener, Options};
/// use std::sync::Arc;
///
/// #[derive(Debug)]
/// struct Log;
///
/// impl EventListener for Log {
///     fn on_event(&self, event: &Event) {
///         if let Event::BackgroundError { error, latched } = event {
///             eprintln!("esker: {error}{}", if *latched { "; writes are refused" } else { "" });
///         }
///     }
/// }
///
/// let dir = tempfile::tempdir()?;
/// let options = Options::new();
/// let components = Components { listener: Some(Arc::new(Log)), ..Components::for_options(&options) };
/// let db = Db::open_with(dir.path(), options, components)?;
/// # drop(db);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait EventListener: Send + Sync + Debug {
    /// Something happened.
    fn on_event(&self, event: &Event);
}
