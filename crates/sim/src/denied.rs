//! Parts of `limits`: a directory that its database may not use any more. It is mounted over read-only, its permissions are
//! taken away, or it is removed, before an open and under a running database.

#![allow(clippy::disallowed_methods, reason = "real files, processes, mounts")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use esker::{DbState, WriteOptions};
use esker_base::SplitMix64;

use crate::lab::Case;
use crate::limits::{
    WRITES_MAX, check, goes_on, key, options, value, with_child, works, write_until_refused,
};

/// A user who has no rights.
const NOBODY: u32 = 65534;
const AS_NOBODY: [&str; 3] = ["--reuid=65534", "--regid=65534", "--clear-groups"];

/// A directory that shows itself, read-only, through a mount.
struct Bound<'a>(&'a Path);

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        // Tables that were opened through it stay open.
        works("umount", &["-l"], self.0);
    }
}

/// Nothing can be created or removed, as on a file system that has turned read-only; files that are open go on.
pub(crate) fn bound(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut rng = case.rng(1);
    let db = options(&mut rng).open(&path).expect("a new database opens");
    let every = 1 + rng.below(40);
    let (written, _) = write_until_refused(&db, 0, 100 + rng.below(200), every);
    if !works("mount", &["--bind", path.to_str().expect("a path of text")], &path) {
        case.coverage.hit("bound skipped");
        return;
    }
    let bound = Bound(&path);
    if !works("mount", &["-o", "remount,bind,ro"], &path) {
        case.coverage.hit("bound skipped");
        return;
    }
    let (end, refused) = write_until_refused(&db, written, WRITES_MAX, every);
    if let Some(text) = refused {
        assert!(text.contains("os error 30") && text.contains("/db"), "not told what it is: {text}");
        case.coverage.hit("bound met");
    }
    check(&db, end, |_| false);
    drop(bound);
    goes_on(db, &path, end, &mut rng, case);
}

/// Without a right to write, or without any, for a user whom that binds.
pub(crate) fn permissions(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut prefix = String::new();
    if rustix::process::geteuid().is_root() {
        chown(dir.path(), Some(NOBODY), Some(NOBODY)).expect("a directory of ours");
        prefix = format!("setpriv {} ", AS_NOBODY.join(" "));
        let exe = std::env::current_exe().expect("this program");
        let can =
            |test: &str, path: &Path| works("setpriv", &[&AS_NOBODY[..], &["test", test]].concat(), path);
        if !(can("-x", &exe) && can("-w", dir.path())) {
            case.coverage.hit("permissions skipped");
            return;
        }
    }
    with_child(case, "permissions", dir.path(), &prefix);
}

/// The child of `permissions`; how much was written.
pub(crate) fn child_without_rights(dir: &Path, rng: &mut SplitMix64) -> Result<u64, esker::Error> {
    let set = |mode| fs::set_permissions(dir, Permissions::from_mode(mode)).expect("a directory of ours");
    let db = options(rng).open(dir)?;
    let every = 1 + rng.below(40);
    let (written, _) = write_until_refused(&db, 0, 100 + rng.below(200), every);
    let mode = if rng.percent(50) { 0o500 } else { 0 };
    let told = |text: &str| {
        assert!(text.contains("os error 13") && text.contains("/db"), "not told what it is: {text}");
        println!("hit permissions met");
    };
    if rng.percent(40) {
        db.close()?;
        set(mode);
        let opened = options(rng).open(dir);
        set(0o700);
        told(&opened.expect_err("an open that has to write").to_string());
        return Ok(written);
    }
    set(mode);
    let (end, refused) = write_until_refused(&db, written, WRITES_MAX, every);
    if let Some(text) = refused {
        told(&text);
    }
    let failed = check(&db, end, |error| error.to_string().contains("os error 13"));
    assert!(mode == 0 || failed == 0, "{failed} reads failed");
    set(0o700);
    db.resume()?;
    assert!(matches!(db.state(), DbState::Open), "after resume: {:?}", db.state());
    println!("hit resumed");
    check(&db, end, |_| false);
    db.put_with(key(end), value(end), &WriteOptions::sync())?;
    db.compact_range::<&[u8], _>(..)?;
    Ok(end + 1)
}

/// The files are gone, and the directory with them. What can be read is right; what can't is an error; it closes.
pub(crate) fn removed(case: &mut Case<'_>) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("db");
    let mut rng = case.rng(1);
    let options = options(&mut rng);
    let db = options.clone().open(&path).expect("a new database opens");
    let every = 1 + rng.below(40);
    let (written, _) = write_until_refused(&db, 0, 100 + rng.below(400), every);
    // Background threads may still add files to it.
    let gone = (0..100).any(|_| fs::remove_dir_all(&path).is_ok());
    assert!(gone, "the directory can't be removed");
    let (end, refused) = write_until_refused(&db, written, written + WRITES_MAX, every);
    if let Some(text) = refused {
        assert!(text.contains("os error 2") && text.contains("/db"), "not told what it is: {text}");
        case.coverage.hit("removed met");
    }
    check(&db, end, |error| error.to_string().contains("/db"));
    assert!(db.flush().is_err(), "a flush to nowhere");
    let _ = db.compact_range::<&[u8], _>(..);
    let _ = db.verify();
    // Background work that failed is only tried again; writes that are refused stay so.
    let refuses = matches!(db.state(), DbState::ReadOnly { .. });
    assert!(db.resume().is_err() || !refuses, "a log in no directory");
    check(&db, end, |error| error.to_string().contains("/db"));
    let _ = db.close();
    assert!(!path.exists(), "somebody has made it again");
    let error = options.create_if_missing(false).open(&path).expect_err("there is nothing to open");
    assert!(error.to_string().contains("/db"), "{error}");
}
