//! How records get into the log on a real disk: by a mapping or by calls, with the same bytes, and no room left at the end.

#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "real files, and what the system says of this process")]

use crate::support::*;
use esker::{Db, LogSink, Options, WriteOptions};
use std::path::{Path, PathBuf};

fn log(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|extension| extension == "wal")).max().unwrap()
}

/// The pieces of the directory's logs that this process has mapped, as lengths in bytes.
fn mapped(dir: &Path) -> Vec<u64> {
    let dir = dir.canonicalize().unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| line.contains(dir.to_str().unwrap()) && line.contains(".wal"));
    let number = |hex: &str| u64::from_str_radix(hex, 16).unwrap();
    let range =
        |line: &str| line.split(' ').next().unwrap().split_once('-').map(|(a, b)| (number(a), number(b)));
    ours.filter_map(range).map(|(start, end)| end - start).collect()
}

fn fill(db: &Db, numbers: std::ops::Range<u64>, options: &WriteOptions) {
    numbers.for_each(|number| db.put_with(key(number), [b'x'; 200], options).unwrap());
}

/// Of unsynced writes one window is mapped, of synced ones none, nor with `Plain`. The bytes are the same, and after a drop
/// or a close the file ends with its last record.
#[test]
fn both_ways_write_the_same_log() {
    let mut logs = Vec::new();
    for sink in [LogSink::Plain, LogSink::Mapped, LogSink::Auto] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().log_sink(sink).seed(7).background(esker::Background::Inline);
        let db = options.clone().open(dir.path()).unwrap();
        fill(&db, 0..300, &WriteOptions::sync());
        assert_eq!(mapped(dir.path()), [], "{sink:?}: synced writes are not mapped");
        fill(&db, 300..2_500, &WriteOptions::new());
        let windows = mapped(dir.path());
        let expected = usize::from(sink != LogSink::Plain && may_map(dir.path()));
        assert_eq!(windows.len(), expected, "{sink:?}: {windows:?}");
        // It starts and ends with a page.
        assert!(windows.iter().all(|&len| len <= (256 << 10) + (8 << 10)), "{sink:?}: {windows:?}");
        drop(db);
        assert_eq!(mapped(dir.path()), []);
        let bytes = std::fs::read(log(dir.path())).unwrap();
        assert_eq!(bytes.last(), Some(&b'x'), "{sink:?}: the end of the last record");
        logs.push(bytes);
        let db = options.open(dir.path()).unwrap();
        assert_eq!((db.recovery_report().replayed_batches, db.recovery_report().dropped_bytes), (2_500, 0));
        fill(&db, 0..10, &WriteOptions::sync());
        db.close().unwrap();
        assert_eq!(std::fs::metadata(log(dir.path())).unwrap().len(), 64, "the header of an empty log");
    }
    assert!(logs.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Whether the directory is on a file system that is mapped.
fn may_map(dir: &Path) -> bool {
    let out = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(dir).output().unwrap();
    ["ext2/ext3", "xfs", "tmpfs"].contains(&String::from_utf8_lossy(&out.stdout).trim())
}
