//! The manifest of esker: which tables make up the database, and the file that records every change of that.
//!
//! The pure half knows no file: [`TableMetadata`], [`Level`] and [`Version`] are the picture that readers and the
//! compaction picker work on, [`VersionEdit`] is a change of it, [`ManifestState`] is what all edits so far add up to.

mod level;
mod state;
mod table_metadata;
mod version;
mod version_builder;
mod version_edit;

pub use level::Level;
pub use state::{KeyspaceState, ManifestState};
pub use table_metadata::TableMetadata;
pub use version::{NUM_LEVELS, TablesFor, Version};
pub use version_edit::{AddedTable, CursorChange, DeletedTable, FORMAT_VERSION, KeyspaceRecord, VersionEdit};
