//! Checkpoints: whole, separate, and never half.

use std::path::Path;
use std::sync::Arc;

use esker::scheduler::InlineScheduler;
use esker::vfs::{CallKind, CrashMode, Fault, FaultVfs, Vfs};
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
            assert!(left.is_empty(), "call {nth}: {left:?}");
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
