//! [`Window`]: a piece at the end of a file, mapped into memory so that appends to it are stores and no calls of the system.
//!
//! The one module of this crate with unsafe code (`docs/decisions/0036-a-mapped-log.md`). What is stored is in the page
//! cache when the instruction is done, as after `write`: it outlives the process, and `fdatasync` of the file makes it durable.
//!
//! A store has no error code: one that the file system cannot carry out kills the process (`SIGBUS`). So all that can fail is
//! done before: the room is allocated, and every page is made writable once by `MADV_POPULATE_WRITE`, whose error is that of
//! the page (Linux 5.14; on older systems nothing is mapped). What is left is
//!
//! - a file that somebody else cuts, or marks immutable: nobody may, the directory is locked and ours;
//! - a file system that takes a page back when it was written to the device, and then refuses it: those that copy on write,
//!   network and FUSE file systems. Only ext2, ext3, ext4, XFS and tmpfs are mapped ([`Fit`]);
//! - a device or file system that dies at this moment. A write would get an error then, and a sync does in both cases.

#![expect(unsafe_code, reason = "mapping a file has no safe form")]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use rustix::fs::{FallocateFlags, FsWord};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The numbers of ext2 to ext4, and of XFS.
const DISKS: [FsWord; 2] = [0xef53, 0x5846_5342];
const TMPFS: FsWord = 0x0102_1994;

/// Written to a new window at a time. The page cache gets pieces of this size then, where a fault for each page of 4 KiB
/// would cost five times as much as all of the rest; larger ones make the faults that are left slower again.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file system whose files may be mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fit {
    /// On a disk: zeros are written before pages are mapped, which makes that cheaper.
    Disk,
    /// In memory.
    Memory,
}

impl Fit {
    /// Whether the file is on one of them.
    pub(crate) fn of(file: &File) -> Option<Fit> {
        let number = rustix::fs::fstatfs(file).ok()?.f_type;
        match number {
            TMPFS => Some(Fit::Memory),
            _ => DISKS.contains(&number).then_some(Fit::Disk),
        }
    }
}

/// Some pages of a file, mapped for writing.
///
/// Invariant: `start` is the first of `len` bytes that one call of `mmap` has mapped, writable and shared, and that nobody
/// else knows of; they stand for the file's bytes from `offset` on.
#[derive(Debug)]
pub(crate) struct Window {
    start: NonNull<u8>,
    len: usize,
    offset: u64,
}

impl Window {
    /// Makes the file long enough, and maps it from the page of byte `from` to that of the byte before `to`. From `from` on
    /// there must be nothing but zeros, if anything.
    ///
    /// `file` must be open for reading and writing. It must not be cut below the window's end while there is one.
    pub(crate) fn new(file: &File, fit: Fit, from: u64, to: u64) -> io::Result<Window> {
        let page = rustix::param::page_size() as u64;
        let offset = from - from % page;
        let end = to.checked_next_multiple_of(page).filter(|end| *end > offset);
        let len = end.and_then(|end| usize::try_from(end - offset).ok());
        let len = len.ok_or(io::ErrorKind::InvalidInput)?;
        crate::os::check_size_limit(offset.saturating_add(len as u64))?;
        // Never sparse: a store into a hole of a full disk would have no error to give.
        rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len as u64)
        })?;
        if matches!(fit, Fit::Disk) {
            write_zeros(file, from, offset + len as u64)?;
        }
        // SAFETY: the address is the system's choice, so no memory of others is replaced.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::WRITE, MapFlags::SHARED, file, offset)
        }?;
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        };
        let window = Window { start, len, offset };
        // SAFETY: the range is the one just mapped (dropped in an error), and this advice changes no content.
        unsafe { rustix::mm::madvise(start.as_ptr().cast(), len, Advice::LinuxPopulateWrite) }?;
        Ok(window)
    }

    /// Where the window ends in the file.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.len as u64
    }

    /// Stores `data` at the file's byte `at`. False, and nothing is done, when that is not all in the window.
    #[inline]
    pub(crate) fn store(&mut self, at: u64, data: &[u8]) -> bool {
        let place = at.checked_sub(self.offset).and_then(|place| usize::try_from(place).ok());
        let Some(place) = place.filter(|&place| place <= self.len && data.len() <= self.len - place) else {
            return false;
        };
        // SAFETY: `place + data.len() <= len`, so all of the target is in the mapping, which is writable and lives as long
        // as `self`. Nobody has a reference into it, and `&mut self` keeps other stores away; `data` lies elsewhere, since
        // no reference to the mapping is ever given out. Other processes may read the file meanwhile; that is no access of
        // this program's memory.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.start.as_ptr().add(place), data.len()) };
        true
    }
}

fn write_zeros(file: &File, from: u64, end: u64) -> io::Result<()> {
    let mut at = from;
    while at < end {
        let piece = (end - at).min(ZEROS.len() as u64);
        file.write_all_at(&ZEROS[..piece as usize], at)?;
        at += piece;
    }
    Ok(())
}

// SAFETY: the mapping belongs to the process, not to a thread, and this is the only way to it.
unsafe impl Send for Window {}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: by the invariant these are all the pages of one mapping, and with `self` the last use of it ends.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be taken away");
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "real files")]

    use super::*;

    fn file() -> File {
        tempfile::tempfile().unwrap()
    }

    /// Stores show at once to who reads the file, stay when the window is gone, and never leave it.
    #[test]
    fn stores_are_in_the_file() {
        let (file, page) = (file(), rustix::param::page_size() as u64);
        let fit = Fit::of(&file).unwrap_or(Fit::Memory);
        file.write_at(b"before", page - 1).unwrap();
        let mut window = Window::new(&file, fit, page + 5, page + 6).unwrap();
        assert_eq!((window.offset, window.end(), file.metadata().unwrap().len()), (page, 2 * page, 2 * page));
        assert!(window.store(page + 5, b"hello"));
        assert!(window.store(2 * page - 1, b"!"));
        assert!(window.store(2 * page, b""), "nothing fits at the end");
        assert!(!window.store(2 * page - 1, b"ab") && !window.store(page - 1, b"x"));
        assert!(!window.store(u64::MAX, b"x") && !window.store(2 * page + 1, b""));
        let look = |at| {
            let mut byte = [0; 6];
            file.read_exact_at(&mut byte[..5], at).map(|()| byte)
        };
        assert_eq!(look(page + 5).unwrap(), *b"hello\0");
        assert_eq!(look(page - 1).unwrap(), *b"befor\0");
        drop(window);
        assert_eq!(look(2 * page - 5).unwrap(), *b"\0\0\0\0!\0");
        file.sync_data().unwrap();
    }

    /// What can't be mapped is an error, and no signal.
    #[test]
    fn refusals_are_errors() {
        let (file, fit) = (file(), Fit::Disk);
        assert!(Window::new(&file, fit, 10, 10).is_ok(), "at least the page of the first byte");
        assert!(Window::new(&file, fit, 1 << 20, 5).is_err());
        assert!(Window::new(&file, fit, 0, u64::MAX).is_err());
        assert!(Window::new(&file, fit, 0, 1 << 62).is_err(), "more than any device has");
        let read_only = File::open("/proc/self/exe").unwrap();
        assert!(Window::new(&read_only, fit, 0, 1).is_err());
    }
}
