//! [`Components`]: what a database is run on. Tests, tools and other platforms put their own in.

use crate::event::EventListener;
use crate::scheduler::{InlineScheduler, Scheduler, ThreadScheduler};
use crate::{Background, Options};
use esker_base::{Clock, FileKind, ManualClock, SystemClock, parse_file_name};
use esker_sstable::BlockCache;
use esker_vfs::{BoundedVfs, MemVfs, OpenFiles, OsVfs, Vfs};
use std::path::Path;
use std::sync::Arc;

/// File system, clock, scheduler, cache and listener of a database.
#[derive(Clone, Debug)]
pub struct Components {
    /// Where the files are.
    pub vfs: Arc<dyn Vfs>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Who does the background work.
    pub scheduler: Arc<dyn Scheduler>,
    /// A block cache to share with other databases; `None` for one of [`Options::cache_size`].
    pub cache: Option<Arc<BlockCache>>,
    /// Table files that are kept open, shared with other databases; `None` for [`Options::max_open_files`] of its own.
    pub open_files: Option<Arc<OpenFiles>>,
    /// Who is told of flushes, compactions and errors.
    pub listener: Option<Arc<dyn EventListener>>,
}

impl Components {
    /// The real disk and clock, and the scheduler that [`Options::background`] names.
    pub fn for_options(options: &Options) -> Self {
        let scheduler: Arc<dyn Scheduler> = match options.background {
            Background::Threads(threads) => Arc::new(ThreadScheduler::new(threads)),
            Background::Inline => Arc::new(InlineScheduler::new()),
        };
        Components {
            vfs: Arc::new(OsVfs::new()),
            clock: Arc::new(SystemClock::new()),
            scheduler,
            cache: None,
            open_files: None,
            listener: None,
        }
    }

    /// A new memory file system, a clock that stands still, and background work on the caller's thread: everything
    /// the same in each run. `seed` goes into [`Options::seed`].
    ///
    /// ```
    /// use esker::{Components, Db, Options};
    ///
    /// let (options, components) = Components::in_memory(7, Options::new());
    /// let db = Db::open_with("/db", options, components)?;
    /// db.put(b"k", b"v")?;
    /// # Ok::<(), esker::Error>(())
    /// ```
    pub fn in_memory(seed: u64, options: Options) -> (Options, Self) {
        let components = Components {
            vfs: Arc::new(MemVfs::new()),
            clock: Arc::new(ManualClock::new()),
            scheduler: Arc::new(InlineScheduler::new()),
            cache: None,
            open_files: None,
            listener: None,
        };
        (options.seed(seed).background(Background::Inline), components)
    }

    /// The same with a file system that keeps to the bound on open tables.
    pub(crate) fn bounded(mut self, options: &Options) -> Self {
        let files = self.open_files.get_or_insert_with(|| Arc::new(OpenFiles::new(options.max_open_files)));
        self.vfs = Arc::new(BoundedVfs::new(self.vfs, Arc::clone(files), is_table));
        self
    }
}

/// Tables never change, and their names are never used again, so they may be closed and opened at any time.
fn is_table(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    matches!(name.and_then(parse_file_name), Some((FileKind::Table, _)))
}
