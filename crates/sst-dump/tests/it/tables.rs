//! Sums: sections and parts add up to the file, to the byte.

use crate::util::{closed, crashed, files, options, run_on, table};
use esker::Compression;
use std::path::Path;

/// The sections lie back to back from 0 to the length of the file.
fn assert_covers(path: &Path, words: &str) {
    let ran = run_on(words, path);
    assert_eq!(ran.code, 0, "{} {}", path.display(), ran.out);
    let json = ran.json();
    let mut end = 0;
    for section in json["sections"].as_array().unwrap() {
        assert_eq!(section["offset"].as_u64().unwrap(), end, "{json}");
        end += section["length"].as_u64().unwrap();
    }
    assert_eq!(end, path.metadata().unwrap().len(), "{json}");
    assert_eq!(json["size"].as_u64().unwrap(), end);
}

#[test]
fn sections_add_up_in_files_of_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    closed(&dir.path().join("closed"));
    crashed(&dir.path().join("crashed"));
    for path in files(&dir.path().join("closed")).into_iter().chain(files(&dir.path().join("crashed"))) {
        assert_covers(&path, "layout --json");
        assert_covers(&path, "layout --json --blocks");
    }
}

#[test]
fn parts_add_up_with_and_without_compression() {
    for compression in [Compression::None, Compression::Snappy] {
        let dir = tempfile::tempdir().unwrap();
        let db = options().compression(compression).memtable_size(1 << 20).open(dir.path()).unwrap();
        for n in 0..2000_u32 {
            db.put(format!("key {n:06}"), format!("value {n} {n} {n} of a kind that compresses")).unwrap();
        }
        for n in (0..2000_u32).step_by(4) {
            db.delete(format!("key {n:06}")).unwrap();
        }
        db.close().unwrap();
        let path = crate::util::with_name(dir.path(), ".sst").pop().unwrap();
        let ran = run_on("info --json", &path);
        assert_eq!(ran.code, 0, "{}", ran.out);
        let json = ran.json();
        let table = &json["files"][0]["table"];
        let parts = table["parts"].as_array().unwrap();
        let sum: i64 = parts.iter().map(|part| part["bytes"].as_i64().unwrap()).sum();
        assert_eq!(u64::try_from(sum).unwrap(), path.metadata().unwrap().len(), "{table:#}");
        let part = |name: &str| {
            parts.iter().find(|part| part["name"] == name).map(|part| part["bytes"].as_i64().unwrap())
        };
        assert_eq!(part("values"), Some(table["raw_value_bytes"].as_i64().unwrap()));
        assert!(part("keys, unshared").unwrap() < table["raw_key_bytes"].as_i64().unwrap());
        let saves = part("saved by compression").is_some_and(|saved| saved < 0);
        assert_eq!(saves, compression == Compression::Snappy, "{table:#}");
        let kinds = &table["kinds"];
        let counted = kinds["put"].as_u64().unwrap_or(0) + kinds["delete"].as_u64().unwrap_or(0);
        assert_eq!(counted, table["entries"].as_u64().unwrap());
        let bits = table["filter"]["bits_per_key"].as_f64().unwrap();
        assert!((10.0..10.5).contains(&bits), "{bits}");
    }
}

/// What people see names the numbers that matter.
#[test]
fn info_fits_a_screen() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 100);
    let ran = run_on("info", &path);
    assert_eq!(ran.code, 0);
    assert!(ran.out.lines().count() < 40, "{}", ran.out);
    for wanted in
        ["80 put", "20 delete", "20.00 % tombstones", "\"k00000\" .. \"k00099\"", "1 .. 100", "10.24 bits"]
    {
        assert!(ran.out.contains(wanted), "{wanted} is missing in\n{}", ran.out);
    }
}

/// A damaged block costs what is in it, and is named; the sums hold all the same.
#[test]
fn info_goes_on_behind_a_damaged_block() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 100);
    crate::util::flip(&path, 310, 1);
    let ran = run_on("info --json", &path);
    assert_eq!(ran.code, 1);
    let json = ran.json();
    let info = &json["files"][0];
    assert_eq!(info["faults"].as_array().unwrap().len(), 1, "{info:#}");
    assert_eq!(info["faults"][0]["offset"], 303);
    assert!(info["table"]["kinds"].is_null());
    let parts = info["table"]["parts"].as_array().unwrap();
    let sum: i64 = parts.iter().map(|part| part["bytes"].as_i64().unwrap()).sum();
    assert_eq!(sum, 1445);
    assert!(parts.iter().any(|part| part["name"] == "unreadable blocks" && part["bytes"] == 269));
}
