//! `OsVfs`: the real disk, through `std::fs`, and `rustix` where that does not reach.
//!
//! Only regular files are opened: whatever a stranger puts under a name of ours, a symbolic link, a pipe or a device,
//! is an error at once and never a wait. Nothing is shared between handles, so there are no locks here.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the implementation of the file system on the real one"
)]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;

#[cfg(target_os = "linux")]
use crate::map;
use crate::{DirEntry, EntryKind, FileLock, FileSync, RandomAccessFile, Vfs, WritableFile};

use map::{Fit, Window};

/// The file system of the operating system.
///
/// Files are created with mode 0600 and directories with 0700. The lock is `flock` on the file, which belongs to the
/// opened handle, so a second one in the same process is refused as well; the holder's process id is written into the
/// file for people and for the error message, and never believed. On Windows directories are not synced and room is
/// neither reserved nor told.
///
/// The status of `close` cannot be seen without unsafe code: a late error of a network file system is reported by the
/// sync before, or not at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsVfs;

impl OsVfs {
    /// The file system of the operating system.
    pub fn new() -> Self {
        OsVfs
    }
}

impl Vfs for OsVfs {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        // For reading too: what is mapped has to be.
        let file = options().read(true).write(true).create_new(true).open(path)?;
        Ok(Box::new(OsWriter::new(file, 0)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let (file, _) = open_regular(options().read(true), path)?;
        Ok(Arc::new(OsReader { file }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let (file, len) = open_regular(options().read(true).write(true), path)?;
        Ok(Box::new(OsWriter::new(file, len)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        let mut list = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            match entry.metadata() {
                Ok(metadata) => {
                    let kind = kind_of(metadata.file_type());
                    let size = if kind == EntryKind::File { metadata.len() } else { 0 };
                    list.push(DirEntry { name, kind, size });
                }
                // Removed by somebody else since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        list.sort();
        Ok(list)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        sys::sync_dir(dir)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        let (file, _) = open_regular(options().read(true).write(true).create(true).truncate(false), path)?;
        match file.try_lock() {
            Ok(()) => {
                // The id is a courtesy: a disk that is full must not keep the database from opening.
                let id = format!("{}\n", std::process::id());
                if has_one_name(&file) {
                    let _ = file.set_len(0).and_then(|()| sys::write_at(&file, id.as_bytes(), 0));
                }
                Ok(Box::new(OsLock { file }))
            }
            Err(std::fs::TryLockError::WouldBlock) => Err(held_error(&file)),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        sys::free_space(dir)
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(kind_of(metadata.file_type()))),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Options under which no link is followed, no open waits and no child process inherits the handle.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NONBLOCK;
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
    }
    options
}

/// Whether the file has no further name, which could be anywhere: a stranger's hard link, whose content is not ours.
fn has_one_name(file: &File) -> bool {
    #[cfg(unix)]
    return file.metadata().is_ok_and(|metadata| std::os::unix::fs::MetadataExt::nlink(&metadata) == 1);
    #[cfg(not(unix))]
    return file.metadata().is_ok();
}

/// Opens a file, makes sure that it is a regular one, and returns its length too.
fn open_regular(options: &OpenOptions, path: &Path) -> io::Result<(File, u64)> {
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata.len()))
    } else if metadata.is_dir() {
        Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "is not a regular file"))
    }
}

fn kind_of(kind: std::fs::FileType) -> EntryKind {
    if kind.is_file() {
        EntryKind::File
    } else if kind.is_dir() {
        EntryKind::Directory
    } else {
        EntryKind::Other
    }
}

/// Says that the lock is held, and by whom, if the file tells.
fn held_error(file: &File) -> io::Error {
    let mut buf = [0; 16];
    let read = read_full_at(file, &mut buf, 0).unwrap_or(0);
    let id = std::str::from_utf8(&buf[..read]).ok().and_then(|text| text.trim_end().parse::<u32>().ok());
    let what = match id {
        Some(id) => format!("the lock is held by process {id}"),
        None => "the lock is held".to_owned(),
    };
    io::Error::new(io::ErrorKind::WouldBlock, what)
}

/// `EFBIG` when a file must not get so long (`RLIMIT_FSIZE`). To try it costs a process its life (`SIGXFSZ`), unless it ignores
/// that signal: so room is not allocated ahead before this was asked.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(crate) fn check_size_limit(len: u64) -> io::Result<()> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    match limit {
        Some(limit) if len > limit => Err(rustix::io::Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// Reads until `buf` is full or the file ends.
fn read_full_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        // No file reaches this offset, so the end of the file has been met.
        let Some(at) = offset.checked_add(done as u64).filter(|at| i64::try_from(*at).is_ok()) else {
            break;
        };
        match sys::read_at(file, &mut buf[done..], at) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A file open for appending. `len` is where the next byte goes, after a failed append too.
#[derive(Debug)]
struct OsWriter {
    /// Where appends go as long as they fit. Before `file`: it ends first.
    window: Option<Window>,
    /// The file system, once it was found fit for that.
    fit: Option<Fit>,
    file: Arc<File>,
    len: u64,
}

impl OsWriter {
    fn new(file: File, len: u64) -> Self {
        OsWriter { window: None, fit: None, file: Arc::new(file), len }
    }

    fn write(&mut self, mut data: &[u8]) -> io::Result<()> {
        while !data.is_empty() {
            match sys::write_at(&self.file, data, self.len) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    data = &data[written..];
                    self.len += written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl WritableFile for OsWriter {
    #[inline]
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        if let Some(window) = &mut self.window
            && window.store(self.len, data)
        {
            self.len += data.len() as u64;
            return Ok(());
        }
        self.write(data)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        if len > self.len {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a file can only be cut to a shorter length",
            ));
        }
        // No store may meet a page behind the end.
        self.window = None;
        self.file.set_len(len)?;
        self.len = len;
        Ok(())
    }

    fn preallocate(&mut self, len: u64) -> io::Result<()> {
        match len.checked_sub(self.len) {
            None | Some(0) => Ok(()),
            Some(more) => sys::preallocate(&self.file, self.len, more),
        }
    }

    fn extend(&mut self, len: u64) -> io::Result<()> {
        match len.checked_sub(self.len) {
            None | Some(0) => Ok(()),
            Some(more) => sys::extend(&self.file, self.len, more),
        }
    }

    fn map(&mut self, len: u64) -> io::Result<()> {
        if len <= self.len || self.window.as_ref().is_some_and(|window| window.end() >= len) {
            return Ok(());
        }
        let fit = self.fit.or_else(|| Fit::of(&self.file)).ok_or(io::ErrorKind::Unsupported)?;
        self.fit = Some(fit);
        // One at a time.
        self.window = None;
        self.window = Some(Window::new(&self.file, fit, self.len, len)?);
        Ok(())
    }

    fn syncer(&self) -> Arc<dyn FileSync> {
        Arc::new(OsSync { file: Arc::clone(&self.file) })
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

/// The same open file as that of a writer.
#[derive(Debug)]
struct OsSync {
    file: Arc<File>,
}

impl FileSync for OsSync {
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// A file open for reading.
#[derive(Debug)]
struct OsReader {
    file: File,
}

impl RandomAccessFile for OsReader {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        read_full_at(&self.file, buf, offset)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn next_data(&self, offset: u64) -> io::Result<u64> {
        sys::next_data(&self.file, offset)
    }
}

/// The held lock. It belongs to the open file, which a child that was just forked shares until it runs its own program:
/// so it is given back by a call, not only by closing our handle.
#[derive(Debug)]
struct OsLock {
    file: File,
}

impl FileLock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        // Closing the file, which follows, does the same unless the handle is shared.
        let _ = self.file.unlock();
    }
}

/// Where nothing is mapped.
#[cfg(not(target_os = "linux"))]
mod map {
    use std::fs::File;
    use std::io;

    /// There is none.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Fit {}

    /// There is none.
    #[derive(Debug)]
    pub(super) enum Window {}

    impl Fit {
        pub(super) fn of(_file: &File) -> Option<Fit> {
            None
        }
    }

    impl Window {
        pub(super) fn new(_file: &File, fit: Fit, _from: u64, _to: u64) -> io::Result<Window> {
            match fit {}
        }

        pub(super) fn end(&self) -> u64 {
            match *self {}
        }

        pub(super) fn store(&mut self, _at: u64, _data: &[u8]) -> bool {
            match *self {}
        }
    }
}

/// What differs between the systems.
#[cfg(unix)]
mod sys {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.read_at(buf, offset)
    }

    pub(super) fn write_at(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
        file.write_at(data, offset)
    }

    pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        File::from(rustix::fs::open(dir, flags, Mode::empty())?).sync_all()
    }

    pub(super) fn free_space(dir: &Path) -> io::Result<Option<u64>> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.checked_mul(stat.f_frsize))
    }

    /// Reserves room past the end. A file system that cannot is fine; one that is full is not.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn preallocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
        allocate(file, rustix::fs::FallocateFlags::KEEP_SIZE, offset, len)
    }

    /// The same, and the file has that length then.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn extend(file: &File, offset: u64, len: u64) -> io::Result<()> {
        allocate(file, rustix::fs::FallocateFlags::empty(), offset, len)
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn allocate(file: &File, flags: rustix::fs::FallocateFlags, offset: u64, len: u64) -> io::Result<()> {
        use rustix::io::Errno;
        super::check_size_limit(offset.saturating_add(len))?;
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, flags, offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Where the next data is. This moves the position of the handle, which nobody else uses.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub(super) fn next_data(file: &File, offset: u64) -> io::Result<u64> {
        use rustix::io::Errno;
        match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(data) => Ok(data.max(offset)),
            Err(Errno::NXIO) => Ok(file.metadata()?.len().max(offset)),
            // Not every file system knows its holes.
            Err(_) => Ok(offset),
        }
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn next_data(_file: &File, offset: u64) -> io::Result<u64> {
        Ok(offset)
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn preallocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    pub(super) fn extend(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(windows)]
mod sys {
    use std::fs::File;
    use std::io;
    use std::os::windows::fs::FileExt;
    use std::path::Path;

    pub(super) fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        file.seek_read(buf, offset)
    }

    pub(super) fn write_at(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
        file.seek_write(data, offset)
    }

    pub(super) fn next_data(_file: &File, offset: u64) -> io::Result<u64> {
        Ok(offset)
    }

    pub(super) fn sync_dir(_dir: &Path) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn free_space(_dir: &Path) -> io::Result<Option<u64>> {
        Ok(None)
    }

    pub(super) fn preallocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    pub(super) fn extend(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(all(test, unix))]
mod tests;
