//! Inspection of the files of an esker database: what the command `sst-dump` prints, as a library.
//!
//! Each command is a function of the same name. Small answers come as a value that can be shown (`Display`) or serialised;
//! long ones are handed out piece by piece, so that memory stays bounded. Works with the decoders of the formats alone,
//! never with the engine: also on a database that does not open. Takes no lock, follows no link that a directory listing
//! names, opens regular files only, and writes nothing; but for `salvage`, which writes one new file.
//!
//! | command | function | what |
//! |---|---|---|
//! | `info` | [`info`] | one screen about a file |
//! | `layout` | [`layout`] | the sections of a file |
//! | `scan` | [`scan`] | the entries of a table |
//! | `verify` | [`verify`] | everything that is wrong with files and directories |
//! | `manifest` | [`manifest`] | edits, and what they add up to |
//! | `wal` | [`wal`] | the records of a log segment |
//! | `db` | [`db`] | the tree of a directory |
//! | `salvage` | [`salvage()`] | a new table of what can be read of a damaged one |
//!
//! ```
//! use esker_sst_dump::{VerifyEvent, verify};
//! use esker_vfs::OsVfs;
//!
//! let mut faults = Vec::new();
//! let exit = verify(&OsVfs::new(), &["no such file"], &mut |event| {
//!     if let VerifyEvent::Fault(fault) = event {
//!         faults.push(fault.to_string());
//!     }
//!     Ok(())
//! });
//! assert_eq!(exit.unwrap().code(), 3);
//! assert_eq!(faults, ["io: no such file: there is no such file or directory"]);
//! ```

mod block_search;
mod db;
mod fault;
mod info;
mod json;
mod layout;
mod log_info;
mod log_ops;
mod manifest;
mod picture;
mod salvage;
mod salvage_plan;
mod salvage_report;
mod salvage_scan;
mod scan;
mod state_info;
mod store;
mod table_info;
mod target;
mod text;
mod verify;
mod verify_directory;
mod wal;

pub use db::{DbReport, LogLine, UnnamedTable, db};
pub use fault::{Class, Exit, Failure, Fault};
pub use info::{CurrentInfo, FileInfo, info};
pub use json::JsonDocument;
pub use layout::{LayoutSection, LayoutSummary, layout};
pub use log_info::LogInfo;
pub use log_ops::{Op, Ops};
pub use manifest::{EditInfo, ManifestItem, ManifestReport, manifest};
pub use picture::{Picture, PictureKeyspace};
pub use salvage::{SalvageOptions, salvage};
pub use salvage_report::{KeyBound, LostRange, SalvageReport};
pub use scan::{ScanOptions, ScanSummary, scan};
pub use state_info::{KeyspaceState, LevelState, StateInfo, TableLine};
pub use store::ForeignEntry;
pub use table_info::{FilterInfo, Part, TableInfo};
pub use target::{Kind, Target, is_directory};
pub use text::{Form, Safe, Shown, parse_key};
pub use verify::{CheckedFile, VerifyEvent, verify};
pub use wal::{Ending, LogEnding, LogItem, wal, wal_files};
