//! `info`: one screen about one file.

use crate::fault::{Fault, name};
use crate::log_info::LogInfo;
use crate::table_info::TableInfo;
use crate::target::{Kind, Target, foreign};
use crate::text::{Form, Safe};
use esker_base::FileNumber;
use esker_manifest::Current;
use esker_vfs::Vfs;
use esker_wal::LogKind;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What there is to know about a file.
#[derive(Clone, Debug, Serialize)]
pub struct FileInfo {
    /// The file.
    pub file: String,
    /// Its kind; `None` when it could not be opened.
    pub kind: Option<Kind>,
    /// Its length in bytes.
    pub size: u64,
    /// More, for a table whose properties can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<TableInfo>,
    /// More, for a log segment or a manifest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogInfo>,
    /// More, for `CURRENT`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<CurrentInfo>,
    /// What is wrong with it, as far as that was met. `verify` looks at more.
    pub faults: Vec<Fault>,
}

/// What `CURRENT` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CurrentInfo {
    /// Number of the manifest that counts.
    pub manifest: u64,
    /// Whether the database was closed cleanly.
    pub closed: bool,
    /// The manifest's length in bytes then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_len: Option<u64>,
    /// The CRC-32 of the whole manifest then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_crc: Option<u32>,
}

impl From<Current> for CurrentInfo {
    fn from(current: Current) -> Self {
        CurrentInfo {
            manifest: current.manifest.0,
            closed: current.closed.is_some(),
            manifest_len: current.closed.map(|end| end.len),
            manifest_crc: current.closed.map(|end| end.crc),
        }
    }
}

impl fmt::Display for CurrentInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manifest {}", FileNumber(self.manifest))?;
        match (self.manifest_len, self.manifest_crc) {
            (Some(len), Some(crc)) => write!(f, ", closed cleanly with {len} bytes, checksum {crc:08x}"),
            _ => f.write_str(", not closed: the database is open, or ended without a close"),
        }
    }
}

/// Looks at a file of any kind. Reads all of it; what is wrong is in the answer.
pub fn info(vfs: &dyn Vfs, path: &Path, form: Form) -> FileInfo {
    let mut info = FileInfo {
        file: name(path),
        kind: None,
        size: 0,
        table: None,
        log: None,
        current: None,
        faults: Vec::new(),
    };
    let target = match Target::open(vfs, path) {
        Ok(target) => target,
        Err(fault) => {
            info.faults.push(fault);
            return info;
        }
    };
    (info.kind, info.size) = (Some(target.kind), target.size);
    match target.kind {
        Kind::Table => info.table = TableInfo::read(&target, form, &mut info.faults),
        Kind::Wal => info.log = LogInfo::read(&target, LogKind::Wal, &mut info.faults),
        Kind::Manifest => info.log = LogInfo::read(&target, LogKind::Manifest, &mut info.faults),
        Kind::Current => match read_current(&target) {
            Ok(current) => info.current = Some(current.into()),
            Err(fault) => info.faults.push(fault),
        },
        Kind::Lock => {}
        Kind::Foreign => info.faults.push(foreign(path)),
    }
    info
}

/// Decodes `CURRENT` under whatever name.
pub(crate) fn read_current(target: &Target) -> Result<Current, Fault> {
    // The longest one that can be valid is shorter.
    let mut bytes = [0; 1024];
    let len = target.file.read_at(0, &mut bytes);
    let len = len.map_err(|error| esker_base::Error::io("read", &target.path, error))?;
    Ok(Current::decode(bytes.get(..len).unwrap_or_default(), &target.path)?)
}

impl fmt::Display for FileInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map_or("not opened", Kind::name);
        writeln!(f, "{}: {kind}, {} bytes", Safe(&self.file), self.size)?;
        if let Some(table) = &self.table {
            write!(f, "{table}")?;
        }
        if let Some(log) = &self.log {
            write!(f, "{log}")?;
        }
        if let Some(current) = &self.current {
            writeln!(f, "  {current}")?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "  {fault}"))
    }
}
