//! Yield points: named places between two steps that other threads may come between.
//!
//! Each is one `points::here(..)` in some layer. Without the feature `points`, which only the simulator turns on, [`here`] is
//! empty and nothing of it is left in the program. With it, a thread may `set` a callback, which is called at each
//! point that this thread comes to, and may itself use the database as far as the locks held there permit: so one thread
//! plays several, in an order that a seed chooses. [`Point::locks`] says what is held where.

macro_rules! points {
    ($($(#[$doc:meta])* $variant:ident => $name:literal, $locks:expr;)*) => {
        /// A place that can be interrupted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Point {
            $($(#[$doc])* $variant,)*
        }

        impl Point {
            /// All points, with their names.
            pub const ALL: &[(&str, Point)] = &[$(($name, Point::$variant),)*];

            /// What a test must have counted: that each was come to, and that something ran there.
            pub const DEMANDS: &[&str] = &[$(concat!("at ", $name), concat!("inside ", $name),)*];

            /// The locks that are held here, on every way that leads here but those of `resume`, which holds its own.
            pub const fn locks(self) -> u8 {
                match self {
                    $(Point::$variant => $locks,)*
                }
            }
        }
    };
}

/// The lock of the log's end.
pub const LOG: u8 = 1;
/// The lock of the manifest's end.
pub const MANIFEST: u8 = 2;
/// The lock of the list of snapshots.
pub const REGISTRY: u8 = 4;
/// The lock that only one `resume` holds.
pub const RESUMING: u8 = 8;
/// The lead of those that wait for a sync: who wants one, too, waits for this one to end.
pub const LEAD: u8 = 16;

points! {
    /// A commit was let in, and is about to lock the log.
    Admitted => "admitted", 0;
    /// The records of a batch are in the log, nothing is in the memtable.
    Logged => "logged", LOG;
    /// The log was written, and is about to be synced. It takes writes meanwhile.
    Unsynced => "unsynced", LEAD;
    /// An operation of a batch was inserted.
    Inserted => "inserted", LOG;
    /// All of a batch is inserted, and about to be published.
    Applied => "applied", LOG;
    /// A batch is visible, and its writer not told.
    Published => "published", LOG;
    /// A new log segment is there, the memtable not sealed.
    SegmentMade => "segment made", LOG;
    /// The memtable is sealed, the picture shows it as the active one.
    Sealed => "sealed", LOG;
    /// A read has its picture, and no sequence number.
    Pictured => "pictured", 0;
    /// A cursor has its picture, and no sequence number.
    CursorPictured => "cursor pictured", 0;
    /// A snapshot is about to read the visible number.
    SnapshotTaken => "snapshot taken", REGISTRY;
    /// A flush was planned, and is about to ask for the snapshots.
    FlushPlanned => "flush planned", 0;
    /// A flush knows the snapshots, and has read nothing.
    FlushCaptured => "flush captured", 0;
    /// A compaction was planned, and is about to ask for the snapshots.
    CompactionPlanned => "compaction planned", 0;
    /// A compaction knows the snapshots, and has read nothing.
    CompactionCaptured => "compaction captured", 0;
    /// Tables are synced, the names of them are not.
    TablesMade => "tables made", 0;
    /// The names of new tables are synced, no edit names them.
    TablesNamed => "tables named", 0;
    /// An edit is about to be appended to the manifest.
    EditMade => "edit made", MANIFEST;
    /// An edit is durable, and the picture is the one before it.
    EditLogged => "edit logged", MANIFEST;
    /// The picture is replaced, and the job that did it is not told.
    Installed => "installed", 0;
    /// A job is done, its marks are still in the state.
    JobDone => "job done", 0;
    /// Files were taken off the list, and are about to be deleted.
    Obsolete => "obsolete", 0;
    /// A resume has a new log segment, and the manifest as it was.
    LogRestarted => "log restarted", RESUMING;
    /// A resume has flushed all memory, and the database is still latched.
    Reflushed => "reflushed", RESUMING;
    /// A close has refused further writes, and has flushed nothing.
    Closing => "closing", 0;
    /// A close has flushed, background work has not been stopped.
    ClosingFlushed => "closing flushed", 0;
    /// Background work was stopped, the files are not ended.
    ClosingStopped => "closing stopped", 0;
}

#[cfg(feature = "points")]
mod hook {
    use super::Point;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    /// What is called at each point.
    pub type Hook = Rc<dyn Fn(Point)>;

    thread_local! {
        static HOOK: RefCell<Option<Hook>> = const { RefCell::new(None) };
        static LOG_IS_HELD: Cell<bool> = const { Cell::new(false) };
    }

    /// Chooses what this thread calls at its points from now on.
    pub fn set(hook: Option<Hook>) {
        HOOK.with_borrow_mut(|own| *own = hook);
    }

    /// The thread is here.
    pub fn here(point: Point) {
        let hook = HOOK.with_borrow(Clone::clone);
        if let Some(hook) = hook {
            hook(point);
        }
    }

    /// Whether this thread holds the log's lock below a callback: what needs it in the background waits for another time.
    pub fn log_is_held() -> bool {
        LOG_IS_HELD.get()
    }

    /// Says so. Returns what was said before.
    pub fn set_log_held(held: bool) -> bool {
        LOG_IS_HELD.replace(held)
    }
}

#[cfg(feature = "points")]
pub use hook::{Hook, here, log_is_held, set, set_log_held};

/// The thread is here: nothing, in this build.
#[cfg(not(feature = "points"))]
#[inline(always)]
pub const fn here(_point: Point) {}

/// Whether a callback runs with the log's lock held: never, in this build.
#[cfg(not(feature = "points"))]
#[inline(always)]
pub const fn log_is_held() -> bool {
    false
}
