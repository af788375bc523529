//! `limits`: limits that the system itself sets to a running database.
//!
//! `fsize`: a child process whose files may not grow beyond a size (`EFBIG`). `nofile`: one that may have a few files open
//! (`EMFILE`). `immutable`: a directory in which, for a while, no file can be made or removed (`EPERM`, for root too).
//! `read-only`: a file system that is mounted so that nothing can be written (`EROFS`); a system refuses to do that under
//! files that are open for writing, so the database is opened on it.
//!
//! Errors say what the system said and name the file; reads go on; nothing acknowledged is lost; when the limit is lifted
//! the database resumes, and opens again. What takes a right that this process lacks is skipped, and counted as such.

#![allow(clippy::disallowed_methods, reason = "real files, processes, mounts")]

use std::path::Path;
use std::process::{Command, Stdio};

use esker::{Background, Db, DbState, Options, WriteOptions};
use esker_base::SplitMix64;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::full::Mounted;
use crate::lab::{Case, Harness};
use crate::session::assert_sound;

/// Limits of the system.
pub const LIMITS: Harness = Harness {
    name: "limits",
    unit: "run",
    parts: &["fsize", "nofile", "nofile", "immutable", "read-only"],
    demands: &["fsize met", "nofile met", "resumed", "reopened"],
    part_demands: &[],
    demand_after: 60,
    case,
};

/// The most that a child writes.
const WRITES_MAX: u64 = 600;

fn key(number: u64) -> Vec<u8> {
    format!("k{number:06}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    esker_testkit::value_for(2 * number + 1, b"", 300)
}

fn options() -> Options {
    Options::new()
        .memtable_size(64 << 10)
        .wal_segment_size(128 << 10)
        .table_size(32 << 10)
        .base_level_size(128 << 10)
        .cache_size(64 << 10)
        .background(Background::Threads(2))
}

fn case(case: &mut Case<'_>) {
    case.coverage.hit("run");
    match case.part {
        "immutable" => immutable(case),
        "read-only" => read_only(case),
        part => with_child(case, part),
    }
}

/// Every one of the first `count` writes is read right, or the read fails with an error that `allowed` holds for.
fn check(db: &Db, count: u64, allowed: impl Fn(&esker::Error) -> bool) -> u64 {
    let mut failed = 0;
    for number in 0..count {
        match db.get(key(number)) {
            Ok(found) => assert!(found.as_deref() == Some(&value(number)[..]), "write {number} of {count}"),
            Err(error) if allowed(&error) => failed += 1,
            Err(error) => panic!("a read of {number}: {error}"),
        }
    }
    failed
}

fn check_reopened(path: &Path, count: u64, case: &mut Case<'_>) {
    let db = options().open(path).expect("it opens without the limit");
    check(&db, count, |_| false);
    assert_sound(&db);
    db.close().expect("a close without the limit");
    case.coverage.hit("reopened");
}

/// Writes until something is refused, or enough is written. What the error said, if there was one.
fn write_until_refused(db: &Db, from: u64, to: u64) -> (u64, Option<String>) {
    for number in from..to {
        let options = if number.is_multiple_of(16) { WriteOptions::sync() } else { WriteOptions::new() };
        if let Err(error) = db.put_with(key(number), value(number), &options) {
            return (number, Some(format!("{error} / {error:?}")));
        }
    }
    (to, None)
}

fn with_child(case: &mut Case<'_>, part: &str) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    // A signal that is ignored stays so in the program that the shell becomes. Without that, `EFBIG` would be the end.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("this program"))
        .args(["limits-child", part])
        .arg(&path)
        .arg(case.seed.to_string())
        .stdin(Stdio::null())
        .output()
        .expect("a child process");
    let (text, errors) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "the child has failed: {text}{errors}");
    let mut written = None;
    for line in text.lines() {
        match line.split_once(' ') {
            Some(("written", number)) => written = number.parse().ok(),
            Some(("hit", what)) => case.coverage.hit(what),
            _ => panic!("the child says {line:?}"),
        }
    }
    check_reopened(&path, written.expect("how much was written"), case);
}

/// The child: sets itself a limit, writes and reads under it, lifts it, and goes on.
///
/// # Errors
///
/// What the database says where it must not fail.
pub fn child(part: &str, dir: &Path, seed: u64) -> Result<(), esker::Error> {
    let mut rng = SplitMix64::new(seed);
    let (resource, limit, code) = match part {
        "fsize" => (Resource::Fsize, 6_000 + rng.below(50_000), "os error 27"),
        _ => (Resource::Nofile, 5 + rng.below(10), "os error 24"),
    };
    let before = rng.below(300);
    let old = getrlimit(resource);
    let set =
        |current| setrlimit(resource, Rlimit { current, maximum: old.maximum }).expect("a limit of our own");
    let fresh = rng.percent(30);
    let mut written = 0;
    if !fresh {
        let db = options().open(dir)?;
        (written, _) = write_until_refused(&db, 0, before);
        db.close()?;
    }
    set(Some(limit));
    let db = match options().open(dir) {
        Ok(db) => db,
        Err(error) => {
            let text = format!("{error} / {error:?}");
            assert!(text.contains(code) && text.contains("/db"), "an open under the limit: {text}");
            println!("hit failed open");
            println!("hit {part} met");
            set(old.current);
            options().open(dir)?
        }
    };
    let (end, refused) = write_until_refused(&db, written, WRITES_MAX);
    written = end;
    if let Some(text) = &refused {
        assert!(text.contains(code) && text.contains("/db"), "not told what it is: {text}");
        println!("hit refused write");
        println!("hit {part} met");
    }
    let failed = check(&db, written, |error| error.to_string().contains(code));
    if failed > 0 {
        assert!(part == "nofile", "{failed} reads failed");
        println!("hit failed read");
        println!("hit {part} met");
    }
    assert!(!matches!(db.state(), DbState::Fatal { .. }), "{:?}", db.state());
    set(old.current);
    db.resume()?;
    assert!(matches!(db.state(), DbState::Open), "after resume: {:?}", db.state());
    println!("hit resumed");
    // The refused write is not there; the next one takes its place.
    assert!(db.get(key(written))?.is_none(), "a refused write is there");
    db.put_with(key(written), value(written), &WriteOptions::sync())?;
    written += 1;
    check(&db, written, |_| false);
    db.flush()?;
    if rng.percent(50) {
        db.close()?;
    }
    println!("written {written}");
    Ok(())
}

/// Runs a command quietly; whether it worked.
fn works(program: &str, arguments: &[&str], path: &Path) -> bool {
    let status = Command::new(program).args(arguments).arg(path).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A directory without the mark that forbids changes, at last.
struct Immutable<'a>(&'a Path);

impl Drop for Immutable<'_> {
    fn drop(&mut self) {
        works("chattr", &["-i"], self.0);
    }
}

fn immutable(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut rng = case.rng(1);
    let db = options().open(&path).expect("a new database opens");
    let (written, _) = write_until_refused(&db, 0, 100 + rng.below(200));
    let marked = Immutable(&path);
    if !works("chattr", &["+i"], &path) {
        case.coverage.hit("immutable skipped");
        return;
    }
    let (end, refused) = write_until_refused(&db, written, WRITES_MAX);
    if let Some(text) = refused {
        assert!(text.contains("os error 1") && text.contains("/db"), "not told what it is: {text}");
        case.coverage.hit("immutable met");
    }
    check(&db, end, |_| false);
    drop(marked);
    db.resume().expect("the directory can be changed again");
    assert!(matches!(db.state(), DbState::Open), "after resume: {:?}", db.state());
    case.coverage.hit("resumed");
    db.put_with(key(end), value(end), &WriteOptions::sync()).expect("a write after the resume");
    db.compact_range::<&[u8], _>(..).expect("a compaction after the resume");
    if rng.percent(50) {
        db.close().expect("a close after the resume");
    } else {
        drop(db);
    }
    check_reopened(&path, end + 1, case);
}

fn read_only(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory for a mount");
    let Some(mounted) = Mounted::new(dir.path()) else {
        case.coverage.hit("read-only skipped");
        return;
    };
    let mut rng = case.rng(1);
    let path = mounted.path().join("db");
    let db = options().open(&path).expect("a new database opens");
    let (written, refused) = write_until_refused(&db, 0, 100 + rng.below(400));
    assert!(refused.is_none(), "{refused:?}");
    if rng.percent(50) {
        db.close().expect("a close");
    } else {
        drop(db);
    }
    if !works("mount", &["-o", "remount,ro"], mounted.path()) {
        case.coverage.hit("read-only skipped");
        return;
    }
    let error = options().open(&path).expect_err("an open that has to write");
    let text = error.to_string();
    assert!(text.contains("os error 30") && text.contains("/db"), "not told what it is: {text}");
    case.coverage.hit("read-only met");
    assert!(works("mount", &["-o", "remount,rw"], mounted.path()), "it cannot be mounted as before");
    check_reopened(&path, written, case);
}
