//! The tail of a table: all that is read when it is opened, from the filter to the footer.

use crate::block::Damage;
use crate::block_io::{BlockFile, read_exact};
use crate::filter::Filter;
use crate::format::{FOOTER_LEN, Footer, HEADER_LEN, TableIdentity};
use crate::properties::TableProperties;
use esker_base::{Error, Result};
use esker_vfs::RandomAccessFile;
use std::path::Path;

/// Reads footer and tail: everything from the filter on. Never allocates more than the file is long.
pub(crate) fn read_tail(
    file: &dyn RandomAccessFile,
    path: &Path,
    file_size: u64,
    tail_size: Option<u64>,
) -> Result<(Footer, Vec<u8>)> {
    let smallest = (HEADER_LEN + FOOTER_LEN) as u64;
    if file_size < smallest {
        return Err(Error::corruption(path, 0, format!("{file_size} bytes are too few for a table")));
    }
    let footer_len = FOOTER_LEN as u64;
    if let Some(tail_size) = tail_size {
        if tail_size < footer_len || tail_size > file_size - HEADER_LEN as u64 {
            let what = format!("a tail of {tail_size} bytes does not fit a file of {file_size} bytes");
            return Err(Error::corruption(path, 0, what));
        }
        let tail = read_at(file, path, file_size - tail_size, tail_size)?;
        let footer = decode_footer(&tail, path, file_size)?;
        if footer.filter_offset != file_size - tail_size {
            let what = format!("a tail of {} bytes, expected {tail_size}", file_size - footer.filter_offset);
            return Err(Error::corruption(path, footer.footer_offset(), what));
        }
        return Ok((footer, tail));
    }
    let end = read_at(file, path, file_size - footer_len, footer_len)?;
    let footer = decode_footer(&end, path, file_size)?;
    let tail = read_at(file, path, footer.filter_offset, file_size - footer.filter_offset)?;
    Ok((footer, tail))
}

fn read_at(file: &dyn RandomAccessFile, path: &Path, offset: u64, len: u64) -> Result<Vec<u8>> {
    let len =
        usize::try_from(len).map_err(|_| Error::too_large("tail of a table", len, usize::MAX as u64))?;
    let mut bytes = vec![0; len];
    read_exact(file, path, offset, &mut bytes)?;
    Ok(bytes)
}

fn decode_footer(tail: &[u8], path: &Path, file_size: u64) -> Result<Footer> {
    let bytes = tail.last_chunk::<FOOTER_LEN>();
    let bytes = bytes.ok_or_else(|| Error::corruption(path, file_size, "no room for a footer"))?;
    Footer::decode(bytes, path, file_size)
}

/// The bytes of a section of the tail.
fn section<'a>(tail: &'a [u8], footer: &Footer, offset: u64, len: u32) -> Option<&'a [u8]> {
    let start = usize::try_from(offset.checked_sub(footer.filter_offset)?).ok()?;
    tail.get(start..start.checked_add(usize::try_from(len).ok()?)?)
}

pub(crate) fn read_properties(
    blocks: &BlockFile,
    footer: &Footer,
    tail: &[u8],
    expected: Option<TableIdentity>,
) -> Result<TableProperties> {
    let at = footer.properties_offset();
    let damage = |damage| blocks.damage(at, damage);
    let stored = section(tail, footer, at, footer.properties_len)
        .ok_or_else(|| damage(Damage("properties outside the tail")))?;
    let payload = blocks.payload(at, stored)?;
    let properties = TableProperties::decode(payload.bytes()).map_err(damage)?;
    if (properties.store_id, properties.number) != (footer.store_id, footer.number) {
        return Err(damage(Damage("footer and properties disagree about the table's id")));
    }
    if expected.is_some_and(|expected| expected.hash_seed != properties.hash_seed) {
        return Err(damage(Damage("the hash seed is not the store's")));
    }
    Ok(properties)
}

pub(crate) fn read_filter(blocks: &BlockFile, footer: &Footer, tail: &[u8]) -> Result<Option<Filter>> {
    if footer.filter_len == 0 {
        return Ok(None);
    }
    let at = footer.filter_offset;
    let damage = |damage| blocks.damage(at, damage);
    let stored = section(tail, footer, at, footer.filter_len)
        .ok_or_else(|| damage(Damage("filter outside the tail")))?;
    let payload = blocks.payload(at, stored)?;
    Filter::decode(payload.bytes()).map_err(damage)
}
