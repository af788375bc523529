//! Single tables: built and opened without an engine.

use crate::data::DataSet;
use esker_base::{FileNumber, InternalKeyRef, ValueKind};
use esker_sstable::{
    BlockCache, Compression, OpenTable, TableBuilder, TableIdentity, TableOptions, TableReader, TableSummary,
};
use esker_vfs::{MemVfs, Vfs};
use std::path::Path;
use std::sync::Arc;

/// The seed of the keys' hashes.
pub const HASH_SEED: u64 = 7;

const IDENTITY: TableIdentity = TableIdentity { store_id: 1, number: FileNumber(1), hash_seed: HASH_SEED };

fn path() -> &'static Path {
    Path::new("/000001.sst")
}

/// Options for tables that are compared with the published ones: blocks of 4 KiB, a restart at every 16th entry, 10
/// bits of filter for a key, no compression.
pub fn plain_options() -> TableOptions {
    TableOptions {
        block_size: 4096,
        restart_interval: 16,
        bloom_bits: 10,
        compression: Compression::None,
        ..TableOptions::default()
    }
}

/// Writes the entries of a set, with the sequence numbers from 1 on, to the only file of a new file system.
///
/// # Panics
///
/// When the memory file system or the builder fails, which they do not.
pub fn build(set: &DataSet, options: &TableOptions) -> (MemVfs, TableSummary) {
    let vfs = MemVfs::new();
    let file = vfs.create_new(path()).expect("the file system is empty");
    let mut builder = TableBuilder::new(file, path().into(), options, IDENTITY, 0);
    for ((key, value), seq) in set.entries.iter().zip(1..) {
        builder.add(InternalKeyRef::new(key, seq, ValueKind::Put), value).expect("the keys ascend");
    }
    let finished = builder.finish().expect("memory can be written to");
    (vfs, finished.summary)
}

/// Opens what [`build`] has made, with a cache of its own that holds all of it.
///
/// # Panics
///
/// When the table can't be read.
pub fn open(vfs: &MemVfs) -> Arc<TableReader> {
    let cache = Some(Arc::new(BlockCache::new(64 << 20)));
    let open = OpenTable { identity: Some(IDENTITY), cache, ..OpenTable::default() };
    let file = vfs.open(path()).expect("the table was built");
    TableReader::open(file, path().into(), open).expect("the table is sound")
}
