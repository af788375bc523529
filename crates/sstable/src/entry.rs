//! One entry of a block: the codec that data blocks and index blocks share.
//!
//! ```text
//! u8   lengths  high nibble: shared key bytes; low nibble: the other key bytes
//! u8   meta     bits 0-2: kind; bit 3: value as long as the base's; bits 4-7: sequence step
//! [varint  shared bytes            when the high nibble is 15]
//! [varint  unshared bytes - 14     when the low nibble is 14]
//! [varint  value length            when bit 3 is 0]
//! [zigzag  sequence - base's       when the step is 15]
//! unshared bytes of the user key
//! value
//! ```
//!
//! Everything is relative to a *base*: the entry before; for a restart, the first entry of the block; for the first
//! entry, [`Entry::ZERO`]. A restart can so be decoded with the first entry alone, and yet repeats nothing of it.
//!
//! - High nibble 0 to 14: as many shared bytes as the base has, minus 7, plus the nibble. Long common prefixes cost
//!   nothing, since neighbours share about as much as their neighbours do.
//! - Low nibble 0 to 13: that many unshared bytes. 15: the whole key is as long as the base's.
//! - Step 0 to 14: the base's sequence plus that. Where all sequences are zero they cost nothing.
//!
//! The number of shared bytes is always the largest possible one. Searches rely on it; `verify` checks it.

use esker_base::coding::{Reader, put_varint, unzigzag, varint_len, zigzag};
use esker_base::{InternalKeyRef, MAX_KEY_LEN, MAX_SEQUENCE, MAX_VALUE_LEN, SequenceNumber, ValueKind};

/// The nibble that stands for "as many shared bytes as the base".
const SHARED_MIDDLE: usize = 7;
/// High nibble: the number of shared bytes follows.
const SHARED_FOLLOWS: usize = 15;
/// Low nibble: the number of unshared bytes follows, less this.
const UNSHARED_FOLLOWS: usize = 14;
/// Low nibble: the key is as long as the base's.
const SAME_KEY_LEN: usize = 15;
/// Bit of the meta byte: the value is as long as the base's.
const SAME_VALUE_LEN: u8 = 1 << 3;
/// Step: the signed difference follows.
const STEP_FOLLOWS: u64 = 15;

/// Fewest bytes of an entry.
pub(crate) const MIN_ENTRY_LEN: usize = 2;

/// A decoded entry: where its parts are in the block, and the state that the next one builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Number of the write.
    pub seq: SequenceNumber,
    /// Offset in the block of the unshared bytes of the key; the value follows them.
    pub suffix_at: u32,
    /// Leading bytes of the key that are the base's.
    pub shared: u32,
    /// Bytes of the whole key.
    pub key_len: u32,
    /// Bytes of the value.
    pub value_len: u32,
    /// What the entry does.
    pub kind: ValueKind,
}

impl Entry {
    /// The base of the first entry of a block.
    pub(crate) const ZERO: Entry =
        Entry { seq: 0, suffix_at: 0, shared: 0, key_len: 0, value_len: 0, kind: ValueKind::Delete };

    /// Offset of the value.
    #[inline]
    pub(crate) fn value_at(&self) -> usize {
        (self.suffix_at + (self.key_len - self.shared)) as usize
    }

    /// Offset of the following entry.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.value_at() + self.value_len as usize
    }

    /// The unshared bytes of the key in `entries`, the bytes this entry was decoded from.
    #[inline]
    pub(crate) fn suffix<'a>(&self, entries: &'a [u8]) -> &'a [u8] {
        &entries[self.suffix_at as usize..self.value_at()]
    }

    /// The value in `entries`, the bytes this entry was decoded from.
    #[inline]
    pub(crate) fn value<'a>(&self, entries: &'a [u8]) -> &'a [u8] {
        &entries[self.value_at()..self.end()]
    }
}

/// Appends an entry that shares `shared` bytes with its base, and returns the state for the next one.
#[inline]
pub(crate) fn encode(
    out: &mut Vec<u8>,
    base: &Entry,
    shared: usize,
    key: InternalKeyRef<'_>,
    value: &[u8],
) -> Entry {
    let key_len = key.user_key.len();
    let unshared = key_len - shared;
    let shared_code = (shared + SHARED_MIDDLE).wrapping_sub(base.shared as usize).min(SHARED_FOLLOWS);
    let unshared_code =
        if key_len == base.key_len as usize { SAME_KEY_LEN } else { unshared.min(UNSHARED_FOLLOWS) };
    let same_value_len = value.len() == base.value_len as usize;
    let step = key.seq.wrapping_sub(base.seq).min(STEP_FOLLOWS);

    let meta = key.kind as u8 | if same_value_len { SAME_VALUE_LEN } else { 0 } | (step as u8) << 4;
    out.extend_from_slice(&[(shared_code << 4 | unshared_code) as u8, meta]);
    if shared_code == SHARED_FOLLOWS {
        put_varint(out, shared as u64);
    }
    if unshared_code == UNSHARED_FOLLOWS {
        put_varint(out, (unshared - UNSHARED_FOLLOWS) as u64);
    }
    if !same_value_len {
        put_varint(out, value.len() as u64);
    }
    if step == STEP_FOLLOWS {
        put_varint(out, zigzag(key.seq.wrapping_sub(base.seq) as i64));
    }
    let suffix_at = out.len();
    out.extend_from_slice(&key.user_key[shared..]);
    out.extend_from_slice(value);
    Entry {
        seq: key.seq,
        suffix_at: suffix_at as u32,
        shared: shared as u32,
        key_len: key_len as u32,
        value_len: value.len() as u32,
        kind: key.kind,
    }
}

/// Bytes that sequence number and kind take in the header of an entry whose base has the sequence number `base`.
pub(crate) fn seq_len(base: SequenceNumber, seq: SequenceNumber) -> usize {
    let step = seq.wrapping_sub(base);
    1 + if step < STEP_FOLLOWS { 0 } else { varint_len(zigzag(step as i64)) }
}

/// Decodes the entry at `at`; `None` when no encoder wrote these bytes. All parts of the result lie in `entries`,
/// which must be shorter than 2 GiB.
#[inline(always)]
pub(crate) fn decode(entries: &[u8], at: usize, base: &Entry) -> Option<Entry> {
    let &[lengths, meta] = entries.get(at..)?.first_chunk::<2>()?;
    let mut pos = at + 2;
    let shared_code = usize::from(lengths >> 4);
    let unshared_code = usize::from(lengths & 15);
    let step = u64::from(meta >> 4);

    let shared = if shared_code == SHARED_FOLLOWS {
        usize::try_from(varint(entries, &mut pos)?).ok()?
    } else {
        (base.shared as usize + shared_code).wrapping_sub(SHARED_MIDDLE)
    };
    if shared > base.key_len as usize {
        return None;
    }
    let key_len = match unshared_code {
        SAME_KEY_LEN => base.key_len as usize,
        UNSHARED_FOLLOWS => {
            let more = varint(entries, &mut pos)?;
            if more > MAX_KEY_LEN as u64 {
                return None;
            }
            shared + UNSHARED_FOLLOWS + more as usize
        }
        unshared => shared + unshared,
    };
    let value_len = if meta & SAME_VALUE_LEN != 0 {
        base.value_len as usize
    } else {
        usize::try_from(varint(entries, &mut pos)?).ok()?
    };
    let seq = if step == STEP_FOLLOWS {
        base.seq.wrapping_add_signed(unzigzag(varint(entries, &mut pos)?))
    } else {
        base.seq + step
    };
    let kind = kind(meta & 7)?;
    if key_len > MAX_KEY_LEN || value_len > MAX_VALUE_LEN || seq > MAX_SEQUENCE {
        return None;
    }
    if pos + (key_len - shared) + value_len > entries.len() {
        return None;
    }
    Some(Entry {
        seq,
        suffix_at: pos as u32,
        shared: shared as u32,
        key_len: key_len as u32,
        value_len: value_len as u32,
        kind,
    })
}

/// Whether an entry is behind `last`, its base, whose key is `key`.
///
/// With as many shared bytes as there are, one byte decides about the order.
#[inline(always)]
pub(crate) fn ascends(key: &[u8], last: &Entry, suffix: &[u8], entry: &Entry) -> bool {
    match (key.get(entry.shared as usize), suffix.first()) {
        (Some(before), Some(here)) => before < here,
        (None, Some(_)) => true,
        (Some(_), None) => false,
        (None, None) => (entry.seq, entry.kind) < (last.seq, last.kind),
    }
}

/// Kinds that this build writes. A table with others has a feature bit that this build does not know.
#[inline(always)]
fn kind(number: u8) -> Option<ValueKind> {
    match number {
        0 => Some(ValueKind::Delete),
        1 => Some(ValueKind::Put),
        _ => None,
    }
}

/// A varint at `pos`, which moves behind it.
#[inline(always)]
fn varint(entries: &[u8], pos: &mut usize) -> Option<u64> {
    match entries.get(*pos) {
        Some(byte) if *byte < 0x80 => {
            *pos += 1;
            Some(u64::from(*byte))
        }
        _ => long_varint(entries, pos),
    }
}

#[inline(never)]
fn long_varint(entries: &[u8], pos: &mut usize) -> Option<u64> {
    let mut reader = Reader::new(entries.get(*pos..)?);
    let value = reader.varint()?;
    *pos += reader.position();
    Some(value)
}
