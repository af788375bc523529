//! [`Fault`]: one thing that is wrong, with its place; and the exit code that all of them together lead to.

use crate::text::Safe;
use esker_base::{Error, ErrorKind};
use serde::Serialize;
use std::fmt;
use std::io;
use std::path::Path;

/// What sort of fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Bytes are not what was written, or files do not fit together.
    Damage,
    /// What a crash leaves, or damage: the bytes do not tell. The end of a log that is not whole, for instance.
    Doubt,
    /// The operating system refused something, so the answer is not complete.
    Io,
    /// A file of a newer format, or none of esker's.
    Unsupported,
    /// The question does not fit the file.
    Usage,
}

impl Class {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Class::Damage => "damage",
            Class::Doubt => "doubt",
            Class::Io => "io",
            Class::Unsupported => "unsupported",
            Class::Usage => "usage",
        }
    }

    /// The exit code.
    pub fn exit(self) -> Exit {
        match self {
            Class::Damage | Class::Doubt => Exit::Damage,
            Class::Io => Exit::Io,
            Class::Unsupported => Exit::Unsupported,
            Class::Usage => Exit::Usage,
        }
    }
}

/// The exit codes of the tool, in ascending order of weight: of several the heaviest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// 0: nothing is wrong.
    #[default]
    Fine,
    /// 4: a file of a newer format, or none of esker's.
    Unsupported,
    /// 3: the operating system refused something.
    Io,
    /// 1: damage, or doubt.
    Damage,
    /// 2: the arguments make no sense. Nothing was looked at.
    Usage,
}

impl Exit {
    /// The number for the operating system.
    pub fn code(self) -> u8 {
        match self {
            Exit::Fine => 0,
            Exit::Damage => 1,
            Exit::Usage => 2,
            Exit::Io => 3,
            Exit::Unsupported => 4,
        }
    }

    /// The exit code that these faults lead to.
    pub fn of<'a>(faults: impl IntoIterator<Item = &'a Fault>) -> Exit {
        faults.into_iter().map(|fault| fault.class.exit()).max().unwrap_or_default()
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Its sort.
    pub class: Class,
    /// The file or directory.
    pub file: String,
    /// Where in the file, in bytes from its start, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// What was found, and what was expected.
    pub what: String,
}

impl Fault {
    /// Damage at an offset.
    pub fn damage(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Fault { class: Class::Damage, file: name(file), offset: Some(offset), what: what.into() }
    }

    /// Perhaps damage, at an offset.
    pub fn doubt(file: &Path, offset: u64, what: impl Into<String>) -> Self {
        Fault { class: Class::Doubt, ..Self::damage(file, offset, what) }
    }

    /// A fault of another class, without an offset.
    pub fn of(class: Class, file: &Path, what: impl Into<String>) -> Self {
        Fault { class, file: name(file), offset: None, what: what.into() }
    }
}

/// A path as it is reported.
pub(crate) fn name(path: &Path) -> String {
    path.display().to_string()
}

impl From<&Error> for Fault {
    fn from(error: &Error) -> Self {
        let cause = |text: &'static str| match std::error::Error::source(error) {
            Some(source) => format!("{text}: {source}"),
            None => text.to_owned(),
        };
        match error.kind() {
            ErrorKind::Corruption { file, offset, what } => Fault::damage(file, *offset, what),
            ErrorKind::UnsupportedFormat { file, what } => Fault::of(Class::Unsupported, file, what),
            ErrorKind::Io { op, path } | ErrorKind::NoSpace { op, path } => {
                Fault::of(Class::Io, path, cause(op))
            }
            ErrorKind::InvalidArgument { what } => Fault::of(Class::Usage, Path::new(""), what),
            _ => Fault::of(Class::Damage, Path::new(""), error.to_string()),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Fault::from(&error)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.class.name())?;
        if !self.file.is_empty() {
            write!(f, "{}", Safe(&self.file))?;
            match self.offset {
                Some(offset) => write!(f, " @ {offset}: ")?,
                None => f.write_str(": ")?,
            }
        }
        write!(f, "{}", Safe(&self.what))
    }
}

/// Why a command ended early.
#[derive(Debug)]
pub enum Failure {
    /// There is nothing to go on with.
    Fault(Fault),
    /// What visits the results could not take one: the output is closed, or full.
    Output(io::Error),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Failure::Fault(fault)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Fault(error.into())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Output(error)
    }
}
