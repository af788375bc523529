//! `Db::repair`: what can be read comes back, what can't is reported, and nothing is deleted.

use std::path::Path;
use std::sync::Arc;

use esker::vfs::{MemVfs, Vfs};
use esker::{Components, Db, Options, RecoveryMode, RepairReport};

use crate::support::{Rig, assert_sound, content, key, small, value};

fn components(mem: &MemVfs) -> Components {
    let vfs: Arc<dyn Vfs> = Arc::new(mem.clone());
    Components { vfs, ..Components::for_options(&small()) }
}

fn repair(mem: &MemVfs) -> esker::Result<RepairReport> {
    Db::repair_with("/db", &small(), &components(mem))
}

fn open(mem: &MemVfs) -> esker::Result<Db> {
    Db::open_with("/db", small(), components(mem))
}

/// A database with several levels, tombstones, and a part that is only in the log.
fn store() -> (Rig, crate::support::Content) {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    for round in 0..3_u64 {
        for number in 0..400_u64 {
            db.put(key(number), value(number + round, 60)).unwrap();
        }
        db.compact_range::<&[u8], _>(..).unwrap();
    }
    for number in (0..400_u64).step_by(3) {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    for number in 1000..1020_u64 {
        db.put(key(number), value(number, 60)).unwrap();
    }
    let all = content(&db).unwrap();
    drop(db);
    (rig, all)
}

fn files(mem: &MemVfs, suffix: &str) -> Vec<std::path::PathBuf> {
    mem.paths()
        .into_iter()
        .filter(|path| path.parent() == Some(Path::new("/db")) && path.to_string_lossy().ends_with(suffix))
        .collect()
}

#[test]
fn a_sound_store_comes_out_as_it_was() {
    let (rig, all) = store();
    let before = rig.mem.files();
    let report = repair(&rig.mem).unwrap();
    assert!(report.manifest_intact && report.faults.is_empty() && report.tables_lost.is_empty(), "{report}");
    assert_eq!(report.batches_read, 20);
    let db = open(&rig.mem).unwrap();
    assert_eq!(content(&db).unwrap(), all);
    assert_sound(&db);
    db.put(b"new", b"write").unwrap();
    // Every old byte is still somewhere.
    let now: Vec<Vec<u8>> = rig.mem.files().into_values().collect();
    for (path, bytes) in before {
        let kept = now.contains(&bytes) || path.ends_with("CURRENT") || path.ends_with("LOCK");
        assert!(kept, "{} is gone", path.display());
    }
}

#[test]
fn a_lost_manifest_is_made_up_for() {
    let (rig, all) = store();
    for path in rig.mem.paths() {
        let name = path.to_string_lossy().into_owned();
        if name.contains("MANIFEST") || name.ends_with("CURRENT") {
            rig.mem.remove(&path).unwrap();
        }
    }
    assert!(open(&rig.mem).unwrap_err().is_corruption());
    let report = repair(&rig.mem).unwrap();
    assert!(!report.manifest_intact && report.tables_lost.is_empty(), "{report}");
    let db = open(&rig.mem).unwrap();
    assert_eq!(content(&db).unwrap(), all, "no leftover table was there, so nothing is back");
    assert_sound(&db);
}

#[test]
fn a_damaged_table_is_reported_and_set_aside() {
    let (rig, all) = store();
    let tables = files(&rig.mem, ".sst");
    assert!(tables.len() > 3);
    rig.mem.flip(&tables[0], 100, 0x40).unwrap();
    let report = repair(&rig.mem).unwrap();
    assert_eq!(report.tables_lost, [tables[0].clone()], "{report}");
    assert!(report.faults.iter().any(|fault| fault.to_string().contains("sst @")), "{report}");
    assert!(rig.mem.paths().contains(&report.lost_dir.join(tables[0].file_name().unwrap())));
    let db = open(&rig.mem).unwrap();
    assert_sound(&db);
    let now = content(&db).unwrap();
    let right = now.iter().filter(|(key, value)| all.get(*key) == Some(value)).count();
    assert!(right > all.len() / 2 && right < all.len(), "{right} of {}", all.len());
}

/// Damage in the log: what is intact behind it comes back, too.
#[test]
fn intact_batches_behind_damage_in_the_log_are_read() {
    let (rig, all) = store();
    let log = files(&rig.mem, ".wal").pop().unwrap();
    rig.mem.flip(&log, 64 + 150, 0x40).unwrap();
    let report = repair(&rig.mem).unwrap();
    assert_eq!(report.batches_read, 19, "{report}");
    assert!(!report.faults.is_empty());
    let db = open(&rig.mem).unwrap();
    assert_eq!(content(&db).unwrap().len(), all.len() - 1);
    assert_sound(&db);
}

#[test]
fn an_open_or_foreign_directory_is_not_repaired() {
    let (rig, _) = store();
    let db = open(&rig.mem).unwrap();
    assert!(matches!(repair(&rig.mem).unwrap_err().kind(), esker::ErrorKind::Locked { .. }));
    drop(db);
    let empty = MemVfs::new();
    empty.create_dir_all(Path::new("/db")).unwrap();
    let error = Db::repair_with("/db", &Options::new(), &components(&empty)).unwrap_err();
    assert!(matches!(error.kind(), esker::ErrorKind::InvalidArgument { .. }), "{error}");
}

/// W5: point-in-time recovery keeps what it leaves out, and says what was promised.
#[test]
fn w5_point_in_time_keeps_the_rest_of_the_log() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    for number in 0..50_u64 {
        db.put_with(key(number), value(number, 60), &esker::WriteOptions::sync()).unwrap();
    }
    drop(db);
    let log = files(&rig.mem, ".wal").pop().unwrap();
    let bytes = rig.mem.read_file(&log).unwrap();
    rig.mem.flip(&log, bytes.len() as u64 / 2, 0x40).unwrap();
    assert!(open(&rig.mem).unwrap_err().is_corruption(), "a promised write is damaged");
    let options = small().recovery(RecoveryMode::PointInTime);
    let db = Db::open_with("/db", options, components(&rig.mem)).unwrap();
    let report = db.recovery_report();
    assert!(report.dropped_bytes > 0 && report.promised.is_some(), "{report:?}");
    assert!(report.to_string().contains(".wal.lost"), "{report}");
    assert_eq!(report.lost_files.len(), 1);
    let kept = rig.mem.read_file(&report.lost_files[0]).unwrap();
    assert_eq!(kept.len(), bytes.len());
    let there = db.iter().count() as u64;
    assert!((1..50).contains(&there));
    assert!((0..there).all(|number| db.get(key(number)).unwrap().is_some()), "a prefix");
    db.close().unwrap();
    assert_sound(&open(&rig.mem).unwrap());
}

/// W5, W8: a crash at any call of a point-in-time open leaves what was left out of the log, under one name or the other.
#[test]
fn w8_a_crash_in_a_point_in_time_open_keeps_the_rest_of_the_log() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    for number in 0..50_u64 {
        db.put_with(key(number), value(number, 60), &esker::WriteOptions::sync()).unwrap();
    }
    drop(db);
    let log = files(&rig.mem, ".wal").pop().unwrap();
    let middle = rig.mem.read_file(&log).unwrap().len() as u64 / 2;
    rig.mem.flip(&log, middle, 0x40).unwrap();
    let damaged = rig.mem.read_file(&log).unwrap();
    let options = small().recovery(RecoveryMode::PointInTime);
    let mut images = 0;
    for calls in 1..200 {
        let mem = rig.mem.crash_clone_with(esker::vfs::CrashMode::Keep);
        let faults = esker::vfs::FaultVfs::new(Arc::new(mem.clone()));
        faults.arm(esker::vfs::Fault::nth(calls).forever());
        let vfs: Arc<dyn Vfs> = Arc::new(faults.clone());
        let whole = Db::open_with("/db", options.clone(), Components { vfs, ..components(&mem) }).is_ok();
        for seed in 0..4 {
            let image = mem.crash_clone(seed);
            let db = Db::open_with("/db", options.clone(), components(&image)).unwrap();
            assert!((1..50).contains(&db.iter().count()));
            db.close().unwrap();
            // The zeros that were cut off at its end may be back.
            let kept = image.files().into_values().any(|bytes| bytes.starts_with(&damaged));
            assert!(kept, "the rest of the log is gone after {calls} calls, seed {seed}");
            images += 1;
        }
        if whole {
            break;
        }
    }
    assert!(images > 40, "{images} images");
}
