//! What a hostile tester found: directories that a crash or a stranger left, each with the way in which it broke an
//! earlier build.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::support::Rig;
use esker::vfs::{Fault, FaultVfs, MemVfs, Vfs};
use esker::{Db, DbState, Durability, ErrorKind, Options, RepairReport, WriteBatch, WriteOptions};
use esker_base::{FileNumber, LAST_SEQUENCE};
use esker_manifest::{ManifestWriter, Recovered, Recovery, VersionEdit, recover};
use esker_wal::{LogKind, LogReader, RecordContext, RecordFields, RecordType, SegmentHeader, encode_record};

fn small() -> Options {
    Options::new().memtable_size(16 << 10).table_size(4 << 10).seed(1)
}

/// A rig on which a creation was killed at its `nth` call, or `None` when it has fewer.
fn killed_creation(nth: u64) -> Option<Rig> {
    let mem = MemVfs::new();
    let faults = FaultVfs::over_mem(&mem);
    faults.arm(Fault::nth(nth).forever());
    let rig = Rig::on(mem);
    let mut components = rig.components(&small());
    components.vfs = Arc::new(faults.clone());
    let opened = Db::open_with("/db", small(), components);
    drop(opened);
    (faults.fired() > 0).then_some(rig)
}

/// A creation that was killed leaves a log segment under a store id that the next creation does not draw again. Found by
/// real kills; the simulations draw the same id each time. Mutation: the segments of no store are replayed.
#[test]
fn a_killed_creation_is_begun_anew_under_another_id() {
    let mut calls = 0;
    while let Some(rig) = killed_creation(calls + 1) {
        calls += 1;
        let db = rig.open_inline(&small().seed(2)).unwrap_or_else(|error| panic!("call {calls}: {error}"));
        db.put("k", "v").unwrap();
        db.close().unwrap();
        let db = rig.open_inline(&small().seed(3)).unwrap();
        assert_eq!(db.get("k").unwrap().unwrap(), "v");
        assert!(db.verify().unwrap().is_clean());
    }
    assert!(calls > 10, "{calls}");
}

fn filled() -> Rig {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.put("l", "w").unwrap();
    drop(db);
    rig
}

/// File numbers at the end of their range are an error in every way to reach them, and no overflow. Mutation: no
/// `check_file_numbers`.
#[test]
fn the_largest_file_numbers() {
    for back in 0..12 {
        let number = u64::MAX - back;
        for name in [format!("MANIFEST-{number}"), format!("{number}.sst"), format!("{number}.wal.lost")] {
            for rig in [Rig::new(), filled()] {
                rig.mem.create_dir_all(Path::new("/db")).unwrap();
                rig.mem.write_file(Path::new("/db").join(&name), "").unwrap();
                assert!(rig.open_inline(&small()).unwrap_err().is_corruption(), "{name}");
                assert!(repair(&rig).is_err(), "{name}");
            }
        }
        let rig = filled();
        let mut edit = VersionEdit::new();
        edit.next_file = Some(FileNumber(number));
        rewrite_manifest(&rig, &edit);
        assert!(rig.open_inline(&small()).unwrap_err().is_corruption(), "next file {number}");
        repair(&rig).unwrap();
        assert_eq!(Rig::on(rig.mem.clone()).open_inline(&small()).unwrap().iter().count(), 2);
    }
}

/// Sequence numbers that no database reaches are told at the open, with the file that has them: no database opens only to
/// refuse every write. In a manifest, and in a record of the log. Mutations: no `check_sequences`; no `last_max`.
#[test]
fn sequence_numbers_that_are_used_up() {
    let rig = filled();
    let mut edit = VersionEdit::new();
    edit.last_sequence = Some(LAST_SEQUENCE + 1);
    rewrite_manifest(&rig, &edit);
    let error = rig.open_inline(&small()).unwrap_err();
    assert!(error.is_corruption() && error.to_string().contains("MANIFEST-"), "{error}");

    let rig = filled();
    let found = stored(&rig);
    let paths = rig.mem.paths().into_iter();
    let log = paths.filter(|path| path.extension().is_some_and(|e| e == "wal")).max().unwrap();
    let mut bytes = rig.mem.read_file(&log).unwrap();
    let header = SegmentHeader::decode(&bytes).unwrap();
    let context = RecordContext::new(LogKind::Wal, found.state.store_id, header.number);
    let last = found.state.last_sequence.max(header.previous.last_sequence);
    bytes.truncate(64);
    let fields = RecordFields {
        record_type: RecordType::Skip,
        first: last + 1,
        count: LAST_SEQUENCE - last + 1,
        durable: last,
    };
    encode_record(&mut bytes, &context, 64, &fields, b"").unwrap();
    rig.mem.write_file(&log, bytes).unwrap();
    let error = Rig::on(rig.mem.clone()).open_inline(&small()).unwrap_err();
    let text = error.to_string();
    assert!(error.is_corruption() && text.contains(".wal") && text.contains("out of reach"), "{text}");
}

/// Repairs without the order checker, which takes what a repair moves away for a loss.
fn repair(rig: &Rig) -> esker::Result<RepairReport> {
    let mut components = rig.components(&small());
    components.vfs = Arc::new(rig.mem.clone());
    Db::repair_with("/db", &small(), &components)
}

/// Makes a manifest with the state of the present one and an edit, as a stranger could.
fn rewrite_manifest(rig: &Rig, edit: &VersionEdit) {
    let found = stored(rig);
    let state = found.state.apply(edit).unwrap();
    let number = found.state.next_file;
    let mut above = VersionEdit::new();
    above.next_file = Some(FileNumber(number.0 + 1));
    let state = state.apply(&above).unwrap();
    ManifestWriter::create(Arc::new(rig.mem.clone()), Path::new("/db"), number, &state).unwrap();
}

fn stored(rig: &Rig) -> Box<Recovered> {
    match recover(&rig.mem, Path::new("/db")).unwrap() {
        Recovery::Store(found) => found,
        Recovery::Missing { .. } => panic!("there is a store"),
    }
}

/// `verify` adds up what the manifest says of its tables. Mutation: `+=`.
#[test]
fn tables_that_claim_all_entries_there_can_be() {
    let rig = filled();
    let db = rig.open_inline(&small()).unwrap();
    db.close().unwrap();
    let version = Arc::clone(&stored(&rig).state.keyspaces[&0].version);
    let mut edit = VersionEdit::new();
    for (level, table) in version.tables() {
        edit.delete_table(0, level, table.number);
        let mut lying = (**table).clone();
        lying.entries = u64::MAX;
        edit.add_table(0, level, Arc::new(lying));
    }
    assert!(edit.added.len() > 1);
    rewrite_manifest(&rig, &edit);
    let db = rig.open_inline(&small()).unwrap();
    assert_eq!(db.verify().unwrap().entries, u64::MAX);
    let _ = db.stats();
}

/// A repair moves files to a directory of its own, and neither through a link to another place nor over files that are
/// there. Mutation: the first number is taken.
#[cfg(unix)]
#[test]
fn a_repair_stays_in_its_directory() {
    let temp = tempfile::tempdir().unwrap();
    let (dir, outside) = (temp.path().join("db"), temp.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    let db = small().open(&dir).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    fs::remove_file(dir.join("CURRENT")).unwrap();
    for number in 0..40 {
        let lost = dir.join(format!("lost-{number:06}"));
        if number % 2 == 0 {
            std::os::unix::fs::symlink(&outside, &lost).unwrap();
        } else {
            fs::create_dir(&lost).unwrap();
        }
    }
    let report = Db::repair(&dir).unwrap();
    assert_eq!(report.lost_dir, dir.join("lost-000040"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert!(fs::read_dir(&report.lost_dir).unwrap().count() > 0);
    assert_eq!(small().open(&dir).unwrap().get("k").unwrap().unwrap(), "v");
}

/// Keys that are written while a cursor stands behind them hide nothing, and bring no key twice. Mutation: the key that is
/// shown is forgotten when the cursor seeks past what is hidden.
#[test]
fn keys_that_come_between_while_a_cursor_stands() {
    for hidden in [1, 8, 9, 10, 40] {
        let rig = Rig::new();
        let db = rig.open_inline(&small()).unwrap();
        db.put("a", "1").unwrap();
        db.put("k", "2").unwrap();
        db.flush().unwrap();
        let mut cursor = db.cursor().unwrap();
        cursor.seek_to_last().unwrap();
        for number in 0..hidden {
            db.put(format!("b{}", number % 3), "new").unwrap();
        }
        cursor.next().unwrap();
        assert!(!cursor.valid(), "{hidden} hidden: {:?} again", cursor.key());
    }
}

/// A killed database in a directory of its own, with a table and a log that counts.
fn killed(dir: &Path) -> [PathBuf; 2] {
    let db = small().open(dir).unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.put("l", "w").unwrap();
    drop(db);
    let paths: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    ["MANIFEST", ".wal"].map(|part| {
        let named = paths.iter().filter(|path| path.to_string_lossy().contains(part));
        named.max().unwrap().clone()
    })
}

/// Garbage before and behind a huge hole, in a log that is searched for what was promised. Mutation: no `skip_hole`.
#[test]
fn holes_are_not_searched() {
    const LENGTH: u64 = 1 << 42;
    for (which, ends) in [(0, false), (0, true), (1, false), (1, true)] {
        let dir = tempfile::tempdir().unwrap();
        let path = &killed(dir.path())[which];
        let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
        file.write_all(b"garbage").unwrap();
        if file.set_len(LENGTH - 1).is_err() {
            println!("skipped: no file of that length here");
            return;
        }
        if ends {
            file.write_all(b"x").unwrap();
        }
        let begun = Instant::now();
        let db = small().open(dir.path()).unwrap();
        assert_eq!(db.get("l").unwrap().unwrap(), "w");
        db.close().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "{path:?} {ends}: {:?}", begun.elapsed());
    }
}

/// Recovery takes a small multiple of a log of the smallest operations there are. Mutation: no `reserve`.
#[test]
fn a_log_of_the_smallest_operations() {
    const COUNT: u64 = (1 << 18) + 1;
    let rig = filled();
    let path =
        rig.mem.paths().into_iter().filter(|path| path.extension().is_some_and(|end| end == "wal")).max();
    let path = path.unwrap();
    let (header, mut reader) = LogReader::open(&rig.mem, &path, LogKind::Wal).unwrap();
    let mut last = header.previous.last_sequence;
    while let Some(record) = reader.next_record().unwrap() {
        last = record.fields.last();
    }
    let mut bytes = rig.mem.read_file(&path).unwrap();
    let context = RecordContext::new(LogKind::Wal, header.store_id, header.number);
    let fields =
        RecordFields { record_type: RecordType::Batch, first: last + 1, count: COUNT, durable: last };
    let at = bytes.len() as u64;
    encode_record(&mut bytes, &context, at, &fields, &vec![0; 2 * COUNT as usize]).unwrap();
    rig.mem.write_file(&path, &bytes).unwrap();
    let mut entries = 0;
    let used = allocation_counter::measure(|| {
        let db = rig.open_inline(&small()).unwrap();
        entries = db.iter().count();
    });
    assert_eq!(entries, 2);
    let most = (2 << 20) + 24 * bytes.len() as u64;
    assert!(used.bytes_max <= most, "{} bytes for a log of {}", used.bytes_max, bytes.len());
}

/// Workers that wait for a rate limit hand what is buffered to the operating system all the same. Mutation: only idle ones
/// do.
#[test]
fn held_back_workers_write_out_the_buffer() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::new().memtable_size(4 << 20).l0_trigger(2).base_level_size(4 << 10);
    let db = options.background_rate_limit(1).open(dir.path()).unwrap();
    for round in 0..2_u64 {
        for number in 0..20_000_u64 {
            db.put((2 * number + round).to_be_bytes(), [7; 8]).unwrap();
        }
        db.flush().unwrap();
    }
    let lengths = || {
        let entries = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
        let logs = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".wal"));
        logs.map(|entry| (entry.file_name(), entry.metadata().unwrap().len())).max().unwrap()
    };
    std::thread::sleep(Duration::from_secs(1));
    let before = lengths();
    db.put_with("k", "v", &WriteOptions::new().with_durability(Durability::Memory)).unwrap();
    let begun = Instant::now();
    while lengths() == before {
        assert!(begun.elapsed() < Duration::from_secs(10), "it stays in the buffer");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(db.stats().compactions == 0, "the limit does not hold back: {}", db.stats());
}

/// Runs `work` on a thread of its own, and fails when it does not come back.
fn in_time<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = channel();
    std::thread::spawn(move || done.send(work()));
    result.recv_timeout(Duration::from_secs(60)).expect("it hangs or panics")
}

fn one() -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put("k", "v");
    batch
}

/// A callback that closes while another thread does, which waits for the callbacks; and callbacks that are called by a
/// close, and close. Mutation: a callback waits for the other close.
#[test]
fn callbacks_may_close() {
    let rig = Rig::new();
    let db = rig.open_threads(&small(), 2).unwrap();
    let (tell, told) = channel();
    let (begin, begun) = channel();
    let handle = db.clone();
    db.submit(one(), &WriteOptions::sync()).unwrap().on_synced(move |_| {
        begin.send(()).unwrap();
        // Until the other close is under way.
        while !matches!(handle.state(), DbState::Closed) {
            std::thread::yield_now();
        }
        let _ = tell.send(handle.close());
    });
    for _ in 0..3 {
        let handle = db.clone();
        db.submit(one(), &WriteOptions::new()).unwrap().on_synced(move |_| drop(handle.close()));
    }
    begun.recv().unwrap();
    in_time(move || db.close()).unwrap();
    let error = told.recv().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "{error}");
}

/// What a callback panics with may panic when it is dropped: the callbacks behind it are called. Mutation: it is dropped.
#[test]
fn callbacks_that_panic_twice() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "on purpose, again");
        }
    }
    let rig = Rig::new();
    let db = rig.open_threads(&small(), 2).unwrap();
    let (tell, told) = channel();
    db.submit(one(), &WriteOptions::sync()).unwrap().on_synced(|_| std::panic::panic_any(Bomb));
    db.submit(one(), &WriteOptions::sync()).unwrap().on_synced(move |result| tell.send(result).unwrap());
    told.recv_timeout(Duration::from_secs(60)).unwrap().unwrap();
    db.close().unwrap();
}
