//! `ManifestWriter`: starts a manifest with a snapshot, appends edits, and keeps `CURRENT` true.
//!
//! One owner, which serialises the edits (the engine's manifest lock). The file is a log segment in the framing of
//! `esker-wal`: its records carry the edits, numbered from 1 without a gap. Every edit is synced before the next one is
//! appended, so a record states that all earlier ones are durable, and only the last one can be torn by a crash.
//!
//! Nothing is deleted here but a stale `CURRENT.tmp`: which manifests are obsolete is for the engine to say.

use crate::current::{Current, InstallError, ManifestEnd};
use crate::{ManifestState, VersionEdit};
use esker_base::{Checksum, Error, FileKind, FileNumber, Result};
use esker_vfs::{Vfs, WritableFile};
use esker_wal::{LogKind, RecordContext, RecordFields, RecordType, SegmentEnd, SegmentHeader, encode_record};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A manifest is not worth replacing below this size, in bytes.
const ROLL_LEN_MIN: u64 = 1 << 20;

/// What an edit takes beside its payload, at most.
const RECORD_MORE: u64 = 64;

/// Appends edits to the manifest that `CURRENT` names.
#[derive(Debug)]
pub struct ManifestWriter {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    path: PathBuf,
    number: FileNumber,
    file: Box<dyn WritableFile>,
    context: RecordContext,
    /// Of all bytes so far.
    checksum: Checksum,
    len: u64,
    snapshot_len: u64,
    /// Up to this length the device is known to have room for the file.
    roomy_until: u64,
    last_edit: u64,
    /// The first failure; nothing is appended after it (M5).
    poisoned: Option<Error>,
    payload: Vec<u8>,
    record: Vec<u8>,
}

/// A failed [`ManifestWriter::create`].
#[derive(Debug)]
pub struct CreateError {
    /// What failed.
    pub error: Error,
    /// Whether `CURRENT` surely still names the manifest that it named before. Only then may edits be appended to that
    /// one; otherwise a crash may leave either as the current one, and the way on is another
    /// [`create`](ManifestWriter::create), with a new number.
    pub old_is_current: bool,
}

impl From<CreateError> for Error {
    fn from(failed: CreateError) -> Self {
        failed.error
    }
}

impl From<InstallError> for CreateError {
    fn from(InstallError { error, old_is_current }: InstallError) -> Self {
        CreateError { error, old_is_current }
    }
}

impl fmt::Display for CreateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = if self.old_is_current { "still current" } else { "perhaps not current any more" };
        write!(f, "{}; the old manifest is {current}", self.error)
    }
}

impl std::error::Error for CreateError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl ManifestWriter {
    /// Starts the manifest `number` with all of `state` and makes it the current one. The order is M2's: snapshot, sync,
    /// sync of the directory, then `CURRENT` by temporary file, sync, rename, sync of the directory; so at every moment
    /// `CURRENT` names a whole manifest. `dir` must exist, and its own name must be durable.
    ///
    /// The state must know of `number` as taken: its `next_file` is larger.
    ///
    /// # Errors
    ///
    /// Nothing is removed after an error, and the number must not be tried again. [`CreateError`] tells whether the
    /// manifest before may still be appended to.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        dir: &Path,
        number: FileNumber,
        state: &ManifestState,
    ) -> Result<Self, CreateError> {
        let mut writer = Self::start(vfs, dir, number, state)
            .map_err(|error| CreateError { error, old_is_current: true })?;
        Current { manifest: number, closed: None }.install(&*writer.vfs, dir)?;
        writer.snapshot_len = writer.len;
        Ok(writer)
    }

    /// Writes and syncs the file with its snapshot, and its name.
    fn start(vfs: Arc<dyn Vfs>, dir: &Path, number: FileNumber, state: &ManifestState) -> Result<Self> {
        if number >= state.next_file {
            return Err(Error::fatal(format!("manifest {number} is beyond next file {}", state.next_file)));
        }
        let path = FileKind::Manifest.path(dir, number);
        let file = vfs.create_new(&path).map_err(|error| Error::io("create", &path, error))?;
        let mut writer = ManifestWriter {
            vfs,
            dir: dir.to_owned(),
            path,
            number,
            file,
            context: RecordContext::new(LogKind::Manifest, state.store_id, number),
            checksum: Checksum::new(&[]),
            len: 0,
            snapshot_len: 0,
            roomy_until: 0,
            last_edit: 0,
            poisoned: None,
            payload: Vec::new(),
            record: Vec::new(),
        };
        let previous = SegmentEnd::none(0);
        let header =
            SegmentHeader { kind: LogKind::Manifest, store_id: state.store_id, number, previous }.encode();
        writer.write(&header)?;
        writer.write_edit(&state.to_snapshot_edit())?;
        writer.file.sync_all().map_err(|error| Error::io("sync", &writer.path, error))?;
        writer.vfs.sync_dir(dir).map_err(|error| Error::io("sync", dir, error))?;
        Ok(writer)
    }

    /// Sees to it that the device has room for `edit`, and for `ahead` bytes of later ones if it can have that, so that
    /// [`append`](Self::append) does not fail for want of it. Nothing is written.
    ///
    /// # Errors
    ///
    /// The error of a poisoned writer, and [`NoSpace`](esker_base::ErrorKind::NoSpace) when there is no room: then the
    /// manifest is as it was, and the edit can be tried again.
    pub fn make_room(&mut self, edit: &VersionEdit, ahead: u64) -> Result<()> {
        if let Some(cause) = &self.poisoned {
            return Err(Error::read_only(cause.clone()));
        }
        self.payload.clear();
        edit.encode(&mut self.payload);
        let needed = self.len.saturating_add(self.payload.len() as u64).saturating_add(RECORD_MORE);
        if needed <= self.roomy_until {
            return Ok(());
        }
        let wanted = needed.saturating_add(ahead);
        self.roomy_until = match self.file.preallocate(wanted) {
            Ok(()) => wanted,
            Err(_) => {
                let made = self.file.preallocate(needed);
                made.map_err(|error| Error::io("preallocate", &self.path, error))?;
                needed
            }
        };
        Ok(())
    }

    /// Appends an edit and makes it durable. Apply it to the [`ManifestState`] first: what that refuses must not be
    /// logged.
    ///
    /// # Errors
    ///
    /// After any error the writer is poisoned and refuses everything, because the edit may or may not be found at the
    /// next open (M5): only a new manifest, made by [`create`](Self::create) from the state *without or with* the edit,
    /// settles it. No file may be deleted before that.
    pub fn append(&mut self, edit: &VersionEdit) -> Result<()> {
        if let Some(cause) = &self.poisoned {
            return Err(Error::read_only(cause.clone()));
        }
        let written = self
            .write_edit(edit)
            .and_then(|()| self.file.sync_data().map_err(|error| Error::io("sync", &self.path, error)));
        written.inspect_err(|error| self.poisoned = Some(error.clone()))
    }

    /// Ends the manifest at a clean close: `CURRENT` then states its exact length and checksum, so that the next open
    /// finds any damage to it.
    ///
    /// # Errors
    ///
    /// The error of a poisoned writer, or of the replacement of `CURRENT`. The store then opens as after a crash.
    pub fn write_clean_current(self) -> Result<()> {
        if let Some(cause) = self.poisoned {
            return Err(Error::read_only(cause));
        }
        let end = ManifestEnd { len: self.len, crc: self.checksum.finish() };
        self.file.close().map_err(|error| Error::io("close", &self.path, error))?;
        let current = Current { manifest: self.number, closed: Some(end) };
        current.install(&*self.vfs, &self.dir).map_err(|failed| failed.error)
    }

    /// Number of the manifest.
    pub fn number(&self) -> FileNumber {
        self.number
    }

    /// Length of the manifest in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a manifest is never empty")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file has grown so far beyond its snapshot (4 times, and 1 MiB) that a new manifest is worth writing.
    pub fn is_oversized(&self) -> bool {
        self.len > ROLL_LEN_MIN.max(self.snapshot_len.saturating_mul(4))
    }

    /// The failure after which nothing is appended any more.
    pub fn poisoned(&self) -> Option<&Error> {
        self.poisoned.as_ref()
    }

    fn write_edit(&mut self, edit: &VersionEdit) -> Result<()> {
        let number = self.last_edit + 1;
        let fields =
            RecordFields { record_type: RecordType::Edit, first: number, count: 1, durable: number - 1 };
        self.payload.clear();
        edit.encode(&mut self.payload);
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        encode_record(&mut record, &self.context, self.len, &fields, &self.payload)?;
        self.write(&record)?;
        self.record = record;
        self.last_edit = number;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes).map_err(|error| Error::io("append", &self.path, error))?;
        self.len += bytes.len() as u64;
        self.checksum = self.checksum.clone().bytes(bytes);
        Ok(())
    }
}
