//! [`StateInfo`]: what a manifest adds up to, for output; and [`TableLine`], one table of it.

use crate::picture::Picture;
use crate::table_info::shown;
use crate::text::{Form, Safe};
use esker_base::{FileKind, FileNumber};
use esker_manifest::TableMetadata;
use serde::Serialize;
use std::fmt;

/// What a manifest adds up to, for output.
#[derive(Clone, Debug, Serialize)]
pub struct StateInfo {
    /// False when a fault leaves it unknown; then it is the best guess.
    pub certain: bool,
    /// The store, in hexadecimal digits.
    pub store_id: Option<String>,
    /// No file has this number or a larger one.
    pub next_file: u64,
    /// Largest sequence number that the manifest knows.
    pub last_sequence: u64,
    /// Largest sequence number known to be durable.
    pub durable_sequence: u64,
    /// The keyspaces.
    pub keyspaces: Vec<KeyspaceState>,
}

/// A keyspace, for output.
#[derive(Clone, Debug, Serialize)]
pub struct KeyspaceState {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Oldest log segment that it needs; 0 is none.
    pub log_number: u64,
    /// Its levels that have tables.
    pub levels: Vec<LevelState>,
}

/// A level, for output.
#[derive(Clone, Debug, Serialize)]
pub struct LevelState {
    /// Its number.
    pub level: usize,
    /// Sum of the lengths of its tables, in bytes.
    pub size: u64,
    /// Its tables.
    pub tables: Vec<TableLine>,
}

impl StateInfo {
    /// Of a picture.
    pub fn new(picture: &Picture, form: Form) -> Self {
        let level = |(&level, tables): (&usize, &Vec<_>)| LevelState {
            level,
            size: tables.iter().fold(0, |sum: u64, table: &std::sync::Arc<TableMetadata>| {
                sum.saturating_add(table.file_size)
            }),
            tables: tables.iter().map(|table| TableLine::from_metadata(table, form)).collect(),
        };
        StateInfo {
            certain: picture.is_certain,
            store_id: picture.store_id.map(|id| format!("{id:032x}")),
            next_file: picture.next_file.0,
            last_sequence: picture.last_sequence,
            durable_sequence: picture.durable_sequence,
            keyspaces: (picture.keyspaces.iter())
                .map(|(&id, keyspace)| KeyspaceState {
                    id,
                    name: keyspace.name.clone(),
                    log_number: keyspace.log_number.0,
                    levels: keyspace.levels.iter().map(level).collect(),
                })
                .collect(),
        }
    }
}

impl fmt::Display for StateInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certain = if self.certain { "" } else { " (uncertain: there are faults)" };
        writeln!(
            f,
            "state{certain}: store {}, next file {}, last sequence {}, durable {}",
            self.store_id.as_deref().unwrap_or("unknown"),
            FileNumber(self.next_file),
            self.last_sequence,
            self.durable_sequence
        )?;
        for keyspace in &self.keyspaces {
            let log = FileNumber(keyspace.log_number);
            writeln!(f, "  keyspace {} \"{}\", log from {log}", keyspace.id, Safe(&keyspace.name))?;
            for level in &keyspace.levels {
                let (tables, size) = (level.tables.len(), level.size);
                let noun = if tables == 1 { "table" } else { "tables" };
                writeln!(f, "    L{}: {tables} {noun}, {size} bytes", level.level)?;
                level.tables.iter().try_for_each(|table| writeln!(f, "      {table}"))?;
            }
        }
        Ok(())
    }
}

/// A table in one line, from the manifest or from its own properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableLine {
    /// The number in its name.
    pub number: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Entries.
    pub entries: u64,
    /// Entries that are tombstones.
    pub deletes: u64,
    /// The first user key.
    pub smallest: String,
    /// The last user key.
    pub largest: String,
    /// The smallest sequence number.
    pub smallest_seq: u64,
    /// The largest sequence number.
    pub largest_seq: u64,
}

impl TableLine {
    pub(crate) fn from_metadata(table: &TableMetadata, form: Form) -> Self {
        TableLine {
            number: table.number.0,
            size: table.file_size,
            entries: table.entries,
            deletes: table.deletes,
            smallest: shown(&table.smallest.user_key, form),
            largest: shown(&table.largest.user_key, form),
            smallest_seq: table.smallest_seq,
            largest_seq: table.largest_seq,
        }
    }
}

impl fmt::Display for TableLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableLine { size, entries, deletes, smallest, largest, smallest_seq, largest_seq, .. } = self;
        write!(
            f,
            "{} {size} bytes, {entries} entries ({deletes} deletes), \"{smallest}\" .. \"{largest}\", \
             sequences {smallest_seq} .. {largest_seq}",
            FileKind::Table.name(FileNumber(self.number))
        )
    }
}
