//! The write-ahead log of esker: record framing, writer, reader, recovery, and a dump for tools.
//!
//! A log is a row of *segments*: files with a 64-byte [`SegmentHeader`] and then records, back to back. The manifest is
//! such a file too, with edits in place of batches. The bytes are described in `docs/format/wal.md`.
//!
//! | module | what it is |
//! |---|---|
//! | `record` | the framing of one record: bytes in, bytes out, no I/O |
//! | `header` | the first 64 bytes of a segment |
//! | `writer` | [`LogWriter`]: appends and syncs one segment |
//! | `sync` | [`SyncPoint`]: makes a segment durable while its writer goes on |
//! | `reader` | [`LogReader`]: reads one segment and says exactly how it ended |
//! | `recovery` | [`recover`]: replays a row of segments, and tells a torn tail from damage |
//! | `dump` | [`dump_segment`]: everything in a segment, damaged or not, for the inspection tool |

mod dump;
mod extent;
mod header;
mod reader;
mod record;
mod recovery;
mod sync;
#[cfg(test)]
mod tests;
mod writer;

pub use dump::{DumpItem, SegmentSummary, dump_segment};
pub use header::{HEADER_LEN, HeaderFault, LogKind, SegmentEnd, SegmentHeader, VERSION};
pub use reader::{LogEnd, LogReader};
pub use record::{Fault, MAX_BODY_LEN, Record, RecordContext, RecordFields, RecordType, encode_record};
pub use recovery::{Dropped, LogReplay, LogSegment, RecoverOptions, RecoveryMode, recover};
pub use sync::SyncPoint;
pub use writer::{LogWriter, Mark};
