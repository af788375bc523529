//! What a path on the command line stands for: a kind of file, by its name or its first bytes, or a directory.

use crate::fault::{Class, Failure, Fault};
use esker_base::{Error, FileKind, FileNumber, parse_file_name};
use esker_vfs::{EntryKind, RandomAccessFile, Vfs};
use esker_wal::LogKind;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kinds of files that the tool tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A table.
    Table,
    /// A segment of the write-ahead log, also one that a recovery left out (`*.wal.lost`).
    Wal,
    /// A manifest.
    Manifest,
    /// `CURRENT`, or a new one that was not renamed yet.
    Current,
    /// The lock file.
    Lock,
    /// None of esker's.
    Foreign,
}

impl Kind {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Table => "table",
            Kind::Wal => "log segment",
            Kind::Manifest => "manifest",
            Kind::Current => "CURRENT",
            Kind::Lock => "lock file",
            Kind::Foreign => "foreign file",
        }
    }

    /// The kind of a file with this kind of name.
    pub fn from_file_kind(kind: FileKind) -> Kind {
        match kind {
            FileKind::Table => Kind::Table,
            FileKind::Wal | FileKind::LostWal => Kind::Wal,
            FileKind::Manifest => Kind::Manifest,
            FileKind::Current | FileKind::CurrentTemp => Kind::Current,
            FileKind::Lock => Kind::Lock,
        }
    }

    fn from_first_bytes(bytes: &[u8]) -> Option<Kind> {
        let starts = [
            (&LogKind::Wal.magic()[..], Kind::Wal),
            (&LogKind::Manifest.magic()[..], Kind::Manifest),
            (b"ESKSST", Kind::Table),
            (b"esker current ", Kind::Current),
        ];
        starts.into_iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, kind)| kind)
    }
}

/// An opened file, and what it is.
#[derive(Clone, Debug)]
pub struct Target {
    /// The path.
    pub path: PathBuf,
    /// What it is. The name decides where it is one of esker's, so that a file under a wrong name is found out.
    pub kind: Kind,
    /// The number in its name, where that is one of esker's.
    pub number: Option<FileNumber>,
    /// The file, open for reading.
    pub file: Arc<dyn RandomAccessFile>,
    /// Its length in bytes.
    pub size: u64,
}

impl Target {
    /// Opens a regular file; links are not followed.
    ///
    /// # Errors
    ///
    /// A fault of class [`Io`](Class::Io), or [`Usage`](Class::Usage) for a directory.
    pub fn open(vfs: &dyn Vfs, path: &Path) -> Result<Target, Fault> {
        let entry = vfs.kind(path).map_err(|error| Error::io("look at", path, error))?;
        match entry {
            Some(EntryKind::Directory) => {
                let what = "it is a directory; `db`, `verify`, `manifest` and `wal` take those";
                return Err(Fault::of(Class::Usage, path, what));
            }
            Some(EntryKind::Other) => {
                let what = "it is no regular file; links and devices are not opened";
                return Err(Fault::of(Class::Io, path, what));
            }
            Some(EntryKind::File) | None => {}
        }
        let file = vfs.open(path).map_err(|error| Error::io("open", path, error))?;
        let size = file.len().map_err(|error| Error::io("read the length of", path, error))?;
        let parsed = path.file_name().and_then(|name| name.to_str()).and_then(parse_file_name);
        let kind = match parsed {
            Some((kind, _)) => Kind::from_file_kind(kind),
            None => by_magic(&*file, path, size)?,
        };
        let number = parsed.map(|(_, number)| number).filter(|number| number.0 != 0);
        Ok(Target { path: path.to_path_buf(), kind, number, file, size })
    }

    /// As [`open`](Self::open), for a command that works on one kind of file.
    ///
    /// # Errors
    ///
    /// Also a fault of class [`Usage`](Class::Usage) for another kind, which names `instead`, and of class
    /// [`Unsupported`](Class::Unsupported) for a foreign file.
    pub fn open_kind(vfs: &dyn Vfs, path: &Path, wanted: Kind, instead: &str) -> Result<Target, Failure> {
        let target = Self::open(vfs, path)?;
        if target.kind == wanted {
            return Ok(target);
        }
        Err(Failure::Fault(match target.kind {
            Kind::Foreign => foreign(path),
            kind => Fault::of(
                Class::Usage,
                path,
                format!("it is a {}, not a {}; {instead}", kind.name(), wanted.name()),
            ),
        }))
    }
}

/// The fault of a file that is none of esker's.
pub(crate) fn foreign(path: &Path) -> Fault {
    Fault::of(Class::Unsupported, path, "neither its name nor its bytes are those of a file of esker")
}

fn by_magic(file: &dyn RandomAccessFile, path: &Path, size: u64) -> Result<Kind, Error> {
    let mut bytes = [0; 16];
    let read = |offset, bytes: &mut [u8]| {
        file.read_at(offset, bytes).map_err(|error| Error::io("read", path, error))
    };
    let len = read(0, &mut bytes)?;
    if let Some(kind) = Kind::from_first_bytes(bytes.get(..len).unwrap_or_default()) {
        return Ok(kind);
    }
    let len = read(size.saturating_sub(8), &mut bytes)?;
    let end = bytes.get(..len).unwrap_or_default();
    Ok(if end == b"ESKERSST" { Kind::Table } else { Kind::Foreign })
}

/// Whether `path` is a directory, or a link to one: only what the caller names is followed, never what a listing does.
///
/// # Errors
///
/// A fault of class [`Io`](Class::Io), also when there is nothing.
pub fn is_directory(vfs: &dyn Vfs, path: &Path) -> Result<bool, Fault> {
    match vfs.kind(path).map_err(|error| Error::io("look at", path, error))? {
        Some(EntryKind::File) => Ok(false),
        Some(EntryKind::Directory) => Ok(true),
        Some(EntryKind::Other) => Ok(vfs.list(path).is_ok()),
        None => Err(Fault::of(Class::Io, path, "there is no such file or directory")),
    }
}
