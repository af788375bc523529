//! `MemVfs`: a file system in memory, for tests of crashes and for databases that need no disk.
//!
//! It implements the promise of [`Vfs`] and no more: every file and every directory knows which of its changes are not
//! yet synced, and [`MemVfs::crash_clone`] gives a new file system that holds what a crash at this moment could leave.
//!
//! Locks: the tree's lock comes first, then those of files. Appends and reads take the lock of their file only.

mod content;
mod crash;
mod file;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::content::Content;
pub use self::crash::CrashMode;
pub use self::file::LostData;
use self::file::{FileState, MemHandle, Space};
use self::tree::{Node, Tree, normal};
use crate::{DirEntry, EntryKind, FileLock, RandomAccessFile, Vfs, WritableFile};

/// A file system in memory.
///
/// A clone is another handle to the same file system. A new one holds the directory `/` only; a relative path starts
/// there. A file can only be created in a directory that exists.
///
/// A rename inside one directory is one atomic change. A rename to another directory is a new name there and a removal
/// here, each durable with its own directory, so a power loss may leave both names or none.
///
/// A removed file whose directory is not yet synced keeps its memory, since a power loss could bring it back, but no
/// longer counts against the quota.
///
/// ```
/// use std::path::Path;
/// use esker_vfs::{CrashMode, MemVfs, Vfs};
///
/// let vfs = MemVfs::new();
/// let mut file = vfs.create_new(Path::new("/a"))?;
/// file.append(b"synced")?;
/// file.sync_data()?;
/// vfs.sync_dir(Path::new("/"))?;
/// file.append(b", not synced")?;
///
/// let after_power_loss = vfs.crash_clone_with(CrashMode::Drop);
/// assert_eq!(after_power_loss.read_file("/a")?, b"synced");
/// assert_eq!(vfs.read_file("/a")?, b"synced, not synced");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct MemVfs {
    inner: Arc<Inner>,
}

struct Inner {
    tree: Mutex<Tree>,
    space: Arc<Space>,
}

impl MemVfs {
    /// An empty file system without a limit.
    pub fn new() -> Self {
        Self::with_quota(u64::MAX)
    }

    /// An empty file system for at most `bytes` bytes of file content and preallocated room. Names cost nothing.
    pub fn with_quota(bytes: u64) -> Self {
        Self::from_parts(Tree::new(), Arc::new(Space::new(bytes)))
    }

    fn from_parts(tree: Tree, space: Arc<Space>) -> Self {
        MemVfs { inner: Arc::new(Inner { tree: Mutex::new(tree), space }) }
    }

    /// Changes the quota; `u64::MAX` means no limit. Below what is in use, it stops growth and harms nothing else.
    pub fn set_quota(&self, bytes: u64) {
        self.inner.space.set_quota(bytes);
    }

    /// A new, independent file system as a power loss at this moment could leave it, chosen by `seed`: what was
    /// synced, and a part of what was not. See [`CrashMode::from_seed`].
    ///
    /// The same history and the same seed give the same image. No lock is held in it. The old file system goes on.
    pub fn crash_clone(&self, seed: u64) -> MemVfs {
        self.crash_clone_with(CrashMode::from_seed(seed))
    }

    /// A new, independent file system as a crash of this mode leaves it. Locks are not held in it; the quota is kept.
    ///
    /// Costs a few hundred nanoseconds a file, since contents are shared until they change.
    pub fn crash_clone_with(&self, mode: CrashMode) -> MemVfs {
        let space = Arc::new(Space::new(self.inner.space.quota()));
        let tree = crash::clone_tree(&self.tree(), &space, mode);
        Self::from_parts(tree, space)
    }

    /// Loses what is pending, as a failed sync does: on a file the unsynced data, on a directory the unsynced changes.
    ///
    /// Later syncs succeed. `shown` says what reads of a file show from now on; after a power loss, data that was lost
    /// while reads went on showing it reads as zeros. Names always go on showing the newest state, and after a power loss
    /// the lost changes of the directory have not happened.
    pub fn lose_pending(&self, path: impl AsRef<Path>, shown: LostData) -> io::Result<()> {
        let path = normal(path.as_ref());
        let mut tree = self.tree();
        match tree.node(&path) {
            Some(Node::File(file)) => file.lose_pending(shown),
            _ => tree.dir(&path)?.journal.clear(),
        }
        Ok(())
    }

    /// The newest content of a file.
    pub fn read_file(&self, path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
        let file = self.tree().file(&normal(path.as_ref()))?;
        let content = file.state().content.clone();
        Ok(content.to_vec())
    }

    /// Creates or replaces a file, durably. Missing directories are created, and what is pending in the file's
    /// directory and those above it becomes durable too. Open handles of a replaced file keep the old content.
    ///
    /// Ignores the quota, though the bytes count.
    pub fn write_file(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let path = normal(path.as_ref());
        let mut tree = self.tree();
        let parent = path.parent().unwrap_or(&path);
        tree.create_dir_all(parent)?;
        match tree.node(&path) {
            Some(Node::File(_)) => tree.remove(&path)?,
            Some(Node::Dir) => return Err(tree::error(io::ErrorKind::IsADirectory, &path)),
            None => {}
        }
        let state = FileState::synced(Content::from_bytes(bytes.as_ref()));
        tree.create_with(&path, &self.inner.space, state)?;
        for dir in parent.ancestors() {
            tree.dir(dir)?.sync();
        }
        Ok(())
    }

    /// Flips the bits of `mask` in the byte at `offset`, durably. Fails when the file ends before.
    pub fn flip(&self, path: impl AsRef<Path>, offset: u64, mask: u8) -> io::Result<()> {
        self.tree().file(&normal(path.as_ref()))?.flip(offset, mask)
    }

    /// Bytes in use by files that have a name or an open handle, preallocated room included.
    pub fn total_bytes(&self) -> u64 {
        self.inner.space.used()
    }

    /// The paths of all files, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.tree().files().into_keys().collect()
    }

    /// The newest content of every file.
    pub fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = self.tree().files();
        files.into_iter().map(|(path, file)| (path, file.state().content.to_vec())).collect()
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.inner.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemVfs {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemVfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemVfs").field("total_bytes", &self.total_bytes()).finish_non_exhaustive()
    }
}

impl Vfs for MemVfs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file = self.tree().create(&normal(path), &self.inner.space)?;
        Ok(Box::new(MemHandle::new(&file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let tree = self.tree();
        Ok(Arc::new(MemHandle::new(&tree.file(&normal(path))?)))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let tree = self.tree();
        Ok(Box::new(MemHandle::new(&tree.file(&normal(path))?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree().rename(&normal(from), &normal(to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.tree().link(&normal(from), &normal(to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.tree().remove(&normal(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.tree().list(&normal(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.tree().create_dir_all(&normal(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.tree().dir(&normal(dir))?.sync();
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let path = normal(path);
        let mut tree = self.tree();
        let file = match tree.node(&path) {
            None => tree.create(&path, &self.inner.space)?,
            Some(_) => tree.file(&path)?,
        };
        match file.lock() {
            Some(lock) => Ok(Box::new(lock)),
            None => Err(tree::error(io::ErrorKind::WouldBlock, &path)),
        }
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.tree().dir(&normal(dir))?;
        let quota = self.inner.space.quota();
        Ok((quota != u64::MAX).then(|| quota.saturating_sub(self.inner.space.used())))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        Ok(self.tree().node(&normal(path)).map(|node| match node {
            Node::File(_) => EntryKind::File,
            Node::Dir => EntryKind::Directory,
        }))
    }
}
