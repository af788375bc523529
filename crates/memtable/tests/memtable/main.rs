//! What a memtable promises, against a model.

mod model;
mod promises;
mod threads;

use esker_base::{InternalKeyRef, Lookup, ValueKind, key_hash};
use esker_memtable::{Found, Memtable};
use std::sync::Arc;

const SEED: u64 = 42;

/// Inserts one entry with a buffer of its own.
fn insert(table: &Memtable, key: &[u8], seq: u64, kind: ValueKind, value: &[u8]) {
    let owner: Arc<[u8]> = Arc::from([b"\x01\x02", key, b"\x03", value].concat());
    let value = key.len() + 3..owner.len();
    table.writer().insert(&owner, 2..2 + key.len(), value, seq, kind, key_hash(SEED, key));
}

fn put(table: &Memtable, key: &[u8], seq: u64, value: &[u8]) {
    insert(table, key, seq, ValueKind::Put, value);
}

fn lookup(key: &[u8], seq: u64) -> Lookup<'_> {
    Lookup { user_key: key, hash: key_hash(SEED, key), seq }
}

fn get(table: &Memtable, key: &[u8], seq: u64) -> Option<Found> {
    table.get(&lookup(key, seq))
}

fn before(key: &[u8]) -> InternalKeyRef<'_> {
    InternalKeyRef::before(key)
}
