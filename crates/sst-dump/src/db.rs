//! `db`: the tree of a database directory, also of one that does not open.

use crate::fault::{Failure, Fault, name};
use crate::info::CurrentInfo;
use crate::log_info::LogInfo;
use crate::state_info::{StateInfo, TableLine};
use crate::store::{ForeignEntry, Store};
use crate::table_info::shown;
use crate::target::Target;
use crate::text::{Form, Safe};
use crate::verify::no_file;
use crate::wal::LogContext;
use esker_base::{FileKind, FileNumber};
use esker_sstable::read_table_properties;
use esker_vfs::Vfs;
use esker_wal::LogKind;
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// What is in a database directory.
#[derive(Clone, Debug, Serialize)]
pub struct DbReport {
    /// The directory.
    pub dir: String,
    /// What `CURRENT` says, if it can be read.
    pub current: Option<CurrentInfo>,
    /// The number of the manifest that was read; without `CURRENT`, the newest.
    pub manifest: Option<u64>,
    /// What the manifest says.
    pub state: Option<StateInfo>,
    /// Tables that the manifest does not name, by their own properties. Orphans when the state is certain.
    pub unnamed_tables: Vec<UnnamedTable>,
    /// The log segments.
    pub logs: Vec<LogLine>,
    /// Manifests that do not count, and files that an interrupted work left.
    pub leftovers: Vec<String>,
    /// Whether there is a lock file. It stays after a close; whether it is held is not looked at.
    pub lock_file: bool,
    /// Everything else.
    pub foreign: Vec<ForeignEntry>,
    /// What is wrong, as far as that was met. `verify` looks at more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// A table that the manifest does not name.
#[derive(Clone, Debug, Serialize)]
pub struct UnnamedTable {
    /// Its file name.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// What it says about itself, if that can be read.
    pub table: Option<TableLine>,
}

/// A log segment in one line.
#[derive(Clone, Debug, Serialize)]
pub struct LogLine {
    /// Its file name.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// Whether the database does not need it any more.
    pub obsolete: bool,
    /// What is in it.
    pub log: Option<LogInfo>,
}

/// Looks at a database directory. Reads the manifest, the logs, and the properties of tables that the manifest does not
/// name.
///
/// # Errors
///
/// When the directory can't be listed, and when there is no database in it.
pub fn db(vfs: &dyn Vfs, dir: &Path, form: Form) -> Result<DbReport, Failure> {
    let store = Store::read(vfs, dir)?;
    let mut faults = store.faults.clone();
    faults.extend(store.manifest_faults());
    check_named(&store, &mut faults);
    faults.extend(store.missing_log());
    let unnamed_tables = unnamed(vfs, &store, form, &mut faults);
    let logs = logs(vfs, &store, &mut faults);
    for impostor in &store.impostors {
        faults.push(Fault::doubt(&dir.join(impostor), 0, "it has a name of ours and is no regular file"));
    }
    let manifest = store.manifest.as_ref().map(|(number, _)| *number);
    let leftovers = store
        .files
        .keys()
        .filter(|(kind, number)| match kind {
            FileKind::Manifest => Some(*number) != manifest,
            kind => matches!(kind, FileKind::CurrentTemp | FileKind::LostWal),
        })
        .map(|(kind, number)| kind.name(*number))
        .collect();
    Ok(DbReport {
        dir: name(dir),
        current: store.current.map(CurrentInfo::from),
        manifest: manifest.map(|number| number.0),
        state: store.picture.as_ref().map(|picture| StateInfo::new(picture, form)),
        unnamed_tables,
        logs,
        leftovers,
        lock_file: store.files.contains_key(&(FileKind::Lock, FileNumber(0))),
        foreign: store.foreign,
        faults,
    })
}

/// The tables that the manifest names are there, as long as it says.
fn check_named(store: &Store, faults: &mut Vec<Fault>) {
    for (_, _, table) in store.picture.iter().flat_map(|picture| picture.tables()) {
        let path = store.path(FileKind::Table, table.number);
        match store.files.get(&(FileKind::Table, table.number)) {
            None => faults.push(no_file(&path, table.number, store.is_certain())),
            Some(size) if *size != table.file_size => {
                let what = format!("{size} bytes long, the manifest says {}", table.file_size);
                faults.push(Fault::damage(&path, 0, what));
            }
            Some(_) => {}
        }
    }
}

fn unnamed(vfs: &dyn Vfs, store: &Store, form: Form, faults: &mut Vec<Fault>) -> Vec<UnnamedTable> {
    let named = store.live_tables();
    let mut tables = Vec::new();
    for number in store.numbers(FileKind::Table).filter(|number| !named.contains(number)) {
        let path = store.path(FileKind::Table, number);
        let size = store.files.get(&(FileKind::Table, number)).copied().unwrap_or(0);
        let table = Target::open(vfs, &path).and_then(|target| {
            let (_, properties) = read_table_properties(&target.file, &path)?;
            Ok(TableLine {
                number: number.0,
                size: target.size,
                entries: properties.entries,
                deletes: properties.deletes,
                smallest: shown(&properties.smallest.user_key, form),
                largest: shown(&properties.largest.user_key, form),
                smallest_seq: properties.smallest_seq,
                largest_seq: properties.largest_seq,
            })
        });
        // An orphan that was not finished is nothing wrong.
        let table = table
            .map_err(|fault| {
                if !store.is_certain() {
                    faults.push(fault)
                }
            })
            .ok();
        tables.push(UnnamedTable { name: FileKind::Table.name(number), size, table });
    }
    tables
}

fn logs(vfs: &dyn Vfs, store: &Store, faults: &mut Vec<Fault>) -> Vec<LogLine> {
    let headers = store.log_headers(vfs);
    let store_id = store.picture.as_ref().and_then(|picture| picture.store_id);
    let line = |number| {
        let next = headers.values().find(|header| header.previous.number == number);
        let context = LogContext {
            identity: store_id.map(|store_id| (store_id, number)),
            limit: next.map(|header| header.previous.length),
        };
        let obsolete = store.is_obsolete_log(number);
        let mut own = Vec::new();
        let log = match Target::open(vfs, &store.path(FileKind::Wal, number)) {
            Ok(target) => LogInfo::read_with(&target, LogKind::Wal, context, &mut own),
            Err(fault) => {
                own.push(fault);
                None
            }
        };
        if !obsolete {
            faults.append(&mut own);
        }
        let size = store.files.get(&(FileKind::Wal, number)).copied().unwrap_or(0);
        LogLine { name: FileKind::Wal.name(number), size, obsolete, log }
    };
    store.numbers(FileKind::Wal).map(line).collect()
}

impl fmt::Display for DbReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", Safe(&self.dir))?;
        match &self.current {
            Some(current) => writeln!(f, "CURRENT: {current}")?,
            None => writeln!(f, "CURRENT: can't be read")?,
        }
        match (self.manifest, &self.current) {
            (Some(number), None) => {
                writeln!(f, "manifest: {}, the newest", FileKind::Manifest.name(FileNumber(number)))?;
            }
            (Some(_), Some(_)) => {}
            (None, _) => writeln!(f, "manifest: can't be read")?,
        }
        if let Some(state) = &self.state {
            write!(f, "{state}")?;
        }
        if !self.unnamed_tables.is_empty() {
            let is_certain = self.current.is_some() && self.state.as_ref().is_some_and(|state| state.certain);
            let title = if is_certain { "orphans" } else { "tables that no manifest names" };
            writeln!(f, "{title}")?;
        }
        for table in &self.unnamed_tables {
            match &table.table {
                Some(line) => writeln!(f, "  {line}")?,
                None => writeln!(f, "  {} {} bytes, can't be read", table.name, table.size)?,
            }
        }
        if !self.logs.is_empty() {
            writeln!(f, "log segments")?;
        }
        self.logs.iter().try_for_each(|log| writeln!(f, "  {log}"))?;
        if !self.leftovers.is_empty() {
            writeln!(f, "left over: {}", self.leftovers.join(" "))?;
        }
        writeln!(f, "lock file: {}", if self.lock_file { "there" } else { "none" })?;
        if !self.foreign.is_empty() {
            writeln!(f, "foreign")?;
        }
        for ForeignEntry { name, kind, size } in &self.foreign {
            writeln!(f, "  {} ({kind}, {size} bytes)", Safe(name))?;
        }
        self.faults.iter().try_for_each(|fault| writeln!(f, "{fault}"))
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} bytes", self.name, self.size)?;
        if let Some(log) = &self.log {
            write!(f, ", {} records", log.records)?;
            if let (Some(first), Some(last)) = (log.first, log.last) {
                write!(f, ", sequences {first} .. {last}, durable {}", log.durable)?;
            }
            write!(f, ", ends {}", log.end.name())?;
        }
        f.write_str(if self.obsolete { ", not needed any more" } else { "" })
    }
}
