//! The verification of a database directory: each file for itself, and whether all fit together.
//!
//! At the end the recoveries of manifest and log run as an open would run them, so that nothing passes here that would
//! fail there. Files that the database does not need any more are listed and not checked.

use crate::fault::{Failure, Fault};
use crate::store::Store;
use crate::target::{Kind, Target};
use crate::verify::{Reporter, check_log, check_table, is_io, log_detail, no_file, table_detail};
use crate::wal::LogContext;
use esker_base::{Checksum, Error, FileKind, FileNumber, LAST_SEQUENCE};
use esker_manifest::{ManifestEnd, ManifestState, Recovery, TableMetadata};
use esker_sstable::{OpenTable, TableIdentity, TableReader};
use esker_vfs::Vfs;
use esker_wal::{RecoverOptions, RecoveryMode};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn verify_directory(
    vfs: &dyn Vfs,
    dir: &Path,
    reporter: &mut Reporter<'_>,
) -> Result<(), Failure> {
    let store = Store::read(vfs, dir)?;
    let mut check = Check { vfs, store: &store, reporter };
    check.current()?;
    check.manifests()?;
    check.tables()?;
    check.logs()?;
    check.others()
}

struct Check<'a, 'r> {
    vfs: &'a dyn Vfs,
    store: &'a Store,
    reporter: &'a mut Reporter<'r>,
}

impl Check<'_, '_> {
    fn checked(
        &mut self,
        kind: FileKind,
        number: FileNumber,
        before: u64,
        detail: String,
    ) -> Result<(), Failure> {
        let size = self.store.files.get(&(kind, number)).copied().unwrap_or(0);
        let path = self.store.path(kind, number);
        self.reporter.checked(&path, Some(Kind::from_file_kind(kind)), size, before, detail)
    }

    /// Faults that were met when the directory was read: of `CURRENT`, and of a manifest that can't be read at all.
    fn current(&mut self) -> Result<(), Failure> {
        let before = self.reporter.faults;
        for fault in &self.store.faults {
            self.reporter.report(fault.clone());
        }
        let detail = match self.store.current {
            Some(current) if current.closed.is_some() => {
                format!("names manifest {}, closed cleanly", current.manifest)
            }
            Some(current) => format!("names manifest {}, not closed", current.manifest),
            None => "names no manifest".to_owned(),
        };
        self.checked(FileKind::Current, FileNumber(0), before, detail)
    }

    fn manifests(&mut self) -> Result<(), Failure> {
        let read = self.store.manifest.as_ref().map(|(number, _)| *number);
        for number in self.store.numbers(FileKind::Manifest) {
            let before = self.reporter.faults;
            if read != Some(number) {
                let detail = if self.store.current.is_some_and(|current| current.manifest == number) {
                    "it can't be read"
                } else {
                    "not the current one, not checked"
                };
                self.checked(FileKind::Manifest, number, before, detail.to_owned())?;
                continue;
            }
            for fault in self.store.manifest_faults() {
                self.reporter.report(fault);
            }
            if let Some(end) = self.store.current.and_then(|current| current.closed) {
                self.manifest_end(number, end);
            }
            if let Some(picture) = &self.store.picture {
                picture.check_levels(&self.store.dir, &mut |fault| self.reporter.report(fault));
            }
            let edits = self.store.manifest.as_ref().map_or(0, |(_, dump)| dump.items.len());
            self.checked(FileKind::Manifest, number, before, format!("{edits} edits"))?;
        }
        Ok(())
    }

    /// After a clean close the manifest is exactly what `CURRENT` says.
    fn manifest_end(&mut self, number: FileNumber, end: ManifestEnd) {
        let path = self.store.path(FileKind::Manifest, number);
        match file_end(self.vfs, &path) {
            Ok(found) if found == end => {}
            Ok(found) => self.reporter.report(Fault::damage(
                &path,
                found.len.min(end.len),
                format!(
                    "{} bytes with checksum {:08x}, CURRENT says {} with {:08x}",
                    found.len, found.crc, end.len, end.crc
                ),
            )),
            Err(error) => self.reporter.report(error),
        }
    }

    fn tables(&mut self) -> Result<(), Failure> {
        let mut wanted: BTreeMap<FileNumber, Option<Arc<TableMetadata>>> = BTreeMap::new();
        if !self.store.is_certain() {
            // The manifest may not tell all: whatever is there may count.
            wanted.extend(self.store.numbers(FileKind::Table).map(|number| (number, None)));
        }
        for (_, _, table) in self.store.picture.iter().flat_map(|picture| picture.tables()) {
            wanted.insert(table.number, Some(Arc::clone(table)));
        }
        for (number, metadata) in wanted {
            self.table(number, metadata.as_deref())?;
        }
        for number in self.store.orphans() {
            let before = self.reporter.faults;
            let detail = "not in the manifest, not checked".to_owned();
            self.checked(FileKind::Table, number, before, detail)?;
        }
        Ok(())
    }

    fn table(&mut self, number: FileNumber, metadata: Option<&TableMetadata>) -> Result<(), Failure> {
        let path = self.store.path(FileKind::Table, number);
        let before = self.reporter.faults;
        if !self.store.files.contains_key(&(FileKind::Table, number)) {
            self.reporter.report(no_file(&path, number, self.store.is_certain()));
            return Ok(());
        }
        let table = match Target::open(self.vfs, &path) {
            Ok(target) => check_table(&target, self.expected(number, metadata), self.reporter),
            Err(fault) => {
                self.reporter.report(fault);
                None
            }
        };
        if let (Some(table), Some(metadata)) = (&table, metadata) {
            self.compare(&path, table, metadata);
        }
        self.checked(FileKind::Table, number, before, table_detail(table.as_deref()))
    }

    /// What the manifest says that the table must be.
    fn expected(&self, number: FileNumber, metadata: Option<&TableMetadata>) -> OpenTable {
        let picture = self.store.picture.as_ref();
        let ids = picture.and_then(|picture| Some((picture.store_id?, picture.hash_seed?)));
        OpenTable {
            identity: ids.map(|(store_id, hash_seed)| TableIdentity { store_id, number, hash_seed }),
            file_size: metadata.map(|metadata| metadata.file_size),
            tail_size: metadata.map(|metadata| metadata.tail_size),
            ..OpenTable::default()
        }
    }

    /// What the table says about itself is what the manifest says about it.
    fn compare(&mut self, path: &Path, table: &TableReader, metadata: &TableMetadata) {
        let properties = table.properties();
        let numbers = [
            ("entries", properties.entries, metadata.entries),
            ("deletes", properties.deletes, metadata.deletes),
            ("smallest sequence", properties.smallest_seq, metadata.smallest_seq),
            ("largest sequence", properties.largest_seq, metadata.largest_seq),
        ];
        let offset = table.footer().properties_offset();
        let mut differ = |name: &str, found: String, stated: String| {
            let what = format!("{name}: {found}, the manifest says {stated}");
            self.reporter.report(Fault::damage(path, offset, what));
        };
        for (name, found, stated) in numbers.into_iter().filter(|(_, found, stated)| found != stated) {
            differ(name, found.to_string(), stated.to_string());
        }
        let keys = [
            ("smallest key", &properties.smallest, &metadata.smallest),
            ("largest key", &properties.largest, &metadata.largest),
        ];
        for (name, found, stated) in keys.into_iter().filter(|(_, found, stated)| found != stated) {
            differ(name, format!("{found:?}"), format!("{stated:?}"));
        }
    }

    fn logs(&mut self) -> Result<(), Failure> {
        let before_all = self.reporter.faults;
        if let Some(fault) = self.store.missing_log() {
            self.reporter.report(fault);
        }
        let headers = self.store.log_headers(self.vfs);
        for number in self.store.numbers(FileKind::Wal) {
            let before = self.reporter.faults;
            if self.store.is_obsolete_log(number) {
                let detail = "not needed any more, not checked".to_owned();
                self.checked(FileKind::Wal, number, before, detail)?;
                continue;
            }
            let path = self.store.path(FileKind::Wal, number);
            let picture = self.store.picture.as_ref();
            let store_id = picture.and_then(|picture| picture.store_id);
            let next = headers.values().find(|header| header.previous.number == number);
            let context = LogContext {
                identity: store_id.map(|store_id| (store_id, number)),
                limit: next.map(|header| header.previous.length),
            };
            if let (Some(store_id), Some(header)) = (store_id, headers.get(&number)) {
                self.log_header(&path, store_id, header);
            }
            let detail = match Target::open(self.vfs, &path) {
                Ok(target) => log_detail(&check_log(&target, context, self.reporter)?),
                Err(fault) => {
                    self.reporter.report(fault);
                    "it can't be read".to_owned()
                }
            };
            self.checked(FileKind::Wal, number, before, detail)?;
        }
        let log_faults = self.reporter.faults - before_all;
        self.recover(log_faults);
        Ok(())
    }

    fn log_header(&mut self, path: &Path, store_id: u128, header: &esker_wal::SegmentHeader) {
        if header.store_id != store_id {
            self.reporter.report(Fault::damage(path, 0, "it belongs to another store"));
        }
        let previous = header.previous;
        let last_sequence = self.store.picture.as_ref().map_or(0, |picture| picture.last_sequence);
        let is_there = self.store.files.contains_key(&(FileKind::Wal, previous.number));
        if previous.number.0 != 0 && previous.last_sequence > last_sequence && !is_there {
            let missing = self.store.path(FileKind::Wal, previous.number);
            let what = format!("{} names it as the one before, and it is missing", header.number);
            self.reporter.report(Fault::damage(&missing, 0, what));
        }
    }

    /// What an open would say, unless its reason was found above.
    fn recover(&mut self, log_faults: u64) {
        let state = match esker_manifest::recover(self.vfs, &self.store.dir) {
            Ok(Recovery::Store(found)) => found.state,
            Ok(Recovery::Missing { .. }) => return,
            Err(error) => {
                if self.reporter.faults == log_faults || is_io(&error) {
                    self.reporter.report(error);
                }
                return;
            }
        };
        match self.recover_log(&state) {
            Ok(None) => {}
            Ok(Some(fault)) if log_faults == 0 => self.reporter.report(fault),
            Err(error) if log_faults == 0 || is_io(&error) => self.reporter.report(error),
            _ => {}
        }
    }

    fn recover_log(&self, state: &ManifestState) -> Result<Option<Fault>, Error> {
        let oldest = state.min_log_number();
        let options = RecoverOptions {
            dir: self.store.dir.clone(),
            store_id: state.store_id,
            segments: self.store.numbers(FileKind::Wal).filter(|number| *number >= oldest).collect(),
            durable: state.durable_sequence,
            first_needed: state.last_sequence.saturating_add(1),
            last_max: LAST_SEQUENCE,
            mode: RecoveryMode::Strict,
        };
        let replay = esker_wal::recover(self.vfs, &options, |_| Ok(()))?;
        Ok(replay.dropped.map(|dropped| {
            let what = format!("{}; an open leaves {} bytes out", dropped.what, dropped.bytes);
            Fault::doubt(&dropped.file, dropped.offset, what)
        }))
    }

    fn others(&mut self) -> Result<(), Failure> {
        for impostor in &self.store.impostors {
            let path = self.store.dir.join(impostor);
            self.reporter.report(Fault::doubt(&path, 0, "it has a name of ours and is no regular file"));
        }
        for number in self.store.numbers(FileKind::LostWal) {
            let before = self.reporter.faults;
            let detail = "left out by a recovery, not checked".to_owned();
            self.checked(FileKind::LostWal, number, before, detail)?;
        }
        Ok(())
    }
}

/// Length and checksum of a whole file.
fn file_end(vfs: &dyn Vfs, path: &Path) -> Result<ManifestEnd, Error> {
    let file = vfs.open(path).map_err(|error| Error::io("open", path, error))?;
    let mut buf = vec![0; 64 << 10];
    let (mut len, mut checksum) = (0_u64, Checksum::new(&[]));
    loop {
        let read = file.read_at(len, &mut buf).map_err(|error| Error::io("read", path, error))?;
        if read == 0 {
            return Ok(ManifestEnd { len, crc: checksum.finish() });
        }
        checksum = checksum.bytes(buf.get(..read).unwrap_or_default());
        len = len.saturating_add(read as u64);
    }
}
