//! The framing of one record: bytes in, bytes out, no I/O. The writer, the reader and the dump share it.
//!
//! ```text
//!  0        4       6      7         8
//!  | crc-32 | check | type | segment | length | first  | count  | distance | payload |
//!  | u32    | u16   | u8   | u8      | varint | varint | varint | varint   | bytes   |
//!                                             |<----------- length ---------------->|
//! ```
//!
//! `segment` is the low byte of the segment number; `distance` is `first` minus the durable sequence, at least 1.
//!
//! Both checks start with a context that is not in the record: magic, store id, segment number (8 bytes each, the id 16)
//! and the record's offset in the file. `crc` is the CRC-32 of context, `type`, `segment`, `length` and all that
//! follows; `check` is the low half of the CRC-32 of context, `type`, `segment` and `length`. So a record of another
//! store, segment or place never matches, and a length is known to be right before that many bytes are read: which also
//! keeps a search for records in arbitrary bytes linear.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

use std::fmt;
use std::ops::Range;

use esker_base::coding::{Reader, put_varint, varint_len};
use esker_base::{Checksum, Error, FileNumber, MAX_SEQUENCE, Result, SequenceNumber, planted};

use crate::header::LogKind;

/// Largest `length` of a record: its numbers and its payload, in bytes.
pub const MAX_BODY_LEN: u64 = 0xffff_ffff;

/// Bytes before the length.
const PREFIX_LEN: usize = 8;
/// Most bytes up to and with the length.
pub(crate) const MAX_HEAD_LEN: usize = 8 + 5;
/// Fewest bytes of a record.
pub(crate) const MIN_RECORD_LEN: usize = 8 + 1 + 3;

/// What a record holds. The numbers are on disk and never change; others are reserved and refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordType {
    /// One batch; the payload is its encoded operations.
    Batch = 1,
    /// Sequence numbers that are not in the log; no payload.
    Skip = 2,
    /// One edit of the manifest.
    Edit = 3,
}

impl RecordType {
    /// The number on disk.
    pub fn number(self) -> u8 {
        match self {
            RecordType::Batch => 1,
            RecordType::Skip => 2,
            RecordType::Edit => 3,
        }
    }

    /// The type with this number in a log of this kind.
    pub fn from_number(kind: LogKind, number: u8) -> Option<Self> {
        match (kind, number) {
            (LogKind::Wal, 1) => Some(RecordType::Batch),
            (LogKind::Wal, 2) => Some(RecordType::Skip),
            (LogKind::Manifest, 3) => Some(RecordType::Edit),
            _ => None,
        }
    }
}

/// The numbers of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordFields {
    /// What the record holds.
    pub record_type: RecordType,
    /// Its first sequence number (or its edit number), at least 1.
    pub first: SequenceNumber,
    /// How many sequence numbers it covers, at least 1.
    pub count: u64,
    /// The highest sequence number that was known to be synced when the record was written; below `first`.
    pub durable: SequenceNumber,
}

impl RecordFields {
    /// The last sequence number that the record covers.
    #[inline]
    pub fn last(&self) -> SequenceNumber {
        self.first.saturating_add(self.count.saturating_sub(1))
    }

    /// Whether a writer may write these numbers, and a reader believe them.
    #[inline]
    fn fault(&self, payload_len: usize) -> Option<Fault> {
        if self.first == 0 || self.count == 0 {
            return Some(Fault::Field("sequence number or count is 0"));
        }
        if self.first > MAX_SEQUENCE || self.count > MAX_SEQUENCE || self.last() > MAX_SEQUENCE {
            return Some(Fault::Field("the last sequence number is beyond the limit"));
        }
        if self.durable >= self.first {
            return Some(Fault::Field("the durable sequence number is not below the first one"));
        }
        match self.record_type {
            RecordType::Skip if payload_len != 0 => Some(Fault::Field("a skip record has a payload")),
            RecordType::Edit if self.count != 1 => {
                Some(Fault::Field("an edit record covers several numbers"))
            }
            _ => None,
        }
    }
}

/// A record as read. The payload lives in the reader's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where it starts in the file.
    pub offset: u64,
    /// Its length in the file in bytes, framing included.
    pub len: u64,
    /// Its numbers.
    pub fields: RecordFields,
    /// What it carries.
    pub payload: &'a [u8],
}

/// The context of a segment's checksums: which log, store and segment.
#[derive(Clone, Debug)]
pub struct RecordContext {
    kind: LogKind,
    segment: u8,
    checksum: Checksum,
}

impl RecordContext {
    /// The context of the segment `number` of a log.
    pub fn new(kind: LogKind, store_id: u128, number: FileNumber) -> Self {
        let [segment, ..] = number.0.to_le_bytes();
        let checksum = Checksum::new(&[])
            .bytes(&kind.magic())
            .bytes(&store_id.to_le_bytes())
            .bytes(&number.0.to_le_bytes());
        RecordContext { kind, segment, checksum }
    }

    /// What the log holds.
    pub fn kind(&self) -> LogKind {
        self.kind
    }

    /// The checksum over context, offset and the bytes from `type` to `length`.
    #[inline]
    fn start(&self, offset: u64, type_to_length: &[u8]) -> Checksum {
        self.checksum.clone().bytes(&offset.to_le_bytes()).bytes(type_to_length)
    }
}

/// The `check` of a record.
#[inline]
fn head_check(start: &Checksum) -> u16 {
    let [a, b, ..] = start.clone().finish().to_le_bytes();
    u16::from_le_bytes([a, b])
}

/// Appends a record that will stand at `offset` of its file; returns its length in bytes.
///
/// # Errors
///
/// `TooLarge` when the payload does not fit, `Fatal` when the numbers break the rules of [`RecordFields`]. Nothing is
/// appended then.
pub fn encode_record(
    out: &mut Vec<u8>,
    context: &RecordContext,
    offset: u64,
    fields: &RecordFields,
    payload: &[u8],
) -> Result<usize> {
    if let Some(fault) = fields.fault(payload.len()) {
        return Err(Error::fatal(format!("a log record that can't be read back: {fault}: {fields:?}")));
    }
    let distance = fields.first.saturating_sub(fields.durable);
    let numbers_len = varint_len(fields.first)
        .saturating_add(varint_len(fields.count))
        .saturating_add(varint_len(distance));
    let body_len = u64::try_from(payload.len().saturating_add(numbers_len)).unwrap_or(u64::MAX);
    if body_len > MAX_BODY_LEN {
        return Err(Error::too_large("a log record", body_len, MAX_BODY_LEN));
    }

    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, fields.record_type.number(), context.segment]);
    put_varint(out, body_len);
    let body = out.len();
    put_varint(out, fields.first);
    put_varint(out, fields.count);
    put_varint(out, distance);
    out.extend_from_slice(payload);
    seal(out.split_at_mut(start).1, context, offset, body.saturating_sub(start));
    Ok(out.len().saturating_sub(start))
}

/// Fills in the two checks of a record whose body starts at `body`.
#[inline]
fn seal(record: &mut [u8], context: &RecordContext, offset: u64, body: usize) {
    let Some((checks, covered)) = record.split_first_chunk_mut::<6>() else { return };
    let (head, body) = covered.split_at(body.saturating_sub(checks.len()));
    let start = context.start(offset, head);
    let [a, b] = head_check(&start).to_le_bytes();
    let [c, d, e, f] = start.bytes(body).finish().to_le_bytes();
    *checks = [c, d, e, f, a, b];
}

/// The part of a record up to its length, checked.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    crc: u32,
    type_number: u8,
    /// Of what stands before the body.
    pub(crate) checksum: Checksum,
    /// Where the body is in the record.
    pub(crate) body: Range<usize>,
}

impl Head {
    /// What is wrong with a record whose checksum is `computed`.
    pub(crate) fn fault(&self, context: &RecordContext, computed: u32) -> Option<Fault> {
        let differs = self.crc != computed && !ignores_checksums(context);
        differs.then_some(Fault::Checksum { stored: self.crc, computed })
    }
}

/// Reads the head of a record at `offset` from `bytes`, of which there are at least [`MAX_HEAD_LEN`], or all that are
/// left. `left` is the number of bytes from `offset` to the end of the segment.
pub(crate) fn decode_head(
    context: &RecordContext,
    offset: u64,
    bytes: &[u8],
    left: u64,
) -> Result<Head, Fault> {
    let cut = Fault::PastEnd { left };
    let mut reader = Reader::new(bytes);
    let (Some(crc), Some(stored)) = (reader.u32(), reader.u16()) else { return Err(cut) };
    let (Some(type_number), Some(segment)) = (reader.u8(), reader.u8()) else { return Err(cut) };
    if segment != context.segment {
        return Err(Fault::Segment { stored: segment, expected: context.segment });
    }
    let Some(body_len) = reader.varint() else {
        return Err(if reader.is_empty() { cut } else { Fault::Length });
    };
    let body_at = reader.position();
    let head = bytes.get(6..body_at).unwrap_or_default();
    let checksum = context.start(offset, head);
    let computed = head_check(&checksum);
    if stored != computed && !ignores_checksums(context) {
        return Err(Fault::HeadCheck { stored, computed });
    }
    let body_left = left.saturating_sub(u64::try_from(body_at).unwrap_or(u64::MAX));
    if body_len > body_left {
        return Err(cut);
    }
    let end = usize::try_from(body_len).ok().and_then(|len| body_at.checked_add(len));
    let Some(end) = end.filter(|_| body_len <= MAX_BODY_LEN) else {
        return Err(Fault::Field("the length is beyond the limit"));
    };
    Ok(Head { crc, type_number, checksum, body: body_at..end })
}

/// Whether a fault is planted under which checksums are not compared.
#[inline]
fn ignores_checksums(context: &RecordContext) -> bool {
    match context.kind {
        LogKind::Wal => planted::is(planted::Fault::LogChecksumIgnored),
        LogKind::Manifest => planted::is(planted::Fault::TornEditAccepted),
    }
}

/// Reads the numbers of a record from all its bytes; returns them and where the payload is.
pub(crate) fn decode_body(
    context: &RecordContext,
    head: Head,
    record: &[u8],
) -> Result<(RecordFields, Range<usize>), Fault> {
    let Some(body) = record.get(head.body.clone()) else {
        return Err(Fault::Field("the record is cut short"));
    };
    if let Some(fault) = head.fault(context, head.checksum.clone().bytes(body).finish()) {
        return Err(fault);
    }
    let Some(record_type) = RecordType::from_number(context.kind, head.type_number) else {
        return Err(Fault::UnknownType(head.type_number));
    };
    let mut reader = Reader::new(body);
    let (Some(first), Some(count), Some(distance)) = (reader.varint(), reader.varint(), reader.varint())
    else {
        return Err(Fault::Field("a number is cut short"));
    };
    if distance == 0 || distance > first {
        return Err(Fault::Field("the durable sequence number is not below the first one"));
    }
    let fields = RecordFields { record_type, first, count, durable: first.saturating_sub(distance) };
    match fields.fault(reader.remaining()) {
        Some(fault) => Err(fault),
        None => Ok((fields, head.body.end.saturating_sub(reader.remaining())..head.body.end)),
    }
}

/// Whether a record could start with these bytes; cheap, and right about all that do.
#[inline]
pub(crate) fn may_start(context: &RecordContext, bytes: &[u8]) -> bool {
    matches!(bytes.first_chunk::<PREFIX_LEN>(), Some([_, _, _, _, _, _, kind, segment])
        if *kind != 0 && *segment == context.segment)
}

/// Why there is no record at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A record that goes on past the end of the segment: what a crash leaves most often.
    PastEnd {
        /// Bytes from its offset to the end.
        left: u64,
    },
    /// Zeros, with other bytes after them.
    Zeros {
        /// Where the other bytes begin.
        until: u64,
    },
    /// The record is of another segment, or none.
    Segment {
        /// Low byte of the segment number in the file.
        stored: u8,
        /// Low byte of the segment's number.
        expected: u8,
    },
    /// The check of the bytes up to the length does not match.
    HeadCheck {
        /// In the file.
        stored: u16,
        /// Of the bytes in the file.
        computed: u16,
    },
    /// The length is no varint.
    Length,
    /// The checksum of the record does not match.
    Checksum {
        /// In the file.
        stored: u32,
        /// Of the bytes in the file.
        computed: u32,
    },
    /// All checks match, but a field can't be what a writer wrote.
    Field(&'static str),
    /// All checks match, but this build does not know the type, or it does not belong in this kind of log.
    UnknownType(u8),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::PastEnd { left } => write!(f, "the record goes on past the {left} bytes that are left"),
            Fault::Zeros { until } => write!(f, "zeros up to offset {until}, then other bytes"),
            Fault::Segment { stored, expected } => {
                write!(f, "record of segment ..{stored:02x}, this is ..{expected:02x}")
            }
            Fault::HeadCheck { stored, computed } => {
                write!(f, "record head check {stored:04x}, computed {computed:04x}")
            }
            Fault::Length => f.write_str("the length of the record is no number"),
            Fault::Checksum { stored, computed } => {
                write!(f, "record checksum {stored:08x}, computed {computed:08x}")
            }
            Fault::Field(what) => write!(f, "log record: {what}"),
            Fault::UnknownType(number) => write!(f, "log record type {number} is unknown"),
        }
    }
}
