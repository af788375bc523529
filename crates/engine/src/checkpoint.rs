//! [`Db::checkpoint`](crate::Db::checkpoint): a second database with what this one holds now, at the cost of names.
//!
//! All that is in memory is flushed. The tables of that moment get a second name in the new directory: a table never changes,
//! so both databases may have it. Where links are refused, as between file systems, they are copied. Then come an empty
//! log segment, which says where the numbers go on, and a manifest of its own.
//!
//! `CURRENT` is the last file to come: built under a temporary name, and renamed when all that it leads to is durable. A
//! directory with tables and without it does not open, so what a crash leaves of a checkpoint is never taken for a whole one.
//! Meanwhile the new directory is locked, like that of an open database: nobody opens it, or makes another copy in it.

use crate::core::Core;
use crate::recovery::{sync_names, take_lock};
use crate::sink::sync_dir;
use crate::{Error, Result};
use esker_base::{FileKind, FileNumber};
use esker_manifest::{ManifestState, ManifestWriter, VersionEdit};
use esker_vfs::{EntryKind, Vfs};
use esker_wal::{LogKind, LogWriter, SegmentEnd, SegmentHeader};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Bytes that a copy reads at a time.
const PIECE: usize = 1 << 20;

impl Core {
    pub(crate) fn checkpoint(&self, target: &Path) -> Result<()> {
        let vfs = &self.components.vfs;
        make_target(vfs.as_ref(), target)?;
        let _lock = take_lock(vfs.as_ref(), target)?;
        // Another one may have been faster.
        check_empty(vfs.as_ref(), target)?;
        self.flush()?;
        let (state, picture) = {
            // Nothing is installed meanwhile, so the picture shows the tables of the state; it keeps their files.
            let versions = self.manifest.lock();
            let mut state = versions.state.clone();
            state.next_file = state.next_file.max(FileNumber(self.next_file_number()));
            (state, self.super_version.load_full())
        };
        let mut made = Vec::new();
        let built = self.build(target, state, &mut made);
        drop(picture);
        if let Err(error) = &built {
            // What was there is not ours.
            if error.io_kind() == Some(io::ErrorKind::AlreadyExists) {
                made.pop();
            }
            // `CURRENT` first: without it, the rest is no database.
            for name in made.iter().rev() {
                let _ = vfs.remove(&target.join(name));
            }
        }
        self.work_available();
        built
    }

    fn build(&self, target: &Path, mut state: ManifestState, made: &mut Vec<String>) -> Result<()> {
        let vfs = &self.components.vfs;
        for number in state.table_numbers() {
            made.push(FileKind::Table.name(number));
            link_or_copy(vfs.as_ref(), &self.tables.path(number), &FileKind::Table.path(target, number))?;
        }
        let (log, manifest) = (state.next_file, FileNumber(state.next_file.0 + 1));
        made.push(FileKind::Wal.name(log));
        self.start_log_of(target, &state, log)?;
        let mut edit = VersionEdit::new();
        for &keyspace in state.keyspaces.keys() {
            edit.set_log_number(keyspace, log);
        }
        edit.next_file = Some(FileNumber(manifest.0 + 1));
        // What this log says about numbers beyond the tables is not about that one.
        state.durable_sequence = state.last_sequence;
        let state = state.apply(&edit)?;
        sync_dir(vfs.as_ref(), target)?;
        made.push(FileKind::Manifest.name(manifest));
        let created = ManifestWriter::create(Arc::clone(vfs), target, manifest, &state);
        let there = |error: &Error| error.io_kind() == Some(io::ErrorKind::AlreadyExists);
        if !created.as_ref().is_err_and(|failed| there(&failed.error)) {
            made.push(FileKind::CurrentTemp.name(FileNumber(0)));
            made.push(FileKind::Current.name(FileNumber(0)));
        }
        created.map_err(|failed| failed.error)?;
        sync_names(vfs.as_ref(), target)
    }

    /// An empty segment that begins where the tables end.
    fn start_log_of(&self, target: &Path, state: &ManifestState, number: FileNumber) -> Result<()> {
        let previous = SegmentEnd::none(state.last_sequence);
        let header = SegmentHeader { kind: LogKind::Wal, store_id: state.store_id, number, previous };
        let path = FileKind::Wal.path(target, number);
        let vfs = self.components.vfs.as_ref();
        LogWriter::create(vfs, &path, header, state.last_sequence)?.sync()
    }
}

fn refused(target: &Path, what: &str) -> Error {
    Error::invalid_argument(format!("{} {what}", target.display()))
}

/// Makes the directory, which must not be there, or be empty.
fn make_target(vfs: &dyn Vfs, target: &Path) -> Result<()> {
    if target.as_os_str().is_empty() {
        return Err(Error::invalid_argument("the path of the checkpoint is empty"));
    }
    match vfs.kind(target).map_err(|error| Error::io("look at", target, error))? {
        None => vfs.create_dir_all(target).map_err(|error| Error::io("create", target, error)),
        Some(EntryKind::Directory) => check_empty(vfs, target),
        Some(_) => Err(refused(target, "is no directory")),
    }
}

/// There may be a lock, which another checkpoint has left that failed.
fn check_empty(vfs: &dyn Vfs, target: &Path) -> Result<()> {
    let entries = vfs.list(target).map_err(|error| Error::io("list", target, error))?;
    let lock = FileKind::Lock.name(FileNumber(0));
    match entries.iter().all(|entry| entry.name == lock) {
        true => Ok(()),
        false => Err(refused(target, "is not empty")),
    }
}

fn link_or_copy(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    match vfs.link(from, to) {
        Ok(()) => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::StorageFull) => {
            Err(Error::io("link", to, error))
        }
        // Another file system, one without links, or a file with too many of them.
        Err(_) => copy(vfs, from, to),
    }
}

fn copy(vfs: &dyn Vfs, from: &Path, to: &Path) -> Result<()> {
    let source = vfs.open(from).map_err(|error| Error::io("open", from, error))?;
    let mut copy = vfs.create_new(to).map_err(|error| Error::io("create", to, error))?;
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    loop {
        let read = source.read_at(offset, &mut piece).map_err(|error| Error::io("read", from, error))?;
        if read == 0 {
            break;
        }
        copy.append(&piece[..read]).map_err(|error| Error::io("append", to, error))?;
        offset += read as u64;
    }
    copy.sync_all().map_err(|error| Error::io("sync", to, error))?;
    copy.close().map_err(|error| Error::io("close", to, error))
}
