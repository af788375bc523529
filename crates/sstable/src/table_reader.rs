//! [`TableReader`]: an open table. Serves lookups and iterators from any number of threads; never changes.
//!
//! Filter and index stay in memory; data blocks are read when needed, verified, and kept in a [`BlockCache`] if there
//! is one. Whatever the bytes of the file are, every call returns the right answer or an error.

use crate::block::{Block, Damage};
use crate::block_io::BlockFile;
use crate::cache::{BlockCache, CachedBlock, Form, Slots};
use crate::filter::Filter;
use crate::format::{Footer, TableIdentity};
use crate::index::Index;
use crate::properties::TableProperties;
use crate::readahead::{MAX_LEN, Readahead};
use crate::scratch::Scratch;
use crate::table_iterator::TableIterator;
use crate::table_tail::{read_filter, read_properties, read_tail};
use arc_swap::Guard;
use esker_base::{Error, InternalKeyRef, Result, planted};
use esker_vfs::RandomAccessFile;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Longer stored blocks hold one large value, and are read to where they stay.
const SMALL: usize = 32 << 10;

/// What is known about a table before it is opened, and how to read it.
#[derive(Clone, Debug, Default)]
pub struct OpenTable {
    /// Which table it must be; anything else is corruption. `None` takes any.
    pub identity: Option<TableIdentity>,
    /// How long the file must be.
    pub file_size: Option<u64>,
    /// How long everything behind the data blocks is. With it, one read opens the table.
    pub tail_size: Option<u64>,
    /// Where data blocks are kept.
    pub cache: Option<Arc<BlockCache>>,
    /// Checks cached blocks again each time they are used, against faults of the memory. Costs a few hundred
    /// nanoseconds for each block.
    pub verify_reads: bool,
}

/// An open table.
#[derive(Debug)]
pub struct TableReader {
    pub(crate) blocks: BlockFile,
    pub(crate) footer: Footer,
    pub(crate) properties: TableProperties,
    pub(crate) index: Index,
    pub(crate) filter: Option<Filter>,
    /// Why the filter cannot be used, if it cannot. Lookups then go without.
    pub(crate) filter_fault: Option<Error>,
    pub(crate) file_size: u64,
    /// The blocks that are in the cache.
    pub(crate) slots: Option<Arc<Slots>>,
    pub(crate) verify_reads: bool,
}

impl TableReader {
    /// Opens a table. `path` is for error messages.
    ///
    /// Fails with `Corruption` when the file is damaged or is another one than expected, with `UnsupportedFormat` when a
    /// newer build wrote it, with `Io` when it cannot be read. A damaged filter is no failure: see
    /// [`filter_fault`](Self::filter_fault).
    pub fn open(file: Arc<dyn RandomAccessFile>, path: PathBuf, open: OpenTable) -> Result<Arc<Self>> {
        // As with data blocks: what does not match is read once more.
        let first = Self::load(&file, &path, &open);
        let doubtful = match &first {
            Ok(table) => table.filter_fault.is_some(),
            Err(error) => error.is_corruption(),
        };
        let table = if doubtful { Self::load(&file, &path, &open).or(first) } else { first }?;
        Ok(Arc::new(table))
    }

    fn load(file: &Arc<dyn RandomAccessFile>, path: &Path, open: &OpenTable) -> Result<Self> {
        let file_size = file.len().map_err(|error| Error::io("read the length of", path, error))?;
        if let Some(expected) = open.file_size
            && expected != file_size
        {
            return Err(Error::corruption(path, 0, format!("{file_size} bytes long, expected {expected}")));
        }
        let (footer, tail) = read_tail(&**file, path, file_size, open.tail_size)?;
        let identity = open.identity;
        if let Some(expected) = identity
            && (expected.store_id, expected.number) != (footer.store_id, footer.number)
        {
            let what = format!(
                "this is table {} of store {:032x}, expected {} of {:032x}",
                footer.number, footer.store_id, expected.number, expected.store_id
            );
            return Err(Error::corruption(path, footer.footer_offset(), what));
        }
        let own = TableIdentity { store_id: footer.store_id, number: footer.number, hash_seed: 0 };
        let blocks = BlockFile::new(Arc::clone(file), path.to_path_buf(), &own);
        let properties = read_properties(&blocks, &footer, &tail, identity)?;
        let index = Index::load(&blocks, &footer, &tail)?;
        if index.len() as u64 != properties.data_blocks {
            let damage = Damage("index and properties disagree about the number of data blocks");
            return Err(blocks.damage(footer.index_offset(), damage));
        }
        let (filter, filter_fault) = match read_filter(&blocks, &footer, &tail) {
            Ok(filter) => (filter, None),
            Err(error) => (None, Some(error)),
        };
        let slots = open.cache.as_ref().map(|cache| Slots::new(cache, index.len()));
        Ok(TableReader {
            blocks,
            footer,
            properties,
            index,
            filter,
            filter_fault,
            file_size,
            slots,
            verify_reads: open.verify_reads,
        })
    }

    /// Whether a key with this hash may be in the table. Never false for one that is.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        if planted::is(planted::Fault::FilterAlwaysNo) {
            return self.filter.is_none();
        }
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// A new iterator over the table, not positioned. Blocks that it reads are kept in the cache if `fill_cache`.
    pub fn iter(self: &Arc<Self>, fill_cache: bool) -> TableIterator {
        TableIterator::new(Arc::clone(self), (!fill_cache).then_some(MAX_LEN))
    }

    /// A new iterator for one pass over the table: leaves the cache alone, and reads at most `readahead` bytes ahead
    /// (16 KiB at least).
    pub fn iter_once(self: &Arc<Self>, readahead: usize) -> TableIterator {
        TableIterator::new(Arc::clone(self), Some(readahead))
    }

    /// What the table says about itself.
    pub fn properties(&self) -> &TableProperties {
        &self.properties
    }

    /// The footer.
    pub fn footer(&self) -> &Footer {
        &self.footer
    }

    /// Length of the file in bytes.
    pub fn file_size(&self) -> u64 {
        self.file_size
    }

    /// The path that the table was opened with.
    pub fn path(&self) -> &Path {
        self.blocks.path()
    }

    /// Number of data blocks.
    pub fn block_count(&self) -> usize {
        self.index.len()
    }

    /// Why the filter cannot be used, if it is damaged. Lookups then go without it, slower and right.
    pub fn filter_fault(&self) -> Option<&Error> {
        self.filter_fault.as_ref()
    }

    /// Bytes that the open table keeps in memory beside cached blocks, about.
    pub fn memory(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |filter| 8 * filter.words().len());
        let slots = self.slots.as_ref().map_or(0, |slots| slots.memory());
        filter + self.index.memory() + slots + size_of::<Self>()
    }

    /// About where in the file `user_key` is, in bytes: the start of the data block that may hold it, or the end of the
    /// data when it is behind all keys.
    pub fn approximate_offset(&self, user_key: &[u8]) -> u64 {
        match self.index.find(InternalKeyRef::before(user_key)) {
            Ok(Some(number)) => self.index.block(number).start,
            _ => self.footer.filter_offset,
        }
    }

    /// Drops the table's blocks from the cache: for tables that nobody will read again.
    pub fn evict(&self) {
        if let Some(slots) = &self.slots {
            slots.remove_all();
        }
    }

    /// Lends data block `number`, from the cache or the file; it is in the cache afterwards.
    #[inline]
    pub(crate) fn with_block<R>(&self, number: usize, read: impl FnOnce(&CachedBlock) -> R) -> Result<R> {
        let cached = self.slots.as_ref().and_then(|slots| slots.look(number));
        match cached.as_deref().and_then(Option::as_deref) {
            Some(block) if !self.verify_reads || block.is_intact() => {
                block.hit();
                Ok(read(block))
            }
            block => Ok(read(&*self.fetch(number, block.is_some())?)),
        }
    }

    /// Reads data block `number` into the cache, because it is not there, or because what is there has changed.
    #[cold]
    pub(crate) fn fetch(&self, number: usize, changed: bool) -> Result<Arc<CachedBlock>> {
        let Some(slots) = &self.slots else { return self.uncached(number) };
        if changed {
            slots.heal(number);
        } else {
            slots.missed();
        }
        if !slots.keeps() {
            return self.uncached(number);
        }
        let block = Arc::new(self.load_block(number)?);
        slots.insert(number, Arc::clone(&block));
        Ok(block)
    }

    /// Data block `number` from the file, to be kept.
    fn load_block(&self, number: usize) -> Result<CachedBlock> {
        let (start, len) = self.stored_at(number)?;
        if len > SMALL {
            return Ok(CachedBlock::whole(self.read_block(number)?, self.verify_reads));
        }
        Scratch::with(|scratch| {
            let payload = self.blocks.read_into(start, len, &mut scratch.buffers)?;
            let seed = self.properties.hash_seed;
            let block = CachedBlock::new(payload, seed, self.verify_reads, &mut scratch.bench);
            let block = block.map_err(|damage| self.blocks.damage(start, damage))?;
            match &block.form {
                Form::Block(block) if block.entry_count() == 0 => Err(self.empty(start)),
                _ => Ok(block),
            }
        })
    }

    /// Data block `number` from the file, to be used once.
    fn uncached(&self, number: usize) -> Result<Arc<CachedBlock>> {
        Ok(Arc::new(CachedBlock::plain(self.read_block(number)?)))
    }

    /// Data block `number` for a reader that goes through the table once: leaves no trace in the cache.
    pub(crate) fn block_once(&self, number: usize, readahead: &mut Readahead) -> Result<Arc<CachedBlock>> {
        let range = self.index.block(number);
        let cached = self.slots.as_ref().and_then(|slots| slots.look(number));
        if let Some(block) = cached.and_then(Guard::into_inner)
            && (!self.verify_reads || block.is_intact())
        {
            return Ok(block);
        }
        let start = range.start;
        let block = readahead.block(&self.blocks, range, self.footer.filter_offset)?;
        Ok(Arc::new(CachedBlock::plain(self.not_empty(start, block)?)))
    }

    /// Data block `number` from the file.
    pub(crate) fn read_block(&self, number: usize) -> Result<Block> {
        let (start, len) = self.stored_at(number)?;
        self.not_empty(start, self.blocks.read_block(start, len)?)
    }

    /// Where data block `number` is stored, and how long it is there.
    fn stored_at(&self, number: usize) -> Result<(u64, usize)> {
        let range = self.index.block(number);
        let len = usize::try_from(range.end - range.start);
        let beyond = |_| self.blocks.damage(range.start, Damage("block beyond the size limit"));
        Ok((range.start, len.map_err(beyond)?))
    }

    fn not_empty(&self, offset: u64, block: Block) -> Result<Block> {
        match block.entry_count() {
            0 => Err(self.empty(offset)),
            _ => Ok(block),
        }
    }

    #[cold]
    fn empty(&self, offset: u64) -> Error {
        self.blocks.damage(offset, Damage("data block without entries"))
    }

    /// The error for damage in data block `number`.
    #[cold]
    pub(crate) fn block_damage(&self, number: usize, damage: Damage) -> Error {
        self.blocks.damage(self.index.block(number).start, damage)
    }

    /// The error for damage in the index.
    #[cold]
    pub(crate) fn index_damage(&self, damage: Damage) -> Error {
        self.blocks.damage(self.footer.index_offset(), damage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{TableBuilder, TableOptions};
    use esker_base::{FileNumber, Lookup, MAX_SEQUENCE, ValueKind, key_hash};
    use esker_vfs::{MemVfs, Vfs};

    /// A block that changed in memory is dropped and read anew, by a table that verifies its reads.
    ///
    /// Fails when the seal of a cached block is not looked at.
    #[test]
    fn a_scribbled_block_heals() {
        let (vfs, path) = (MemVfs::new(), Path::new("/000001.sst"));
        let identity = TableIdentity { store_id: 1, number: FileNumber(1), hash_seed: 7 };
        let file = vfs.create_new(path).unwrap();
        let mut builder = TableBuilder::new(file, path.into(), &TableOptions::default(), identity, 0);
        builder.add(InternalKeyRef::new(b"key", 3, ValueKind::Put), b"value").unwrap();
        builder.finish().unwrap();
        for verify_reads in [true, false] {
            let cache = Arc::new(BlockCache::new(1 << 20));
            let open = OpenTable { cache: Some(Arc::clone(&cache)), verify_reads, ..OpenTable::default() };
            let table = TableReader::open(vfs.open(path).unwrap(), path.into(), open).unwrap();
            let lookup = Lookup { user_key: b"key", hash: key_hash(7, b"key"), seq: MAX_SEQUENCE };
            assert_eq!(table.get(&lookup).unwrap().unwrap().value, b"value");

            let slots = table.slots.as_ref().unwrap();
            let image = |number| {
                let form = table.with_block(number, |block| block.form.clone()).unwrap();
                let Form::Image(image) = form else { panic!("no image") };
                image
            };
            slots.insert(0, Arc::new(CachedBlock::of(Form::Image(image(0).scribbled()))));
            let found = table.get(&lookup).unwrap().unwrap().value;
            assert_eq!(found == b"value", verify_reads, "{found:?}");
            assert_eq!(cache.stats().heals, u64::from(verify_reads));
            assert!(image(0).is_intact());
        }
    }
}
