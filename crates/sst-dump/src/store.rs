//! [`Store`]: a database directory as `verify` and `db` see it: its files by kind, `CURRENT`, the manifest and the
//! tables it names. Made without the lock, from whatever can be read.

use crate::fault::{Class, Failure, Fault};
use crate::info::read_current;
use crate::picture::Picture;
use crate::target::Target;
use esker_base::{Error, FileKind, FileNumber, parse_file_name};
use esker_manifest::{Current, ManifestDump, dump_manifest};
use esker_vfs::{EntryKind, Vfs};
use esker_wal::{LogReader, SegmentHeader};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A name in the directory that esker does not touch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ForeignEntry {
    /// The name.
    pub name: String,
    /// `file`, `directory` or `other` (a link, a pipe, a device).
    pub kind: &'static str,
    /// Length in bytes of a file, else 0.
    pub size: u64,
}

/// A database directory.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) dir: PathBuf,
    /// Length in bytes of each regular file under a name of ours.
    pub(crate) files: BTreeMap<(FileKind, FileNumber), u64>,
    /// Names of ours that stand for something else than a regular file.
    pub(crate) impostors: Vec<String>,
    pub(crate) foreign: Vec<ForeignEntry>,
    /// What `CURRENT` says, if it can be read.
    pub(crate) current: Option<Current>,
    /// The manifest that was read: the one that `CURRENT` names, else the newest.
    pub(crate) manifest: Option<(FileNumber, ManifestDump)>,
    pub(crate) picture: Option<Picture>,
    /// Why something of the above is missing.
    pub(crate) faults: Vec<Fault>,
}

impl Store {
    /// Looks at a directory.
    ///
    /// # Errors
    ///
    /// When it can't be listed, and when there is no database in it.
    pub(crate) fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Store, Failure> {
        let mut store = Store {
            dir: dir.to_path_buf(),
            files: BTreeMap::new(),
            impostors: Vec::new(),
            foreign: Vec::new(),
            current: None,
            manifest: None,
            picture: None,
            faults: Vec::new(),
        };
        store.list(vfs)?;
        store.read_current(vfs)?;
        store.read_manifest(vfs);
        Ok(store)
    }

    fn list(&mut self, vfs: &dyn Vfs) -> Result<(), Failure> {
        let entries = vfs.list(&self.dir).map_err(|error| Error::io("list", &self.dir, error))?;
        for entry in entries {
            match (parse_file_name(&entry.name), entry.kind) {
                (Some(name), EntryKind::File) => {
                    self.files.insert(name, entry.size);
                }
                (Some(_), _) => self.impostors.push(entry.name),
                (None, kind) => {
                    let kind = match kind {
                        EntryKind::File => "file",
                        EntryKind::Directory => "directory",
                        EntryKind::Other => "other",
                    };
                    self.foreign.push(ForeignEntry { name: entry.name, kind, size: entry.size });
                }
            }
        }
        Ok(())
    }

    fn read_current(&mut self, vfs: &dyn Vfs) -> Result<(), Failure> {
        let path = self.path(FileKind::Current, FileNumber(0));
        if self.files.contains_key(&(FileKind::Current, FileNumber(0))) {
            match Target::open(vfs, &path).and_then(|target| read_current(&target)) {
                Ok(current) => self.current = Some(current),
                Err(fault) => self.faults.push(fault),
            }
            return Ok(());
        }
        let is_data = |kind: FileKind| matches!(kind, FileKind::Table | FileKind::Wal | FileKind::LostWal);
        match self.files.keys().find(|(kind, _)| is_data(*kind)) {
            Some((kind, number)) => {
                let what = format!("it is missing, but there is {}", kind.name(*number));
                self.faults.push(Fault::damage(&path, 0, what));
                Ok(())
            }
            None => Err(Fault::of(Class::Unsupported, &self.dir, "there is no database in it").into()),
        }
    }

    fn read_manifest(&mut self, vfs: &dyn Vfs) {
        let number = match self.current {
            Some(current) => Some(current.manifest),
            None => self.numbers(FileKind::Manifest).last(),
        };
        let Some(number) = number else { return };
        let path = self.path(FileKind::Manifest, number);
        if !self.files.contains_key(&(FileKind::Manifest, number)) {
            return self.faults.push(Fault::damage(&path, 0, "CURRENT names it, and it is missing"));
        }
        match dump_manifest(vfs, &path) {
            Ok(dump) => {
                self.picture = Some(Picture::new(&dump));
                self.manifest = Some((number, dump));
            }
            Err(error) => self.faults.push(error.into()),
        }
    }

    pub(crate) fn path(&self, kind: FileKind, number: FileNumber) -> PathBuf {
        kind.path(&self.dir, number)
    }

    /// The numbers of all files of a kind, ascending.
    pub(crate) fn numbers(&self, kind: FileKind) -> impl DoubleEndedIterator<Item = FileNumber> {
        let range = (kind, FileNumber(0))..=(kind, FileNumber(u64::MAX));
        self.files.range(range).map(|((_, number), _)| *number)
    }

    /// What is wrong with the manifest that was read, its own faults first.
    pub(crate) fn manifest_faults(&self) -> Vec<Fault> {
        let Some((number, dump)) = &self.manifest else { return Vec::new() };
        let path = self.path(FileKind::Manifest, *number);
        let mut faults = dump_faults(dump);
        let is_closed = self.current.is_some_and(|current| current.closed.is_some());
        if is_closed {
            faults.iter_mut().for_each(|fault| fault.class = no_doubt(fault.class));
        }
        if dump.number != *number {
            faults.push(Fault::damage(&path, 0, format!("the header is that of number {}", dump.number)));
        }
        if dump.state.as_ref().is_some_and(|state| state.store_id != dump.store_id) {
            faults.push(Fault::damage(&path, 0, "the store ids of header and snapshot differ"));
        }
        faults
    }

    /// The tables that the manifest names, if there is one.
    pub(crate) fn live_tables(&self) -> BTreeSet<FileNumber> {
        self.picture.iter().flat_map(Picture::tables).map(|(_, _, table)| table.number).collect()
    }

    /// Tables that the manifest does not name. Only when it surely names all.
    pub(crate) fn orphans(&self) -> Vec<FileNumber> {
        if !self.is_certain() {
            return Vec::new();
        }
        let live = self.live_tables();
        self.numbers(FileKind::Table).filter(|number| !live.contains(number)).collect()
    }

    /// Whether the manifest tells the state of the database for sure.
    pub(crate) fn is_certain(&self) -> bool {
        self.current.is_some() && self.picture.as_ref().is_some_and(|picture| picture.is_certain)
    }

    /// Whether the database does not need a log segment.
    pub(crate) fn is_obsolete_log(&self, number: FileNumber) -> bool {
        self.is_certain() && self.picture.as_ref().is_some_and(|picture| number < picture.min_log_number())
    }

    /// The oldest log segment that the database needs, when it is missing. No crash takes it away: its name was durable
    /// before the manifest named it.
    pub(crate) fn missing_log(&self) -> Option<Fault> {
        let oldest = self.picture.as_ref()?.min_log_number();
        if oldest.0 == 0 || self.files.contains_key(&(FileKind::Wal, oldest)) {
            return None;
        }
        let mut fault = Fault::damage(
            &self.path(FileKind::Wal, oldest),
            0,
            "the manifest needs this log segment, and it is missing",
        );
        if !self.is_certain() {
            fault.class = doubt(fault.class);
        }
        Some(fault)
    }

    /// The intact headers of the log segments.
    pub(crate) fn log_headers(&self, vfs: &dyn Vfs) -> BTreeMap<FileNumber, SegmentHeader> {
        let header = |number| {
            let path = self.path(FileKind::Wal, number);
            let file = vfs.open(&path).ok()?;
            LogReader::read_header(&*file, &path).ok()?.ok().filter(|header| header.number == number)
        };
        self.numbers(FileKind::Wal).filter_map(|number| Some((number, header(number)?))).collect()
    }
}

/// The faults of a manifest. An end that is not whole is a doubt: a crash may have torn it.
pub(crate) fn dump_faults(dump: &ManifestDump) -> Vec<Fault> {
    let mut faults: Vec<Fault> = dump.faults().map(Fault::from).collect();
    // Any other fault leaves the state unknown.
    if dump.state.is_some() {
        faults.iter_mut().for_each(|fault| fault.class = doubt(fault.class));
    }
    faults
}

fn doubt(class: Class) -> Class {
    if class == Class::Damage { Class::Doubt } else { class }
}

fn no_doubt(class: Class) -> Class {
    if class == Class::Doubt { Class::Damage } else { class }
}
