//! The fixed parts of a table: header, footer, block trailer, and the numbers that never change.
//!
//! ```text
//! header | data blocks | filter | range tombstones | index partitions | index | properties | footer
//! ```
//!
//! The sections lie back to back, so the footer gives one offset and the lengths, and no handle can point anywhere
//! else, overlap another one, or make a cycle.

use crate::options::Compression;
use esker_base::coding::Reader;
use esker_base::{Checksum, Error, FileNumber, Result};
use std::ops::Range;
use std::path::Path;

/// The format version that this build writes, and the newest one that it reads.
pub const VERSION: u32 = 3;

/// Bytes of the header.
pub const HEADER_LEN: usize = 32;

/// Bytes of the footer.
pub const FOOTER_LEN: usize = 76;

/// Bytes after the payload of each block: compression kind, checksum.
pub(crate) const TRAILER_LEN: usize = 5;

/// Longest run of entries without a restart.
pub(crate) const MAX_RESTART_INTERVAL: usize = 256;

/// Longest payload of a block: what other entries may add up to, and the largest entry.
pub(crate) const MAX_BLOCK_LEN: usize = (64 << 20) + esker_base::MAX_VALUE_LEN + esker_base::MAX_KEY_LEN + 64;

/// The order of keys in every table so far.
pub(crate) const COMPARATOR: &str = "bytewise";

const HEADER_MAGIC: [u8; 6] = *b"ESKSST";
const FOOTER_MAGIC: [u8; 8] = *b"ESKERSST";

/// Features that a reader must know to read the table at all. None is defined yet.
const KNOWN_FEATURES: u32 = 0;

/// Which table a file is. Part of every block's checksum, so that a block or a file in the wrong place fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableIdentity {
    /// The store that the table was written for.
    pub store_id: u128,
    /// The number in the file's name.
    pub number: FileNumber,
    /// Seed of the key hash that the filter was built with.
    pub hash_seed: u64,
}

impl TableIdentity {
    /// The header of the file:
    ///
    /// ```text
    /// 0   6   "ESKSST"
    /// 6   2   format version
    /// 8  16   store id
    /// 24  8   file number
    /// ```
    pub(crate) fn header(&self) -> [u8; HEADER_LEN] {
        let mut header = [0; HEADER_LEN];
        header[..6].copy_from_slice(&HEADER_MAGIC);
        header[6..8].copy_from_slice(&(VERSION as u16).to_le_bytes());
        header[8..24].copy_from_slice(&self.store_id.to_le_bytes());
        header[24..].copy_from_slice(&self.number.0.to_le_bytes());
        header
    }

    /// The start of every checksum of the table.
    pub(crate) fn context(&self) -> Checksum {
        Checksum::new(&[self.store_id as u64, (self.store_id >> 64) as u64, self.number.0])
    }
}

/// The checksum of a stored block at `offset`: over the table's context, the offset, the payload and the compression kind.
#[inline]
pub(crate) fn block_checksum(context: &Checksum, offset: u64, payload_and_kind: &[u8]) -> u32 {
    context.clone().bytes(&offset.to_le_bytes()).bytes(payload_and_kind).finish()
}

/// Appends the trailer to the payload that starts at `start` in `out` and is stored at `offset` of the file.
pub(crate) fn put_trailer(
    out: &mut Vec<u8>,
    start: usize,
    kind: Compression,
    context: &Checksum,
    offset: u64,
) {
    out.push(kind as u8);
    let checksum = block_checksum(context, offset, &out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// The end of the file: where everything is, and whose table this is.
///
/// ```text
/// 0   8   offset of the filter, which is the end of the data blocks
/// 8   4   length of the filter           } with the block trailer;
/// 12  4   length of the range tombstones } 0 when there is none
/// 16  4   length of all index partitions }
/// 20  4   length of the index
/// 24  4   length of the properties
/// 28  4   features that a reader must know
/// 32  4   features that a reader may ignore
/// 36 16   store id
/// 52  8   file number
/// 60  4   checksum of the other 72 bytes
/// 64  4   format version
/// 68  8   "ESKERSST"
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footer {
    /// Where the data blocks end and the tail begins, in bytes from the start of the file.
    pub filter_offset: u64,
    /// Stored bytes of the filter; 0 when there is none.
    pub filter_len: u32,
    /// Stored bytes of all index partitions; 0 when the index has one level.
    pub partitions_len: u32,
    /// Stored bytes of the index, or of its upper level.
    pub index_len: u32,
    /// Stored bytes of the properties.
    pub properties_len: u32,
    /// Features that a reader may ignore.
    pub optional_features: u32,
    /// The store that the table was written for.
    pub store_id: u128,
    /// The number in the file's name.
    pub number: FileNumber,
}

impl Footer {
    /// The bytes of the footer.
    pub(crate) fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut bytes = Vec::with_capacity(FOOTER_LEN);
        bytes.extend_from_slice(&self.filter_offset.to_le_bytes());
        let lens = [self.filter_len, 0, self.partitions_len, self.index_len, self.properties_len];
        for number in lens.into_iter().chain([KNOWN_FEATURES, self.optional_features]) {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.store_id.to_le_bytes());
        bytes.extend_from_slice(&self.number.0.to_le_bytes());
        let mut end = [0; 12];
        end[..4].copy_from_slice(&VERSION.to_le_bytes());
        end[4..].copy_from_slice(&FOOTER_MAGIC);
        let checksum = Checksum::new(&[]).bytes(&bytes).bytes(&end).finish();
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes.extend_from_slice(&end);
        bytes.try_into().expect("the fields add up to the length of the footer")
    }

    /// Reads the footer of a file of `file_size` bytes, and checks that its sections fill the file exactly.
    pub(crate) fn decode(bytes: &[u8; FOOTER_LEN], path: &Path, file_size: u64) -> Result<Self> {
        let at = file_size.saturating_sub(FOOTER_LEN as u64);
        let damage = |what: String| Error::corruption(path, at, what);
        if bytes[68..] != FOOTER_MAGIC {
            return Err(damage(format!("no table footer: magic {:02x?}", &bytes[68..])));
        }
        let mut reader = Reader::new(bytes);
        let (filter_offset, fields) = parse(&mut reader).ok_or_else(|| damage("short footer".to_owned()))?;
        let computed = Checksum::new(&[]).bytes(&bytes[..60]).bytes(&bytes[64..]).finish();
        if computed != fields.checksum {
            return Err(damage(format!("footer checksum {:08x}, computed {computed:08x}", fields.checksum)));
        }
        if fields.version != VERSION {
            return Err(Error::unsupported(path, format!("table version {}", fields.version)));
        }
        let unknown = fields.features & !KNOWN_FEATURES;
        if unknown != 0 {
            return Err(Error::unsupported(path, format!("table features {unknown:#x}")));
        }
        let [filter_len, tombstones_len, partitions_len, index_len, properties_len] = fields.lens;
        if tombstones_len != 0 {
            return Err(damage(format!("{tombstones_len} bytes of range tombstones without their feature")));
        }
        let footer = Footer {
            filter_offset,
            filter_len,
            partitions_len,
            index_len,
            properties_len,
            optional_features: fields.optional_features,
            store_id: fields.store_id,
            number: FileNumber(fields.number),
        };
        let tail: u64 = fields.lens.iter().map(|&len| u64::from(len)).sum::<u64>() + FOOTER_LEN as u64;
        if filter_offset < HEADER_LEN as u64 || filter_offset.checked_add(tail) != Some(file_size) {
            return Err(damage(format!(
                "sections from {filter_offset} with {tail} bytes do not fill the file of {file_size} bytes"
            )));
        }
        Ok(footer)
    }

    /// Offset of the index partitions.
    pub fn partitions_offset(&self) -> u64 {
        self.filter_offset + u64::from(self.filter_len)
    }

    /// Offset of the index, or of its upper level.
    pub fn index_offset(&self) -> u64 {
        self.partitions_offset() + u64::from(self.partitions_len)
    }

    /// Offset of the properties.
    pub fn properties_offset(&self) -> u64 {
        self.index_offset() + u64::from(self.index_len)
    }

    /// Offset of the footer itself.
    pub fn footer_offset(&self) -> u64 {
        self.properties_offset() + u64::from(self.properties_len)
    }

    /// Where the data blocks are.
    pub fn data(&self) -> Range<u64> {
        HEADER_LEN as u64..self.filter_offset
    }
}

struct Fields {
    lens: [u32; 5],
    features: u32,
    optional_features: u32,
    store_id: u128,
    number: u64,
    checksum: u32,
    version: u32,
}

fn parse(reader: &mut Reader<'_>) -> Option<(u64, Fields)> {
    let filter_offset = reader.u64()?;
    let mut lens = [0; 5];
    for len in &mut lens {
        *len = reader.u32()?;
    }
    let fields = Fields {
        lens,
        features: reader.u32()?,
        optional_features: reader.u32()?,
        store_id: reader.u128()?,
        number: reader.u64()?,
        checksum: reader.u32()?,
        version: reader.u32()?,
    };
    Some((filter_offset, fields))
}
