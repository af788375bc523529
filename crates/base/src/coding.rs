//! Integers as bytes, and a checked reader over bytes that nobody vouches for.
//!
//! Everything on disk is a little-endian integer or a varint (7 bits a byte, low bits first, at most 10 bytes).
//! [`Reader`] never panics and never reads past its end: it returns `None`, and the caller says which file and offset
//! that was.

/// Longest varint of a `u64`, in bytes.
pub const MAX_VARINT_LEN: usize = 10;

/// Appends `value` as a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Bytes that [`put_varint`] needs for `value`.
#[inline]
pub fn varint_len(value: u64) -> usize {
    // A seventh of the bits, rounded up, without a division: the two agree for 1 to 64 bits.
    let bits = 64 - (value | 1).leading_zeros() as usize;
    (bits * 9 + 64) / 64
}

/// Maps a signed number to an unsigned one whose varint is short when the number is near zero.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    ((value >> 1) as i64) ^ -((value & 1) as i64)
}

/// Appends a length as a varint, then the bytes.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// A checked reader over untrusted bytes.
///
/// ```
/// use esker_base::coding::{Reader, put_bytes};
///
/// let mut bytes = Vec::new();
/// put_bytes(&mut bytes, b"key");
/// let mut reader = Reader::new(&bytes);
/// assert_eq!(reader.bytes(), Some(&b"key"[..]));
/// assert_eq!(reader.u8(), None);
/// ```
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, total: bytes.len() }
    }

    /// Bytes read so far.
    #[inline]
    pub fn position(&self) -> usize {
        self.total - self.rest.len()
    }

    /// Bytes not read yet.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Whether everything was read.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The bytes not read yet.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*taken)
    }

    /// One byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// A little-endian `u16`.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// A little-endian `u32`.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A little-endian `u64`.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A little-endian `u128`.
    #[inline]
    pub fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_le_bytes)
    }

    /// A varint of at most 64 bits. Longer ones, and ones with a superfluous last zero byte, are refused, so that a
    /// number has one form only.
    #[inline]
    pub fn varint(&mut self) -> Option<u64> {
        let first = self.u8()?;
        if first < 0x80 {
            return Some(u64::from(first));
        }
        let mut value = u64::from(first & 0x7f);
        let mut shift = 7;
        loop {
            let byte = self.u8()?;
            let low = u64::from(byte & 0x7f);
            if shift == 63 && low > 1 {
                return None;
            }
            value |= low << shift;
            if byte < 0x80 {
                return if byte == 0 { None } else { Some(value) };
            }
            shift += 7;
            if shift > 63 {
                return None;
            }
        }
    }

    /// A varint that fits a `u32`.
    #[inline]
    pub fn varint_u32(&mut self) -> Option<u32> {
        u32::try_from(self.varint()?).ok()
    }

    /// A varint that fits a `usize`.
    #[inline]
    pub fn varint_usize(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    /// A varint length, then that many bytes.
    #[inline]
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.varint_usize()?;
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn varints_have_one_form() {
        assert_eq!(Reader::new(&[0x80, 0x00]).varint(), None, "superfluous zero");
        assert_eq!(Reader::new(&[0x80]).varint(), None, "cut");
        assert_eq!(Reader::new(&[0xff; 11]).varint(), None, "too long");
        let mut max = Vec::new();
        put_varint(&mut max, u64::MAX);
        assert_eq!(max.len(), MAX_VARINT_LEN);
        assert_eq!(Reader::new(&max).varint(), Some(u64::MAX));
        *max.last_mut().unwrap() = 2;
        assert_eq!(Reader::new(&max).varint(), None, "65 bits");
    }

    #[test]
    fn a_length_beyond_the_end_reads_nothing() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::MAX);
        bytes.extend_from_slice(b"abc");
        assert_eq!(Reader::new(&bytes).bytes(), None);
    }

    proptest! {
        #[test]
        fn varints_round_trip(value: u64, shift in 0_u32..64) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            prop_assert_eq!(bytes.len(), varint_len(value));
            let mut reader = Reader::new(&bytes);
            prop_assert_eq!(reader.varint(), Some(value));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn zigzag_round_trips(value: i64) {
            prop_assert_eq!(unzigzag(zigzag(value)), value);
        }
    }
}
