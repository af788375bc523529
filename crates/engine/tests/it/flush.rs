//! Memtables that wait together for their flush.

use std::sync::Arc;
use std::time::Duration;

use esker::scheduler::Scheduler;
use esker::vfs::{CallKind, CrashMode, Fault, FaultVfs, ObserveVfs, Vfs};
use esker::{Components, Db, ManualClock, Options};

use crate::support::{Rig, StepScheduler, assert_sound, key, small, value};

/// Log segments far smaller than the memtable, so that it is they that seal memtables.
fn options() -> Options {
    small().memtable_size(1 << 20).wal_segment_size(16 << 10).table_size(256 << 10).l0_trigger(8)
}

struct Held {
    rig: Rig,
    faults: FaultVfs,
    clock: Arc<ManualClock>,
    scheduler: Arc<StepScheduler>,
    db: Db,
}

impl Held {
    fn open_on(rig: Rig, vfs: Arc<dyn Vfs>) -> Held {
        let (faults, clock) = (FaultVfs::new(vfs), Arc::new(ManualClock::new()));
        let scheduler = Arc::new(StepScheduler::default());
        let components = Components {
            scheduler: Arc::clone(&scheduler) as Arc<dyn Scheduler>,
            clock: clock.clone(),
            ..rig.components_on(Arc::new(faults.clone()), &options())
        };
        let db = Db::open_with("/db", options(), components).unwrap();
        scheduler.hold(true);
        Held { rig, faults, clock, scheduler, db }
    }

    fn open() -> Held {
        let rig = Rig::new();
        let vfs = Arc::new(rig.order.clone());
        Held::open_on(rig, vfs)
    }

    /// Writes and deletes keys, the same ones in each memtable, until so many are sealed. Returns the number of writes.
    fn seal(&self, memtables: u64) -> u64 {
        let mut number = 0;
        while self.db.stats().immutable_memtables < memtables {
            if number % 5 == 3 {
                self.db.delete(key(number % 40)).unwrap();
            } else {
                self.db.put(key(number % 40), value(number, 200)).unwrap();
            }
            number += 1;
        }
        number
    }

    fn tables(&self) -> u64 {
        self.db.stats().levels[0].tables
    }
}

/// What the keys hold after so many writes of [`Held::seal`].
fn check(get: impl Fn(&[u8]) -> Option<Vec<u8>>, writes: u64) {
    for slot in 0..40 {
        let last = (0..writes).rev().find(|number| number % 40 == slot);
        let expected = last.filter(|number| number % 5 != 3).map(|number| value(number, 200));
        assert_eq!(get(&key(slot)), expected, "key {slot} after {writes} writes");
    }
}

/// Purpose: three small memtables that wait become one table, in one edit; the present and a snapshot from the middle of
/// it read as before, and all log segments but the last are gone. Mutation: the oldest memtable wins.
#[test]
fn small_memtables_that_wait_become_one_table() {
    let held = Held::open();
    let first = held.seal(2);
    let snapshot = held.db.snapshot();
    let mut writes = first;
    while held.db.stats().immutable_memtables < 4 {
        held.db.put(key(writes % 40), value(writes, 200)).unwrap();
        writes += 1;
    }
    let expected: Vec<_> = (0..40_u64).map(|slot| held.db.get(key(slot)).unwrap()).collect();
    assert_eq!(held.rig.names(".wal").len(), 5);
    held.scheduler.run();

    let stats = held.db.stats();
    assert_eq!((stats.flushes, held.tables(), stats.immutable_memtables), (1, 1, 0), "{stats}");
    assert_eq!(held.rig.names(".wal").len(), 1);
    assert!(stats.levels[0].entries < 40 * 3, "what nobody can read is left out: {stats}");
    for (slot, expected) in (0..40_u64).zip(expected) {
        assert_eq!(held.db.get(key(slot)).unwrap(), expected, "{slot}");
    }
    check(|key| snapshot.get(key).unwrap().map(|value| value.to_vec()), first);
    assert_sound(&held.db);
    drop(snapshot);
    held.scheduler.hold(false);
    held.db.close().unwrap();
}

/// Purpose: full memtables are flushed one by one: a writer may be waiting for the memory of the first.
#[test]
fn full_memtables_are_flushed_one_by_one() {
    let rig = Rig::new();
    let (db, scheduler) =
        StepScheduler::open(&rig, &options().memtable_size(64 << 10).wal_segment_size(4 << 20));
    scheduler.hold(true);
    for number in 0_u64.. {
        db.put(key(number), value(number, 200)).unwrap();
        if db.stats().immutable_memtables == 3 {
            break;
        }
    }
    while db.stats().flushes == 0 && scheduler.step() {}
    let stats = db.stats();
    assert_eq!((stats.flushes, stats.immutable_memtables), (1, 2), "{stats}");
    scheduler.hold(false);
    db.close().unwrap();
}

/// Purpose: a flush that fails keeps every memtable and every log segment; the next takes one alone, and then the others
/// go together. Mutation: the memtables go before the edit.
#[test]
fn a_failed_flush_of_several_keeps_all() {
    for kind in [CallKind::Create, CallKind::Append, CallKind::SyncAll, CallKind::SyncDir] {
        let held = Held::open();
        let writes = held.seal(3);
        let fault = Fault::nth(1).kind(kind);
        held.faults.arm(if kind == CallKind::SyncDir { fault } else { fault.path_suffix(".sst") });
        held.scheduler.run();
        let stats = held.db.stats();
        assert_eq!((stats.flushes, held.tables(), stats.immutable_memtables), (0, 0, 3), "{kind:?}: {stats}");
        assert_eq!(held.rig.names(".wal").len(), 4);
        assert_eq!(held.rig.names(".sst").len(), 0, "{kind:?}");
        check(|key| held.db.get(key).unwrap().map(|value| value.to_vec()), writes);

        held.clock.advance(Duration::from_secs(600));
        held.scheduler.run();
        let stats = held.db.stats();
        assert_eq!((stats.flushes, held.tables(), stats.immutable_memtables), (2, 2, 0), "{kind:?}: {stats}");
        check(|key| held.db.get(key).unwrap().map(|value| value.to_vec()), writes);
        assert_sound(&held.db);
        held.scheduler.hold(false);
        held.db.close().unwrap();
    }
}

/// Purpose: a loss of power at any call of such a flush loses nothing. Mutation: a log segment goes before the edit.
#[test]
fn a_crash_in_a_flush_of_several_loses_nothing() {
    let rig = Rig::new();
    let images = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (mem, taken) = (rig.mem.clone(), Arc::clone(&images));
    let observe = move |call: &esker::vfs::Call<'_>, event| {
        if event == esker::vfs::Event::Before && call.kind.is_change() {
            let image = mem.crash_clone_with(CrashMode::Drop);
            taken.lock().unwrap().push((call.to_string(), image));
        }
    };
    let vfs = Arc::new(ObserveVfs::new(Arc::new(rig.order.clone()), Arc::new(observe)));
    let held = Held::open_on(rig, vfs);
    let writes = held.seal(3);
    held.db.sync().unwrap();
    images.lock().unwrap().clear();
    held.scheduler.run();
    assert_eq!((held.tables(), held.rig.names(".wal").len()), (1, 1));
    let images = std::mem::take(&mut *images.lock().unwrap());
    assert!(images.len() > 6, "{}", images.len());
    for (call, image) in images {
        println!("before {call}");
        let rig = Rig::on(image);
        let db = rig.open_inline(&options()).unwrap();
        check(|key| db.get(key).unwrap().map(|value| value.to_vec()), writes);
        assert_sound(&db);
    }
    held.scheduler.hold(false);
    held.db.close().unwrap();
}
