//! [`Rig`]: a directory on a memory disk whose calls are watched, and databases on it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker::scheduler::{InlineScheduler, ThreadScheduler};
use esker::vfs::{CrashMode, MemVfs, Vfs};
use esker::{Background, Components, Db, Event, EventListener, ManualClock, Options, Result, SystemClock};
use esker_testkit::{OrderChecker, OrderVfs};

/// The directory of all rigs.
pub const DIR: &str = "/db";

/// A memory disk with the order checker over it.
#[derive(Clone, Debug)]
pub struct Rig {
    pub mem: MemVfs,
    pub order: OrderVfs,
    pub events: Arc<Events>,
}

impl Rig {
    /// An empty disk.
    pub fn new() -> Self {
        Self::on(MemVfs::new())
    }

    /// A disk with this content, all of which counts as durable to the checker.
    pub fn on(mem: MemVfs) -> Self {
        let order = OrderChecker::over(Arc::new(mem.clone()), DIR);
        Rig { mem, order, events: Arc::default() }
    }

    /// Components on the watched disk, with the scheduler that the options name.
    pub fn components(&self, options: &Options) -> Components {
        self.components_on(Arc::new(self.order.clone()), options)
    }

    /// The same on another file system, which should have the watched one below.
    pub fn components_on(&self, vfs: Arc<dyn Vfs>, options: &Options) -> Components {
        self.order.interceptor().process_starts();
        let mut components = Components::for_options(options);
        components.vfs = vfs;
        components.listener = Some(Arc::clone(&self.events) as Arc<dyn EventListener>);
        components
    }

    /// Opens the database with everything on the caller's thread and a clock that stands still.
    pub fn open_inline(&self, options: &Options) -> Result<Db> {
        let options = options.clone().background(Background::Inline);
        let mut components = self.components(&options);
        components.scheduler = Arc::new(InlineScheduler::new());
        components.clock = Arc::new(ManualClock::new());
        Db::open_with(DIR, options, components)
    }

    /// Opens the database with background threads and the real clock.
    pub fn open_threads(&self, options: &Options, threads: usize) -> Result<Db> {
        let options = options.clone().background(Background::Threads(threads));
        let mut components = self.components(&options);
        components.scheduler = Arc::new(ThreadScheduler::new(threads));
        components.clock = Arc::new(SystemClock::new());
        Db::open_with(DIR, options, components)
    }

    /// The disk as a crash leaves it at this moment.
    pub fn crashed(&self, mode: CrashMode) -> Rig {
        Rig::on(self.mem.crash_clone_with(mode))
    }

    /// A copy of the disk as it is now.
    pub fn copied(&self) -> Rig {
        self.crashed(CrashMode::Keep)
    }

    /// The names of the files in the directory that end in `suffix`, sorted.
    pub fn names(&self, suffix: &str) -> Vec<String> {
        let entries = self.mem.list(Path::new(DIR)).expect("the directory is there");
        entries.into_iter().map(|entry| entry.name).filter(|name| name.ends_with(suffix)).collect()
    }

    /// The path of a file in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        Path::new(DIR).join(name)
    }

    /// The bytes of a file in the directory.
    pub fn read(&self, name: &str) -> Vec<u8> {
        self.mem.read_file(self.path(name)).expect("the file is there")
    }

    /// Replaces a file in the directory.
    pub fn write(&self, name: &str, bytes: &[u8]) {
        self.mem.write_file(self.path(name), bytes).expect("the disk is not full");
    }
}

/// Counts what the engine reports.
#[derive(Debug, Default)]
pub struct Events {
    seen: Mutex<Vec<Event>>,
}

impl Events {
    /// Takes all events so far.
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

impl EventListener for Events {
    fn on_event(&self, event: &Event) {
        self.seen.lock().unwrap().push(event.clone());
    }
}
