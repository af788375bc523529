//! DW: durability of the log.

use std::io::ErrorKind as IoKind;
use std::sync::Arc;
use std::time::Duration;

use esker::scheduler::InlineScheduler;
use esker::vfs::{Call, CallKind, CrashMode, Event, Fault, FaultMode, FaultVfs, LostData, ObserveVfs, Vfs};
use esker::{Components, Db, ErrorKind, Options, RecoveryMode, WriteBatch, WriteOptions};
use esker_testkit::within;

use crate::support::{Rig, StepScheduler, assert_sound, crash_points, key, small, value};

/// A disk with `count` writes in several log segments, none of which is flushed.
fn unflushed(count: u64) -> Rig {
    let rig = Rig::new();
    let (db, scheduler) = StepScheduler::open(&rig, &small());
    scheduler.hold(true);
    (0..count).for_each(|number| db.put(key(number), value(number, 300)).unwrap());
    assert!(rig.names(".wal").len() >= 4, "{:?}", rig.names(".wal"));
    assert_eq!(db.stats().tables(), 0);
    rig.crashed(CrashMode::Keep)
}

/// How many of the writes of `unflushed` are there, which must be the first ones.
fn first_ones(db: &Db) -> u64 {
    let mut count = 0;
    for entry in db.iter() {
        let (found, held) = entry.unwrap();
        assert_eq!((&found[..], &held[..]), (&key(count)[..], &value(count, 300)[..]), "a hole");
        count += 1;
    }
    count
}

fn open_on(rig: &Rig, vfs: Arc<dyn Vfs>, options: &Options) -> esker::Result<Db> {
    let components =
        Components { scheduler: Arc::new(InlineScheduler::new()), ..rig.components_on(vfs, options) };
    Db::open_with("/db", options.clone(), components)
}

/// DW14. All segments are replayed, in order, when none was flushed. Mutation: only the newest segment is replayed.
#[test]
fn dw14_all_segments_are_replayed() {
    let rig = unflushed(130);
    assert_eq!(first_ones(&rig.open_inline(&small()).unwrap()), 130);
}

/// DW01, DW07. The first of several segments ends early: a refusal, or a stop before the gap, never later writes without
/// earlier ones. In point-in-time mode the prefix is there, and what was left out is kept. Mutation: the length that a
/// successor states is not compared.
#[test]
fn dw01_an_older_segment_that_ends_early() {
    let whole = unflushed(130);
    let first = whole.names(".wal").remove(0);
    let bytes = whole.read(&first);
    let mut refused = 0;
    for cut in (1..200).chain([bytes.len() - 64, bytes.len() - 10, bytes.len()]) {
        let rig = whole.copied();
        rig.write(&first, &bytes[..bytes.len() - cut]);
        match rig.open_inline(&small()) {
            Ok(db) => assert!(first_ones(&db) < 130, "what was cut off is there?"),
            Err(error) => {
                assert!(error.is_corruption(), "{error:?}");
                refused += 1;
            }
        }
        let rig = whole.copied();
        rig.write(&first, &bytes[..bytes.len() - cut]);
        let lenient = small().recovery(RecoveryMode::PointInTime);
        let db = rig.open_inline(&lenient).unwrap();
        let kept = first_ones(&db);
        assert!(kept < 60, "{kept} of the first segment are there");
        db.put_with("later", "1", &WriteOptions::sync()).unwrap();
        drop(db);
        let db = rig.crashed(CrashMode::Drop).open_inline(&small()).unwrap();
        assert_eq!(db.iter().count() as u64, kept + 1, "the open after a point-in-time recovery");
    }
    println!("{refused} refused");
}

/// DW03. A torn record at the end of the log, followed by an empty newer segment. Mutation: the newest segment without a
/// header makes the open fail.
#[test]
fn dw03_a_torn_end_before_an_empty_segment() {
    let whole = unflushed(130);
    let last = whole.names(".wal").pop().unwrap();
    let bytes = whole.read(&last);
    for garbage in [0, 1, 20, 300] {
        for empty in [0, 10, 64] {
            let rig = whole.copied();
            // Half of a record that was never acknowledged.
            let torn = [&bytes[..], &bytes[64..64 + garbage]].concat();
            rig.write(&last, &torn);
            rig.write("000900.wal", &vec![0; empty]);
            let rig = rig.copied();
            let db = rig.open_inline(&small()).unwrap();
            assert_eq!(first_ones(&db), 130, "{garbage} bytes and a segment of {empty}");
            drop(db);
            assert_eq!(first_ones(&rig.open_inline(&small()).unwrap()), 130);
        }
    }
}

/// DW05. A record larger than any buffer is cut at many places: it is there as a whole or not at all. Mutation: the end
/// of the file ends a record.
#[test]
fn dw05_a_large_record_is_whole_or_not_there() {
    let rig = Rig::new();
    let (db, scheduler) = StepScheduler::open(&rig, &small());
    scheduler.hold(true);
    db.put("before", "1").unwrap();
    let mut batch = WriteBatch::new();
    (0..700_u64).for_each(|number| {
        batch.put(key(number), value(number, 1000));
    });
    db.write(batch).unwrap();
    let whole = rig.crashed(CrashMode::Keep);
    let name = whole.names(".wal").pop().unwrap();
    let bytes = whole.read(&name);
    assert!(bytes.len() > 700_000);
    for cut in (0..bytes.len()).step_by(8191).chain(bytes.len() - 20..bytes.len()) {
        let rig = whole.copied();
        rig.write(&name, &bytes[..cut]);
        let db = match rig.copied().open_inline(&small()) {
            Ok(db) => db,
            Err(error) if cut < 64 => {
                assert!(error.is_corruption());
                continue;
            }
            Err(error) => panic!("cut at {cut}: {error}"),
        };
        assert!(db.iter().count() <= 1, "a part of the batch is there");
    }
    assert_eq!(whole.open_inline(&small()).unwrap().iter().count(), 701);
}

/// DW08, DW12. A log with a batch larger than the memtable between small ones, so that replay itself flushes: power is
/// lost at each call of the open, and of the open after that. Mutation: a flush during replay moves the log number.
#[test]
fn dw08_power_losses_during_replay() {
    let rig = Rig::new();
    let (db, scheduler) = StepScheduler::open(&rig, &small());
    scheduler.hold(true);
    (0..50_u64).for_each(|number| db.put(key(number), value(number, 200)).unwrap());
    let mut batch = WriteBatch::new();
    (50..300_u64).for_each(|number| {
        batch.put(key(number), value(number, 200));
    });
    db.write(batch).unwrap();
    (300..320_u64).for_each(|number| db.put(key(number), value(number, 200)).unwrap());
    db.sync().unwrap();
    let crashed = rig.crashed(CrashMode::Drop);
    let mode =
        |number: u64| if number.is_multiple_of(2) { CrashMode::Drop } else { CrashMode::from_seed(number) };
    let open = |rig: &Rig| {
        let rig = rig.clone();
        move |vfs: Arc<dyn Vfs>| {
            let db = open_on(&rig, vfs, &small()).expect("it opens");
            assert_eq!(db.iter().count(), 320);
            assert_sound(&db);
        }
    };
    let first = crash_points(&crashed, mode, open(&crashed));
    assert!(first.len() > 25, "{} calls", first.len());
    for (index, (call, image)) in first.iter().enumerate() {
        let images = if index % 5 == 0 { crash_points(image, mode, open(image)) } else { Vec::new() };
        for (second, image) in images {
            let db =
                image.open_inline(&small()).unwrap_or_else(|error| panic!("{call}, then {second}: {error}"));
            assert_eq!(db.iter().count(), 320, "{call}, then {second}");
        }
        if index % 5 != 0 {
            open(image)(Arc::new(image.order.clone()));
        }
    }
}

/// DW16. The close of an old segment fails, as a late write-back does. Whoever got `Ok` for a synced write finds it.
/// Mutation: the result of `close` decides nothing, and the old segment was never synced.
#[test]
fn dw16_a_failed_close_of_an_old_segment() {
    for sync in [true, false] {
        let rig = Rig::new();
        let faults = FaultVfs::over_mem(&rig.mem);
        faults.arm(Fault::always().kind(CallKind::Close).path_suffix(".wal").mode(FaultMode::After));
        let db = open_on(&rig, Arc::new(faults), &small()).unwrap();
        let mut acknowledged = 0;
        for number in 0..400_u64 {
            let options = if sync { WriteOptions::sync() } else { WriteOptions::new() };
            match db.put_with(key(number), value(number, 300), &options) {
                Ok(()) if sync => acknowledged = number + 1,
                Ok(()) if number % 100 == 99 && db.sync().is_ok() => acknowledged = number + 1,
                Ok(()) => {}
                Err(_) => break,
            }
        }
        assert!(acknowledged > 0);
        let image = rig.crashed(CrashMode::Drop);
        let found = first_ones(&image.open_inline(&small()).unwrap());
        assert!(found >= acknowledged, "{found} of {acknowledged}");
    }
}

/// DW20. The last record is torn at every byte; synced writes after that are all there after the next crash. Mutation: the
/// open appends to the torn segment.
#[test]
fn dw20_writes_after_a_torn_tail() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..3_u64).for_each(|number| db.put(key(number), value(number, 50)).unwrap());
    drop(db);
    let name = rig.names(".wal").pop().unwrap();
    let bytes = rig.read(&name);
    for cut in 1..=70 {
        for garbage in [0, 7] {
            let torn = rig.copied();
            torn.write(&name, &[&bytes[..bytes.len() - cut], &vec![0xa5; garbage]].concat());
            let torn = torn.copied();
            let db = torn.open_inline(&small()).unwrap();
            let kept = db.iter().count();
            (10..20_u64).for_each(|n| db.put_with(key(n), value(n, 30), &WriteOptions::sync()).unwrap());
            drop(db);
            let next = torn.crashed(CrashMode::Drop);
            assert_eq!(next.open_inline(&small()).unwrap().iter().count(), kept + 10, "cut by {cut}");
        }
    }
}

/// DW22. All logs of a closed database are deleted: the open refuses, or what is written afterwards is there. Never a
/// silent loss. Mutation: a new segment gets a number below the one that the manifest asks for.
#[test]
fn dw22_all_logs_deleted() {
    for recovery in [RecoveryMode::Strict, RecoveryMode::PointInTime] {
        let rig = Rig::new();
        let db = rig.open_inline(&small()).unwrap();
        db.put("a", "1").unwrap();
        db.close().unwrap();
        for name in rig.names(".wal") {
            rig.mem.remove(&rig.path(&name)).unwrap();
        }
        let rig = rig.copied();
        match rig.open_inline(&small().recovery(recovery)) {
            Err(error) => assert!(error.is_corruption() && recovery == RecoveryMode::Strict, "{error:?}"),
            Ok(db) => {
                db.put("b", "2").unwrap();
                db.close().unwrap();
                let db = rig.open_inline(&small()).unwrap();
                assert_eq!(db.iter().count(), 2);
            }
        }
    }
}

/// DW24, ER13. Eight synced writers, and the n-th append or sync fails, for every n: whoever gets `Ok` is there after a
/// power loss, nobody hangs, and later writes are refused. Mutation: followers of a failed group get `Ok`.
#[test]
fn dw24_followers_of_a_failed_group() {
    let mut grouped = false;
    for (kind, lose) in [
        (CallKind::Append, None),
        (CallKind::SyncData, Some(LostData::ReadsNew)),
        (CallKind::SyncData, Some(LostData::ReadsOld)),
    ] {
        for nth in 1..=25 {
            let rig = Rig::new();
            let faults = FaultVfs::over_mem(&rig.mem);
            // A slow device, so that writers queue up behind one another.
            let dawdle = |call: &Call<'_>, event: Event| {
                if event == Event::Before && matches!(call.kind, CallKind::Append | CallKind::SyncData) {
                    std::thread::sleep(Duration::from_micros(300));
                }
            };
            let vfs = Arc::new(ObserveVfs::new(Arc::new(faults.clone()), Arc::new(dawdle)));
            let options = Options::new().seed(1);
            let db = Db::open_with("/db", options.clone(), rig.components_on(vfs, &options)).unwrap();
            let mut fault = Fault::nth(nth).kind(kind).path_suffix(".wal").error(IoKind::Other);
            if let Some(shown) = lose {
                fault = fault.lose_pending(shown);
            }
            faults.arm(fault);
            let results: Vec<Vec<bool>> = within(Duration::from_secs(60), "eight writers", || {
                std::thread::scope(|scope| {
                    let db = &db;
                    let writers: Vec<_> = (0..8_u64)
                        .map(|writer| {
                            scope.spawn(move || {
                                let put = |number: u64| {
                                    let key = format!("{writer}/{number}");
                                    db.put_with(key, value(number, 40), &WriteOptions::sync()).is_ok()
                                };
                                (0..8).map(put).collect()
                            })
                        })
                        .collect();
                    writers.into_iter().map(|writer| writer.join().unwrap()).collect()
                })
            });
            if faults.fired() == 0 {
                // So few were enough for all.
                assert!(nth > 4 && results.iter().flatten().all(|ok| *ok));
                break;
            }
            assert!(results.iter().flatten().any(|ok| !ok), "nobody was told");
            grouped |= db.stats().log_syncs + 8 < db.stats().batches;
            if lose.is_some() {
                let error = db.put("later", "1").unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::ReadOnly { .. }), "{error:?}");
            }
            drop(db);
            let db = rig.crashed(CrashMode::Drop).open_inline(&options).unwrap();
            for (writer, results) in results.iter().enumerate() {
                for (number, _) in results.iter().enumerate().filter(|(_, ok)| **ok) {
                    assert!(
                        db.contains_key(format!("{writer}/{number}")).unwrap(),
                        "{kind:?} {nth}: {writer}/{number}"
                    );
                }
            }
        }
    }
    assert!(grouped, "no groups were formed");
}

/// F5. What an open has replayed is durable before its first answer, whatever the page cache showed. Mutation: the open
/// keeps the old segments in place of flushing what it replayed.
#[test]
fn f5_what_was_replayed_is_durable() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..20_u64).for_each(|number| db.put(key(number), value(number, 50)).unwrap());
    drop(db);
    // The process dies, the system goes on: nothing was synced, and everything can be read.
    let kept = rig.crashed(CrashMode::Keep);
    assert_eq!(kept.crashed(CrashMode::Drop).open_inline(&small()).unwrap().iter().count(), 0);
    let db = kept.open_inline(&small()).unwrap();
    assert_eq!(db.iter().count(), 20);
    assert_eq!(kept.crashed(CrashMode::Drop).open_inline(&small()).unwrap().iter().count(), 20);
}
