//! The contract of [`Vfs`] as one suite that every implementation must pass.
//!
//! Always compiled, so that the crates above can hold their own layers to it: call [`check_all`] from a test. It
//! covers what every call does; what survives a crash is tested beside [`MemVfs`](crate::MemVfs).

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{DirEntry, EntryKind, Vfs, WritableFile};

/// Runs every check, each on what a fresh call of `make` returns: a file system and an empty directory in it. Panics
/// with a message at the first breach.
pub fn check_all(make: &dyn Fn() -> (Arc<dyn Vfs>, PathBuf)) {
    let checks: [fn(&dyn Vfs, &Path); 16] = [
        create_is_exclusive,
        append_and_read,
        truncate_then_append,
        append_to_an_existing_file,
        rename_replaces,
        handles_outlive_names,
        link_is_a_second_name,
        list_is_sorted,
        directories,
        lock_is_exclusive,
        missing_files_are_not_found,
        directories_are_not_files,
        preallocate_keeps_the_length,
        extend_writes_zeros,
        mapped_appends,
        data_is_never_passed_over,
    ];
    for check in checks {
        let (vfs, dir) = make();
        check(&*vfs, &dir);
    }
}

fn write(vfs: &dyn Vfs, path: &Path, data: &[u8]) -> Box<dyn WritableFile> {
    let mut file = vfs.create_new(path).expect("a free name can be created");
    file.append(data).expect("a new file takes data");
    file
}

fn read(vfs: &dyn Vfs, path: &Path) -> Vec<u8> {
    let file = vfs.open(path).expect("an existing file can be opened");
    let len = usize::try_from(file.len().expect("an open file has a length")).expect("a test file is small");
    let mut data = vec![0; len];
    file.read_exact_at(0, &mut data).expect("a file can be read up to its length");
    data
}

#[track_caller]
fn assert_error<T>(result: std::io::Result<T>, kind: ErrorKind) {
    match result {
        Ok(_) => panic!("succeeds, though {kind:?} was expected"),
        Err(error) => assert_eq!(error.kind(), kind, "{error}"),
    }
}

fn data_is_never_passed_over(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("f");
    let mut file = write(vfs, &path, &vec![0; 100_000]);
    file.append(b"data").expect("append");
    file.append(&vec![0; 100_000]).expect("append");
    file.sync_all().expect("sync");
    let reader = vfs.open(&path).expect("an existing file can be opened");
    for offset in [0, 1, 99_999, 100_000, 100_003, 100_004, 200_003, 200_004, 300_000] {
        let next = reader.next_data(offset).expect("the place of the next data");
        assert!(next >= offset && next <= offset.max(200_004), "{next} from {offset}");
        assert!(offset >= 100_004 || next <= offset.max(100_000), "data at 100000 was passed over: {next}");
    }
}

fn create_is_exclusive(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("f");
    drop(write(vfs, &path, b"data"));
    assert_error(vfs.create_new(&path), ErrorKind::AlreadyExists);
    assert_eq!(read(vfs, &path), b"data", "the refused creation harms nothing");
    assert_error(vfs.create_new(&dir.join("missing/f")), ErrorKind::NotFound);
}

fn append_and_read(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("f");
    let mut file = vfs.create_new(&path).expect("a free name can be created");
    assert!(file.is_empty());
    assert_eq!(file.len(), 0);
    let reader = vfs.open(&path).expect("a file can be read while it is written");
    assert!(reader.is_empty().expect("an open file has a length"));
    file.append(b"hello").expect("append");
    file.append(b"").expect("append of nothing");
    file.append(b" world").expect("append");
    assert_eq!(file.len(), 11);
    assert_eq!(reader.len().expect("length"), 11, "a reader sees appends at once, without a sync");
    file.sync_data().expect("sync");
    file.sync_all().expect("sync");

    let mut buf = [b'.'; 8];
    assert_eq!(reader.read_at(6, &mut buf).expect("read"), 5, "short at the end of the file");
    assert_eq!(&buf, b"world...");
    assert_eq!(reader.read_at(2, &mut buf[..3]).expect("read"), 3);
    assert_eq!(&buf[..3], b"llo");
    assert_eq!(reader.read_at(11, &mut buf).expect("read"), 0, "nothing at the end");
    assert_eq!(reader.read_at(1 << 40, &mut buf).expect("read"), 0, "nothing far past the end");
    assert_eq!(reader.read_at(u64::MAX, &mut buf).expect("read"), 0, "nothing at the largest offset");
    assert_eq!(reader.read_at(0, &mut []).expect("read"), 0);
    assert_error(reader.read_exact_at(4, &mut buf), ErrorKind::UnexpectedEof);

    let large: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    file.append(&large).expect("append of much");
    let mut back = vec![0; large.len()];
    reader.read_exact_at(11, &mut back).expect("read of much");
    assert!(back == large, "what was appended is read");
    file.close().expect("close");
    assert_eq!(read(vfs, &path).len(), large.len() + 11);
}

fn truncate_then_append(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("f");
    let mut file = write(vfs, &path, b"hello world");
    file.truncate(5).expect("truncate");
    assert_eq!(file.len(), 5);
    assert_eq!(read(vfs, &path), b"hello");
    file.append(b"!").expect("append");
    assert_eq!(read(vfs, &path), b"hello!");
    assert_error(file.truncate(7), ErrorKind::InvalidInput);
    file.truncate(6).expect("truncate to the present length");
    file.truncate(0).expect("truncate to nothing");
    file.append(b"x").expect("append");
    assert_eq!(read(vfs, &path), b"x");
}

fn append_to_an_existing_file(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("f");
    drop(write(vfs, &path, b"one"));
    let mut file = vfs.open_append(&path).expect("an existing file can be opened for appending");
    assert_eq!(file.len(), 3);
    file.append(b"two").expect("append");
    file.truncate(4).expect("truncate");
    file.close().expect("close");
    assert_eq!(read(vfs, &path), b"onet");
}

fn rename_replaces(vfs: &dyn Vfs, dir: &Path) {
    let (from, to) = (dir.join("from"), dir.join("to"));
    drop(write(vfs, &from, b"new"));
    vfs.rename(&from, &to).expect("rename to a free name");
    assert_eq!((vfs.kind(&from).expect("kind"), read(vfs, &to)), (None, b"new".to_vec()));
    drop(write(vfs, &from, b"newer"));
    let old = vfs.open(&to).expect("open");
    vfs.rename(&from, &to).expect("rename over a file");
    assert_eq!((vfs.kind(&from).expect("kind"), read(vfs, &to)), (None, b"newer".to_vec()));
    assert_eq!(old.len().expect("length"), 3, "a handle of the replaced file keeps its content");
    vfs.rename(&to, &to).expect("rename to itself");
    assert_eq!(read(vfs, &to), b"newer");
    assert_error(vfs.rename(&to, &dir.join("missing/f")), ErrorKind::NotFound);
    assert_eq!(read(vfs, &to), b"newer", "the refused rename harms nothing");

    let sub = dir.join("sub");
    vfs.create_dir_all(&sub).expect("create a directory");
    vfs.rename(&to, &sub.join("f")).expect("rename to another directory");
    assert_eq!((vfs.kind(&to).expect("kind"), read(vfs, &sub.join("f"))), (None, b"newer".to_vec()));
}

fn handles_outlive_names(vfs: &dyn Vfs, dir: &Path) {
    let (path, other) = (dir.join("f"), dir.join("g"));
    let mut file = write(vfs, &path, b"one");
    let reader = vfs.open(&path).expect("open");
    vfs.rename(&path, &other).expect("rename");
    file.append(b"two").expect("append after a rename");
    file.sync_data().expect("sync after a rename");
    assert_eq!(read(vfs, &other), b"onetwo");
    vfs.remove(&other).expect("remove");
    file.append(b"three").expect("append after a removal");
    assert_eq!(vfs.kind(&other).expect("kind"), None);
    let mut buf = [0; 11];
    reader.read_exact_at(0, &mut buf).expect("read after a removal");
    assert_eq!(&buf, b"onetwothree");
    drop(write(vfs, &other, b"another"));
    assert_eq!(reader.len().expect("length"), 11, "a new file of the same name is another file");
}

fn link_is_a_second_name(vfs: &dyn Vfs, dir: &Path) {
    let (a, b, c) = (dir.join("a"), dir.join("b"), dir.join("c"));
    let mut file = write(vfs, &a, b"x");
    vfs.link(&a, &b).expect("link");
    file.append(b"y").expect("append");
    assert_eq!(read(vfs, &b), b"xy");
    assert_error(vfs.link(&a, &b), ErrorKind::AlreadyExists);
    assert_error(vfs.link(&c, &dir.join("d")), ErrorKind::NotFound);
    vfs.rename(&a, &b).expect("rename between two names of one file");
    assert_eq!(vfs.kind(&a).expect("kind"), Some(EntryKind::File), "it does nothing, as POSIX has it");
    vfs.remove(&a).expect("remove one name");
    assert_eq!(read(vfs, &b), b"xy");
}

fn list_is_sorted(vfs: &dyn Vfs, dir: &Path) {
    assert_eq!(vfs.list(dir).expect("list"), []);
    for name in ["b", "a", "B", "a0", "c"] {
        drop(write(vfs, &dir.join(name), name.as_bytes()));
    }
    vfs.create_dir_all(&dir.join("aa/x")).expect("create a directory");
    vfs.remove(&dir.join("c")).expect("remove");
    let entry = |name: &str, kind, size| DirEntry { name: name.to_owned(), kind, size };
    let expected = [
        entry("B", EntryKind::File, 1),
        entry("a", EntryKind::File, 1),
        entry("a0", EntryKind::File, 2),
        entry("aa", EntryKind::Directory, 0),
        entry("b", EntryKind::File, 1),
    ];
    assert_eq!(vfs.list(dir).expect("list"), expected);
    assert_error(vfs.list(&dir.join("missing")), ErrorKind::NotFound);
    assert_error(vfs.list(&dir.join("a")), ErrorKind::NotADirectory);
}

fn directories(vfs: &dyn Vfs, dir: &Path) {
    let deep = dir.join("x/y");
    vfs.create_dir_all(&deep).expect("create with parents");
    vfs.create_dir_all(&deep).expect("an existing directory is fine");
    assert_eq!(vfs.kind(&deep).expect("kind"), Some(EntryKind::Directory));
    drop(write(vfs, &deep.join("f"), b"x"));
    vfs.sync_dir(&deep).expect("sync");
    vfs.sync_dir(dir).expect("sync");
    assert_error(vfs.sync_dir(&dir.join("missing")), ErrorKind::NotFound);
    assert!(vfs.create_dir_all(&deep.join("f")).is_err(), "a file is in the way");
    vfs.free_space(dir).expect("free space of a directory");
}

fn lock_is_exclusive(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("LOCK");
    let lock = vfs.lock(&path).expect("lock");
    assert_eq!(vfs.kind(&path).expect("kind"), Some(EntryKind::File), "the file is created");
    assert_error(vfs.lock(&path), ErrorKind::WouldBlock);
    let _other = vfs.lock(&dir.join("OTHER")).expect("another lock is another lock");
    drop(lock);
    assert_eq!(vfs.kind(&path).expect("kind"), Some(EntryKind::File), "the file stays");
    let _again = vfs.lock(&path).expect("a dropped lock is free");
    assert_error(vfs.lock(&path), ErrorKind::WouldBlock);
}

fn missing_files_are_not_found(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("missing");
    assert_error(vfs.open(&path), ErrorKind::NotFound);
    assert_error(vfs.open_append(&path), ErrorKind::NotFound);
    assert_error(vfs.remove(&path), ErrorKind::NotFound);
    assert_error(vfs.rename(&path, &dir.join("to")), ErrorKind::NotFound);
    assert_error(vfs.lock(&path.join("LOCK")), ErrorKind::NotFound);
    assert_eq!(vfs.kind(&path).expect("kind"), None);
    assert_eq!(vfs.list(dir).expect("list"), [], "nothing was created on the way");
}

fn directories_are_not_files(vfs: &dyn Vfs, dir: &Path) {
    let sub = dir.join("sub");
    vfs.create_dir_all(&sub).expect("create a directory");
    assert!(vfs.open(&sub).is_err(), "open");
    assert!(vfs.open_append(&sub).is_err(), "open for appending");
    assert!(vfs.remove(&sub).is_err(), "remove");
    assert!(vfs.lock(&sub).is_err(), "lock");
    assert_error(vfs.create_new(&sub), ErrorKind::AlreadyExists);
    drop(write(vfs, &dir.join("f"), b"x"));
    assert!(vfs.rename(&dir.join("f"), &sub).is_err(), "rename over a directory");
    assert_eq!(read(vfs, &dir.join("f")), b"x");
}

fn preallocate_keeps_the_length(vfs: &dyn Vfs, dir: &Path) {
    let path = dir.join("f");
    let mut file = write(vfs, &path, b"abc");
    file.preallocate(100_000).expect("preallocate");
    file.preallocate(1).expect("preallocate below the length");
    assert_eq!(file.len(), 3);
    assert_eq!(read(vfs, &path), b"abc");
    file.append(b"def").expect("append");
    assert_eq!(read(vfs, &path), b"abcdef");
    file.truncate(6).expect("truncate gives the room back");
    assert_eq!(read(vfs, &path), b"abcdef");
}

/// Appends take the place of the zeros, in part and across their end; a cut takes the rest away. (A file system that can't
/// is let off.)
fn extend_writes_zeros(vfs: &dyn Vfs, dir: &Path) {
    zeros_behind(vfs, &dir.join("f"), |file, len| file.extend(len).expect("extend"));
}

/// With a mapping everything is the same, and windows end at any byte.
fn mapped_appends(vfs: &dyn Vfs, dir: &Path) {
    let mut file = write(vfs, &dir.join("f"), b"abc");
    if let Err(error) = file.map(10) {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert_eq!((file.len(), read(vfs, &dir.join("f"))), (3, b"abc".to_vec()));
        return;
    }
    drop(file);
    let map = |file: &mut dyn WritableFile, len| file.map(len).expect("map");
    zeros_behind(vfs, &dir.join("g"), map);
    records_in_windows(vfs, &dir.join("h"), &map);
    records_in_windows(vfs, &dir.join("i"), &|file, len| match len % 3 {
        0 => map(file, len),
        _ => file.extend(len).expect("extend"),
    });
}

fn zeros_behind(vfs: &dyn Vfs, path: &Path, extend: impl Fn(&mut dyn WritableFile, u64)) {
    let mut file = write(vfs, path, b"abc");
    extend(&mut *file, 10);
    assert_eq!(file.len(), 3, "the next append goes where it went before");
    if read(vfs, path).len() == 3 {
        return;
    }
    // What is mapped are whole pages.
    let len = read(vfs, path).len();
    let zeros_then = |data: &[u8]| [data, &vec![0; len - data.len()]].concat();
    assert!(len >= 10, "{len}");
    assert_eq!(read(vfs, path), zeros_then(b"abc"));
    extend(&mut *file, 5);
    file.append(b"de").expect("append");
    file.syncer().sync_data().expect("sync");
    assert_eq!((file.len(), read(vfs, path)), (5, zeros_then(b"abcde")));
    let rest = vec![b'x'; len];
    file.append(&rest).expect("append across the end of the zeros");
    let mut all = [&b"abcde"[..], &rest].concat();
    assert_eq!((file.len(), read(vfs, path) == all), (5 + len as u64, true));
    extend(&mut *file, 3 * len as u64);
    file.append(b"m").expect("append");
    all.push(b'm');
    file.truncate(6 + len as u64).expect("a cut at the end takes the zeros away");
    assert_eq!((file.len(), read(vfs, path) == all), (6 + len as u64, true));
    file.append(b"n").expect("append");
    all.push(b'n');
    assert!(read(vfs, path) == all);
    file.sync_all().expect("sync");
    file.close().expect("close");
    assert!(read(vfs, path) == all);
}

/// Appends of all lengths, with some of the file ahead of them, cuts and syncs between.
fn records_in_windows(vfs: &dyn Vfs, path: &Path, extend: &dyn Fn(&mut dyn WritableFile, u64)) {
    let mut file = write(vfs, path, b"abc");
    let (mut all, mut extended) = (b"abc".to_vec(), 0);
    for step in 0..300_usize {
        if step % 7 == 0 {
            extended = all.len() + step * 97 % 20_000;
            extend(&mut *file, extended as u64);
        }
        let data: Vec<u8> = (0..step * 31 % 700).map(|i| (i + step) as u8 | 1).collect();
        file.append(&data).expect("append");
        all.extend_from_slice(&data);
        if step % 50 == 49 {
            all.pop();
            file.truncate(all.len() as u64).expect("cut");
            extended = 0;
        }
        if step % 11 == 0 {
            file.sync_data().expect("sync");
            let seen = read(vfs, path);
            assert!(seen.len() >= extended.max(all.len()), "step {step}");
            assert!(seen.starts_with(&all) && seen[all.len()..].iter().all(|byte| *byte == 0), "step {step}");
        }
    }
    assert_eq!(file.len(), all.len() as u64);
    file.truncate(all.len() as u64).expect("cut");
    file.close().expect("close");
    assert!(read(vfs, path) == all);
}
