//! [`BlockFile`]: reads stored blocks, and believes none of them before its checksum matches.

use crate::block::{Block, Damage};
use crate::compression::{decompress_snappy, decompress_snappy_into, zeroed};
use crate::format::{MAX_BLOCK_LEN, TRAILER_LEN, TableIdentity, block_checksum};
use crate::options::Compression;
use crate::scratch::Buffers;
use esker_base::{Checksum, Error, Result, planted};
use esker_vfs::RandomAccessFile;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file of a table, and the context of its checksums.
#[derive(Debug)]
pub(crate) struct BlockFile {
    file: Arc<dyn RandomAccessFile>,
    path: PathBuf,
    context: Checksum,
}

/// A verified payload: the first `len` bytes of `data`.
#[derive(Clone, Debug)]
pub(crate) struct Payload {
    pub(crate) data: Arc<[u8]>,
    pub(crate) len: usize,
    pub(crate) compression: Compression,
}

impl Payload {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data[..self.len]
    }
}

impl BlockFile {
    pub(crate) fn new(file: Arc<dyn RandomAccessFile>, path: PathBuf, identity: &TableIdentity) -> Self {
        BlockFile { file, path, context: identity.context() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads bytes that are no block.
    pub(crate) fn read_bytes(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        read_exact(&*self.file, &self.path, offset, buf)
    }

    /// A corruption of this file.
    #[cold]
    pub(crate) fn damage(&self, offset: u64, damage: Damage) -> Error {
        Error::corruption(&self.path, offset, damage.0)
    }

    /// Reads the stored block of `len` bytes at `offset`, which the caller knows to lie inside the file.
    ///
    /// What does not match is read once more: a bus or a page cache may have been at fault, not the device.
    pub(crate) fn read(&self, offset: u64, len: usize) -> Result<Payload> {
        self.read_once(offset, len)
            .or_else(|error| if error.is_corruption() { self.read_once(offset, len) } else { Err(error) })
    }

    /// As [`read`](Self::read), into `scratch`, which then lends the payload.
    pub(crate) fn read_into<'a>(
        &self,
        offset: u64,
        len: usize,
        scratch: &'a mut Buffers,
    ) -> Result<&'a [u8]> {
        let read = self.read_into_once(offset, len, scratch);
        let read = match read {
            Err(error) if error.is_corruption() => self.read_into_once(offset, len, scratch),
            read => read,
        };
        let (compression, len) = read?;
        Ok(match compression {
            Compression::None => &scratch.stored[..len],
            Compression::Snappy => &scratch.payload[..len],
        })
    }

    fn read_into_once(&self, offset: u64, len: usize, scratch: &mut Buffers) -> Result<(Compression, usize)> {
        let Buffers { stored, payload } = scratch;
        if len > MAX_BLOCK_LEN + TRAILER_LEN {
            return Err(self.damage(offset, Damage("stored block beyond the size limit")));
        }
        if stored.len() < len {
            stored.resize(len, 0);
        }
        let stored = &mut stored[..len];
        self.read_bytes(offset, stored)?;
        let (compression, len) = self.verify(offset, stored)?;
        match compression {
            Compression::None => Ok((compression, len)),
            Compression::Snappy => match decompress_snappy_into(&stored[..len], payload) {
                Ok(len) => Ok((compression, len)),
                Err(damage) => Err(self.damage(offset, damage)),
            },
        }
    }

    /// Reads and parses the stored block of `len` bytes at `offset`.
    pub(crate) fn read_block(&self, offset: u64, len: usize) -> Result<Block> {
        let payload = self.read(offset, len)?;
        Block::parse(payload.data, payload.len).map_err(|damage| self.damage(offset, damage))
    }

    fn read_once(&self, offset: u64, len: usize) -> Result<Payload> {
        if len > MAX_BLOCK_LEN + TRAILER_LEN {
            return Err(self.damage(offset, Damage("stored block beyond the size limit")));
        }
        let mut data = zeroed(len);
        let buf = Arc::get_mut(&mut data).ok_or_else(|| self.damage(offset, Damage("shared buffer")))?;
        read_exact(&*self.file, &self.path, offset, buf)?;
        let (compression, len) = self.verify(offset, &data)?;
        match compression {
            Compression::None => Ok(Payload { data, len, compression }),
            Compression::Snappy => self.decompress(offset, &data[..len]),
        }
    }

    /// The verified payload of a stored block that was read from `offset` as part of something larger.
    pub(crate) fn payload(&self, offset: u64, stored: &[u8]) -> Result<Payload> {
        let (compression, len) = self.verify(offset, stored)?;
        match compression {
            Compression::None => Ok(Payload { data: Arc::from(&stored[..len]), len, compression }),
            Compression::Snappy => self.decompress(offset, &stored[..len]),
        }
    }

    /// As [`payload`](Self::payload), parsed.
    pub(crate) fn block(&self, offset: u64, stored: &[u8]) -> Result<Block> {
        let payload = self.payload(offset, stored)?;
        Block::parse(payload.data, payload.len).map_err(|damage| self.damage(offset, damage))
    }

    fn decompress(&self, offset: u64, stored: &[u8]) -> Result<Payload> {
        let data = decompress_snappy(stored).map_err(|damage| self.damage(offset, damage))?;
        Ok(Payload { len: data.len(), data, compression: Compression::Snappy })
    }

    /// Compares the checksum; returns how the payload is stored and how long it is.
    fn verify(&self, offset: u64, stored: &[u8]) -> Result<(Compression, usize)> {
        let split = stored.split_last_chunk::<4>();
        let (checked, checksum) =
            split.ok_or_else(|| self.damage(offset, Damage("block without a trailer")))?;
        let (found, computed) =
            (u32::from_le_bytes(*checksum), block_checksum(&self.context, offset, checked));
        if found != computed && !planted::is(planted::Fault::BlockChecksumIgnored) {
            return Err(Error::corruption(
                &self.path,
                offset,
                format!("block checksum {found:08x}, computed {computed:08x}"),
            ));
        }
        let (kind, payload) =
            checked.split_last().ok_or_else(|| self.damage(offset, Damage("block without a trailer")))?;
        let compression = Compression::from_u8(*kind).ok_or_else(|| {
            Error::unsupported(&self.path, format!("compression {kind} of the block at {offset}"))
        })?;
        Ok((compression, payload.len()))
    }
}

/// Fills `buf` from `offset`. A file that ends before is damaged, not unreadable.
pub(crate) fn read_exact(
    file: &dyn RandomAccessFile,
    path: &Path,
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    file.read_exact_at(offset, buf).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            Error::corruption(path, offset, format!("the file ends early: {error}"))
        }
        _ => Error::io("read", path, error),
    })
}
