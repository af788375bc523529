//! Input at the limits and beyond: keys, values, batches, ranges, directories.

use std::fs;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use esker::vfs::{CallKind, Fault, FaultVfs, MemVfs};
use esker::{Db, Error, ErrorKind, Options, WriteBatch, WriteOptions};
use esker_testkit::{Model, WriteOp, within};

use crate::support::{Rig, assert_sound, content, key, small, value};

fn is_too_large(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TooLarge { .. })
}

/// Runs `check` with what is in the memtable, in level 0, at the bottom, and after a reopen.
fn everywhere(rig: &Rig, options: &Options, fill: impl FnOnce(&Db), check: impl Fn(&Db)) {
    let db = rig.open_inline(options).unwrap();
    fill(&db);
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.compact_range::<&[u8], _>(..).unwrap();
    check(&db);
    assert_sound(&db);
    db.close().unwrap();
    let db = rig.open_inline(options).unwrap();
    check(&db);
    db.close().unwrap();
}

/// AP03. The empty key and the empty value are as good as others. Mutation: an empty key stands for "no bound".
#[test]
fn ap03_empty_keys_and_values() {
    let rig = Rig::new();
    let fill = |db: &Db| {
        db.put("", "").unwrap();
        db.put("a", "").unwrap();
        db.put("b", "1").unwrap();
    };
    everywhere(&rig, &small(), fill, |db| {
        assert_eq!(db.get("").unwrap().unwrap(), "");
        assert_eq!(db.get("a").unwrap().unwrap(), "");
        assert!(db.contains_key("").unwrap() && !db.contains_key("c").unwrap());
        assert_eq!(db.iter().next().unwrap().unwrap().0, "");
        assert_eq!(db.iter().next_back().unwrap().unwrap().0, "b");
        let mut cursor = db.cursor().unwrap();
        cursor.seek_for_prev("").unwrap();
        assert!(cursor.valid() && cursor.key().is_empty() && cursor.value().is_empty());
        cursor.prev().unwrap();
        assert!(!cursor.valid());
        assert_eq!(db.prefix("").count(), 3);
        assert_eq!(db.range::<&str, _>(""..="").count(), 1);
        assert_eq!(db.range::<&str, _>((Bound::Excluded(""), Bound::Unbounded)).count(), 2);
    });
    let db = rig.open_inline(&small()).unwrap();
    db.delete("").unwrap();
    assert_eq!(db.get("").unwrap(), None);
    assert_eq!(content(&db).unwrap().len(), 2);
}

/// AP03. Keys up to 65,535 bytes; one more is refused before anything happens, also inside a batch. Mutation: the length
/// of a key is cut to 16 bits.
#[test]
fn ap03_long_keys() {
    let rig = Rig::new();
    let long = |last: u8| [vec![b'k'; 65_534], vec![last]].concat();
    let fill = |db: &Db| {
        db.put(long(1), "one").unwrap();
        db.put(long(3), "three").unwrap();
        db.put(vec![b'k'; 65_534], "prefix").unwrap();
        let before = db.stats().last_sequence;
        let beyond = vec![b'k'; 65_536];
        assert!(is_too_large(&db.put(&beyond, "x").unwrap_err()));
        assert!(is_too_large(&db.delete(&beyond).unwrap_err()));
        let mut batch = WriteBatch::new();
        batch.put("in", "1").put(&beyond, "x").put("in too", "2");
        assert!(is_too_large(&db.write(batch).unwrap_err()));
        assert_eq!(db.stats().last_sequence, before, "a refused batch leaves nothing");
    };
    everywhere(&rig, &small(), fill, |db| {
        assert_eq!(db.get(long(1)).unwrap().unwrap(), "one");
        assert_eq!(db.get(long(2)).unwrap(), None);
        assert_eq!(db.get(vec![b'k'; 65_536]).unwrap(), None);
        assert_eq!(db.get(vec![b'k'; 1 << 20]).unwrap(), None);
        assert_eq!(db.prefix(vec![b'k'; 65_534]).count(), 3);
        assert_eq!(db.prefix(vec![b'k'; 65_536]).count(), 0);
        let mut cursor = db.cursor().unwrap();
        cursor.seek(long(2)).unwrap();
        assert_eq!(cursor.value(), b"three");
        cursor.seek(vec![b'j'; 70_000]).unwrap();
        assert_eq!(cursor.value(), b"prefix", "a key beyond the limit still has its place");
        cursor.seek_for_prev(vec![b'k'; 70_000]).unwrap();
        assert_eq!(cursor.value(), b"three");
        cursor.seek(vec![b'k'; 70_000]).unwrap();
        assert!(!cursor.valid());
        assert_eq!(db.iter().count(), 3);
    });
}

/// AP03. Values of any size to 64 MiB, in a memtable of 16 KiB. Mutation: a block's length is cut to 16 bits.
#[test]
fn ap03_long_values() {
    let rig = Rig::new();
    let lens: [usize; 9] = [0, 1, 127, 128, 16_383, 16_384, 65_536, (1 << 20) + 1, 64 << 20];
    let byte = |len: usize, at: usize| (at.wrapping_mul(31) ^ len) as u8;
    let fill = |db: &Db| {
        for len in lens {
            let value: Vec<u8> = (0..len).map(|at| byte(len, at)).collect();
            db.put(key(len as u64), value).unwrap();
        }
    };
    everywhere(&rig, &small(), fill, |db| {
        for len in lens {
            let found = db.get(key(len as u64)).unwrap().unwrap();
            assert_eq!(found.len(), len);
            for at in (0..len).step_by(4099).chain(len.checked_sub(1)) {
                assert_eq!(found[at], byte(len, at), "byte {at} of {len}");
            }
        }
        assert_eq!(db.iter().map(|entry| entry.unwrap().1.len()).sum::<usize>(), lens.iter().sum());
    });
}

/// AP03. A batch of many entries, larger than the memtable and than a log segment, is whole after a crash. Mutation: the
/// count of a batch is cut to 16 bits.
#[test]
fn ap03_large_batches() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    db.put("before", "1").unwrap();
    let mut batch = WriteBatch::new();
    (0..70_000_u64).for_each(|number| {
        batch.put(key(number), value(number, 8));
    });
    db.write_with(batch, &WriteOptions::sync()).unwrap();
    db.put("last", "1").unwrap();
    assert_eq!(db.stats().last_sequence, 70_002);
    let rig = rig.crashed(esker::vfs::CrashMode::Keep);
    let db = rig.open_inline(&small()).unwrap();
    assert_eq!(db.iter().count(), 70_002);
    assert_eq!(db.get(key(69_999_u64)).unwrap().unwrap(), value(69_999_u64, 8));
    assert_sound(&db);
}

/// A later operation of a batch on the same key wins, in every order of puts and deletes. Mutation: all operations of a
/// batch get one sequence number.
#[test]
fn later_operations_of_a_batch_win() {
    let rig = Rig::new();
    let fill = |db: &Db| {
        let mut batch = WriteBatch::new();
        batch.put("a", "1").delete("a").put("a", "2");
        batch.put("b", "1").delete("b");
        batch.delete("c").put("c", "1").put("c", "2").put("c", "3");
        db.write(batch).unwrap();
    };
    everywhere(&rig, &small(), fill, |db| {
        let found: Vec<_> = db.iter().map(|entry| entry.unwrap()).map(|(key, value)| [key, value]).collect();
        assert_eq!(found, [["a", "2"], ["c", "3"]]);
        assert_eq!(db.get("b").unwrap(), None);
    });
}

/// IT05, IT06: every pair of bounds over every place of the data, in both directions, equals the model; inverted ranges
/// hold nothing, and compacting one does nothing. Mutation: an inclusive end is taken as an exclusive one.
#[test]
fn it05_every_form_of_range() {
    let rig = Rig::new();
    let mut model = Model::new();
    let mut ops: Vec<WriteOp> =
        (0..40_u64).map(|number| WriteOp::Put(key(number * 2), value(number, 100))).collect();
    ops.extend([WriteOp::Put(Vec::new(), b"empty".to_vec()), WriteOp::Put(vec![0xff; 3], b"last".to_vec())]);
    model.apply(&ops);
    let fill = |db: &Db| db.write(crate::support::batch(&ops)).unwrap();
    let keys: Vec<Vec<u8>> = [
        vec![],
        vec![0],
        key(0_u64),
        key(1_u64),
        key(38_u64),
        key(39_u64),
        key(78_u64),
        vec![0xff; 3],
        vec![0xff; 4],
    ]
    .into();
    let bounds: Vec<Bound<Vec<u8>>> = keys
        .iter()
        .flat_map(|key| [Bound::Included(key.clone()), Bound::Excluded(key.clone())])
        .chain([Bound::Unbounded])
        .collect();
    let count = std::cell::Cell::new(0);
    everywhere(&rig, &small(), fill, |db| {
        let snapshot = db.snapshot();
        for lower in &bounds {
            for upper in &bounds {
                let range = (lower.clone(), upper.clone());
                let wanted: Vec<_> =
                    model.range(&range, 1).map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
                let slices = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
                let own = |entry: esker::Result<(esker::Slice, esker::Slice)>| {
                    entry.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()
                };
                let forward: Vec<_> = db.range::<&[u8], _>(slices).map(own).collect();
                let mut backward: Vec<_> = snapshot.range::<&[u8], _>(slices).rev().map(own).collect();
                backward.reverse();
                assert_eq!(forward, wanted, "{range:?}");
                assert_eq!(backward, wanted, "{range:?} backward");
                count.set(count.get() + 1);
            }
        }
    });
    assert_eq!(count.get(), 4 * bounds.len() * bounds.len());
    let db = rig.open_inline(&small()).unwrap();
    let before = content(&db).unwrap();
    db.compact_range(key(30_u64)..key(10_u64)).unwrap();
    db.compact_range(key(10_u64)..=key(10_u64)).unwrap();
    assert_eq!(content(&db).unwrap(), before);
}

/// Options beyond their limits are refused before anything is created. Mutation: `check` after `prepare_dir`.
#[test]
fn bad_options_create_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    for options in
        [small().memtable_size(0), small().block_size(1), small().level_ratio(1), small().table_size(0)]
    {
        let error = options.open(&dir).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error:?}");
        assert!(!dir.exists());
    }
}

/// Directories that hold no database, or that can't be one. Mutation: a missing `CURRENT` is taken for a new database
/// although there are tables.
#[test]
fn odd_directories() {
    let temp = tempfile::tempdir().unwrap();
    let refused = |result: esker::Result<Db>, what: &str| match result {
        Ok(_) => panic!("{what} opened"),
        Err(error) => error,
    };
    // A missing one, when it may not be made.
    let missing = temp.path().join("a/b/c");
    let error = refused(small().create_if_missing(false).open(&missing), "a missing directory");
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error:?}");
    assert!(!temp.path().join("a").exists());
    small().open(&missing).unwrap().put("k", "v").unwrap();
    small().create_if_missing(false).open(&missing).unwrap();
    let error = refused(small().error_if_exists(true).open(&missing), "one that exists");
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error:?}");
    // An empty one, when no database may be made in it.
    let empty = temp.path().join("empty");
    fs::create_dir(&empty).unwrap();
    refused(small().create_if_missing(false).open(&empty), "an empty directory");
    // A file, and a file in the place of a parent.
    let file = temp.path().join("file");
    fs::write(&file, "text").unwrap();
    refused(small().open(&file), "a file");
    refused(small().open(file.join("db")), "a path through a file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    // One with files of others: they stay.
    let foreign = temp.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "mine").unwrap();
    small().open(&foreign).unwrap().close().unwrap();
    assert_eq!(fs::read_to_string(foreign.join("notes.txt")).unwrap(), "mine");
    // One that lost its CURRENT.
    let db = small().open(&foreign).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    fs::remove_file(foreign.join("CURRENT")).unwrap();
    let error = refused(small().open(&foreign), "a database without CURRENT");
    assert!(error.is_corruption(), "{error:?}");
    // A path of one component, relative to here, leaves nothing behind when it is refused.
    refused(small().create_if_missing(false).open("no-such-database"), "a relative path");
    assert!(!Path::new("no-such-database").exists());
}

/// A directory that can't be written to gives an error and no panic; one that can be read only, the same. Mutation: a
/// failed lock is taken for none.
#[test]
fn directories_without_permission() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    db.put("k", "v").unwrap();
    db.close().unwrap();
    let before = rig.mem.files();
    for kind in [CallKind::Lock, CallKind::Create, CallKind::List, CallKind::Open, CallKind::Rename] {
        let faults = FaultVfs::new(Arc::new(rig.order.clone()));
        faults.arm(Fault::always().kind(kind).error(std::io::ErrorKind::PermissionDenied));
        let error = Db::open_with("/db", small(), rig.components_on(Arc::new(faults), &small())).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "{kind:?}: {error:?}");
    }
    // What the failed opens made is removed again by the next one; nothing else has changed.
    let db = rig.open_inline(&small()).unwrap();
    assert_eq!(db.get("k").unwrap().unwrap(), "v");
    let tables = |files: &std::collections::BTreeMap<std::path::PathBuf, Vec<u8>>| {
        files.keys().filter(|path| path.extension().is_some_and(|ext| ext == "sst")).count()
    };
    assert_eq!(tables(&rig.mem.files()), tables(&before));
}

/// A newer format is refused by its name, in every kind of file, and nothing is touched. Mutation: an unknown version is
/// read as the known one.
#[test]
fn newer_formats_are_refused() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..100_u64).for_each(|number| db.put(key(number), value(number, 50)).unwrap());
    db.flush().unwrap();
    db.put("k", "v").unwrap();
    drop(db);
    // `CURRENT` is text: a version of tomorrow with a right checksum.
    let next = rig.copied();
    let body = String::from_utf8(next.read("CURRENT")).unwrap().replace("esker current 1", "esker current 2");
    let body = &body[..body.rfind("crc ").unwrap()];
    let text = format!("{body}crc {:08x}\n", esker_base::checksum(&[], body.as_bytes()));
    next.write("CURRENT", text.as_bytes());
    let before = next.mem.files();
    let error = next.open_inline(&small()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{error:?}");
    assert_eq!(next.mem.files(), before);
    // Logs and manifests: the version is at byte 8 of the header, its checksum in the last 4 of 64 bytes.
    for suffix in [".wal", "MANIFEST-"] {
        let next = rig.copied();
        let entries = next.names("").into_iter().filter(|name| name.contains(suffix));
        for name in entries {
            let mut bytes = next.read(&name);
            bytes[8] += 1;
            let crc = esker_base::checksum(&[], &bytes[..60]).to_le_bytes();
            bytes[60..64].copy_from_slice(&crc);
            next.write(&name, &bytes);
        }
        let error = next.open_inline(&small()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{suffix}: {error:?}");
    }
}

/// AP09: files, directories, links and pipes of others stay as they are, whatever their names look like. Mutation: the
/// orphans are found by the end of their names.
#[test]
fn ap09_foreign_files_are_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("db");
    small().open(&dir).unwrap().close().unwrap();
    let names = [
        ".DS_Store",
        "._000001.sst",
        "000001.sst.bak",
        "1.sst",
        "+1.sst",
        "18446744073709551616.sst",
        "MANIFEST-",
        "MANIFEST-1",
        "CURRENT.bak",
        "000001.SST",
        "lost+found.wal",
    ];
    for name in names {
        fs::write(dir.join(name), name).unwrap();
    }
    let outside = temp.path().join("outside");
    fs::write(&outside, "outside").unwrap();
    // Exact names of ours that are no regular files.
    fs::create_dir(dir.join("000001.sst")).unwrap();
    std::os::unix::fs::symlink(&outside, dir.join("000002.sst")).unwrap();
    std::os::unix::fs::symlink(temp.path().join("nowhere"), dir.join("000000.wal")).unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(dir.join("000003.wal.lost")).status();
    assert!(pipe.is_ok_and(|status| status.success()));
    within(Duration::from_secs(60), "a directory with foreign files", || {
        for _ in 0..2 {
            let db = small().open(&dir).unwrap();
            (0..300_u64).for_each(|number| db.put(key(number), value(number, 100)).unwrap());
            db.compact_range::<&[u8], _>(..).unwrap();
            assert_sound(&db);
            db.close().unwrap();
        }
    });
    for name in names {
        assert_eq!(fs::read_to_string(dir.join(name)).unwrap(), name);
    }
    assert!(dir.join("000001.sst").is_dir());
    assert_eq!(fs::read_link(dir.join("000002.sst")).unwrap(), outside);
    assert!(fs::symlink_metadata(dir.join("000000.wal")).unwrap().is_symlink());
    assert!(fs::symlink_metadata(dir.join("000003.wal.lost")).is_ok());
    assert_eq!(fs::read_to_string(&outside).unwrap(), "outside");
}

/// AP11: a copied, a moved and a linked database are independent of the place where they were made. Mutation: a path is
/// stored in a file.
#[test]
fn ap11_copied_moved_and_linked_databases() {
    let temp = tempfile::tempdir().unwrap();
    let (first, copy, moved) =
        (temp.path().join("first"), temp.path().join("copy"), temp.path().join("moved"));
    let db = small().open(&first).unwrap();
    (0..300_u64).for_each(|number| db.put(key(number), value(number, 100)).unwrap());
    db.close().unwrap();
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&first).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    fs::rename(&first, &moved).unwrap();
    let link = temp.path().join("link");
    std::os::unix::fs::symlink(&moved, &link).unwrap();
    let (a, b) = (small().open(&copy).unwrap(), small().open(&link).unwrap());
    a.put("where", "copy").unwrap();
    b.put("where", "moved").unwrap();
    for db in [&a, &b] {
        (0..200_u64).for_each(|number| db.delete(key(number)).unwrap());
        db.compact_range::<&[u8], _>(..).unwrap();
        assert_sound(db);
    }
    a.close().unwrap();
    b.close().unwrap();
    for (dir, name) in [(&copy, "copy"), (&moved, "moved")] {
        let db = small().open(dir).unwrap();
        assert_eq!(db.get("where").unwrap().unwrap(), name);
        assert_eq!(content(&db).unwrap().len(), 101);
    }
    for entry in fs::read_dir(&moved).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        let place = temp.path().to_str().unwrap().as_bytes();
        assert!(!bytes.windows(place.len()).any(|window| window == place), "a path is stored");
    }
}

/// PF07: an empty or nearly empty database is small on disk, after a close and after a kill. Mutation: what a log
/// segment has preallocated stays after the close.
#[test]
fn pf07_small_databases_are_small() {
    for clean in [true, false] {
        let mem = MemVfs::new();
        let rig = Rig::on(mem.clone());
        let db = rig.open_inline(&Options::new().seed(1)).unwrap();
        db.put("k", "v").unwrap();
        if clean {
            db.close().unwrap();
            assert!(mem.total_bytes() < 64 << 10, "{} bytes", mem.total_bytes());
        } else {
            drop(db);
        }
        let db = rig.open_inline(&Options::new().seed(1)).unwrap();
        db.close().unwrap();
        assert!(mem.total_bytes() < 64 << 10, "{} bytes", mem.total_bytes());
    }
}

/// An empty path, and the directory of another engine: the error says what it is.
#[test]
fn no_directory_of_ours() {
    let error = Db::open("").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidArgument { .. }), "{error}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("CURRENT"), "MANIFEST-000005\n").unwrap();
    let error = Db::open(dir.path()).unwrap_err();
    assert!(error.to_string().contains("not the CURRENT of an esker database"), "{error}");
}
