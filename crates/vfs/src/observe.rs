//! `CountingVfs` and `ObserveVfs`: layers that count calls and bytes, and that report each call to a function.
//!
//! Tests of costs compare [`Counts`] before and after; crash tests take a [`crash_clone`](crate::MemVfs::crash_clone)
//! before and after every call.

use std::fmt;
use std::io;
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Call, CallKind, InterceptVfs, Interceptor, RandomAccessFile, Vfs};

const KIND_COUNT: usize = CallKind::ALL.len();

/// A file system that counts its calls. A clone shares the counters.
pub type CountingVfs = InterceptVfs<Counters>;

impl CountingVfs {
    /// A layer over `inner` with all counts 0.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self::with_interceptor(inner, Counters::default())
    }

    /// The counts up to now. Calls under way may be in or not.
    pub fn counts(&self) -> Counts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = self.interceptor();
        Counts {
            calls: counters.calls.each_ref().map(load),
            bytes: counters.bytes.each_ref().map(load),
            failed: load(&counters.failed),
        }
    }
}

/// The counters of a [`CountingVfs`].
#[derive(Debug, Default)]
pub struct Counters {
    calls: [AtomicU64; KIND_COUNT],
    bytes: [AtomicU64; KIND_COUNT],
    failed: AtomicU64,
}

impl Counters {
    #[inline]
    fn count<T>(&self, kind: CallKind, bytes: u64, result: &io::Result<T>) {
        self.calls[kind.index()].fetch_add(1, Ordering::Relaxed);
        if result.is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        } else if bytes != 0 {
            self.bytes[kind.index()].fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

impl Interceptor for Counters {
    #[inline]
    fn call<T>(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let result = run();
        let bytes = if call.kind == CallKind::Append { call.bytes } else { 0 };
        self.count(call.kind, bytes, &result);
        result
    }

    fn read(
        &self,
        call: &Call<'_>,
        file: &dyn RandomAccessFile,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        let result = file.read_at(offset, buf);
        self.count(call.kind, result.as_ref().map_or(0, |read| *read as u64), &result);
        result
    }
}

/// How many calls were made, and how many bytes went through them. Subtract an earlier one for the time between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    calls: [u64; KIND_COUNT],
    bytes: [u64; KIND_COUNT],
    failed: u64,
}

impl Counts {
    /// Calls of a kind, failed ones included.
    pub fn calls(&self, kind: CallKind) -> u64 {
        self.calls[kind.index()]
    }

    /// Calls of all kinds.
    pub fn total_calls(&self) -> u64 {
        self.calls.iter().sum()
    }

    /// Calls of all kinds that failed.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Appends.
    pub fn appends(&self) -> u64 {
        self.calls(CallKind::Append)
    }

    /// Bytes appended by calls that succeeded.
    pub fn append_bytes(&self) -> u64 {
        self.bytes[CallKind::Append.index()]
    }

    /// Reads.
    pub fn reads(&self) -> u64 {
        self.calls(CallKind::Read)
    }

    /// Bytes that reads returned.
    pub fn read_bytes(&self) -> u64 {
        self.bytes[CallKind::Read.index()]
    }

    /// Syncs of files, of both sorts.
    pub fn syncs(&self) -> u64 {
        self.calls(CallKind::SyncData) + self.calls(CallKind::SyncAll)
    }

    /// Syncs of directories.
    pub fn dir_syncs(&self) -> u64 {
        self.calls(CallKind::SyncDir)
    }

    /// Files created.
    pub fn creates(&self) -> u64 {
        self.calls(CallKind::Create)
    }

    /// Files removed.
    pub fn removes(&self) -> u64 {
        self.calls(CallKind::Remove)
    }

    /// Files opened for reading or for appending.
    pub fn opens(&self) -> u64 {
        self.calls(CallKind::Open) + self.calls(CallKind::OpenAppend)
    }
}

impl Sub for Counts {
    type Output = Counts;

    /// What was counted since `earlier`.
    fn sub(self, earlier: Counts) -> Counts {
        let mut counts = self;
        counts.calls.iter_mut().zip(earlier.calls).for_each(|(count, before)| *count -= before);
        counts.bytes.iter_mut().zip(earlier.bytes).for_each(|(count, before)| *count -= before);
        counts.failed -= earlier.failed;
        counts
    }
}

impl fmt::Display for Counts {
    /// The kinds that occurred: `Create 1, Append 2 (30 bytes)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for kind in CallKind::ALL.into_iter().filter(|kind| self.calls(*kind) != 0) {
            write!(f, "{separator}{kind:?} {}", self.calls(kind))?;
            if self.bytes[kind.index()] != 0 {
                write!(f, " ({} bytes)", self.bytes[kind.index()])?;
            }
            separator = ", ";
        }
        if self.failed != 0 {
            write!(f, "{separator}failed {}", self.failed)?;
        }
        Ok(())
    }
}

/// At which moment of a call an observer is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Before it is carried out.
    Before,
    /// After it succeeded.
    Succeeded,
    /// After it failed.
    Failed(io::ErrorKind),
}

/// The function to which an [`ObserveVfs`] reports.
pub type Observe = Arc<dyn Fn(&Call<'_>, Event) + Send + Sync>;

/// A file system that reports every call to a function, before and after. A clone reports to the same function.
///
/// The function runs on the thread of the call, with no lock of this crate held, so it may use the file system below.
pub type ObserveVfs = InterceptVfs<Observer>;

impl ObserveVfs {
    /// A layer over `inner` that reports to `observe`.
    pub fn new(inner: Arc<dyn Vfs>, observe: Observe) -> Self {
        Self::with_interceptor(inner, Observer { observe })
    }
}

/// The function of an [`ObserveVfs`].
pub struct Observer {
    observe: Observe,
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").finish_non_exhaustive()
    }
}

impl Interceptor for Observer {
    fn call<T>(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        (self.observe)(call, Event::Before);
        let result = run();
        (self.observe)(
            call,
            result.as_ref().map_or_else(|error| Event::Failed(error.kind()), |_| Event::Succeeded),
        );
        result
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Mutex;

    use super::*;
    use crate::{CrashMode, MemVfs};

    /// Calls, bytes and failures are counted by kind, and can be subtracted and printed.
    #[test]
    fn counts() {
        let vfs = CountingVfs::new(Arc::new(MemVfs::with_quota(6)));
        let path = Path::new("/f");
        let mut file = vfs.create_new(path).unwrap();
        file.append(b"abcde").unwrap();
        let before = vfs.counts();
        file.append(b"f").unwrap();
        file.append(b"g").unwrap_err();
        file.sync_data().unwrap();
        file.sync_all().unwrap();
        vfs.sync_dir(Path::new("/")).unwrap();
        let reader = vfs.open(path).unwrap();
        assert_eq!(reader.read_at(4, &mut [0; 10]).unwrap(), 2);
        reader.read_exact_at(0, &mut [0; 3]).unwrap();
        vfs.remove(path).unwrap();

        let since = vfs.counts() - before;
        assert_eq!((since.appends(), since.append_bytes(), since.failed()), (2, 1, 1));
        assert_eq!((since.reads(), since.read_bytes()), (2, 5));
        assert_eq!(
            (since.syncs(), since.dir_syncs(), since.creates(), since.removes(), since.opens()),
            (2, 1, 0, 1, 1)
        );
        assert_eq!(since.total_calls(), 9);
        assert_eq!(before.to_string(), "Create 1, Append 1 (5 bytes)");
        assert!(since.to_string().ends_with("Read 2 (5 bytes), failed 1"), "{since}");
    }

    /// The function sees each call before and after, may take an image of the file system below, and the images show
    /// the state at that moment.
    #[test]
    fn observer_takes_images() {
        let mem = MemVfs::new();
        let images = Arc::new(Mutex::new(Vec::new()));
        let observe = {
            let (mem, images) = (mem.clone(), Arc::clone(&images));
            move |call: &Call<'_>, event: Event| {
                let image = mem.crash_clone_with(CrashMode::Keep);
                images.lock().unwrap().push((call.to_string(), event, image.files().into_values().next()));
            }
        };
        let vfs = ObserveVfs::new(Arc::new(mem), Arc::new(observe));
        vfs.create_new(Path::new("/f")).unwrap().append(b"ab").unwrap();
        vfs.rename(Path::new("/g"), Path::new("/h")).unwrap_err();
        let expected = [
            ("Create /f", Event::Before, None),
            ("Create /f", Event::Succeeded, Some(b"".to_vec())),
            ("Append /f (2 bytes)", Event::Before, Some(b"".to_vec())),
            ("Append /f (2 bytes)", Event::Succeeded, Some(b"ab".to_vec())),
            ("Rename /g -> /h", Event::Before, Some(b"ab".to_vec())),
            ("Rename /g -> /h", Event::Failed(io::ErrorKind::NotFound), Some(b"ab".to_vec())),
        ];
        assert_eq!(
            *images.lock().unwrap(),
            expected.map(|(call, event, bytes)| (call.to_owned(), event, bytes))
        );
    }
}
