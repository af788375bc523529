//! [`StoredBlocks`]: the blocks of a table whose footer or index may be lost, read wherever a tool believes one to be.
//!
//! A checksum covers the table's id and the block's offset, so a stretch of bytes that matches is a block of this table at
//! this place, whoever found it.

use crate::block::{Block, Damage};
use crate::block_cursor::BlockCursor;
use crate::block_io::BlockFile;
use crate::dump::{BlockDump, EntryDump, dump_block};
use crate::filter::Filter;
use crate::format::TableIdentity;
use crate::properties::TableProperties;
use esker_base::{FileNumber, Result, ValueKind};
use esker_vfs::RandomAccessFile;
use std::path::PathBuf;
use std::sync::Arc;

/// What a stored block is, by its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredBlock {
    /// Entries of users; or a partition of the index that is not its last one, which may look the same.
    Data,
    /// The index, its upper level, or its last partition: they end with a tombstone that has a value, as no data block does.
    Index,
    /// The filter.
    Filter,
    /// The properties.
    Properties(Box<TableProperties>),
}

/// Access to the stored blocks of one table, without footer and index.
#[derive(Debug)]
pub struct StoredBlocks(BlockFile);

impl StoredBlocks {
    /// Fewest bytes that a stored data block can have.
    pub const LEN_MIN: u64 = 12;

    /// The blocks of this table. `path` is for error messages.
    pub fn new(
        file: Arc<dyn RandomAccessFile>,
        path: PathBuf,
        store_id: u128,
        number: FileNumber,
    ) -> StoredBlocks {
        let identity = TableIdentity { store_id, number, hash_seed: 0 };
        StoredBlocks(BlockFile::new(file, path, &identity))
    }

    /// What the block is that is stored at `offset` with `len` bytes, trailer included. All of it is checked.
    ///
    /// # Errors
    ///
    /// `Corruption` when there is none, `UnsupportedFormat` for a compression that this build does not know, `Io`.
    pub fn classify(&self, offset: u64, len: u64) -> Result<StoredBlock> {
        let payload = self.0.read(offset, usize::try_from(len).unwrap_or(usize::MAX))?;
        let damage = |damage| self.0.damage(offset, damage);
        if let Ok(properties) = TableProperties::decode(payload.bytes()) {
            return Ok(StoredBlock::Properties(Box::new(properties)));
        }
        if let Ok(Some(_)) = Filter::decode(payload.bytes()) {
            return Ok(StoredBlock::Filter);
        }
        let block = Block::parse(payload.data, payload.len).map_err(damage)?;
        is_index(block)
            .map(|index| if index { StoredBlock::Index } else { StoredBlock::Data })
            .map_err(damage)
    }

    /// Shows each entry of the block of entries that is stored at `offset` with `len` bytes, trailer included. The
    /// `number` in the answer is 0.
    ///
    /// # Errors
    ///
    /// As [`classify`](Self::classify); some entries may have been shown before.
    pub fn entries(&self, offset: u64, len: u64, visit: &mut dyn FnMut(EntryDump<'_>)) -> Result<BlockDump> {
        dump_block(&self.0, 0, offset..offset.saturating_add(len), visit)
    }
}

/// Walks over a block; whether it is one of the index.
fn is_index(block: Block) -> Result<bool, Damage> {
    let claimed = block.entry_count();
    let mut cursor = BlockCursor::new();
    cursor.set_block(Some(block));
    cursor.seek_to_first()?;
    let (mut entries, mut is_index) = (0, claimed == 0);
    while cursor.valid() {
        entries += 1;
        is_index |= cursor.key().kind == ValueKind::Delete && !cursor.value().is_empty();
        cursor.next()?;
    }
    if entries == claimed { Ok(is_index) } else { Err(Damage("block with a wrong number of entries")) }
}
