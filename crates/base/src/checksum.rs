//! CRC-32 (IEEE, by `crc32fast`) with a context, so that a block at the wrong place fails.
//!
//! A checksum covers a context (which file, which offset) before the bytes themselves. Bytes that were moved to another
//! offset, or whose file took another's name, then do not match although they are intact.

/// A CRC-32 over a context and any number of parts.
///
/// ```
/// use esker_base::{Checksum, checksum};
///
/// let here = Checksum::new(&[1, 4096]).bytes(b"block").finish();
/// assert_eq!(here, checksum(&[1, 4096], b"block"));
/// assert_ne!(here, checksum(&[1, 8192], b"block"));
/// ```
#[derive(Clone, Debug)]
pub struct Checksum(crc32fast::Hasher);

impl Checksum {
    /// Starts with the context: each number as 8 little-endian bytes.
    #[inline]
    pub fn new(context: &[u64]) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        for number in context {
            hasher.update(&number.to_le_bytes());
        }
        Checksum(hasher)
    }

    /// Adds bytes.
    #[inline]
    #[must_use]
    pub fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    /// The checksum.
    #[inline]
    #[must_use]
    pub fn finish(self) -> u32 {
        self.0.finalize()
    }
}

/// The checksum of `bytes` in a context.
#[inline]
pub fn checksum(context: &[u64], bytes: &[u8]) -> u32 {
    Checksum::new(context).bytes(bytes).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ieee_crc32() {
        assert_eq!(checksum(&[], b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(&[1], b"x"), crc32fast::hash(b"\x01\0\0\0\0\0\0\0x"));
    }
}
