//! Crash images: what a [`MemVfs`](super::MemVfs) may hold after the process died or the power failed.
//!
//! [`clone_tree`] builds a new tree from an old one. All files are read-locked at once while it does so, hence an
//! image is one moment: if it holds a write, it holds every write that had returned before that one began.
//!
//! A file's bytes below [`FileState::stable_len`] are synced and untouched, and stand in every image.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, RwLockReadGuard};

use super::content::Content;
use super::file::{FileOp, FileState, MemFile, Space};
use super::tree::{Dir, DirOp, Entries, Node, Tree};
use crate::rng::Rng;

/// What a crash leaves behind.
///
/// In all modes but [`Keep`](CrashMode::Keep) the image is a disk after a restart: all that it holds is durable. The
/// modes with a seed give the same image for the same seed and the same history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrashMode {
    /// The process was killed: everything that a call returned from is there, and what was not synced is still
    /// waiting for a sync in the new file system.
    Keep,
    /// The power failed, and only what was synced is there.
    Drop,
    /// The power failed. Each pending write block (of 512 or 4096 bytes), size change and directory operation is kept
    /// with a probability of `keep_percent`, so also out of order; for some files and directories the pending
    /// operations are kept up to some point instead, or torn. At 0 nothing pending is kept, at 100 everything.
    Random {
        /// Chooses the image.
        seed: u64,
        /// 0 to 100.
        keep_percent: u8,
    },
    /// The power failed. Of each file and of each directory the first some pending operations are there, in order.
    Prefix {
        /// Chooses the image.
        seed: u64,
    },
    /// The power failed. All directory operations are there, and each file's last write (sometimes an earlier one)
    /// is cut at any byte: the file ends there, or it has its full size and zeros or garbage stand in the rest.
    Torn {
        /// Chooses the image.
        seed: u64,
    },
    /// The power failed. All directory operations and sizes are there, but no data that was not synced: zeros, garbage
    /// or older bytes stand in its place.
    SizeOnly {
        /// Chooses the image.
        seed: u64,
    },
    /// The power failed. All removals are there, the other directory operations and the file contents as in
    /// `Random` with 50 percent.
    UnlinkFirst {
        /// Chooses the image.
        seed: u64,
    },
}

impl CrashMode {
    /// A power loss chosen by `seed`: each mode but `Keep` comes up, and `Random` with 10, 50 and 90 percent.
    pub fn from_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        match (rng.below(10), rng.next()) {
            (0, _) => CrashMode::Drop,
            (1 | 2, seed) => CrashMode::Prefix { seed },
            (3 | 4, seed) => CrashMode::Torn { seed },
            (5, seed) => CrashMode::SizeOnly { seed },
            (6, seed) => CrashMode::UnlinkFirst { seed },
            (7, seed) => CrashMode::Random { seed, keep_percent: 10 },
            (8, seed) => CrashMode::Random { seed, keep_percent: 50 },
            (_, seed) => CrashMode::Random { seed, keep_percent: 90 },
        }
    }

    fn seed(self) -> u64 {
        match self {
            CrashMode::Keep | CrashMode::Drop => 0,
            CrashMode::Random { seed, .. }
            | CrashMode::Prefix { seed }
            | CrashMode::Torn { seed }
            | CrashMode::SizeOnly { seed }
            | CrashMode::UnlinkFirst { seed } => seed,
        }
    }
}

/// Builds the tree that a crash leaves; its files take their room from `space`.
pub(super) fn clone_tree(tree: &Tree, space: &Arc<Space>, mode: CrashMode) -> Tree {
    let mut files = BTreeMap::new();
    for dir in tree.dirs.values() {
        let named = dir
            .entries
            .values()
            .chain(dir.durable.values())
            .chain(dir.journal.iter().filter_map(DirOp::node));
        for node in named {
            if let Node::File(file) = node {
                files.insert(file.id, file);
            }
        }
    }
    let guards: BTreeMap<u64, RwLockReadGuard<'_, FileState>> =
        files.iter().map(|(id, file)| (*id, file.state())).collect();

    let mut rng = Rng::new(mode.seed());
    let mut copier = Copier { guards: &guards, space, mode, copies: HashMap::new() };
    let mut dirs: BTreeMap<_, Dir> = BTreeMap::new();
    // Parents sort before their children, so a directory whose own name is lost takes all below it along.
    for (path, dir) in &tree.dirs {
        if is_there(&dirs, path) {
            let dir = copier.dir(dir, &mut rng);
            dirs.insert(path.clone(), dir);
        }
    }
    Tree::with_dirs(dirs, tree)
}

fn is_there<P: Ord + std::borrow::Borrow<Path>>(dirs: &BTreeMap<P, Dir>, path: &Path) -> bool {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return true;
    };
    dirs.get(parent).is_some_and(|parent| parent.entries.contains_key(name))
}

/// Copies directories and files into an image.
struct Copier<'a> {
    guards: &'a BTreeMap<u64, RwLockReadGuard<'a, FileState>>,
    space: &'a Arc<Space>,
    mode: CrashMode,
    /// The copies made so far, so that hard links stay links.
    copies: HashMap<u64, Arc<MemFile>>,
}

impl Copier<'_> {
    fn dir(&mut self, dir: &Dir, rng: &mut Rng) -> Dir {
        let copy = if self.mode == CrashMode::Keep {
            let journal = dir.journal.iter().map(|op| self.op(op, rng)).collect();
            Dir {
                entries: self.entries(&dir.entries, rng),
                durable: self.entries(&dir.durable, rng),
                journal,
            }
        } else {
            let mut entries = dir.durable.clone();
            surviving_ops(&dir.journal, self.mode, rng).into_iter().for_each(|op| op.apply(&mut entries));
            Dir::durable(self.entries(&entries, rng))
        };
        for node in copy.entries.values() {
            if let Node::File(file) = node {
                file.retain();
            }
        }
        copy
    }

    fn entries(&mut self, entries: &Entries, rng: &mut Rng) -> Entries {
        entries.iter().map(|(name, node)| (name.clone(), self.node(node, rng))).collect()
    }

    fn op(&mut self, op: &DirOp, rng: &mut Rng) -> DirOp {
        match op.clone() {
            DirOp::Set { name, node } => DirOp::Set { name, node: self.node(&node, rng) },
            DirOp::Remove { name } => DirOp::Remove { name },
            DirOp::Rename { from, to, node } => DirOp::Rename { from, to, node: self.node(&node, rng) },
        }
    }

    fn node(&mut self, node: &Node, rng: &mut Rng) -> Node {
        let Node::File(file) = node else {
            return Node::Dir;
        };
        let copy = self.copies.entry(file.id).or_insert_with(|| {
            let state = &*self.guards[&file.id];
            let state = match self.mode {
                CrashMode::Keep => state.clone(),
                mode => FileState::synced(surviving_content(state, mode, rng)),
            };
            MemFile::with_state(file.id, self.space, state)
        });
        Node::File(Arc::clone(copy))
    }
}

/// The pending operations of a directory that outlast the crash, in order.
fn surviving_ops<'a>(journal: &'a [DirOp], mode: CrashMode, rng: &mut Rng) -> Vec<&'a DirOp> {
    let first = match mode {
        CrashMode::Drop => 0,
        CrashMode::Keep | CrashMode::Torn { .. } | CrashMode::SizeOnly { .. } => journal.len(),
        CrashMode::Prefix { .. } => rng.below(journal.len() + 1),
        CrashMode::Random { keep_percent: 1..=99, .. } if rng.percent(30) => rng.below(journal.len() + 1),
        CrashMode::Random { keep_percent, .. } => {
            return journal.iter().filter(|_| rng.percent(keep_percent)).collect();
        }
        CrashMode::UnlinkFirst { .. } => {
            return journal
                .iter()
                .filter(|op| matches!(op, DirOp::Remove { .. }) || rng.percent(50))
                .collect();
        }
    };
    journal[..first].iter().collect()
}

/// The content of a file that outlasts the crash.
fn surviving_content(state: &FileState, mode: CrashMode, rng: &mut Rng) -> Content {
    let pending = state.journal.len();
    let mut content = match mode {
        _ if pending == 0 => state.content.clone(),
        CrashMode::Keep => state.content.clone(),
        CrashMode::Drop => state.after(0),
        CrashMode::Prefix { .. } => state.after(rng.below(pending + 1)),
        CrashMode::Torn { .. } => torn(state, rng),
        CrashMode::SizeOnly { .. } => blocks(state, 0, pending, rng),
        CrashMode::Random { keep_percent, .. } => random(state, keep_percent, rng),
        CrashMode::UnlinkFirst { .. } => random(state, 50, rng),
    };
    for lost in &state.lost {
        let end = lost.end.min(content.len());
        content.change(lost.start.min(end)..end, |_, _| 0);
    }
    content
}

fn random(state: &FileState, keep_percent: u8, rng: &mut Rng) -> Content {
    let pending = state.journal.len();
    let (all, some) = (pending, rng.below(pending + 1));
    match (keep_percent, rng.below(8)) {
        (0, _) => state.after(0),
        (100.., _) => state.after(all),
        (_, 0) => state.after(if rng.percent(keep_percent) { all } else { 0 }),
        (_, 1) => state.after(some),
        (_, 2 | 3) => torn(state, rng),
        (_, 4) => blocks(state, keep_percent, some, rng),
        _ => blocks(state, keep_percent, all, rng),
    }
}

/// The operations up to some write, most often the last one, of which only a part is there.
fn torn(state: &FileState, rng: &mut Rng) -> Content {
    let pending = state.journal.len();
    let last = state.journal.iter().rposition(|op| matches!(op, FileOp::Append(_) | FileOp::Fill(_)));
    let index = match last {
        Some(last) if rng.percent(75) => last,
        _ => rng.below(pending),
    };
    let mut content = state.after(index + 1);
    match &state.journal[index] {
        FileOp::Append(range) => {
            let cut = range.start + rng.below(range.len());
            if rng.percent(50) {
                content.truncate(cut);
            } else {
                Filler::new(rng).fill(&mut content, cut..range.end);
            }
        }
        FileOp::Fill(range) => {
            let cut = range.start + rng.below(range.len());
            Filler::new(rng).fill(&mut content, cut..range.end);
        }
        FileOp::Truncate { .. } => {}
    }
    content
}

/// The size after `count` operations; of the data that is not synced each block with `keep_percent`.
fn blocks(state: &FileState, keep_percent: u8, count: usize, rng: &mut Rng) -> Content {
    let mut content = state.after(count);
    let durable = state.after(0);
    let block_size = if rng.percent(50) { 512 } else { 4096 };
    let mut filler = Filler::new(rng);
    let mut start = state.stable_len();
    while start < content.len() {
        let end = content.len().min((start / block_size + 1) * block_size);
        // Zeros that were synced, and that no data has taken the place of, are durable wherever they lie.
        if state.is_pending(start..end) && !rng.percent(keep_percent) {
            filler.fill(&mut content, start..end);
            if start < durable.len() && rng.percent(50) {
                let old = durable.slice(start..end.min(durable.len()));
                content.change(start..start + old.len(), |offset, _| old[offset - start]);
            }
        }
        start = end;
    }
    content
}

/// What stands where data is lost: the same kind throughout a file.
enum Filler {
    Zeros,
    Pattern,
    Garbage(Rng),
}

impl Filler {
    fn new(rng: &mut Rng) -> Self {
        match rng.below(4) {
            0 | 1 => Filler::Zeros,
            2 => Filler::Pattern,
            _ => Filler::Garbage(Rng::new(rng.next())),
        }
    }

    fn fill(&mut self, content: &mut Content, range: Range<usize>) {
        content.change(range, |_, _| match self {
            Filler::Zeros => 0,
            Filler::Pattern => 0xa5,
            Filler::Garbage(rng) => rng.next() as u8,
        });
    }
}
