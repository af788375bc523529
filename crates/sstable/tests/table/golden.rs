//! Golden files: tables that were written once and must be read for ever, and must come out the same again.
//!
//! After a deliberate change of the format: `REWRITE=1 cargo test -p esker-sstable golden`.
#![allow(clippy::disallowed_methods, reason = "golden files lie on the real disk")]

use crate::model::check;
use crate::support::{Entry, build, delete, open, put};
use esker_base::SplitMix64;
use esker_sstable::{Compression, TableOptions};
use std::fs;
use std::path::Path;

/// Name, options and entries of each golden table.
fn tables() -> Vec<(&'static str, TableOptions, Vec<Entry>)> {
    let none = TableOptions { compression: Compression::None, ..TableOptions::default() };
    let mut rng = SplitMix64::new(7);
    let mut noise = |len: u64| -> Vec<u8> { (0..len).map(|_| rng.next_u64() as u8).collect() };
    let plain: Vec<Entry> = (0..40).map(|i| put(format!("k{i:05}"), i + 1, noise(20))).collect();
    let snappy: Vec<Entry> =
        (0..100).map(|i| put(format!("key{i:05}"), 1000 - i, "the same text again ".repeat(4))).collect();
    let prefixed: Vec<Entry> = (0..60)
        .map(|i| put(format!("tenant/0000000000/of/a/rather/long/path/{:06}", i * i), 0, noise(i % 7)))
        .collect();
    let mut versions: Vec<Entry> = (0..120).map(|seq| put("counter", seq * 3, seq.to_string())).collect();
    versions.extend((0..20).map(|i| delete(format!("gone{i}"), 5000 + i)));
    versions.push(delete("counter", 1000));
    versions.push(put("", 77, "the empty key"));
    versions.push(put(vec![0xff; 300], 1 << 55, noise(700)));
    versions.sort();
    let many: Vec<Entry> = (0..300).map(|i| put(format!("{:08x}", i * 7919), i, noise(i % 30))).collect();
    let tiny =
        TableOptions { block_size: 256, restart_interval: 4, index_partition_size: 128, ..none.clone() };
    vec![
        ("none.sst", none.clone(), plain),
        ("snappy.sst", TableOptions::default(), snappy),
        ("prefix.sst", none.clone(), prefixed),
        ("versions.sst", TableOptions { block_size: 512, ..TableOptions::default() }, versions),
        ("two-level.sst", tiny, many),
        (
            "no-filter.sst",
            TableOptions { bloom_bits: 0, restart_interval: 1, ..none },
            vec![put("a", 1, "b")],
        ),
    ]
}

/// Fails at any change of a byte that the builder writes, and when the reader no longer reads what it once wrote.
#[test]
fn golden_files_are_read_and_written_the_same() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    for (name, options, entries) in tables() {
        let path = dir.join(name);
        let (built, _) = build(&options, &entries);
        if std::env::var_os("REWRITE").is_some() {
            fs::create_dir_all(&dir).unwrap();
            fs::write(&path, &built).unwrap();
        }
        let golden = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        check(&open(&golden).unwrap(), &entries, &[b"k".to_vec(), b"counter".to_vec(), b"zz".to_vec()]);
        assert!(golden == built, "{name}: the builder writes other bytes");
    }
    let files = fs::read_dir(&dir).unwrap().count();
    assert_eq!(files, tables().len(), "each file of testdata is one of these");
}
