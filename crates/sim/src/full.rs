//! `full`: a disk that runs full, of every size from a few kilobytes on.
//!
//! `quota`: a memory disk. What fails says that there is no space; reads go on; when there is room again the database
//! resumes, asked or by itself, and nothing that was acknowledged is lost. `tmpfs`: the same on a real file system of
//! 8 MiB, which takes the right to mount one; without it that part counts as skipped.

#![allow(clippy::disallowed_methods, reason = "real files, a mount")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use esker::vfs::{CrashMode, MemVfs};
use esker::{Background, Db, DbState, Options, WriteOptions};

use crate::disk::Disk;
use crate::lab::{Case, Harness};
use crate::scheduler::{Pace, SimScheduler};
use crate::session::{assert_sound, content};

/// Full disks.
pub const FULL: Harness = Harness {
    name: "full",
    unit: "run",
    parts: &["quota", "quota", "quota", "tmpfs"],
    demands: &[
        "full at open",
        "full in a write",
        "full in the background",
        "refused before it is full",
        "resumed",
        "resumed by itself",
        "reopened",
    ],
    part_demands: &[],
    demand_after: 200,
    case,
};

fn case(case: &mut Case<'_>) {
    case.coverage.hit("run");
    if case.part == "tmpfs" { tmpfs(case) } else { quota(case) }
}

fn key(number: u64) -> Vec<u8> {
    format!("k{number:06}").into_bytes()
}

fn value(number: u64) -> Vec<u8> {
    esker_testkit::value_for(number, b"", 40 + (number % 200) as usize)
}

/// Checks that the first `count` writes are there, and that there are no more than `most`.
fn check(db: &Db, count: u64, most: u64) {
    let found = content(db).expect("a scan");
    for number in 0..count {
        let found = found.get(&key(number)).unwrap_or_else(|| panic!("write {number} of {count} is lost"));
        assert!(*found == value(number), "write {number} is not what was written");
    }
    assert!(found.len() as u64 <= most, "{} keys of at most {most}", found.len());
    assert_sound(db);
}

fn quota(case: &mut Case<'_>) {
    let mut rng = case.rng(1);
    let setup = case.setup();
    let most = if rng.percent(25) { 1_000 } else { 80_000 };
    let quota = 100 + rng.below(most);
    let mem = MemVfs::with_quota(quota);
    let disk = Disk::on(mem.clone(), case.settings.order, case.settings.lie);
    let scheduler = Arc::new(SimScheduler::new(rng.next_u64(), Pace::from_rng(&mut rng)));
    let mut written = 0;
    let durability = if rng.percent(50) {
        WriteOptions::sync()
    } else {
        WriteOptions::new().with_durability(esker::Durability::Buffered)
    };
    match disk.open(&setup.options, Arc::clone(&scheduler) as _, None) {
        Err(error) => {
            assert!(error.is_no_space(), "an open on a full disk: {error:?}");
            case.coverage.hit("full at open");
            mem.set_quota(u64::MAX);
        }
        Ok(db) => {
            let mut unknown = false;
            // Somebody else takes the rest of the disk, so that it does get full.
            let squeezed_at = rng.percent(60).then(|| rng.below(300));
            while written < 3000 {
                if squeezed_at == Some(written) {
                    mem.set_quota(quota.min(mem.total_bytes() + rng.below(4000)));
                }
                match db.put_with(key(written), value(written), &durability) {
                    Ok(()) => written += 1,
                    Err(error) => {
                        let text = format!("{error:?}");
                        assert!(text.contains("NoSpace"), "not told that the disk is full: {text}");
                        unknown = true;
                        case.coverage.hit("full in a write");
                        break;
                    }
                }
                scheduler.pump();
            }
            match db.state() {
                DbState::Degraded { .. } => case.coverage.hit("full in the background"),
                DbState::LowSpace { .. } => case.coverage.hit("refused before it is full"),
                _ => {}
            }
            for number in 0..written {
                let found = db.get(key(number)).expect("reads go on");
                assert!(found.as_deref() == Some(&value(number)[..]), "{number} is not read right");
            }
            mem.set_quota(u64::MAX);
            resume(&db, &disk, &scheduler, rng.percent(50), case);
            check(&db, written, written);
            let next = written + u64::from(unknown);
            db.put_with(key(next), value(next), &WriteOptions::sync()).expect("a write after the resume");
            check_gap(&db, written, next);
            db.flush().expect("a flush after the resume");
        }
    }
    disk.events.count(&mut case.coverage, (false, false), true);
    let next = disk.crashed(CrashMode::from_seed(case.seed));
    let db = next.open_inline(&setup.options).expect("it opens when there is room again");
    check(&db, written, written + 1);
    case.coverage.hit("reopened");
}

/// The write of unknown outcome was settled by the resume: it is not there.
fn check_gap(db: &Db, written: u64, next: u64) {
    if written != next {
        assert!(db.get(key(written)).expect("get").is_none(), "a refused write is there after the resume");
    }
}

fn resume(db: &Db, disk: &Disk, scheduler: &SimScheduler, by_itself: bool, case: &mut Case<'_>) {
    if matches!(db.state(), DbState::Open) {
        return;
    }
    if by_itself {
        for _ in 0..40 {
            disk.clock.advance(Duration::from_secs(30));
            for _ in 0..50 {
                scheduler.step_once();
            }
            if matches!(db.state(), DbState::Open) {
                case.coverage.hit("resumed by itself");
                return;
            }
        }
        panic!("the database does not resume by itself: {:?}", db.state());
    }
    disk.clock.advance(Duration::from_secs(400));
    db.resume().expect("there is room again");
    assert!(matches!(db.state(), DbState::Open), "after resume: {:?}", db.state());
    case.coverage.hit("resumed");
}

/// A mounted file system, until it is dropped.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// Mounts a tmpfs of 8 MiB at `dir`, if this process may.
    pub(crate) fn new(dir: &Path) -> Option<Self> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "esker-sim"])
            .arg(dir)
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Mounted(dir.to_path_buf()))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).stderr(std::process::Stdio::null()).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            // After a failure a database may still be open on it.
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
}

fn tmpfs(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory for a mount");
    let Some(mounted) = Mounted::new(dir.path()) else {
        case.coverage.hit("tmpfs skipped");
        return;
    };
    let ballast = mounted.0.join("ballast");
    std::fs::write(&ballast, vec![7; 3 << 20]).expect("room for the ballast");
    let options = Options::new()
        .memtable_size(256 << 10)
        .table_size(128 << 10)
        .base_level_size(512 << 10)
        .wal_segment_size(256 << 10)
        .background(Background::Threads(2));
    let path = mounted.0.join("db");
    let db = options.clone().open(&path).expect("a new database opens");
    let value = |number: u64| esker_testkit::value_for(number * 2 + 1, b"", 2000);
    let mut written = 0;
    loop {
        match db.put_with(key(written), value(written), &WriteOptions::sync()) {
            Ok(()) => written += 1,
            Err(error) => {
                let text = format!("{error:?}");
                assert!(text.contains("NoSpace"), "not told that the disk is full: {text}");
                break;
            }
        }
        assert!(written < 20_000, "8 MiB never run full");
    }
    case.coverage.hit("tmpfs full");
    let check = |db: &Db| {
        for number in 0..written {
            let found = db.get(key(number)).expect("reads go on");
            assert!(found.as_deref() == Some(&value(number)[..]), "{number} of {written} is not read right");
        }
    };
    check(&db);
    match db.state() {
        // A compaction may have filled the disk between two looks at it: that latches, as a full disk always did.
        DbState::ReadOnly { cause } => {
            assert!(cause.is_no_space(), "{cause}");
            case.coverage.hit("tmpfs full all the same");
        }
        // A flush in the background may have made room since.
        DbState::LowSpace { .. } | DbState::Open => {
            db.delete("nothing").expect("a delete while space is low");
            db.flush().expect("a flush while space is low");
        }
        state => panic!("{state:?}"),
    }
    std::fs::remove_file(&ballast).expect("the ballast goes");
    let resumed = (0..100).any(|_| {
        let resumed = db.resume().is_ok() && matches!(db.state(), DbState::Open);
        if !resumed {
            std::thread::sleep(Duration::from_millis(20));
        }
        resumed
    });
    assert!(resumed, "there is room again, and the state is {:?}", db.state());
    db.put_with("more", "1", &WriteOptions::sync()).expect("a write after the resume");
    check(&db);
    drop(db);
    let db = options.open(&path).expect("it opens again");
    check(&db);
    assert!(db.get("more").expect("get").is_some(), "the write after the resume is lost");
    assert_sound(&db);
    case.coverage.hit("tmpfs reopened");
}
