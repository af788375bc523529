//! [`TableHandle`]: a table file with its reader, opened at first use and kept while any version refers to it.
//!
//! Versions say which tables there are; handles are how they are read. A handle lives in the table sets of the
//! super-versions that show its table, so its count tells when the file can go: see `obsolete`.

use crate::Result;
use crate::memory::Memory;
use esker_base::{Error, FileKind, FileNumber};
use esker_manifest::TableMetadata;
use esker_sstable::{OpenTable, TableIdentity, TableReader};
use esker_vfs::Vfs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// What opening a table needs. One a database.
#[derive(Debug)]
pub(crate) struct TableOpener {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) dir: PathBuf,
    pub(crate) store_id: u128,
    pub(crate) hash_seed: u64,
    pub(crate) memory: Memory,
    pub(crate) verify_reads: bool,
}

impl TableOpener {
    pub(crate) fn identity(&self, number: FileNumber) -> TableIdentity {
        TableIdentity { store_id: self.store_id, number, hash_seed: self.hash_seed }
    }

    pub(crate) fn path(&self, number: FileNumber) -> PathBuf {
        FileKind::Table.path(&self.dir, number)
    }

    fn open(&self, meta: &TableMetadata) -> Result<Arc<TableReader>> {
        let path = self.path(meta.number);
        let file = self.vfs.open(&path).map_err(|error| missing_or_io(&path, error))?;
        TableReader::open(
            file,
            path,
            OpenTable {
                identity: Some(self.identity(meta.number)),
                file_size: Some(meta.file_size),
                tail_size: Some(meta.tail_size),
                cache: Some(Arc::clone(self.memory.cache())),
                verify_reads: self.verify_reads,
            },
        )
    }
}

/// A file that the manifest names and that is gone is damage, not a failing disk.
pub(crate) fn missing_or_io(path: &Path, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::NotFound {
        Error::corruption(path, 0, "the manifest names this file, and it is missing")
    } else {
        Error::io("open", path, error)
    }
}

/// A table of a version, with its reader.
#[derive(Debug)]
pub(crate) struct TableHandle {
    pub(crate) meta: Arc<TableMetadata>,
    opener: Arc<TableOpener>,
    reader: OnceLock<Arc<TableReader>>,
}

impl TableHandle {
    pub(crate) fn new(meta: Arc<TableMetadata>, opener: &Arc<TableOpener>) -> Arc<Self> {
        Arc::new(TableHandle { meta, opener: Arc::clone(opener), reader: OnceLock::new() })
    }

    /// The reader. A failed open is tried again by the next call.
    #[inline]
    pub(crate) fn reader(&self) -> Result<&Arc<TableReader>> {
        match self.reader.get() {
            Some(reader) => Ok(reader),
            None => self.open(),
        }
    }

    #[cold]
    fn open(&self) -> Result<&Arc<TableReader>> {
        let reader = self.opener.open(&self.meta)?;
        let mut first = false;
        // Another thread may have opened it meanwhile; then its reader stays and ours goes.
        let kept = self.reader.get_or_init(|| {
            first = true;
            reader
        });
        if first {
            self.opener.memory.add_table(kept.memory());
        }
        Ok(kept)
    }
}

impl Drop for TableHandle {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.get() {
            self.opener.memory.remove_table(reader.memory());
        }
    }
}
