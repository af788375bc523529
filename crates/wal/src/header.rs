//! The first 64 bytes of a segment: which log it belongs to, its number, and how its predecessor ended.
//!
//! ```text
//!  0        8         12          28        36              44              52                60       64
//!  | magic  | version | store id  | number  | previous      | previous      | previous        | crc-32 |
//!  | 8      | u32     | u128      | u64     | number u64    | length u64    | last seq. u64   | u32    |
//! ```
//!
//! All little-endian; the CRC covers bytes 0 to 59. A header of a later version keeps its size and the places of magic,
//! version and CRC, so that a newer format is told from a damaged one.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

use std::fmt;
use std::path::Path;

use esker_base::coding::Reader;
use esker_base::{Error, FileNumber, MAX_SEQUENCE, Result, SequenceNumber, checksum};

/// Length of a segment header in bytes. The first record starts here.
pub const HEADER_LEN: u64 = 64;

/// The version of the format that this build writes, and the only one that it reads.
pub const VERSION: u32 = 1;

const HEADER_BYTES: usize = 64;
const CRC_AT: usize = 60;

/// What a log holds. Each kind has its own magic, so one is never read as the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LogKind {
    /// The write-ahead log: batches and skips, numbered by sequence.
    Wal,
    /// The manifest: edits, numbered by edit number.
    Manifest,
}

impl LogKind {
    /// The first eight bytes of a file of this kind.
    pub fn magic(self) -> [u8; 8] {
        match self {
            LogKind::Wal => *b"ESKERWAL",
            LogKind::Manifest => *b"ESKERMAN",
        }
    }

    fn from_magic(magic: [u8; 8]) -> Option<Self> {
        [LogKind::Wal, LogKind::Manifest].into_iter().find(|kind| kind.magic() == magic)
    }
}

/// Where a segment ends, as its successor's header states it (rules W1 and W11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentEnd {
    /// Number of the segment; 0 when there is none.
    pub number: FileNumber,
    /// Length of its good part in bytes, header included. What follows in the file, if anything, doesn't count.
    pub length: u64,
    /// The last sequence number (or edit number) in it or before it.
    pub last_sequence: SequenceNumber,
}

impl SegmentEnd {
    /// The end of a log without a segment that numbered its records up to `last_sequence` (0 for a new one).
    pub fn none(last_sequence: SequenceNumber) -> Self {
        SegmentEnd { number: FileNumber(0), length: 0, last_sequence }
    }
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// What the log holds.
    pub kind: LogKind,
    /// The store that the segment belongs to.
    pub store_id: u128,
    /// The segment's own number, as in its file name. Never 0.
    pub number: FileNumber,
    /// How the log ended before this segment. The first record has `previous.last_sequence + 1`.
    pub previous: SegmentEnd,
}

impl SegmentHeader {
    /// The header as bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&self.kind.magic());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.store_id.to_le_bytes());
        for number in
            [self.number.0, self.previous.number.0, self.previous.length, self.previous.last_sequence]
        {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let crc = checksum(&[], &out);
        out.extend_from_slice(&crc.to_le_bytes());
        out.try_into().expect("8 + 4 + 16 + 4 * 8 + 4 = 64")
    }

    /// Reads a header from the first bytes of a file, at most 64 of them. The checksum is looked at before all else,
    /// so a flipped bit is never taken for a newer version.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFault> {
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return Err(HeaderFault::Short { len: bytes.len() });
        };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(HeaderFault::Zeros);
        }
        let (covered, crc) = bytes.split_at(CRC_AT);
        let stored = Reader::new(crc).u32().unwrap_or_default();
        let computed = checksum(&[], covered);
        if stored != computed {
            return Err(HeaderFault::Checksum { stored, computed });
        }
        Self::decode_fields(covered).unwrap_or(Err(HeaderFault::Field("the header is cut short")))
    }

    fn decode_fields(covered: &[u8]) -> Option<Result<Self, HeaderFault>> {
        let mut reader = Reader::new(covered);
        let magic = reader.array::<8>()?;
        let version = reader.u32()?;
        let Some(kind) = LogKind::from_magic(magic) else {
            return Some(Err(HeaderFault::Magic(magic)));
        };
        if version != VERSION {
            return Some(Err(HeaderFault::Version(version)));
        }
        let header = SegmentHeader {
            kind,
            store_id: reader.u128()?,
            number: FileNumber(reader.u64()?),
            previous: SegmentEnd {
                number: FileNumber(reader.u64()?),
                length: reader.u64()?,
                last_sequence: reader.u64()?,
            },
        };
        Some(header.check())
    }

    fn check(self) -> Result<Self, HeaderFault> {
        let previous = &self.previous;
        if self.number.0 == 0 || previous.number >= self.number {
            return Err(HeaderFault::Field("segment numbers do not grow"));
        }
        if (previous.number.0 == 0) != (previous.length == 0) {
            return Err(HeaderFault::Field("number and length of the previous segment do not fit"));
        }
        if previous.number.0 != 0 && previous.length < HEADER_LEN {
            return Err(HeaderFault::Field("the previous segment ends inside its header"));
        }
        if previous.last_sequence > MAX_SEQUENCE {
            return Err(HeaderFault::Field("the last sequence number is beyond the limit"));
        }
        Ok(self)
    }
}

/// Why the first bytes of a file are no segment header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The file is shorter than a header.
    Short {
        /// Bytes that are there.
        len: usize,
    },
    /// All 64 bytes are zero.
    Zeros,
    /// The checksum does not match.
    Checksum {
        /// In the file.
        stored: u32,
        /// Of the bytes in the file.
        computed: u32,
    },
    /// The checksum matches but the magic is another one.
    Magic([u8; 8]),
    /// The checksum matches but this build doesn't know the version.
    Version(u32),
    /// A field can't be what a writer wrote.
    Field(&'static str),
    /// The header is intact but belongs to another file: another kind, store or number.
    Foreign(&'static str),
}

impl HeaderFault {
    /// The fault as an error about `file`: `UnsupportedFormat` for another version, else `Corruption`.
    #[cold]
    pub fn into_error(self, file: &Path) -> Error {
        match self {
            HeaderFault::Version(_) => Error::unsupported(file, self.to_string()),
            _ => Error::corruption(file, 0, self.to_string()),
        }
    }
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HeaderFault::Short { len } => write!(f, "{len} bytes where the segment header has {HEADER_LEN}"),
            HeaderFault::Zeros => f.write_str("the segment header is all zeros"),
            HeaderFault::Checksum { stored, computed } => {
                write!(f, "segment header checksum {stored:08x}, computed {computed:08x}")
            }
            HeaderFault::Magic(magic) => write!(f, "magic \"{}\" is not a log's", magic.escape_ascii()),
            HeaderFault::Version(version) => {
                write!(f, "log format version {version}, this build knows {VERSION}")
            }
            HeaderFault::Field(what) => write!(f, "segment header: {what}"),
            HeaderFault::Foreign(what) => write!(f, "the segment header is another file's: {what}"),
        }
    }
}
