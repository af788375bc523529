//! `InterceptVfs`: a layer over any file system that passes each call through an [`Interceptor`].
//!
//! The fault, counting and observing layers are this one with different interceptors, so the delegation is written
//! once. Tests may bring their own, for example to check the order of syncs and renames.

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::{Call, CallKind, DirEntry, EntryKind, FileLock, FileSync, RandomAccessFile, Vfs, WritableFile};

/// What stands between the caller and the file system below. Called from many threads at once.
pub trait Interceptor: Send + Sync + Debug + 'static {
    /// Handles any call; `run` carries it out below.
    fn call<T>(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<T>) -> io::Result<T>;

    /// Handles a call without a result, which an interceptor can leave out and still answer.
    fn unit(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        self.call(call, run)
    }

    /// Handles an append, of which an interceptor can carry out a part.
    fn append(&self, call: &Call<'_>, file: &mut dyn WritableFile, data: &[u8]) -> io::Result<()> {
        self.unit(call, || file.append(data))
    }

    /// Handles a read, whose bytes and count an interceptor can see and change.
    fn read(
        &self,
        call: &Call<'_>,
        file: &dyn RandomAccessFile,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        self.call(call, || file.read_at(offset, buf))
    }
}

/// A file system whose every call passes through an [`Interceptor`]. A clone shares the interceptor.
///
/// `WritableFile::len` is not a call: it cannot fail. Dropping a handle or a lock is none either.
#[derive(Debug)]
pub struct InterceptVfs<I> {
    inner: Arc<dyn Vfs>,
    interceptor: Arc<I>,
}

impl<I: Interceptor> InterceptVfs<I> {
    /// Puts `interceptor` over `inner`.
    pub fn with_interceptor(inner: Arc<dyn Vfs>, interceptor: I) -> Self {
        InterceptVfs { inner, interceptor: Arc::new(interceptor) }
    }

    /// The interceptor.
    pub fn interceptor(&self) -> &I {
        &self.interceptor
    }

    /// The file system below.
    pub fn inner(&self) -> &Arc<dyn Vfs> {
        &self.inner
    }

    fn writable(&self, path: &Path, inner: Box<dyn WritableFile>) -> Box<dyn WritableFile> {
        Box::new(InterceptWriter { inner, path: path.into(), interceptor: Arc::clone(&self.interceptor) })
    }
}

impl<I> Clone for InterceptVfs<I> {
    fn clone(&self) -> Self {
        InterceptVfs { inner: Arc::clone(&self.inner), interceptor: Arc::clone(&self.interceptor) }
    }
}

impl<I: Interceptor> Vfs for InterceptVfs<I> {
    fn create_new(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let file =
            self.interceptor.call(&Call::new(CallKind::Create, path), || self.inner.create_new(path))?;
        Ok(self.writable(path, file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn RandomAccessFile>> {
        let inner = self.interceptor.call(&Call::new(CallKind::Open, path), || self.inner.open(path))?;
        Ok(Arc::new(InterceptReader { inner, path: path.into(), interceptor: Arc::clone(&self.interceptor) }))
    }

    fn open_append(&self, path: &Path) -> io::Result<Box<dyn WritableFile>> {
        let call = Call::new(CallKind::OpenAppend, path);
        let file = self.interceptor.call(&call, || self.inner.open_append(path))?;
        Ok(self.writable(path, file))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let call = Call { target: Some(to), ..Call::new(CallKind::Rename, from) };
        self.interceptor.unit(&call, || self.inner.rename(from, to))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let call = Call { target: Some(to), ..Call::new(CallKind::Link, from) };
        self.interceptor.unit(&call, || self.inner.link(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.interceptor.unit(&Call::new(CallKind::Remove, path), || self.inner.remove(path))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.interceptor.call(&Call::new(CallKind::List, dir), || self.inner.list(dir))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        self.interceptor.unit(&Call::new(CallKind::CreateDirAll, dir), || self.inner.create_dir_all(dir))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.interceptor.unit(&Call::new(CallKind::SyncDir, dir), || self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn FileLock>> {
        self.interceptor.call(&Call::new(CallKind::Lock, path), || self.inner.lock(path))
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.interceptor.call(&Call::new(CallKind::FreeSpace, dir), || self.inner.free_space(dir))
    }

    fn kind(&self, path: &Path) -> io::Result<Option<EntryKind>> {
        self.interceptor.call(&Call::new(CallKind::Kind, path), || self.inner.kind(path))
    }
}

#[derive(Debug)]
struct InterceptWriter<I> {
    inner: Box<dyn WritableFile>,
    path: Box<Path>,
    interceptor: Arc<I>,
}

impl<I: Interceptor> WritableFile for InterceptWriter<I> {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let call = Call { bytes: data.len() as u64, ..Call::new(CallKind::Append, &self.path) };
        self.interceptor.append(&call, &mut *self.inner, data)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.interceptor.unit(&Call::new(CallKind::SyncData, &self.path), || self.inner.sync_data())
    }

    fn sync_all(&mut self) -> io::Result<()> {
        self.interceptor.unit(&Call::new(CallKind::SyncAll, &self.path), || self.inner.sync_all())
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let call = Call { bytes: len, ..Call::new(CallKind::Truncate, &self.path) };
        self.interceptor.unit(&call, || self.inner.truncate(len))
    }

    fn preallocate(&mut self, len: u64) -> io::Result<()> {
        let call = Call { bytes: len, ..Call::new(CallKind::Preallocate, &self.path) };
        self.interceptor.unit(&call, || self.inner.preallocate(len))
    }

    fn extend(&mut self, len: u64) -> io::Result<()> {
        let call = Call { bytes: len, ..Call::new(CallKind::Extend, &self.path) };
        self.interceptor.unit(&call, || self.inner.extend(len))
    }

    fn map(&mut self, len: u64) -> io::Result<()> {
        let call = Call { bytes: len, ..Call::new(CallKind::Map, &self.path) };
        self.interceptor.unit(&call, || self.inner.map(len))
    }

    fn syncer(&self) -> Arc<dyn FileSync> {
        let (path, interceptor) = (self.path.clone(), Arc::clone(&self.interceptor));
        Arc::new(InterceptSync { inner: self.inner.syncer(), path, interceptor })
    }

    fn close(self: Box<Self>) -> io::Result<()> {
        let InterceptWriter { inner, path, interceptor } = *self;
        interceptor.unit(&Call::new(CallKind::Close, &path), || inner.close())
    }
}

#[derive(Debug)]
struct InterceptSync<I> {
    inner: Arc<dyn FileSync>,
    path: Box<Path>,
    interceptor: Arc<I>,
}

impl<I: Interceptor> FileSync for InterceptSync<I> {
    fn sync_data(&self) -> io::Result<()> {
        self.interceptor.unit(&Call::new(CallKind::SyncData, &self.path), || self.inner.sync_data())
    }
}

#[derive(Debug)]
struct InterceptReader<I> {
    inner: Arc<dyn RandomAccessFile>,
    path: Box<Path>,
    interceptor: Arc<I>,
}

impl<I: Interceptor> RandomAccessFile for InterceptReader<I> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let call = Call { bytes: buf.len() as u64, ..Call::new(CallKind::Read, &self.path) };
        self.interceptor.read(&call, &*self.inner, offset, buf)
    }

    fn len(&self) -> io::Result<u64> {
        self.interceptor.call(&Call::new(CallKind::FileLen, &self.path), || self.inner.len())
    }

    /// Not a call of its own: who asks reads there next.
    fn next_data(&self, offset: u64) -> io::Result<u64> {
        self.inner.next_data(offset)
    }
}
