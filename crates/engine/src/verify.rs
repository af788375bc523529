//! [`VerifyReport`]: a check of everything that is on disk.

use crate::core::Core;
use crate::{Error, Result};
use esker_base::{FileKind, parse_file_name};
use esker_vfs::EntryKind;
use std::fmt;

/// What [`Db::verify`](crate::Db::verify) found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Tables that were read.
    pub tables: u64,
    /// Entries in them, according to the manifest.
    pub entries: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Everything that is wrong. Empty for a sound database.
    pub faults: Vec<Error>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for VerifyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VerifyReport { tables, entries, bytes, faults } = self;
        write!(f, "{tables} tables, {entries} entries, {bytes} bytes: ")?;
        if faults.is_empty() {
            return f.write_str("sound");
        }
        write!(f, "{} faults", faults.len())?;
        faults.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl Core {
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.check_open()?;
        let mut report = VerifyReport::default();
        let picture = self.super_version.load_full();
        let total =
            picture.keyspaces.iter().flat_map(|k| k.handles()).map(|table| table.meta.file_size).sum();
        for keyspace in &picture.keyspaces {
            if let Err(fault) = keyspace.version.check_invariants() {
                report.faults.push(fault);
            }
            for table in keyspace.handles() {
                self.check_open()?;
                report.tables += 1;
                // As the manifest says, which may say anything.
                report.entries = report.entries.saturating_add(table.meta.entries);
                report.bytes = report.bytes.saturating_add(table.meta.file_size);
                match table.reader() {
                    Ok(reader) => reader.verify(&mut |fault| report.faults.push(fault)),
                    Err(fault) => report.faults.push(fault),
                }
                progress(report.bytes, total);
            }
        }
        self.check_directory(&mut report)?;
        Ok(report)
    }

    /// Every file of the present version is in the directory, with its size.
    fn check_directory(&self, report: &mut VerifyReport) -> Result<()> {
        let picture = self.super_version.load_full();
        let entries =
            self.components.vfs.list(&self.dir).map_err(|error| Error::io("list", &self.dir, error))?;
        for table in picture.keyspaces.iter().flat_map(|keyspace| keyspace.handles()) {
            let wanted = (FileKind::Table, table.meta.number);
            let found = entries
                .iter()
                .find(|entry| entry.kind == EntryKind::File && parse_file_name(&entry.name) == Some(wanted));
            let what = match found {
                None => "the manifest names this file, and it is missing".to_owned(),
                Some(entry) if entry.size != table.meta.file_size => {
                    format!("the file has {} bytes, the manifest says {}", entry.size, table.meta.file_size)
                }
                Some(_) => continue,
            };
            report.faults.push(Error::corruption(
                self.file_path(FileKind::Table, table.meta.number),
                0,
                what,
            ));
        }
        Ok(())
    }
}
