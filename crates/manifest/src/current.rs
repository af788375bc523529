//! `CURRENT`: the small text file that names the manifest that counts.
//!
//! ```text
//! esker current 1
//! manifest 42
//! open                       or: closed <length of the manifest> <its CRC-32 in 8 hexadecimal digits>
//! crc 1a2b3c4d               of all bytes before this line
//! ```
//!
//! `closed` is written by a clean close and states exactly what the manifest holds; while the store is open, and after it
//! crashed, the file says `open`. Only numbers are stored, so a foreign file can't name a path outside the directory
//! (AP13). The file is replaced by rename and never written in place (M2).

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

use esker_base::{Error, FileKind, FileNumber, Result, checksum, planted};
use esker_vfs::Vfs;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Longest `CURRENT` that can be one, in bytes.
const MAX_LEN: usize = 256;
const MAGIC: &str = "esker current ";
const VERSION: &str = "1";

/// What `CURRENT` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Number of the manifest that counts.
    pub manifest: FileNumber,
    /// How the manifest ends, when the store was closed cleanly.
    pub closed: Option<ManifestEnd>,
}

/// The whole content of a manifest in two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManifestEnd {
    /// Length in bytes.
    pub len: u64,
    /// CRC-32 of all bytes.
    pub crc: u32,
}

impl Current {
    /// The file's content.
    pub fn encode(&self) -> String {
        let mut text = format!("{MAGIC}{VERSION}\nmanifest {}\n", self.manifest.0);
        match self.closed {
            None => text.push_str("open\n"),
            Some(end) => {
                writeln!(text, "closed {} {:08x}", end.len, end.crc).expect("a string takes any text")
            }
        }
        let crc = checksum(&[], text.as_bytes());
        writeln!(text, "crc {crc:08x}").expect("a string takes any text");
        text
    }

    /// Reads the content of the file at `path`, which errors name.
    ///
    /// # Errors
    ///
    /// `Corruption` for every byte that [`encode`](Self::encode) would not have written; `UnsupportedFormat` for an
    /// intact file of another version.
    pub fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let corrupt = |what: &str| Error::corruption(path, 0, what);
        let text = str::from_utf8(bytes).map_err(|_| corrupt("it is no text"))?;
        let body = text.get(..text.len().saturating_sub("crc 00000000\n".len())).unwrap_or_default();
        if text.get(body.len()..) != Some(&*format!("crc {:08x}\n", checksum(&[], body.as_bytes()))) {
            let ours = text.starts_with(MAGIC);
            let what = if ours {
                "its checksum does not match"
            } else {
                "it is not the CURRENT of an esker database"
            };
            return Err(corrupt(what));
        }
        let mut lines = body.lines();
        let version =
            lines.next().and_then(|line| line.strip_prefix(MAGIC)).ok_or_else(|| corrupt("no magic"))?;
        if version != VERSION {
            return Err(Error::unsupported(path, format!("version {version:?} of CURRENT")));
        }
        Self::decode_lines(lines)
            .filter(|current| current.encode() == text)
            .ok_or_else(|| corrupt("it is not in the form that is written"))
    }

    fn decode_lines<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<Self> {
        let manifest = FileNumber(lines.next()?.strip_prefix("manifest ")?.parse().ok()?);
        let end = lines.next()?;
        let closed = match end.strip_prefix("closed ") {
            None => None,
            Some(end) => {
                let (len, crc) = end.split_once(' ')?;
                Some(ManifestEnd { len: len.parse().ok()?, crc: u32::from_str_radix(crc, 16).ok()? })
            }
        };
        Some(Current { manifest, closed })
    }

    /// Reads `CURRENT` of a directory; `None` when there is none.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode), and `Io` when it can't be read.
    pub fn read(vfs: &dyn Vfs, dir: &Path) -> Result<Option<Self>> {
        let path = FileKind::Current.path(dir, FileNumber(0));
        let file = match vfs.open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io("open", &path, error)),
        };
        // One byte more than allowed, so that a longer file is told without being read.
        let mut bytes = [0; MAX_LEN + 1];
        let len = file.read_at(0, &mut bytes).map_err(|error| Error::io("read", &path, error))?;
        match bytes.get(..len) {
            Some(bytes) if len <= MAX_LEN => Self::decode(bytes, &path).map(Some),
            _ => Err(Error::corruption(&path, 0, "it is too long")),
        }
    }

    /// Replaces `CURRENT` durably (M2): temporary file, sync, rename, sync of the directory.
    pub(crate) fn install(&self, vfs: &dyn Vfs, dir: &Path) -> Result<(), InstallError> {
        self.write_temp(vfs, dir).map_err(InstallError::before_rename)?;
        let path = FileKind::Current.path(dir, FileNumber(0));
        let renamed = vfs.rename(&FileKind::CurrentTemp.path(dir, FileNumber(0)), &path);
        if let Err(error) = renamed {
            // It may have happened all the same (M6): only the file itself knows.
            match Current::read(vfs, dir) {
                Ok(Some(current)) if current == *self => {}
                truth => {
                    let old_is_current = matches!(truth, Ok(Some(_)));
                    return Err(InstallError { error: Error::io("rename", &path, error), old_is_current });
                }
            }
        }
        if planted::is(planted::Fault::CurrentNameNotSynced) {
            return Ok(());
        }
        vfs.sync_dir(dir)
            .map_err(|error| InstallError { error: Error::io("sync", dir, error), old_is_current: false })
    }

    fn write_temp(&self, vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        let path = FileKind::CurrentTemp.path(dir, FileNumber(0));
        match vfs.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &path, error));
            }
            _ => {}
        }
        let mut file = vfs.create_new(&path).map_err(|error| Error::io("create", &path, error))?;
        file.append(self.encode().as_bytes()).map_err(|error| Error::io("append", &path, error))?;
        if !planted::is(planted::Fault::CurrentNotSynced) {
            file.sync_all().map_err(|error| Error::io("sync", &path, error))?;
        }
        file.close().map_err(|error| Error::io("close", &path, error))
    }
}

/// A failed replacement of `CURRENT`.
#[derive(Debug)]
pub(crate) struct InstallError {
    pub(crate) error: Error,
    /// Whether the old file surely is still in place. Otherwise a crash may leave the old or the new one.
    pub(crate) old_is_current: bool,
}

impl InstallError {
    fn before_rename(error: Error) -> Self {
        InstallError { error, old_is_current: true }
    }
}
