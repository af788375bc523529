//! Keys, batches, iterators, codecs and errors that the layers of esker agree on.
//!
//! A type is here only if two or more crates must agree on its bytes or its meaning. Nothing here does I/O.

mod batch;
mod checksum;
mod clock;
pub mod coding;
mod error;
mod file;
mod hash;
pub mod iter;
mod key;
mod outline;
pub mod planted;
pub mod points;
mod slice;
pub mod sync;

pub use batch::{BatchOp, BatchReader, KeyspaceId, WriteBatch};
pub use checksum::{Checksum, checksum};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, ErrorKind, Result};
pub use file::{FileKind, FileNumber, parse_file_name};
pub use hash::{SplitMix64, key_hash};
pub use iter::{ConcatIterator, ConcatSource, EntryBatch, InternalIterator, MergingIterator, VecIterator};
pub use key::{
    InternalKey, InternalKeyRef, LAST_SEQUENCE, Lookup, MAX_KEY_LEN, MAX_SEQUENCE, MAX_VALUE_LEN,
    SequenceNumber, ValueKind, common_prefix_len, key_head,
};
pub use outline::{OUTLINE_LEN, Outline};
pub use slice::Slice;
