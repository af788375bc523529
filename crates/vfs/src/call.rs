//! `Call` and `CallKind`: one call of the file system traits as a value, for the layers that count, watch or fail it.

use std::fmt;
use std::path::Path;

/// Which method was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum CallKind {
    /// [`Vfs::create_new`](crate::Vfs::create_new)
    Create,
    /// [`Vfs::open`](crate::Vfs::open)
    Open,
    /// [`Vfs::open_append`](crate::Vfs::open_append)
    OpenAppend,
    /// [`Vfs::rename`](crate::Vfs::rename)
    Rename,
    /// [`Vfs::link`](crate::Vfs::link)
    Link,
    /// [`Vfs::remove`](crate::Vfs::remove)
    Remove,
    /// [`Vfs::list`](crate::Vfs::list)
    List,
    /// [`Vfs::create_dir_all`](crate::Vfs::create_dir_all)
    CreateDirAll,
    /// [`Vfs::sync_dir`](crate::Vfs::sync_dir)
    SyncDir,
    /// [`Vfs::lock`](crate::Vfs::lock)
    Lock,
    /// [`Vfs::free_space`](crate::Vfs::free_space)
    FreeSpace,
    /// [`Vfs::kind`](crate::Vfs::kind)
    Kind,
    /// [`WritableFile::append`](crate::WritableFile::append)
    Append,
    /// [`WritableFile::sync_data`](crate::WritableFile::sync_data)
    SyncData,
    /// [`WritableFile::sync_all`](crate::WritableFile::sync_all)
    SyncAll,
    /// [`WritableFile::truncate`](crate::WritableFile::truncate)
    Truncate,
    /// [`WritableFile::preallocate`](crate::WritableFile::preallocate)
    Preallocate,
    /// [`WritableFile::extend`](crate::WritableFile::extend)
    Extend,
    /// [`WritableFile::map`](crate::WritableFile::map)
    Map,
    /// [`WritableFile::close`](crate::WritableFile::close)
    Close,
    /// [`RandomAccessFile::read_at`](crate::RandomAccessFile::read_at), also as part of `read_exact_at`
    Read,
    /// [`RandomAccessFile::len`](crate::RandomAccessFile::len)
    FileLen,
}

impl CallKind {
    /// Every kind, in the order of declaration.
    pub const ALL: [CallKind; 22] = [
        CallKind::Create,
        CallKind::Open,
        CallKind::OpenAppend,
        CallKind::Rename,
        CallKind::Link,
        CallKind::Remove,
        CallKind::List,
        CallKind::CreateDirAll,
        CallKind::SyncDir,
        CallKind::Lock,
        CallKind::FreeSpace,
        CallKind::Kind,
        CallKind::Append,
        CallKind::SyncData,
        CallKind::SyncAll,
        CallKind::Truncate,
        CallKind::Preallocate,
        CallKind::Extend,
        CallKind::Map,
        CallKind::Close,
        CallKind::Read,
        CallKind::FileLen,
    ];

    /// Position in [`ALL`](Self::ALL).
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether the call makes something durable: `SyncData`, `SyncAll` or `SyncDir`.
    pub fn is_sync(self) -> bool {
        matches!(self, CallKind::SyncData | CallKind::SyncAll | CallKind::SyncDir)
    }

    /// Whether the call changes what the file system holds now or after a power loss; for crash tests these are the
    /// calls that need an image.
    pub fn is_change(self) -> bool {
        match self {
            CallKind::Create
            | CallKind::Rename
            | CallKind::Link
            | CallKind::Remove
            | CallKind::CreateDirAll
            | CallKind::SyncDir
            | CallKind::Lock
            | CallKind::Append
            | CallKind::SyncData
            | CallKind::SyncAll
            | CallKind::Truncate
            | CallKind::Extend
            | CallKind::Map => true,
            CallKind::Open
            | CallKind::OpenAppend
            | CallKind::List
            | CallKind::FreeSpace
            | CallKind::Kind
            | CallKind::Preallocate
            | CallKind::Close
            | CallKind::Read
            | CallKind::FileLen => false,
        }
    }
}

/// One call, on the way to the file system below.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Which method.
    pub kind: CallKind,
    /// The path given; for a call on an open file the path it was opened under, also when it was renamed since.
    pub path: &'a Path,
    /// The second path of `Rename` and `Link`.
    pub target: Option<&'a Path>,
    /// `Append`: bytes of data. `Read`: bytes asked for. `Truncate`, `Preallocate`, `Extend`
    /// and `Map`: the length. Else 0.
    pub bytes: u64,
}

impl<'a> Call<'a> {
    /// A call with one path and no bytes.
    #[inline]
    pub(crate) fn new(kind: CallKind, path: &'a Path) -> Self {
        Call { kind, path, target: None, bytes: 0 }
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.kind, self.path.display())?;
        if let Some(target) = self.target {
            write!(f, " -> {}", target.display())?;
        }
        if self.bytes != 0 {
            write!(f, " ({} bytes)", self.bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ALL` and `index` agree, so arrays by kind are right.
    #[test]
    fn index_is_the_position_in_all() {
        for (index, kind) in CallKind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), index);
        }
    }
}
