//! Tests of what only a real disk shows: strange files under our names, modes, the holder of a lock, reserved room.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

/// Links, pipes and directories under a name of ours are refused at once, for reading, appending and locking.
#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link, pipe) = (dir.path().join("target"), dir.path().join("link"), dir.path().join("pipe"));
    OsVfs.create_new(&target).unwrap();
    symlink(&target, &link).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for path in [link.as_path(), pipe.as_path(), dir.path()] {
        assert!(OsVfs.open(path).is_err(), "{path:?}");
        assert!(OsVfs.open_append(path).is_err(), "{path:?}");
        assert!(OsVfs.lock(path).is_err(), "{path:?}");
        assert_eq!(OsVfs.create_new(path).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{path:?}");
    }
    assert_eq!(OsVfs.kind(&link).unwrap(), Some(EntryKind::Other));
    assert_eq!(OsVfs.kind(&target.join("below")).unwrap(), None);
    let kinds: Vec<_> = OsVfs.list(dir.path()).unwrap().into_iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [EntryKind::Other, EntryKind::Other, EntryKind::File]);
}

/// Nobody but the owner may read what is created.
#[test]
fn modes_are_private() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join("a/b");
    OsVfs.create_dir_all(&sub).unwrap();
    OsVfs.create_new(&sub.join("f")).unwrap();
    OsVfs.lock(&sub.join("LOCK")).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&sub), mode(&dir.path().join("a"))], [0o700; 2]);
    assert_eq!([mode(&sub.join("f")), mode(&sub.join("LOCK"))], [0o600; 2]);
}

/// The error for a held lock names the process, when the file holds a number and not garbage.
#[test]
fn held_lock_names_its_holder() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    std::fs::write(&path, "a longer text that was here before").unwrap();
    let lock = OsVfs.lock(&path).unwrap();
    let error = OsVfs.lock(&path).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    std::fs::write(&path, [0xff; 40]).unwrap();
    assert_eq!(OsVfs.lock(&path).unwrap_err().to_string(), "the lock is held");
    drop(lock);
    assert!(OsVfs.lock(&path).is_ok());
    assert!(path.exists());
}

/// A lock file that is a hard link to a file elsewhere is locked, and its content is left alone. Mutation: the id is
/// written whatever other names the file has.
#[test]
fn a_lock_writes_into_no_file_with_another_name() {
    let dir = tempfile::tempdir().unwrap();
    let (elsewhere, path) = (dir.path().join("elsewhere"), dir.path().join("LOCK"));
    std::fs::write(&elsewhere, "precious").unwrap();
    std::fs::hard_link(&elsewhere, &path).unwrap();
    let _lock = OsVfs.lock(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "precious");
    assert_eq!(OsVfs.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// Preallocated room is really taken on the disk, and the free space is told.
#[test]
fn room_on_the_disk() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let mut file = OsVfs.create_new(&path).unwrap();
    file.append(b"x").unwrap();
    file.preallocate(1 << 20).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 1);
    // A file system that cannot reserve is allowed, one that changes the length is not.
    assert!(metadata.blocks() * 512 >= 1 << 20 || metadata.blocks() <= 16);
    assert!(OsVfs.free_space(dir.path()).unwrap().is_some_and(|bytes| bytes > 0));
}

/// A process that was forked and has not yet run its own program shares the handle: the lock must not live on in it.
#[test]
fn a_lock_that_is_given_back_is_free_though_its_handle_is_shared() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let file = File::create_new(&path).unwrap();
    file.try_lock().unwrap();
    let shared = file.try_clone().unwrap();
    drop(OsLock { file });
    drop(OsVfs::new().lock(&path).expect("the lock is free"));
    drop(shared);
}
