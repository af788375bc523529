//! Golden files: tables that were written once and must be read for ever, and must come out the same again.
//!
//! After a deliberate change of the format: `REWRITE=1 cargo test -p esker-sstable golden`.
#![allow(clippy::disallowed_methods, reason = "golden files lie on the real disk")]

use crate::model::check;
use crate::support::{Entry, build, build_as, delete, open, put};
use esker_base::{FileNumber, SplitMix64};
use esker_sstable::{Compression, TableIdentity, TableOptions};
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

/// The table that `docs/format/sstable.md` takes apart byte by byte is what the builder writes.
#[test]
fn the_documents_example_is_a_real_table() {
    let options =
        TableOptions { compression: Compression::None, restart_interval: 2, ..TableOptions::default() };
    let identity = TableIdentity {
        store_id: 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100,
        number: FileNumber(7),
        hash_seed: 0,
    };
    let entries = [
        put("berg", 5, "ice"),
        put("berg", 2, "snow"),
        delete("bergschrund", 4),
        put("esker", 3, "sand"),
        put("moraine", 1, "till"),
    ];
    let (bytes, _) = build_as(&options, identity, &entries);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/sstable.md");
    let text = fs::read_to_string(document).unwrap();
    // Lines of the example: offset in hex, two spaces, bytes in hex, two spaces, remarks.
    let mut shown = Vec::new();
    for line in
        text.lines().skip_while(|line| *line != "```hexdump").skip(1).take_while(|line| *line != "```")
    {
        let (offset, rest) = line.split_once("  ").unwrap();
        assert_eq!(usize::from_str_radix(offset, 16).unwrap(), shown.len(), "{line}");
        let hex = rest.split("  ").next().unwrap();
        shown.extend(hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
    assert_eq!(hex(&shown), hex(&bytes));
}
