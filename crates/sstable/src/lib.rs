//! The sorted string table of esker, format version 3: builder, reader, iterator, cache.
//!
//! A table is an immutable file of versions of keys in the order of [`InternalKeyRef`](esker_base::InternalKeyRef).
//! [`TableBuilder`] writes one from front to back; [`TableReader`] serves lookups and iterators from any number of
//! threads; [`BlockCache`] keeps blocks that were read. The bytes are described in `docs/format/sstable.md` and drawn
//! beside their encoders here.
//!
//! ```
//! use esker_base::{FileNumber, InternalKeyRef, Lookup, ValueKind, key_hash};
//! use esker_sstable::{OpenTable, TableBuilder, TableIdentity, TableOptions, TableReader};
//! use esker_vfs::{MemVfs, Vfs};
//! use std::path::Path;
//!
//! # fn main() -> esker_base::Result<()> {
//! let vfs = MemVfs::new();
//! let path = Path::new("/000001.sst");
//! let identity = TableIdentity { store_id: 1, number: FileNumber(1), hash_seed: 7 };
//! let file = vfs.create_new(path).unwrap();
//! let mut builder = TableBuilder::new(file, path.into(), &TableOptions::default(), identity, 0);
//! builder.add(InternalKeyRef::new(b"ice", 3, ValueKind::Put), b"melts")?;
//! let finished = builder.finish()?;
//! assert_eq!(finished.summary.entries, 1);
//!
//! let open = OpenTable { identity: Some(identity), ..OpenTable::default() };
//! let table = TableReader::open(vfs.open(path).unwrap(), path.into(), open)?;
//! let lookup = Lookup { user_key: b"ice", hash: key_hash(7, b"ice"), seq: 10 };
//! assert_eq!(table.get(&lookup)?.unwrap().value, b"melts");
//! # Ok(())
//! # }
//! ```

mod block;
mod block_builder;
mod block_cursor;
mod block_io;
mod block_run;
mod cache;
mod columns;
mod compression;
mod dump;
mod entry;
mod filter;
mod format;
mod image;
mod image_builder;
mod image_cursor;
mod index;
mod index_builder;
mod inspect;
mod options;
mod probe;
mod properties;
mod readahead;
mod salvage;
mod scratch;
mod separator;
mod table_builder;
mod table_iterator;
mod table_reader;
mod table_tail;
mod verify;

pub use block_run::{BlockRun, RunLimits};
pub use cache::{BlockCache, CacheStats};
pub use columns::{RunColumns, RunKeys};
pub use dump::{BlockDump, EntryDump, FilterDump, IndexEntryDump, Section};
pub use format::{FOOTER_LEN, Footer, HEADER_LEN, TableIdentity, VERSION};
pub use inspect::{read_table_footer, read_table_properties, verify_table};
pub use options::{Compression, TableOptions};
pub use probe::{Found, Probe};
pub use properties::TableProperties;
pub use salvage::{StoredBlock, StoredBlocks};
pub use table_builder::{FinishedTable, TableBuilder, TableSummary};
pub use table_iterator::TableIterator;
pub use table_reader::{OpenTable, TableReader};
