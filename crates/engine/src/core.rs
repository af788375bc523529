//! [`Core`]: what all handles of an open database share.
//!
//! # Locks
//!
//! Taken in this order, and never the other way round (`closing`, held by a `close`, and `resuming`, held by a `resume`,
//! come before all of them):
//!
//! 1. `log`: the log's end. Held while a batch is committed, and by whoever seals the memtable; not across a sync.
//! 2. `manifest`: the manifest's end. Held while an edit is written and installed.
//! 3. `state`: what is in memory. Held for moments; never across I/O, a callback or a wait.
//!
//! The snapshot registry, the commit queue, the health and the scheduler have locks of their own, which are leaves.

use crate::commit::{CommitQueue, Visible};
use crate::event::{Event, RecoveryReport};
use crate::flow::Flow;
use crate::health::{Health, Retry};
use crate::metrics::Metrics;
use crate::room::Room;
use crate::scheduler::BackgroundWork;
use crate::snapshot::SnapshotRegistry;
use crate::state::{OldPicture, State};
use crate::super_version::SuperVersion;
use crate::table_cache::TableOpener;
use crate::turn_lock::TurnLock;
use crate::version_set::VersionSet;
use crate::write::LogEnd;
use crate::{Components, Error, Options, Result};
use arc_swap::ArcSwap;
use esker_base::sync::Mutex;
use esker_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_base::{FileKind, FileNumber, planted};
use esker_compaction::LeveledOptions;
use esker_vfs::{FileLock, OpenFiles};
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Core {
    // Constant after the open.
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    /// The part of the options that is about the shape of the tree.
    pub(crate) shape: LeveledOptions,
    pub(crate) components: Components,
    pub(crate) tables: Arc<TableOpener>,
    pub(crate) recovery: RecoveryReport,
    /// This core as background work, for the scheduler.
    pub(crate) this: Weak<Core>,

    // Locks of their own.
    pub(crate) queue: CommitQueue,
    pub(crate) log: TurnLock<LogEnd>,
    pub(crate) manifest: Mutex<VersionSet>,
    pub(crate) state: Mutex<State>,
    pub(crate) snapshots: SnapshotRegistry,
    /// Held while the database is open; given back by `close`.
    pub(crate) lock: Mutex<Option<Box<dyn FileLock>>>,
    pub(crate) health: Mutex<Health>,
    /// Held by the one `resume` that is running.
    pub(crate) resuming: Mutex<Retry>,
    /// Held by whoever closes; what came of the first time.
    pub(crate) closing: Mutex<Result<()>>,

    // Read without a lock.
    pub(crate) super_version: ArcSwap<SuperVersion>,
    pub(crate) visible: Visible,
    next_file: AtomicU64,
    /// Grows whenever a job has ended.
    progress: AtomicU64,
    /// Whether `health` is latched.
    failed: AtomicBool,
    closed: AtomicBool,
    /// Set when background work must not go on.
    stopping: AtomicBool,
    /// Whether something waits until nobody reads it any more.
    leftovers: AtomicBool,
    /// When a worker last looked after leftovers and the buffer of the log, in milliseconds of the clock.
    house_kept_at: AtomicU64,
    /// Whether the background was told that the oldest snapshot has gone, and has not looked yet.
    snapshot_gone: AtomicBool,
    pub(crate) metrics: Metrics,
    pub(crate) flow: Flow,
    pub(crate) room: Arc<Room>,
    /// The tables that are open.
    pub(crate) open_files: Arc<OpenFiles>,
}

/// What recovery hands over to a new core.
pub(crate) struct CoreParts {
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) components: Components,
    pub(crate) tables: Arc<TableOpener>,
    pub(crate) log: LogEnd,
    pub(crate) manifest: VersionSet,
    pub(crate) state: State,
    pub(crate) visible: u64,
    /// Up to which number the log is on the device.
    pub(crate) durable: u64,
    pub(crate) next_file: u64,
    pub(crate) lock: Box<dyn FileLock>,
    pub(crate) recovery: RecoveryReport,
    pub(crate) room: Arc<Room>,
    pub(crate) open_files: Arc<OpenFiles>,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Arc<Self> {
        let flow = Flow::new(parts.options.background_rate_limit);
        let shape = parts.options.leveled_options();
        let super_version = ArcSwap::new(parts.state.super_version(&shape));
        let clock = Arc::clone(&parts.components.clock);
        Arc::new_cyclic(|this| Core {
            dir: parts.dir,
            options: parts.options,
            shape,
            components: parts.components,
            tables: parts.tables,
            recovery: parts.recovery,
            this: Weak::clone(this),
            queue: CommitQueue::new(parts.durable),
            log: TurnLock::new(parts.log, clock),
            manifest: Mutex::new(parts.manifest),
            state: Mutex::new(parts.state),
            snapshots: SnapshotRegistry::default(),
            lock: Mutex::new(Some(parts.lock)),
            health: Mutex::default(),
            resuming: Mutex::default(),
            closing: Mutex::new(Ok(())),
            super_version,
            visible: Visible::new(parts.visible),
            next_file: AtomicU64::new(parts.next_file),
            progress: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            leftovers: AtomicBool::new(false),
            house_kept_at: AtomicU64::new(0),
            snapshot_gone: AtomicBool::new(false),
            metrics: Metrics::default(),
            flow,
            room: parts.room,
            open_files: parts.open_files,
        })
    }

    /// A file number that nobody has had.
    pub(crate) fn new_file_number(&self) -> FileNumber {
        FileNumber(self.next_file.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn next_file_number(&self) -> u64 {
        self.next_file.load(Ordering::Relaxed)
    }

    pub(crate) fn file_path(&self, kind: FileKind, number: FileNumber) -> PathBuf {
        kind.path(&self.dir, number)
    }

    /// Fails after `close`.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_open() { Ok(()) } else { Err(Error::closed()) }
    }

    /// Whether `close` has not been called.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.closed.load(Ordering::Relaxed)
    }

    /// What a failed read is told: after a `close` files may be gone, by another process perhaps, and so that is why.
    #[cold]
    pub(crate) fn unless_closed(&self, error: Error) -> Error {
        self.check_open().err().unwrap_or(error)
    }

    /// Fails after `close`, and after a background error.
    #[inline]
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        if self.failed.load(Ordering::Acquire) { Err(self.refusal()) } else { Ok(()) }
    }

    #[cold]
    fn refusal(&self) -> Error {
        match self.failure() {
            Some(cause) => Error::read_only(cause),
            None => Error::fatal("latched without a cause"),
        }
    }

    /// Marks the database as closed; `true` for the first caller.
    pub(crate) fn mark_closed(&self) -> bool {
        !self.closed.swap(true, Ordering::SeqCst)
    }

    /// No further step of background work is begun.
    pub(crate) fn stop_background(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.components.scheduler.stop();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    pub(crate) fn set_leftovers(&self, some: bool) {
        self.leftovers.store(some, Ordering::SeqCst);
    }

    pub(crate) fn has_leftovers(&self) -> bool {
        self.leftovers.load(Ordering::SeqCst)
    }

    pub(crate) fn kept_house(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.house_kept_at.store(now, Ordering::Relaxed);
    }

    pub(crate) fn house_kept_at(&self) -> Duration {
        Duration::from_millis(self.house_kept_at.load(Ordering::Relaxed))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    pub(crate) fn set_failed(&self, failed: bool) {
        self.failed.store(failed, Ordering::Release);
    }

    pub(crate) fn emit(&self, event: &Event) {
        if let Some(listener) = &self.components.listener {
            listener.on_event(event);
        }
    }

    /// Replaces the picture that readers see. Called with the state locked, so that pictures follow one another.
    pub(crate) fn publish(&self, state: &mut State) {
        let old = self.super_version.swap(state.super_version(&self.shape));
        state.pictures.retain(|picture| picture.held() > 0);
        // Who holds it now is the last who could get it.
        if Arc::strong_count(&old) > 1 {
            state.pictures.push(OldPicture::new(&old, self.components.clock.now()));
        }
    }

    pub(crate) fn progress_now(&self) -> u64 {
        self.progress.load(Ordering::SeqCst)
    }

    /// Something has finished that a writer may wait for.
    pub(crate) fn progressed(&self) {
        self.progress.fetch_add(1, Ordering::SeqCst);
        if planted::is(planted::Fault::ProgressNotTold) {
            return;
        }
        self.components.scheduler.progressed();
    }

    /// Tells the scheduler that there may be work. Called without a lock.
    pub(crate) fn work_available(&self) {
        if let Some(this) = self.this.upgrade() {
            let work: Arc<dyn BackgroundWork> = this;
            self.components.scheduler.work_available(&work);
        }
    }

    /// A compaction may be worth while that was not before. However many snapshots go, the background is told once until
    /// it looks. Called without a lock.
    pub(crate) fn oldest_snapshot_gone(&self) {
        if !self.snapshot_gone.swap(true, Ordering::SeqCst) {
            self.work_available();
        }
    }

    /// The background looks at the snapshots now.
    pub(crate) fn look_at_snapshots(&self) {
        self.snapshot_gone.store(false, Ordering::SeqCst);
    }

    /// Waits for background work to get on. Called without a lock.
    pub(crate) fn wait_for_progress(&self, seen: u64) {
        if let Some(this) = self.this.upgrade() {
            let work: Arc<dyn BackgroundWork> = this;
            self.components.scheduler.wait_for_progress(&work, seen);
        }
    }
}
