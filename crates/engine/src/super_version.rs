//! [`SuperVersion`]: one immutable picture of everything that a read looks at.
//!
//! It is replaced as a whole whenever a memtable is sealed or a version is installed. A reader takes the picture
//! *first* and the visible sequence number *second*: the other order could miss a write that was flushed between the
//! two.

use crate::scanned::Scanned;
use crate::table_cache::TableHandle;
use esker_base::{FileNumber, SequenceNumber, planted};
use esker_manifest::Version;
use esker_memtable::Memtable;
use std::sync::{Arc, OnceLock};

/// The memtables that share a log segment, one for each keyspace.
#[derive(Debug)]
pub(crate) struct Generation {
    /// The segment that holds the log of these memtables.
    pub(crate) log: FileNumber,
    /// By position of the keyspace.
    pub(crate) memtables: Vec<Arc<Memtable>>,
    /// Set when it is sealed: the last sequence number that was given out. What the segment and those before it said
    /// about numbers up to this one is settled once the memtables are in tables.
    sealed_at: OnceLock<SequenceNumber>,
    /// All numbers of these memtables are after this one, and those of older ones are not.
    pub(crate) after: SequenceNumber,
    pub(crate) scanned: Scanned,
}

impl Generation {
    /// No number after `last_seq` will come here.
    pub(crate) fn seal(&self, last_seq: SequenceNumber) {
        self.sealed_at.get_or_init(|| last_seq);
    }

    /// The last sequence number that this generation settles.
    pub(crate) fn last_seq(&self) -> SequenceNumber {
        let newest =
            || self.memtables.iter().filter_map(|memtable| memtable.largest_seq()).max().unwrap_or(0);
        self.sealed_at.get().copied().unwrap_or_else(newest)
    }

    pub(crate) fn new(
        log: FileNumber,
        after: SequenceNumber,
        hash_seed: u64,
        keyspaces: usize,
        expected_bytes: usize,
    ) -> Arc<Self> {
        let memtables = (0..keyspaces).map(|_| Arc::new(Memtable::new(hash_seed, expected_bytes))).collect();
        Arc::new(Generation {
            log,
            memtables,
            sealed_at: OnceLock::new(),
            after,
            scanned: Scanned::default(),
        })
    }

    pub(crate) fn memory_usage(&self) -> usize {
        self.memtables.iter().map(|memtable| memtable.memory_usage()).sum()
    }

    /// What a flush will write, about and at most: what an empty memtable takes in memory will not be in the table.
    pub(crate) fn table_bytes(&self) -> u64 {
        let bytes = self.memtables.iter().map(|memtable| memtable.memory_usage().saturating_sub(8 << 10));
        bytes.sum::<usize>() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memtables.iter().all(|memtable| memtable.is_empty())
    }
}

/// The tables of one keyspace, with their readers.
#[derive(Debug)]
pub(crate) struct KeyspaceTables {
    pub(crate) version: Arc<Version>,
    /// Level 0, newest first.
    pub(crate) level0: Vec<Arc<TableHandle>>,
    /// Levels 1 and deeper that hold tables, uppermost first.
    pub(crate) levels: Vec<LevelTables>,
}

/// A level of sorted, disjoint tables. Never empty.
#[derive(Debug)]
pub(crate) struct LevelTables {
    /// 1 and up.
    pub(crate) number: usize,
    pub(crate) tables: Arc<[Arc<TableHandle>]>,
}

impl LevelTables {
    /// The one table that may hold `user_key`.
    #[inline]
    pub(crate) fn find(&self, user_key: &[u8]) -> Option<&Arc<TableHandle>> {
        let at = if planted::is(planted::Fault::LevelSearchOffByOne) {
            self.tables.partition_point(|table| table.meta.largest.user_key.as_slice() <= user_key)
        } else {
            self.tables.partition_point(|table| table.meta.largest.user_key.as_slice() < user_key)
        };
        self.tables.get(at).filter(|table| table.meta.smallest.user_key.as_slice() <= user_key)
    }
}

/// Everything that a read looks at.
#[derive(Debug)]
pub(crate) struct SuperVersion {
    /// The memtables that take writes.
    pub(crate) active: Arc<Generation>,
    /// Sealed memtables that are not flushed yet, newest first.
    pub(crate) immutables: Vec<Arc<Generation>>,
    /// By position of the keyspace.
    pub(crate) keyspaces: Vec<Arc<KeyspaceTables>>,
    /// Estimate of the bytes that compactions must rewrite before all levels have their size.
    pub(crate) pending_bytes: u64,
}
