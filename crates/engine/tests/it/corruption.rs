//! Damage: every byte of every file of two small databases is flipped, one at a time, and every file is cut at every
//! length. What is read is right or a named error; nothing panics, hangs, or allocates much.
//!
//! One database was closed, so that any damage to its manifest must be told; the other one was killed, so that its log
//! counts. There, what was not synced may be missing after damage to it, as a suffix (rule W3); what was synced may not.

use std::path::Path;
use std::time::Duration;

use esker::Compression;
use esker::vfs::{MemVfs, Vfs};
use esker_sim::damaged::{Damage, Recipe, Store, kind_of, name_of};
use esker_testkit::{Coverage, Patience};

fn store(clean: bool, compression: Compression) -> Store {
    Store::new(Recipe { clean, compression, counts: [60, 30, 12], order: true, lie: None })
}

/// Examines a copy of the store after a change to one of its files. Returns whether the damage was told.
fn examine(store: &Store, path: &Path, what: &str, proof_gone: bool, change: impl FnOnce(&MemVfs)) -> bool {
    let files = vec![name_of(path)];
    let mem = store.copy();
    change(&mem);
    store.examine(mem, &Damage { what: format!("{}: {what}", files[0]), files, proof_gone })
}

fn flip_every_byte(clean: bool, compression: Compression, masks: &[u8]) {
    let store = store(clean, compression);
    let patience = Patience::new(Duration::from_secs(20));
    let mut coverage = Coverage::default();
    assert!(!store.examine(store.copy(), &Damage::default()));
    for (path, bytes) in store.mem.files() {
        let kind = kind_of(&name_of(&path));
        for offset in 0..bytes.len() as u64 {
            for &mask in masks {
                let what = format!("@ {offset} ^ {mask:#04x}");
                patience.next(&*what);
                let told = examine(&store, &path, &what, false, |mem| mem.flip(&path, offset, mask).unwrap());
                coverage.hit(kind);
                // A log after an unclean end may be cut without a word; nothing else may be.
                assert!(told || kind == "wal", "{path:?} {what}: nothing tells of the damage");
                coverage.hit(if told { "told" } else { "cut" });
            }
        }
    }
    println!("clean {clean}: {coverage}");
    coverage.demand(&["sst", "wal", "MANIFEST", "CURRENT", "told"]);
}

/// CO06, CO07. Mutation: a block, a record or an edit whose checksum is not compared.
#[test]
fn co07_every_flipped_byte_of_a_closed_database() {
    flip_every_byte(true, Compression::None, &[0x01, 0xff]);
}

/// CO06 with a log that counts. Mutation: `proof` of the log's recovery answers "not durable".
#[test]
fn co06_every_flipped_byte_of_a_killed_database() {
    flip_every_byte(false, Compression::Snappy, &[0x80]);
}

/// CO11, CO10, DM12: every file is cut at every length, and cut files are filled up with zeros. A log whose end is gone has
/// nothing left that says what was synced. Mutation: the manifest's sizes of tables are not compared.
#[test]
fn co11_every_file_cut_at_every_length() {
    for clean in [true, false] {
        let store = store(clean, Compression::None);
        let patience = Patience::new(Duration::from_secs(20));
        for (path, bytes) in store.mem.files() {
            let kind = kind_of(&name_of(&path));
            for len in 0..bytes.len() {
                for zeros in [0, bytes.len() - len] {
                    let what = format!("cut to {len} of {} and {zeros} zeros", bytes.len());
                    patience.next(&*what);
                    let cut = [&bytes[..len], &vec![0; zeros]].concat();
                    if cut == bytes {
                        continue;
                    }
                    let told = examine(&store, &path, &what, kind == "wal", |mem| {
                        mem.write_file(&path, cut).unwrap();
                    });
                    assert!(told || kind == "wal", "{path:?} {what}: nothing tells of the damage");
                }
            }
        }
    }
}

/// A missing file is told, also a log that held nothing: whoever goes on without it may not know that.
/// Mutation: the open does not ask for the segment that the manifest names.
#[test]
fn dw22_every_missing_file() {
    for clean in [true, false] {
        let store = store(clean, Compression::None);
        for path in store.mem.paths() {
            let told = examine(&store, &path, "missing", false, |mem| mem.remove(&path).unwrap());
            assert!(
                told || kind_of(&name_of(&path)) == "LOCK" || clean,
                "{path:?} is missing, and nothing tells"
            );
        }
    }
}
