//! `limits`: limits that the system itself sets to a running database.
//!
//! `fsize`: a child process whose files may not grow beyond a size (`EFBIG`). `nofile`: one that may have a few files open
//! (`EMFILE`), from before the open on or lowered while it runs. `fsize-signal`: one whose files stay below the limit, but for
//! the room that is allocated ahead; to exceed it would kill the child (`SIGXFSZ`). `immutable`: a directory in which, for a while, no file can be made or removed (`EPERM`, for root too).
//! `read-only`: a file system that is mounted so that nothing can be written (`EROFS`); a system refuses to do that under
//! files that are open for writing, so the database is opened on it. `bound`, `permissions`, `removed`: see `denied`.
//!
//! Errors say what the system said and name the file; reads go on; nothing acknowledged is lost; when the limit is lifted
//! the database resumes, and opens again. What takes a right that this process lacks is skipped, and counted as such.

#![allow(clippy::disallowed_methods, reason = "real files, processes, mounts")]

use std::path::Path;
use std::process::{Command, Stdio};

use esker::{Background, Db, DbState, LogSink, Options, WriteOptions};
use esker_base::SplitMix64;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::denied;
use crate::full::Mounted;
use crate::lab::{Case, Harness};
use crate::session::assert_sound;

/// Limits of the system.
pub const LIMITS: Harness = Harness {
    name: "limits",
    unit: "run",
    parts: &[
        "fsize",
        "nofile",
        "nofile",
        "fsize-signal",
        "immutable",
        "read-only",
        "bound",
        "permissions",
        "removed",
    ],
    demands: &["fsize met", "nofile met", "signal avoided", "lowered", "removed met", "resumed", "reopened"],
    part_demands: &[],
    demand_after: 60,
    case,
};

/// The most that a child writes.
pub(crate) const WRITES_MAX: u64 = 600;

pub(crate) fn key(number: u64) -> Vec<u8> {
    format!("k{number:06}").into_bytes()
}

pub(crate) fn value(number: u64) -> Vec<u8> {
    esker_testkit::value_for(2 * number + 1, b"", 300)
}

pub(crate) fn options(rng: &mut SplitMix64) -> Options {
    Options::new()
        .log_sink(sink(rng))
        .memtable_size(64 << 10)
        .wal_segment_size(128 << 10)
        .table_size(32 << 10)
        .base_level_size(128 << 10)
        .cache_size(64 << 10)
        .background(Background::Threads(2))
}

fn sink(rng: &mut SplitMix64) -> LogSink {
    [LogSink::Plain, LogSink::Mapped, LogSink::Auto][rng.below(3) as usize]
}

fn case(case: &mut Case<'_>) {
    case.coverage.hit("run");
    match case.part {
        "immutable" => immutable(case),
        "read-only" => read_only(case),
        "bound" => denied::bound(case),
        "permissions" => denied::permissions(case),
        "removed" => denied::removed(case),
        part => {
            let dir = tempfile::tempdir().expect("a directory");
            // Each file system has its own idea of what counts against a limit.
            let _mounted = case.rng(2).percent(30).then(|| Mounted::new(dir.path())).flatten();
            with_child(case, part, dir.path(), "");
        }
    }
}

/// Every one of the first `count` writes is read right, or the read fails with an error that `allowed` holds for.
pub(crate) fn check(db: &Db, count: u64, allowed: impl Fn(&esker::Error) -> bool) -> u64 {
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
    let db = options(&mut case.rng(3)).open(path).expect("it opens without the limit");
    check(&db, count, |_| false);
    assert_sound(&db);
    db.close().expect("a close without the limit");
    case.coverage.hit("reopened");
}

/// Writes until something is refused, or enough is written, and syncs one in `every`. What the error said, if there was one.
pub(crate) fn write_until_refused(db: &Db, from: u64, to: u64, every: u64) -> (u64, Option<String>) {
    for number in from..to {
        let options = if number.is_multiple_of(every) { WriteOptions::sync() } else { WriteOptions::new() };
        if let Err(error) = db.put_with(key(number), value(number), &options) {
            return (number, Some(format!("{error} / {error:?}")));
        }
    }
    (to, None)
}

/// Runs a child, by the command `prefix` if there is one, and opens what it leaves.
pub(crate) fn with_child(case: &mut Case<'_>, part: &str, dir: &Path, prefix: &str) {
    let path = dir.join("db");
    // A signal that is ignored stays so in the program that the shell becomes. Without that, `EFBIG` would be the end.
    let trap = if part == "fsize-signal" { "" } else { "trap '' XFSZ; " };
    let child = Command::new("sh")
        .args(["-c", &format!("{trap}exec {prefix}\"$0\" \"$@\"")])
        .arg(std::env::current_exe().expect("this program"))
        .args(["limits-child", part])
        .arg(&path)
        .arg(case.seed.to_string())
        .stdin(Stdio::null())
        .output()
        .expect("a child process");
    let (text, errors) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    assert!(child.status.success(), "the child has failed ({}): {text}{errors}", child.status);
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
    match part {
        "fsize-signal" => {
            let written = child_below_the_limit(dir, &mut rng)?;
            println!("written {written}");
            return Ok(());
        }
        "permissions" => {
            let written = denied::child_without_rights(dir, &mut rng)?;
            println!("written {written}");
            return Ok(());
        }
        _ => {}
    }
    let (resource, limit, code) = match part {
        "fsize" => (Resource::Fsize, 6_000 + rng.below(50_000), "os error 27"),
        _ => (Resource::Nofile, 5 + rng.below(10), "os error 24"),
    };
    let before = rng.below(300);
    let old = getrlimit(resource);
    let set =
        |current| setrlimit(resource, Rlimit { current, maximum: old.maximum }).expect("a limit of our own");
    let fresh = rng.percent(30);
    let every = [3, 16, 100, WRITES_MAX][rng.below(4) as usize];
    let options = options(&mut rng);
    let mut written = 0;
    let mut running = None;
    if !fresh {
        let db = options.clone().open(dir)?;
        (written, _) = write_until_refused(&db, 0, before, every);
        if rng.percent(50) {
            println!("hit lowered");
            running = Some(db);
        } else {
            db.close()?;
        }
    }
    set(Some(limit));
    let opened = running.map_or_else(|| options.clone().open(dir), Ok);
    let db = match opened {
        Ok(db) => db,
        Err(error) => {
            let text = format!("{error} / {error:?}");
            assert!(text.contains(code) && text.contains("/db"), "an open under the limit: {text}");
            println!("hit failed open");
            println!("hit {part} met");
            set(old.current);
            options.open(dir)?
        }
    };
    let (end, refused) = write_until_refused(&db, written, WRITES_MAX, every);
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

/// The child of `fsize-signal`: no file gets as long as the limit, so nothing may be refused, and no signal may come; how much
/// was written.
fn child_below_the_limit(dir: &Path, rng: &mut SplitMix64) -> Result<u64, esker::Error> {
    let limit = 20_000 + rng.below(200_000);
    // Of memtables and segments of the usual size, so one segment.
    let options = Options::new().log_sink(sink(rng)).background(Background::Threads(2));
    let early = if rng.percent(50) { Some(options.clone().open(dir)?) } else { None };
    let old = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(limit), maximum: old.maximum }).expect("our own limit");
    let db = match early {
        Some(db) => db,
        None => options.open(dir)?,
    };
    // A record is its value and less than 64 bytes.
    let writes = (limit - 4_096) / 364;
    let every = [3, 50, writes + 1][rng.below(3) as usize];
    let (written, refused) = write_until_refused(&db, 0, writes, every);
    assert!(refused.is_none(), "refused below the limit: {refused:?}");
    check(&db, written, |_| false);
    db.flush()?;
    println!("hit signal avoided");
    db.close()?;
    setrlimit(Resource::Fsize, old).expect("our own limit");
    Ok(written)
}

/// Runs a command quietly; whether it worked.
pub(crate) fn works(program: &str, arguments: &[&str], path: &Path) -> bool {
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
    let db = options(&mut rng).open(&path).expect("a new database opens");
    let (written, _) = write_until_refused(&db, 0, 100 + rng.below(200), 16);
    let marked = Immutable(&path);
    if !works("chattr", &["+i"], &path) {
        case.coverage.hit("immutable skipped");
        return;
    }
    let (end, refused) = write_until_refused(&db, written, WRITES_MAX, 16);
    if let Some(text) = refused {
        assert!(text.contains("os error 1") && text.contains("/db"), "not told what it is: {text}");
        case.coverage.hit("immutable met");
    }
    check(&db, end, |_| false);
    drop(marked);
    goes_on(db, &path, end, &mut rng, case);
}

/// After what was in the way of `db` is gone: it resumes, writes, and opens again with the first `end` writes and one more.
pub(crate) fn goes_on(db: Db, path: &Path, end: u64, rng: &mut SplitMix64, case: &mut Case<'_>) {
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
    check_reopened(path, end + 1, case);
}

fn read_only(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory for a mount");
    let Some(mounted) = Mounted::new(dir.path()) else {
        case.coverage.hit("read-only skipped");
        return;
    };
    let mut rng = case.rng(1);
    let path = mounted.path().join("db");
    let db = options(&mut rng).open(&path).expect("a new database opens");
    let (written, refused) = write_until_refused(&db, 0, 100 + rng.below(400), 16);
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
    let error = options(&mut rng).open(&path).expect_err("an open that has to write");
    let text = error.to_string();
    assert!(text.contains("os error 30") && text.contains("/db"), "not told what it is: {text}");
    case.coverage.hit("read-only met");
    assert!(works("mount", &["-o", "remount,rw"], mounted.path()), "it cannot be mounted as before");
    check_reopened(&path, written, case);
}
