//! Building and opening tables in memory.

use esker_base::{
    FileNumber, InternalIterator, InternalKey, InternalKeyRef, Lookup, Result, SplitMix64, ValueKind,
    key_hash,
};
use esker_sstable::{
    Compression, OpenTable, TableBuilder, TableIdentity, TableOptions, TableReader, TableSummary,
};
use esker_vfs::{MemVfs, Vfs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const SEED: u64 = 0x5eed;
pub const PATH: &str = "/db/000007.sst";

pub type Entry = (InternalKey, Vec<u8>);

pub fn identity() -> TableIdentity {
    TableIdentity {
        store_id: 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210,
        number: FileNumber(7),
        hash_seed: SEED,
    }
}

pub fn plain() -> TableOptions {
    TableOptions { compression: Compression::None, ..TableOptions::default() }
}

/// Small blocks and partitions, so that few entries make many of them.
pub fn tiny(restart_interval: usize) -> TableOptions {
    TableOptions { block_size: 256, restart_interval, index_partition_size: 128, ..TableOptions::default() }
}

/// A table of these entries, as bytes.
pub fn build(options: &TableOptions, entries: &[Entry]) -> (Vec<u8>, TableSummary) {
    build_as(options, identity(), entries)
}

pub fn build_as(
    options: &TableOptions,
    identity: TableIdentity,
    entries: &[Entry],
) -> (Vec<u8>, TableSummary) {
    let vfs = MemVfs::new();
    vfs.create_dir_all(Path::new("/db")).unwrap();
    let file = vfs.create_new(Path::new(PATH)).unwrap();
    let mut builder = TableBuilder::new(file, PathBuf::from(PATH), options, identity, 1_700_000_000_000);
    for (key, value) in entries {
        builder.add(key.as_ref(), value).unwrap();
    }
    assert_eq!(builder.entries(), entries.len() as u64);
    let estimated = builder.estimated_size();
    let finished = builder.finish().unwrap();
    let bytes = vfs.read_file(PATH).unwrap();
    assert_eq!(bytes.len() as u64, finished.summary.file_size);
    assert_eq!(finished.file.len(), finished.summary.file_size);
    assert!(estimated <= 2 * bytes.len() as u64 && bytes.len() as u64 <= 2 * estimated + 1000, "{estimated}");
    (bytes, finished.summary)
}

/// Opens these bytes as a table.
pub fn open_with(bytes: &[u8], open: OpenTable) -> Result<Arc<TableReader>> {
    let vfs = MemVfs::new();
    vfs.write_file(PATH, bytes).unwrap();
    TableReader::open(vfs.open(Path::new(PATH)).unwrap(), PathBuf::from(PATH), open)
}

pub fn open(bytes: &[u8]) -> Result<Arc<TableReader>> {
    open_with(bytes, OpenTable { identity: Some(identity()), ..OpenTable::default() })
}

pub fn lookup(user_key: &[u8], seq: u64) -> Lookup<'_> {
    Lookup { user_key, hash: key_hash(SEED, user_key), seq }
}

pub fn put(key: impl Into<Vec<u8>>, seq: u64, value: impl Into<Vec<u8>>) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Put), value.into())
}

pub fn delete(key: impl Into<Vec<u8>>, seq: u64) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Delete), Vec::new())
}

/// The entry where an iterator stands.
pub fn here(iter: &impl InternalIterator) -> Option<Entry> {
    iter.valid().then(|| {
        let slice = iter.value_slice();
        assert_eq!(slice, iter.value());
        (iter.key().to_owned(), slice.to_vec())
    })
}

/// All entries, forward.
pub fn all(table: &Arc<TableReader>) -> Result<Vec<Entry>> {
    let mut iter = table.iter(true);
    let mut entries = Vec::new();
    iter.seek_to_first()?;
    while let Some(entry) = here(&iter) {
        entries.push(entry);
        iter.next()?;
    }
    Ok(entries)
}

/// What a lookup must find.
pub fn expected<'a>(entries: &'a [Entry], user_key: &[u8], seq: u64) -> Option<&'a Entry> {
    let target = InternalKeyRef::seek_to(user_key, seq);
    let at = entries.partition_point(|(key, _)| key.as_ref() < target);
    entries.get(at).filter(|(key, _)| key.user_key == user_key)
}

pub fn random_bytes(rng: &mut SplitMix64, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}
