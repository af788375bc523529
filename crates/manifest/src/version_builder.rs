//! `VersionBuilder`: gathers the changes of one or many edits, then makes one [`Version`] of them.
//!
//! A live change gathers one edit; the replay of a manifest gathers them all and builds once, which keeps it linear in
//! the number of edits. Errors are plain text: the caller knows whether a file or a broken engine is to blame.

use crate::{Level, NUM_LEVELS, TableMetadata, Version, VersionEdit};
use esker_base::{FileNumber, InternalKey, KeyspaceId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Changes to a version that is not built yet.
#[derive(Debug, Default)]
pub(crate) struct VersionBuilder {
    /// Tables that were added and not deleted again.
    added: BTreeMap<FileNumber, (usize, Arc<TableMetadata>)>,
    /// Tables of the base version that were deleted.
    deleted: BTreeSet<(usize, FileNumber)>,
    cursors: [Option<Option<Vec<u8>>>; NUM_LEVELS],
}

impl VersionBuilder {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds the changes of `edit` to `keyspace`, deletions first.
    pub(crate) fn apply(&mut self, keyspace: KeyspaceId, edit: &VersionEdit) -> Result<(), String> {
        for deleted in edit.deleted.iter().filter(|deleted| deleted.keyspace == keyspace) {
            self.delete(deleted.level, deleted.number)?;
        }
        for added in edit.added.iter().filter(|added| added.keyspace == keyspace) {
            self.add(added.level, &added.table)?;
        }
        for cursor in edit.cursors.iter().filter(|cursor| cursor.keyspace == keyspace) {
            self.set_cursor(cursor.level, cursor.user_key.clone())?;
        }
        Ok(())
    }

    /// Removes a table from a level.
    pub(crate) fn delete(&mut self, level: usize, number: FileNumber) -> Result<(), String> {
        check_level(level)?;
        match self.added.remove(&number) {
            Some((at, _)) if at == level => Ok(()),
            Some((at, _)) => {
                Err(format!("table {number} is deleted from level {level}, it is in level {at}"))
            }
            None if self.deleted.insert((level, number)) => Ok(()),
            None => Err(format!("table {number} is deleted from level {level} twice")),
        }
    }

    /// Adds a table to a level.
    pub(crate) fn add(&mut self, level: usize, table: &Arc<TableMetadata>) -> Result<(), String> {
        check_level(level)?;
        table.check()?;
        match self.added.insert(table.number, (level, Arc::clone(table))) {
            None => Ok(()),
            Some((at, _)) => {
                Err(format!("table {} is added to level {level}, it is in level {at}", table.number))
            }
        }
    }

    /// Sets where the next compaction of a level starts.
    pub(crate) fn set_cursor(&mut self, level: usize, user_key: Option<Vec<u8>>) -> Result<(), String> {
        check_level(level)?;
        self.cursors[level] = Some(user_key);
        Ok(())
    }

    /// The version after `base`. Checks the invariants that the changes can break; `base` must keep them.
    pub(crate) fn build(&mut self, base: &Version) -> Result<Version, String> {
        self.check_numbers(base)?;
        let mut version = base.clone();
        for number in 0..NUM_LEVELS {
            if let Some(level) = self.level(base.level(number)) {
                version.levels[number] = Arc::new(level);
            }
            if let Some(cursor) = self.cursors[number].take() {
                version.cursors[number] = cursor;
            }
        }
        if base.table_count() == 0 {
            version.check()?;
        } else {
            version.check_levels()?;
            for (level, table) in self.added.values() {
                version.check_bounds(table, *level, 0..NUM_LEVELS)?;
            }
        }
        Ok(version)
    }

    /// Every deleted table must be in the base; an added one must not, unless it is deleted from there.
    fn check_numbers(&self, base: &Version) -> Result<(), String> {
        let mut missing = self.deleted.len();
        for (level, table) in base.tables() {
            if self.deleted.contains(&(level, table.number)) {
                missing -= 1;
            } else if self.added.contains_key(&table.number) {
                return Err(format!("table {} is added, it is in level {level}", table.number));
            }
        }
        if missing == 0 {
            return Ok(());
        }
        let (level, number) = self
            .deleted
            .iter()
            .find(|(level, number)| base.level(*level).tables().iter().all(|table| table.number != *number))
            .expect("some deleted table was not met in the base");
        Err(format!("table {number} is deleted from level {level}, it is not there"))
    }

    /// The level after the changes; `None` when none touches it.
    fn level(&self, base: &Level) -> Option<Level> {
        let number = base.number();
        let mut added = self.added.values().filter(|(level, _)| *level == number).peekable();
        if added.peek().is_none() && self.deleted.iter().all(|(level, _)| *level != number) {
            return None;
        }
        let kept = base.tables().iter().filter(|table| !self.deleted.contains(&(number, table.number)));
        Some(Level::new(number, kept.chain(added.map(|(_, table)| table)).cloned().collect()))
    }
}

fn check_level(level: usize) -> Result<(), String> {
    if level < NUM_LEVELS { Ok(()) } else { Err(format!("there is no level {level}")) }
}

impl Version {
    /// Checks all invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.check_levels()?;
        for (level, table) in self.tables() {
            table.check()?;
            // Levels above have looked down at this table already.
            self.check_bounds(table, level, level + 1..NUM_LEVELS)?;
        }
        Ok(())
    }

    fn check_levels(&self) -> Result<(), String> {
        check_level0(self.level(0).tables())?;
        for level in self.levels().skip(1) {
            for (left, right) in level.tables().iter().zip(level.tables().iter().skip(1)) {
                if left.largest.user_key >= right.smallest.user_key {
                    return Err(format!("level {}: {left} overlaps {right}", level.number()));
                }
            }
        }
        Ok(())
    }

    /// Compares the bounds of a table of level `at` with the equal bounds of tables at `levels`. A bound's key can only
    /// be a bound of the tables that cover it.
    fn check_bounds(&self, table: &TableMetadata, at: usize, levels: Range<usize>) -> Result<(), String> {
        for level in levels.filter(|level| *level != at) {
            for bound in [&table.smallest, &table.largest] {
                let key = Some(bound.user_key.as_slice());
                for other in self.level(level).overlapping(key, key) {
                    check_bound(at, table, bound, level, other)?;
                }
            }
        }
        Ok(())
    }
}

/// Where `other` has a bound with the user key of `bound`, the one at the upper level must be the newer version.
fn check_bound(
    at: usize,
    table: &TableMetadata,
    bound: &InternalKey,
    level: usize,
    other: &TableMetadata,
) -> Result<(), String> {
    for key in [&other.smallest, &other.largest].into_iter().filter(|key| key.user_key == bound.user_key) {
        let in_order = if level < at { key.seq > bound.seq } else { key.seq < bound.seq };
        if !in_order {
            return Err(format!(
                "level {at} has {bound:?} in table {}, level {level} has {key:?} in table {}",
                table.number, other.number
            ));
        }
    }
    Ok(())
}

/// Tables of level 0 that overlap by key must not overlap by sequence number. `tables` is sorted newest first.
fn check_level0(tables: &[Arc<TableMetadata>]) -> Result<(), String> {
    let disjoint =
        tables.iter().zip(tables.iter().skip(1)).all(|(newer, older)| oldest(newer) > older.largest_seq);
    if disjoint { Ok(()) } else { sweep_level0(tables) }
}

/// The slow way, for tables of one flush or ingestion that share a sequence range: sweeps over the keys and keeps the
/// sequence ranges of the tables at the current key, which must be disjoint. O(n log n) whatever the tables are.
fn sweep_level0(tables: &[Arc<TableMetadata>]) -> Result<(), String> {
    let mut events: Vec<(&[u8], bool, &TableMetadata)> = Vec::with_capacity(tables.len() * 2);
    for table in tables {
        events.push((&table.smallest.user_key, false, table));
        events.push((&table.largest.user_key, true, table));
    }
    // Bounds are inclusive: at one key, tables start before others end.
    events.sort_by_key(|(key, ends, _)| (*key, *ends));
    let mut open: BTreeMap<u64, &TableMetadata> = BTreeMap::new();
    for (_, ends, table) in events {
        if ends {
            open.remove(&table.largest_seq);
            continue;
        }
        let next = open.range(oldest(table)..).next().map(|(_, other)| *other);
        if let Some(other) = next.filter(|other| oldest(other) <= table.largest_seq) {
            return Err(format!("level 0: {table} overlaps {other}"));
        }
        open.insert(table.largest_seq, table);
    }
    Ok(())
}

/// The oldest sequence number that says something about order: zeroed ones do not.
fn oldest(table: &TableMetadata) -> u64 {
    if table.smallest_seq == 0 { table.largest_seq } else { table.smallest_seq }
}
