//! Opens with so much in the log that its tables are written by two threads.

use std::sync::Arc;
use std::time::Duration;

use esker::vfs::{CallKind, CountingVfs, CrashMode, Fault, FaultVfs, Vfs};
use esker::{Background, Db, Options};
use esker_testkit::within;

use crate::support::{Content, Rig, assert_sound, content, key, value};

const KEYS: u64 = 20_000;
const MINUTE: Duration = Duration::from_secs(60);

/// A disk with a log of some megabytes, most keys in two versions and some deleted, and what it holds.
fn killed() -> (Rig, Content) {
    let rig = Rig::new();
    let db = rig.open_inline(&Options::new()).unwrap();
    for number in 0..KEYS {
        db.put(key(number * 7 % KEYS), value(number, 100)).unwrap();
    }
    for number in 0..KEYS {
        match number % 5 {
            0 => db.delete(key(number)).unwrap(),
            1..3 => {}
            _ => db.put(key(number), value(number, 60)).unwrap(),
        }
    }
    let expected = content(&db).unwrap();
    let killed = rig.crashed(CrashMode::Keep);
    assert!(expected.len() as u64 > KEYS / 2);
    (killed, expected)
}

/// The database, with so many background threads.
fn opened(rig: &Rig, threads: usize) -> Db {
    match threads {
        0 => rig.open_inline(&Options::new()).unwrap(),
        _ => rig.open_threads(&Options::new(), threads).unwrap(),
    }
}

/// What was in the log is in two tables, each with half of the keys; without threads it is in one. Mutation: the halves
/// cut in the middle of a key's versions.
#[test]
fn a_long_log_becomes_two_tables() {
    let (rig, expected) = killed();
    for threads in [0, 2] {
        let rig = rig.copied();
        let db = opened(&rig, threads);
        assert_eq!(db.stats().levels[0].tables as usize, threads.max(1), "with {threads} threads");
        assert!(content(&db).unwrap() == expected, "with {threads} threads");
        assert_sound(&db);
        db.put(b"after", b"1").unwrap();
        db.close().unwrap();
        assert_eq!(rig.open_inline(&Options::new()).unwrap().get(b"after").unwrap().unwrap(), b"1");
    }
}

/// A log whose keys are versions of one can't be cut.
#[test]
fn versions_of_one_key_become_one_table() {
    let rig = Rig::new();
    let db = rig.open_inline(&Options::new()).unwrap();
    for number in 0..KEYS {
        db.put(b"key", value(number, 100)).unwrap();
    }
    let db = rig.crashed(CrashMode::Keep).open_threads(&Options::new(), 2).unwrap();
    assert_eq!(db.get(b"key").unwrap().unwrap(), value(KEYS - 1, 100));
    assert_eq!((db.stats().levels[0].tables, db.iter().count()), (1, 1));
}

/// When one of the tables can't be written, the open fails, and the next one finds everything.
#[test]
fn a_table_of_two_that_fails() {
    let (rig, expected) = killed();
    for nth in [1, 2, 3] {
        let rig = rig.copied();
        let faults = FaultVfs::new(Arc::new(rig.order.clone()));
        faults.arm(Fault::nth(nth).kind(CallKind::Append).path_suffix(".sst").os_error(5));
        let vfs: Arc<dyn Vfs> = Arc::new(faults.clone());
        let options = Options::new().background(Background::Threads(2));
        let failed = Db::open_with("/db", options.clone(), rig.components_on(vfs, &options));
        assert!(failed.is_err(), "append {nth} failed");
        let db = rig.open_threads(&Options::new(), 2).unwrap();
        assert!(content(&db).unwrap() == expected, "after append {nth} failed");
        assert_sound(&db);
    }
}

/// The log that was replayed goes: at the open, or, where there are threads, by one of them. Mutation: `set_leftovers` left out.
#[test]
fn the_replayed_log_is_removed() {
    let (rig, expected) = killed();
    for threads in [0, 2] {
        let rig = rig.copied();
        let db = opened(&rig, threads);
        within(MINUTE, "the old log is removed", || {
            while rig.names(".wal").len() > 1 {
                assert_ne!(threads, 0, "nobody else removes it");
                std::thread::yield_now();
            }
        });
        assert_eq!((rig.names(".wal").len(), db.stats().obsolete_files), (1, 0));
        // One that was not yet removed when the process died is of no use to the next open.
        let again = rig.crashed(CrashMode::Keep).open_inline(&Options::new()).unwrap();
        assert!(content(&again).unwrap() == expected, "with {threads} threads");
    }
}

/// An open makes as many calls for many tables as for one: tables are opened when something is looked for in them.
#[test]
fn an_open_opens_no_table() {
    let calls = [1, 60].map(|tables| {
        let rig = Rig::new();
        // No thread that makes calls of its own beside the open.
        let options = Options::new().l0_trigger(64).background(Background::Inline);
        let db = rig.open_inline(&options).unwrap();
        for number in 0..tables {
            db.put(key(number), value(number, 10)).unwrap();
            db.flush().unwrap();
        }
        assert_eq!(db.stats().levels[0].tables, tables);
        db.close().unwrap();
        let vfs = CountingVfs::new(Arc::new(rig.order.clone()));
        let db = Db::open_with("/db", options.clone(), rig.components_on(Arc::new(vfs.clone()), &options))
            .unwrap();
        let at_open = vfs.counts();
        for _ in 0..2 {
            assert_eq!(db.get(key(0_u64)).unwrap().unwrap(), value(0_u64, 10));
            assert_eq!(vfs.counts().opens() - at_open.opens(), 1, "only the table with the key");
        }
        at_open.total_calls()
    });
    assert_eq!(calls[0], calls[1]);
}
