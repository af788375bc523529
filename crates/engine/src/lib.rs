//! An embedded LSM-tree storage engine: ordered byte-string keys to byte-string values, in one directory, in one
//! process.
//!
//! ```
//! let dir = tempfile::tempdir()?;
//! let db = esker::Db::open(dir.path())?;
//! db.put("ridge", "laid down by meltwater")?;
//! assert_eq!(db.get("ridge")?.unwrap(), "laid down by meltwater");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Start with [`Db`]; its page states what survives a crash. [`Options`] are the settings, [`Components`] what a database
//! runs on: a file system, a clock, a scheduler.

mod background;
mod bounds;
mod checkpoint;
mod close;
mod commit;
mod compact;
mod components;
mod core;
mod cursor;
mod db;
mod db_write;
mod event;
mod flow;
mod flush;
mod handle;
mod health;
mod iter;
mod memory;
mod metrics;
mod multi_get;
mod obsolete;
mod options;
mod rate;
mod read;
mod recovery;
mod registry;
mod repair;
mod replayed;
mod resume;
mod room;
mod scanned;
pub mod scheduler;
mod sink;
mod snapshot;
mod sources;
mod stall;
mod state;
mod super_version;
mod table_cache;
mod throttle;
mod ticket;
mod turn_lock;
mod verify;
mod version_set;
mod write;
mod write_options;

pub use components::Components;
pub use cursor::{Batch, Cursor};
pub use db::Db;
pub use esker_base::{
    BatchOp, BatchReader, Clock, Error, ErrorKind, KeyspaceId, ManualClock, Result, SequenceNumber, Slice,
    SystemClock, ValueKind, WriteBatch,
};
pub use esker_sstable::BlockCache;
pub use event::{Event, EventListener, RecoveryReport};
pub use health::DbState;
pub use iter::DbIterator;
pub use memory::MemoryUsage;
pub use metrics::{LevelStats, StallStats, Stats};
pub use options::{Background, Compression, LogSink, Options, RecoveryMode};
pub use repair::RepairReport;
pub use snapshot::Snapshot;
pub use ticket::Commit;
pub use verify::VerifyReport;
pub use write_options::{Durability, WriteOptions};

/// File systems to run a database on.
pub mod vfs {
    pub use esker_vfs::*;
}

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
