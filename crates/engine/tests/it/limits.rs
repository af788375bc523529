//! Limits of the system: a disk that gets full, handles that run out, readers that are forgotten, and what an open needs.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use esker::scheduler::InlineScheduler;
use esker::vfs::{
    Call, CallKind, CountingVfs, Event as When, Fault, FaultVfs, MemVfs, ObserveVfs, OpenFiles, Vfs,
};
use esker::{
    Background, Components, Db, DbState, Error, ErrorKind, Event, ManualClock, Options, WriteBatch,
    WriteOptions,
};

use crate::support::{Rig, assert_sound, content, key, small, value};

fn free(rig: &Rig) -> u64 {
    rig.mem.free_space(Path::new("/db")).unwrap().unwrap()
}

/// Puts until one is refused; how many were taken, and the error of the next.
fn fill(db: &Db, from: u64, options: &WriteOptions) -> (u64, Error) {
    for number in from..100_000 {
        if let Err(error) = db.put_with(key(number), value(number, 200), options) {
            return (number, error);
        }
    }
    panic!("the disk never gets full: {}", db.stats());
}

/// B5. The defaults are made for large disks, and hold on a small one: it fills up, what was written can be read, deleted
/// and compacted, and a database that was closed on a full disk opens again. Mutation: `fitted` returns the options.
#[test]
fn b5_the_defaults_on_a_small_disk() {
    let rig = Rig::on(MemVfs::with_quota(8 << 20));
    let db = rig.open_inline(&Options::new()).unwrap();
    let (written, refused) = fill(&db, 0, &WriteOptions::new());
    assert!(refused.is_no_space() && written > 20_000, "{written}: {refused}");
    assert!(db.stats().flushes > 2, "{}", db.stats());
    for number in 0..written / 2 {
        db.delete(key(number)).unwrap_or_else(|error| panic!("delete {number}: {error}"));
    }
    assert!(db.background_error().is_none());
    db.close().unwrap();
    let db = rig.open_inline(&Options::new()).unwrap();
    assert_eq!(content(&db).unwrap().len() as u64, written - written / 2);
    assert_sound(&db);
}

/// What is printed of a handle has neither data nor the hash seed in it.
#[test]
fn what_is_printed_is_short() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..2000_u64).for_each(|number| db.put(key(number), b"a secret value").unwrap());
    let mut cursor = db.cursor().unwrap();
    cursor.seek_to_first().unwrap();
    let mut iterator = db.iter();
    iterator.next().unwrap().unwrap();
    let commit = db.submit(WriteBatch::new(), &WriteOptions::new()).unwrap();
    for printed in [
        format!("{db:?}"),
        format!("{:?}", db.snapshot()),
        format!("{cursor:?}"),
        format!("{iterator:?}"),
        format!("{commit:?}"),
    ] {
        assert!(printed.contains("/db") && printed.len() < 400 && !printed.contains("secret"), "{printed}");
    }
}

/// B5. Writes stop before the disk is full, with an error that says all of it and latches nothing. Reads, deletes, flushes
/// and compactions go on; when they have made room, so do writes, by themselves. Mutation: deletes are refused as well.
#[test]
fn b5_writes_stop_before_the_disk_is_full() {
    for (min_free, sync) in [(0, true), (0, false), (100_000, true), (100_000, false)] {
        let rig = Rig::on(MemVfs::with_quota(2 << 20));
        let db = rig.open_inline(&small().min_free_space(min_free)).unwrap();
        let options = if sync { WriteOptions::sync() } else { WriteOptions::new() };
        let reserve = db.stats().space_reserve;
        assert_eq!(reserve, min_free + (32 << 10), "a segment and four tables");
        let (written, refused) = fill(&db, 0, &options);
        let text = refused.to_string();
        assert!(refused.is_no_space() && text.contains("/db") && text.contains("needs"), "{text}");
        assert!(free(&rig) >= reserve / 2, "{} of {reserve} bytes are left", free(&rig));
        assert!(db.background_error().is_none(), "nothing is latched");
        assert!(
            matches!(db.state(), DbState::LowSpace { cause } if cause.to_string().contains("bytes are free"))
        );
        assert!(db.stats().refused_for_space >= 1, "{}", db.stats());

        let mut batch = WriteBatch::new();
        batch.delete(key(0_u64)).put(b"new", b"1");
        assert!(db.write_with(batch, &options).unwrap_err().is_no_space(), "a batch that adds something");
        assert!(db.get(key(0_u64)).unwrap().is_some(), "and none of it is there");
        for number in 0..written / 2 {
            db.delete_with(key(number), &options).unwrap_or_else(|error| panic!("delete {number}: {error}"));
        }
        db.compact_range::<&[u8], _>(..).unwrap();
        assert!(free(&rig) > reserve);
        let (more, _) = fill(&db, written, &options);
        assert!(
            more > written + written / 4,
            "{written} writes, half of them deleted, and then up to {more}"
        );
        let events = rig.events.take();
        assert!(
            events.iter().any(|event| matches!(event, Event::SpaceLow { free, needed } if free < needed))
        );
        assert!(events.iter().any(|event| matches!(event, Event::SpaceBack { .. })));
        assert!(!events.iter().any(|event| matches!(event, Event::BackgroundError { .. })));
        assert_eq!(content(&db).unwrap().len() as u64, more - written / 2);
        assert_sound(&db);
        db.close().unwrap();
    }
}

/// The same with threads, two compactions and a flush at once: nobody hangs, nothing is latched, what was acknowledged is
/// there, and deletes with a compaction make room. With a reserve of its own and with the ballast alone. Mutations: no
/// room is made for edits; compactions do not see what the others are going to write.
#[test]
fn b5_with_threads() {
    for min_free in [200_000, 0] {
        b5_with_threads_and(min_free);
    }
}

fn b5_with_threads_and(min_free: u64) {
    let rig = Rig::on(MemVfs::with_quota(3 << 20));
    let db = rig.open_threads(&small().min_free_space(min_free), 3).unwrap();
    let first = |writer: u64| writer * 100_000 / 8;
    let written: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4_u64)
            .map(|writer| {
                let db = &db;
                let options = if writer % 2 == 0 { WriteOptions::sync() } else { WriteOptions::new() };
                scope.spawn(move || {
                    let (end, error) = fill(db, first(writer), &options);
                    assert!(error.is_no_space(), "{error}");
                    end
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    match db.state() {
        DbState::LowSpace { .. } | DbState::Open => {}
        // A flush beside compactions may have to wait for them.
        DbState::Degraded { cause } => assert!(cause.is_no_space(), "{cause}"),
        state => panic!("{state:?}"),
    }
    let keys = || (0..4_u64).zip(&written).map(|(writer, end)| first(writer)..*end);
    for number in keys().flatten() {
        assert!(db.get(key(number)).unwrap().is_some_and(|found| found == value(number, 200)));
    }
    let before = free(&rig);
    for number in keys().flatten().filter(|number| number % 2 == 0) {
        db.delete(key(number)).unwrap_or_else(|error| panic!("delete {number}: {error}\n{}", db.stats()));
    }
    db.compact_range::<&[u8], _>(..).unwrap_or_else(|error| panic!("compact: {error}\n{}", db.stats()));
    // A worker may be about to remove the last tables.
    let patience = Instant::now();
    while free(&rig) < before + (1 << 20) {
        assert!(
            patience.elapsed() < Duration::from_secs(20),
            "{before} bytes were free, and now {}",
            free(&rig)
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(matches!(db.state(), DbState::Open), "{:?}", db.state());
    let events = rig.events.take();
    assert!(!events.iter().any(|event| matches!(event, Event::BackgroundError { latched: true, .. })));
    let left: Vec<u64> = keys().flatten().filter(|number| number % 2 == 1).collect();
    assert_eq!(content(&db).unwrap().len(), left.len());
    for number in left {
        assert!(db.get(key(number)).unwrap().is_some_and(|found| found == value(number, 200)));
    }
    db.put(b"again", b"1").unwrap();
    assert_sound(&db);
    db.close().unwrap();
}

/// Somebody else fills the disk, and goes away again. A write that is larger than the rest of the disk is refused before
/// anything of it is written.
#[test]
fn b5_others_fill_the_disk() {
    let rig = Rig::on(MemVfs::with_quota(1 << 20));
    let db = rig.open_inline(&small()).unwrap();
    (0..100_u64).for_each(|number| db.put(key(number), value(number, 200)).unwrap());
    let before = rig.mem.total_bytes();
    assert!(db.put(b"large", vec![7; 1 << 20]).unwrap_err().is_no_space());
    assert_eq!(rig.mem.total_bytes(), before, "a part of it was written");
    db.put(b"small", b"1").unwrap();
    rig.mem.set_quota(before + 14_000);
    let (written, refused) = fill(&db, 100, &WriteOptions::new());
    assert!(refused.is_no_space() && written < 150 && free(&rig) > 0, "{written}");
    assert!(db.resume().unwrap_err().is_no_space(), "there is nothing to resume yet");
    db.delete(key(0_u64)).unwrap();
    rig.mem.set_quota(1 << 20);
    db.put(b"again", b"1").unwrap();
    assert!(!matches!(db.state(), DbState::LowSpace { .. }), "{:?}", db.state());
    db.resume().unwrap();
    assert!(matches!(db.state(), DbState::Open), "{:?}", db.state());
    assert_sound(&db);
}

/// A disk of a few kilobytes is not kept empty: the ballast shrinks with it.
#[test]
fn b5_a_tiny_disk_can_be_used() {
    for quota in [20_000, 60_000] {
        let rig = Rig::on(MemVfs::with_quota(quota));
        let db = rig.open_inline(&Options::new().background(Background::Inline).seed(1)).unwrap();
        fill(&db, 0, &WriteOptions::sync());
        assert!(free(&rig) < quota / 8, "{} of {quota} bytes are not used", free(&rig));
        assert!(matches!(db.state(), DbState::LowSpace { .. }));
        assert!(db.get(key(0_u64)).unwrap().is_some());
    }
}

/// The descriptors of this process that lead into `dir`.
fn descriptors(dir: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    links
        .filter(|link| std::fs::read_link(link.as_ref().unwrap().path()).is_ok_and(|to| to.starts_with(dir)))
        .count()
}

/// Tables of 4 KiB, and eight of them open.
fn few_handles() -> Options {
    small().memtable_size(1 << 20).wal_segment_size(1 << 20).max_open_files(8)
}

/// RS01. Twenty databases in one process, each with many tables, read and written by turns: the handles stay bounded, by
/// one bound for all of them if they share it. Mutation: the bound is not kept.
#[test]
fn rs01_many_databases_share_the_handles() {
    let dir = tempfile::tempdir().unwrap();
    for shared in [true, false] {
        let files = Arc::new(OpenFiles::new(10));
        let dbs: Vec<Db> = (0..20)
            .map(|number| {
                let options = few_handles().max_open_files(2).seed(number);
                let components = Components {
                    open_files: shared.then(|| Arc::clone(&files)),
                    ..Components::for_options(&options)
                };
                Db::open_with(dir.path().join(format!("{shared}{number}")), options, components).unwrap()
            })
            .collect();
        for db in &dbs {
            (0..600_u64).for_each(|number| {
                db.put_with(key(number), value(number, 150), &WriteOptions::wal(false)).unwrap()
            });
            db.compact_range::<&[u8], _>(..).unwrap();
        }
        assert!(dbs[0].stats().tables() >= 15, "{}", dbs[0].stats());
        let mut most = 0;
        for round in 0..100 {
            let db = &dbs[round % 20];
            for number in 0..20_u64 {
                let number = (number * 97 + round as u64) % 600;
                assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number, 150));
            }
            most = most.max(descriptors(dir.path()));
        }
        let bound = if shared { 10 } else { 40 };
        assert!(most <= bound + 20 * 4, "{most} descriptors");
        assert!(dbs.iter().map(|db| db.stats().open_files).max().unwrap() <= bound as u64);
        for db in &dbs {
            assert_eq!(db.iter().map(Result::unwrap).count(), 600);
            assert_sound(db);
        }
    }
}

/// One handle for hundreds of tables, and for eight threads that read them while others write and compact: right answers, no
/// wait without end, and no more files open than are being read. Mutation: what is pushed out stays open.
#[test]
fn one_handle_for_many_readers() {
    const KEYS: u64 = 6_000;
    let dir = tempfile::tempdir().unwrap();
    let options = few_handles().max_open_files(1).cache_size(0).compression(esker::Compression::None);
    let db = options.background(Background::Threads(2)).open(dir.path()).unwrap();
    let bulk = WriteOptions::wal(false);
    let fill = || (0..KEYS).for_each(|number| db.put_with(key(number), value(number, 200), &bulk).unwrap());
    fill();
    db.compact_range::<&[u8], _>(..).unwrap();
    let tables = db.stats().tables();
    assert!(tables > 200, "{tables} tables");
    let (stop, most) = (AtomicBool::new(false), AtomicUsize::new(0));
    let reader = |seed: u64| {
        let mut rng = esker_base::SplitMix64::new(seed);
        while !stop.load(SeqCst) {
            if rng.percent(90) {
                let number = rng.below(KEYS);
                assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number, 200));
            } else {
                let first = rng.below(KEYS - 100);
                let range = db.range(key(first)..key(first + 100)).map(Result::unwrap);
                let right = (first..).zip(range).map(|(number, entry)| {
                    assert!(entry.0 == key(number) && entry.1 == value(number, 200), "{number}: {entry:?}");
                });
                assert_eq!(right.count(), 100);
            }
        }
    };
    esker_testkit::within(Duration::from_secs(100), "readers of one handle", || {
        std::thread::scope(|scope| {
            let reader = &reader;
            (0..8).for_each(|seed| drop(scope.spawn(move || reader(seed))));
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    most.fetch_max(descriptors(dir.path()), SeqCst);
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            fill();
            db.compact_range::<&[u8], _>(..).unwrap();
            stop.store(true, SeqCst);
        });
    });
    // Of a reader one, of a job its inputs and an output, and the log, the manifest, the lock.
    let most = most.into_inner();
    println!("{tables} tables, {most} descriptors");
    assert!(most <= 1 + 8 + 2 * 6 + 5, "{most} descriptors");
    assert!(db.stats().open_files <= 1);
    assert_sound(&db);
}

/// RS04. Two thousand tables and a small cache: what an open table costs is small and the same for each, and no more than
/// the bound are open. Then no handle is left at any open of a read: an error of that call only, or none at all when
/// others can be closed. Mutation: EMFILE latches, or a table that can't be opened is skipped.
#[test]
fn rs04_many_tables_few_handles() {
    let rig = Rig::new();
    let counting = CountingVfs::new(Arc::new(rig.order.clone()));
    let faults = FaultVfs::new(Arc::new(counting.clone()));
    let options = few_handles().cache_size(64 << 10).compression(esker::Compression::None);
    let components = Components {
        scheduler: Arc::new(InlineScheduler::new()),
        ..rig.components_on(Arc::new(faults.clone()), &options)
    };
    let db = Db::open_with("/db", options.clone(), components).unwrap();
    const KEYS: u64 = 40_000;
    (0..KEYS)
        .for_each(|number| db.put_with(key(number), value(number, 200), &WriteOptions::wal(false)).unwrap());
    db.compact_range::<&[u8], _>(..).unwrap();
    let tables = db.stats().tables();
    assert!(tables > 1500, "{tables} tables");
    let read = |number: u64| assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number, 200));
    let all = allocation_counter::measure(|| (0..KEYS).step_by(10).for_each(read));
    let each = all.bytes_max / tables;
    println!("{tables} tables: {} bytes at most, {each} for each", all.bytes_max);
    assert!(each < 4096, "{each} bytes for each table");
    assert!(db.stats().open_files <= 8);

    // A block that is cached needs no handle.
    read(77);
    let calls = faults.calls();
    read(77);
    assert_eq!(faults.calls(), calls);

    for nth in [1, 2, 5] {
        faults.arm(Fault::nth(nth).kind(CallKind::Open).os_error(24));
        // Others each time: what was read before may be cached.
        (100 * nth..KEYS).step_by(1001).for_each(read);
        faults.disarm();
    }
    assert_eq!(faults.fired(), 3, "others were closed, and the open tried once more");
    faults.arm(Fault::always().kind(CallKind::Open).os_error(24));
    let errors = (0..KEYS).step_by(1001).filter(|&number| match db.get(key(number)) {
        Ok(found) => {
            assert_eq!(found.unwrap(), value(number, 200));
            false
        }
        Err(error) => {
            assert!(
                error.to_string().contains(".sst") && error.to_string().contains("os error 24"),
                "{error}"
            );
            true
        }
    });
    assert!(errors.count() > 30);
    assert!(db.iter().any(|entry| entry.is_err()), "a scan");
    assert!(matches!(db.state(), DbState::Open), "{:?}", db.state());
    db.put(b"written", b"1").unwrap();
    faults.disarm();
    (0..KEYS).step_by(1001).for_each(read);
    assert_eq!(db.iter().map(Result::unwrap).count() as u64, KEYS + 1);
}

/// No handle is left for the files that are written: a segment, a table, a directory that is to be synced. While tables
/// are open, nobody notices; else it is an error that names the file, and nothing is latched.
#[test]
fn emfile_while_writing() {
    for kind in [CallKind::Create, CallKind::SyncDir] {
        for forever in [false, true] {
            let rig = Rig::new();
            let faults = FaultVfs::new(Arc::new(rig.order.clone()));
            let clock = Arc::new(ManualClock::new());
            let components = Components {
                clock: clock.clone(),
                scheduler: Arc::new(InlineScheduler::new()),
                ..rig.components_on(Arc::new(faults.clone()), &small())
            };
            let db = Db::open_with("/db", small(), components).unwrap();
            (0..300_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
            db.flush().unwrap();
            (0..300_u64).for_each(|number| assert!(db.get(key(number)).unwrap().is_some()));
            assert!(db.stats().open_files > 0);
            db.put(b"more", b"1").unwrap();
            let fault = Fault::nth(1).kind(kind).os_error(24);
            faults.arm(if forever { fault.forever() } else { fault });
            match db.flush() {
                Ok(()) => assert!(!forever),
                Err(error) => assert!(forever && error.to_string().contains("os error 24"), "{error}"),
            }
            faults.disarm();
            clock.advance(Duration::from_secs(400));
            if !matches!(db.state(), DbState::Open) {
                db.resume().unwrap();
            }
            db.put(b"again", b"1").unwrap();
            db.flush().unwrap();
            assert_eq!(content(&db).unwrap().len(), 302);
            assert_sound(&db);
        }
    }
}

/// RS07, scaled: the memory that an open needs is that of its log and of the tables' names, not of the data.
#[test]
fn rs07_an_open_needs_little_memory() {
    let rig = Rig::new();
    let options =
        Options::new().background(Background::Inline).seed(1).cache_size(1 << 20).memtable_size(1 << 20);
    let options = options.table_size(64 << 10).base_level_size(1 << 20);
    let db = rig.open_inline(&options).unwrap();
    let bulk = WriteOptions::wal(false);
    (0..200_000_u64).for_each(|number| db.put_with(key(number), value(number, 100), &bulk).unwrap());
    db.flush().unwrap();
    let (bytes, tables) = (db.stats().table_bytes(), db.stats().tables());
    db.close().unwrap();
    let opened = allocation_counter::measure(|| {
        let db = rig.open_inline(&options).unwrap();
        assert!(db.get(key(77_u64)).unwrap().is_some());
    });
    println!("{bytes} bytes in {tables} tables: an open takes {} bytes", opened.bytes_max);
    assert!(opened.bytes_max < (1 << 20) + (2 << 20) + 4096 * tables, "{} bytes", opened.bytes_max);
}

/// D4. Who holds what, and since when, shows. Mutation: pictures of the past are not kept in mind.
#[test]
fn d4_forgotten_readers_show() {
    let rig = Rig::new();
    let clock = Arc::new(ManualClock::new());
    let components = Components {
        clock: clock.clone(),
        scheduler: Arc::new(InlineScheduler::new()),
        ..rig.components(&small())
    };
    let db = Db::open_with("/db", small(), components).unwrap();
    let rewrite = || {
        (0..200_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
        db.compact_range::<&[u8], _>(..).unwrap();
    };
    rewrite();
    let nothing = db.stats();
    assert_eq!((nothing.cursors, nothing.oldest_pin_age), (0, None), "{nothing}");
    assert_eq!((nothing.pinned_table_bytes, nothing.pinned_memtable_bytes), (0, 0), "{nothing}");

    let cursor = db.cursor().unwrap();
    let iter = db.iter();
    let now = db.stats();
    assert_eq!((now.cursors, now.oldest_pin_age), (2, None), "they show the present");
    let bytes = now.table_bytes();
    rewrite();
    clock.advance(Duration::from_secs(60));
    let snapshot = db.snapshot();
    clock.advance(Duration::from_secs(7));
    let held = db.stats();
    assert_eq!((held.cursors, held.snapshots), (2, 1), "{held}");
    assert_eq!(held.oldest_pin_age, Some(Duration::from_secs(67)), "{held}");
    assert!(held.pinned_table_bytes >= bytes && held.pinned_memtable_bytes > 0, "{held}");
    assert!(held.to_string().contains("pinned     for 67s"), "{held}");

    drop((cursor, iter));
    let left = db.stats();
    assert_eq!((left.cursors, left.oldest_pin_age), (0, Some(Duration::from_secs(7))), "{left}");
    assert_eq!((left.pinned_table_bytes, left.pinned_memtable_bytes), (0, 0), "{left}");
    drop(snapshot);
    assert_eq!(db.stats().oldest_pin_age, None);
}

/// A close that failed says so to everybody who closes after it. Mutation: the second close returns `Ok`.
#[test]
fn a_failed_close_stays_failed() {
    let rig = Rig::new();
    let faults = FaultVfs::new(Arc::new(rig.order.clone()));
    let components = Components {
        scheduler: Arc::new(InlineScheduler::new()),
        ..rig.components_on(Arc::new(faults.clone()), &small())
    };
    let db = Db::open_with("/db", small(), components).unwrap();
    let (second, third) = (db.clone(), db.clone());
    db.put(b"k", b"v").unwrap();
    faults.arm(Fault::always().kind(CallKind::SyncAll).os_error(5));
    let first = db.close().unwrap_err().to_string();
    faults.disarm();
    assert!(first.contains(".sst") && first.contains("os error 5"), "{first}");
    assert_eq!(second.close().unwrap_err().to_string(), first);
    assert!(matches!(third.put(b"k", b"w").unwrap_err().kind(), ErrorKind::Closed));
    drop(third);
    let db = rig.open_inline(&small()).unwrap();
    let second = db.clone();
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"v");
    db.close().unwrap();
    second.close().unwrap();
}

/// A read that is under way while another handle closes the database, and whose table the next process removes, is told
/// that the database is closed, not that it is damaged. Mutation: the error of the read as it is.
#[test]
fn a_read_that_a_close_overtakes_is_told_so() {
    for scan in [false, true] {
        let rig = Rig::new();
        let last = Arc::new(Mutex::new(None::<Db>));
        let (closing, mem) = (Arc::clone(&last), rig.mem.clone());
        let overtake = move |call: &Call<'_>, event: When| {
            if call.kind == CallKind::Open
                && event == When::Before
                && call.path.extension().is_some_and(|e| e == "sst")
            {
                let db = closing.lock().unwrap().take();
                if let Some(db) = db {
                    db.close().unwrap();
                    mem.remove(call.path).unwrap();
                }
            }
        };
        let components = Components {
            scheduler: Arc::new(InlineScheduler::new()),
            ..rig.components_on(
                Arc::new(ObserveVfs::new(Arc::new(rig.mem.clone()), Arc::new(overtake))),
                &small(),
            )
        };
        let db = Db::open_with("/db", small(), components).unwrap();
        db.put(b"k", b"v").unwrap();
        db.flush().unwrap();
        *last.lock().unwrap() = Some(db.clone());
        let error = if scan { db.iter().next().unwrap().unwrap_err() } else { db.get(b"k").unwrap_err() };
        assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
    }
}

/// A log segment that claims to be huge, and is a hole, is no reason to wait. Mutation: holes are read.
#[test]
fn a_huge_hole_at_the_end_of_a_log_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    db.put(b"k", b"v").unwrap();
    drop(db);
    let log = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let log = log.filter(|path| path.extension().is_some_and(|end| end == "wal")).max().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    if file.set_len(1 << 42).is_err() {
        println!("skipped: no file of that length here");
        return;
    }
    let begun = Instant::now();
    let db = small().open(dir.path()).unwrap();
    assert_eq!(db.get(b"k").unwrap().unwrap(), b"v");
    let took = begun.elapsed();
    println!("{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
