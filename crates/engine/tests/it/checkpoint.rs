//! Checkpoints: whole, separate, and never half.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use esker::scheduler::InlineScheduler;
use esker::vfs::{Call, CallKind, CrashMode, Event as When, Fault, FaultVfs, ObserveVfs, Vfs};
use esker::{Components, Db, ErrorKind, Options};

use crate::support::{Rig, assert_sound, content, crash_points, key, small, value};

const TARGET: &str = "/backups/monday";

fn fill(db: &Db, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| db.put(key(number), value(number, 60)).unwrap());
}

/// Opens a directory of a rig without the checker, which watches the other one.
fn open(rig: &Rig, dir: &str) -> esker::Result<Db> {
    let options = small().create_if_missing(false);
    let mut components = rig.components(&options);
    components.vfs = Arc::new(rig.mem.clone());
    components.scheduler = Arc::new(InlineScheduler::new());
    Db::open_with(dir, options, components)
}

/// A checkpoint has what was there at its moment, tables and memory; neither database sees what the other writes, compacts or
/// removes. With links, and where links are refused. Mutations: no flush; the durable sequence of the source's log.
#[test]
fn a_checkpoint_is_whole_and_separate() {
    for linked in [true, false] {
        let rig = Rig::new();
        let faults = FaultVfs::new(Arc::new(rig.order.clone()));
        if !linked {
            faults.arm(Fault::always().kind(CallKind::Link).os_error(18));
        }
        let components = Components {
            scheduler: Arc::new(InlineScheduler::new()),
            ..rig.components_on(Arc::new(faults), &small())
        };
        let db = Db::open_with("/db", small(), components).unwrap();
        fill(&db, 0..400);
        db.flush().unwrap();
        let before = rig.mem.total_bytes();
        db.checkpoint(TARGET).unwrap();
        let taken = rig.mem.total_bytes().saturating_sub(before);
        assert_eq!(linked, taken < 8 << 10, "{taken} bytes");
        let wanted = content(&db).unwrap();
        assert!(matches!(db.checkpoint(TARGET).unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
        assert!(matches!(db.checkpoint("").unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));

        let copy = open(&rig, TARGET).unwrap();
        assert_eq!(content(&copy).unwrap(), wanted);
        fill(&db, 1000..1400);
        db.delete(key(7_u64)).unwrap();
        db.compact_range::<&[u8], _>(..).unwrap();
        assert_eq!(content(&copy).unwrap(), wanted);
        fill(&copy, 2000..2100);
        copy.delete(key(8_u64)).unwrap();
        copy.compact_range::<&[u8], _>(..).unwrap();
        assert_sound(&copy);
        copy.checkpoint("/backups/of/a/backup").unwrap();
        copy.close().unwrap();
        assert_eq!(content(&db).unwrap().len(), 400 + 400 - 1);
        assert!(db.get(key(8_u64)).unwrap().is_some() && db.get(key(2000_u64)).unwrap().is_none());
        assert_sound(&db);
        for dir in [TARGET, "/backups/of/a/backup"] {
            let copy = open(&rig, dir).unwrap();
            assert_eq!(content(&copy).unwrap().len(), 400 + 100 - 1, "{dir}");
            assert!(copy.get(key(7_u64)).unwrap().is_some() && copy.get(key(8_u64)).unwrap().is_none());
            assert_sound(&copy);
        }
    }
}

/// An empty database has checkpoints too, and so has one in an empty directory.
#[test]
fn a_checkpoint_of_nothing() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    rig.mem.create_dir_all(Path::new(TARGET)).unwrap();
    db.checkpoint(TARGET).unwrap();
    let copy = open(&rig, TARGET).unwrap();
    assert!(copy.first_key_value().unwrap().is_none() && copy.last_key_value().unwrap().is_none());
    fill(&copy, 3..9);
    assert_eq!(copy.first_key_value().unwrap().unwrap().0, key(3_u64));
    assert_eq!(copy.snapshot().last_key_value().unwrap().unwrap().0, key(8_u64));
    rig.mem.write_file("/backups/file", "x").unwrap();
    assert!(db.checkpoint("/backups/file").is_err());
}

/// A crash at every call: the source is whole, and the copy is whole or does not open. After it has returned it is there, also
/// after a loss of power. An error at every call leaves no file behind. Mutations: `CURRENT` before the tables; the
/// directory above not synced; the tables' names not synced.
#[test]
fn a_checkpoint_is_there_or_not() {
    let mut whole = 0;
    let mut missing = 0;
    for first in [0, 1, 2, 3_u64] {
        let rig = Rig::new();
        let wanted = {
            let db = rig.open_inline(&small()).unwrap();
            fill(&db, 0..150);
            db.sync().unwrap();
            content(&db).unwrap()
        };
        let mode = move |number: u64| match first {
            0 => CrashMode::Keep,
            1 => CrashMode::Drop,
            _ => CrashMode::from_seed(first * 1000 + number),
        };
        let images = crash_points(&rig, mode, |vfs: Arc<dyn Vfs>| {
            let components = Components {
                scheduler: Arc::new(InlineScheduler::new()),
                ..rig.components_on(vfs, &small())
            };
            let db = Db::open_with("/db", small(), components).unwrap();
            db.checkpoint(TARGET).unwrap();
            let after = rig.crashed(CrashMode::Drop);
            assert_eq!(content(&open(&after, TARGET).unwrap()).unwrap(), wanted, "after a loss of power");
        });
        for (call, image) in images {
            assert_eq!(content(&open(&image, "/db").unwrap()).unwrap(), wanted, "source, at {call}");
            match open(&image, TARGET) {
                Ok(copy) => {
                    whole += 1;
                    assert_eq!(content(&copy).unwrap(), wanted, "copy, at {call}");
                    assert_sound(&copy);
                }
                Err(_) => missing += 1,
            }
        }
    }
    assert!(whole > 0 && missing > 20, "{whole} whole, {missing} missing");

    for nth in 1.. {
        let rig = Rig::new();
        let faults = FaultVfs::new(Arc::new(rig.mem.clone()));
        let components = Components {
            scheduler: Arc::new(InlineScheduler::new()),
            ..rig.components_on(Arc::new(faults.clone()), &small())
        };
        let db = Db::open_with("/db", small(), components).unwrap();
        fill(&db, 0..100);
        db.flush().unwrap();
        let in_target = |path: &Path| path.starts_with("/backups");
        faults.arm(Fault::nth(nth).path(in_target).os_error(5));
        let made = db.checkpoint(TARGET);
        faults.disarm();
        if faults.fired() == 0 {
            assert!(nth > 8, "{nth} calls");
            made.unwrap();
            break;
        }
        if made.is_err() {
            let left = rig.mem.list(Path::new(TARGET)).unwrap_or_default();
            assert!(left.iter().all(|entry| entry.name == "LOCK"), "call {nth}: {left:?}");
            db.checkpoint(TARGET).unwrap();
        }
        assert_eq!(content(&open(&rig, TARGET).unwrap()).unwrap().len(), 100, "call {nth}");
        assert!(db.background_error().is_none());
        assert_eq!(content(&db).unwrap().len(), 100);
    }
}

/// On a real file system, with writers beside it: what was acknowledged before the call is there, in whole batches.
#[test]
fn a_checkpoint_under_load() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().memtable_size(64 << 10).table_size(32 << 10);
    let db = options.clone().open(dir.path().join("db")).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let acknowledged = std::sync::atomic::AtomicU64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !stop.load(order) {
                let mut batch = esker::WriteBatch::new();
                let mut second = esker::WriteBatch::new();
                batch.put([b"a", &key(number)[..]].concat(), value(number, 100));
                second.put([b"b", &key(number)[..]].concat(), value(number, 100));
                assert!(batch.append(&mut second).byte_size() > 200);
                db.write(batch).unwrap();
                acknowledged.store(number, order);
                number += 1;
            }
        });
        for round in 0..5 {
            std::thread::sleep(std::time::Duration::from_millis(40));
            let least = acknowledged.load(order);
            let target = dir.path().join(format!("copy{round}"));
            db.checkpoint(&target).unwrap();
            let copy = options.clone().open(&target).unwrap();
            let count = |prefix: &str| copy.prefix(prefix).map(Result::unwrap).count() as u64;
            let (first, second) = (count("a"), count("b"));
            assert!(first == second && first >= least, "{first}, {second}, {least}");
            assert_sound(&copy);
        }
        stop.store(true, order);
    });
}

fn key_count(db: &Db) -> usize {
    content(db).unwrap().len()
}

/// Places where no checkpoint can be: nothing there changes. Below the database itself there can be one.
#[cfg(unix)]
#[test]
fn odd_places_for_a_checkpoint() {
    use std::os::unix::fs::symlink;
    let temp = tempfile::tempdir().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = small().open(at("db")).unwrap();
    fill(&db, 0..300);
    db.compact_range::<&[u8], _>(..).unwrap();
    fs::create_dir(at("empty")).unwrap();
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/000001.sst"), "mine").unwrap();
    fs::write(at("file"), "mine").unwrap();
    symlink(at("empty"), at("link")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    symlink(at("file"), at("to-file")).unwrap();
    let nested = at("db").join("nested");
    for odd in ["db", "full", "file", "link", "dangling", "to-file"] {
        let error = db.checkpoint(at(odd)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{odd}: {error}");
    }
    for odd in ["file/below", "to-file/below", "db/CURRENT", "db/CURRENT/below"] {
        assert!(db.checkpoint(at(odd)).is_err(), "{odd}");
    }
    assert!(fs::read_dir(at("empty")).unwrap().next().is_none() && !at("nowhere").exists());
    assert_eq!(fs::read_dir(at("full")).unwrap().count(), 1);
    assert_eq!(
        (fs::read_to_string(at("file")).unwrap(), fs::read(at("full/000001.sst")).unwrap()),
        ("mine".into(), b"mine".into())
    );
    db.checkpoint(&nested).unwrap();
    db.checkpoint(at("link/through-a-link")).unwrap();
    fill(&db, 300..600);
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_sound(&db);
    db.close().unwrap();
    let db = small().open(at("db")).unwrap();
    assert_eq!(key_count(&db), 600);
    for place in [nested, at("empty/through-a-link")] {
        let copy = small().create_if_missing(false).open(place).unwrap();
        assert_eq!(key_count(&copy), 300);
        assert_sound(&copy);
    }
}

/// Several at once into one directory, of one database and of two: one of them is whole, and the others are refused.
/// Mutations: no lock; what was there before is removed after an error.
#[test]
fn checkpoints_into_the_same_directory() {
    let temp = tempfile::tempdir().unwrap();
    let options = small().background(esker::Background::Threads(2));
    let first = options.clone().open(temp.path().join("first")).unwrap();
    let second = options.clone().seed(43).open(temp.path().join("second")).unwrap();
    for round in 0..20_u64 {
        fill(&first, round * 10..round * 10 + 100);
        if round % 2 == 1 {
            fill(&second, 1000..1100);
        }
        let target = temp.path().join(format!("copy{round}"));
        let (start, made) = (Barrier::new(4), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for db in [&first, &first, &first, &second] {
                scope.spawn(|| {
                    start.wait();
                    match db.checkpoint(&target) {
                        Ok(()) => drop(made.fetch_add(1, Ordering::SeqCst)),
                        Err(error) => assert!(
                            matches!(
                                error.kind(),
                                ErrorKind::Locked { .. } | ErrorKind::InvalidArgument { .. }
                            ),
                            "{error}"
                        ),
                    }
                });
            }
        });
        assert_eq!(made.into_inner(), 1, "round {round}");
        let copy = options.clone().create_if_missing(false).open(&target).unwrap();
        let found = content(&copy).unwrap();
        assert!(found == content(&first).unwrap() || found == content(&second).unwrap(), "round {round}");
        assert_sound(&copy);
    }
}

/// Somebody opens the copy at every call while it is being made, and somebody puts a file there. Mutations: no lock; the name
/// that was taken is removed with what was made.
#[test]
fn strangers_beside_a_checkpoint() {
    let rig = Rig::new();
    let (mem, opened) = (rig.mem.clone(), Arc::new(AtomicU64::new(0)));
    let (armed, tried) = (Arc::new(AtomicBool::new(false)), Arc::clone(&opened));
    let watch = {
        let armed = Arc::clone(&armed);
        move |call: &Call<'_>, _: When| {
            let to = call.target.unwrap_or(call.path);
            let made = mem.kind(&Path::new(TARGET).join("LOCK")).unwrap().is_some();
            if armed.load(Ordering::SeqCst) && to.starts_with(TARGET) && made {
                let rig = Rig::on(mem.clone());
                let mut components = rig.components(&small());
                components.vfs = Arc::new(mem.clone());
                let result = Db::open_with(TARGET, small(), components);
                assert!(result.is_err(), "at {call:?}");
                tried.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    let components = Components {
        scheduler: Arc::new(InlineScheduler::new()),
        ..rig.components_on(Arc::new(ObserveVfs::new(Arc::new(rig.mem.clone()), Arc::new(watch))), &small())
    };
    let db = Db::open_with("/db", small(), components).unwrap();
    fill(&db, 0..200);
    db.flush().unwrap();
    armed.store(true, Ordering::SeqCst);
    db.checkpoint(TARGET).unwrap();
    armed.store(false, Ordering::SeqCst);
    assert!(opened.load(Ordering::SeqCst) > 10, "{opened:?}");
    assert_eq!(key_count(&open(&rig, TARGET).unwrap()), 200);

    for suffix in [".sst", ".wal", "MANIFEST-"] {
        let rig = Rig::new();
        let mem = rig.mem.clone();
        let put = move |call: &Call<'_>, when: When| {
            let to = call.target.unwrap_or(call.path);
            let made = matches!(call.kind, CallKind::Link | CallKind::Create) && when == When::Before;
            let named = to.starts_with("/backups") && to.to_string_lossy().contains(suffix);
            if made && named && mem.kind(to).unwrap().is_none() {
                mem.write_file(to, "mine").unwrap();
            }
        };
        let components = Components {
            scheduler: Arc::new(InlineScheduler::new()),
            ..rig.components_on(Arc::new(ObserveVfs::new(Arc::new(rig.mem.clone()), Arc::new(put))), &small())
        };
        let db = Db::open_with("/db", small(), components).unwrap();
        fill(&db, 0..200);
        let error = db.checkpoint(TARGET).unwrap_err();
        assert_eq!(error.io_kind(), Some(std::io::ErrorKind::AlreadyExists), "{suffix}: {error}");
        let left = rig.mem.list(Path::new(TARGET)).unwrap();
        let left: Vec<_> = left.iter().filter(|entry| entry.name != "LOCK").collect();
        assert_eq!(left.len(), 1, "{suffix}: {left:?}");
        assert_eq!(rig.mem.read_file(Path::new(TARGET).join(&left[0].name)).unwrap(), b"mine");
        assert_eq!(key_count(&db), 200);
    }
}

/// What two databases share is never changed in place, whatever is done with either: reads, compactions, a kill, a repair.
#[cfg(unix)]
#[test]
fn shared_tables_are_never_changed() {
    let temp = tempfile::tempdir().unwrap();
    let (source, target, witness) =
        (temp.path().join("db"), temp.path().join("copy"), temp.path().join("witness"));
    let options = small().background(esker::Background::Threads(2));
    let db = options.clone().open(&source).unwrap();
    fill(&db, 0..500);
    db.checkpoint(&target).unwrap();
    fs::create_dir(&witness).unwrap();
    let mut kept = Vec::new();
    for entry in fs::read_dir(&target).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let name = witness.join(path.file_name().unwrap());
            fs::hard_link(&path, &name).unwrap();
            kept.push((name, fs::read(&path).unwrap()));
        }
    }
    assert!(kept.len() > 3);
    for round in 0..4 {
        let copy = options.clone().open(&target).unwrap();
        std::thread::scope(|scope| {
            for (db, from) in [(&db, 0), (&copy, 10_000)] {
                scope.spawn(move || {
                    fill(db, from + 100 * round..from + 100 * round + 300);
                    db.delete(key(round)).unwrap();
                    db.compact_range::<&[u8], _>(..).unwrap();
                });
            }
        });
        assert_sound(&copy);
        drop(copy);
        fs::remove_file(target.join("CURRENT")).unwrap();
        Db::repair(&target).unwrap();
    }
    assert_sound(&db);
    for (name, bytes) in kept {
        assert!(fs::read(&name).unwrap() == bytes, "{name:?} was changed");
    }
}
