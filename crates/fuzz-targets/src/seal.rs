//! Makes the checksums of arbitrary bytes match, as far as the bytes have the form of a file at all.
//!
//! Written from the format pages, not with the encoders.

use std::path::PathBuf;
use std::sync::Arc;

use esker_base::coding::Reader;
use esker_base::{Checksum, FileKind, FileNumber};
use esker_sstable::{OpenTable, TableReader};
use esker_vfs::{MemVfs, Vfs};
use esker_wal::LogKind;

/// Bytes of a segment's header.
pub const SEGMENT_HEADER: usize = 64;
/// Bytes of a table's header.
pub const TABLE_HEADER: usize = 32;
/// Bytes of a table's footer.
pub const FOOTER: usize = 76;

/// Gives a log or manifest the number, magic and version that it must have, and then right checksums to its header and
/// to as many records as `records` says.
pub fn log(bytes: &mut [u8], kind: LogKind, number: u64, records: usize) {
    let Some((header, _)) = bytes.split_at_mut_checked(SEGMENT_HEADER) else { return };
    header[..8].copy_from_slice(&kind.magic());
    header[8..12].copy_from_slice(&1_u32.to_le_bytes());
    header[28..36].copy_from_slice(&number.to_le_bytes());
    log_header(bytes);
    let mut start = SEGMENT_HEADER;
    for _ in 0..records {
        let Some(end) = record(bytes, start, number) else { return };
        start = end;
    }
}

/// Gives the header of a segment its checksum.
pub fn log_header(bytes: &mut [u8]) {
    let Some((header, _)) = bytes.split_at_mut_checked(SEGMENT_HEADER) else { return };
    let crc = Checksum::new(&[]).bytes(&header[..60]).finish();
    header[60..].copy_from_slice(&crc.to_le_bytes());
}

/// Gives the record at `start` its checksums, and returns where it ends.
fn record(bytes: &mut [u8], start: usize, number: u64) -> Option<usize> {
    let mut reader = Reader::new(bytes.get(start + 8..)?);
    let length = usize::try_from(reader.varint()?).ok()?;
    let body = start + 8 + reader.position();
    let end = body.checked_add(length).filter(|end| *end <= bytes.len())?;
    bytes[start + 7] = number.to_le_bytes()[0];
    let head = Checksum::new(&[])
        .bytes(&bytes[..8])
        .bytes(&bytes[12..36])
        .bytes(&(start as u64).to_le_bytes())
        .bytes(&bytes[start + 6..body]);
    let check = head.clone().finish().to_le_bytes();
    let crc = head.bytes(&bytes[body..end]).finish();
    bytes[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    bytes[start + 4..start + 6].copy_from_slice(&check[..2]);
    Some(end)
}

/// Gives a `CURRENT` its last line.
pub fn current(body: &[u8]) -> Vec<u8> {
    let mut text = body.to_vec();
    let crc = Checksum::new(&[]).bytes(body).finish();
    text.extend_from_slice(format!("crc {crc:08x}\n").as_bytes());
    text
}

/// The checksum of a block of a table that starts at `offset`, without its last four bytes.
fn block_checksum(identity: &[u8], offset: usize, block: &[u8]) -> [u8; 4] {
    let crc = Checksum::new(&[]).bytes(identity).bytes(&(offset as u64).to_le_bytes()).bytes(block).finish();
    crc.to_le_bytes()
}

/// Appends the checksum to a block that starts at `offset` and ends with `file`.
pub fn end_block(file: &mut Vec<u8>, identity: &[u8; 24], offset: usize) {
    let crc = block_checksum(identity, offset, &file[offset..]);
    file.extend_from_slice(&crc);
}

fn block(file: &mut [u8], identity: &[u8; 24], offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (usize::try_from(offset), usize::try_from(len)) else { return };
    let Some(end) = offset.checked_add(len).filter(|end| len >= 5 && *end <= file.len()) else { return };
    let crc = block_checksum(identity, offset, &file[offset..end - 4]);
    file[end - 4..end].copy_from_slice(&crc);
}

/// Gives the footer at the end of a table its checksum.
pub fn footer(file: &mut [u8]) {
    let Some(at) = file.len().checked_sub(FOOTER) else { return };
    let footer = &mut file[at..];
    let crc = Checksum::new(&[]).bytes(&footer[..60]).bytes(&footer[64..]).finish();
    footer[60..64].copy_from_slice(&crc.to_le_bytes());
}

/// Gives a table the magic, version and header that it must have, lets the data take up what its footer leaves, and then
/// gives right checksums to the footer and to all blocks that can be found.
pub fn table(file: &mut [u8]) {
    let Some(at) = file.len().checked_sub(FOOTER).filter(|at| *at >= TABLE_HEADER) else { return };
    file[at + 64..at + 68].copy_from_slice(&3_u32.to_le_bytes());
    file[at + 68..].copy_from_slice(b"ESKERSST");
    let mut identity = [0; 24];
    identity.copy_from_slice(&file[at + 36..at + 60]);
    file[..6].copy_from_slice(b"ESKSST");
    file[6..8].copy_from_slice(&3_u16.to_le_bytes());
    file[8..32].copy_from_slice(&identity);
    let lengths: Vec<u64> = file[at + 8..at + 28]
        .chunks_exact(4)
        .map(|bytes| u64::from(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
        .collect();
    let filter = (at as u64).checked_sub(lengths.iter().sum()).filter(|offset| *offset >= 32);
    if let Some(filter) = filter {
        file[at..at + 8].copy_from_slice(&filter.to_le_bytes());
    }
    footer(file);
    let mut offset = filter.unwrap_or(32);
    for (section, length) in lengths.iter().enumerate() {
        // The third one holds the partitions of the index, each a block of its own.
        if section != 2 {
            block(file, &identity, offset, *length);
        }
        offset += length;
    }
    for (offset, len) in data_blocks(file) {
        block(file, &identity, offset, len);
    }
}

/// Offset and length of what the table's own index takes for data blocks.
fn data_blocks(file: &[u8]) -> Vec<(u64, u64)> {
    let (mem, path) = (MemVfs::new(), PathBuf::from("/000001.sst"));
    let mut found = Vec::new();
    if mem.write_file(&path, file).is_err() {
        return found;
    }
    let Ok(opened) = mem.open(&path) else { return found };
    if let Ok(table) = TableReader::open(opened, path, OpenTable::default()) {
        let table: Arc<TableReader> = table;
        // A damaged partition ends the walk: the blocks before it are as good as any.
        let _ = table.dump_index(&mut |entry| found.push((entry.offset, entry.stored_len)));
    }
    found
}

/// The name of a file, in the directory of a database.
pub fn path(kind: FileKind, number: u64) -> PathBuf {
    kind.path(esker_sim::disk::DIR.as_ref(), FileNumber(number))
}
