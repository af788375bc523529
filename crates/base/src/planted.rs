//! Deliberate faults, for the self-test of the tests: a harness that has never found anything proves nothing.
//!
//! Each fault is one `if planted::is(..)` at its place in some layer. Without the feature `planted`, which only the
//! simulator's self-test turns on, [`is`] is a constant `false` and nothing of it is left in the program. With it, one
//! fault for the whole process is chosen by `plant`. No real program turns the feature on: a planted fault loses data.

macro_rules! faults {
    ($($(#[$doc:meta])* $variant:ident => $name:literal,)*) => {
        /// A deliberate fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$doc])* $variant,)*
        }

        impl Fault {
            /// All faults, with the names that the simulator's command line has for them.
            pub const ALL: &[(&str, Fault)] = &[$(($name, Fault::$variant),)*];
        }
    };
}

faults! {
    /// The checksum of a log record is not compared.
    LogChecksumIgnored => "log-checksum-ignored",
    /// The checksums of a record of the manifest are not compared: a torn edit counts.
    TornEditAccepted => "torn-edit-accepted",
    /// The checksum of a table's block is not compared.
    BlockChecksumIgnored => "block-checksum-ignored",
    /// A table's filter says that no key is there.
    FilterAlwaysNo => "filter-always-no",
    /// A compaction drops tombstones although deeper levels hold the key.
    TombstoneDroppedEarly => "tombstone-dropped-early",
    /// A compaction sets sequence numbers to 0 although older versions lie deeper.
    SequenceZeroedEarly => "sequence-zeroed-early",
    /// A compaction knows of no snapshots.
    SnapshotsForgotten => "snapshots-forgotten",
    /// Output tables are cut between versions of one user key.
    UserKeySplit => "user-key-split",
    /// A table is moved to a deeper level although it overlaps others on the way.
    MovedOverOverlap => "moved-over-overlap",
    /// The batch is visible before it is in the memtable.
    PublishedBeforeApplied => "published-before-applied",
    /// Each operation of a batch is visible as soon as it is in the memtable.
    HalfBatchVisible => "half-batch-visible",
    /// A read takes the sequence number first and the picture second.
    SequenceBeforePicture => "sequence-before-picture",
    /// The members of a round that shares a sync, but for the leader, are told that all went well.
    FollowerGetsOk => "follower-gets-ok",
    /// A writer that finds a sync under way does not wait for its own.
    AcknowledgedBeforeSynced => "acknowledged-before-synced",
    /// What was written while a sync ran counts as synced.
    SyncCoversLater => "sync-covers-later",
    /// An error of the log is no error of the write.
    LogErrorIgnored => "log-error-ignored",
    /// After a failed sync of the log it is synced again, and believed.
    SyncRetried => "sync-retried",
    /// Resuming does not write the memtables anew.
    ResumedWithoutFlush => "resumed-without-flush",
    /// An error of an iterator looks like its end.
    ErrorIsEnd => "error-is-end",
    /// A merge that turns round leaves its children where they are.
    TurnForgotten => "turn-forgotten",
    /// An excluded upper bound is included.
    BoundIncluded => "bound-included",
    /// A cursor shows writes that are newer than itself.
    CursorSeesNewer => "cursor-sees-newer",
    /// The memtable answers with the version before the newest.
    OlderVersionFound => "older-version-found",
    /// The search for the table of a key in a level is off by one at the tables' last keys.
    LevelSearchOffByOne => "level-search-off-by-one",
    /// A lookup goes on with older tables when one can't be read.
    UnreadableTableSkipped => "unreadable-table-skipped",
    /// Only the last segment of the log is replayed.
    LastSegmentOnly => "last-segment-only",
    /// A log segment is removed before the edit that makes it superfluous.
    SegmentRemovedEarly => "segment-removed-early",
    /// The inputs of a compaction are removed before the edit that makes them superfluous.
    InputsRemovedEarly => "inputs-removed-early",
    /// The newest sealed memtable is flushed first.
    FlushOutOfOrder => "flush-out-of-order",
    /// The directory is not synced after a log segment was created.
    LogNameNotSynced => "log-name-not-synced",
    /// The directory is not synced after tables were created.
    TableNameNotSynced => "table-name-not-synced",
    /// The directory is not synced after `CURRENT` was replaced.
    CurrentNameNotSynced => "current-name-not-synced",
    /// `CURRENT.tmp` is renamed without a sync.
    CurrentNotSynced => "current-not-synced",
    /// A synced write syncs its own log segment only, not those before it.
    OldLogNotSynced => "old-log-not-synced",
    /// An open removes a live table as an orphan.
    LiveTableRemoved => "live-table-removed",
    /// An open does not count the numbers of files that no manifest names.
    FileNumberReused => "file-number-reused",
    /// A clean close does not wait for the last flush.
    CloseWithoutFlush => "close-without-flush",
    /// Those who wait for background work are not told that it has got on.
    ProgressNotTold => "progress-not-told",
    /// Who left a callback is told that all went well before the log is synced.
    TicketToldEarly => "ticket-told-early",
    /// A resume forgets the callbacks that wait.
    CallbackLost => "callback-lost",
    /// Two locks are taken in the wrong order.
    LocksReversed => "locks-reversed",
}

#[cfg(feature = "planted")]
mod chosen {
    use super::Fault;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// 0 for none, else the fault's number plus 1.
    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Chooses the fault of this process, or none.
    pub fn plant(fault: Option<Fault>) {
        CHOSEN.store(fault.map_or(0, |fault| fault as u8 + 1), Ordering::SeqCst);
    }

    /// Whether this fault was chosen.
    #[inline]
    pub fn is(fault: Fault) -> bool {
        CHOSEN.load(Ordering::Relaxed) == fault as u8 + 1
    }

    /// Holds the thread up for a moment, so that the race that a fault opens is wide enough to be met.
    #[expect(clippy::disallowed_methods, reason = "only in the self-test")]
    pub fn pause() {
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

#[cfg(feature = "planted")]
pub use chosen::{is, pause, plant};

/// Whether this fault was planted: never, in this build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_fault: Fault) -> bool {
    false
}

/// Does nothing in this build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn pause() {}
