//! [`WriteBatch`]: operations that take effect together, in their encoded form.
//!
//! The encoding is the payload of a log record, and memtable entries point into it:
//!
//! ```text
//! operation := tag key-length:varint key [value-length:varint value]
//! tag       := bits 0-2 kind, bit 3 set when keyspace:varint follows the tag, bits 4-7 zero
//! ```
//!
//! The value is there for every kind but `Delete` and `SingleDelete`. The operation at position `i` of a batch has the
//! sequence number of the batch plus `i`, so a later operation on a key wins.

use crate::coding::{Reader, put_bytes, put_varint};
use crate::key::{MAX_KEY_LEN, MAX_VALUE_LEN};
use crate::{Error, Result, ValueKind};
use std::ops::Range;

/// The number of a keyspace; the default one is 0.
pub type KeyspaceId = u32;

/// Largest batch, encoded, in bytes: it must fit the 32-bit offsets of memtable entries.
const MAX_BATCH_BYTES: usize = u32::MAX as usize - 64;
/// Largest number of operations in a batch.
const MAX_BATCH_OPS: u32 = 1 << 31;
const KIND_MASK: u8 = 0x07;
const HAS_KEYSPACE: u8 = 0x08;

/// Operations that take effect together or not at all. Later operations on a key win.
///
/// A key or value beyond its limit is remembered, and refused with [`TooLarge`](crate::ErrorKind::TooLarge) when the
/// batch is written: nothing of the batch is then applied.
///
/// ```
/// # use esker_base as esker;
/// use esker::WriteBatch;
///
/// let mut batch = WriteBatch::new();
/// batch.put(b"u:3", b"cy").delete(b"u:1");
/// assert_eq!(batch.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
pub struct WriteBatch {
    bytes: Vec<u8>,
    count: u32,
    /// Set by an operation on another keyspace than 0, or of another kind than put and delete.
    special: bool,
    refused: Option<Error>,
}

impl WriteBatch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty batch with room for `bytes` encoded bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        WriteBatch { bytes: Vec::with_capacity(bytes), ..Self::default() }
    }

    /// Adds a put.
    #[doc(alias = "insert")]
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.push(0, ValueKind::Put, key.as_ref(), value.as_ref());
        self
    }

    /// Adds a delete. The key need not exist.
    #[doc(alias = "remove")]
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.push(0, ValueKind::Delete, key.as_ref(), &[]);
        self
    }

    /// Moves all operations of `other` to the end of this one, and leaves it empty. What was refused there is refused here,
    /// and so is a batch that gets too large.
    ///
    /// ```
    /// # use esker_base as esker;
    /// let (mut batch, mut more) = (esker::WriteBatch::new(), esker::WriteBatch::new());
    /// batch.put(b"a", b"1");
    /// more.put(b"a", b"2").delete(b"b");
    /// batch.append(&mut more);
    /// assert_eq!((batch.len(), more.len()), (3, 0));
    /// ```
    pub fn append(&mut self, other: &mut WriteBatch) -> &mut Self {
        let bytes = self.bytes.len().saturating_add(other.bytes.len());
        let count = self.count.checked_add(other.count).filter(|count| *count <= MAX_BATCH_OPS);
        match count.filter(|_| bytes <= MAX_BATCH_BYTES) {
            Some(count) => {
                self.bytes.append(&mut other.bytes);
                self.count = count;
                self.special |= other.special;
            }
            None => {
                let error = Error::too_large("a batch", bytes as u64, MAX_BATCH_BYTES as u64);
                self.refused.get_or_insert(error);
            }
        }
        if let Some(error) = other.refused.take() {
            self.refused.get_or_insert(error);
        }
        other.clear();
        self
    }

    /// Bytes of the encoded operations: what the batch takes in the log, but for its frame. At most 4 GiB.
    pub fn byte_size(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an operation on a keyspace: for the layers below the public interface, which has one keyspace.
    #[doc(hidden)]
    #[inline]
    pub fn push(&mut self, keyspace: KeyspaceId, kind: ValueKind, key: &[u8], value: &[u8]) {
        if let Some(error) = self.refusal(key, value) {
            self.refused.get_or_insert(error);
            return;
        }
        self.special |= keyspace != 0 || !kind.is_supported();
        if keyspace == 0 {
            self.bytes.push(kind as u8);
        } else {
            self.bytes.push(kind as u8 | HAS_KEYSPACE);
            put_varint(&mut self.bytes, u64::from(keyspace));
        }
        put_bytes(&mut self.bytes, key);
        if has_value(kind) {
            put_bytes(&mut self.bytes, value);
        }
        self.count += 1;
    }

    #[inline]
    fn refusal(&self, key: &[u8], value: &[u8]) -> Option<Error> {
        if key.len() > MAX_KEY_LEN {
            return Some(Error::too_large("a key", key.len() as u64, MAX_KEY_LEN as u64));
        }
        if value.len() > MAX_VALUE_LEN {
            return Some(Error::too_large("a value", value.len() as u64, MAX_VALUE_LEN as u64));
        }
        let bytes = self.bytes.len() + key.len() + value.len() + 32;
        if bytes > MAX_BATCH_BYTES || self.count >= MAX_BATCH_OPS {
            return Some(Error::too_large("a batch", bytes as u64, MAX_BATCH_BYTES as u64));
        }
        None
    }

    /// Number of operations.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is no operation.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Removes all operations and keeps the buffer.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
        self.special = false;
        self.refused = None;
    }

    /// The encoded operations.
    pub fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether all operations are puts and deletes in the default keyspace.
    pub fn is_plain(&self) -> bool {
        !self.special
    }

    /// The first operation that was refused, as an error.
    pub fn check(&self) -> Result<()> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// The operations, in order.
    pub fn iter(&self) -> BatchReader<'_> {
        BatchReader::new(&self.bytes)
    }
}

/// One operation of an encoded batch. The ranges are offsets into the encoded bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOp {
    /// The keyspace it is for.
    pub keyspace: KeyspaceId,
    /// What it does.
    pub kind: ValueKind,
    /// Where the key is.
    pub key: Range<usize>,
    /// Where the value is; empty for kinds without one.
    pub value: Range<usize>,
}

/// Reads the operations of an encoded batch, which may come from a damaged file: every error is an item, then the end.
#[derive(Clone, Debug)]
pub struct BatchReader<'a> {
    encoded: &'a [u8],
    /// Where the next operation starts.
    at: usize,
}

impl<'a> BatchReader<'a> {
    /// Reads from encoded operations.
    #[inline]
    pub fn new(encoded: &'a [u8]) -> Self {
        BatchReader { encoded, at: 0 }
    }

    /// Reads the operation at the present place and goes behind it; `None` when it can't be decoded.
    #[inline]
    fn read(&mut self) -> Option<BatchOp> {
        let mut at = self.at;
        let tag = *self.encoded.get(at)?;
        at += 1;
        if tag & !(KIND_MASK | HAS_KEYSPACE) != 0 {
            return None;
        }
        let kind = ValueKind::from_u8(tag & KIND_MASK)?;
        let keyspace = if tag & HAS_KEYSPACE == 0 { 0 } else { u32::try_from(self.number(&mut at)?).ok()? };
        let key = self.range(&mut at, MAX_KEY_LEN)?;
        let value = if has_value(kind) { self.range(&mut at, MAX_VALUE_LEN)? } else { at..at };
        self.at = at;
        Some(BatchOp { keyspace, kind, key, value })
    }

    /// Reads a length of at most `max` and goes behind as many bytes. Most lengths take a byte.
    #[inline]
    fn range(&self, at: &mut usize, max: usize) -> Option<Range<usize>> {
        let len = match self.encoded.get(*at) {
            Some(&len) if len < 0x80 => {
                *at += 1;
                usize::from(len)
            }
            _ => usize::try_from(self.number(at)?).ok()?,
        };
        let start = *at;
        if len > max || len > self.encoded.len() - start {
            return None;
        }
        *at = start + len;
        Some(start..*at)
    }

    #[inline(never)]
    fn number(&self, at: &mut usize) -> Option<u64> {
        let mut reader = Reader::new(self.encoded.get(*at..)?);
        let number = reader.varint()?;
        *at += reader.position();
        Some(number)
    }
}

impl Iterator for BatchReader<'_> {
    /// `Err` holds the offset of an operation that can't be decoded.
    type Item = std::result::Result<BatchOp, usize>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.encoded.len() {
            return None;
        }
        let start = self.at;
        let op = self.read();
        if op.is_none() {
            self.at = self.encoded.len();
        }
        Some(op.ok_or(start))
    }
}

#[inline]
fn has_value(kind: ValueKind) -> bool {
    !matches!(kind, ValueKind::Delete | ValueKind::SingleDelete)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn operations_round_trip_in_order() {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").delete(b"").put(b"", b"");
        batch.push(7, ValueKind::Put, b"k", &[9; 300]);
        let encoded = batch.encoded();
        let ops: Vec<_> = batch
            .iter()
            .map(|op| op.unwrap())
            .map(|op| (op.keyspace, op.kind, &encoded[op.key], &encoded[op.value]))
            .collect();
        let long = [9; 300];
        assert_eq!(
            ops,
            [
                (0, ValueKind::Put, &b"a"[..], &b"1"[..]),
                (0, ValueKind::Delete, b"", b""),
                (0, ValueKind::Put, b"", b""),
                (7, ValueKind::Put, b"k", &long),
            ]
        );
    }

    #[test]
    fn limits_are_kept_until_the_write() {
        let mut batch = WriteBatch::new();
        batch.put(vec![0; MAX_KEY_LEN], b"fits");
        batch.check().unwrap();
        batch.put(vec![0; MAX_KEY_LEN + 1], b"does not").put(b"later", b"is fine");
        let error = batch.check().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooLarge { size: 65_536, limit: 65_535, .. }), "{error}");
        batch.clear();
        batch.check().unwrap();
        assert!(batch.is_empty());
    }

    /// CO05: a truncated body, and lengths beyond it, end in an error and never in a panic.
    #[test]
    fn co05_every_truncation_is_told() {
        let mut batch = WriteBatch::new();
        batch.put(b"key-one", b"value-one").delete(b"key-two");
        let whole: Vec<_> = batch.iter().collect();
        for len in 0..batch.encoded().len() {
            let ops: Vec<_> = BatchReader::new(&batch.encoded()[..len]).collect();
            assert!(ops.len() <= whole.len());
            let complete = ops.iter().filter(|op| op.is_ok()).count();
            assert_eq!(ops[..complete], whole[..complete]);
        }
        for bytes in
            [&[0x10][..], &[0x07, 0], &[0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]]
        {
            assert_eq!(BatchReader::new(bytes).collect::<Vec<_>>(), [Err(0)]);
        }
    }
}
