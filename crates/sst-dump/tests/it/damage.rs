//! Damage: every flip is found where it is, all faults are told and not the first only, and nothing panics.

use crate::util::{closed, copy, crashed, files, flip, run, run_on, state, table, with_name, without_room};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn faults(json: &Value) -> Vec<(String, u64)> {
    let fault = |fault: &Value| {
        let file = Path::new(fault["file"].as_str().unwrap()).file_name().unwrap();
        (file.to_str().unwrap().to_owned(), fault["offset"].as_u64().unwrap_or(u64::MAX))
    };
    json["faults"].as_array().unwrap().iter().map(fault).collect()
}

/// Each byte of a small table is flipped, in one bit and in all. `verify` says so each time, and one of its faults has
/// the offset of the section or block that the byte is in.
#[test]
fn every_flip_in_a_table_is_found_where_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 30);
    let good = std::fs::read(&path).unwrap();
    let layout = run_on("layout --json --blocks", &path).json();
    let sections: Vec<(u64, u64)> = layout["sections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|section| (section["offset"].as_u64().unwrap(), section["length"].as_u64().unwrap()))
        .collect();
    assert!(sections.len() > 6);
    for at in 0..good.len() {
        let mask = if at % 2 == 0 { 0xff } else { 1 << (at % 8) };
        let mut bad = good.clone();
        bad[at] ^= mask;
        std::fs::write(&path, &bad).unwrap();
        let ran = run_on("verify --json", &path);
        assert_eq!(ran.code, 1, "byte {at}, mask {mask:#x}: {}", ran.out);
        let at = at as u64;
        let (start, _) = sections.iter().find(|(start, len)| (*start..start + len).contains(&at)).unwrap();
        let faults = faults(&ran.json());
        assert!(faults.contains(&("000001.sst".to_owned(), *start)), "byte {at}, mask {mask:#x}: {faults:?}");
    }
}

#[test]
fn two_planted_faults_are_two_reported_faults() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 100);
    // Blocks 0 and 2, then also the filter, then also the properties: the table does not open any more.
    flip(&path, 40, 1);
    flip(&path, 600, 1);
    assert_eq!(faults(&run_on("verify --json", &path).json()), at(&[32, 572]));
    flip(&path, 1100, 1);
    assert_eq!(faults(&run_on("verify --json", &path).json()), at(&[1097, 32, 572]));
    flip(&path, 1300, 1);
    assert_eq!(faults(&run_on("verify --json", &path).json()), at(&[1097, 32, 572, 1271]));
    // Without an index the blocks can't be found.
    flip(&path, 1240, 1);
    flip(&path, 3, 1);
    assert_eq!(faults(&run_on("verify --json", &path).json()), at(&[0, 1097, 1232, 1271]));
}

fn at(offsets: &[u64]) -> Vec<(String, u64)> {
    offsets.iter().map(|offset| ("000001.sst".to_owned(), *offset)).collect()
}

#[test]
fn faults_of_several_files_are_all_told() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    assert_eq!(run_on("verify", dir.path()).code, 0);
    let tables = with_name(dir.path(), ".sst");
    flip(&tables[0], 40, 1);
    flip(&tables[1], 40, 1);
    std::fs::remove_file(&tables[2]).unwrap();
    std::fs::write(&tables[3], std::fs::read(&tables[4]).unwrap()).unwrap();
    let manifest = with_name(dir.path(), "MANIFEST").pop().unwrap();
    let len = manifest.metadata().unwrap().len();
    flip(&manifest, usize::try_from(len).unwrap() - 1, 1);
    let ran = run_on("verify --json", dir.path());
    assert_eq!(ran.code, 1);
    let json = ran.json();
    let found: Vec<String> = faults(&json).into_iter().map(|(file, _)| file).collect();
    for path in tables[..4].iter().chain([&manifest]) {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(found.iter().any(|file| file == name), "{name}: {json:#}");
    }
    let name = tables[4].file_name().unwrap().to_str().unwrap();
    assert!(!found.iter().any(|file| file == name), "{json:#}");
}

/// The log of a crashed database: a flip in the middle is damage; in the last record it may be what the crash left.
#[test]
fn damage_in_a_log_and_torn_ends_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let log = with_name(dir.path(), ".wal").pop().unwrap();
    let good = without_room(&log);
    std::fs::write(&log, &good).unwrap();
    let check = |words: &str, path: &Path, class: &str, end: &str| {
        let ran = run_on(words, path);
        assert_eq!(ran.code, 1, "{}", ran.out);
        let json = ran.json();
        let faults = json["faults"].as_array().unwrap();
        assert!(faults.iter().any(|fault| fault["class"] == class), "{json:#}");
        if words.starts_with("wal") {
            let items = json["items"].as_array().unwrap();
            assert_eq!(items.last().unwrap()["end"], end, "{json:#}");
        }
    };
    flip(&log, 300, 1);
    check("wal --json", &log, "damage", "damaged");
    check("verify --json", &log, "damage", "");
    check("verify --json", dir.path(), "damage", "");
    std::fs::write(&log, &good[..good.len() - 5]).unwrap();
    check("wal --json", &log, "doubt", "torn");
    check("verify --json", dir.path(), "doubt", "");
    // Zeros are what a reserved and unwritten end looks like.
    let zeros = [&good[..], &[0; 4096]].concat();
    std::fs::write(&log, zeros).unwrap();
    let json = run_on("wal --json", &log).json();
    assert_eq!(json["items"].as_array().unwrap().last().unwrap()["end"], "zeros");
    assert_eq!(run_on("verify", dir.path()).code, 0);
    // Two places.
    std::fs::write(&log, &good).unwrap();
    flip(&log, 300, 1);
    flip(&log, 500, 1);
    let json = run_on("wal --json", &log).json();
    assert_eq!(
        json["faults"].as_array().unwrap().len(),
        4,
        "two bad places, and two gaps behind them: {json:#}"
    );
}

/// Operations are printed on demand, also behind damage.
#[test]
fn operations_of_a_log() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let ran = run_on("wal --ops", dir.path());
    assert_eq!(ran.code, 0);
    assert_eq!(ran.out.matches("put \"k01").count(), 20, "{}", ran.out);
    assert!(ran.out.contains("put \"k01019\" => \"in the log\""), "{}", ran.out);
    let log = with_name(dir.path(), ".wal").pop().unwrap();
    flip(&log, 300, 1);
    let ran = run_on("wal --ops", &log);
    assert_eq!((ran.code, ran.out.matches("put \"k01").count()), (1, 19), "{}", ran.out);
    let json = run_on("wal --ops --json", &log).json();
    let record = &json["items"][2];
    assert_eq!(record["ops"][0]["value"], "in the log", "{record:#}");
}

/// Whatever is left of a file, all commands end with a documented exit code and without a panic; `verify` does not call
/// a cut file good, but for a log that ends behind a record.
#[test]
fn every_length_of_every_kind_of_file() {
    let dir = tempfile::tempdir().unwrap();
    let (source, cut) = (dir.path().join("source"), dir.path().join("cut"));
    crashed(&source);
    std::fs::create_dir(&cut).unwrap();
    table(&source.join("000001.sst"), 20);
    let closed_dir = dir.path().join("closed");
    closed(&closed_dir);
    let mut sources = vec![source.join("000001.sst")];
    sources.extend(with_name(&source, ".wal"));
    sources.extend(with_name(&source, "MANIFEST"));
    sources.push(closed_dir.join("CURRENT"));
    assert_eq!(sources.len(), 4);
    for path in &sources {
        let good = without_room(path);
        let target = cut.join(path.file_name().unwrap());
        let is_log = !path.ends_with("000001.sst") && !path.ends_with("CURRENT");
        let mut sound = 0;
        for len in 0..good.len() {
            std::fs::write(&target, &good[..len]).unwrap();
            let ran = run_on("verify", &target);
            assert!(matches!(ran.code, 0 | 1), "{} cut to {len}: {}", path.display(), ran.code);
            sound += u32::from(ran.code == 0);
            assert!(is_log || ran.code == 1, "{} cut to {len}", path.display());
            if len % 16 == 0 {
                for words in ["info", "layout --blocks", "scan", "scan --reverse", "wal --ops", "manifest"] {
                    run_on(words, &target);
                }
                let sum = run_on("layout --json", &target).json();
                let sum: u64 = sum["sections"]
                    .as_array()
                    .map_or(0, |all| all.iter().map(|section| section["length"].as_u64().unwrap()).sum());
                assert_eq!(sum, len as u64, "{} cut to {len}", path.display());
            }
        }
        assert_eq!(sound > 0, is_log, "{}: {sound}", path.display());
        assert!(sound <= 21, "{}: {sound} of {} lengths pass", path.display(), good.len());
        std::fs::remove_file(&target).unwrap();
    }
}

/// Every byte of the small files of a directory, and some of the large ones, in all commands that take a directory.
#[test]
fn flips_in_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (source, bad) = (dir.path().join("source"), dir.path().join("bad"));
    closed(&source);
    copy(&source, &bad);
    for path in files(&bad).into_iter().filter(|path| !path.ends_with("LOCK")) {
        let good = std::fs::read(&path).unwrap();
        let step = if path.ends_with("CURRENT") { 3 } else { 41 };
        for at in (0..good.len()).step_by(step) {
            flip(&path, at, 0x10);
            let ran = run_on("verify", &bad);
            assert_eq!(ran.code, 1, "{} @ {at}: {}", path.display(), ran.out);
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_named = ran.out.lines().any(|line| line.starts_with("d") && line.contains(name));
            assert!(is_named, "{} @ {at}: {}", path.display(), ran.out);
            run_on("db", &bad);
            run_on("manifest", &bad);
            run_on("wal", &bad);
            std::fs::write(&path, &good).unwrap();
        }
    }
    assert_eq!(run_on("verify", &bad).code, 0);
}

/// Without `CURRENT` and with a damaged manifest the tables are still listed, by what they say about themselves.
#[test]
fn a_database_that_does_not_open_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    let named = |ran: &crate::util::Ran| {
        with_name(dir.path(), ".sst")
            .iter()
            .all(|path| ran.out.contains(path.file_name().unwrap().to_str().unwrap()))
    };
    flip(&dir.path().join("CURRENT"), 20, 1);
    let ran = run_on("db", dir.path());
    assert_eq!(ran.code, 1);
    assert!(named(&ran) && ran.out.contains("the newest") && ran.out.contains("L6: 4 tables"), "{}", ran.out);
    assert_eq!(run_on("manifest", dir.path()).code, 1);
    // An edit in the middle is damaged: the others still make a picture.
    let manifest = with_name(dir.path(), "MANIFEST").pop().unwrap();
    let good = std::fs::read(&manifest).unwrap();
    flip(&manifest, 260, 1);
    let ran = run_on("db", dir.path());
    assert!(named(&ran) && ran.out.contains("uncertain"), "{}", ran.out);
    let ran = run_on("manifest", &manifest);
    assert!(ran.code == 1 && ran.out.contains("edit 5") && ran.out.contains("uncertain"), "{}", ran.out);
    std::fs::write(&manifest, &good).unwrap();
    flip(&manifest, 10, 1);
    let ran = run_on("db", dir.path());
    assert_eq!(ran.code, 1);
    assert!(named(&ran) && ran.out.contains("tables that no manifest names"), "{}", ran.out);
    assert!(
        ran.out.contains("entries (0 deletes), \"k00000\" .. ") && ran.out.contains(", sequences 1 .. "),
        "{}",
        ran.out
    );
    let ran = run_on("verify", dir.path());
    assert!(ran.code == 1 && named(&ran), "{}", ran.out);
}

/// A newer format is told from damage.
#[test]
fn newer_formats_are_unsupported() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 10);
    let mut bytes = std::fs::read(&path).unwrap();
    let footer = bytes.len() - 76;
    bytes[footer + 64] = 4;
    let crc = esker_base::checksum(&[], &[&bytes[footer..footer + 60], &bytes[footer + 64..]].concat());
    bytes[footer + 60..footer + 64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&path, &bytes).unwrap();
    crashed(dir.path());
    let log = with_name(dir.path(), ".wal").pop().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[8] = 2;
    let crc = esker_base::checksum(&[], &bytes[..60]);
    bytes[60..64].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&log, &bytes).unwrap();
    for (words, path) in [
        ("verify", &path),
        ("info", &path),
        ("scan", &path),
        ("layout", &path),
        ("verify", &log),
        ("wal", &log),
    ] {
        let ran = run_on(words, path);
        assert_eq!(ran.code, 4, "{words} {}: {} {}", path.display(), ran.out, ran.err);
        assert!(format!("{}{}", ran.out, ran.err).contains("version"), "{words}: {}", ran.out);
    }
}

/// Of two tables in a directory whose names were swapped, both are found; alone too.
#[test]
fn swapped_files_are_found() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    let tables = with_name(dir.path(), ".sst");
    let spare = dir.path().join("spare");
    for (from, to) in [(&tables[0], &spare), (&tables[1], &tables[0]), (&spare, &tables[1])] {
        std::fs::rename(from, to).unwrap();
    }
    let before = state(dir.path());
    let json = run_on("verify --json", dir.path()).json();
    let found: Vec<String> = faults(&json).into_iter().map(|(file, _)| file).collect();
    assert!(found.iter().any(|file| file == "000004.sst"), "{json:#}");
    assert!(found.iter().any(|file| file == "000006.sst"), "{json:#}");
    let paths: Vec<PathBuf> = tables[..2].to_vec();
    let ran = run([&PathBuf::from("verify"), &paths[0], &paths[1]]);
    assert_eq!((ran.code, ran.out.matches("it is table").count()), (1, 2), "{}", ran.out);
    assert_eq!(state(dir.path()), before);
}
