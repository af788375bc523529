//! Which keys the tables below an output may hold: the answer that lets tombstones go.
//!
//! Made for one flush or compaction, from the version it was picked from. Data only moves down while it runs, and never
//! past a running compaction, so what is deeper then is what was deeper at the pick.

use crate::DeeperKeys;
use esker_manifest::{TableMetadata, Version};
use std::sync::Arc;

/// The tables that lie deeper than an output, with a cursor for each sorted run of them.
#[derive(Clone, Debug, Default)]
pub struct DeeperTables {
    runs: Vec<Run>,
}

/// Disjoint tables by key. Tables before `at` end before the last key asked for.
#[derive(Clone, Debug)]
struct Run {
    tables: Vec<Arc<TableMetadata>>,
    at: usize,
}

impl DeeperTables {
    /// Nothing is deeper.
    pub fn none() -> Self {
        Self::default()
    }

    /// These runs are deeper. Each must be sorted by key and disjoint, as a level below level 0 is.
    pub fn new(runs: impl IntoIterator<Item = Vec<Arc<TableMetadata>>>) -> Self {
        let runs = runs.into_iter().filter(|tables| !tables.is_empty());
        DeeperTables { runs: runs.map(|tables| Run { tables, at: 0 }).collect() }
    }

    /// Everything in `version` is deeper: for a flush. The version must hold the outputs of all earlier flushes.
    pub fn below_memtables(version: &Version) -> Self {
        let level0 = version.level(0).tables().iter().map(|table| vec![Arc::clone(table)]);
        Self::new(level0.chain(version.levels().skip(1).map(|level| level.tables().to_vec())))
    }

    /// Whether no table is deeper.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }
}

impl DeeperKeys for DeeperTables {
    #[inline]
    fn may_exist(&mut self, user_key: &[u8]) -> bool {
        self.runs.iter_mut().any(|run| run.may_hold(user_key))
    }
}

impl Run {
    #[inline]
    fn may_hold(&mut self, user_key: &[u8]) -> bool {
        while let Some(table) = self.tables.get(self.at) {
            if table.largest.user_key.as_slice() >= user_key {
                return table.smallest.user_key.as_slice() <= user_key;
            }
            self.at += 1;
        }
        false
    }
}
