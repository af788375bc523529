//! PF and RS: work and memory that must not grow. Counts where counts tell; where only time does, with much room.

use std::sync::Arc;
use std::time::{Duration, Instant};

use allocation_counter::measure;
use esker::vfs::CountingVfs;
use esker::{Background, Db, Options};

use crate::support::{Rig, StepScheduler, assert_sound, key, small, value};

/// PF01. A seek over many fresh tombstones, before and after they are flushed and compacted. Mutation: the cursor steps
/// through all versions in place of seeking.
#[test]
fn pf01_a_seek_over_many_tombstones() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..30_000_u64).for_each(|number| db.put(key(number), value(number, 20)).unwrap());
    db.put("z", "last").unwrap();
    (0..30_000_u64).for_each(|number| db.delete(key(number)).unwrap());
    db.flush().unwrap();
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(db.iter().next().unwrap().unwrap().0, "z");
    }
    let took = start.elapsed() / 20;
    assert!(took < Duration::from_millis(20), "{took:?} when the background work is done\n{}", db.stats());
}

/// PF03. A burst of writes with background threads: level 0 stays below its stop and drains afterwards. Mutation: a
/// writer is not held up by level 0.
#[test]
fn pf03_level_0_stays_bounded_in_a_burst() {
    let rig = Rig::new();
    let db = rig.open_threads(&small().l0_trigger(2), 2).unwrap();
    let (mut most, mut slowest) = (0, Duration::ZERO);
    for number in 0..30_000_u64 {
        let start = Instant::now();
        db.put(key(number * 7919 % 20_000), value(number, 100)).unwrap();
        slowest = slowest.max(start.elapsed());
        if number % 16 == 0 {
            most = most.max(db.stats().levels[0].tables);
        }
    }
    assert!(most <= 24 + 5, "{most} tables in level 0");
    assert!(slowest < Duration::from_secs(10), "{slowest:?} for one write");
    let start = Instant::now();
    while db.stats().levels[0].tables > 2 {
        assert!(start.elapsed() < Duration::from_secs(30), "level 0 does not drain\n{}", db.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    db.close().unwrap();
}

/// PF06. Keys of 64 KiB behind a common prefix of 60 KiB: tables and what is read of them stay small. Mutation: the index
/// holds whole keys.
#[test]
fn pf06_long_keys_with_a_long_common_prefix() {
    let rig = Rig::new();
    let options =
        small().memtable_size(64 << 20).wal_segment_size(1 << 30).block_size(4096).table_size(64 << 20);
    let db = rig.open_inline(&options).unwrap();
    let long = |number: u64| [vec![b'p'; 60_000], value(2 * number + 1, 4_000)].concat();
    (0..300_u64).for_each(|number| db.put(long(number), "1").unwrap());
    db.compact_range::<&[u8], _>(..).unwrap();
    let bytes = db.stats().table_bytes();
    println!("{bytes} bytes for 300 keys of 64,000 bytes");
    db.close().unwrap();
    let counting = CountingVfs::new(Arc::new(rig.order.clone()));
    let db = Db::open_with("/db", options.clone(), rig.components_on(Arc::new(counting.clone()), &options))
        .unwrap();
    let opened = counting.counts();
    for number in 0..20_u64 {
        assert!(db.get(long(number * 7)).unwrap().is_some());
    }
    let read = (counting.counts() - opened).read_bytes();
    assert!(read < bytes + (4 << 20), "{read} bytes read for 20 gets of a table of {bytes}");
    assert_eq!(db.iter().count(), 300);
}

/// PF08. With 20,000 snapshots held, a flush and a compaction take about as long as with none. Mutation: each entry looks
/// through the list of snapshots.
#[test]
fn pf08_many_snapshots() {
    let time = |held: u64| {
        let rig = Rig::new();
        let db = rig.open_inline(&small().memtable_size(8 << 20).wal_segment_size(1 << 30)).unwrap();
        let mut snapshots = Vec::new();
        for number in 0..held {
            db.put(key(number), "1").unwrap();
            snapshots.push(db.snapshot());
        }
        db.flush().unwrap();
        (0..20_000_u64).for_each(|number| db.put(key(100_000 + number), value(number, 20)).unwrap());
        let start = Instant::now();
        db.flush().unwrap();
        db.compact_range(key(100_000_u64)..).unwrap();
        let took = start.elapsed();
        let start = Instant::now();
        drop(snapshots);
        println!("{held} snapshots: {took:?}, dropped in {:?}", start.elapsed());
        assert!(start.elapsed() < Duration::from_secs(10), "dropping them takes long");
        took
    };
    let (none, many) = (time(0), time(20_000));
    assert!(many < none * 10 + Duration::from_millis(500), "{none:?} without, {many:?} with snapshots");
}

/// PF11. One key is overwritten 100,000 times in the memtable: reads at the newest and at the oldest version stay fast.
/// Mutation: the versions of a key are a list.
#[test]
fn pf11_many_versions_of_one_key() {
    let rig = Rig::new();
    let db = rig.open_inline(&small().memtable_size(1 << 30).wal_segment_size(1 << 30)).unwrap();
    db.put("k", "first").unwrap();
    let snapshot = db.snapshot();
    (0..100_000_u64).for_each(|number| db.put("k", value(number, 10)).unwrap());
    let start = Instant::now();
    for _ in 0..2_000 {
        assert_eq!(db.get("k").unwrap().unwrap(), value(99_999_u64, 10));
        assert_eq!(snapshot.get("k").unwrap().unwrap(), "first");
        assert_eq!(snapshot.iter().next_back().unwrap().unwrap().1, "first");
        assert_eq!(db.range("a"..="k").count(), 1);
    }
    let took = start.elapsed() / 8_000;
    assert!(took < Duration::from_millis(1), "{took:?} a read");
}

/// PF13. After the writes have ended, the background work ends, with a snapshot held and with none. Mutation: the same
/// tables at the bottom are picked again.
#[test]
fn pf13_compaction_ends() {
    for held in [false, true] {
        let rig = Rig::new();
        let (db, scheduler) = StepScheduler::open(&rig, &small());
        let mut snapshots = Vec::new();
        for number in 0..4000_u64 {
            let key = key(number * 31 % 1500);
            if number % 5 == 0 {
                db.delete(key).unwrap()
            } else {
                db.put(key, value(number, 80)).unwrap()
            }
            if held && number % 200 == 0 {
                snapshots.push(db.snapshot());
            }
            if number % 100 == 0 {
                scheduler.run();
            }
        }
        db.flush().unwrap();
        let mut steps = 0;
        while scheduler.step() {
            steps += 1;
            assert!(steps < 2_000, "the work does not end, snapshots held: {held}\n{}", db.stats());
        }
        let done = db.stats().compactions;
        // Reads and dropped readers are no reason for more.
        drop(db.iter());
        assert_eq!((scheduler.run(), db.stats().compactions), (0, done));
        snapshots.truncate(1);
        assert!(scheduler.run() < 2_000);
        assert_sound(&db);
    }
}

/// RS05. A database is opened, read and dropped again and again: nothing stays allocated. Mutation: the core holds itself
/// alive.
#[test]
fn rs05_opening_and_dropping_leaks_nothing() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..500_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
    db.close().unwrap();
    let round = || {
        let db = rig.open_inline(&small()).unwrap();
        let snapshot = db.snapshot();
        assert_eq!(db.iter().rev().count(), 500);
        assert_eq!(snapshot.get(key(3_u64)).unwrap().unwrap(), value(3_u64, 60));
        rig.events.take();
    };
    round();
    let once = measure(round).bytes_current;
    let many = measure(|| (0..50).for_each(|_| round())).bytes_current;
    println!("{once} bytes after one round, {many} after 50");
    assert!(many < once.max(0) + (64 << 10), "{once} bytes stay after one round, {many} after 50");
}

/// RS03. One limit on memory bounds memtables and cache together, and writers are slowed, not failed. Mutation: the limit
/// is read by nobody.
#[test]
fn rs03_one_limit_on_memory() {
    let limit = 4 << 20;
    let rig = Rig::new();
    let options = Options::new().memory_limit(limit).background(Background::Inline).seed(1);
    let db = rig.open_inline(&options).unwrap();
    for number in 0..400_u64 {
        db.put(key(number % 100), value(2 * number + 1, 100_000)).unwrap();
        if number % 10 == 0 {
            assert!(db.get(key(number % 100)).unwrap().is_some());
            let stats = db.stats();
            let used = stats.memtable_bytes + stats.cache_bytes;
            assert!(used < limit as u64 + 400_000, "{used} bytes in use");
        }
    }
    assert!(db.stats().flushes > 5, "{}", db.stats());
}
