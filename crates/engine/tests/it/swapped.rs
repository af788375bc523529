//! Files of a database that somebody has exchanged: with each other, with those of another database, for directories, pipes
//! and links. Each is told or harmless; nothing waits, and what was moved away can be put back.

#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use esker::scheduler::InlineScheduler;
use esker::vfs::{CallKind, Fault, FaultVfs, OsVfs};
use esker::{Components, Db, DbState, Options};
use esker_testkit::within;

use crate::support::{Content, assert_sound, content, key, small, value};

/// What is put in the place of a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Put {
    Directory,
    Pipe,
    /// A symbolic link to the file itself, which is elsewhere now.
    Link,
    Dangling,
    Loop,
    /// Another name of another file of its kind.
    HardLink,
    /// The two change places.
    Exchange,
    /// The file with this name, or of this kind, of another database.
    Foreign,
}

const ALL: [Put; 8] = [
    Put::Directory,
    Put::Pipe,
    Put::Link,
    Put::Dangling,
    Put::Loop,
    Put::HardLink,
    Put::Exchange,
    Put::Foreign,
];

impl Put {
    /// Whether what is there now is no regular file.
    fn is_odd(self) -> bool {
        !matches!(self, Put::HardLink | Put::Exchange | Put::Foreign)
    }
}

fn names(dir: &Path, part: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let named: BTreeSet<String> = entries.filter(|name| name.contains(part)).collect();
    named.into_iter().collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for name in names(from, "") {
        fs::copy(from.join(&name), to.join(&name)).unwrap();
    }
}

/// A killed database with tables and several log segments, all of them synced.
fn store(dir: &Path, options: &Options, salt: u64) -> Content {
    let faults = FaultVfs::new(Arc::new(OsVfs::new()));
    let mut components = Components::for_options(options);
    components.vfs = Arc::new(faults.clone());
    components.scheduler = Arc::new(InlineScheduler::new());
    let db = Db::open_with(dir, options.clone(), components).unwrap();
    (0..200_u64).for_each(|number| db.put(key(number), value(number + salt, 60)).unwrap());
    db.compact_range::<&[u8], _>(..).unwrap();
    // No table can be made any more, so the log stays.
    faults.arm(Fault::always().kind(CallKind::Create).path_suffix(".sst").os_error(5));
    let mut number = 1000_u64;
    while names(dir, ".wal").len() < 3 && number < 5000 {
        if db.put(key(number), value(number + salt, 60)).is_err() {
            break;
        }
        number += 1;
    }
    db.put(key(number), value(number + salt, 60)).unwrap();
    db.sync().unwrap();
    let found = content(&db).unwrap();
    drop(db);
    assert!(names(dir, ".sst").len() > 2 && names(dir, ".wal").len() > 2, "{:?}", names(dir, ""));
    found
}

/// Replaces `name` in `dir`; `false` when there is nothing to replace it with. What was there goes to `aside`.
fn replace(dir: &Path, other: &Path, aside: &Path, name: &str, put: Put) -> bool {
    let part =
        [".sst", ".wal", "MANIFEST", "CURRENT", "LOCK"].into_iter().find(|part| name.contains(part)).unwrap();
    let path = dir.join(name);
    let sibling = || names(dir, part).into_iter().find(|sibling| sibling != name);
    let away = || fs::rename(&path, aside.join(name)).unwrap();
    match put {
        Put::Directory => {
            away();
            fs::create_dir(&path).unwrap();
        }
        Put::Pipe => {
            away();
            assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        }
        Put::Link => {
            away();
            symlink(aside.join(name), &path).unwrap();
        }
        Put::Dangling => {
            away();
            symlink(aside.join("nowhere"), &path).unwrap();
        }
        Put::Loop => {
            away();
            symlink(&path, &path).unwrap();
        }
        Put::HardLink => {
            let Some(sibling) = sibling() else { return false };
            away();
            fs::hard_link(dir.join(sibling), &path).unwrap();
        }
        Put::Exchange => {
            let Some(sibling) = sibling() else { return false };
            let sibling = dir.join(sibling);
            fs::copy(&path, aside.join(name)).unwrap();
            fs::rename(&path, aside.join("third")).unwrap();
            fs::rename(&sibling, &path).unwrap();
            fs::rename(aside.join("third"), &sibling).unwrap();
        }
        Put::Foreign => {
            let same = names(other, part).into_iter().find(|other| other == name);
            let Some(found) = same.or_else(|| names(other, part).into_iter().next()) else { return false };
            away();
            fs::copy(other.join(found), &path).unwrap();
        }
    }
    true
}

/// All that can be read is right; whether all of it could be read. `short` allows for the end of a log that is not there.
fn check(db: &Db, wanted: &Content, short: bool, what: &str) -> bool {
    let mut all = true;
    let mut ended = false;
    for (key, value) in wanted {
        match db.get(key) {
            Ok(Some(found)) => assert!(found == *value && !ended, "{what}: {key:?} is {found:?}"),
            Ok(None) => {
                assert!(short, "{what}: {key:?} is gone");
                ended = true;
            }
            Err(_) => all = false,
        }
    }
    let mut shown = wanted.iter();
    for entry in db.iter() {
        let Ok(entry) = entry else {
            all = false;
            break;
        };
        let next = shown.next().unwrap_or_else(|| panic!("{what}: more than there was"));
        assert!(entry.0 == next.0 && entry.1 == next.1, "{what}: {:?} instead of {:?}", entry.0, next.0);
    }
    assert!(!all || short || shown.next().is_none(), "{what}: a scan ends early");
    all && !ended
}

/// Exchanged while nobody has the database open. Mutations: what has the name of a log segment and is no file does not count;
/// links are followed; the numbers of files are not in their checksums.
#[test]
fn exchanged_files_of_a_closed_database() {
    let temp = tempfile::tempdir().unwrap();
    let (first, other) = (temp.path().join("first"), temp.path().join("other"));
    let wanted = store(&first, &small(), 0);
    store(&other, &small().seed(43), 7);
    let mut told = 0;
    for name in names(&first, "") {
        for put in ALL {
            let what = format!("{name}: {put:?}");
            let (dir, aside) = (temp.path().join("db"), temp.path().join("aside"));
            copy(&first, &dir);
            fs::create_dir(&aside).unwrap();
            within(Duration::from_secs(60), &what, || {
                if !replace(&dir, &other, &aside, &name, put) {
                    return;
                }
                let before = names(&dir, "");
                match small().open(&dir) {
                    Ok(db) => {
                        assert!(!put.is_odd() || name.contains(".sst"), "{what}: it opens");
                        // An end of the log that is not there looks like one that a crash has torn off.
                        let short = name.contains(".wal");
                        let all = check(&db, &wanted, short, &what);
                        let sound = db.verify().is_ok_and(|report| report.is_clean());
                        assert!(all || short || !sound, "{what}: `verify` is content");
                        let _ = db.compact_range::<&[u8], _>(..);
                        check(&db, &wanted, short, &what);
                        let _ = db.close();
                        told += u64::from(!all);
                    }
                    Err(error) => {
                        told += 1;
                        let text = error.to_string();
                        assert!(text.contains("/db/"), "{what}: {text}");
                        let after = names(&dir, "");
                        assert!(
                            before.iter().all(|name| after.contains(name)),
                            "{what}: {before:?} {after:?}"
                        );
                        restore(&dir, &first, &name, put);
                        let db =
                            small().open(&dir).unwrap_or_else(|error| panic!("{what}, put back: {error}"));
                        assert!(check(&db, &wanted, false, &what), "{what}, put back");
                        assert_sound(&db);
                    }
                }
            });
            fs::remove_dir_all(&dir).unwrap();
            fs::remove_dir_all(&aside).unwrap();
        }
    }
    assert!(told > 50, "{told}");
}

/// Puts a file back, and the one that it changed places with.
fn restore(dir: &Path, first: &Path, name: &str, put: Put) {
    let path = dir.join(name);
    if put == Put::Directory {
        fs::remove_dir(&path).unwrap();
    } else {
        fs::remove_file(&path).unwrap();
    }
    for name in names(first, "") {
        let path = dir.join(&name);
        let same = fs::read(&path).is_ok_and(|bytes| bytes == fs::read(first.join(&name)).unwrap());
        if !same {
            let _ = fs::remove_file(&path);
            fs::copy(first.join(&name), &path).unwrap();
        }
    }
}

/// Exchanged under a running database that has not read them yet: what can be read is right, closing works, and with the
/// files put back all is there.
#[test]
fn exchanged_files_of_a_running_database() {
    let temp = tempfile::tempdir().unwrap();
    let (first, other) = (temp.path().join("first"), temp.path().join("other"));
    let wanted = store(&first, &small(), 0);
    store(&other, &small().seed(43), 7);
    // Without a log, so that the open below makes no table that could be taken for one that has been read.
    let tables = names(&first, ".sst");
    for name in [&tables[0], &tables[tables.len() - 1]] {
        for put in ALL {
            let what = format!("{name}: {put:?}");
            let (dir, aside) = (temp.path().join("db"), temp.path().join("aside"));
            copy(&first, &dir);
            fs::create_dir(&aside).unwrap();
            within(Duration::from_secs(60), &what, || {
                let db = small().max_open_files(1).open(&dir).unwrap();
                if !dir.join(name).exists() || !replace(&dir, &other, &aside, name, put) {
                    return;
                }
                check(&db, &wanted, false, &what);
                let _ = db.compact_range::<&[u8], _>(..);
                check(&db, &wanted, false, &what);
                let put_ok = db.put("written", "beside").is_ok();
                let _ = db.verify();
                assert!(!matches!(db.state(), DbState::Closed), "{what}");
                let _ = db.close();
                if aside.join(name).exists() && put != Put::Exchange {
                    if put == Put::Directory {
                        fs::remove_dir(dir.join(name)).unwrap();
                    } else {
                        let _ = fs::remove_file(dir.join(name));
                    }
                    fs::rename(aside.join(name), dir.join(name)).unwrap();
                    let db = small().open(&dir).unwrap_or_else(|error| panic!("{what}, put back: {error}"));
                    if put_ok {
                        assert_eq!(db.get("written").unwrap().unwrap(), "beside");
                        db.delete("written").unwrap();
                    }
                    assert!(check(&db, &wanted, false, &what), "{what}, put back");
                    assert_sound(&db);
                }
            });
            fs::remove_dir_all(&dir).unwrap();
            fs::remove_dir_all(&aside).unwrap();
        }
    }
}

/// What stands in the way of the names to come, before an open and under a running database: numbers are passed over, or the
/// error is told and a later number works. Mutation: only regular files count for the next number.
#[test]
fn names_that_are_taken() {
    for running in [false, true] {
        for suffix in [".sst", ".wal", "MANIFEST-"] {
            let dir = tempfile::tempdir().unwrap();
            let db = small().open(dir.path()).unwrap();
            (0..100_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
            db.flush().unwrap();
            let largest = names(dir.path(), "").into_iter().filter_map(|name| {
                let digits: String = name.chars().filter(char::is_ascii_digit).collect();
                digits.parse::<u64>().ok()
            });
            let largest = largest.max().unwrap();
            let taken = |from: u64, to: u64| -> Vec<PathBuf> {
                let name = |number: u64| match suffix {
                    "MANIFEST-" => format!("MANIFEST-{number:06}"),
                    _ => format!("{number:06}{suffix}"),
                };
                (from..to).map(|number| dir.path().join(name(number))).collect()
            };
            let paths = taken(largest + 2, largest + 12);
            let mut db = Some(db);
            if !running {
                db.take().unwrap().close().unwrap();
            }
            for path in &paths {
                symlink("/nowhere", path).unwrap();
            }
            if !running && suffix == ".wal" {
                // It could be the end of the log.
                let error = small().open(dir.path()).unwrap_err();
                assert!(error.is_corruption() && error.to_string().contains(".wal"), "{error}");
                let lenient = small().recovery(esker::RecoveryMode::PointInTime).open(dir.path()).unwrap();
                assert_eq!(content(&lenient).unwrap().len(), 100);
                lenient.close().unwrap();
            }
            let db = db.unwrap_or_else(|| small().open(dir.path()).unwrap());
            let mut refused = 0;
            for number in 0..400_u64 {
                while let Err(error) = db.put(key(number), value(number + 1, 60)) {
                    refused += 1;
                    assert!(running && refused < 30, "{suffix}: {error}");
                    let _ = db.resume();
                }
            }
            for _ in 0..30 {
                if db.flush().is_ok() {
                    break;
                }
                assert!(running, "{suffix}");
                let _ = db.resume();
            }
            db.flush().unwrap();
            let _ = db.resume();
            assert_eq!(content(&db).unwrap().len(), 400, "{suffix}");
            db.close().unwrap();
            let db = small().open(dir.path()).unwrap();
            assert_eq!(content(&db).unwrap().len(), 400, "{suffix}");
            assert!(paths.iter().all(|path| fs::symlink_metadata(path).unwrap().is_symlink()), "{suffix}");
            assert_sound(&db);
        }
    }
}
