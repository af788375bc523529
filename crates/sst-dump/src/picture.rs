//! [`Picture`]: the tables of a database by keyspace and level, as a manifest tells them.
//!
//! Of a sound manifest this is its state. Of a damaged one it is what the readable edits add up to, without the checks that
//! the engine makes: then it may name tables that are gone, or miss some.

use crate::fault::Fault;
use esker_base::{FileKind, FileNumber, InternalKey};
use esker_manifest::{DumpItem, ManifestDump, ManifestState, TableMetadata, VersionEdit};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// The tables of a database, with what the manifest says about them.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// Whether the manifest was read without a fault that leaves the state unknown.
    pub is_certain: bool,
    /// The store's id.
    pub store_id: Option<u128>,
    /// The seed of the hash of keys.
    pub hash_seed: Option<u64>,
    /// No file has this number or a larger one.
    pub next_file: FileNumber,
    /// Largest sequence number that the manifest knows.
    pub last_sequence: u64,
    /// Largest sequence number known to be durable.
    pub durable_sequence: u64,
    /// The keyspaces by their number.
    pub keyspaces: BTreeMap<u32, PictureKeyspace>,
}

/// A keyspace of a [`Picture`].
#[derive(Clone, Debug, Default)]
pub struct PictureKeyspace {
    /// Its name.
    pub name: String,
    /// Oldest log segment that it needs; 0 is none.
    pub log_number: FileNumber,
    /// The tables of each level that has some: newest first in level 0, by key below.
    pub levels: BTreeMap<usize, Vec<Arc<TableMetadata>>>,
}

/// The tables of each keyspace and level while edits are gathered.
type Levels = BTreeMap<(u32, usize), BTreeMap<FileNumber, Arc<TableMetadata>>>;

impl Picture {
    /// What a manifest says.
    pub fn new(dump: &ManifestDump) -> Picture {
        match &dump.state {
            Some(state) => Self::from_state(state),
            None => Self::from_edits(dump),
        }
    }

    fn from_state(state: &ManifestState) -> Picture {
        let keyspace = |keyspace: &esker_manifest::KeyspaceState| PictureKeyspace {
            name: keyspace.name.clone(),
            log_number: keyspace.log_number,
            levels: keyspace
                .version
                .levels()
                .filter(|level| !level.is_empty())
                .map(|level| (level.number(), level.tables().to_vec()))
                .collect(),
        };
        Picture {
            is_certain: true,
            store_id: Some(state.store_id),
            hash_seed: Some(state.hash_seed),
            next_file: state.next_file,
            last_sequence: state.last_sequence,
            durable_sequence: state.durable_sequence,
            keyspaces: state.keyspaces.iter().map(|(&id, state)| (id, keyspace(state))).collect(),
        }
    }

    fn from_edits(dump: &ManifestDump) -> Picture {
        let mut picture = Picture { store_id: Some(dump.store_id), ..Picture::default() };
        let mut levels = Levels::new();
        for item in &dump.items {
            if let DumpItem::Edit { edit, .. } = item {
                picture.apply(edit, &mut levels);
            }
        }
        for ((keyspace, level), tables) in levels.into_iter().filter(|(_, tables)| !tables.is_empty()) {
            let mut tables: Vec<Arc<TableMetadata>> = tables.into_values().collect();
            match level {
                0 => tables.sort_by_key(|table| std::cmp::Reverse((table.largest_seq, table.number))),
                _ => tables.sort_by(|a, b| a.smallest.cmp(&b.smallest)),
            }
            picture.keyspaces.entry(keyspace).or_default().levels.insert(level, tables);
        }
        picture
    }

    fn apply(&mut self, edit: &VersionEdit, levels: &mut Levels) {
        self.hash_seed = self.hash_seed.or(edit.hash_seed);
        self.next_file = self.next_file.max(edit.next_file.unwrap_or_default());
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or(0));
        self.durable_sequence = self.durable_sequence.max(edit.durable_sequence.unwrap_or(0));
        for record in &edit.keyspaces {
            self.keyspaces.entry(record.id).or_default().name = record.name.clone();
        }
        for &(id, number) in &edit.log_numbers {
            let keyspace = self.keyspaces.entry(id).or_default();
            keyspace.log_number = keyspace.log_number.max(number);
        }
        for deleted in &edit.deleted {
            if let Some(tables) = levels.get_mut(&(deleted.keyspace, deleted.level)) {
                tables.remove(&deleted.number);
            }
        }
        for added in &edit.added {
            let tables = levels.entry((added.keyspace, added.level)).or_default();
            tables.insert(added.table.number, Arc::clone(&added.table));
        }
    }

    /// All tables with keyspace and level.
    pub fn tables(&self) -> impl Iterator<Item = (u32, usize, &Arc<TableMetadata>)> {
        self.keyspaces.iter().flat_map(|(&id, keyspace)| {
            let levels = keyspace.levels.iter();
            levels.flat_map(move |(&level, tables)| tables.iter().map(move |table| (id, level, table)))
        })
    }

    /// Oldest log segment that some keyspace needs.
    pub fn min_log_number(&self) -> FileNumber {
        self.keyspaces.values().map(|keyspace| keyspace.log_number).min().unwrap_or_default()
    }

    /// The levels' invariants, each breach as a fault of a table of `dir`: below level 0 tables are disjoint by user key;
    /// in level 0 those that overlap hold disjoint sequence numbers.
    pub fn check_levels(&self, dir: &Path, report: &mut dyn FnMut(Fault)) {
        for keyspace in self.keyspaces.values() {
            for (&level, tables) in &keyspace.levels {
                let neighbours = tables.iter().zip(tables.iter().skip(1));
                for (a, b) in neighbours {
                    let is_bad = match level {
                        0 => a.overlaps(b) && oldest(a) <= b.largest_seq,
                        _ => a.largest.user_key >= b.smallest.user_key,
                    };
                    if is_bad {
                        let file = FileKind::Table.path(dir, b.number);
                        let what = format!("level {level}: {} overlaps {}", range(b), range(a));
                        report(Fault::damage(&file, 0, what));
                    }
                }
            }
        }
    }
}

/// The oldest sequence number that says something about order: zeroed ones do not.
fn oldest(table: &TableMetadata) -> u64 {
    if table.smallest_seq == 0 { table.largest_seq } else { table.smallest_seq }
}

fn range(table: &TableMetadata) -> String {
    let key = |key: &InternalKey| format!("{:?}", key);
    format!("table {} ({} .. {})", table.number, key(&table.smallest), key(&table.largest))
}
