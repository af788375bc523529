//! A look into a manifest for tools: every edit with its place, and every fault, also in a damaged file.
//!
//! Never stops at the first fault: behind one, reading goes on at the next intact record.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

use crate::ManifestState;
use crate::recover::{Edits, decode_record};
use crate::version_edit::VersionEdit;
use esker_base::{Error, FileNumber, Result};
use esker_vfs::Vfs;
use esker_wal::{LogEnd, LogKind, LogReader, Record};
use std::path::Path;

/// What a manifest holds.
#[derive(Clone, Debug)]
pub struct ManifestDump {
    /// The number in the header.
    pub number: FileNumber,
    /// The store id in the header.
    pub store_id: u128,
    /// Length of the file in bytes.
    pub len: u64,
    /// The edits and faults, in the order of the file.
    pub items: Vec<DumpItem>,
    /// What the edits add up to; `None` when a fault leaves that unknown.
    pub state: Option<ManifestState>,
}

/// One thing in a manifest.
#[derive(Clone, Debug)]
pub enum DumpItem {
    /// An edit.
    Edit {
        /// Where its record starts in the file, in bytes.
        offset: u64,
        /// Length of its record in bytes.
        len: u64,
        /// Its number.
        number: u64,
        /// What it changes.
        edit: Box<VersionEdit>,
    },
    /// Bytes that are no record, or an edit that can't be decoded or applied.
    Fault {
        /// Where it starts in the file, in bytes.
        offset: u64,
        /// What is wrong.
        error: Error,
    },
}

impl ManifestDump {
    /// The faults.
    pub fn faults(&self) -> impl Iterator<Item = &Error> {
        self.items.iter().filter_map(|item| match item {
            DumpItem::Fault { error, .. } => Some(error),
            DumpItem::Edit { .. } => None,
        })
    }
}

/// Reads all that can be read of a manifest. Changes nothing.
///
/// # Errors
///
/// `Io` when the file can't be read; `Corruption` or `UnsupportedFormat` when its header is none, because nothing behind
/// it can be believed then. Every other fault is an item.
pub fn dump_manifest(vfs: &dyn Vfs, path: &Path) -> Result<ManifestDump> {
    let (header, mut reader) = LogReader::open(vfs, path, LogKind::Manifest)?;
    let len = reader.limit();
    let mut dumper = Dumper { path, items: Vec::new(), edits: Some(Edits::default()) };
    let end = dumper.run(&mut reader)?;
    let state = dumper.state(end);
    Ok(ManifestDump { number: header.number, store_id: header.store_id, len, items: dumper.items, state })
}

struct Dumper<'a> {
    path: &'a Path,
    items: Vec<DumpItem>,
    /// The replay, until a fault makes it meaningless.
    edits: Option<Edits>,
}

impl Dumper<'_> {
    /// Reads to the end of the file; returns where the records end.
    fn run(&mut self, reader: &mut LogReader) -> Result<LogEnd> {
        loop {
            let step = match reader.next_record() {
                Ok(Some(record)) => {
                    self.record(&record);
                    continue;
                }
                Ok(None) => {
                    let end = reader.end().unwrap_or(LogEnd::Clean { offset: reader.limit(), zeros: 0 });
                    self.end(end);
                    reader.resync().map(|behind| behind.is_none().then_some(end))
                }
                Err(error) => Err(error),
            };
            match step {
                Ok(Some(end)) => return Ok(end),
                // Edits are missing in between.
                Ok(None) => self.edits = None,
                Err(error) if error.io_kind().is_some() => return Err(error),
                Err(error) => {
                    // The reader can't go on.
                    let offset = reader.limit();
                    self.fault(offset, error);
                    self.edits = None;
                    return Ok(LogEnd::Clean { offset, zeros: 0 });
                }
            }
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        let (offset, number) = (record.offset, record.fields.first);
        let edit = match decode_record(record, self.path) {
            Ok(edit) => edit,
            Err(error) => {
                self.edits = None;
                return self.fault(offset, error);
            }
        };
        let added = self.edits.as_mut().map_or(Ok(()), |edits| edits.add(number, offset, &edit, self.path));
        self.items.push(DumpItem::Edit { offset, len: record.len, number, edit: Box::new(edit) });
        if let Err(error) = added {
            self.edits = None;
            self.fault(offset, error);
        }
    }

    fn end(&mut self, end: LogEnd) {
        let what = match end {
            LogEnd::Clean { zeros: 0, .. } => return,
            LogEnd::Clean { zeros, .. } => format!("{zeros} zeros"),
            LogEnd::Faulty { fault, .. } => fault.to_string(),
        };
        self.fault(end.offset(), Error::corruption(self.path, end.offset(), what));
    }

    fn state(&mut self, end: LogEnd) -> Option<ManifestState> {
        match self.edits.take()?.build(self.path, end) {
            Ok(state) => Some(state),
            Err(error) => {
                self.fault(end.offset(), error);
                None
            }
        }
    }

    fn fault(&mut self, offset: u64, error: Error) {
        self.items.push(DumpItem::Fault { offset, error });
    }
}
