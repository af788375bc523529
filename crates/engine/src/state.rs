//! [`State`]: what is in memory under the state lock, from which the pictures for readers are made.

use crate::background::Job;
use crate::compact::Manual;
use crate::health::Retry;
use crate::super_version::{Generation, KeyspaceTables, LevelTables, SuperVersion};
use crate::table_cache::{TableHandle, TableOpener};
use esker_base::{FileKind, FileNumber, KeyspaceId};
use esker_compaction::{LevelTargets, LeveledOptions, OutputRange};
use esker_manifest::{TableMetadata, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Everything that changes while the database is open, but for the ends of log and manifest.
#[derive(Debug)]
pub(crate) struct State {
    /// The memtables that take writes.
    pub(crate) active: Arc<Generation>,
    /// Sealed memtables, newest first.
    pub(crate) immutables: Vec<Arc<Generation>>,
    /// By position; the default keyspace is at 0.
    pub(crate) keyspaces: Vec<Keyspace>,

    /// Tables that a running compaction reads.
    pub(crate) busy: BTreeSet<FileNumber>,
    pub(crate) flush_running: bool,
    /// Set by a flush that failed, until one succeeds: the next takes one memtable only, which needs the least space.
    pub(crate) flush_alone: bool,
    pub(crate) compactions_running: usize,
    /// Jobs between two steps.
    pub(crate) paused: VecDeque<Job>,
    /// Manual compactions that wait, oldest first.
    pub(crate) manual: VecDeque<ManualRequest>,
    /// The manual compaction that is being done.
    pub(crate) manual_current: Option<Manual>,
    /// Number of the last manual compaction that was asked for, and of the last that was done.
    pub(crate) manual_asked: u64,
    pub(crate) manual_done: u64,

    /// Failures in a row, and how many there were in all.
    pub(crate) flush_retry: Retry,
    pub(crate) compaction_retry: Retry,
    pub(crate) flush_failures: u64,
    pub(crate) compaction_failures: u64,
    /// Damaged tables, which are also `busy`: no compaction takes them.
    pub(crate) quarantined: BTreeSet<FileNumber>,

    /// Tables that a failed edit of the manifest may have named. They stay until a new manifest says otherwise.
    pub(crate) doubtful: Vec<FileNumber>,
    /// Tables of no current version. A file goes when nobody reads it any more.
    pub(crate) obsolete_tables: Vec<Arc<TableHandle>>,
    /// Log segments and manifests that can go at once.
    pub(crate) obsolete_files: Vec<(FileKind, FileNumber)>,
    /// Flushed memtables that readers may hold: freed in the background, since that takes long.
    pub(crate) retired: Vec<Arc<Generation>>,
    /// Pictures of the past that cursors still look at, oldest first.
    pub(crate) pictures: Vec<OldPicture>,
}

/// A picture that was replaced while somebody held it.
#[derive(Debug)]
pub(crate) struct OldPicture {
    picture: Weak<SuperVersion>,
    /// When it was replaced.
    pub(crate) replaced: Duration,
}

impl OldPicture {
    pub(crate) fn new(picture: &Arc<SuperVersion>, replaced: Duration) -> Self {
        OldPicture { picture: Arc::downgrade(picture), replaced }
    }

    /// How many still hold it.
    pub(crate) fn held(&self) -> usize {
        self.picture.strong_count()
    }
}

/// One keyspace.
#[derive(Debug)]
pub(crate) struct Keyspace {
    pub(crate) id: KeyspaceId,
    pub(crate) tables: Arc<KeyspaceTables>,
    /// What running compactions may write to.
    pub(crate) running: Vec<OutputRange>,
}

/// A manual compaction of a range of user keys; `None` is no bound. Both bounds are inclusive.
#[derive(Clone, Debug)]
pub(crate) struct ManualRequest {
    pub(crate) ticket: u64,
    /// Set when it could not be done.
    pub(crate) failed: Arc<AtomicBool>,
    pub(crate) begin: Option<Vec<u8>>,
    pub(crate) end: Option<Vec<u8>>,
}

impl State {
    pub(crate) fn new(active: Arc<Generation>, keyspaces: Vec<Keyspace>) -> Self {
        State {
            active,
            immutables: Vec::new(),
            keyspaces,
            busy: BTreeSet::new(),
            flush_running: false,
            flush_alone: false,
            compactions_running: 0,
            paused: VecDeque::new(),
            manual: VecDeque::new(),
            manual_current: None,
            manual_asked: 0,
            manual_done: 0,
            flush_retry: Retry::default(),
            compaction_retry: Retry::default(),
            flush_failures: 0,
            compaction_failures: 0,
            quarantined: BTreeSet::new(),
            doubtful: Vec::new(),
            obsolete_tables: Vec::new(),
            obsolete_files: Vec::new(),
            retired: Vec::new(),
            pictures: Vec::new(),
        }
    }

    /// The picture of the present.
    pub(crate) fn super_version(&self, shape: &LeveledOptions) -> Arc<SuperVersion> {
        let pending = self.keyspaces.iter().map(|keyspace| {
            let version = &keyspace.tables.version;
            LevelTargets::new(version, shape).pending_bytes(version, shape)
        });
        Arc::new(SuperVersion {
            active: Arc::clone(&self.active),
            immutables: self.immutables.clone(),
            keyspaces: self.keyspaces.iter().map(|keyspace| Arc::clone(&keyspace.tables)).collect(),
            pending_bytes: pending.fold(0, u64::saturating_add),
        })
    }

    /// Puts a new version of a keyspace in place. Tables that it no longer has become obsolete.
    pub(crate) fn install(&mut self, position: usize, version: Arc<Version>, opener: &Arc<TableOpener>) {
        let old = Arc::clone(&self.keyspaces[position].tables);
        let mut handles: BTreeMap<FileNumber, Arc<TableHandle>> =
            old.handles().map(|handle| (handle.meta.number, Arc::clone(handle))).collect();
        let new = KeyspaceTables::new(version, |meta| match handles.get(&meta.number) {
            Some(handle) => Arc::clone(handle),
            None => TableHandle::new(Arc::clone(meta), opener),
        });
        for handle in new.handles() {
            handles.remove(&handle.meta.number);
        }
        self.obsolete_tables.extend(handles.into_values());
        self.keyspaces[position].tables = Arc::new(new);
    }

    /// The oldest log segment that a memtable still needs.
    pub(crate) fn oldest_log(&self) -> FileNumber {
        self.immutables.last().map_or(self.active.log, |oldest| oldest.log)
    }

    /// Bytes of all memtables.
    pub(crate) fn memtable_bytes(&self) -> usize {
        self.active.memory_usage() + self.immutables.iter().map(|sealed| sealed.memory_usage()).sum::<usize>()
    }
}

impl KeyspaceTables {
    /// The tables of `version`, each with the handle that `handle` gives for it.
    pub(crate) fn new(
        version: Arc<Version>,
        mut handle: impl FnMut(&Arc<TableMetadata>) -> Arc<TableHandle>,
    ) -> Self {
        let mut level0 = Vec::new();
        let mut levels = Vec::new();
        for level in version.levels() {
            let tables: Vec<_> = level.tables().iter().map(&mut handle).collect();
            if level.number() == 0 {
                level0 = tables;
            } else if !tables.is_empty() {
                levels.push(LevelTables { number: level.number(), tables: tables.into() });
            }
        }
        KeyspaceTables { version, level0, levels }
    }

    /// All handles.
    pub(crate) fn handles(&self) -> impl Iterator<Item = &Arc<TableHandle>> {
        self.level0.iter().chain(self.levels.iter().flat_map(|level| level.tables.iter()))
    }

    /// The handles of some tables of a level.
    pub(crate) fn handles_of(&self, level: usize, numbers: &[FileNumber]) -> Vec<Arc<TableHandle>> {
        let tables: &[Arc<TableHandle>] = if level == 0 {
            &self.level0
        } else {
            self.levels.iter().find(|tables| tables.number == level).map_or(&[], |tables| &tables.tables)
        };
        tables.iter().filter(|handle| numbers.contains(&handle.meta.number)).cloned().collect()
    }
}
