//! The traits of the file system, [`Vfs`] and its files, with the promise of what survives a crash.
//!
//! Every layer above codes against these names; the implementations are in the neighbouring files. All of them are
//! held to the same behaviour by [`crate::contract`].

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file system.
///
/// # What survives a crash
///
/// *Process crash*: everything that a call has returned from. *Power loss*: only what was synced.
///
/// | call | durable after |
/// |---|---|
/// | [`WritableFile::append`], [`WritableFile::truncate`], [`WritableFile::extend`] | [`WritableFile::sync_data`] or [`WritableFile::sync_all`] of that file |
/// | [`create_new`](Vfs::create_new), [`rename`](Vfs::rename), [`link`](Vfs::link), [`remove`](Vfs::remove) | [`sync_dir`](Vfs::sync_dir) of the parent directory |
/// | [`create_dir_all`](Vfs::create_dir_all) | [`sync_dir`](Vfs::sync_dir) of each new directory's parent |
///
/// Syncing a file does not make its directory entry durable. Unsynced changes may survive in part and in any order.
/// After a failed sync the data that was pending must be taken as lost, and the file must not be synced again in the
/// hope that it then is durable.
pub trait Vfs: Send + Sync + Debug {
    /// Creates a file that must not exist yet and opens it for appending.
    ///
    /// Fails with [`io::ErrorKind::AlreadyExists`] when the name is taken. On Unix the mode is 0600 and links are
    /// not followed.
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;

    /// Opens an existing regular file for reading. Does not follow a symbolic link in the last component.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>>;

    /// Opens an existing regular file for appending at its end.
    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WritableFile>>;

    /// Renames a file, replacing the target when it exists. Atomic for readers.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Makes a second name (a hard link) for a file. The new name must not exist.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file's name. Open handles go on reading its content.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Lists a directory, sorted by name. Names that are not UTF-8 are left out.
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>>;

    /// Creates a directory and its missing parents (mode 0700 on Unix). An existing directory is fine.
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;

    /// Makes the entries of a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the exclusive lock on `path`, creating the file when it is missing; never waits.
    ///
    /// Fails with [`io::ErrorKind::WouldBlock`] when the lock is held, by this process or by another one. Dropping
    /// the returned value releases the lock; the file stays.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>>;

    /// Bytes that can still be written below `dir`, where that is known.
    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>>;

    /// What `path` names, without following a symbolic link; `None` when nothing is there.
    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>>;
}

/// A file open for appending. One writer at a time owns it.
pub trait WritableFile: Send + Debug {
    /// Appends all of `data`. After an error an unknown part of it may have been appended.
    fn append(&mut self, data: &[u8]) -> io::Result<()>;

    /// Makes the content and the length durable (`fdatasync`).
    fn sync_data(&mut self) -> io::Result<()>;

    /// Makes content, length and all metadata durable (`fsync`).
    fn sync_all(&mut self) -> io::Result<()>;

    /// Length in bytes: where the next append goes.
    fn len(&self) -> u64;

    /// Whether the file holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Cuts the file to `len` bytes, at most its present length. The next append goes there.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Reserves room on the device up to `len` bytes without changing the length. May do nothing.
    fn preallocate(&mut self, len: u64) -> io::Result<()>;

    /// Makes the file at least `len` bytes long, with room on the device, and zeros behind what was appended.
    ///
    /// The next append still goes to [`len`](Self::len), which stays, and takes the place of zeros; a cut takes the zeros
    /// away. A sync of bytes that stand within the file is cheaper than one that has to note a new length. May do nothing.
    /// After an error some of the zeros may be there.
    fn extend(&mut self, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Does the same, and maps into memory what lies behind [`len`](Self::len). Appends that fit are then stored there,
    /// without a call of the system; for who reads the file, for crashes and for syncs they are appends as any other.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::Unsupported`] where that is not known to be safe; nothing was done then. After other errors some of
    /// the zeros may be there, and appends go on without a mapping.
    fn map(&mut self, _len: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// A handle that makes the file durable while this one goes on writing, and after it was closed.
    fn syncer(&self) -> Arc<dyn FileSync>;

    /// Closes the file and reports a late error that the system kept for it. Does not sync.
    fn close(self: Box<Self>) -> io::Result<()>;
}

/// Makes a file durable beside its writer, from any thread.
///
/// The system tells of a failure once for writer and syncers together: of two syncs that run at the same time, only one
/// may learn of it. So there must be one at a time.
pub trait FileSync: Send + Sync + Debug {
    /// Makes durable what was appended before the call (`fdatasync`). What is appended meanwhile may be durable or not.
    fn sync_data(&self) -> io::Result<()>;
}

/// A file open for reading at any offset, from many threads at once.
pub trait RandomAccessFile: Send + Sync + Debug {
    /// Reads into `buf` from `offset`; returns how many bytes were read. Fewer than asked means end of file;
    /// interrupted and short reads are repeated inside.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;

    /// The first offset from `offset` on that may hold another byte than zero, or the end of the file. A file system that
    /// does not know holes says `offset`.
    fn next_data(&self, offset: u64) -> io::Result<u64> {
        Ok(offset)
    }

    /// Whether the file holds no byte.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Fills `buf` from `offset`, or fails with [`io::ErrorKind::UnexpectedEof`] when the file ends before.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let read = self.read_at(offset, buf)?;
        if read == buf.len() {
            Ok(())
        } else {
            Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{} bytes wanted at offset {offset}, {read} there", buf.len()),
            ))
        }
    }
}

/// A held lock on a file. Dropping it releases the lock.
pub trait FileLock: Send + Sync + Debug {}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: String,
    /// What the name stands for.
    pub kind: EntryKind,
    /// Size in bytes of a regular file, else 0.
    pub size: u64,
}

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, a pipe, a device: nothing that esker touches.
    Other,
}
