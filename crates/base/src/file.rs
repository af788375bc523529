//! The names of the files in a database directory: made from numbers only, and parsed strictly.

use std::fmt;
use std::path::{Path, PathBuf};

/// The number in a file's name. Numbers only grow and are never used twice in a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u64);

impl fmt::Display for FileNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// What a file of the directory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// `NNNNNN.sst`: a table.
    Table,
    /// `NNNNNN.wal`: a segment of the write-ahead log.
    Wal,
    /// `MANIFEST-NNNNNN`: a log of version edits.
    Manifest,
    /// `CURRENT`: names the manifest that counts.
    Current,
    /// `CURRENT.tmp`: a new `CURRENT` that was not renamed yet.
    CurrentTemp,
    /// `LOCK`: held by the process that has the database open.
    Lock,
    /// `NNNNNN.wal.lost`: the part of the log that a point-in-time recovery left out.
    LostWal,
}

impl FileKind {
    /// The name of the file of this kind with `number`, which is left out where the kind has just one file.
    ///
    /// ```
    /// use esker_base::{FileKind, FileNumber, parse_file_name};
    ///
    /// assert_eq!(FileKind::Table.name(FileNumber(42)), "000042.sst");
    /// assert_eq!(parse_file_name("000042.sst"), Some((FileKind::Table, FileNumber(42))));
    /// assert_eq!(parse_file_name("42.sst"), None);
    /// ```
    pub fn name(self, number: FileNumber) -> String {
        match self {
            FileKind::Table => format!("{number}.sst"),
            FileKind::Wal => format!("{number}.wal"),
            FileKind::Manifest => format!("MANIFEST-{number}"),
            FileKind::Current => "CURRENT".to_owned(),
            FileKind::CurrentTemp => "CURRENT.tmp".to_owned(),
            FileKind::Lock => "LOCK".to_owned(),
            FileKind::LostWal => format!("{number}.wal.lost"),
        }
    }

    /// The path of that file in `dir`.
    pub fn path(self, dir: &Path, number: FileNumber) -> PathBuf {
        dir.join(self.name(number))
    }
}

/// Kind and number of a file name; `None` for every name that esker would not have written itself. Kinds without a
/// number have number 0.
pub fn parse_file_name(name: &str) -> Option<(FileKind, FileNumber)> {
    let (kind, digits) = if let Some(digits) = name.strip_suffix(".sst") {
        (FileKind::Table, digits)
    } else if let Some(digits) = name.strip_suffix(".wal") {
        (FileKind::Wal, digits)
    } else if let Some(digits) = name.strip_suffix(".wal.lost") {
        (FileKind::LostWal, digits)
    } else if let Some(digits) = name.strip_prefix("MANIFEST-") {
        (FileKind::Manifest, digits)
    } else {
        let kinds = [FileKind::Current, FileKind::CurrentTemp, FileKind::Lock];
        return kinds
            .into_iter()
            .find(|kind| kind.name(FileNumber(0)) == name)
            .map(|kind| (kind, FileNumber(0)));
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = FileNumber(digits.parse().ok()?);
    (kind.name(number) == name).then_some((kind, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ap09_only_exact_names_parse() {
        for kind in [FileKind::Table, FileKind::Wal, FileKind::Manifest, FileKind::LostWal] {
            for number in [0, 1, 999_999, 1_000_000, u64::MAX] {
                let name = kind.name(FileNumber(number));
                assert_eq!(parse_file_name(&name), Some((kind, FileNumber(number))), "{name}");
            }
        }
        let foreign = [
            "",
            ".DS_Store",
            "000001.sst.bak",
            "1.sst",
            "+00001.sst",
            "0000001.sst",
            "18446744073709551616.sst",
            "MANIFEST-",
            "MANIFEST-1",
            "manifest-000001",
            "CURRENT.bak",
            "000001.SST",
            "00000a.wal",
            " 000001.wal",
            "../000001.sst",
            "000001.wal.lost.lost",
        ];
        for name in foreign {
            assert_eq!(parse_file_name(name), None, "{name}");
        }
    }
}
