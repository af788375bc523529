//! What the modules share: a database on a watched disk, its options, and comparisons with the right answers.

mod driver;
mod rig;
mod steps;

pub use driver::{Driver, Replay, Shared};
pub use rig::Rig;
pub use steps::{StepScheduler, crash_points};

use std::collections::BTreeMap;

use esker::{Background, Compression, Db, Durability, Options, Result, Snapshot, WriteBatch, WriteOptions};
use esker_testkit::{Preset, Promise, WriteOp};

/// All entries.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// The options of a preset, with background work on the caller's thread.
pub fn options_of(preset: &Preset) -> Options {
    Options::new()
        .memtable_size(preset.memtable_size)
        .cache_size(preset.cache_size)
        .block_size(preset.block_size)
        .restart_interval(preset.restart_interval)
        .table_size(preset.table_size)
        .l0_trigger(preset.l0_trigger)
        .base_level_size(preset.base_level_size)
        .level_ratio(preset.level_ratio)
        .wal_segment_size(preset.wal_segment_size)
        .bloom_bits(preset.bloom_bits)
        .compression(if preset.snappy { Compression::Snappy } else { Compression::None })
        .durability(match preset.durability {
            0 => Durability::Memory,
            1 => Durability::Buffered,
            _ => Durability::Sync,
        })
        .verify_reads(preset.verify_reads)
        .background(Background::Inline)
        .seed(42)
}

/// Tiny everything: the SMALL of the recipes.
pub fn small() -> Options {
    options_of(&esker_testkit::presets()[0])
}

/// What a promise means as options of a write.
pub fn write_options(promise: Promise) -> WriteOptions {
    match promise {
        Promise::Default => WriteOptions::new(),
        Promise::Memory => WriteOptions::new().with_durability(Durability::Memory),
        Promise::Buffered => WriteOptions::new().with_durability(Durability::Buffered),
        Promise::Sync => WriteOptions::sync(),
        Promise::NoLog => WriteOptions::wal(false),
    }
}

/// Writes operations as one batch; a single one by a plain put or delete.
pub fn write(db: &Db, ops: &[WriteOp], promise: Promise) -> Result<()> {
    let options = write_options(promise);
    match ops {
        [WriteOp::Put(key, value)] => db.put_with(key, value, &options),
        [WriteOp::Delete(key)] => db.delete_with(key, &options),
        _ => db.write_with(batch(ops), &options),
    }
}

/// Operations as a batch.
pub fn batch(ops: &[WriteOp]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for op in ops {
        match op {
            WriteOp::Put(key, value) => batch.put(key, value),
            WriteOp::Delete(key) => batch.delete(key),
        };
    }
    batch
}

/// The content, by a scan forward, which a scan backward and a get of each key must agree with (SN15).
pub fn content(db: &Db) -> Result<Content> {
    let mut content = Content::new();
    let mut last: Option<Vec<u8>> = None;
    for entry in db.iter() {
        let (key, value) = entry?;
        assert!(last.as_deref() < Some(&key[..]) || last.is_none(), "a scan is not in order at {key:?}");
        last = Some(key.to_vec());
        content.insert(key.to_vec(), value.to_vec());
    }
    let mut entries = content.iter().rev();
    for entry in db.iter().rev() {
        let (key, value) = entry?;
        let forward = entries.next().map(|(key, value)| (&key[..], &value[..]));
        assert_eq!(forward, Some((&key[..], &value[..])), "the scans of both directions differ");
    }
    assert_eq!(entries.next(), None, "the scan backward ended early");
    for (key, value) in &content {
        assert_eq!(db.get(key)?.as_deref(), Some(&value[..]), "get and scan differ at {key:?}");
    }
    Ok(content)
}

/// The content that a snapshot shows.
pub fn snapshot_content(snapshot: &Snapshot) -> Result<Content> {
    snapshot.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// Fails unless `verify` finds nothing.
pub fn assert_sound(db: &Db) {
    let report = db.verify().expect("an open database");
    assert!(report.is_clean(), "{report}");
}

/// A number from the environment.
pub fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// The factor for lengths of tests.
pub fn scale() -> u64 {
    env("ESKER_SCALE", 1).max(1)
}

/// A key that sorts by its number.
pub fn key(number: impl Into<u64>) -> Vec<u8> {
    format!("k{:06}", number.into()).into_bytes()
}

/// A value of `len` bytes that tells the number.
pub fn value(number: impl Into<u64>, len: usize) -> Vec<u8> {
    esker_testkit::value_for(number.into(), b"", len)
}
