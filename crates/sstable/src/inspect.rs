//! Looking at tables that may not open: for tools. Each part is read for itself, so that damage in one does not hide
//! what another one says.

use crate::block::Damage;
use crate::block_io::{BlockFile, read_exact};
use crate::filter::Filter;
use crate::format::{FOOTER_LEN, Footer, HEADER_LEN, TableIdentity};
use crate::index::Index;
use crate::properties::TableProperties;
use crate::table_reader::{OpenTable, TableReader};
use esker_base::{Error, Result};
use esker_vfs::RandomAccessFile;
use std::path::Path;
use std::sync::Arc;

/// Where the sections of a table are, read without anything else. `path` is for error messages.
///
/// # Errors
///
/// `Corruption`, `UnsupportedFormat` or `Io` about the footer.
pub fn read_table_footer(file: &Arc<dyn RandomAccessFile>, path: &Path) -> Result<Footer> {
    open_footer(file, path).map(|(footer, _)| footer)
}

/// What a table says about itself, read without index and filter. `path` is for error messages.
///
/// # Errors
///
/// `Corruption`, `UnsupportedFormat` or `Io` about footer and properties; the rest of the file may be damaged.
pub fn read_table_properties(
    file: &Arc<dyn RandomAccessFile>,
    path: &Path,
) -> Result<(Footer, TableProperties)> {
    let (footer, blocks) = open_footer(file, path)?;
    let properties = properties(&blocks, &footer)?;
    Ok((footer, properties))
}

/// Opens a table and checks all of it, as [`TableReader::verify`] does. Of one that does not open it checks header,
/// footer and metadata blocks one by one, and, if there is an index to find them by, the checksums of the data blocks.
/// Every fault goes to `report`.
pub fn verify_table(
    file: &Arc<dyn RandomAccessFile>,
    path: &Path,
    open: OpenTable,
    report: &mut dyn FnMut(Error),
) -> Option<Arc<TableReader>> {
    let error = match TableReader::open(Arc::clone(file), path.to_path_buf(), open) {
        Ok(reader) => {
            reader.verify(report);
            return Some(reader);
        }
        Err(error) => error,
    };
    let mut known = false;
    verify_parts(file, path, &mut |fault| {
        known |= fault.to_string() == error.to_string();
        report(fault);
    });
    if !known {
        report(error);
    }
    None
}

fn verify_parts(file: &Arc<dyn RandomAccessFile>, path: &Path, report: &mut dyn FnMut(Error)) {
    let mut header = [0; HEADER_LEN];
    let header = read_exact(&**file, path, 0, &mut header).map(|()| header);
    let (footer, blocks) = match open_footer(file, path) {
        Ok(opened) => opened,
        Err(error) => {
            // Without a footer only the start of the header is known.
            let start = TableIdentity { store_id: 0, number: Default::default(), hash_seed: 0 }.header();
            if header.is_ok_and(|header| header[..8] != start[..8]) {
                report(Error::corruption(path, 0, "the file does not start as a table"));
            }
            return report(error);
        }
    };
    let identity = TableIdentity { store_id: footer.store_id, number: footer.number, hash_seed: 0 };
    match header {
        Ok(header) if header == identity.header() => {}
        Ok(_) => report(blocks.damage(0, Damage("the header is not the table's"))),
        Err(error) => report(error),
    }
    if footer.filter_len > 0 {
        let filter = read(&blocks, footer.filter_offset, footer.filter_len).and_then(|payload| {
            Filter::decode(payload.bytes()).map_err(|damage| blocks.damage(footer.filter_offset, damage))
        });
        if let Err(error) = filter {
            report(error);
        }
    }
    match load_index(file, path, &blocks, &footer) {
        Ok(index) => verify_checksums(&blocks, &index, report),
        Err(error) => report(error),
    }
    if let Err(error) = properties(&blocks, &footer) {
        report(error);
    }
}

fn load_index(
    file: &Arc<dyn RandomAccessFile>,
    path: &Path,
    blocks: &BlockFile,
    footer: &Footer,
) -> Result<Index> {
    // The footer's sections fill the file, so this is no longer than it.
    let len = footer.footer_offset().saturating_sub(footer.filter_offset);
    let mut tail = vec![0; usize::try_from(len).unwrap_or(0)];
    read_exact(&**file, path, footer.filter_offset, &mut tail)?;
    Index::load(blocks, footer, &tail)
}

/// Without properties there is nothing to hold the entries against.
fn verify_checksums(blocks: &BlockFile, index: &Index, report: &mut dyn FnMut(Error)) {
    for number in 0..index.len() {
        let range = index.block(number);
        let len = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        if let Err(error) = blocks.read_block(range.start, len) {
            report(error);
        }
    }
}

fn open_footer(file: &Arc<dyn RandomAccessFile>, path: &Path) -> Result<(Footer, BlockFile)> {
    let file_size = file.len().map_err(|error| Error::io("read the length of", path, error))?;
    if file_size < (HEADER_LEN + FOOTER_LEN) as u64 {
        return Err(Error::corruption(path, 0, format!("{file_size} bytes are too few for a table")));
    }
    let mut bytes = [0; FOOTER_LEN];
    read_exact(&**file, path, file_size - FOOTER_LEN as u64, &mut bytes)?;
    let footer = Footer::decode(&bytes, path, file_size)?;
    let identity = TableIdentity { store_id: footer.store_id, number: footer.number, hash_seed: 0 };
    let blocks = BlockFile::new(Arc::clone(file), path.to_path_buf(), &identity);
    Ok((footer, blocks))
}

fn properties(blocks: &BlockFile, footer: &Footer) -> Result<TableProperties> {
    let at = footer.properties_offset();
    let payload = read(blocks, at, footer.properties_len)?;
    let properties = TableProperties::decode(payload.bytes()).map_err(|damage| blocks.damage(at, damage))?;
    if (properties.store_id, properties.number) != (footer.store_id, footer.number) {
        return Err(blocks.damage(at, Damage("footer and properties disagree about the table's id")));
    }
    Ok(properties)
}

fn read(blocks: &BlockFile, offset: u64, len: u32) -> Result<crate::block_io::Payload> {
    blocks.read(offset, usize::try_from(len).unwrap_or(usize::MAX))
}
