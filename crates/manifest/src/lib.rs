//! The manifest of esker: which tables make up the database, and the file that records every change of that.
//!
//! The pure half knows no file: [`TableMetadata`], [`Level`] and [`Version`] are the picture that readers and the
//! compaction picker work on, [`VersionEdit`] is a change of it, [`ManifestState`] is what all edits so far add up to.
//!
//! The durable half: [`ManifestWriter`] logs edits, [`recover`] replays them, [`Current`] is the small file that names the
//! manifest that counts, [`dump_manifest`] shows a file to people. The bytes are described in `docs/format/manifest.md`.

mod current;
mod dump;
mod level;
mod recover;
mod state;
mod table_metadata;
mod version;
mod version_builder;
mod version_edit;
mod writer;

pub use current::{Current, ManifestEnd};
pub use dump::{DumpItem, ManifestDump, dump_manifest};
pub use level::Level;
pub use recover::{Recovered, Recovery, TornTail, recover};
pub use state::{KeyspaceState, ManifestState};
pub use table_metadata::TableMetadata;
pub use version::{NUM_LEVELS, TablesFor, Version};
pub use version_edit::{AddedTable, CursorChange, DeletedTable, FORMAT_VERSION, KeyspaceRecord, VersionEdit};
pub use writer::{CreateError, ManifestWriter};
