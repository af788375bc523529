//! [`Event`]: what a database reports while it works.

use crate::Error;
use esker_base::SequenceNumber;
use std::fmt::Debug;
use std::time::Duration;

/// Something that happened. More kinds may come.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// The database was opened.
    Opened {
        /// Batches replayed from the log.
        replayed_batches: u64,
        /// Bytes of a torn, never acknowledged end of the log that were dropped.
        dropped_bytes: u64,
        /// The newest write that is there.
        last_sequence: SequenceNumber,
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
    /// Something failed in the background, or the log did. See [`DbState`](crate::DbState) for what it means.
    BackgroundError {
        /// The error.
        error: Error,
        /// Whether writes are refused from now on.
        latched: bool,
    },
}

/// Receives events. Called on the thread that caused the event, with no lock held; must return soon and not panic.
pub trait EventListener: Send + Sync + Debug {
    /// Something happened.
    fn on_event(&self, event: &Event);
}
