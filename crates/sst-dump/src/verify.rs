//! `verify`: everything that is wrong with a file or a directory, not only the first thing.

use crate::fault::{Class, Exit, Failure, Fault, name};
use crate::info::read_current;
use crate::picture::Picture;
use crate::store::dump_faults;
use crate::target::{Kind, Target, foreign, is_directory};
use crate::verify_directory::verify_directory;
use crate::wal::{LogContext, LogEnding, LogItem, walk_log};
use esker_base::{Error, FileNumber};
use esker_manifest::dump_manifest;
use esker_sstable::{OpenTable, TableReader, verify_table};
use esker_vfs::Vfs;
use esker_wal::LogKind;
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckedFile {
    /// The file.
    pub file: String,
    /// Its kind; `None` when it could not be opened.
    pub kind: Option<Kind>,
    /// Its length in bytes.
    pub size: u64,
    /// How many faults were found in it.
    pub faults: u64,
    /// What was checked, or why nothing was.
    pub detail: String,
}

impl fmt::Display for CheckedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind.map_or("file", Kind::name);
        let CheckedFile { size, faults, detail, .. } = self;
        write!(f, "{}: {kind}, {size} bytes, {detail}: ", crate::text::Safe(&self.file))?;
        match faults {
            0 => f.write_str("ok"),
            1 => f.write_str("1 fault"),
            _ => write!(f, "{faults} faults"),
        }
    }
}

/// One thing that a verification has to say.
#[derive(Clone, Debug)]
pub enum VerifyEvent {
    /// Something is wrong.
    Fault(Fault),
    /// A file was looked at; its faults came before.
    Checked(CheckedFile),
}

/// Checks files and directories, and hands out everything that is wrong. Returns what the exit code should be.
///
/// # Errors
///
/// [`Failure::Output`] only: everything else is an event.
pub fn verify<P: AsRef<Path>>(
    vfs: &dyn Vfs,
    paths: &[P],
    visit: &mut dyn FnMut(VerifyEvent) -> io::Result<()>,
) -> Result<Exit, Failure> {
    let mut reporter = Reporter { visit, output: None, exit: Exit::Fine, faults: 0 };
    for path in paths {
        let path = path.as_ref();
        let checked = match is_directory(vfs, path) {
            Ok(true) => verify_directory(vfs, path, &mut reporter),
            Ok(false) => verify_path(vfs, path, &mut reporter),
            Err(fault) => Err(fault.into()),
        };
        match checked {
            Err(Failure::Fault(fault)) => reporter.report(fault),
            checked => checked?,
        }
        reporter.check_output()?;
    }
    Ok(reporter.exit)
}

/// Takes faults from callbacks that cannot fail, and remembers when the output does.
pub(crate) struct Reporter<'a> {
    visit: &'a mut dyn FnMut(VerifyEvent) -> io::Result<()>,
    output: Option<io::Error>,
    exit: Exit,
    /// Faults so far.
    pub(crate) faults: u64,
}

impl Reporter<'_> {
    pub(crate) fn report(&mut self, fault: impl Into<Fault>) {
        let fault = fault.into();
        self.faults += 1;
        self.exit = self.exit.max(fault.class.exit());
        self.give(VerifyEvent::Fault(fault));
    }

    fn give(&mut self, event: VerifyEvent) {
        if self.output.is_none() {
            self.output = (self.visit)(event).err();
        }
    }

    fn check_output(&mut self) -> Result<(), Failure> {
        match self.output.take() {
            Some(error) => Err(Failure::Output(error)),
            None => Ok(()),
        }
    }

    /// Says that a file was looked at; `before` is the number of faults before that.
    pub(crate) fn checked(
        &mut self,
        path: &Path,
        kind: Option<Kind>,
        size: u64,
        before: u64,
        detail: String,
    ) -> Result<(), Failure> {
        let faults = self.faults - before;
        self.give(VerifyEvent::Checked(CheckedFile { file: name(path), kind, size, faults, detail }));
        self.check_output()
    }
}

fn verify_path(vfs: &dyn Vfs, path: &Path, reporter: &mut Reporter<'_>) -> Result<(), Failure> {
    let target = Target::open(vfs, path)?;
    let before = reporter.faults;
    let detail = match target.kind {
        Kind::Table => {
            let table = check_table(&target, OpenTable::default(), reporter);
            table_detail(table.as_deref())
        }
        Kind::Wal => {
            let ending = check_log(&target, LogContext::default(), reporter)?;
            log_detail(&ending)
        }
        Kind::Manifest => {
            check_manifest(vfs, &target, reporter)?;
            "edits and levels".to_owned()
        }
        Kind::Current => {
            if let Err(fault) = read_current(&target) {
                reporter.report(fault);
            }
            "checksum".to_owned()
        }
        Kind::Lock => "nothing to check".to_owned(),
        Kind::Foreign => return Err(foreign(path).into()),
    };
    reporter.checked(path, Some(target.kind), target.size, before, detail)
}

/// Checks a table; returns it when it opens.
pub(crate) fn check_table(
    target: &Target,
    open: OpenTable,
    reporter: &mut Reporter<'_>,
) -> Option<Arc<TableReader>> {
    let table = verify_table(&target.file, &target.path, open, &mut |error| reporter.report(error))?;
    let number = table.footer().number;
    if target.number.is_some_and(|named| named != number) {
        let what = format!("it is table {number}");
        reporter.report(Fault::damage(&target.path, table.footer().footer_offset(), what));
    }
    Some(table)
}

pub(crate) fn table_detail(table: Option<&TableReader>) -> String {
    match table {
        Some(table) => format!("{} entries", table.properties().entries),
        None => "it does not open".to_owned(),
    }
}

/// Checks a log segment.
pub(crate) fn check_log(
    target: &Target,
    context: LogContext,
    reporter: &mut Reporter<'_>,
) -> Result<LogEnding, Failure> {
    walk_log(target, LogKind::Wal, context, None, &mut |item| {
        if let LogItem::Fault(fault) = item {
            reporter.report(fault);
        }
        match reporter.output.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    })
}

pub(crate) fn log_detail(ending: &LogEnding) -> String {
    format!("{} records, ends {}", ending.records, ending.end.name())
}

fn check_manifest(vfs: &dyn Vfs, target: &Target, reporter: &mut Reporter<'_>) -> Result<(), Failure> {
    let dump = dump_manifest(vfs, &target.path)?;
    if target.number.is_some_and(|number| number != dump.number) {
        let what = format!("the header is that of number {}", dump.number);
        reporter.report(Fault::damage(&target.path, 0, what));
    }
    dump_faults(&dump).into_iter().for_each(|fault| reporter.report(fault));
    let dir = target.path.parent().unwrap_or(Path::new(""));
    Picture::new(&dump).check_levels(dir, &mut |fault| reporter.report(fault));
    Ok(())
}

/// The fault of a file of ours that can't be looked at.
pub(crate) fn no_file(path: &Path, number: FileNumber, is_certain: bool) -> Fault {
    let what = format!("the manifest names table {number}, and it is missing");
    if is_certain { Fault::damage(path, 0, what) } else { Fault::doubt(path, 0, what) }
}

/// Whether an error is one of the system: then what it says about the bytes is nothing.
pub(crate) fn is_io(error: &Error) -> bool {
    Fault::from(error).class == Class::Io
}
