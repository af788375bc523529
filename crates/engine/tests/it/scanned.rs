//! Tombstones in the way of scans.

use esker::{Background, Db, Options};

use crate::support::{Rig, key};

/// Entries that wait in the queue, puts and pops a turn.
const WAITING: u32 = 500;

fn pop(db: &Db) -> Vec<u8> {
    let mut cursor = db.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let first = cursor.key().to_vec();
    drop(cursor);
    db.delete(&first).unwrap();
    first
}

/// Who takes the first entry of a queue steps over all that were taken before. Once this has cost as much as a flush and a
/// compaction, they are done, although no memtable is full and no level too large.
///
/// Fails when scans tell nobody, or the picker does not look.
#[test]
fn a_queue_gets_rid_of_what_was_taken() {
    let rig = Rig::new();
    let options = Options::new().background(Background::Inline);
    let db = Db::open_with("/db", options.clone(), rig.components(&options)).unwrap();
    for number in 0..WAITING {
        db.put(key(number), b"value").unwrap();
    }
    let mut most = 0;
    for number in 0..5_500u32 {
        db.put(key(WAITING + number), b"value").unwrap();
        assert_eq!(pop(&db), key(number));
        most = most.max(db.stats().memtable_entries);
    }
    let stats = db.stats();
    assert!(stats.flushes >= 2 && stats.compactions >= 1, "{stats:?}");
    assert!(most < 5_500, "{most} entries in the memtable");
    db.compact_range::<&[u8], _>(..).unwrap();
    let left: Vec<_> = db.iter().map(|entry| entry.unwrap().0.to_vec()).collect();
    assert_eq!(left, (5_500..5_500 + WAITING).map(key).collect::<Vec<_>>());
}

/// What a snapshot reads can't go, so nothing is done in vain.
///
/// Fails when the memtable is sealed over and over beside a snapshot.
#[test]
fn a_snapshot_keeps_what_scans_step_over() {
    let rig = Rig::new();
    let options = Options::new().background(Background::Inline);
    let db = Db::open_with("/db", options.clone(), rig.components(&options)).unwrap();
    for number in 0..2_000u32 {
        db.put(key(number), b"value").unwrap();
    }
    let snapshot = db.snapshot();
    for number in 0..2_000u32 {
        db.delete(key(number)).unwrap();
    }
    for _ in 0..1_200 {
        assert_eq!(db.iter().count(), 0);
        db.put(key(5_000u32), b"value").unwrap();
        db.delete(key(5_000u32)).unwrap();
    }
    assert_eq!(db.stats().flushes, 0);
    assert_eq!(snapshot.iter().count(), 2_000);
}
