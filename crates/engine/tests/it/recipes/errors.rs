//! ER and CO: errors of the disk, and files that are not what they should be.

use std::io::ErrorKind as IoKind;
use std::sync::Arc;
use std::time::Duration;

use esker::scheduler::InlineScheduler;
use esker::vfs::{CallKind, CrashMode, Fault, FaultMode, FaultVfs};
use esker::{Background, Components, Db, ErrorKind, ManualClock, Options};

use crate::support::{Content, Rig, assert_sound, content, key, small, value};

/// A database on a disk that can be told to fail, with a clock that can be moved.
fn faulty(rig: &Rig, options: &Options) -> (Db, FaultVfs, Arc<ManualClock>) {
    let faults = FaultVfs::new(Arc::new(rig.order.clone()));
    let clock = Arc::new(ManualClock::new());
    let components = Components {
        scheduler: Arc::new(InlineScheduler::new()),
        clock: clock.clone(),
        ..rig.components_on(Arc::new(faults.clone()), options)
    };
    (Db::open_with("/db", options.clone(), components).unwrap(), faults, clock)
}

/// ER05, ER10. Every read and every change of a compaction fails once, in two ways: the compaction is tried again, no key
/// is lost, and in the end the shape is in its limits. Mutation: an error of an input ends the output; the marks of a
/// failed job stay.
#[test]
fn er05_every_call_of_a_compaction_fails_once() {
    for mode in [FaultMode::Before, FaultMode::After] {
        for nth in 1.. {
            let rig = Rig::new();
            let options = small().l0_trigger(64).cache_size(0);
            let (db, _, _) = faulty(&rig, &options);
            let mut wanted = Content::new();
            for number in 0..300_u64 {
                db.put(key(number % 120), value(number, 60)).unwrap();
                wanted.insert(key(number % 120), value(number, 60));
                if number % 50 == 49 {
                    db.flush().unwrap();
                }
            }
            db.close().unwrap();
            let (db, faults, clock) = faulty(&rig, &options);
            faults.arm(Fault::nth(nth).mode(mode).error(IoKind::Other));
            let _ = db.compact_range::<&[u8], _>(..);
            let fired = faults.fired() > 0;
            faults.disarm();
            let found = content(&db).unwrap_or_else(|error| panic!("{mode:?} {nth}: {error}"));
            assert!(found == wanted, "{mode:?} {nth}: content after a failed compaction");
            for _ in 0..4 {
                clock.advance(Duration::from_secs(600));
                let _ = db.resume();
            }
            db.compact_range::<&[u8], _>(..)
                .unwrap_or_else(|error| panic!("{mode:?} {nth}: it never heals: {error}"));
            assert!(content(&db).unwrap() == wanted);
            assert_eq!(db.stats().levels[0].tables, 0, "{mode:?} {nth}: no compaction any more");
            assert_sound(&db);
            db.close().unwrap();
            let next = rig.crashed(CrashMode::Drop);
            let db = next.open_inline(&options).unwrap();
            assert!(content(&db).unwrap() == wanted);
            if !fired {
                assert!(nth > 10, "{nth} calls");
                break;
            }
        }
    }
}

/// ER07, R4. The newest value in level 0 can't be read, and an older one lies deeper: an error for this key, never the old
/// value; the others are answered. Mutation: `multi_get` goes on to the next level after an error.
#[test]
fn er07_an_older_value_is_never_the_answer() {
    let rig = Rig::new();
    let (db, faults, _) = faulty(&rig, &small().cache_size(0).l0_trigger(64));
    (0..100_u64).for_each(|number| db.put(key(number), "old").unwrap());
    db.compact_range::<&[u8], _>(..).unwrap();
    db.put(key(50_u64), "new").unwrap();
    db.delete(key(51_u64)).unwrap();
    db.flush().unwrap();
    let newest = rig.names(".sst").pop().unwrap();
    assert_eq!(db.get(key(50_u64)).unwrap().unwrap(), "new");
    for mode in [FaultMode::Before, FaultMode::Short, FaultMode::Flip] {
        faults.arm(Fault::always().kind(CallKind::Read).path_suffix(&newest).mode(mode));
        for gone in [50_u64, 51] {
            db.get(key(gone)).unwrap_err();
            db.get_with(key(gone), <[u8]>::len).unwrap_err();
            db.contains_key(key(gone)).unwrap_err();
        }
        let found = db.multi_get(&[key(10_u64), key(50_u64), key(51_u64), key(90_u64), b"absent".to_vec()]);
        assert_eq!(found[0].as_ref().unwrap().as_deref(), Some(&b"old"[..]));
        assert!(found[1].is_err() && found[2].is_err());
        assert_eq!(found[3].as_ref().unwrap().as_deref(), Some(&b"old"[..]));
        assert!(found[4].as_ref().unwrap().is_none());
        let mut keys: Vec<_> = (0..100_u64).map(key).collect();
        keys.push(b"absent".to_vec());
        let mut calls = vec![0; keys.len()];
        db.multi_get_with(&keys, |number, answer| {
            calls[number] += 1;
            match number {
                50 | 51 => assert!(answer.is_err(), "{mode:?}"),
                100 => assert_eq!(answer.unwrap(), None),
                _ => assert_eq!(answer.unwrap(), Some(&b"old"[..])),
            }
        });
        assert!(calls.iter().all(|calls| *calls == 1), "{calls:?}");
        faults.disarm();
        assert_eq!(db.get(key(50_u64)).unwrap().unwrap(), "new", "an error is not remembered");
        assert_eq!(db.get(key(51_u64)).unwrap(), None);
    }
}

/// ER08. A store of five sources; the n-th read fails, for every n, during scans in both directions: a prefix of the right
/// answer, then the error. Mutation: the merge takes a source that fails for one that ended.
#[test]
fn er08_every_read_of_a_scan_fails() {
    let rig = Rig::new();
    let options = small().cache_size(0).l0_trigger(64);
    let (db, faults, _) = faulty(&rig, &options);
    for source in 0..5_u64 {
        for number in 0..60_u64 {
            match (number + source) % 4 {
                0 => db.delete(key(number)).unwrap(),
                1 | 2 => db.put(key(number), value(source * 100 + number, 60)).unwrap(),
                _ => {}
            }
        }
        if source < 4 {
            db.flush().unwrap();
        }
    }
    let wanted: Vec<_> = content(&db).unwrap().into_iter().collect();
    for backward in [false, true] {
        for nth in 1.. {
            faults.arm(Fault::nth(nth).kind(CallKind::Read));
            let before = faults.fired();
            let mut iter = db.iter();
            let mut seen = 0;
            let failed = loop {
                match if backward { iter.next_back() } else { iter.next() } {
                    Some(Ok((key, value))) => {
                        let at = if backward { wanted.len() - 1 - seen } else { seen };
                        assert_eq!((&key[..], &value[..]), (&wanted[at].0[..], &wanted[at].1[..]));
                        seen += 1;
                    }
                    Some(Err(error)) => {
                        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error:?}");
                        break true;
                    }
                    None => break false,
                }
            };
            let fired = faults.fired() > before;
            faults.disarm();
            // A block that does not match is read once more; a read that fails is told at once.
            assert_eq!(failed, fired, "read {nth}");
            if !fired {
                assert!(seen == wanted.len() && nth > 10, "{nth} reads");
                break;
            }
        }
    }
}

/// RS04. No file can be opened any more: an error of that call only, and right again when there are some. Mutation: the
/// failed open of a table is remembered.
#[test]
fn rs04_no_more_open_files() {
    let rig = Rig::new();
    let (db, _, _) = faulty(&rig, &small());
    (0..500_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
    db.close().unwrap();
    let (db, faults, _) = faulty(&rig, &small());
    // 24 is EMFILE on all Unix systems.
    faults.arm(Fault::always().kind(CallKind::Open).os_error(24));
    for number in 0..20_u64 {
        let error = db.get(key(number)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{error:?}");
        assert!(db.iter().next().unwrap().is_err());
    }
    db.put("still", "writes").unwrap();
    faults.disarm();
    assert_eq!(db.iter().count(), 501);
    assert!(db.background_error().is_none());
}

/// CO10. A table is cut while the database is open, on the real disk: an error, not a signal. Mutation: tables are mapped
/// into memory.
#[test]
fn co10_a_table_is_cut_while_it_is_open() {
    let temp = tempfile::tempdir().unwrap();
    let db = small().cache_size(0).background(Background::Inline).open(temp.path()).unwrap();
    (0..500_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
    db.flush().unwrap();
    assert_eq!(db.iter().count(), 500);
    for entry in std::fs::read_dir(temp.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(300).unwrap();
        }
    }
    let failed = (0..500_u64).filter(|number| db.get(key(*number)).is_err()).count();
    assert!(failed > 300, "{failed} gets fail");
    assert!(db.iter().any(|entry| entry.is_err()));
    assert!(!db.verify().unwrap().is_clean());
}

/// CO15. Two tables of one database are swapped, an older table comes back under a newer number, and one of another
/// database under the right name. Mutation: the table's id is not compared with the manifest.
#[test]
fn co15_misplaced_tables() {
    let make = |seed: u64| {
        let rig = Rig::new();
        let db = rig.open_inline(&small().l0_trigger(64).seed(seed)).unwrap();
        for round in 0..2_u64 {
            (0..20_u64).for_each(|number| db.put(key(number), value(100 * round + number, 40)).unwrap());
            db.flush().unwrap();
        }
        db.close().unwrap();
        rig
    };
    let (rig, other) = (make(1), make(2));
    let names = rig.names(".sst");
    assert_eq!((names.len(), &names), (2, &other.names(".sst")));
    let refuses = |rig: &Rig, what: &str| match rig.copied().open_inline(&small()) {
        Err(error) => assert!(error.is_corruption(), "{what}: {error:?}"),
        Ok(db) => {
            for number in 0..20_u64 {
                if let Ok(found) = db.get(key(number)) {
                    assert_eq!(found.as_deref(), Some(&value(100 + number, 40)[..]), "{what}: a wrong value");
                }
            }
            assert!(!db.verify().unwrap().is_clean(), "{what}: nothing tells");
        }
    };
    let (first, second) = (rig.read(&names[0]), rig.read(&names[1]));
    let swapped = rig.copied();
    swapped.write(&names[0], &second);
    swapped.write(&names[1], &first);
    refuses(&swapped, "swapped");
    let old = rig.copied();
    old.write(&names[1], &first);
    refuses(&old, "an old copy");
    let foreign = rig.copied();
    foreign.write(&names[1], &other.read(&names[1]));
    refuses(&foreign, "a table of another database");
    // Two blocks of a table of the same length, swapped in their place.
    let block = second.len() / 4;
    let mut blocks = second.clone();
    blocks.copy_within(32..32 + block, 32 + block);
    let inside = rig.copied();
    inside.write(&names[1], &blocks);
    refuses(&inside, "a block in the place of another");
}
