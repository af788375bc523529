//! What a hostile tester found: directories that a crash or a stranger left, each with the way in which it broke an
//! earlier build.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::support::Rig;
use esker::vfs::{Fault, FaultVfs, MemVfs, Vfs};
use esker::{Db, Options, RepairReport};
use esker_base::FileNumber;
use esker_manifest::{ManifestWriter, Recovered, Recovery, VersionEdit, recover};

fn small() -> Options {
    Options::new().memtable_size(16 << 10).table_size(4 << 10).seed(1)
}

/// A rig on which a creation was killed at its `nth` call, or `None` when it has fewer.
fn killed_creation(nth: u64) -> Option<Rig> {
    let mem = MemVfs::new();
    let faults = FaultVfs::over_mem(&mem);
    faults.arm(Fault::nth(nth).forever());
    let rig = Rig::on(mem);
    let mut components = rig.components(&small());
    components.vfs = Arc::new(faults.clone());
    let opened = Db::open_with("/db", small(), components);
    drop(opened);
    (faults.fired() > 0).then_some(rig)
}

/// A creation that was killed leaves a log segment under a store id that the next creation does not draw again. Found by
/// real kills; the simulations draw the same id each time. Mutation: the segments of no store are replayed.
#[test]
fn a_killed_creation_is_begun_anew_under_another_id() {
    let mut calls = 0;
    while let Some(rig) = killed_creation(calls + 1) {
        calls += 1;
        let db = rig.open_inline(&small().seed(2)).unwrap_or_else(|error| panic!("call {calls}: {error}"));
        db.put("k", "v").unwrap();
        db.close().unwrap();
        let db = rig.open_inline(&small().seed(3)).unwrap();
        assert_eq!(db.get("k").unwrap().unwrap(), "v");
        assert!(db.verify().unwrap().is_clean());
    }
    assert!(calls > 10, "{calls}");
}

fn filled() -> Rig {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.put("l", "w").unwrap();
    drop(db);
    rig
}

/// File numbers at the end of their range are an error in every way to reach them, and no overflow. Mutation: no
/// `check_file_numbers`.
#[test]
fn the_largest_file_numbers() {
    for back in 0..12 {
        let number = u64::MAX - back;
        for name in [format!("MANIFEST-{number}"), format!("{number}.sst"), format!("{number}.wal.lost")] {
            for rig in [Rig::new(), filled()] {
                rig.mem.create_dir_all(Path::new("/db")).unwrap();
                rig.mem.write_file(Path::new("/db").join(&name), "").unwrap();
                assert!(rig.open_inline(&small()).unwrap_err().is_corruption(), "{name}");
                assert!(repair(&rig).is_err(), "{name}");
            }
        }
        let rig = filled();
        let mut edit = VersionEdit::new();
        edit.next_file = Some(FileNumber(number));
        rewrite_manifest(&rig, &edit);
        assert!(rig.open_inline(&small()).unwrap_err().is_corruption(), "next file {number}");
        repair(&rig).unwrap();
        assert_eq!(Rig::on(rig.mem.clone()).open_inline(&small()).unwrap().iter().count(), 2);
    }
}

/// Repairs without the order checker, which takes what a repair moves away for a loss.
fn repair(rig: &Rig) -> esker::Result<RepairReport> {
    let mut components = rig.components(&small());
    components.vfs = Arc::new(rig.mem.clone());
    Db::repair_with("/db", &small(), &components)
}

/// Makes a manifest with the state of the present one and an edit, as a stranger could.
fn rewrite_manifest(rig: &Rig, edit: &VersionEdit) {
    let found = stored(rig);
    let state = found.state.apply(edit).unwrap();
    let number = found.state.next_file;
    let mut above = VersionEdit::new();
    above.next_file = Some(FileNumber(number.0 + 1));
    let state = state.apply(&above).unwrap();
    ManifestWriter::create(Arc::new(rig.mem.clone()), Path::new("/db"), number, &state).unwrap();
}

fn stored(rig: &Rig) -> Box<Recovered> {
    match recover(&rig.mem, Path::new("/db")).unwrap() {
        Recovery::Store(found) => found,
        Recovery::Missing { .. } => panic!("there is a store"),
    }
}

/// `verify` adds up what the manifest says of its tables. Mutation: `+=`.
#[test]
fn tables_that_claim_all_entries_there_can_be() {
    let rig = filled();
    let db = rig.open_inline(&small()).unwrap();
    db.close().unwrap();
    let version = Arc::clone(&stored(&rig).state.keyspaces[&0].version);
    let mut edit = VersionEdit::new();
    for (level, table) in version.tables() {
        edit.delete_table(0, level, table.number);
        let mut lying = (**table).clone();
        lying.entries = u64::MAX;
        edit.add_table(0, level, Arc::new(lying));
    }
    assert!(edit.added.len() > 1);
    rewrite_manifest(&rig, &edit);
    let db = rig.open_inline(&small()).unwrap();
    assert_eq!(db.verify().unwrap().entries, u64::MAX);
    let _ = db.stats();
}

/// A repair moves files to a directory of its own, and neither through a link to another place nor over files that are
/// there. Mutation: the first number is taken.
#[cfg(unix)]
#[test]
fn a_repair_stays_in_its_directory() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, outside) = (temp.path().join("db"), temp.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    let db = small().open(&dir).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    fs::remove_file(dir.join("CURRENT")).unwrap();
    for number in 0..40 {
        let lost = dir.join(format!("lost-{number:06}"));
        if number % 2 == 0 {
            std::os::unix::fs::symlink(&outside, &lost).unwrap();
        } else {
            fs::create_dir(&lost).unwrap();
        }
    }
    let report = Db::repair(&dir).unwrap();
    assert_eq!(report.lost_dir, dir.join("lost-000040"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(fs::read_dir(&report.lost_dir).unwrap().count() > 0);
    assert_eq!(small().open(&dir).unwrap().get("k").unwrap().unwrap(), "v");
}

/// Keys that are written while a cursor stands behind them hide nothing, and bring no key twice. Mutation: the key that is
/// shown is forgotten when the cursor seeks past what is hidden.
#[test]
fn keys_that_come_between_while_a_cursor_stands() {
    for hidden in [1, 8, 9, 10, 40] {
        let rig = Rig::new();
        let db = rig.open_inline(&small()).unwrap();
        db.put("a", "1").unwrap();
        db.put("k", "2").unwrap();
        db.flush().unwrap();
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_last().unwrap();
        for number in 0..hidden {
            db.put(format!("b{}", number % 3), "new").unwrap();
        }
        cursor.next().unwrap();
        assert!(!cursor.valid(), "{hidden} hidden: {:?} again", cursor.key());
    }
}
