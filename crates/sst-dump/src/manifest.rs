//! `manifest`: the edits of a manifest one by one, and what they add up to. Goes on behind damage.

use crate::fault::{Class, Failure, Fault, name};
use crate::info::read_current;
use crate::picture::Picture;
use crate::state_info::TableLine;
use crate::store::dump_faults;
use crate::table_info::shown;
use crate::target::{Kind, Target, is_directory};
use crate::text::{Form, Safe};
use esker_base::{FileKind, FileNumber};
use esker_manifest::{AddedTable, DumpItem, ManifestDump, VersionEdit, dump_manifest};
use esker_vfs::{EntryKind, Vfs};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// A manifest as it was read.
#[derive(Clone, Debug)]
pub struct ManifestReport {
    /// Its path.
    pub path: PathBuf,
    /// Its edits and faults.
    pub dump: ManifestDump,
    /// What the edits add up to.
    pub picture: Picture,
    /// What is wrong besides the faults in `dump`.
    pub faults: Vec<Fault>,
}

/// Reads a manifest. Of a directory, the one that `CURRENT` names; when `CURRENT` can't be read, the newest.
///
/// # Errors
///
/// When there is none, when it can't be read, or when its header is damaged.
pub fn manifest(vfs: &dyn Vfs, path: &Path) -> Result<ManifestReport, Failure> {
    let mut faults = Vec::new();
    let path = match is_directory(vfs, path)? {
        true => find_manifest(vfs, path, &mut faults)?,
        false => path.to_path_buf(),
    };
    let target = Target::open_kind(vfs, &path, Kind::Manifest, "`info` shows the others")?;
    let dump = dump_manifest(vfs, &path)?;
    if target.number.is_some_and(|number| number != dump.number) {
        faults.push(Fault::damage(&path, 0, format!("the header is that of number {}", dump.number)));
    }
    let picture = Picture::new(&dump);
    Ok(ManifestReport { path, dump, picture, faults })
}

fn find_manifest(vfs: &dyn Vfs, dir: &Path, faults: &mut Vec<Fault>) -> Result<PathBuf, Failure> {
    let current = FileKind::Current.path(dir, FileNumber(0));
    match Target::open(vfs, &current).and_then(|target| read_current(&target)) {
        Ok(current) => return Ok(FileKind::Manifest.path(dir, current.manifest)),
        Err(fault) => faults.push(fault),
    }
    let entries = vfs.list(dir).map_err(|error| esker_base::Error::io("list", dir, error))?;
    let newest = entries
        .iter()
        .filter(|entry| entry.kind == EntryKind::File)
        .filter_map(|entry| esker_base::parse_file_name(&entry.name))
        .filter(|(kind, _)| *kind == FileKind::Manifest)
        .map(|(_, number)| number)
        .max();
    match (newest, faults.pop()) {
        (Some(number), fault) => {
            faults.extend(fault);
            Ok(FileKind::Manifest.path(dir, number))
        }
        (None, Some(fault)) => Err(fault.into()),
        (None, None) => Err(Fault::of(Class::Io, dir, "there is no manifest").into()),
    }
}

impl ManifestReport {
    /// The edits and faults, in the order of the file.
    pub fn items(&self, form: Form) -> impl Iterator<Item = ManifestItem> {
        self.dump.items.iter().map(move |item| match item {
            DumpItem::Edit { offset, len, number, edit } => ManifestItem::Edit {
                offset: *offset,
                length: *len,
                number: *number,
                edit: Box::new(EditInfo::new(edit, form)),
            },
            DumpItem::Fault { error, .. } => ManifestItem::Fault(error.into()),
        })
    }

    /// The path as text.
    pub fn file(&self) -> String {
        name(&self.path)
    }

    /// All faults. The end of the last edit is only doubtful when nothing intact is behind it.
    pub fn all_faults(&self) -> impl Iterator<Item = Fault> {
        dump_faults(&self.dump).into_iter().chain(self.faults.iter().cloned())
    }
}

/// One thing in a manifest.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum ManifestItem {
    /// An edit.
    Edit {
        /// Where its record starts, in bytes.
        offset: u64,
        /// The record's length in bytes.
        length: u64,
        /// Its number.
        number: u64,
        /// What it changes.
        edit: Box<EditInfo>,
    },
    /// Something wrong.
    Fault(Fault),
}

/// What an edit changes. Fields without a change are left out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EditInfo {
    #[serde(skip_serializing_if = "Option::is_none")]
    format_version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comparator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    store_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_seed: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    keyspaces: Vec<KeyspaceInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_file: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durable_sequence: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    log_numbers: Vec<LogNumberInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deleted: Vec<DeletedInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    added: Vec<AddedInfo>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cursors: Vec<CursorInfo>,
}

#[derive(Clone, Debug, Serialize)]
struct KeyspaceInfo {
    id: u32,
    name: String,
    option_bytes: usize,
}

#[derive(Clone, Debug, Serialize)]
struct LogNumberInfo {
    keyspace: u32,
    number: u64,
}

#[derive(Clone, Debug, Serialize)]
struct DeletedInfo {
    keyspace: u32,
    level: usize,
    number: u64,
}

#[derive(Clone, Debug, Serialize)]
struct AddedInfo {
    keyspace: u32,
    level: usize,
    #[serde(flatten)]
    table: TableLine,
}

#[derive(Clone, Debug, Serialize)]
struct CursorInfo {
    keyspace: u32,
    level: usize,
    user_key: Option<String>,
}

impl EditInfo {
    fn new(edit: &VersionEdit, form: Form) -> Self {
        let added = |added: &AddedTable| AddedInfo {
            keyspace: added.keyspace,
            level: added.level,
            table: TableLine::from_metadata(&added.table, form),
        };
        EditInfo {
            format_version: edit.format_version,
            comparator: edit.comparator.clone(),
            store_id: edit.store_id.map(|id| format!("{id:032x}")),
            hash_seed: edit.hash_seed.map(|seed| format!("{seed:016x}")),
            keyspaces: (edit.keyspaces.iter())
                .map(|record| KeyspaceInfo {
                    id: record.id,
                    name: record.name.clone(),
                    option_bytes: record.options.len(),
                })
                .collect(),
            next_file: edit.next_file.map(|number| number.0),
            last_sequence: edit.last_sequence,
            durable_sequence: edit.durable_sequence,
            log_numbers: (edit.log_numbers.iter())
                .map(|&(keyspace, number)| LogNumberInfo { keyspace, number: number.0 })
                .collect(),
            deleted: (edit.deleted.iter())
                .map(|table| DeletedInfo {
                    keyspace: table.keyspace,
                    level: table.level,
                    number: table.number.0,
                })
                .collect(),
            added: edit.added.iter().map(added).collect(),
            cursors: (edit.cursors.iter())
                .map(|cursor| CursorInfo {
                    keyspace: cursor.keyspace,
                    level: cursor.level,
                    user_key: cursor.user_key.as_ref().map(|key| shown(key, form)),
                })
                .collect(),
        }
    }
}

/// The edit with one line for each change; each ends with a line break.
impl fmt::Display for ManifestItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, length, number, edit) = match self {
            ManifestItem::Edit { offset, length, number, edit } => (offset, length, number, edit),
            ManifestItem::Fault(fault) => return writeln!(f, "{fault}"),
        };
        writeln!(f, "{offset:>10}  edit {number} of {length} bytes")?;
        let mut line = |text: fmt::Arguments<'_>| writeln!(f, "{:>14}{text}", "");
        let numbers = [
            ("format version", edit.format_version),
            ("next file", edit.next_file),
            ("last sequence", edit.last_sequence),
            ("durable sequence", edit.durable_sequence),
        ];
        if let Some(id) = &edit.store_id {
            line(format_args!("store {id}"))?;
        }
        if let Some(comparator) = &edit.comparator {
            line(format_args!("comparator {}", Safe(comparator)))?;
        }
        if let Some(seed) = &edit.hash_seed {
            line(format_args!("hash seed {seed}"))?;
        }
        for (name, number) in numbers {
            if let Some(number) = number {
                line(format_args!("{name} {number}"))?;
            }
        }
        for KeyspaceInfo { id, name, option_bytes } in &edit.keyspaces {
            line(format_args!("keyspace {id} \"{}\", {option_bytes} bytes of options", Safe(name)))?;
        }
        for LogNumberInfo { keyspace, number } in &edit.log_numbers {
            line(format_args!("log from {} for keyspace {keyspace}", FileNumber(*number)))?;
        }
        for DeletedInfo { keyspace, level, number } in &edit.deleted {
            line(format_args!("- {keyspace}/L{level} {}", FileKind::Table.name(FileNumber(*number))))?;
        }
        for AddedInfo { keyspace, level, table } in &edit.added {
            line(format_args!("+ {keyspace}/L{level} {table}"))?;
        }
        for CursorInfo { keyspace, level, user_key } in &edit.cursors {
            match user_key {
                Some(key) => line(format_args!("cursor {keyspace}/L{level} \"{key}\""))?,
                None => line(format_args!("cursor {keyspace}/L{level} at the start"))?,
            }
        }
        Ok(())
    }
}
