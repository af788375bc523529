//! `Tree`: the directories of a [`MemVfs`](super::MemVfs), with the operations that are not yet synced.
//!
//! A path is an absolute one without `.` and `..` (see [`normal`]). Directories are only ever made, never renamed or
//! removed, so they are kept in one flat map. The tree lies under one lock of `MemVfs`; below it only the locks of
//! files are taken.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::file::{FileState, MemFile, Space};
use crate::{DirEntry, EntryKind};

/// What a name stands for. The content of a directory is found by its path.
#[derive(Clone, Debug)]
pub(super) enum Node {
    File(Arc<MemFile>),
    Dir,
}

impl Node {
    fn retain(&self) {
        if let Node::File(file) = self {
            file.retain();
        }
    }

    fn release(&self) {
        if let Node::File(file) = self {
            file.release();
        }
    }
}

/// The names of a directory.
pub(super) type Entries = BTreeMap<OsString, Node>;

/// One change of a directory that is not yet synced. It names the file itself, so that it has a meaning also when an
/// operation before it is lost.
#[derive(Clone, Debug)]
pub(super) enum DirOp {
    /// Created, linked, or moved here from another directory.
    Set { name: OsString, node: Node },
    /// Removed, or moved to another directory.
    Remove { name: OsString },
    /// Renamed inside the directory; one atomic change.
    Rename { from: OsString, to: OsString, node: Node },
}

impl DirOp {
    /// Carries the change out.
    pub(super) fn apply(&self, entries: &mut Entries) {
        match self {
            DirOp::Set { name, node } => {
                entries.insert(name.clone(), node.clone());
            }
            DirOp::Remove { name } => {
                entries.remove(name);
            }
            DirOp::Rename { from, to, node } => {
                entries.remove(from);
                entries.insert(to.clone(), node.clone());
            }
        }
    }

    /// The file that the change names.
    pub(super) fn node(&self) -> Option<&Node> {
        match self {
            DirOp::Set { node, .. } | DirOp::Rename { node, .. } => Some(node),
            DirOp::Remove { .. } => None,
        }
    }
}

/// One directory.
#[derive(Debug, Default)]
pub(super) struct Dir {
    /// The newest names, which every call sees.
    pub(super) entries: Entries,
    /// The names as of the last sync.
    pub(super) durable: Entries,
    /// Changes since the last sync, in order.
    pub(super) journal: Vec<DirOp>,
}

impl Dir {
    /// A directory in which everything is durable.
    pub(super) fn durable(entries: Entries) -> Self {
        Dir { durable: entries.clone(), entries, journal: Vec::new() }
    }

    /// Makes a change, and keeps the counts of names right.
    fn change(&mut self, op: DirOp) {
        // The new name is counted before the old one is let go: a renamed file never is without a name.
        let (gone, replaced) = match &op {
            DirOp::Set { name, .. } => (self.entries.get(name).cloned(), None),
            DirOp::Remove { name } => (self.entries.get(name).cloned(), None),
            DirOp::Rename { from, to, .. } => {
                (self.entries.get(from).cloned(), self.entries.get(to).cloned())
            }
        };
        op.node().inspect(|node| node.retain());
        op.apply(&mut self.entries);
        gone.into_iter().chain(replaced).for_each(|node| node.release());
        self.journal.push(op);
    }

    /// Makes all names durable.
    pub(super) fn sync(&mut self) {
        for op in self.journal.drain(..) {
            op.apply(&mut self.durable);
        }
    }
}

/// All directories.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) dirs: BTreeMap<PathBuf, Dir>,
    file_id_next: u64,
}

impl Tree {
    /// A tree that holds the root only.
    pub(super) fn new() -> Self {
        Tree { dirs: BTreeMap::from([(PathBuf::from("/"), Dir::default())]), file_id_next: 1 }
    }

    /// A tree with these directories; new files get ids after those of `other`.
    pub(super) fn with_dirs(dirs: BTreeMap<PathBuf, Dir>, other: &Tree) -> Self {
        Tree { dirs, file_id_next: other.file_id_next }
    }

    /// What a path stands for.
    pub(super) fn node(&self, path: &Path) -> Option<Node> {
        match split(path) {
            Ok((dir, name)) => self.dirs.get(dir)?.entries.get(&name).cloned(),
            Err(_) => Some(Node::Dir),
        }
    }

    /// The file that a path names.
    pub(super) fn file(&self, path: &Path) -> io::Result<Arc<MemFile>> {
        match self.node(path) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir) => Err(error(io::ErrorKind::IsADirectory, path)),
            None => Err(self.missing(path)),
        }
    }

    /// The error for a path that leads nowhere: a file may stand where a directory would have to.
    fn missing(&self, path: &Path) -> io::Error {
        let in_the_way = path.ancestors().skip(1).any(|dir| matches!(self.node(dir), Some(Node::File(_))));
        error(if in_the_way { io::ErrorKind::NotADirectory } else { io::ErrorKind::NotFound }, path)
    }

    /// The directory that a path names.
    pub(super) fn dir(&mut self, path: &Path) -> io::Result<&mut Dir> {
        match self.node(path) {
            Some(Node::Dir) => {
                Ok(self.dirs.get_mut(path).expect("a directory that has a name is in the map"))
            }
            Some(Node::File(_)) => Err(error(io::ErrorKind::NotADirectory, path)),
            None => Err(self.missing(path)),
        }
    }

    /// Creates a file; the name must be free.
    pub(super) fn create(&mut self, path: &Path, space: &Arc<Space>) -> io::Result<Arc<MemFile>> {
        self.create_with(path, space, FileState::default())
    }

    /// Creates a file with a content; the name must be free.
    pub(super) fn create_with(
        &mut self,
        path: &Path,
        space: &Arc<Space>,
        state: FileState,
    ) -> io::Result<Arc<MemFile>> {
        let file = MemFile::with_state(self.file_id_next, space, state);
        self.add(path, Node::File(Arc::clone(&file)))?;
        self.file_id_next += 1;
        Ok(file)
    }

    /// Gives a name to a node; the name must be free.
    fn add(&mut self, path: &Path, node: Node) -> io::Result<()> {
        let (parent, name) = split(path)?;
        let dir = self.dir(parent)?;
        if dir.entries.contains_key(&name) {
            return Err(error(io::ErrorKind::AlreadyExists, path));
        }
        dir.change(DirOp::Set { name, node });
        Ok(())
    }

    /// Gives a file a second name.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        self.add(to, Node::File(file))
    }

    /// Removes a file's name.
    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        let (parent, name) = split(path)?;
        self.dir(parent)?.change(DirOp::Remove { name });
        Ok(())
    }

    /// Renames a file. As POSIX has it, nothing happens when both names stand for the same file already.
    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let file = self.file(from)?;
        match self.node(to) {
            Some(Node::Dir) => return Err(error(io::ErrorKind::IsADirectory, to)),
            Some(Node::File(target)) if Arc::ptr_eq(&target, &file) => return Ok(()),
            _ => {}
        }
        let ((from_dir, from_name), (to_dir, to_name)) = (split(from)?, split(to)?);
        self.dir(to_dir)?;
        let node = Node::File(file);
        if from_dir == to_dir {
            self.dir(to_dir)?.change(DirOp::Rename { from: from_name, to: to_name, node });
        } else {
            self.dir(to_dir)?.change(DirOp::Set { name: to_name, node });
            self.dir(from_dir)?.change(DirOp::Remove { name: from_name });
        }
        Ok(())
    }

    /// Creates a directory and its missing parents.
    pub(super) fn create_dir_all(&mut self, path: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        for dir in path.ancestors() {
            match self.node(dir) {
                Some(Node::Dir) => break,
                Some(Node::File(_)) if dir == path => return Err(error(io::ErrorKind::AlreadyExists, dir)),
                Some(Node::File(_)) => return Err(error(io::ErrorKind::NotADirectory, dir)),
                None => missing.push(dir),
            }
        }
        for dir in missing.into_iter().rev() {
            self.add(dir, Node::Dir)?;
            self.dirs.insert(dir.to_owned(), Dir::default());
        }
        Ok(())
    }

    /// The entries of a directory, sorted by name.
    pub(super) fn list(&mut self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let entries = &self.dir(path)?.entries;
        let mut list: Vec<DirEntry> =
            entries.iter().filter_map(|(name, node)| entry(name.to_str()?, node)).collect();
        list.sort();
        Ok(list)
    }

    /// All files with their paths, sorted by path.
    pub(super) fn files(&self) -> BTreeMap<PathBuf, Arc<MemFile>> {
        let mut files = BTreeMap::new();
        for (path, dir) in &self.dirs {
            for (name, node) in &dir.entries {
                if let Node::File(file) = node {
                    files.insert(path.join(name), Arc::clone(file));
                }
            }
        }
        files
    }
}

fn entry(name: &str, node: &Node) -> Option<DirEntry> {
    let (kind, size) = match node {
        Node::File(file) => (EntryKind::File, file.state().content.len() as u64),
        Node::Dir => (EntryKind::Directory, 0),
    };
    Some(DirEntry { name: name.to_owned(), kind, size })
}

/// The one form of a path that the tree knows: absolute, without `.` and `..`. A relative path starts at the root.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    normal
}

/// The directory and the name in it. The root has none.
fn split(path: &Path) -> io::Result<(&Path, OsString)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((parent, name.to_owned())),
        _ => Err(error(io::ErrorKind::IsADirectory, path)),
    }
}

/// An error of the usual wording.
pub(super) fn error(kind: io::ErrorKind, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{}: {kind}", path.display()))
}
