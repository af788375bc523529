//! `MemFile`: one file of a [`MemVfs`](super::MemVfs), with the journal of what is not yet synced.
//!
//! Used by the directory tree (names) and by the two handle types at the end of this file. The newest content is held
//! whole; the journal lists the operations since the last sync in order and can undo them, so the durable content is
//! the newest content with the whole journal undone. A sync just forgets the journal, and so costs nothing.
//!
//! Locks: `state` is a leaf. Whoever holds it takes no other lock. A file's room counts against the quota while the
//! file has a name or an open handle.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::content::Content;
use crate::{FileLock, FileSync, RandomAccessFile, WritableFile};

/// From this many journal entries on, an append that continues the last one is joined to it, so that the journal of
/// a log that is never synced stays small.
const JOURNAL_LEN_MAX: usize = 1024;

/// The room of a file system: bytes in use and the quota.
#[derive(Debug)]
pub(super) struct Space {
    used: AtomicU64,
    quota: AtomicU64,
}

impl Space {
    /// Room for `quota` bytes; `u64::MAX` means no limit.
    pub(super) fn new(quota: u64) -> Self {
        Space { used: AtomicU64::new(0), quota: AtomicU64::new(quota) }
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The limit in bytes; `u64::MAX` means none.
    pub(super) fn quota(&self) -> u64 {
        self.quota.load(Ordering::Relaxed)
    }

    /// Changes the limit. A limit below what is in use only stops further growth.
    pub(super) fn set_quota(&self, quota: u64) {
        self.quota.store(quota, Ordering::Relaxed);
    }

    /// Takes `bytes`, all or nothing.
    fn take(&self, bytes: usize) -> io::Result<()> {
        let quota = self.quota();
        let taken = self.used.try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes as u64).filter(|used| *used <= quota)
        });
        match taken {
            Ok(_) => Ok(()),
            Err(used) => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("{bytes} bytes wanted, {used} of {quota} in use"),
            )),
        }
    }

    /// Takes `bytes` whatever the quota says; for copies of what existed already.
    fn take_anyway(&self, bytes: usize) {
        self.used.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn give(&self, bytes: usize) {
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

/// One operation that is not yet synced.
#[derive(Clone)]
pub(super) enum FileOp {
    /// The bytes of this range were appended.
    Append(Range<usize>),
    /// The bytes of this range took the place of zeros.
    Fill(Range<usize>),
    /// The file was cut to `len` bytes, and `cut` was what stood behind.
    Truncate { len: usize, cut: Arc<[u8]> },
}

/// What reads of a file show after a failed sync has lost what was pending there: see
/// [`MemVfs::lose_pending`](super::MemVfs::lose_pending).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostData {
    /// The new data, from pages that count as clean, until the power goes: as ext4 and XFS do it.
    ReadsNew,
    /// The data and the length as of the last sync, at once: as Btrfs does it. A handle that is open for appending goes
    /// on where it was, so its next append leaves a hole of zeros before it.
    ReadsOld,
}

/// What a file holds.
#[derive(Clone, Default)]
pub(super) struct FileState {
    /// The newest content, which reads see.
    pub(super) content: Content,
    /// Operations since the last sync, in order.
    pub(super) journal: Vec<FileOp>,
    /// Ranges whose data a failed sync has lost: they read well until the power goes, and as zeros after.
    pub(super) lost: Vec<Range<usize>>,
    /// Bytes asked for by `preallocate`.
    reserved: usize,
    /// Names plus open handles.
    refs: usize,
}

impl FileState {
    /// A file with this content, all of it durable.
    pub(super) fn synced(content: Content) -> Self {
        FileState { content, ..FileState::default() }
    }

    /// The content after the first `count` operations of the journal; 0 gives the durable content.
    pub(super) fn after(&self, count: usize) -> Content {
        let mut content = self.content.clone();
        for op in self.journal[count..].iter().rev() {
            match op {
                FileOp::Append(range) => content.truncate(range.start),
                FileOp::Fill(range) => content.change(range.clone(), |_, _| 0),
                FileOp::Truncate { cut, .. } => content.append(cut),
            }
        }
        content
    }

    /// How many bytes at the start are durable and touched by no operation of the journal.
    pub(super) fn stable_len(&self) -> usize {
        let starts = self.journal.iter().map(|op| match op {
            FileOp::Append(range) | FileOp::Fill(range) => range.start,
            FileOp::Truncate { len, .. } => *len,
        });
        starts.min().unwrap_or(self.content.len())
    }

    /// Whether an operation of the journal has touched a byte of the range.
    pub(super) fn is_pending(&self, range: Range<usize>) -> bool {
        self.journal.iter().any(|op| match op {
            FileOp::Append(touched) | FileOp::Fill(touched) => {
                touched.start < range.end && range.start < touched.end
            }
            FileOp::Truncate { len, .. } => *len < range.end,
        })
    }

    /// Bytes that count against the quota.
    fn charge(&self) -> usize {
        self.content.len().max(self.reserved)
    }

    fn append(&mut self, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let start = self.content.len();
        self.content.append(data);
        let end = self.content.len();
        if self.journal.len() >= JOURNAL_LEN_MAX
            && let Some(FileOp::Append(range)) = self.journal.last_mut()
        {
            range.end = end;
        } else {
            self.journal.push(FileOp::Append(start..end));
        }
    }

    /// Puts data in the place of zeros.
    fn fill(&mut self, start: usize, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = start + data.len();
        self.content.write_at(start, data);
        if self.journal.len() >= JOURNAL_LEN_MAX
            && let Some(FileOp::Fill(range)) = self.journal.last_mut()
            && range.end == start
        {
            range.end = end;
        } else {
            self.journal.push(FileOp::Fill(start..end));
        }
    }

    fn truncate(&mut self, len: usize) {
        let cut = self.content.slice(len..self.content.len()).into();
        self.content.truncate(len);
        self.journal.push(FileOp::Truncate { len, cut });
        self.lost.iter_mut().for_each(|range| range.end = range.end.min(len));
        self.lost.retain(|range| range.start < range.end);
    }
}

/// A file: what a name stands for, and what open handles share.
pub(super) struct MemFile {
    /// Names the file for ever; hard links share it, and so do the copies in crash images.
    pub(super) id: u64,
    space: Arc<Space>,
    state: RwLock<FileState>,
    locked: AtomicBool,
}

impl MemFile {
    /// A file with this content, without a name and a handle yet.
    pub(super) fn with_state(id: u64, space: &Arc<Space>, state: FileState) -> Arc<Self> {
        let state = RwLock::new(FileState { refs: 0, ..state });
        Arc::new(MemFile { id, space: Arc::clone(space), state, locked: AtomicBool::new(false) })
    }

    /// The state, for reading.
    pub(super) fn state(&self) -> RwLockReadGuard<'_, FileState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn state_mut(&self) -> RwLockWriteGuard<'_, FileState> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more name or handle.
    pub(super) fn retain(&self) {
        let mut state = self.state_mut();
        if state.refs == 0 {
            self.space.take_anyway(state.charge());
        }
        state.refs += 1;
    }

    /// Counts one name or handle less; the last one gives the room back.
    pub(super) fn release(&self) {
        let mut state = self.state_mut();
        state.refs -= 1;
        if state.refs == 0 {
            self.space.give(state.charge());
        }
    }

    /// Appends what a handle writes at `offset`, and returns where it goes on. First it takes the place of the zeros that
    /// stand there. Zeros fill the hole that is before it when the file got shorter behind the handle's back.
    fn append(&self, offset: usize, data: &[u8]) -> io::Result<usize> {
        if data.is_empty() {
            return Ok(offset);
        }
        let mut state = self.state_mut();
        let hole = offset.saturating_sub(state.content.len());
        let (inside, behind) = data.split_at(state.content.len().saturating_sub(offset).min(data.len()));
        let charge = (state.content.len() + hole + behind.len()).max(state.reserved);
        if charge > state.charge() {
            self.space.take(charge - state.charge())?;
        }
        state.fill(offset, inside);
        state.append(&vec![0; hole]);
        state.append(behind);
        Ok(offset + data.len())
    }

    /// Makes the file longer, with zeros.
    fn extend(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| invalid("the length does not fit into memory"))?;
        let now = self.state().content.len();
        if len > now { self.append(now, &vec![0; len - now]).map(drop) } else { Ok(()) }
    }

    /// Cuts the file to `len` bytes. If it got shorter than that behind the handle's back, zeros fill it up.
    fn set_len(&self, len: usize) -> io::Result<()> {
        let mut state = self.state_mut();
        if len > state.content.len() {
            let hole = len - state.content.len();
            drop(state);
            return self.append(len - hole, &vec![0; hole]).map(drop);
        }
        let before = state.charge();
        state.truncate(len);
        state.reserved = 0;
        self.space.give(before - state.charge());
        Ok(())
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).map_err(|_| invalid("the length does not fit into memory"))?;
        let mut state = self.state_mut();
        if len > state.charge() {
            self.space.take(len - state.charge())?;
            state.reserved = len;
        }
        Ok(())
    }

    /// Makes the newest content durable.
    pub(super) fn sync(&self) {
        self.state_mut().journal.clear();
    }

    /// Loses all that is not yet synced.
    pub(super) fn lose_pending(&self, shown: LostData) {
        let mut state = self.state_mut();
        match shown {
            LostData::ReadsNew => {
                let lost = state.stable_len()..state.content.len();
                if !lost.is_empty() {
                    state.lost.push(lost);
                }
            }
            LostData::ReadsOld => {
                let before = state.charge();
                state.content = state.after(0);
                state.journal.clear();
                if state.refs > 0 {
                    let now = state.charge();
                    // A cut comes back: that room was in use before.
                    self.space.take_anyway(now.saturating_sub(before));
                    self.space.give(before.saturating_sub(now));
                }
            }
        }
    }

    /// Replaces a byte by its exclusive or with `mask`, durably.
    pub(super) fn flip(&self, offset: u64, mask: u8) -> io::Result<()> {
        let mut state = self.state_mut();
        let offset = usize::try_from(offset).ok().filter(|offset| *offset < state.content.len());
        let offset = offset.ok_or_else(|| invalid("the offset is past the end of the file"))?;
        state.content.change(offset..offset + 1, |_, byte| byte ^ mask);
        Ok(())
    }

    /// Takes the lock, or returns `None` when it is held.
    pub(super) fn lock(self: &Arc<Self>) -> Option<MemLock> {
        let free = self.locked.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        free.then(|| MemLock { file: Arc::clone(self) })
    }
}

impl fmt::Debug for MemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemFile").field("id", &self.id).finish_non_exhaustive()
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// An open file: keeps the file's room in use until it is dropped.
#[derive(Debug)]
pub(super) struct MemHandle {
    file: Arc<MemFile>,
    /// Where the next append goes, as the handle knows it.
    end: usize,
}

impl MemHandle {
    /// Opens a file.
    pub(super) fn new(file: &Arc<MemFile>) -> Self {
        file.retain();
        MemHandle { file: Arc::clone(file), end: file.state().content.len() }
    }
}

impl Drop for MemHandle {
    fn drop(&mut self) {
        self.file.release();
    }
}

impl WritableFile for MemHandle {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.end = self.file.append(self.end, data)?;
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.file.sync();
        Ok(())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.file.sync();
        Ok(())
    }

    fn len(&self) -> u64 {
        self.end as u64
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let len = usize::try_from(len).ok().filter(|len| *len <= self.end);
        let len = len.ok_or_else(|| invalid("a file can only be cut to a shorter length"))?;
        self.file.set_len(len)?;
        self.end = len;
        Ok(())
    }

    fn preallocate(&mut self, len: u64) -> io::Result<()> {
        self.file.preallocate(len)
    }

    fn extend(&mut self, len: u64) -> io::Result<()> {
        self.file.extend(len)
    }

    /// All of it is memory.
    fn map(&mut self, len: u64) -> io::Result<()> {
        self.file.extend(len)
    }

    fn syncer(&self) -> Arc<dyn FileSync> {
        Arc::new(MemHandle::new(&self.file))
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}

impl FileSync for MemHandle {
    fn sync_data(&self) -> io::Result<()> {
        self.file.sync();
        Ok(())
    }
}

impl RandomAccessFile for MemHandle {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        // An offset that memory cannot hold is past the end of every file.
        Ok(usize::try_from(offset).map_or(0, |offset| self.file.state().content.read_at(offset, buf)))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.state().content.len() as u64)
    }
}

/// The held lock of a file.
#[derive(Debug)]
pub(super) struct MemLock {
    file: Arc<MemFile>,
}

impl FileLock for MemLock {}

impl Drop for MemLock {
    fn drop(&mut self) {
        self.file.locked.store(false, Ordering::Release);
    }
}
