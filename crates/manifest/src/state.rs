//! `ManifestState`: everything that the edits so far add up to.
//!
//! Immutable after publication, like the versions in it, and cheap to clone. The engine applies an edit to the present
//! state first, which checks it, and logs it then; replay gathers all edits in a `StateBuilder` and builds once.

use crate::version_builder::VersionBuilder;
use crate::{AddedTable, CursorChange, FORMAT_VERSION, KeyspaceRecord, Version, VersionEdit};
use esker_base::{Error, FileNumber, KeyspaceId, MAX_SEQUENCE, Result, SequenceNumber};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The name of the order of user keys by their bytes, the only one so far.
const BYTEWISE: &str = "bytewise";

/// Everything that the manifest says.
#[derive(Clone, Debug)]
pub struct ManifestState {
    /// Name of the order of user keys.
    pub comparator: String,
    /// Random id of the store, part of every table's id.
    pub store_id: u128,
    /// Seed of the hash of user keys.
    pub hash_seed: u64,
    /// No file has this number or a larger one.
    pub next_file: FileNumber,
    /// Largest sequence number that was given out, as far as the manifest knows.
    pub last_sequence: SequenceNumber,
    /// Largest sequence number known to be synced, as far as the manifest knows.
    pub durable_sequence: SequenceNumber,
    /// The keyspaces by their number.
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceState>,
}

/// What the manifest says about one keyspace.
#[derive(Clone, Debug)]
pub struct KeyspaceState {
    /// Its name, unique in the store.
    pub name: String,
    /// Its options, in a form that only the engine knows.
    pub options: Vec<u8>,
    /// Its tables.
    pub version: Arc<Version>,
    /// Oldest log segment that it still needs; 0 is none.
    pub log_number: FileNumber,
}

impl ManifestState {
    /// A new store: the keyspace 0, named `default`, without tables.
    pub fn new(store_id: u128, hash_seed: u64) -> Self {
        let default = KeyspaceRecord { id: 0, name: "default".to_owned(), options: Vec::new() };
        ManifestState {
            comparator: BYTEWISE.to_owned(),
            store_id,
            hash_seed,
            next_file: FileNumber(1),
            last_sequence: 0,
            durable_sequence: 0,
            keyspaces: BTreeMap::from([(0, KeyspaceState::new(&default))]),
        }
    }

    /// The state after `edit`. Numbers and sequences only grow: a smaller one than the present one changes nothing.
    ///
    /// # Errors
    ///
    /// [`Fatal`](esker_base::ErrorKind::Fatal) when the edit contradicts the state or breaks an invariant of a version.
    /// Nothing was changed then, and the edit must not be logged.
    pub fn apply(&self, edit: &VersionEdit) -> Result<ManifestState> {
        let mut builder = StateBuilder::new(self.clone());
        builder
            .apply(edit)
            .and_then(|()| builder.build())
            .map_err(|what| Error::fatal(format!("edit of the manifest: {what}")))
    }

    /// One edit that makes this state from nothing.
    pub fn to_snapshot_edit(&self) -> VersionEdit {
        let mut edit = VersionEdit {
            format_version: Some(FORMAT_VERSION),
            comparator: Some(self.comparator.clone()),
            store_id: Some(self.store_id),
            hash_seed: Some(self.hash_seed),
            next_file: Some(self.next_file),
            last_sequence: Some(self.last_sequence),
            durable_sequence: Some(self.durable_sequence),
            ..VersionEdit::default()
        };
        for (&id, keyspace) in &self.keyspaces {
            let (name, options) = (keyspace.name.clone(), keyspace.options.clone());
            edit.keyspaces.push(KeyspaceRecord { id, name, options });
            edit.log_numbers.push((id, keyspace.log_number));
            edit.added.extend(keyspace.version.tables().map(|(level, table)| AddedTable {
                keyspace: id,
                level,
                table: Arc::clone(table),
            }));
            edit.cursors.extend(keyspace.version.levels().filter_map(|level| {
                let user_key = keyspace.version.cursor(level.number())?.to_vec();
                Some(CursorChange { keyspace: id, level: level.number(), user_key: Some(user_key) })
            }));
        }
        edit
    }

    /// Oldest log segment that any keyspace still needs: segments with smaller numbers are obsolete.
    pub fn min_log_number(&self) -> FileNumber {
        self.keyspaces.values().map(|keyspace| keyspace.log_number).min().unwrap_or_default()
    }

    /// Every table of every keyspace.
    pub fn table_numbers(&self) -> impl Iterator<Item = FileNumber> {
        self.keyspaces.values().flat_map(|keyspace| keyspace.version.tables().map(|(_, table)| table.number))
    }
}

impl KeyspaceState {
    fn new(record: &KeyspaceRecord) -> Self {
        KeyspaceState {
            name: record.name.clone(),
            options: record.options.clone(),
            version: Arc::new(Version::new()),
            log_number: FileNumber(0),
        }
    }
}

/// Gathers edits, then makes one state of them; linear in the size of the edits. Errors are plain text: the caller knows
/// whether a file or a broken engine is to blame.
#[derive(Debug)]
pub(crate) struct StateBuilder {
    /// The state, but for the changes that wait in `versions`.
    state: ManifestState,
    versions: BTreeMap<KeyspaceId, VersionBuilder>,
}

impl StateBuilder {
    pub(crate) fn new(state: ManifestState) -> Self {
        StateBuilder { state, versions: BTreeMap::new() }
    }

    /// Starts from the first edit of a file.
    pub(crate) fn from_snapshot(edit: &VersionEdit) -> Result<Self, String> {
        if edit.format_version.is_none() {
            return Err("the first edit has no format version".to_owned());
        }
        let (Some(comparator), Some(store_id), Some(hash_seed), Some(next_file)) =
            (&edit.comparator, edit.store_id, edit.hash_seed, edit.next_file)
        else {
            return Err("the first edit is no snapshot".to_owned());
        };
        let mut builder = Self::new(ManifestState {
            comparator: comparator.clone(),
            store_id,
            hash_seed,
            next_file,
            last_sequence: 0,
            durable_sequence: 0,
            keyspaces: BTreeMap::new(),
        });
        builder.apply(edit)?;
        Ok(builder)
    }

    pub(crate) fn apply(&mut self, edit: &VersionEdit) -> Result<(), String> {
        self.apply_scalars(edit)?;
        for record in &edit.keyspaces {
            self.add_keyspace(record)?;
        }
        for &(keyspace, number) in &edit.log_numbers {
            self.set_log_number(keyspace, number)?;
        }
        for deleted in &edit.deleted {
            self.version(deleted.keyspace)?.delete(deleted.level, deleted.number)?;
        }
        for added in &edit.added {
            self.version(added.keyspace)?.add(added.level, &added.table)?;
            self.raise_next_file(added.table.number)?;
            self.state.last_sequence = self.state.last_sequence.max(added.table.largest_seq);
        }
        for cursor in &edit.cursors {
            self.version(cursor.keyspace)?.set_cursor(cursor.level, cursor.user_key.clone())?;
        }
        Ok(())
    }

    /// The state after all edits.
    pub(crate) fn build(mut self) -> Result<ManifestState, String> {
        self.check_names()?;
        for (id, mut builder) in self.versions {
            let keyspace =
                self.state.keyspaces.get_mut(&id).expect("builders are made for known keyspaces only");
            let version =
                builder.build(&keyspace.version).map_err(|what| format!("keyspace {id}: {what}"))?;
            keyspace.version = Arc::new(version);
        }
        Ok(self.state)
    }

    fn check_names(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        match self.state.keyspaces.values().find(|keyspace| !names.insert(&keyspace.name)) {
            Some(keyspace) => Err(format!("two keyspaces are named {:?}", keyspace.name)),
            None => Ok(()),
        }
    }

    fn apply_scalars(&mut self, edit: &VersionEdit) -> Result<(), String> {
        let state = &mut self.state;
        if edit.comparator.as_ref().is_some_and(|comparator| *comparator != state.comparator)
            || edit.store_id.is_some_and(|id| id != state.store_id)
            || edit.hash_seed.is_some_and(|seed| seed != state.hash_seed)
        {
            return Err("comparator, store id and hash seed never change".to_owned());
        }
        if edit.last_sequence.max(edit.durable_sequence).is_some_and(|sequence| sequence > MAX_SEQUENCE) {
            return Err("a sequence number is too large".to_owned());
        }
        state.next_file = state.next_file.max(edit.next_file.unwrap_or_default());
        state.last_sequence = state.last_sequence.max(edit.last_sequence.unwrap_or(0));
        state.durable_sequence = state.durable_sequence.max(edit.durable_sequence.unwrap_or(0));
        Ok(())
    }

    fn add_keyspace(&mut self, record: &KeyspaceRecord) -> Result<(), String> {
        if self.state.keyspaces.contains_key(&record.id) {
            return Err(format!("keyspace {} is added twice", record.id));
        }
        self.state.keyspaces.insert(record.id, KeyspaceState::new(record));
        Ok(())
    }

    fn set_log_number(&mut self, keyspace: KeyspaceId, number: FileNumber) -> Result<(), String> {
        let state = self.state.keyspaces.get_mut(&keyspace).ok_or_else(|| unknown(keyspace))?;
        if number < state.log_number {
            return Err(format!("the log number of keyspace {keyspace} goes back to {number}"));
        }
        state.log_number = number;
        self.raise_next_file(number)
    }

    fn raise_next_file(&mut self, used: FileNumber) -> Result<(), String> {
        let next = used.0.checked_add(1).ok_or("a file number is too large")?;
        self.state.next_file = self.state.next_file.max(FileNumber(next));
        Ok(())
    }

    fn version(&mut self, keyspace: KeyspaceId) -> Result<&mut VersionBuilder, String> {
        if !self.state.keyspaces.contains_key(&keyspace) {
            return Err(unknown(keyspace));
        }
        Ok(self.versions.entry(keyspace).or_default())
    }
}

fn unknown(keyspace: KeyspaceId) -> String {
    format!("there is no keyspace {keyspace}")
}
