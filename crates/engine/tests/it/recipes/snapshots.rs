//! SN: snapshots and the order of versions.

use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use esker::vfs::{Call, CallKind, CrashMode, Event, ObserveVfs};
use esker::{Db, Options, Snapshot};
use esker_base::SplitMix64;
use esker_testkit::{Model, WriteOp};

use crate::support::{Rig, StepScheduler, assert_sound, content, key, small, snapshot_content, value, write};

/// SN01. Snapshots every 50 writes over 20 hot keys, of which the last ten are held; everything is compared after every
/// step of the background work. Mutation: a compaction moves the newest version of a key below an older one.
#[test]
fn sn01_snapshots_over_hot_keys() {
    let rig = Rig::new();
    let (db, scheduler) = StepScheduler::open(&rig, &small());
    let mut model = Model::new();
    let mut held: Vec<(Snapshot, u64)> = Vec::new();
    let mut rng = SplitMix64::new(1);
    let mut steps = 0;
    for number in 0..6000_u64 {
        let key = key(rng.below(20));
        let op = if rng.percent(20) { WriteOp::Delete(key) } else { WriteOp::Put(key, value(number, 80)) };
        write(&db, std::slice::from_ref(&op), esker_testkit::Promise::Default).unwrap();
        model.apply(&[op]);
        if number % 50 == 0 {
            if held.len() == 10 {
                model.release(held.remove(0).1);
            }
            held.push((db.snapshot(), model.snapshot()));
        }
        // Sometimes nothing is done for long.
        while rng.percent(20) && scheduler.step() {
            steps += 1;
            assert!(content(&db).unwrap() == model.content(model.now()), "at write {number}");
            for (snapshot, at) in &held {
                assert!(snapshot_content(snapshot).unwrap() == model.content(*at), "at write {number}");
            }
        }
    }
    assert!(steps > 100 && db.stats().compactions > 10, "{steps} steps\n{}", db.stats());
    assert_sound(&db);
}

/// SN03. A range that was deleted stays deleted after a compaction of everything, over several levels. Mutation: a
/// tombstone is dropped one level too early.
#[test]
fn sn03_deleted_ranges_stay_deleted() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    let name = |range: &str, number: u64| format!("{range}{number:06}");
    (0..6000_u64).for_each(|number| db.put(name("a", number), value(number, 50)).unwrap());
    (0..6000_u64).for_each(|number| db.put(name("b", number), value(number, 50)).unwrap());
    (0..6000_u64).for_each(|number| db.delete(name("b", number)).unwrap());
    assert!(db.stats().levels.iter().filter(|level| level.tables > 0).count() >= 2, "{}", db.stats());
    assert_eq!(db.prefix("b").count(), 0);
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_eq!((db.prefix("a").count(), db.prefix("b").count()), (6000, 0));
    db.compact_range("a003000".."b003000").unwrap();
    assert_eq!((db.prefix("a").count(), db.prefix("b").rev().count()), (6000, 0));
}

/// SN05. Below a tombstone at the bottom, a version that a snapshot sees is kept; when the snapshot is gone, nothing of
/// the key is. Mutation: a tombstone at the bottom drops all older versions.
#[test]
fn sn05_a_version_below_a_bottom_tombstone() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    db.put("k", "old").unwrap();
    let snapshot = db.snapshot();
    db.delete("k").unwrap();
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_eq!(snapshot.get("k").unwrap().unwrap(), "old");
    assert_eq!(snapshot.iter().count(), 1);
    assert_eq!(db.get("k").unwrap(), None);
    drop(snapshot);
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_eq!(db.stats().tables(), 0, "something of the key is left\n{}", db.stats());
}

/// SN07. A snapshot is taken and the key overwritten between every two steps of a long compaction, which has captured its
/// list of snapshots before. Mutation: versions newer than the captured visible number are dropped.
#[test]
fn sn07_snapshots_that_are_taken_during_a_compaction() {
    let rig = Rig::new();
    let options = small()
        .memtable_size(4 << 20)
        .wal_segment_size(4 << 20)
        .table_size(1 << 20)
        .l0_trigger(2)
        .block_size(1024);
    let (db, scheduler) = StepScheduler::open(&rig, &options);
    let load = || {
        (0..15_000_u64).for_each(|number| db.put(key(number), value(number, 10)).unwrap());
        db.flush().unwrap();
    };
    load();
    load();
    load();
    let mut snapshots = Vec::new();
    let mut steps = 0;
    while scheduler.step() {
        for at in [0_u64, 7_000, 14_999] {
            db.put(key(at), format!("{steps} at {at}")).unwrap();
        }
        snapshots.push((db.snapshot(), steps));
        if steps % 5 == 4 {
            db.flush().unwrap();
        }
        steps += 1;
        assert!(steps < 500, "the compaction does not end");
    }
    assert!(steps > 5, "the compaction had {steps} steps");
    db.compact_range::<&[u8], _>(..).unwrap();
    for (snapshot, step) in &snapshots {
        for at in [0_u64, 7_000, 14_999] {
            assert_eq!(snapshot.get(key(at)).unwrap().unwrap(), *format!("{step} at {at}"));
        }
    }
    assert_sound(&db);
}

/// SN12, SN13. An old value deep down, a tombstone above it, and compactions of every part in every order: it stays
/// deleted, and no newer version lies below an older one. Mutation: deeper levels are asked about the upper inputs only.
#[test]
fn sn12_a_tombstone_never_sinks_below_its_value() {
    for seed in 0..20 {
        let mut rng = SplitMix64::new(seed);
        let rig = Rig::new();
        let db = rig.open_inline(&small().l0_trigger(1 + rng.below(3) as usize)).unwrap();
        db.put("k", "old").unwrap();
        (0..rng.below(800)).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
        db.compact_range::<&[u8], _>(..).unwrap();
        db.delete("k").unwrap();
        for round in 0..12_u64 {
            (0..rng.below(200)).for_each(|number| db.put(key(number * 3), value(round, 60)).unwrap());
            match rng.below(4) {
                0 => db.flush().unwrap(),
                1 => db.compact_range(key(rng.below(400))..).unwrap(),
                2 => db.compact_range::<&str, _>(.."k").unwrap(),
                _ => db.compact_range("k"..="k").unwrap(),
            }
            assert_eq!(db.get("k").unwrap(), None, "seed {seed}, round {round}");
            assert_eq!(db.range("k"..="k").count(), 0);
        }
        assert_sound(&db);
    }
}

/// SN16. Tables of a few entries and one hot key with many versions: everything is compared after each step of the
/// compactor. Mutation: the inputs are not widened to all tables that share a user key.
#[test]
fn sn16_a_hot_key_over_tiny_tables() {
    let rig = Rig::new();
    let (db, scheduler) = StepScheduler::open(&rig, &small());
    let mut model = Model::new();
    let mut held = Vec::new();
    for number in 0..50_u64 {
        for key in [key(500_u64), key(number * 20), key(501_u64)] {
            let op = WriteOp::Put(key, value(number, 500));
            write(&db, std::slice::from_ref(&op), esker_testkit::Promise::Default).unwrap();
            model.apply(&[op]);
        }
        held.push((db.snapshot(), model.snapshot()));
        if number % 4 == 3 {
            db.flush().unwrap();
        }
        while number % 3 == 2 && scheduler.step() {
            assert!(content(&db).unwrap() == model.content(model.now()));
            for (snapshot, at) in &held {
                assert_eq!(snapshot.get(key(500_u64)).unwrap().as_deref(), model.get(&key(500_u64), *at));
            }
        }
    }
    scheduler.run();
    for (snapshot, at) in &held {
        assert!(snapshot_content(snapshot).unwrap() == model.content(*at));
    }
    assert_sound(&db);
}

/// DW13, SN09. While a writer is between its log and its memtable, a flush is asked for and a snapshot is taken: whatever
/// the disk then holds, the write is there after a crash and visible after its call, and the snapshot shows the version
/// before it, also when everything was compacted meanwhile. Mutation: the memtable is sealed without the lock of the log;
/// compactions keep what is newest, not what is visible.
#[test]
fn dw13_sn09_between_log_and_memtable() {
    type Shared = (Mutex<Option<Db>>, Mutex<Vec<JoinHandle<esker::Result<()>>>>, Mutex<Vec<Snapshot>>);
    let rig = Rig::new();
    let options = small();
    let shared: Arc<Shared> = Arc::default();
    let observe = {
        let shared = Arc::clone(&shared);
        move |call: &Call<'_>, event: Event| {
            let is_log = call.path.extension().is_some_and(|extension| extension == "wal");
            let is_record = event == Event::Succeeded && call.kind == CallKind::Append && call.bytes > 64;
            let db = shared.0.lock().unwrap().clone();
            if is_log
                && is_record
                && let Some(db) = db
            {
                shared.2.lock().unwrap().push(db.snapshot());
                shared.1.lock().unwrap().push(thread::spawn(move || db.flush()));
                thread::sleep(Duration::from_millis(3));
            }
        }
    };
    let vfs = Arc::new(ObserveVfs::new(Arc::new(rig.order.clone()), Arc::new(observe)));
    let db = Db::open_with("/db", options.clone(), rig.components_on(vfs, &Options::new())).unwrap();
    db.put("k", value(0_u64, 200)).unwrap();
    *shared.0.lock().unwrap() = Some(db.clone());
    for number in 1..40_u64 {
        db.put("k", value(number, 200)).unwrap();
        assert_eq!(db.get("k").unwrap().unwrap(), value(number, 200));
        let image = rig.crashed(CrashMode::Keep).open_inline(&options).unwrap();
        assert_eq!(image.get("k").unwrap().unwrap(), value(number, 200));
    }
    *shared.0.lock().unwrap() = None;
    for flusher in shared.1.lock().unwrap().drain(..) {
        flusher.join().unwrap().unwrap();
    }
    db.compact_range::<&[u8], _>(..).unwrap();
    let snapshots = std::mem::take(&mut *shared.2.lock().unwrap());
    assert_eq!(snapshots.len(), 39);
    for (number, snapshot) in snapshots.iter().enumerate() {
        assert_eq!(snapshot.get("k").unwrap().unwrap(), value(number as u64, 200));
    }
    assert!(db.stats().flushes > 0);
    assert_sound(&db);
}
