//! Directories: sound, crashed, empty, missing, and with things in them that are none of esker's.

use crate::util::{
    closed, copy, crashed, files, key, log, manifest, metadata, options, run, run_on, state, table, with_name,
};
use esker_base::{FileNumber, InternalKey, ValueKind};
use esker_manifest::{Current, TableMetadata, VersionEdit};
use esker_wal::SegmentEnd;
use std::path::Path;
use std::sync::Arc;

const COMMANDS: [&str; 11] = [
    "info",
    "info --json",
    "layout",
    "layout --json",
    "scan",
    "verify",
    "verify --json",
    "manifest",
    "wal --ops",
    "db",
    "db --json",
];

#[test]
fn nothing_in_a_directory_changes() {
    let dir = tempfile::tempdir().unwrap();
    for (name, make) in [("closed", closed as fn(&Path)), ("crashed", crashed)] {
        let path = dir.path().join(name);
        make(&path);
        let before = state(&path);
        for words in COMMANDS {
            run_on(words, &path);
            files(&path).iter().for_each(|file| drop(run_on(words, file)));
        }
        assert_eq!(state(&path), before);
        assert_eq!(run_on("verify", &path).code, 0);
        assert_eq!(run_on("db", &path).code, 0);
        options().open(&path).unwrap().close().unwrap();
    }
}

/// The lock is not taken: the tool works beside an open database.
#[test]
fn an_open_database_can_be_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let db = options().open(dir.path()).unwrap();
    for n in 0..300 {
        db.put(key(n), "value").unwrap();
    }
    db.sync().unwrap();
    for words in ["verify", "db", "manifest", "wal"] {
        let ran = run_on(words, dir.path());
        assert_eq!(ran.code, 0, "{words}: {}{}", ran.out, ran.err);
    }
    db.put("after", "all").unwrap();
    db.close().unwrap();
}

#[test]
fn empty_and_missing_directories() {
    let dir = tempfile::tempdir().unwrap();
    for words in ["db", "verify", "db --json", "verify --json"] {
        let ran = run_on(words, dir.path());
        assert_eq!(ran.code, 4, "{words}");
        assert!(format!("{}{}", ran.out, ran.err).contains("there is no database"), "{}", ran.err);
    }
    assert_eq!(run_on("manifest", dir.path()).code, 3);
    assert_eq!(run_on("wal", dir.path()).code, 0);
    let missing = dir.path().join("missing");
    for words in COMMANDS {
        let ran = run_on(words, &missing);
        assert_eq!(ran.code, 3, "{words}: {}{}", ran.out, ran.err);
    }
    assert!(!missing.exists());
    // A directory is no file.
    for words in ["info", "layout", "scan"] {
        let ran = run_on(words, dir.path());
        assert_eq!(ran.code, 2, "{words}");
        assert!(format!("{}{}", ran.out, ran.err).contains("it is a directory"), "{words}");
    }
}

/// Foreign files are listed and not opened; a pipe would hang whoever opens it, a link leads out.
#[test]
#[cfg(unix)]
fn pipes_links_and_foreign_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, outside) = (dir.path().join("db"), dir.path().join("outside"));
    closed(&path);
    std::fs::write(&outside, "secret words").unwrap();
    std::fs::write(path.join("notes\x1b[2J.txt"), "words").unwrap();
    std::fs::create_dir(path.join("sub")).unwrap();
    let mkfifo = |name: &str| {
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, path.join(name), mode).unwrap();
    };
    mkfifo("pipe");
    std::os::unix::fs::symlink(&outside, path.join("link")).unwrap();
    let ran = run_on("verify", &path);
    assert_eq!(ran.code, 0, "{}", ran.out);
    let ran = run_on("db", &path);
    assert_eq!(ran.code, 0, "{}", ran.out);
    for wanted in ["notes\\u{1b}[2J.txt (file, 5 bytes)", "sub (directory", "pipe (other", "link (other"] {
        assert!(ran.out.contains(wanted), "{wanted}: {}", ran.out);
    }
    // Under names of ours they are a doubt, and are not opened either.
    mkfifo("000900.sst");
    std::os::unix::fs::symlink(&outside, path.join("000901.wal")).unwrap();
    let before = state(&path);
    for words in ["verify", "db"] {
        let ran = run_on(words, &path);
        assert_eq!(ran.code, 1, "{}", ran.out);
        for name in ["000900.sst", "000901.wal"] {
            let line = format!("{name} @ 0: it has a name of ours");
            assert!(ran.out.contains(&line), "{}", ran.out);
        }
        assert!(!ran.out.contains("secret"));
    }
    for words in ["manifest", "wal --ops"] {
        assert_eq!(run_on(words, &path).code, 0, "{words}");
    }
    for name in ["pipe", "link", "000900.sst", "000901.wal"] {
        for words in COMMANDS {
            let ran = run_on(words, &path.join(name));
            assert!(matches!(ran.code, 2 | 3), "{words} {name}: {}", ran.code);
            assert!(!format!("{}{}", ran.out, ran.err).contains("secret"), "{words} {name}");
        }
    }
    assert_eq!(state(&path), before);
    // The table that counts is a link.
    let table = with_name(&path, ".sst").into_iter().next().unwrap();
    let moved = dir.path().join("moved.sst");
    std::fs::rename(&table, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &table).unwrap();
    let ran = run_on("verify", &path);
    assert!(ran.code == 1 && ran.out.contains("it is missing"), "{}", ran.out);
    // What the user names himself may be a link to a directory.
    let alias = dir.path().join("alias");
    std::os::unix::fs::symlink(&path, &alias).unwrap();
    assert!(run_on("db", &alias).out.contains("CURRENT: manifest"));
}

#[test]
fn kinds_are_told_by_their_first_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    crashed(&path);
    for (number, file) in files(&path).iter().enumerate() {
        let copy = dir.path().join(format!("copy {number}"));
        std::fs::copy(file, &copy).unwrap();
        let kind = |path: &Path| run_on("info --json", path).json()["files"][0]["kind"].clone();
        let name = file.file_name().unwrap();
        let expected = if name == "LOCK" { "foreign".into() } else { kind(file) };
        assert_eq!(kind(&copy), expected, "{}", file.display());
        let code = run_on("verify", &copy).code;
        assert_eq!(code, if name == "LOCK" { 4 } else { 0 }, "{}", file.display());
    }
}

/// Files that the database does not need are named, and are no fault, whatever is in them.
#[test]
fn orphans_are_no_faults() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    for name in ["000500.sst", "000001.wal", "MANIFEST-000099", "CURRENT.tmp", "000003.wal.lost"] {
        std::fs::write(dir.path().join(name), "unfinished").unwrap();
    }
    let ran = run_on("verify", dir.path());
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert_eq!(ran.out.matches("not checked").count(), 4, "{}", ran.out);
    let ran = run_on("db", dir.path());
    assert_eq!(ran.code, 0, "{}", ran.out);
    for wanted in [
        "orphans\n  000500.sst 10 bytes, can't be read",
        "000001.wal 10 bytes, 0 records, ends torn, not needed any more",
        "left over: MANIFEST-000099 CURRENT.tmp 000003.wal.lost",
    ] {
        assert!(ran.out.contains(wanted), "{wanted}: {}", ran.out);
    }
}

/// What a table says about itself is held against what the manifest says about it.
#[test]
fn tables_and_manifest_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 60);
    let info = run_on("layout --json", &path).json();
    let size = info["size"].as_u64().unwrap();
    let filter = info["sections"].as_array().unwrap().iter().find(|section| section["name"] == "filter");
    let tail_size = size - filter.unwrap()["offset"].as_u64().unwrap();
    let right = TableMetadata {
        number: FileNumber(1),
        file_size: size,
        tail_size,
        smallest: InternalKey::new(key(0), 1, ValueKind::Put),
        largest: InternalKey::new(key(59), 60, ValueKind::Delete),
        smallest_seq: 1,
        largest_seq: 60,
        entries: 60,
        deletes: 12,
    };
    let current = Current { manifest: FileNumber(1), closed: None };
    std::fs::write(dir.path().join("CURRENT"), current.encode()).unwrap();
    type Change = fn(&mut TableMetadata);
    let changes: [(Change, &str); 8] = [
        (|_| {}, ""),
        (|table| table.entries = 61, "entries: 60, the manifest says 61"),
        (|table| table.deletes = 11, "deletes: 12, the manifest says 11"),
        (|table| table.smallest_seq = 0, "smallest sequence: 1, the manifest says 0"),
        (|table| table.largest_seq = 61, "largest sequence: 60, the manifest says 61"),
        (|table| table.smallest.user_key.push(b'0'), "smallest key: \\\"k00000\\\"#1,put, the manifest says"),
        (|table| table.largest.seq = 59, "largest key: \\\"k00059\\\"#60,delete, the manifest says"),
        (|table| table.tail_size -= 1, "a tail of"),
    ];
    for (change, wanted) in changes {
        let mut table = right.clone();
        change(&mut table);
        let mut edit = VersionEdit::new();
        edit.add_table(0, 3, Arc::new(table));
        let manifest = manifest(dir.path(), &[edit]);
        let ran = run_on("verify --json", dir.path());
        assert_eq!(ran.code, i32::from(!wanted.is_empty()), "{}", ran.out);
        assert!(ran.out.contains(wanted), "{wanted}: {}", ran.out);
        std::fs::remove_file(manifest).unwrap();
    }
}

/// All breaches of the levels' order are told, and the tables are shown all the same.
#[test]
fn overlapping_levels() {
    let dir = tempfile::tempdir().unwrap();
    let mut edit = VersionEdit::new();
    edit.add_table(0, 1, metadata(10, 0, 10, (1, 2)));
    edit.add_table(0, 1, metadata(11, 10, 20, (3, 4)));
    edit.add_table(0, 1, metadata(12, 30, 40, (5, 6)));
    edit.add_table(0, 1, metadata(13, 35, 50, (7, 8)));
    edit.add_table(0, 0, metadata(14, 0, 50, (20, 30)));
    edit.add_table(0, 2, metadata(9, 0, 50, (1, 1)));
    edit.add_table(0, 0, metadata(15, 40, 90, (25, 28)));
    let path = manifest(dir.path(), &[edit]);
    let ran = run_on("verify", &path);
    assert_eq!(ran.code, 1);
    for (a, b) in [(11, 10), (13, 12), (15, 14)] {
        let has_pair = ran.out.lines().any(|line| {
            line.contains(&format!("0000{a}.sst @ 0")) && line.contains(&format!("overlaps table 0000{b}"))
        });
        assert!(has_pair, "{a} over {b}: {}", ran.out);
    }
    assert!(!ran.out.contains("000012.sst @"), "{}", ran.out);
    let ran = run_on("manifest", &path);
    assert!(ran.code == 1 && ran.out.contains("L1: 4 tables, 4000 bytes"), "{}", ran.out);
    assert!(ran.out.contains("L2: 1 table, 1000 bytes"), "{}", ran.out);
    let mut far = VersionEdit::new();
    far.add_table(7, 255, metadata(20, 0, 1, (1, 2)));
    far.delete_table(9, 3, FileNumber(77));
    std::fs::remove_file(&path).unwrap();
    let path = manifest(dir.path(), &[far]);
    for words in ["manifest", "manifest --json", "verify", "info", "layout --blocks"] {
        run_on(words, &path);
    }
    assert_eq!(run_on("verify", &path).code, 1);
}

/// What lies behind the end that the next segment states was left out by a recovery: no fault. Before it, it is one.
#[test]
fn the_next_segment_says_where_one_ends() {
    let dir = tempfile::tempdir().unwrap();
    let first = log(dir.path(), 1, SegmentEnd::none(0));
    log(dir.path(), 2, first);
    let path = dir.path().join("000001.wal");
    let good = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&good[..], b"garbage that is no record"].concat()).unwrap();
    let ran = run_on("wal", dir.path());
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("bytes behind the end of the segment"), "{}", ran.out);
    std::fs::write(&path, &good[..good.len() - 1]).unwrap();
    let ran = run_on("wal", &path);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(ran.out.contains("the next segment says that this one goes on"), "{}", ran.out);
    std::fs::remove_file(dir.path().join("000002.wal")).unwrap();
    assert!(run_on("wal", &path).out.contains("end, torn: 2 records"), "{}", run_on("wal", &path).out);
}

/// A missing segment in the middle, a table with another size, a manifest longer than a clean close left it.
#[test]
fn files_that_do_not_fit_together() {
    let dir = tempfile::tempdir().unwrap();
    let (source, bad) = (dir.path().join("source"), dir.path().join("bad"));
    closed(&source);
    let check = |damage: &dyn Fn(&Path), wanted: &str| {
        let _ = std::fs::remove_dir_all(&bad);
        copy(&source, &bad);
        damage(&bad);
        let ran = run_on("verify", &bad);
        assert!(ran.code == 1 && ran.out.contains(wanted), "{wanted}: {}", ran.out);
    };
    let append = |name: &'static str| {
        move |dir: &Path| {
            let path = with_name(dir, name).into_iter().next().unwrap();
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, [&bytes[..], b"x"].concat()).unwrap();
        }
    };
    let len = |name: &str| std::fs::metadata(&with_name(&source, name)[0]).unwrap().len();
    let table = len("000004.sst");
    check(&append("000004.sst"), &format!("{} bytes long, expected {table}", table + 1));
    check(&append("MANIFEST"), &format!("CURRENT says {}", len("MANIFEST")));
    check(&append("CURRENT"), "checksum");
    check(&|dir| std::fs::remove_file(dir.join("CURRENT")).unwrap(), "CURRENT @ 0: it is missing");
    check(&|dir| std::fs::remove_file(dir.join("MANIFEST-000002")).unwrap(), "CURRENT names it");
    let log = with_name(&source, ".wal").remove(0).file_name().unwrap().to_str().unwrap().to_owned();
    let needed = format!("{log} @ 0: the manifest needs this log segment");
    check(&|dir| std::fs::remove_file(dir.join(&log)).unwrap(), &needed);
    check(&|dir| std::fs::remove_file(dir.join("000008.sst")).unwrap(), "000008.sst @ 0: the manifest names");
    assert_eq!(run([&"verify".into(), &source]).code, 0);
}
