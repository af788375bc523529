//! [`Part`]: the checksummed parts of esker's files, and making a checksum match again after a change.
//!
//! Written from the format pages, not with the encoders: what a stranger would write.

use std::path::Path;
use std::sync::Arc;

use esker::vfs::{MemVfs, Vfs};
use esker_base::coding::{Reader, put_varint};
use esker_base::{Checksum, FileKind, SplitMix64, parse_file_name};
use esker_sstable::{OpenTable, TableReader};

/// Bytes of a segment's header, and of a table's header.
const SEGMENT_HEADER: usize = 64;

/// What kind of part it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartKind {
    /// A block of a table, with its trailer.
    Block,
    /// The end of a table.
    Footer,
    /// The start of a log segment or a manifest.
    SegmentHeader,
    /// A record of a log or a manifest.
    Record,
}

/// Bytes that one checksum covers.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its kind.
    pub kind: PartKind,
    /// Offset of its first byte.
    pub start: usize,
    /// Offset after its last byte.
    pub end: usize,
}

/// The parts of an intact file.
///
/// # Panics
///
/// When a table can't be opened: the caller's files are good ones.
pub fn parts(mem: &MemVfs, path: &Path, bytes: &[u8]) -> Vec<Part> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match parse_file_name(name) {
        Some((FileKind::Table, _)) => table_parts(mem, path),
        Some((FileKind::Wal | FileKind::Manifest, _)) => log_parts(bytes),
        _ => Vec::new(),
    }
}

fn table_parts(mem: &MemVfs, path: &Path) -> Vec<Part> {
    let file = mem.open(path).expect("the table is there");
    let open =
        OpenTable { identity: None, file_size: None, tail_size: None, cache: None, verify_reads: false };
    let table: Arc<TableReader> =
        TableReader::open(file, path.to_path_buf(), open).expect("the table is intact");
    let sections = table.layout();
    let part = |section: &esker_sstable::Section| Part {
        kind: if section.name == "footer" { PartKind::Footer } else { PartKind::Block },
        start: section.offset as usize,
        end: (section.offset + section.len) as usize,
    };
    sections.iter().filter(|section| section.name != "header" && section.len > 0).map(part).collect()
}

fn log_parts(bytes: &[u8]) -> Vec<Part> {
    let mut parts = vec![Part { kind: PartKind::SegmentHeader, start: 0, end: SEGMENT_HEADER }];
    let mut start = SEGMENT_HEADER;
    while let Some((head, length)) = head_of(bytes, start) {
        let end = start.saturating_add(head).saturating_add(length);
        if end > bytes.len() {
            break;
        }
        parts.push(Part { kind: PartKind::Record, start, end });
        start = end;
    }
    parts
}

/// Bytes up to the end of the length, and the length.
fn head_of(bytes: &[u8], start: usize) -> Option<(usize, usize)> {
    let after_type = bytes.get(start + 8..)?;
    let mut reader = Reader::new(after_type);
    let length = reader.varint()?;
    Some((8 + reader.position(), usize::try_from(length).ok()?))
}

/// Makes the checksum of a part match its bytes again.
pub fn seal(bytes: &mut [u8], part: &Part) {
    if part.end > bytes.len() || part.end - part.start < 13 {
        return;
    }
    match part.kind {
        PartKind::Footer => {
            let footer = &mut bytes[part.start..part.end];
            let checksum = Checksum::new(&[]).bytes(&footer[..60]).bytes(&footer[64..]).finish();
            footer[60..64].copy_from_slice(&checksum.to_le_bytes());
        }
        PartKind::Block => {
            // Store id and file number stand in the header.
            let sum = Checksum::new(&[])
                .bytes(&bytes[8..32])
                .bytes(&(part.start as u64).to_le_bytes())
                .bytes(&bytes[part.start..part.end - 4])
                .finish();
            bytes[part.end - 4..part.end].copy_from_slice(&sum.to_le_bytes());
        }
        PartKind::SegmentHeader => {
            let sum = Checksum::new(&[]).bytes(&bytes[..60]).finish();
            bytes[60..64].copy_from_slice(&sum.to_le_bytes());
        }
        PartKind::Record => seal_record(bytes, part),
    }
}

fn seal_record(bytes: &mut [u8], part: &Part) {
    let Some((head, length)) = head_of(bytes, part.start) else { return };
    let head_end = part.start + head;
    let end = head_end.saturating_add(length).min(bytes.len());
    let context = Checksum::new(&[])
        .bytes(&bytes[..8])
        .bytes(&bytes[12..36])
        .bytes(&(part.start as u64).to_le_bytes())
        .bytes(&bytes[part.start + 6..head_end]);
    let check = (context.clone().finish() & 0xffff) as u16;
    let crc = context.bytes(&bytes[head_end..end]).finish();
    bytes[part.start..part.start + 4].copy_from_slice(&crc.to_le_bytes());
    bytes[part.start + 4..part.start + 6].copy_from_slice(&check.to_le_bytes());
}

/// Changes something inside a part: a byte, a run of bytes, or a number of some form, to odd values.
pub fn change(bytes: &mut [u8], part: &Part, rng: &mut SplitMix64) -> String {
    let skip = if part.kind == PartKind::Record { 6 } else { 0 };
    let len = (part.end - part.start - skip) as u64;
    // Numbers of restarts and lengths stand at the ends.
    let at = match rng.below(4) {
        0 => len.saturating_sub(1 + rng.below(16)),
        1 => rng.below(len.min(16)),
        _ => rng.below(len),
    };
    let at = part.start + skip + at as usize;
    let mut value = match rng.below(6) {
        0 => vec![bytes[at] ^ (1 << rng.below(8))],
        1 => vec![[0, 1, 0x7f, 0x80, 0xfe, 0xff][rng.below(6) as usize]],
        2 => {
            let number = [0_u32, 1, 2, 0xff, 0x7fff_ffff, 0xffff_ffff][rng.below(6) as usize];
            number.to_le_bytes().to_vec()
        }
        3 => {
            let number = [0_u64, 1, u64::MAX, u64::MAX >> 1, 1 << 56, 1 << 32][rng.below(6) as usize];
            number.to_le_bytes().to_vec()
        }
        4 => {
            let mut number = Vec::new();
            put_varint(&mut number, rng.next_u64() >> rng.below(64));
            number
        }
        _ => vec![0xff; 1 + rng.below(9) as usize],
    };
    value.truncate(part.end - at);
    bytes[at..at + value.len()].copy_from_slice(&value);
    format!("{:?} {}..{}: {value:02x?} at {at}", part.kind, part.start, part.end)
}
