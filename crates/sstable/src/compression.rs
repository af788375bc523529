//! Compressing and decompressing the payloads of blocks, with limits on what comes out.

use crate::block::Damage;
use crate::format::MAX_BLOCK_LEN;
use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};
use std::fmt;
use std::sync::Arc;

/// Snappy cannot make a byte into more than this: a copy of 64 bytes takes 3 bytes.
const MAX_RATIO: usize = 22;

/// Compresses blocks, reusing its buffers.
pub(crate) struct Compressor {
    encoder: Encoder,
    out: Vec<u8>,
}

impl fmt::Debug for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compressor").finish_non_exhaustive()
    }
}

impl Compressor {
    pub(crate) fn new() -> Self {
        Compressor { encoder: Encoder::new(), out: Vec::new() }
    }

    /// The compressed payload, if it saves at least an eighth.
    pub(crate) fn snappy(&mut self, payload: &[u8]) -> Option<&[u8]> {
        let room = max_compress_len(payload.len());
        if room == 0 {
            return None;
        }
        if self.out.len() < room {
            self.out.resize(room, 0);
        }
        let len = self.encoder.compress(payload, &mut self.out).ok()?;
        (len <= payload.len() - payload.len() / 8).then(|| &self.out[..len])
    }
}

/// Decompresses a block. The claimed length is checked before it is believed.
pub(crate) fn decompress_snappy(stored: &[u8]) -> Result<Arc<[u8]>, Damage> {
    let mut out = zeroed(claimed_len(stored)?);
    let buf = Arc::get_mut(&mut out).ok_or(Damage("shared buffer"))?;
    decompress_all(stored, buf)?;
    Ok(out)
}

/// The same, to the start of `out`, which grows as far as it must; returns how many bytes came out.
pub(crate) fn decompress_snappy_into(stored: &[u8], out: &mut Vec<u8>) -> Result<usize, Damage> {
    let len = claimed_len(stored)?;
    if out.len() < len {
        out.resize(len, 0);
    }
    decompress_all(stored, &mut out[..len])?;
    Ok(len)
}

fn claimed_len(stored: &[u8]) -> Result<usize, Damage> {
    let len = decompress_len(stored).map_err(|_| Damage("bad length of a compressed block"))?;
    if len > MAX_BLOCK_LEN || len > stored.len().saturating_mul(MAX_RATIO) {
        return Err(Damage("a compressed block claims more bytes than it can hold"));
    }
    Ok(len)
}

fn decompress_all(stored: &[u8], out: &mut [u8]) -> Result<(), Damage> {
    match Decoder::new().decompress(stored, out) {
        Ok(written) if written == out.len() => Ok(()),
        _ => Err(Damage("a compressed block cannot be decompressed")),
    }
}

/// A shared buffer of `len` zeros, in one allocation.
pub(crate) fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, len).collect()
}
