//! Runs the contract suite on every implementation and on the layers over them, and compares memory with the real
//! disk under random operations; and crashes a small workload at every call.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use esker_vfs::{
    Call, CountingVfs, CrashMode, Event, FaultVfs, MemVfs, ObserveVfs, OsVfs, Vfs, WritableFile, contract,
};

type Layer = fn(Arc<dyn Vfs>) -> Arc<dyn Vfs>;

const LAYERS: [Layer; 4] = [
    |vfs| vfs,
    |vfs| Arc::new(FaultVfs::new(vfs)),
    |vfs| Arc::new(CountingVfs::new(vfs)),
    |vfs| Arc::new(ObserveVfs::new(vfs, Arc::new(|_, _| {}))),
];

/// Memory, plain and under each layer, in the root and below, also as the image of a crash.
#[test]
fn mem() {
    for layer in LAYERS {
        contract::check_all(&|| (layer(Arc::new(MemVfs::new())), PathBuf::from("/")));
        contract::check_all(&|| {
            let vfs = MemVfs::with_quota(1 << 20);
            vfs.create_dir_all("a/b".as_ref()).unwrap();
            let vfs = vfs.crash_clone_with(CrashMode::Keep);
            (layer(Arc::new(vfs)), PathBuf::from("a/b"))
        });
    }
}

/// The real disk, plain and under each layer.
#[test]
fn os() {
    for layer in LAYERS {
        let dirs = Mutex::new(Vec::new());
        contract::check_all(&|| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().to_owned();
            dirs.lock().unwrap().push(dir);
            (layer(Arc::new(OsVfs::new())), path)
        });
    }
}

/// A small seeded generator (xorshift); the tests need no good one.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// One of the file systems under comparison, with its open files by slot.
struct Side {
    vfs: Arc<dyn Vfs>,
    root: PathBuf,
    open: BTreeMap<u64, Box<dyn WritableFile>>,
}

impl Side {
    fn new(vfs: Arc<dyn Vfs>, root: &Path) -> Self {
        Side { vfs, root: root.to_owned(), open: BTreeMap::new() }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.root.join(["a", "b", "c", "sub/a", "sub/b", "sub", "none/a"][number as usize])
    }

    /// Carries out one operation and describes what came of it.
    fn run(&mut self, op: u64, slot: u64, from: u64, to: u64, len: u64) -> Result<String, io::ErrorKind> {
        let (from, to) = (self.path(from), self.path(to));
        let done = match op {
            0 | 1 => self.vfs.create_new(&from).map(|file| drop(self.open.insert(slot, file))),
            2 => self.vfs.open_append(&from).map(|file| drop(self.open.insert(slot, file))),
            3 => self.vfs.rename(&from, &to),
            4 => self.vfs.link(&from, &to),
            5 => self.vfs.remove(&from),
            6 => self.vfs.create_dir_all(&self.root.join("sub")),
            7 => {
                return self
                    .vfs
                    .list(&self.root)
                    .map(|list| format!("{list:?}"))
                    .map_err(|error| error.kind());
            }
            8 => return self.vfs.kind(&from).map(|kind| format!("{kind:?}")).map_err(|error| error.kind()),
            9 => {
                let open = self.open.remove(&slot);
                open.map_or(Ok(()), |file| file.close())
            }
            10 => self.open.get_mut(&slot).map_or(Ok(()), |file| file.truncate(len)),
            _ => self.open.get_mut(&slot).map_or(Ok(()), |file| file.append(&vec![len as u8; len as usize])),
        };
        let len = self.open.get(&slot).map(|file| file.len());
        done.map(|()| format!("{len:?}")).map_err(|error| error.kind())
    }

    fn contents(&self) -> BTreeMap<u64, Option<Vec<u8>>> {
        let read = |path: &Path| {
            let file = self.vfs.open(path).ok()?;
            let mut data = vec![0; file.len().ok()? as usize];
            file.read_exact_at(0, &mut data).ok().map(|()| data)
        };
        (0..7).map(|number| (number, read(&self.path(number)))).collect()
    }
}

/// Memory behaves like the disk under random operations, with the same kinds of error; its count of bytes in use stays
/// right; and images of it can be taken at any moment.
#[test]
fn memory_behaves_like_the_disk() {
    for seed in 1..=60 {
        println!("seed {seed}");
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let dir = tempfile::tempdir().unwrap();
        let mem = MemVfs::new();
        let mut sides =
            [Side::new(Arc::new(mem.clone()), Path::new("/")), Side::new(Arc::new(OsVfs::new()), dir.path())];
        // One handle a file: two writers of one file are outside of the contract.
        for step in 0..150 {
            let (op, slot, from, to) = (random.below(16), random.below(3), random.below(7), random.below(7));
            let len = random.below(200);
            if op == 3 && from == 5 {
                continue; // Renaming a directory is outside of the contract.
            }
            if op == 2 {
                sides.iter_mut().for_each(|side| side.open.clear());
            }
            let [memory, disk] = sides.each_mut().map(|side| side.run(op, slot, from, to, len));
            // Which of two mistakes is named, and how a directory in the way is, is the system's choice.
            match (&memory, &disk) {
                (Err(_), Err(_)) if from == 5 || matches!(op, 3 | 4) => {}
                _ => assert_eq!(memory, disk, "step {step}: op {op} slot {slot} {from} {to} {len}"),
            }
            let image = mem.crash_clone(random.below(u64::MAX));
            let by_name: usize = image.files().values().map(Vec::len).sum();
            assert!(image.total_bytes() <= by_name as u64, "links share their bytes");
        }
        assert_eq!(sides[0].contents(), sides[1].contents());
        sides[0].open.clear();
        for number in 0..7 {
            let _ = mem.remove(&sides[0].path(number));
        }
        assert_eq!(mem.total_bytes(), 0, "nothing is left of files without names and handles");
    }
}

/// Replaces `/current` by way of a temporary file, with or without each of the two syncs that make this safe.
fn replace(vfs: &dyn Vfs, sync_file: bool, sync_dir: bool) -> io::Result<()> {
    let mut file = vfs.create_new(Path::new("/tmp"))?;
    file.append(b"new")?;
    if sync_file {
        file.sync_data()?;
    }
    vfs.rename(Path::new("/tmp"), Path::new("/current"))?;
    if sync_dir {
        vfs.sync_dir(Path::new("/"))?;
    }
    Ok(())
}

/// What `/current` holds in images taken before and after every call of a replacement, and after its end.
fn crash_at_every_call(sync_file: bool, sync_dir: bool) -> (BTreeMap<String, u32>, BTreeMap<String, u32>) {
    const SEEDS: u64 = 40;
    fn look(image: &MemVfs, seen: &mut BTreeMap<String, u32>) {
        let bytes = image.read_file("/current").expect("the name is never without a file");
        *seen.entry(String::from_utf8_lossy(&bytes).into_owned()).or_insert(0) += 1;
    }
    let mem = MemVfs::new();
    mem.write_file("/current", b"old").unwrap();
    let during = Arc::new(Mutex::new(BTreeMap::new()));
    let observe = {
        let (mem, during) = (mem.clone(), Arc::clone(&during));
        move |_: &Call<'_>, _: Event| {
            (0..SEEDS).for_each(|seed| look(&mem.crash_clone(seed), &mut during.lock().unwrap()));
        }
    };
    replace(&ObserveVfs::new(Arc::new(mem.clone()), Arc::new(observe)), sync_file, sync_dir).unwrap();
    let mut after = BTreeMap::new();
    (0..SEEDS).for_each(|seed| look(&mem.crash_clone(seed), &mut after));
    let during = during.lock().unwrap().clone();
    (during, after)
}

/// The whole apparatus at work: a crash at every call of a right replacement shows the old or the new content, and of
/// one that lacks a sync it shows the mistake.
#[test]
fn a_crash_at_every_call_finds_a_missing_sync() {
    let keys = |seen: &BTreeMap<String, u32>| seen.keys().cloned().collect::<Vec<_>>();
    let (during, after) = crash_at_every_call(true, true);
    assert_eq!(
        (keys(&during), keys(&after)),
        (vec!["new".into(), "old".into()], vec!["new".into()]),
        "{during:?}"
    );
    let (during, after) = crash_at_every_call(true, false);
    assert_eq!(keys(&during), ["new", "old"], "{during:?}");
    assert_eq!(keys(&after), ["new", "old"], "without the directory's sync the replacement may be undone");
    let (during, after) = crash_at_every_call(false, true);
    assert!(keys(&during).contains(&String::new()), "without the file's sync it may be empty: {during:?}");
    assert!(
        after.keys().any(|bytes| bytes.len() == 3 && bytes != "new"),
        "or hold something else: {after:?}"
    );
}
