//! `VersionEdit`: one change of the manifest's state, and its bytes.
//!
//! ```text
//! edit  := field*
//! field := tag:varint length:varint payload[length]
//! ```
//!
//! A reader refuses an edit with an even tag that it does not know, and skips an odd one. The payloads are drawn beside
//! their writers below and in `docs/format/manifest.md`. Bytes come from disk, so nothing is allocated for a count that
//! a file claims: every list grows one decoded element at a time.

#![deny(
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used
)]

use crate::TableMetadata;
use esker_base::coding::{Reader, put_bytes, put_varint};
use esker_base::{Error, FileNumber, InternalKey, KeyspaceId, Result, SequenceNumber, ValueKind};
use std::path::Path;
use std::sync::Arc;

/// The version of the manifest's format that this build writes, and the newest that it reads.
pub const FORMAT_VERSION: u64 = 1;

/// One change of the manifest's state. Fields that are `None` or empty change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionEdit {
    /// Version of the format; in the first edit of each file.
    pub format_version: Option<u64>,
    /// Name of the order of user keys.
    pub comparator: Option<String>,
    /// Random id of the store, part of every table's id.
    pub store_id: Option<u128>,
    /// Seed of the hash of user keys.
    pub hash_seed: Option<u64>,
    /// New keyspaces.
    pub keyspaces: Vec<KeyspaceRecord>,
    /// No file has this number or a larger one.
    pub next_file: Option<FileNumber>,
    /// Largest sequence number that was given out.
    pub last_sequence: Option<SequenceNumber>,
    /// Largest sequence number known to be synced in the log or in tables.
    pub durable_sequence: Option<SequenceNumber>,
    /// Oldest log segment that a keyspace still needs.
    pub log_numbers: Vec<(KeyspaceId, FileNumber)>,
    /// Tables that leave. Takes effect before `added`.
    pub deleted: Vec<DeletedTable>,
    /// Tables that come.
    pub added: Vec<AddedTable>,
    /// Where the next compaction of a level starts.
    pub cursors: Vec<CursorChange>,
}

/// A new keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyspaceRecord {
    /// Its number, never used twice.
    pub id: KeyspaceId,
    /// Its name, unique in the store.
    pub name: String,
    /// Its options, in a form that only the engine knows.
    pub options: Vec<u8>,
}

/// A table that leaves a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeletedTable {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The level it is in.
    pub level: usize,
    /// The number in its file's name.
    pub number: FileNumber,
}

/// A table that comes into a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddedTable {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The level it goes to.
    pub level: usize,
    /// The table.
    pub table: Arc<TableMetadata>,
}

/// A new compaction cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorChange {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// Its level.
    pub level: usize,
    /// The user key after which the next compaction starts; `None` is the level's first key.
    pub user_key: Option<Vec<u8>>,
}

impl VersionEdit {
    /// An edit that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets a table come into a level.
    pub fn add_table(&mut self, keyspace: KeyspaceId, level: usize, table: Arc<TableMetadata>) -> &mut Self {
        self.added.push(AddedTable { keyspace, level, table });
        self
    }

    /// Lets a table leave a level.
    pub fn delete_table(&mut self, keyspace: KeyspaceId, level: usize, number: FileNumber) -> &mut Self {
        self.deleted.push(DeletedTable { keyspace, level, number });
        self
    }

    /// Sets where the next compaction of a level starts.
    pub fn set_cursor(&mut self, keyspace: KeyspaceId, level: usize, user_key: Option<Vec<u8>>) -> &mut Self {
        self.cursors.push(CursorChange { keyspace, level, user_key });
        self
    }

    /// Sets the oldest log segment that a keyspace still needs. The segment must exist, durably, before the edit is
    /// logged: recovery takes its absence behind a torn edit for damage.
    pub fn set_log_number(&mut self, keyspace: KeyspaceId, number: FileNumber) -> &mut Self {
        self.log_numbers.push((keyspace, number));
        self
    }

    /// Appends the edit's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = FieldWriter { out, payload: Vec::new() };
        writer.number(tag::FORMAT_VERSION, self.format_version);
        if let Some(comparator) = &self.comparator {
            writer.field(tag::COMPARATOR, |payload| payload.extend_from_slice(comparator.as_bytes()));
        }
        if let Some(store_id) = self.store_id {
            writer.field(tag::STORE_ID, |payload| payload.extend_from_slice(&store_id.to_le_bytes()));
        }
        if let Some(hash_seed) = self.hash_seed {
            writer.field(tag::HASH_SEED, |payload| payload.extend_from_slice(&hash_seed.to_le_bytes()));
        }
        for keyspace in &self.keyspaces {
            writer.field(tag::KEYSPACE, |payload| put_keyspace(payload, keyspace));
        }
        writer.number(tag::NEXT_FILE, self.next_file.map(|number| number.0));
        writer.number(tag::LAST_SEQUENCE, self.last_sequence);
        writer.number(tag::DURABLE_SEQUENCE, self.durable_sequence);
        for (keyspace, number) in &self.log_numbers {
            writer.field(tag::LOG_NUMBER, |payload| {
                put_varint(payload, u64::from(*keyspace));
                put_varint(payload, number.0);
            });
        }
        for deleted in &self.deleted {
            writer.field(tag::DELETE_TABLE, |payload| {
                put_place(payload, deleted.keyspace, deleted.level);
                put_varint(payload, deleted.number.0);
            });
        }
        for added in &self.added {
            writer.field(tag::ADD_TABLE, |payload| put_added(payload, added));
        }
        for cursor in &self.cursors {
            writer.field(tag::CURSOR, |payload| put_cursor(payload, cursor));
        }
    }

    /// Reads an edit from all of `bytes`, which start at `offset` of `file`.
    ///
    /// # Errors
    ///
    /// `Corruption` with the offset of the field that can't be decoded; `UnsupportedFormat` for a newer format and for
    /// fields that this build does not know and must not skip.
    pub fn decode(bytes: &[u8], file: &Path, offset: u64) -> Result<VersionEdit> {
        let mut edit = VersionEdit::new();
        let mut reader = Reader::new(bytes);
        while !reader.is_empty() {
            let at = offset.saturating_add(u64::try_from(reader.position()).unwrap_or(u64::MAX));
            let field = reader.varint().and_then(|tag| Some((tag, reader.bytes()?)));
            let Some((tag, payload)) = field else {
                return Err(Error::corruption(file, at, "a field of an edit is cut off"));
            };
            match edit.read_field(tag, payload) {
                Ok(()) => {}
                Err(FieldError::Unknown) => {
                    return Err(Error::unsupported(file, format!("field {tag} of an edit at offset {at}")));
                }
                Err(FieldError::Newer(version)) => {
                    return Err(Error::unsupported(file, format!("manifest format version {version}")));
                }
                Err(FieldError::Bad(what)) => {
                    return Err(Error::corruption(file, at, format!("field {tag} of an edit: {what}")));
                }
            }
        }
        Ok(edit)
    }

    fn read_field(&mut self, tag: u64, payload: &[u8]) -> Result<(), FieldError> {
        let mut reader = Reader::new(payload);
        let reader = &mut reader;
        match tag {
            tag::FORMAT_VERSION => {
                let version = reader.varint();
                if let Some(version) = version.filter(|version| *version > FORMAT_VERSION) {
                    return Err(FieldError::Newer(version));
                }
                once(&mut self.format_version, version.filter(|version| *version > 0))?;
            }
            tag::COMPARATOR => once(&mut self.comparator, text(reader.take(payload.len())))?,
            tag::STORE_ID => once(&mut self.store_id, reader.u128())?,
            tag::HASH_SEED => once(&mut self.hash_seed, reader.u64())?,
            tag::KEYSPACE => self.keyspaces.push(read_keyspace(reader).ok_or(UNREADABLE)?),
            tag::NEXT_FILE => once(&mut self.next_file, reader.varint().map(FileNumber))?,
            tag::LAST_SEQUENCE => once(&mut self.last_sequence, reader.varint())?,
            tag::DURABLE_SEQUENCE => once(&mut self.durable_sequence, reader.varint())?,
            tag::LOG_NUMBER => {
                let pair = reader.varint_u32().and_then(|id| Some((id, FileNumber(reader.varint()?))));
                self.log_numbers.push(pair.ok_or(UNREADABLE)?);
            }
            tag::DELETE_TABLE => self.deleted.push(read_deleted(reader).ok_or(UNREADABLE)?),
            tag::ADD_TABLE => {
                let added = read_added(reader).ok_or(UNREADABLE)?;
                added.table.check().map_err(FieldError::Bad)?;
                self.added.push(added);
            }
            tag::CURSOR => self.cursors.push(read_cursor(reader).ok_or(UNREADABLE)?),
            _ if tag & tag::IGNORABLE != 0 => return Ok(()),
            _ => return Err(FieldError::Unknown),
        }
        if reader.is_empty() { Ok(()) } else { Err(FieldError::Bad("it is too long".to_owned())) }
    }
}

/// The fields' tags. Their numbers are on disk and never change.
mod tag {
    /// Set in tags of fields that a reader may skip when it does not know them.
    pub(super) const IGNORABLE: u64 = 1;
    pub(super) const FORMAT_VERSION: u64 = 2;
    pub(super) const COMPARATOR: u64 = 4;
    pub(super) const STORE_ID: u64 = 6;
    pub(super) const HASH_SEED: u64 = 8;
    pub(super) const KEYSPACE: u64 = 10;
    pub(super) const NEXT_FILE: u64 = 12;
    pub(super) const LAST_SEQUENCE: u64 = 14;
    pub(super) const DURABLE_SEQUENCE: u64 = 16;
    pub(super) const LOG_NUMBER: u64 = 18;
    pub(super) const DELETE_TABLE: u64 = 20;
    pub(super) const ADD_TABLE: u64 = 22;
    pub(super) const CURSOR: u64 = 24;
}

/// Why a field was refused.
enum FieldError {
    Unknown,
    Newer(u64),
    Bad(String),
}

const UNREADABLE: Unreadable = Unreadable;

/// A payload that ends too early or holds an impossible number.
struct Unreadable;

impl From<Unreadable> for FieldError {
    fn from(_: Unreadable) -> Self {
        FieldError::Bad("it can't be decoded".to_owned())
    }
}

/// Fills a field that an edit may hold once.
fn once<T>(slot: &mut Option<T>, value: Option<T>) -> Result<(), FieldError> {
    match slot.replace(value.ok_or(UNREADABLE)?) {
        None => Ok(()),
        Some(_) => Err(FieldError::Bad("it is there twice".to_owned())),
    }
}

struct FieldWriter<'a> {
    out: &'a mut Vec<u8>,
    payload: Vec<u8>,
}

impl FieldWriter<'_> {
    fn field(&mut self, tag: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.payload.clear();
        write(&mut self.payload);
        put_varint(self.out, tag);
        put_bytes(self.out, &self.payload);
    }

    fn number(&mut self, tag: u64, value: Option<u64>) {
        if let Some(value) = value {
            self.field(tag, |payload| put_varint(payload, value));
        }
    }
}

/// ```text
/// keyspace := id:varint name-length:varint name options-length:varint options
/// ```
fn put_keyspace(out: &mut Vec<u8>, keyspace: &KeyspaceRecord) {
    put_varint(out, u64::from(keyspace.id));
    put_bytes(out, keyspace.name.as_bytes());
    put_bytes(out, &keyspace.options);
}

fn read_keyspace(reader: &mut Reader<'_>) -> Option<KeyspaceRecord> {
    Some(KeyspaceRecord {
        id: reader.varint_u32()?,
        name: text(reader.bytes())?,
        options: reader.bytes()?.to_vec(),
    })
}

/// ```text
/// place := keyspace:varint level:1 byte
/// ```
fn put_place(out: &mut Vec<u8>, keyspace: KeyspaceId, level: usize) {
    put_varint(out, u64::from(keyspace));
    out.push(u8::try_from(level).expect("levels are checked before they are logged"));
}

fn read_place(reader: &mut Reader<'_>) -> Option<(KeyspaceId, usize)> {
    Some((reader.varint_u32()?, usize::from(reader.u8()?)))
}

fn read_deleted(reader: &mut Reader<'_>) -> Option<DeletedTable> {
    let (keyspace, level) = read_place(reader)?;
    Some(DeletedTable { keyspace, level, number: FileNumber(reader.varint()?) })
}

/// ```text
/// added := place number:varint file-size:varint tail-size:varint smallest:key largest:key
///          smallest-sequence:varint sequence-span:varint entries:varint deletes:varint
/// ```
///
/// The span is the largest sequence number less the smallest one.
fn put_added(out: &mut Vec<u8>, added: &AddedTable) {
    let table = &*added.table;
    put_place(out, added.keyspace, added.level);
    put_varint(out, table.number.0);
    put_varint(out, table.file_size);
    put_varint(out, table.tail_size);
    put_key(out, &table.smallest);
    put_key(out, &table.largest);
    put_varint(out, table.smallest_seq);
    put_varint(out, table.largest_seq.saturating_sub(table.smallest_seq));
    put_varint(out, table.entries);
    put_varint(out, table.deletes);
}

fn read_added(reader: &mut Reader<'_>) -> Option<AddedTable> {
    let (keyspace, level) = read_place(reader)?;
    let mut table = TableMetadata {
        number: FileNumber(reader.varint()?),
        file_size: reader.varint()?,
        tail_size: reader.varint()?,
        smallest: read_key(reader)?,
        largest: read_key(reader)?,
        smallest_seq: reader.varint()?,
        largest_seq: 0,
        entries: 0,
        deletes: 0,
    };
    table.largest_seq = table.smallest_seq.checked_add(reader.varint()?)?;
    table.entries = reader.varint()?;
    table.deletes = reader.varint()?;
    Some(AddedTable { keyspace, level, table: Arc::new(table) })
}

/// ```text
/// key := length:varint user-key[length] trailer:varint        trailer := sequence * 8 + kind
/// ```
fn put_key(out: &mut Vec<u8>, key: &InternalKey) {
    put_bytes(out, &key.user_key);
    #[expect(clippy::as_conversions, reason = "the enum is a `u8` in memory")]
    let kind = key.kind as u8;
    put_varint(out, (key.seq << 3) | u64::from(kind));
}

fn read_key(reader: &mut Reader<'_>) -> Option<InternalKey> {
    let user_key = reader.bytes()?;
    let trailer = reader.varint()?;
    let kind = ValueKind::from_u8(u8::try_from(trailer & 7).ok()?)?;
    Some(InternalKey::new(user_key, trailer >> 3, kind))
}

/// ```text
/// cursor := place 0                                  the level's first key
///         | place 1 length:varint user-key[length]
/// ```
fn put_cursor(out: &mut Vec<u8>, cursor: &CursorChange) {
    put_place(out, cursor.keyspace, cursor.level);
    match &cursor.user_key {
        None => out.push(0),
        Some(user_key) => {
            out.push(1);
            put_bytes(out, user_key);
        }
    }
}

fn read_cursor(reader: &mut Reader<'_>) -> Option<CursorChange> {
    let (keyspace, level) = read_place(reader)?;
    let user_key = match reader.u8()? {
        0 => None,
        1 => Some(reader.bytes()?.to_vec()),
        _ => return None,
    };
    Some(CursorChange { keyspace, level, user_key })
}

fn text(bytes: Option<&[u8]>) -> Option<String> {
    String::from_utf8(bytes?.to_vec()).ok()
}
