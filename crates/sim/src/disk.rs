//! [`Disk`]: a memory file system with the layers that a harness wants over it, and databases on it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use esker::scheduler::{InlineScheduler, Scheduler};
use esker::vfs::{CallKind, CrashMode, Fault, FaultMode, FaultVfs, MemVfs, Vfs};
use esker::{Components, Db, Event, EventListener, ManualClock, Options, Result};
use esker_testkit::{Coverage, OrderChecker, OrderVfs};

use crate::lab::Settings;

/// The directory of all databases.
pub const DIR: &str = "/db";

/// A sync that the disk reports as done and leaves out: which end of the name of a file, and which calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Syncs of log segments.
    Log,
    /// Syncs of tables.
    Table,
    /// Syncs of manifests.
    Manifest,
    /// Syncs of directories.
    Directory,
}

impl Lie {
    /// All lies, with the names that the command line has for them.
    pub const ALL: [(&'static str, Lie); 4] = [
        ("log-sync-ignored", Lie::Log),
        ("table-sync-ignored", Lie::Table),
        ("manifest-sync-ignored", Lie::Manifest),
        ("directory-sync-ignored", Lie::Directory),
    ];

    fn fault(self) -> Fault {
        let fault = Fault::always().mode(FaultMode::Lie);
        let files = fault.clone().kind(CallKind::SyncData).kind(CallKind::SyncAll);
        let name_has = |part: &'static str| {
            move |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains(part))
        };
        match self {
            Lie::Log => files.path(name_has(".wal")),
            Lie::Table => files.path(name_has(".sst")),
            Lie::Manifest => files.path(name_has("MANIFEST")),
            Lie::Directory => fault.kind(CallKind::SyncDir),
        }
    }
}

/// What the engine has reported.
#[derive(Debug, Default)]
pub struct Events {
    seen: Mutex<Vec<Event>>,
}

impl Events {
    /// Takes all events so far.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts all events so far by their kind. `holds` says whether a snapshot, and a cursor, was held meanwhile.
    ///
    /// # Panics
    ///
    /// With a background error, unless `errors` are expected.
    pub fn count(&self, coverage: &mut Coverage, holds: (bool, bool), errors: bool) {
        for event in self.take() {
            match event {
                Event::Flushed { .. } => coverage.hit("flushed"),
                Event::Compacted { to_level, moved, .. } => {
                    coverage.hit(if moved { "moved" } else { "rewritten" });
                    coverage.hit(&format!("level {to_level}"));
                    coverage.add("snapshot over a compaction", u64::from(holds.0));
                    coverage.add("cursor over a compaction", u64::from(holds.1));
                }
                Event::Opened { report, .. } => {
                    coverage.add("replayed", report.replayed_batches);
                    coverage.add("torn tail", u64::from(report.dropped_bytes > 0));
                }
                Event::BackgroundError { error, latched } => {
                    assert!(errors, "a background error: {error}");
                    coverage.hit(if latched { "latched" } else { "degraded" });
                }
                _ => {}
            }
        }
    }
}

impl EventListener for Events {
    fn on_event(&self, event: &Event) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}

/// A memory disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// The disk itself.
    pub mem: MemVfs,
    /// What the engine reports.
    pub events: Arc<Events>,
    /// The clock of the databases, which stands still unless it is moved.
    pub clock: Arc<ManualClock>,
    checker: Option<OrderVfs>,
    top: Arc<dyn Vfs>,
    order: bool,
    lie: Option<Lie>,
}

impl Disk {
    /// An empty disk.
    pub fn new(settings: &Settings) -> Self {
        Self::on(MemVfs::new(), settings.order, settings.lie)
    }

    /// A disk with this content, all of which counts as durable to the checker.
    pub fn on(mem: MemVfs, order: bool, lie: Option<Lie>) -> Self {
        let bottom: Arc<dyn Vfs> = Arc::new(mem.clone());
        Self::over(mem, bottom, order, lie)
    }

    /// The same with layers between the disk and the checker.
    pub fn over(mem: MemVfs, bottom: Arc<dyn Vfs>, order: bool, lie: Option<Lie>) -> Self {
        let mut top = bottom;
        if let Some(lie) = lie {
            let faults = FaultVfs::new(top);
            faults.arm(lie.fault());
            top = Arc::new(faults);
        }
        let checker = order.then(|| OrderChecker::over(Arc::clone(&top), DIR));
        if let Some(checker) = &checker {
            top = Arc::new(checker.clone());
        }
        Disk { mem, events: Arc::default(), clock: Arc::default(), checker, top, order, lie }
    }

    /// The disk as the databases see it.
    pub fn vfs(&self) -> Arc<dyn Vfs> {
        Arc::clone(&self.top)
    }

    /// The disk as a crash leaves it at this moment, with the same layers.
    pub fn crashed(&self, mode: CrashMode) -> Disk {
        Self::on(self.mem.crash_clone_with(mode), self.order, self.lie)
    }

    /// Opens the database with this scheduler, on this file system or else the disk's own.
    ///
    /// # Errors
    ///
    /// The database's.
    pub fn open(
        &self,
        options: &Options,
        scheduler: Arc<dyn Scheduler>,
        vfs: Option<Arc<dyn Vfs>>,
    ) -> Result<Db> {
        if let Some(checker) = &self.checker {
            checker.interceptor().process_starts();
        }
        let components = Components {
            vfs: vfs.unwrap_or_else(|| self.vfs()),
            clock: Arc::clone(&self.clock) as _,
            scheduler,
            cache: None,
            open_files: None,
            listener: Some(Arc::clone(&self.events) as Arc<dyn EventListener>),
        };
        Db::open_with(DIR, options.clone(), components)
    }

    /// Opens the database with all background work done at once.
    ///
    /// # Errors
    ///
    /// The database's.
    pub fn open_inline(&self, options: &Options) -> Result<Db> {
        self.open(options, Arc::new(InlineScheduler::new()), None)
    }
}
