//! Tests of the crash model: what stands in every image, what may be missing, and that each kind of loss does occur.

use std::collections::BTreeMap;
use std::path::Path;

use super::*;

/// Images looked at in tests that count kinds of outcome.
const SEEDS: u64 = 300;

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// A file system with a durable file `/f` of `synced` bytes 1 and then `unsynced` bytes 2 in one append each.
fn with_file(synced: usize, unsynced: usize) -> (MemVfs, Box<dyn WritableFile>) {
    let vfs = MemVfs::new();
    let mut file = vfs.create_new(path("/f")).unwrap();
    file.append(&vec![1; synced]).unwrap();
    file.sync_data().unwrap();
    vfs.sync_dir(path("/")).unwrap();
    file.append(&vec![2; unsynced]).unwrap();
    (vfs, file)
}

fn modes(seed: u64) -> Vec<CrashMode> {
    let mut modes = vec![
        CrashMode::Keep,
        CrashMode::Drop,
        CrashMode::Prefix { seed },
        CrashMode::Torn { seed },
        CrashMode::SizeOnly { seed },
        CrashMode::UnlinkFirst { seed },
        CrashMode::from_seed(seed),
    ];
    modes.extend([0, 10, 50, 90, 100].map(|keep_percent| CrashMode::Random { seed, keep_percent }));
    modes
}

/// Keep has everything, Drop only what was synced, and the old file system is not touched by either.
#[test]
fn keep_and_drop() {
    let (vfs, mut file) = with_file(5, 3);
    let (keep, drop) = (vfs.crash_clone_with(CrashMode::Keep), vfs.crash_clone_with(CrashMode::Drop));
    file.append(&[3]).unwrap();
    assert_eq!(keep.read_file("/f").unwrap(), [1, 1, 1, 1, 1, 2, 2, 2]);
    assert_eq!(drop.read_file("/f").unwrap(), [1; 5]);
    assert_eq!(vfs.read_file("/f").unwrap(), [1, 1, 1, 1, 1, 2, 2, 2, 3]);
    // A killed process syncs nothing: a power loss later still takes the unsynced bytes.
    assert_eq!(keep.crash_clone_with(CrashMode::Drop).read_file("/f").unwrap(), [1; 5]);
    keep.open_append(path("/f")).unwrap().sync_data().unwrap();
    assert_eq!(keep.crash_clone_with(CrashMode::Drop).read_file("/f").unwrap().len(), 8);
}

/// Nothing that was synced is missing from any image of any mode, with pending appends and cuts over it.
#[test]
fn synced_data_never_vanishes() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut rng = crate::rng::Rng::new(seed);
        let (vfs, mut file) = with_file(0, 0);
        let (mut newest, mut synced, mut stable) = (Vec::new(), Vec::new(), 0);
        for step in 0..20_u8 {
            match rng.below(6) {
                0 => {
                    file.sync_data().unwrap();
                    synced.clone_from(&newest);
                    stable = newest.len();
                }
                1 => {
                    let len = rng.below(newest.len() + 1);
                    file.truncate(len as u64).unwrap();
                    newest.truncate(len);
                    stable = stable.min(len);
                }
                _ => {
                    let data = vec![step + 1; rng.below(6000)];
                    file.append(&data).unwrap();
                    newest.extend_from_slice(&data);
                }
            }
            for mode in modes(rng.next()) {
                let image = vfs.crash_clone_with(mode).read_file("/f").unwrap();
                assert_eq!(image[..stable], synced[..stable], "{mode:?}");
                match mode {
                    CrashMode::Drop | CrashMode::Random { keep_percent: 0, .. } => assert_eq!(image, synced),
                    CrashMode::Keep | CrashMode::Random { keep_percent: 100, .. } => {
                        assert_eq!(image, newest)
                    }
                    _ => assert!(image.len() <= newest.len().max(synced.len()) + 20 * 6000),
                }
            }
        }
        // After a sync every image has exactly the newest bytes.
        file.sync_data().unwrap();
        for mode in modes(seed) {
            assert_eq!(vfs.crash_clone_with(mode).read_file("/f").unwrap(), newest, "{mode:?}");
        }
    }
}

/// What one image of the unsynced part of a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Gone,
    Whole,
    Short,
    ShortInsideWrite,
    ZerosAtEnd,
    GarbageAtEnd,
    HoleInside,
    AllLostSizeKept,
}

/// With three writes of 5000 bytes pending, every kind of partial survival turns up, and nothing of the synced part
/// is harmed in any.
#[test]
fn each_kind_of_loss_occurs() {
    let (vfs, mut file) = with_file(700, 5000);
    file.append(&[2; 5000]).unwrap();
    file.append(&[2; 5000]).unwrap();
    let mut seen = BTreeMap::new();
    for seed in 0..SEEDS {
        let image = vfs.crash_clone(seed).read_file("/f").unwrap();
        assert_eq!(image[..700], [1; 700], "seed {seed}");
        assert_eq!(vfs.crash_clone(seed).read_file("/f").unwrap(), image, "seed {seed} gives one image");
        let tail = &image[700..];
        let whole = tail.iter().all(|byte| *byte == 2);
        let outcome = match (tail.len(), whole) {
            (0, _) => Outcome::Gone,
            (15_000, true) => Outcome::Whole,
            (len, true) if len % 5000 == 0 => Outcome::Short,
            (_, true) => Outcome::ShortInsideWrite,
            _ if !tail.iter().take(600).any(|byte| *byte == 2) && tail[tail.len() - 1] != 2 => {
                Outcome::AllLostSizeKept
            }
            _ if tail[tail.len() - 1] == 2 => Outcome::HoleInside,
            _ if tail[tail.len() - 1] == 0 => Outcome::ZerosAtEnd,
            _ => Outcome::GarbageAtEnd,
        };
        *seen.entry(outcome).or_insert(0) += 1;
    }
    println!("{seen:?}");
    assert_eq!(seen.len(), 8, "every outcome occurs: {seen:?}");
    assert!(seen.values().all(|count| *count >= 3), "none is a rarity: {seen:?}");
}

/// A torn write is cut at single bytes, not only at block borders.
#[test]
fn torn_writes_end_at_any_byte() {
    let (vfs, _file) = with_file(10, 40);
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..1000 {
        let image = vfs.crash_clone_with(CrashMode::Torn { seed }).read_file("/f").unwrap();
        assert_eq!(image[..10], [1; 10]);
        if image.len() < 50 {
            lengths.insert(image.len() - 10);
        }
    }
    assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
}

/// A file that was synced in a directory that was not may vanish, whole, and may stay.
#[test]
fn unsynced_name_may_vanish() {
    let vfs = MemVfs::new();
    let mut file = vfs.create_new(path("/f")).unwrap();
    file.append(b"data").unwrap();
    file.sync_all().unwrap();
    let (mut there, mut gone) = (0, 0);
    for seed in 0..SEEDS {
        match vfs.crash_clone(seed).read_file("/f") {
            Ok(bytes) => {
                assert_eq!(bytes, b"data");
                there += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
                gone += 1;
            }
        }
    }
    assert!(there > 30 && gone > 30, "{there} there, {gone} gone");
    vfs.sync_dir(path("/")).unwrap();
    assert!((0..SEEDS).all(|seed| vfs.crash_clone(seed).read_file("/f").is_ok()));
}

/// A rename that is not synced shows the old or the new target, never neither and never a mixture.
#[test]
fn unsynced_rename_shows_old_or_new() {
    let vfs = MemVfs::new();
    vfs.write_file("/current", b"old").unwrap();
    vfs.write_file("/tmp", b"new").unwrap();
    vfs.rename(path("/tmp"), path("/current")).unwrap();
    assert_eq!(vfs.paths(), [path("/current")]);
    let (mut old, mut new) = (0, 0);
    for seed in 0..SEEDS {
        let image = vfs.crash_clone(seed);
        if image.read_file("/current").unwrap() == b"old" {
            assert_eq!(image.read_file("/tmp").unwrap(), b"new");
            old += 1;
        } else {
            assert_eq!(image.files(), BTreeMap::from([(PathBuf::from("/current"), b"new".to_vec())]));
            new += 1;
        }
    }
    assert!(old > 30 && new > 30, "{old} old, {new} new");
    vfs.sync_dir(path("/")).unwrap();
    assert!((0..SEEDS).all(|seed| vfs.crash_clone(seed).read_file("/current").unwrap() == b"new"));
}

/// The classical mistake: a rename of a file that was not synced may leave an empty or torn file under the name.
#[test]
fn rename_of_an_unsynced_file_may_lose_its_content() {
    let vfs = MemVfs::new();
    vfs.write_file("/current", b"old").unwrap();
    vfs.create_new(path("/tmp")).unwrap().append(b"new").unwrap();
    vfs.rename(path("/tmp"), path("/current")).unwrap();
    vfs.sync_dir(path("/")).unwrap();
    let lost =
        (0..SEEDS).filter(|seed| vfs.crash_clone(*seed).read_file("/current").unwrap() != b"new").count();
    assert!(lost > 30, "{lost} of {SEEDS}");
}

/// Directory operations survive in any order: of a creation and a removal each may be kept without the other.
#[test]
fn directory_operations_survive_in_any_order() {
    let vfs = MemVfs::new();
    vfs.write_file("/old", b"old").unwrap();
    vfs.create_new(path("/new")).unwrap().sync_all().unwrap();
    vfs.remove(path("/old")).unwrap();
    let mut seen = BTreeMap::new();
    for seed in 0..SEEDS {
        let image = vfs.crash_clone(seed);
        *seen.entry((image.read_file("/old").is_ok(), image.read_file("/new").is_ok())).or_insert(0) += 1;
        let image = vfs.crash_clone_with(CrashMode::UnlinkFirst { seed });
        assert!(image.read_file("/old").is_err());
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

/// A directory whose creation was not synced vanishes with all that it holds, synced or not.
#[test]
fn unsynced_directory_may_vanish() {
    let vfs = MemVfs::new();
    vfs.create_dir_all(path("/a/b")).unwrap();
    vfs.create_new(path("/a/b/f")).unwrap().sync_all().unwrap();
    vfs.sync_dir(path("/a/b")).unwrap();
    vfs.sync_dir(path("/a")).unwrap();
    let image = vfs.crash_clone_with(CrashMode::Drop);
    assert_eq!(image.kind(path("/a")).unwrap(), None);
    assert_eq!(image.list(path("/a/b")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(image.total_bytes(), 0);
    vfs.sync_dir(path("/")).unwrap();
    assert!((0..SEEDS).all(|seed| vfs.crash_clone(seed).read_file("/a/b/f").is_ok()));
}

/// A removal that is not synced may come undone, with the content.
#[test]
fn unsynced_removal_may_come_undone() {
    let vfs = MemVfs::new();
    vfs.write_file("/f", b"data").unwrap();
    vfs.remove(path("/f")).unwrap();
    assert_eq!(vfs.total_bytes(), 0, "the room is free at once");
    let image = vfs.crash_clone_with(CrashMode::Drop);
    assert_eq!(image.read_file("/f").unwrap(), b"data");
    assert_eq!(image.total_bytes(), 4);
    vfs.sync_dir(path("/")).unwrap();
    assert!(vfs.crash_clone_with(CrashMode::Drop).paths().is_empty());
}

/// Hard links stay links in an image, and locks are not held there.
#[test]
fn links_and_locks_in_images() {
    let vfs = MemVfs::new();
    vfs.write_file("/a", b"x").unwrap();
    vfs.link(path("/a"), path("/b")).unwrap();
    let lock = vfs.lock(path("/LOCK")).unwrap();
    assert_eq!(vfs.lock(path("/LOCK")).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    vfs.sync_dir(path("/")).unwrap();
    for mode in modes(7) {
        let image = vfs.crash_clone_with(mode);
        image.open_append(path("/a")).unwrap().append(b"y").unwrap();
        assert_eq!(image.read_file("/b").unwrap(), b"xy");
        assert_eq!(image.total_bytes(), 2);
        let _lock = image.lock(path("/LOCK")).unwrap();
    }
    drop(lock);
    assert_eq!(vfs.read_file("/b").unwrap(), b"x");
    vfs.lock(path("/LOCK")).unwrap();
}

/// After a lost sync, reads see the data and later syncs succeed, but a power loss takes it; later data is safe.
#[test]
fn lost_pending_data_stays_lost() {
    let (vfs, mut file) = with_file(3, 2);
    vfs.lose_pending("/f", LostData::ReadsNew).unwrap();
    file.append(&[3]).unwrap();
    file.sync_data().unwrap();
    assert_eq!(vfs.read_file("/f").unwrap(), [1, 1, 1, 2, 2, 3]);
    for seed in 0..SEEDS {
        assert_eq!(vfs.crash_clone(seed).read_file("/f").unwrap(), [1, 1, 1, 0, 0, 3]);
    }
    file.truncate(3).unwrap();
    file.append(&[4, 4]).unwrap();
    file.sync_data().unwrap();
    assert_eq!(vfs.crash_clone_with(CrashMode::Drop).read_file("/f").unwrap(), [1, 1, 1, 4, 4]);

    vfs.create_new(path("/g")).unwrap();
    vfs.lose_pending("/", LostData::ReadsNew).unwrap();
    vfs.sync_dir(path("/")).unwrap();
    assert!(vfs.read_file("/g").is_ok());
    assert!(vfs.crash_clone_with(CrashMode::Drop).read_file("/g").is_err());
}

/// The other way: reads show the old data and the old length at once, a writer goes on behind a hole, and a cut that was
/// lost comes back. The room follows.
#[test]
fn lost_pending_data_goes_old() {
    let (vfs, mut file) = with_file(3, 2);
    let reader = vfs.open(path("/f")).unwrap();
    vfs.lose_pending("/f", LostData::ReadsOld).unwrap();
    assert_eq!((vfs.read_file("/f").unwrap(), vfs.total_bytes()), (vec![1, 1, 1], 3));
    assert_eq!((reader.len().unwrap(), reader.read_at(2, &mut [0; 9]).unwrap(), file.len()), (3, 1, 5));
    file.append(&[3]).unwrap();
    assert_eq!(vfs.read_file("/f").unwrap(), [1, 1, 1, 0, 0, 3]);
    assert_eq!(vfs.crash_clone_with(CrashMode::Drop).read_file("/f").unwrap(), [1, 1, 1]);
    file.sync_data().unwrap();
    assert_eq!(vfs.crash_clone_with(CrashMode::Drop).read_file("/f").unwrap(), [1, 1, 1, 0, 0, 3]);

    file.truncate(1).unwrap();
    file.append(&[4]).unwrap();
    vfs.lose_pending("/f", LostData::ReadsOld).unwrap();
    assert_eq!((vfs.read_file("/f").unwrap(), vfs.total_bytes()), (vec![1, 1, 1, 0, 0, 3], 6));

    // A cut to a length that the file lost again fills it up, as `ftruncate` does.
    let mut file = vfs.create_new(path("/g")).unwrap();
    file.append(&[1; 4]).unwrap();
    vfs.lose_pending("/g", LostData::ReadsOld).unwrap();
    file.truncate(2).unwrap();
    assert_eq!((vfs.read_file("/g").unwrap(), file.len(), vfs.total_bytes()), (vec![0, 0], 2, 8));
}

/// A full file system refuses growth without adding a byte, goes on reading, and takes room back.
#[test]
fn quota() {
    let vfs = MemVfs::with_quota(10);
    let mut file = vfs.create_new(path("/f")).unwrap();
    file.append(&[1; 8]).unwrap();
    assert_eq!(file.append(&[1; 3]).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(file.preallocate(11).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(vfs.read_file("/f").unwrap(), [1; 8]);
    assert_eq!(vfs.free_space(path("/")).unwrap(), Some(2));
    file.preallocate(10).unwrap();
    assert_eq!((file.len(), vfs.total_bytes()), (8, 10));
    file.append(&[1; 2]).unwrap();
    vfs.set_quota(12);
    file.append(&[1; 2]).unwrap();
    file.truncate(4).unwrap();
    assert_eq!(vfs.total_bytes(), 4);
    vfs.remove(path("/f")).unwrap();
    assert_eq!(vfs.total_bytes(), 4, "an open file keeps its room");
    drop(file);
    assert_eq!(vfs.total_bytes(), 0);
    assert_eq!(vfs.crash_clone(1).free_space(path("/")).unwrap(), Some(12));
}

/// An image is one moment also while other threads write: a byte of the second file never comes without the byte of
/// the first file that was written before it.
#[test]
#[allow(clippy::disallowed_methods, reason = "the test needs a real second thread")]
fn images_are_one_moment() {
    let vfs = MemVfs::new();
    let mut files = ["/b", "/a"].map(|name| vfs.create_new(path(name)).unwrap());
    let writer = std::thread::spawn(move || {
        for _ in 0..200_000 {
            files.iter_mut().for_each(|file| file.append(&[1]).unwrap());
        }
    });
    while !writer.is_finished() {
        let image = vfs.crash_clone_with(CrashMode::Keep);
        let [first, second] = ["/b", "/a"].map(|name| image.read_file(name).unwrap().len());
        assert!(first == second || first == second + 1, "{first} {second}");
    }
    writer.join().unwrap();
}

/// The helpers: a durable write, a durable flip, the paths, and paths of any form.
#[test]
fn helpers() {
    let vfs = MemVfs::new();
    vfs.write_file("dir/./x/../f", b"abc").unwrap();
    vfs.flip("/dir/f", 1, 0x20).unwrap();
    assert_eq!(vfs.flip("/dir/f", 3, 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let image = vfs.crash_clone_with(CrashMode::Drop);
    assert_eq!(image.read_file("dir/f").unwrap(), b"aBc");
    assert_eq!(image.paths(), [path("/dir/f")]);
    vfs.write_file("/dir/f", b"z").unwrap();
    assert_eq!(vfs.crash_clone_with(CrashMode::Drop).files()[path("/dir/f")], b"z");
    assert_eq!(vfs.write_file("/dir", b"z").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(vfs.create_new(path("/none/f")).unwrap_err().kind(), io::ErrorKind::NotFound);
}

/// The journal of a file that is never synced stays small.
#[test]
fn journal_is_bounded() {
    let vfs = MemVfs::new();
    let mut file = vfs.create_new(path("/f")).unwrap();
    (0..10_000).for_each(|_| file.append(&[1; 10]).unwrap());
    let inner = vfs.tree().file(path("/f")).unwrap();
    assert!(inner.state().journal.len() <= 1024);
    assert_eq!(inner.state().after(0).len(), 0);
    assert_eq!(vfs.read_file("/f").unwrap().len(), 100_000);
}
