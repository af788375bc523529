//! [`OpenFiles`]: a bound on the files that are kept open for reading, and [`BoundedVfs`], the layer that keeps to it.
//!
//! A file that was opened through the layer is closed behind its user's back when too many others are open, and opened
//! again, under the same path, when it is read next. So it fits files that never change and whose names are never used
//! again. When the system has no handle left, any call that needs one closes all of these and is tried once more.
//!
//! Locks: that of the ring comes first, then that of a slot. Neither is held across a call of the file system.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{DirEntry, EntryKind, FileLock, RandomAccessFile, Vfs, WritableFile};

/// The files that are kept open for reading: at most so many, the least recently read ones closed first, about. May be
/// shared by any number of [`BoundedVfs`].
#[derive(Debug)]
pub struct OpenFiles {
    limit: usize,
    ring: Mutex<Ring>,
}

/// The open files, and a hand that goes round over them: whoever was read since it came by last is passed over.
#[derive(Debug, Default)]
struct Ring {
    open: BTreeMap<u64, Arc<Slot>>,
    hand: u64,
    next_id: u64,
}

/// One file, open or not.
struct Slot {
    id: u64,
    file: Mutex<Option<Arc<dyn RandomAccessFile>>>,
    /// Whether it was read, and found open, since the hand came by.
    used: AtomicBool,
}

impl OpenFiles {
    /// Keeps at most `limit` files open; at least one, and `usize::MAX` means no limit. A file that is being read right
    /// now may be open beyond that for as long.
    pub fn new(limit: usize) -> Self {
        OpenFiles { limit: limit.max(1), ring: Mutex::default() }
    }

    /// How many files are open.
    pub fn count(&self) -> usize {
        self.ring().open.len()
    }

    /// The most that are kept open.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Closes all files. They are opened again when they are read. Returns how many there were.
    pub fn close_all(&self) -> usize {
        let open = std::mem::take(&mut self.ring().open);
        // Closed at the end of the statement, without a lock.
        open.values().filter_map(|slot| slot.lock().take()).count()
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_slot(&self) -> Arc<Slot> {
        let mut ring = self.ring();
        ring.next_id += 1;
        Arc::new(Slot { id: ring.next_id, file: Mutex::new(None), used: AtomicBool::new(false) })
    }

    /// Keeps `file` for `slot`, unless another thread was faster; returns the one that is kept. Others are closed for it.
    fn keep(&self, slot: &Arc<Slot>, file: Arc<dyn RandomAccessFile>) -> Arc<dyn RandomAccessFile> {
        let mut closed = Vec::new();
        let kept = {
            let mut ring = self.ring();
            let kept = Arc::clone(slot.lock().get_or_insert(file));
            ring.open.insert(slot.id, Arc::clone(slot));
            while ring.open.len() > self.limit
                && let Some(victim) = ring.victim(slot.id)
            {
                closed.push(victim.lock().take());
            }
            kept
        };
        drop(closed);
        kept
    }

    fn forget(&self, slot: &Slot) {
        self.ring().open.remove(&slot.id);
    }
}

impl Ring {
    /// Takes out the next file that was not read since the hand came by; never the one with the id `not`.
    fn victim(&mut self, not: u64) -> Option<Arc<Slot>> {
        // Twice round at most: the first time marks are taken away.
        for _ in 0..=2 * self.open.len() {
            let next = self.open.range(self.hand..).next().or_else(|| self.open.range(..).next());
            let (&id, slot) = next?;
            self.hand = id + 1;
            if id != not && !slot.used.swap(false, Relaxed) {
                return self.open.remove(&id);
            }
        }
        None
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn RandomAccessFile>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A file system that keeps a bounded number of files open for reading, of those that `bounds` names.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use esker_vfs::{BoundedVfs, MemVfs, OpenFiles, RandomAccessFile, Vfs};
///
/// let mem = MemVfs::new();
/// mem.write_file("/a", b"a")?;
/// mem.write_file("/b", b"b")?;
/// let files = Arc::new(OpenFiles::new(1));
/// let vfs = BoundedVfs::new(Arc::new(mem), Arc::clone(&files), |_| true);
/// let (a, b) = (vfs.open(Path::new("/a"))?, vfs.open(Path::new("/b"))?);
/// let mut byte = [0];
/// for file in [&a, &b, &a] {
///     file.read_exact_at(0, &mut byte)?;
///     assert_eq!(files.count(), 1);
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BoundedVfs {
    inner: Arc<dyn Vfs>,
    files: Arc<OpenFiles>,
    bounds: fn(&Path) -> bool,
}

impl BoundedVfs {
    /// A layer over `inner` that keeps what it opens of the paths for which `bounds` holds in `files`.
    pub fn new(inner: Arc<dyn Vfs>, files: Arc<OpenFiles>, bounds: fn(&Path) -> bool) -> Self {
        BoundedVfs { inner, files, bounds }
    }

    /// Runs a call that takes a handle. When there is none left, all files that only wait to be read are closed, and the
    /// call is tried once more.
    fn with_handle<T>(&self, call: impl Fn() -> io::Result<T>) -> io::Result<T> {
        match call() {
            Err(error) if no_handle_left(&error) && self.files.close_all() > 0 => call(),
            result => result,
        }
    }
}

/// Whether the process, or the system, has as many files open as it may.
fn no_handle_left(error: &io::Error) -> bool {
    #[cfg(unix)]
    let codes = [rustix::io::Errno::MFILE.raw_os_error(), rustix::io::Errno::NFILE.raw_os_error()];
    // `ERROR_TOO_MANY_OPEN_FILES`.
    #[cfg(not(unix))]
    let codes = [4];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

impl Vfs for BoundedVfs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.with_handle(|| self.inner.create_new(path))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let file = self.with_handle(|| self.inner.open(path))?;
        if !(self.bounds)(path) {
            return Ok(file);
        }
        let slot = self.files.new_slot();
        self.files.keep(&slot, file);
        Ok(Arc::new(BoundedFile { slot, path: path.to_path_buf(), vfs: self.clone() }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        self.with_handle(|| self.inner.open_append(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.with_handle(|| self.inner.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.inner.create_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.with_handle(|| self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.with_handle(|| self.inner.lock(path))
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.inner.free_space(dir)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        self.inner.kind(path)
    }
}

/// A file that is open when it has to be.
#[derive(Debug)]
struct BoundedFile {
    slot: Arc<Slot>,
    path: PathBuf,
    vfs: BoundedVfs,
}

impl BoundedFile {
    fn file(&self) -> io::Result<Arc<dyn RandomAccessFile>> {
        let open = self.slot.lock().clone();
        match open {
            Some(file) => {
                if !self.slot.used.load(Relaxed) {
                    self.slot.used.store(true, Relaxed);
                }
                Ok(file)
            }
            // Not marked: who is read once does not push out who is read again and again.
            None => {
                let file = self.vfs.with_handle(|| self.vfs.inner.open(&self.path))?;
                Ok(self.vfs.files.keep(&self.slot, file))
            }
        }
    }
}

impl RandomAccessFile for BoundedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.file()?.read_at(offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.file()?.len()
    }

    fn next_data(&self, offset: u64) -> io::Result<u64> {
        self.file()?.next_data(offset)
    }
}

impl Drop for BoundedFile {
    fn drop(&mut self) {
        self.vfs.files.forget(&self.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CallKind, CountingVfs, Fault, FaultVfs, MemVfs};

    fn path(number: u64) -> PathBuf {
        PathBuf::from(format!("/{number}"))
    }

    fn byte(file: &dyn RandomAccessFile) -> io::Result<u8> {
        let mut byte = [0];
        file.read_exact_at(0, &mut byte).map(|()| byte[0])
    }

    fn disk(files: u64) -> MemVfs {
        let mem = MemVfs::new();
        for number in 0..files {
            mem.write_file(path(number), [number as u8]).unwrap();
        }
        mem
    }

    /// Never more are open than the limit says; every read gives the right file's bytes; who is dropped is forgotten.
    #[test]
    fn the_bound_holds() {
        for limit in [1, 2, 3, 7, usize::MAX] {
            let files = Arc::new(OpenFiles::new(limit));
            let vfs = BoundedVfs::new(Arc::new(disk(10)), Arc::clone(&files), |_| true);
            let mut open: Vec<_> = (0..10).map(|number| vfs.open(&path(number)).unwrap()).collect();
            for round in 0..1000_u64 {
                let number = round * round % 10;
                assert_eq!(byte(&*open[number as usize]).unwrap(), number as u8);
                assert!(files.count() <= limit);
            }
            assert_eq!(files.count(), limit.min(10));
            open.truncate(1);
            assert!(files.count() <= 1);
            drop(open);
            assert_eq!(files.count(), 0);
        }
    }

    /// Who is read all the time stays open; who is not is opened again at each turn.
    #[test]
    fn the_hand_passes_over_files_in_use() {
        let counting = CountingVfs::new(Arc::new(disk(10)));
        let vfs = BoundedVfs::new(Arc::new(counting.clone()), Arc::new(OpenFiles::new(3)), |_| true);
        let open: Vec<_> = (0..10).map(|number| vfs.open(&path(number)).unwrap()).collect();
        let before = counting.counts().calls(CallKind::Open);
        for round in 0..100 {
            byte(&*open[0]).unwrap();
            byte(&*open[1 + round % 9]).unwrap();
        }
        let opens = counting.counts().calls(CallKind::Open) - before;
        assert!((99..=103).contains(&opens), "{opens} opens");
    }

    /// EMFILE: what waits is closed, and the call tried once more; when nothing waits, or that does not help, the error
    /// comes out, and the next call works again.
    #[test]
    fn without_handles_others_are_closed() {
        let faults = FaultVfs::new(Arc::new(disk(4)));
        let files = Arc::new(OpenFiles::new(10));
        let vfs = BoundedVfs::new(Arc::new(faults.clone()), Arc::clone(&files), |path| path != self::path(3));
        let emfile = || Fault::nth(1).kind(CallKind::Open).kind(CallKind::SyncDir).os_error(24);
        faults.arm(emfile());
        assert_eq!(vfs.open(&path(0)).unwrap_err().raw_os_error(), Some(24), "nothing could be closed");
        let open: Vec<_> = (0..3).map(|number| vfs.open(&path(number)).unwrap()).collect();
        faults.disarm();
        faults.arm(emfile());
        let last = vfs.open(&path(3)).unwrap();
        assert_eq!((files.count(), byte(&*last).unwrap()), (0, 3), "that one is not bounded");
        faults.disarm();
        faults.arm(emfile().forever());
        assert_eq!(byte(&*open[1]).unwrap_err().raw_os_error(), Some(24));
        faults.disarm();
        assert_eq!((byte(&*open[1]).unwrap(), files.count()), (1, 1));
        faults.arm(emfile());
        vfs.sync_dir(Path::new("/")).unwrap();
        assert_eq!((files.count(), faults.fired()), (0, 4));
    }

    /// Many threads read few files through fewer handles: each gets the right bytes, and the bound holds at the end.
    #[test]
    fn threads_share_the_handles() {
        let files = Arc::new(OpenFiles::new(2));
        let vfs = BoundedVfs::new(Arc::new(disk(8)), Arc::clone(&files), |_| true);
        let open: Vec<_> = (0..8).map(|number| vfs.open(&path(number)).unwrap()).collect();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let (open, files) = (&open, &files);
                scope.spawn(move || {
                    for round in 0..5000_usize {
                        let number = (round * (thread + 3)) % 8;
                        assert_eq!(byte(&*open[number]).unwrap(), number as u8);
                        if round % 1000 == 0 {
                            files.close_all();
                        }
                    }
                });
            }
        });
        drop(open);
        assert_eq!(files.count(), 0);
    }
}
