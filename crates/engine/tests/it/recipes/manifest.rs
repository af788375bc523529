//! DM: manifest and directories.

use std::io::ErrorKind as IoKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use esker::scheduler::InlineScheduler;
use esker::vfs::{CallKind, CrashMode, Fault, FaultMode, FaultVfs, Vfs};
use esker::{Components, Db, Options, WriteOptions};

use crate::support::{Rig, assert_sound, content, crash_points, key, small, value};

fn open_on(rig: &Rig, vfs: Arc<dyn Vfs>) -> esker::Result<Db> {
    let options = small();
    let components =
        Components { scheduler: Arc::new(InlineScheduler::new()), ..rig.components_on(vfs, &options) };
    Db::open_with("/db", options, components)
}

/// DM01, DM03, DM05, DM07, DM16. Flushes, compactions and reopening, with the crash of each recipe at every call: a
/// rename that is durable before its data, removals before renames, directory entries that are lost, sizes without data.
/// Mutation: any sync of a table, of the directory, of the manifest or of CURRENT is left out.
#[test]
fn dm03_the_crashes_of_the_recipes_at_every_call() {
    type Mode = fn(u64) -> CrashMode;
    let modes: [(&str, Mode); 5] = [
        ("dm01 size only", |seed| CrashMode::SizeOnly { seed }),
        ("dm03 unlink first", |seed| CrashMode::UnlinkFirst { seed }),
        ("dm05 drop", |_| CrashMode::Drop),
        ("dm16 torn", |seed| CrashMode::Torn { seed }),
        ("dm07 random", |seed| CrashMode::Random { seed, keep_percent: 50 }),
    ];
    for (name, mode) in modes {
        let rig = Rig::new();
        // How many entries are durable, now and at each image.
        let durable = Arc::new(AtomicU64::new(0));
        let floors = Arc::new(Mutex::new(Vec::new()));
        let noting = {
            let (durable, floors) = (Arc::clone(&durable), Arc::clone(&floors));
            move |number| {
                floors.lock().unwrap().push(durable.load(Ordering::SeqCst));
                mode(number)
            }
        };
        let images = crash_points(&rig, noting, |vfs| {
            for round in 0..4_u64 {
                let db = open_on(&rig, Arc::clone(&vfs)).unwrap();
                for number in 0..60_u64 {
                    let options = if number == 30 { WriteOptions::sync() } else { WriteOptions::new() };
                    db.put_with(key(round * 100 + number), value(number, 200), &options).unwrap();
                    if number == 30 {
                        durable.store(round * 60 + 31, Ordering::SeqCst);
                    }
                }
                db.flush().unwrap();
                durable.store(round * 60 + 60, Ordering::SeqCst);
                db.compact_range::<&[u8], _>(..).unwrap();
                db.close().unwrap();
            }
        });
        assert!(images.len() > 100, "{} calls", images.len());
        for ((call, image), floor) in images.into_iter().zip(floors.lock().unwrap().iter()) {
            let db = image.open_inline(&small()).unwrap_or_else(|error| panic!("{name}, {call}: {error}"));
            let count = content(&db).unwrap().len() as u64;
            assert_sound(&db);
            assert!(count >= *floor, "{name}, {call}: {count} entries of {floor}");
        }
        assert_eq!(durable.load(Ordering::SeqCst), 240);
    }
}

/// DM09, DM10, M6. A manifest grows so large that a new one is started; each call of that fails, before and after it took
/// effect. The database opens, and the manifest that CURRENT names exists. Mutation: a failed roll deletes the old one.
#[test]
fn dm09_each_call_of_a_roll_fails() {
    // Long keys make long edits: a roll comes after 1 MiB.
    let long = |number: u64| [format!("{number:03}").into_bytes(), vec![b'x'; 60_000]].concat();
    let rig = Rig::new();
    let db = rig.open_inline(&small().l0_trigger(64)).unwrap();
    let mut count = 0;
    while rig
        .names("")
        .into_iter()
        .filter(|name| name.starts_with("MANIFEST"))
        .map(|n| rig.read(&n).len())
        .sum::<usize>()
        < 1_000_000
    {
        db.put(long(count), "1").unwrap();
        db.put(long(count + 1), "1").unwrap();
        db.flush().unwrap();
        count += 2;
    }
    drop(db);
    let copy_open = |faults: &FaultVfs, rig: &Rig| open_on(rig, Arc::new(faults.clone()));
    // Opening starts a new manifest as well, so it is the same calls that fail.
    for mode in [FaultMode::Before, FaultMode::After] {
        for error in [IoKind::Other, IoKind::NotFound, IoKind::AlreadyExists] {
            for nth in 1.. {
                let next = rig.copied();
                let faults = FaultVfs::new(Arc::new(next.mem.clone()));
                let is_manifest = |path: &std::path::Path| {
                    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                    name.starts_with("MANIFEST") || name.starts_with("CURRENT") || name == "db"
                };
                let changes = [CallKind::Create, CallKind::Append, CallKind::SyncData, CallKind::SyncAll];
                let fault = changes.into_iter().fold(Fault::nth(nth), Fault::kind).kind(CallKind::Rename);
                faults.arm(
                    fault
                        .kind(CallKind::SyncDir)
                        .kind(CallKind::Close)
                        .path(is_manifest)
                        .mode(mode)
                        .error(error),
                );
                let opened = copy_open(&faults, &next);
                let fired = faults.fired() > 0;
                drop(opened);
                faults.disarm();
                for crash in [CrashMode::Keep, CrashMode::Drop] {
                    let db = Rig::on(next.mem.crash_clone_with(crash)).open_inline(&small()).unwrap();
                    assert_eq!(db.iter().count() as u64, count, "{mode:?} {error:?} {nth} {crash:?}");
                }
                if !fired {
                    assert!(nth > 5, "{nth} calls");
                    break;
                }
            }
        }
    }
}

/// DM14, M7. Files of a job that no manifest names: they go, and no number is used again. Mutation: the next number comes
/// from the manifest only.
#[test]
fn dm14_numbers_of_orphans_are_not_used_again() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..50_u64).for_each(|number| db.put(key(number), value(number, 50)).unwrap());
    db.flush().unwrap();
    drop(db);
    rig.write("000500.sst", b"half a table");
    rig.write("000501.sst", b"");
    rig.write("000502.wal", b"");
    rig.write("MANIFEST-000503", b"half");
    rig.write("CURRENT.tmp", b"esk");
    let rig = rig.copied();
    let db = rig.open_inline(&small()).unwrap();
    (0..50_u64).for_each(|number| db.put(key(number), value(number, 50)).unwrap());
    db.flush().unwrap();
    for name in ["000500.sst", "000501.sst", "000502.wal", "MANIFEST-000503", "CURRENT.tmp"] {
        assert!(!rig.names("").contains(&name.to_owned()), "{name} is still there");
    }
    let newest = rig.names(".sst").pop().unwrap();
    assert!(*newest > *"000503.sst", "{newest}");
    assert_sound(&db);
}

/// DM17. After every change of the version, a copy of the directory opens and shows the same. Mutation: the replay of an
/// edit looks at the tables.
#[test]
fn dm17_a_copy_opens_after_every_change() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    let mut shapes = std::collections::BTreeSet::new();
    for number in 0..600_u64 {
        db.put(key(number * 7919 % 1000), value(number, 150)).unwrap();
        if number % 5 == 4 {
            db.flush().unwrap();
        }
        let levels: Vec<u64> = db.stats().levels.iter().map(|level| level.tables).collect();
        if number % 5 == 4 || shapes.insert(levels) {
            let copy = rig.copied();
            let other = copy.open_inline(&small()).unwrap();
            assert!(content(&other).unwrap() == content(&db).unwrap(), "after write {number}");
        }
    }
    assert!(shapes.len() > 10 && db.stats().compactions > 50, "{} shapes\n{}", shapes.len(), db.stats());
}

/// W6, D2. With nothing to replay, opening and closing again and again leaves no files behind. Mutation: the old manifest
/// or the old segment stays after an open.
#[test]
fn d2_reopening_leaves_nothing_behind() {
    let rig = Rig::new();
    let mut counts = Vec::new();
    for round in 0..20_u64 {
        let db = rig.open_inline(&Options::new().seed(1)).unwrap();
        if round == 0 {
            db.put("k", "v").unwrap();
        }
        if round % 2 == 0 {
            db.close().unwrap();
        }
        counts.push(rig.names("").len());
    }
    assert!(counts.iter().all(|count| *count <= 6), "{counts:?}");
    assert!(counts[1..].windows(2).all(|pair| pair[0] == pair[1]), "{counts:?}");
}
