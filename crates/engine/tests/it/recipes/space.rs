//! SP: space that must come back.

use std::panic::{AssertUnwindSafe, catch_unwind};

use esker::vfs::Vfs;
use esker_testkit::WriteOp;

use crate::support::{Rig, assert_sound, key, small, value};

/// The files of the directory are those of the present version, and a few of log and manifest.
fn assert_no_leftovers(rig: &Rig, db: &esker::Db) {
    let tables = rig.names(".sst").len() as u64;
    assert_eq!(tables, db.stats().tables(), "{:?}\n{}", rig.names(""), db.stats());
    assert!(rig.names("").len() as u64 <= tables + 5, "{:?}", rig.names(""));
    assert_eq!(db.stats().obsolete_files, 0);
}

/// SP03. Iterators, snapshots and cursors live while tables under them are compacted away; when they are gone, so are the
/// files. Mutation: the last reader of a table does not tell.
#[test]
fn sp03_files_go_with_their_last_reader() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    let mut readers = Vec::new();
    for round in 0..40_u64 {
        (0..100_u64).for_each(|number| db.put(key(number), value(round * 100 + number, 100)).unwrap());
        let mut iter = db.iter();
        iter.next().unwrap().unwrap();
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_last().unwrap();
        readers.push((iter, cursor, db.snapshot()));
        if readers.len() == 6 {
            readers.remove(2);
        }
    }
    assert!(rig.names(".sst").len() as u64 > db.stats().tables(), "nothing was held");
    for (iter, mut cursor, _) in readers.drain(..) {
        assert_eq!(iter.count(), 99);
        cursor.seek_to_first().unwrap();
        assert!(cursor.valid());
    }
    assert_no_leftovers(&rig, &db);
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_no_leftovers(&rig, &db);
}

/// SP05, PF01. A queue: what was pushed is popped in order. At the end it takes no space, and its first entry is found at
/// once all along. Mutation: tombstones are dropped by manual compactions only.
#[test]
fn sp05_an_emptied_queue_takes_no_space() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    let (mut pushed, mut popped) = (0_u64, 0_u64);
    while popped < 20_000 {
        if pushed < 20_000 {
            db.put(key(pushed), value(pushed, 60)).unwrap();
            pushed += 1;
        }
        if pushed - popped > 50 || pushed == 20_000 {
            if popped % 64 == 0 {
                let first = db.iter().next().unwrap().unwrap();
                assert_eq!(first.0, key(popped));
            }
            db.delete(key(popped)).unwrap();
            popped += 1;
        }
    }
    assert!(db.iter().next().is_none());
    db.flush().unwrap();
    // The manifest may grow to a megabyte before a new one is worth while.
    let bytes = rig.mem.total_bytes();
    assert!(bytes < 1200 << 10, "{bytes} bytes for nothing\n{}", db.stats());
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_eq!(db.stats().tables(), 0, "{}", db.stats());
    assert_no_leftovers(&rig, &db);
}

/// SP06. Everything is deleted and compacted: no entry and no table is left. Mutation: tombstones are kept at the bottom.
#[test]
fn sp06_everything_deleted_leaves_no_table() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..3000_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
    (0..3000_u64).for_each(|number| db.delete(key(number)).unwrap());
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_eq!((db.stats().tables(), db.stats().table_bytes()), (0, 0), "{}", db.stats());
    assert!(rig.names(".sst").is_empty());
    db.close().unwrap();
    assert!(rig.mem.total_bytes() < 64 << 10, "{} bytes", rig.mem.total_bytes());
}

/// SP07. Most of the data is deleted and then nothing is written any more: space comes back without a manual call.
/// Mutation: only the size of a level is a reason to compact.
#[test]
fn sp07_a_quiet_database_frees_deleted_space() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..10_000_u64).for_each(|number| db.put(key(number), value(number, 100)).unwrap());
    let full = db.stats().table_bytes();
    for number in (0..10_000_u64).filter(|number| number % 20 != 0) {
        db.delete(key(number)).unwrap();
    }
    db.flush().unwrap();
    // The background work is done before the call returns.
    let (bytes, live) = (db.stats().table_bytes(), full / 20);
    assert!(bytes < 2 * live + (64 << 10), "{bytes} bytes for {live} live ones\n{}", db.stats());
    assert_eq!(db.iter().count(), 500);
}

/// SP11. The same ten large values are overwritten again and again. Mutation: a level is compacted by its number of tables.
#[test]
fn sp11_overwritten_values_take_no_space() {
    let rig = Rig::new();
    let db = rig.open_inline(&small().table_size(256 << 10).base_level_size(256 << 10)).unwrap();
    let mut most = 0;
    for number in 0..2000_u64 {
        db.put(key(number % 10), value(2 * number + 1, 50_000)).unwrap();
        most = most.max(rig.mem.total_bytes());
    }
    let live = 10 * 50_000;
    assert!(most < 8 * live, "{most} bytes at most for {live} live ones\n{}", db.stats());
    assert!(rig.mem.total_bytes() < 4 * live, "{} bytes\n{}", rig.mem.total_bytes(), db.stats());
}

/// SP12. A user's closure panics inside a read, and is caught: nothing is leaked and no lock is poisoned. Mutation: the
/// closure is called with a lock held.
#[test]
fn sp12_a_panic_in_a_closure_harms_nothing() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    for round in 0..20_u64 {
        (0..100_u64).for_each(|number| db.put(key(number), value(round, 100)).unwrap());
        let result = catch_unwind(AssertUnwindSafe(|| db.get_with(key(5_u64), |_| panic!("on purpose"))));
        assert!(result.is_err());
        let snapshot = db.snapshot();
        let result =
            catch_unwind(AssertUnwindSafe(|| snapshot.get_with(key(5_u64), |_| panic!("on purpose"))));
        assert!(result.is_err());
    }
    assert_eq!(db.get(key(5_u64)).unwrap().unwrap(), value(19_u64, 100));
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_no_leftovers(&rig, &db);
    assert_sound(&db);
    db.close().unwrap();
}

/// D3. A removal that fails is tried again later, and by the next open. Mutation: a failed removal is forgotten.
#[test]
fn d3_a_failed_removal_is_tried_again() {
    use esker::vfs::{CallKind, Fault, FaultVfs};
    use std::sync::Arc;
    let rig = Rig::new();
    let faults = FaultVfs::new(Arc::new(rig.order.clone()));
    let options = small();
    let mut components = rig.components_on(Arc::new(faults.clone()), &options);
    components.scheduler = Arc::new(esker::scheduler::InlineScheduler::new());
    let db = esker::Db::open_with("/db", options, components).unwrap();
    faults.arm(Fault::always().kind(CallKind::Remove));
    let load = || (0..300_u64).for_each(|number| db.put(key(number), value(number, 100)).unwrap());
    load();
    db.compact_range::<&[u8], _>(..).unwrap();
    assert!(db.background_error().is_none() && db.stats().obsolete_files > 0);
    faults.disarm();
    load();
    db.compact_range::<&[u8], _>(..).unwrap();
    assert_no_leftovers(&rig, &db);
    // A stop with files left over: the next open finds them.
    faults.arm(Fault::always().kind(CallKind::Remove));
    load();
    db.compact_range::<&[u8], _>(..).unwrap();
    drop(db);
    faults.disarm();
    let db = rig.open_inline(&small()).unwrap();
    assert_no_leftovers(&rig, &db);
}

/// D4. Nothing of a failed write stays: a batch that is refused takes no space in memory. Mutation: the memtable is filled
/// before the batch is checked.
#[test]
fn refused_batches_take_no_space() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    let before = (db.stats().memtable_bytes, rig.mem.total_bytes());
    for _ in 0..100 {
        let ops = [WriteOp::Put(key(1_u64), value(1_u64, 1000)), WriteOp::Put(vec![0; 70_000], Vec::new())];
        db.write(crate::support::batch(&ops)).unwrap_err();
    }
    assert_eq!((db.stats().memtable_bytes, rig.mem.total_bytes()), before);
    assert!(rig.mem.list(std::path::Path::new("/db")).unwrap().len() < 6);
}
