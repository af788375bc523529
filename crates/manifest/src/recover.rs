//! [`recover`]: finds the current manifest of a directory and replays it.
//!
//! Reads only; what the answer implies (a new manifest, the deletion of orphans) is for the engine to do. The rules:
//!
//! - A failed read is an error and never an end.
//! - Edit numbers are contiguous from 1, and the first edit is a snapshot (M4).
//! - After a clean close `CURRENT` states length and checksum, and any difference is `Corruption`.
//! - Otherwise the last record may be torn: an edit that was not acknowledged. It is left out only if every table and log
//!   segment that the older state needs is there, because what looks torn may also be a damaged edit whose inputs were
//!   deleted. A damaged record with an intact one behind it is always `Corruption`.
//! - Every table of the state must be there, with the size that the manifest states (M8).

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

use crate::ManifestState;
use crate::current::{Current, ManifestEnd};
use crate::state::StateBuilder;
use crate::version_edit::VersionEdit;
use esker_base::{Checksum, Error, FileKind, FileNumber, Result, parse_file_name, planted};
use esker_vfs::{EntryKind, Vfs};
use esker_wal::{HEADER_LEN, LogEnd, LogKind, LogReader, Record};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// What [`recover`] found.
#[derive(Clone, Debug)]
pub enum Recovery {
    /// No store: the directory is missing, or has no file of one, or only what a creation left that did not finish.
    Missing {
        /// Largest number in the names of such left files; new files need larger ones. 0 when there are none.
        max_file_number_seen: FileNumber,
    },
    /// A store.
    Store(Box<Recovered>),
}

/// A store as its manifest describes it.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// What the edits add up to. Its `next_file` is beyond every number in the directory (M7).
    pub state: ManifestState,
    /// Number of the manifest it was read from.
    pub manifest_number: FileNumber,
    /// Whether the store was closed cleanly.
    pub clean: bool,
    /// The last edit, if it was torn and left out. No orphan may be deleted in this open then: the torn edit may be a
    /// damaged one that made them.
    pub torn_tail: Option<TornTail>,
    /// Largest number in any name in the directory that has the form of ours.
    pub max_file_number_seen: FileNumber,
}

/// A last edit that is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// Where it starts in the manifest, in bytes.
    pub offset: u64,
    /// Bytes from there to the end of the file.
    pub len: u64,
    /// What is wrong with it.
    pub what: String,
}

/// Finds and replays the current manifest of `dir`. Changes nothing.
///
/// # Errors
///
/// `Io` for every failed read; `UnsupportedFormat` for files of a newer format; `Corruption` with file and offset for
/// damage, and for tables or log segments without a `CURRENT` that names a manifest.
pub fn recover(vfs: &dyn Vfs, dir: &Path) -> Result<Recovery> {
    let files = Files::list(vfs, dir)?;
    let max_file_number_seen = files.max_number;
    let Some(current) = Current::read(vfs, dir)? else {
        return match files.evidence() {
            None => Ok(Recovery::Missing { max_file_number_seen }),
            Some(name) => {
                let path = FileKind::Current.path(dir, FileNumber(0));
                Err(Error::corruption(path, 0, format!("it is missing, but there is {name}")))
            }
        };
    };
    let replay = Replay::run(vfs, dir, current.manifest)?;
    let torn_tail = match current.closed {
        Some(end) => replay.check_closed(vfs, end).map(|()| None)?,
        None => replay.torn_tail()?,
    };
    let mut state = replay.state;
    files.check_tables(dir, &state)?;
    if let Some(torn) = &torn_tail {
        files.check_segments(&replay.path, torn, &state)?;
    }
    let next = max_file_number_seen.0.checked_add(1);
    let next = next.ok_or_else(|| Error::corruption(dir, 0, "a file has the largest possible number"))?;
    if !planted::is(planted::Fault::FileNumberReused) {
        state.next_file = state.next_file.max(FileNumber(next));
    }
    Ok(Recovery::Store(Box::new(Recovered {
        state,
        manifest_number: current.manifest,
        clean: current.closed.is_some(),
        torn_tail,
        max_file_number_seen,
    })))
}

/// The files of a directory that have a number. Others are none of ours.
#[derive(Debug, Default)]
struct Files {
    max_number: FileNumber,
    /// Number and size.
    tables: BTreeMap<FileNumber, u64>,
    /// Number and whether it is a `.lost` one.
    segments: BTreeMap<FileNumber, FileKind>,
    /// Whether a segment is longer than its header.
    has_records: bool,
}

impl Files {
    fn list(vfs: &dyn Vfs, dir: &Path) -> Result<Self> {
        let entries = match vfs.list(dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::io("list", dir, error)),
        };
        let mut files = Files::default();
        for entry in &entries {
            let Some((kind, number)) = parse_file_name(&entry.name) else { continue };
            // Whatever has the name: no file of ours can get it.
            files.max_number = files.max_number.max(number);
            if entry.kind != EntryKind::File {
                continue;
            }
            match kind {
                FileKind::Table => {
                    files.tables.insert(number, entry.size);
                }
                FileKind::Wal | FileKind::LostWal => {
                    files.segments.insert(number, kind);
                    files.has_records |= entry.size > HEADER_LEN;
                }
                FileKind::Manifest | FileKind::Current | FileKind::CurrentTemp | FileKind::Lock => {}
            }
        }
        Ok(files)
    }

    /// A file that can only be there after a store was created. A log segment without a record is none: the first one
    /// is made before `CURRENT`, so a crash in a creation leaves it.
    fn evidence(&self) -> Option<String> {
        let table = self.tables.keys().next().map(|number| FileKind::Table.name(*number));
        let segment = self.segments.iter().next().filter(|_| self.has_records);
        table.or_else(|| segment.map(|(number, kind)| kind.name(*number)))
    }

    fn check_tables(&self, dir: &Path, state: &ManifestState) -> Result<()> {
        for keyspace in state.keyspaces.values() {
            for (_, table) in keyspace.version.tables() {
                let what = match self.tables.get(&table.number) {
                    None => "the manifest names it, but it is not there".to_owned(),
                    Some(size) if *size != table.file_size => {
                        format!("it has {size} bytes, the manifest says {}", table.file_size)
                    }
                    Some(_) => continue,
                };
                return Err(Error::corruption(FileKind::Table.path(dir, table.number), 0, what));
            }
        }
        Ok(())
    }

    /// With a torn edit left out, the oldest log segment that each keyspace needs must be there.
    fn check_segments(&self, manifest: &Path, torn: &TornTail, state: &ManifestState) -> Result<()> {
        for keyspace in state.keyspaces.values().filter(|keyspace| keyspace.log_number.0 != 0) {
            if self.segments.get(&keyspace.log_number) != Some(&FileKind::Wal) {
                let name = FileKind::Wal.name(keyspace.log_number);
                let what = format!("{}; and {name}, which the edits before it need, is not there", torn.what);
                return Err(Error::corruption(manifest, torn.offset, what));
            }
        }
        Ok(())
    }
}

/// The readable records of a manifest, replayed.
struct Replay {
    path: PathBuf,
    state: ManifestState,
    end: LogEnd,
    /// Where an intact record follows the faulty end.
    intact_behind: Option<u64>,
    /// Length of the file.
    len: u64,
}

impl Replay {
    fn run(vfs: &dyn Vfs, dir: &Path, number: FileNumber) -> Result<Self> {
        let path = FileKind::Manifest.path(dir, number);
        let (header, mut reader) = match LogReader::open(vfs, &path, LogKind::Manifest) {
            Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => {
                return Err(Error::corruption(&path, 0, "CURRENT names it, but it is not there"));
            }
            opened => opened?,
        };
        if header.number != number {
            return Err(Error::corruption(
                &path,
                0,
                format!("the header is that of manifest {}", header.number),
            ));
        }
        let len = reader.limit();
        let mut edits = Edits::default();
        while let Some(record) = reader.next_record()? {
            let edit = decode_record(&record, &path)?;
            edits.add(record.fields.first, record.offset, &edit, &path)?;
        }
        let end = reader.end().unwrap_or(LogEnd::Clean { offset: len, zeros: 0 });
        let intact_behind = reader.resync()?;
        let state = edits.build(&path, end)?;
        if state.store_id != header.store_id {
            return Err(Error::corruption(&path, 0, "the store ids of header and snapshot differ"));
        }
        Ok(Replay { path, state, end, intact_behind, len })
    }

    /// After a clean close: the file is exactly what was written.
    fn check_closed(&self, vfs: &dyn Vfs, expected: ManifestEnd) -> Result<()> {
        let offset = self.end.offset();
        if let LogEnd::Faulty { fault, .. } = self.end {
            return Err(Error::corruption(&self.path, offset, fault.to_string()));
        }
        if self.len != expected.len || offset != expected.len {
            let what = format!("CURRENT says {} bytes; {offset} of {} can be read", expected.len, self.len);
            return Err(Error::corruption(&self.path, offset.min(expected.len), what));
        }
        let crc = file_checksum(vfs, &self.path)?;
        if crc != expected.crc {
            let what = format!("checksum of the whole file {:08x}, computed {crc:08x}", expected.crc);
            return Err(Error::corruption(&self.path, 0, what));
        }
        Ok(())
    }

    /// After an unclean end: what may be a torn last edit.
    fn torn_tail(&self) -> Result<Option<TornTail>> {
        let (offset, what) = match self.end {
            LogEnd::Clean { zeros: 0, .. } => return Ok(None),
            LogEnd::Clean { offset, zeros } => (offset, format!("{zeros} zeros")),
            LogEnd::Faulty { offset, fault } => (offset, fault.to_string()),
        };
        match self.intact_behind {
            None => Ok(Some(TornTail { offset, len: self.len.saturating_sub(offset), what })),
            Some(behind) => {
                let what = format!("{what}; an intact record follows at offset {behind}");
                Err(Error::corruption(&self.path, offset, what))
            }
        }
    }
}

/// The edit in a record.
pub(crate) fn decode_record(record: &Record<'_>, path: &Path) -> Result<VersionEdit> {
    let framing = record.len.saturating_sub(bytes(record.payload.len()));
    VersionEdit::decode(record.payload, path, record.offset.saturating_add(framing))
}

/// Gathers the edits of one file.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    builder: Option<StateBuilder>,
    last_number: u64,
}

impl Edits {
    /// Adds the edit of the next record.
    pub(crate) fn add(&mut self, number: u64, offset: u64, edit: &VersionEdit, path: &Path) -> Result<()> {
        let expected = self.last_number.saturating_add(1);
        let corrupt = |what| Error::corruption(path, offset, what);
        if number != expected {
            return Err(corrupt(format!("edit {number} where edit {expected} should be")));
        }
        self.last_number = number;
        match &mut self.builder {
            Some(builder) => builder.apply(edit).map_err(corrupt),
            None => {
                self.builder = Some(StateBuilder::from_snapshot(edit).map_err(corrupt)?);
                Ok(())
            }
        }
    }

    /// What the edits add up to; `end` is where they end.
    pub(crate) fn build(self, path: &Path, end: LogEnd) -> Result<ManifestState> {
        let corrupt = |what| Error::corruption(path, end.offset(), what);
        let Some(builder) = self.builder else {
            return Err(corrupt(match end {
                LogEnd::Clean { .. } => "there is no snapshot".to_owned(),
                LogEnd::Faulty { fault, .. } => format!("there is no snapshot: {fault}"),
            }));
        };
        builder.build().map_err(corrupt)
    }
}

/// The CRC-32 of a whole file.
fn file_checksum(vfs: &dyn Vfs, path: &Path) -> Result<u32> {
    let file = vfs.open(path).map_err(|error| Error::io("open", path, error))?;
    let mut checksum = Checksum::new(&[]);
    let mut buf = vec![0; 64 << 10];
    let mut offset = 0_u64;
    loop {
        let read = file.read_at(offset, &mut buf).map_err(|error| Error::io("read", path, error))?;
        if read == 0 {
            return Ok(checksum.finish());
        }
        checksum = checksum.bytes(buf.get(..read).unwrap_or_default());
        offset = offset.saturating_add(bytes(read));
    }
}

/// A length in memory as one in a file.
fn bytes(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
