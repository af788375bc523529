//! Real threads and real processes: whole batches, values that only grow, closing under load, and a kill at any moment.
//!
//! These tests find what a schedule by chance shows; what can be decided on one thread is tested elsewhere. Each has a
//! watchdog.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use esker::vfs::CrashMode;
use esker::{Background, Db, ErrorKind, Options, WriteBatch, WriteOptions};
use esker_base::SplitMix64;
use esker_testkit::within;

use crate::support::{Rig, assert_sound, content, key, scale, small, value};

const MINUTE: Duration = Duration::from_secs(60);

/// How long the threads of a test are at it.
fn a_while() -> Duration {
    Duration::from_millis(1500) * u32::try_from(scale()).unwrap_or(u32::MAX)
}

fn number_of(value: &[u8]) -> u64 {
    str::from_utf8(value).expect("a number").parse().expect("a number")
}

/// Runs `work` on threads until the time is over; each gets its number and whether to go on.
fn race(threads: Vec<Box<dyn FnMut() + Send>>) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for mut work in threads {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work();
                }
            });
        }
        let start = Instant::now();
        while start.elapsed() < a_while() {
            thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// SN11, CC14 and SN18 together. Each writer puts one growing number under several keys in one batch; readers, in every
/// way of reading, see equal numbers in a group, and never an older one than before. At the end everything is there.
/// Mutation: `publish` before the batch is in the memtable; the visible number taken before the picture.
#[test]
fn sn11_batches_are_seen_whole_and_values_only_grow() {
    const GROUPS: u64 = 4;
    const KEYS: u64 = 6;
    let group_key = |group: u64, member: u64| format!("g{group}/{}", (member * 7919) % 1000).into_bytes();
    let rig = Rig::new();
    let db = rig.open_threads(&small(), 2).unwrap();
    let written: Arc<Vec<AtomicU64>> = Arc::new((0..GROUPS).map(|_| AtomicU64::new(0)).collect());
    let put = move |db: &Db, group: u64, number: u64| {
        let mut batch = WriteBatch::new();
        (0..KEYS).for_each(|member| {
            batch.put(group_key(group, member), number.to_string());
        });
        db.write(batch).unwrap();
    };
    (0..GROUPS).for_each(|group| put(&db, group, 0));
    let mut threads: Vec<Box<dyn FnMut() + Send>> = Vec::new();
    for group in 0..GROUPS {
        let (db, written) = (db.clone(), Arc::clone(&written));
        threads.push(Box::new(move || {
            let number = written[group as usize].load(Ordering::Relaxed) + 1;
            put(&db, group, number);
            written[group as usize].store(number, Ordering::Relaxed);
        }));
    }
    for reader in 0..3_u64 {
        let db = db.clone();
        let mut seen = vec![0; GROUPS as usize];
        let mut rng = SplitMix64::new(reader);
        threads.push(Box::new(move || {
            let group = rng.below(GROUPS);
            let keys: Vec<_> = (0..KEYS).map(|member| group_key(group, member)).collect();
            let prefix = format!("g{group}/");
            let numbers: Vec<u64> = match rng.below(6) {
                5 => {
                    let mut numbers = vec![u64::MAX; keys.len()];
                    db.multi_get_with(&keys, |at, value| numbers[at] = number_of(value.unwrap().unwrap()));
                    numbers
                }
                0 => db.multi_get(&keys).into_iter().map(|v| number_of(&v.unwrap().unwrap())).collect(),
                1 => db.prefix(&prefix).map(|entry| number_of(&entry.unwrap().1)).collect(),
                2 => db.prefix(&prefix).rev().map(|entry| number_of(&entry.unwrap().1)).collect(),
                3 => {
                    let snapshot = db.snapshot();
                    keys.iter().map(|key| number_of(&snapshot.get(key).unwrap().unwrap())).collect()
                }
                _ => {
                    let mut cursor = db.cursor().unwrap();
                    cursor.seek(&prefix).unwrap();
                    let mut numbers = Vec::new();
                    while cursor.valid() && cursor.key().starts_with(prefix.as_bytes()) {
                        numbers.push(number_of(cursor.value()));
                        cursor.next().unwrap();
                    }
                    numbers
                }
            };
            assert_eq!(numbers.len() as u64, KEYS, "keys of a batch are missing");
            assert!(numbers.iter().all(|number| *number == numbers[0]), "half a batch: {numbers:?}");
            assert!(numbers[0] >= seen[group as usize], "{numbers:?} after {seen:?}");
            seen[group as usize] = numbers[0];
        }));
    }
    let flusher = db.clone();
    threads.push(Box::new(move || {
        flusher.flush().unwrap();
        flusher.compact_range::<&[u8], _>(..).unwrap();
        thread::sleep(Duration::from_millis(5));
    }));
    within(MINUTE, "writers and readers", || race(threads));
    let last: Vec<u64> = written.iter().map(|number| number.load(Ordering::Relaxed)).collect();
    println!("batches: {last:?}\n{}", db.stats());
    assert!(db.stats().flushes > 0 && db.stats().compactions > 0);
    let check = |db: &Db| {
        for group in 0..GROUPS {
            for member in 0..KEYS {
                let found = db.get(group_key(group, member)).unwrap().unwrap();
                assert_eq!(number_of(&found), last[group as usize]);
            }
        }
        content(db).unwrap();
        assert_sound(db);
    };
    check(&db);
    within(MINUTE, "close", || db.close().unwrap());
    check(&rig.open_inline(&small()).unwrap());
}

/// SN08: two reads of one key at one snapshot are equal, while it is overwritten, flushed and compacted. Mutation: the
/// snapshot reads the visible number before it takes the registry's lock.
#[test]
fn sn08_a_snapshot_reads_the_same_twice() {
    let rig = Rig::new();
    let db = rig.open_threads(&small(), 2).unwrap();
    db.put("k", "0").unwrap();
    let mut threads: Vec<Box<dyn FnMut() + Send>> = Vec::new();
    let writer = db.clone();
    let mut number = 0_u64;
    threads.push(Box::new(move || {
        number += 1;
        writer.put("k", number.to_string()).unwrap();
        if number.is_multiple_of(20) {
            writer.flush().unwrap();
        }
    }));
    let compactor = db.clone();
    threads.push(Box::new(move || compactor.compact_range::<&[u8], _>(..).unwrap()));
    for _ in 0..2 {
        let db = db.clone();
        threads.push(Box::new(move || {
            let snapshot = db.snapshot();
            let first = number_of(&snapshot.get("k").unwrap().expect("it was never deleted"));
            thread::yield_now();
            let second = number_of(&snapshot.get("k").unwrap().expect("it was never deleted"));
            assert_eq!(first, second);
            assert!(snapshot.sequence() <= db.stats().last_sequence);
        }));
    }
    within(MINUTE, "snapshots", || race(threads));
    assert_sound(&db);
}

/// SN18: one key holds a number that grows; readers never see it shrink or vanish, whatever is flushed and compacted.
/// Mutation: the flushed memtable leaves the picture before its table is in it.
#[test]
fn sn18_a_value_never_goes_back_while_it_is_flushed() {
    let rig = Rig::new();
    let db = rig.open_threads(&small(), 2).unwrap();
    db.put("k", "0").unwrap();
    let mut threads: Vec<Box<dyn FnMut() + Send>> = Vec::new();
    let writer = db.clone();
    let mut number = 0_u64;
    threads.push(Box::new(move || {
        number += 1;
        writer.put("k", number.to_string()).unwrap();
        writer.put(key(number % 50), value(number, 100)).unwrap();
    }));
    let flusher = db.clone();
    threads.push(Box::new(move || flusher.flush().unwrap()));
    for way in 0..3 {
        let (db, mut last) = (db.clone(), 0);
        threads.push(Box::new(move || {
            let found = match way {
                0 => db.get("k").unwrap().map(|value| number_of(&value)),
                1 => db.get_with("k", number_of).unwrap(),
                _ => db.range("k".."k!").next().map(|entry| number_of(&entry.unwrap().1)),
            };
            let found = found.expect("it never vanishes");
            assert!(found >= last, "{found} after {last}");
            last = found;
        }));
    }
    within(MINUTE, "readers", || race(threads));
    println!("{}", db.stats());
    assert!(db.stats().flushes > 10);
    assert_sound(&db);
}

/// CC14: 16 writers in groups; in every scan each writer's batches are a prefix of what it wrote. Mutation: a follower's
/// batch is published before the leader's.
#[test]
fn cc14_the_batches_of_each_writer_are_seen_in_order() {
    let rig = Rig::new();
    let db = rig.open_threads(&small().memtable_size(64 << 10), 2).unwrap();
    let mut threads: Vec<Box<dyn FnMut() + Send>> = Vec::new();
    for writer in 0..16_u64 {
        let (db, mut number) = (db.clone(), 0_u64);
        threads.push(Box::new(move || {
            if number < 400 {
                let options =
                    if number.is_multiple_of(8) { WriteOptions::sync() } else { WriteOptions::new() };
                db.put_with(format!("w{writer:02}/{number:05}"), number.to_string(), &options).unwrap();
                number += 1;
            } else {
                thread::sleep(Duration::from_millis(1));
            }
        }));
    }
    let reader = db.clone();
    threads.push(Box::new(move || {
        let mut counts = BTreeMap::<Vec<u8>, u64>::new();
        for entry in reader.iter() {
            let (key, value) = entry.unwrap();
            let next = counts.entry(key[..3].to_vec()).or_default();
            assert_eq!(number_of(&value), *next, "a batch is missing before {key:?}");
            *next += 1;
        }
    }));
    within(MINUTE, "16 writers", || race(threads));
    let stats = db.stats();
    println!("{stats}");
    assert_eq!(stats.last_sequence, stats.operations, "every operation has a number of its own");
    within(MINUTE, "close", || db.close().unwrap());
}

/// CC01: `close` while others write, flush and read. Everyone gets `Ok` or `Closed`, and what was acknowledged is there
/// afterwards. Mutation: `close` does not wait for a leader that is in the middle of its group.
#[test]
fn cc01_close_under_load() {
    for round in 0..40 * scale() {
        let rig = Rig::new();
        let db = rig.open_threads(&small(), 2).unwrap();
        let threads: Vec<_> = (0..3_u64)
            .map(|writer| {
                let db = db.clone();
                thread::spawn(move || {
                    for number in 0_u64.. {
                        if let Err(error) = db.put(format!("w{writer}/{number:06}"), value(number, 200)) {
                            assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
                            return number;
                        }
                        if number % 40 == 39
                            && let Err(error) = db.flush()
                        {
                            assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
                            return number + 1;
                        }
                    }
                    0
                })
            })
            .collect();
        thread::sleep(Duration::from_micros(round * 733 % 20_000));
        let other = db.clone();
        within(MINUTE, "close under load", || db.close().unwrap());
        assert!(matches!(other.put("x", "y").unwrap_err().kind(), ErrorKind::Closed));
        assert!(matches!(other.get("x").unwrap_err().kind(), ErrorKind::Closed));
        let counts: Vec<u64> =
            within(MINUTE, "writers", || threads.into_iter().map(|thread| thread.join().unwrap()).collect());
        let db = rig.open_inline(&small()).expect("close has released the lock, whatever handles are left");
        for (writer, count) in counts.iter().enumerate() {
            for number in 0..*count {
                let found = db.get(format!("w{writer}/{number:06}")).unwrap();
                assert!(found.is_some(), "round {round}: write {number} of {count} is lost");
            }
        }
        assert_sound(&db);
        drop(other);
    }
}

/// CC09, CC07: handles, snapshots, iterators, cursors and values are dropped in every order, on one thread and on two;
/// nothing hangs, the last one closes, and values outlive everything. Mutation: the iterator drops its handle before the
/// tables that it reads.
#[test]
fn cc09_handles_are_dropped_in_every_order() {
    let mut orders = Vec::new();
    permutations(&mut (0..5).collect(), 0, &mut orders);
    assert_eq!(orders.len(), 120);
    for (round, order) in orders.iter().enumerate() {
        let rig = Rig::new();
        within(MINUTE, "drops", || {
            let db = rig.open_threads(&small(), 2).unwrap();
            (0..200_u64).for_each(|number| db.put(key(number), value(number, 100)).unwrap());
            db.compact_range::<&[u8], _>(..).unwrap();
            let slice = db.get(key(7_u64)).unwrap().unwrap();
            let mut iter = db.iter();
            iter.next().unwrap().unwrap();
            iter.next_back().unwrap().unwrap();
            let mut cursor = db.cursor().unwrap();
            cursor.seek_to_last().unwrap();
            let snapshot = db.snapshot();
            (0..100_u64).for_each(|number| db.delete(key(number)).unwrap());
            let mut things: Vec<Option<Box<dyn Send>>> = vec![
                Some(Box::new(db)),
                Some(Box::new(snapshot)),
                Some(Box::new(iter)),
                Some(Box::new(cursor)),
            ];
            things.push(Some(Box::new(slice.clone())));
            for &index in order {
                let thing = things[index].take();
                if round % 2 == 0 {
                    drop(thing);
                } else {
                    thread::spawn(move || drop(thing)).join().unwrap();
                }
            }
            assert_eq!(slice, value(7_u64, 100));
        });
        let db = rig.open_inline(&small()).expect("the last drop has released the lock");
        assert_eq!(content(&db).unwrap().len(), 100);
    }
}

fn permutations(items: &mut Vec<usize>, start: usize, all: &mut Vec<Vec<usize>>) {
    if start == items.len() {
        all.push(items.clone());
    }
    for index in start..items.len() {
        items.swap(start, index);
        permutations(items, start + 1, all);
        items.swap(start, index);
    }
}

/// CC07: what is alive at a `close` gives `Closed` at its next movement, and can be dropped at any time. Mutation:
/// `Cursor::run` does not look whether the database is open.
#[test]
fn cc07_what_is_alive_at_a_close_is_told() {
    for threads in [0, 2] {
        let rig = Rig::new();
        let db = if threads == 0 { rig.open_inline(&small()) } else { rig.open_threads(&small(), threads) }
            .unwrap();
        (0..500_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
        let (mut iter, mut fresh, mut cursor, snapshot) =
            (db.iter(), db.iter(), db.cursor().unwrap(), db.snapshot());
        iter.next().unwrap().unwrap();
        cursor.seek_to_first().unwrap();
        let other = db.clone();
        within(MINUTE, "close", || db.close().unwrap());
        let closed = |error: esker::Error| assert!(matches!(error.kind(), ErrorKind::Closed), "{error:?}");
        closed(iter.next().unwrap().unwrap_err());
        assert!(iter.next().is_none(), "an error is the last item");
        closed(fresh.next_back().unwrap().unwrap_err());
        closed(cursor.next().unwrap_err());
        assert!(!cursor.valid());
        closed(cursor.seek_to_last().unwrap_err());
        closed(snapshot.get(key(1_u64)).unwrap_err());
        closed(snapshot.iter().next().unwrap().unwrap_err());
        closed(other.write(WriteBatch::new()).unwrap_err());
        closed(other.flush().unwrap_err());
        closed(other.sync().unwrap_err());
        closed(other.compact_range::<&[u8], _>(..).unwrap_err());
        closed(other.verify().unwrap_err());
        assert!(other.multi_get(&["a", "b"]).into_iter().all(|found| found.is_err()));
        let mut closed = 0;
        other.multi_get_with(&["a", "b"], |_, found| closed += u32::from(found.is_err()));
        assert_eq!(closed, 2);
        let second = rig.open_inline(&small()).unwrap();
        drop((iter, cursor, snapshot));
        assert_eq!(
            content(&second).unwrap().len(),
            500,
            "late drops do not touch the database that is open now"
        );
        other.close().unwrap();
    }
}

/// CC10: empty batches alone, many at once and among full ones; with `Sync` they make what came before durable.
/// Mutation: an empty batch is waited for, but belongs to no group.
#[test]
fn cc10_empty_batches() {
    let rig = Rig::new();
    let db = rig.open_threads(&small(), 2).unwrap();
    within(MINUTE, "empty batches", || {
        db.write(WriteBatch::new()).unwrap();
        db.put("a", "1").unwrap();
        db.write_with(WriteBatch::new(), &WriteOptions::sync()).unwrap();
        let image = rig.crashed(CrashMode::Drop);
        assert_eq!(image.open_inline(&small()).unwrap().get("a").unwrap().unwrap(), "1");
        thread::scope(|scope| {
            for writer in 0..8_u64 {
                let db = &db;
                scope.spawn(move || {
                    for number in 0..200_u64 {
                        match (writer + number) % 3 {
                            0 => db.write(WriteBatch::new()).unwrap(),
                            1 => db.write_with(WriteBatch::new(), &WriteOptions::sync()).unwrap(),
                            _ => db.put(key(number), value(writer, 50)).unwrap(),
                        }
                    }
                });
            }
        });
        assert_eq!(db.stats().last_sequence, db.stats().operations);
        db.close().unwrap();
    });
}

/// CC05: killed with everything in the log; the next open works off what it finds, and writers get on. Mutation: an open
/// does not tell the scheduler that there may be work.
#[test]
fn cc05_work_that_is_pending_at_an_open_is_done() {
    let rig = Rig::new();
    let options = small().wal_segment_size(1 << 30).memtable_size(1 << 20);
    let db = rig.open_threads(&options, 1).unwrap();
    (0..3000_u64).for_each(|number| db.put(key(number % 700), value(number, 300)).unwrap());
    drop(db);
    let db = within(MINUTE, "open", || rig.open_threads(&small(), 2).unwrap());
    within(MINUTE, "writes after the open", || {
        (0..10_000_u64).for_each(|number| db.put(key(number % 900), value(number, 300)).unwrap());
    });
    assert!(db.stats().levels[0].tables <= 24 + 5, "level 0 stays bounded:\n{}", db.stats());
    assert_eq!(content(&db).unwrap().len(), 900);
    within(MINUTE, "close", || db.close().unwrap());
}

/// Not a test of its own: what `cc12` and `dw17` run in another process.
#[test]
fn child() {
    let Ok(dir) = std::env::var("ESKER_CHILD_DIR") else { return };
    let options = small().background(Background::Threads(2));
    if std::env::var("ESKER_CHILD_OPENS").is_ok() {
        match options.open(&dir) {
            Err(error) if matches!(error.kind(), ErrorKind::Locked { .. }) => println!("locked: {error}"),
            other => println!("not locked: {other:?}"),
        }
        return;
    }
    let db = options.open(&dir).expect("it opens with default settings after a kill");
    let start: u64 = std::env::var("ESKER_CHILD_START").unwrap().parse().unwrap();
    thread::scope(|scope| {
        for writer in 0..4_u64 {
            let db = &db;
            scope.spawn(move || {
                for number in start.. {
                    let mut batch = WriteBatch::new();
                    batch.put(format!("w{writer}/{number:06}/a"), value(number, 100));
                    batch.put(format!("w{writer}/{number:06}/b"), value(number, 100));
                    let options = if number % 5 == 4 { WriteOptions::sync() } else { WriteOptions::new() };
                    db.write_with(batch, &options).expect("a write");
                    println!("ack {writer} {number}");
                }
            });
        }
    });
}

fn child_command(dir: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["concurrency::child", "--exact", "--nocapture", "--test-threads=1"]);
    command.env("ESKER_CHILD_DIR", dir).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

/// CC12: a second open is refused, in this process, in another one and through a link, also after a refused open; the
/// first one goes on. Mutation: `take_lock` of the open is left out, or its lock is dropped.
#[test]
fn cc12_a_second_open_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    let db = small().open(&dir).unwrap();
    db.put("a", "1").unwrap();
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    for path in [&dir, &link, &dir] {
        let error = small().open(path).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error:?}");
        let output = child_command(path).env("ESKER_CHILD_OPENS", "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("locked: ") && !text.contains("not locked"), "{text}");
    }
    db.put("b", "2").unwrap();
    db.close().unwrap();
    let db = small().open(&link).unwrap();
    assert_eq!(db.iter().count(), 2);
}

/// DW17: a process with four writers is killed at any moment; the database always opens, holds every write that was
/// acknowledged, and no half batch. Mutation: `Buffered` writes stay in the log writer's buffer.
#[test]
fn dw17_kill_at_any_moment() {
    let temp = tempfile::tempdir().unwrap();
    let mut rng = SplitMix64::new(17);
    let mut acked = [0_u64; 4];
    let mut start = 0;
    for round in 0..8 * scale() {
        let mut child =
            child_command(temp.path()).env("ESKER_CHILD_START", start.to_string()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let reader = thread::spawn(move || {
            let mut last = [None; 4];
            for line in output.lines().map_while(Result::ok) {
                // The harness may put words of its own before the first one.
                let words: Vec<&str> = line.split(' ').collect();
                if let Some(at) = words.iter().position(|word| *word == "ack")
                    && let [_, writer, number] = words[at..]
                    && let (Ok(writer), Ok(number)) = (writer.parse::<usize>(), number.parse::<u64>())
                {
                    last[writer] = Some(number);
                }
            }
            last
        });
        thread::sleep(Duration::from_millis(30 + rng.below(250)));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = reader.join().unwrap();
        for (acked, last) in acked.iter_mut().zip(last) {
            *acked = last.map_or(*acked, |number| number + 1);
        }
        let db = within(MINUTE, "open after a kill", || small().open(temp.path()).expect("it always opens"));
        for (writer, acked) in acked.iter().enumerate() {
            let mut halves = [0_u64; 2];
            for (half, name) in ["a", "b"].iter().enumerate() {
                while db.contains_key(format!("w{writer}/{:06}/{name}", halves[half])).unwrap() {
                    halves[half] += 1;
                }
            }
            assert_eq!(halves[0], halves[1], "half a batch");
            assert!(halves[0] >= *acked, "round {round}: {} of {} are there", halves[0], *acked);
            // The numbers go on without a gap for all writers.
            start = if writer == 0 { halves[0] } else { start.max(halves[0]) };
        }
        for writer in 0..4_u64 {
            for number in 0..start {
                for half in ["a", "b"] {
                    let key = format!("w{writer}/{number:06}/{half}");
                    if !db.contains_key(&key).unwrap() {
                        db.put(&key, value(number, 100)).unwrap();
                    }
                }
            }
        }
        acked = [start; 4];
        assert_sound(&db);
        if rng.percent(50) {
            db.close().unwrap();
        }
    }
    println!("{start} batches a writer");
    assert!(start > 100, "the children hardly wrote anything");
}

/// Options are plain data and can be shared; a database is usable from any thread. A matter of the compiler.
#[test]
fn handles_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    fn send<T: Send + 'static>() {}
    check::<Db>();
    check::<esker::Snapshot>();
    check::<Options>();
    check::<esker::Slice>();
    check::<esker::Error>();
    send::<esker::DbIterator>();
    send::<esker::Cursor>();
}
