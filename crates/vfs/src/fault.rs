//! `FaultVfs`: a layer over any file system that fails chosen calls.
//!
//! A test runs its workload once to learn how many calls it makes ([`FaultVfs::calls`]), then once for each of them
//! with a [`Fault`] armed there. Faults are armed and disarmed from any thread, while others use the file system.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    Call, CallKind, InterceptVfs, Interceptor, LostData, MemVfs, RandomAccessFile, Vfs, WritableFile,
};

/// A file system that fails chosen calls. A clone shares the faults and the counts.
///
/// ```
/// use std::path::Path;
/// use std::sync::Arc;
/// use esker_vfs::{CallKind, Fault, FaultVfs, MemVfs, Vfs};
///
/// let vfs = FaultVfs::new(Arc::new(MemVfs::new()));
/// let mut file = vfs.create_new(Path::new("/a"))?;
/// vfs.arm(Fault::nth(2).kind(CallKind::Append));
/// file.append(b"x")?;
/// assert!(file.append(b"y").is_err());
/// file.append(b"z")?;
/// assert_eq!((vfs.calls(), vfs.fired()), (4, 1));
/// # Ok::<(), std::io::Error>(())
/// ```
pub type FaultVfs = InterceptVfs<Faults>;

impl FaultVfs {
    /// A layer over `inner` with no fault armed.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self::with_interceptor(inner, Faults::default())
    }

    /// A layer over a file system in memory, on which [`Fault::lose_pending`] has an effect.
    pub fn over_mem(mem: &MemVfs) -> Self {
        let faults = Faults { mem: Some(mem.clone()), ..Faults::default() };
        Self::with_interceptor(Arc::new(mem.clone()), faults)
    }

    /// Adds a fault. Its count of calls starts now. The first armed fault that wants a call decides it.
    pub fn arm(&self, fault: Fault) {
        self.interceptor().armed().push(Armed { fault, matched: 0 });
    }

    /// Removes all faults.
    pub fn disarm(&self) {
        self.interceptor().armed().clear();
    }

    /// How many calls were made since the layer was built, failed ones included.
    pub fn calls(&self) -> u64 {
        self.interceptor().calls.load(Ordering::Relaxed)
    }

    /// How many calls met a fault since the layer was built.
    pub fn fired(&self) -> u64 {
        self.interceptor().fired.load(Ordering::Relaxed)
    }
}

/// What happens to the call that a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultMode {
    /// Nothing is done, and the call fails.
    Before,
    /// The call is carried out, and yet it fails. A handle that it made is closed again.
    After,
    /// The first half of the data is appended or read, and the call fails. Other calls: as `Before`.
    Short,
    /// Nothing is done, and the call succeeds: a lying sync. Calls that return a value, and `Close`: as `Before`.
    Lie,
    /// A read succeeds, with one bit of its middle byte flipped. Other calls, and a read of no byte, succeed unharmed.
    Flip,
}

#[derive(Clone, Copy, Debug)]
enum Failure {
    Kind(io::ErrorKind),
    Os(i32),
}

type PathPredicate = Arc<dyn Fn(&Path) -> bool + Send + Sync>;

/// Which call fails, and how. Built by chaining; without more, a fault fails one call of any kind and path with
/// [`io::ErrorKind::Other`] before it is carried out.
#[derive(Clone)]
pub struct Fault {
    nth: u64,
    forever: bool,
    kinds: Vec<CallKind>,
    path: Option<PathPredicate>,
    mode: FaultMode,
    failure: Failure,
    lose_pending: Option<LostData>,
}

impl Fault {
    /// Fails the `nth` of the calls that match, counted from 1 at the moment of arming; 0 is a mistake of the caller
    /// and panics.
    pub fn nth(nth: u64) -> Self {
        assert!(nth > 0, "calls are counted from 1");
        Fault {
            nth,
            forever: false,
            kinds: Vec::new(),
            path: None,
            mode: FaultMode::Before,
            failure: Failure::Kind(io::ErrorKind::Other),
            lose_pending: None,
        }
    }

    /// Fails every call that matches.
    pub fn always() -> Self {
        Self::nth(1).forever()
    }

    /// Fails all matching calls after the n-th as well.
    pub fn forever(mut self) -> Self {
        self.forever = true;
        self
    }

    /// Matches calls of this kind; said more than once, any of them.
    pub fn kind(mut self, kind: CallKind) -> Self {
        self.kinds.push(kind);
        self
    }

    /// Matches all calls that make something durable.
    pub fn syncs(self) -> Self {
        self.kind(CallKind::SyncData).kind(CallKind::SyncAll).kind(CallKind::SyncDir)
    }

    /// Matches calls for whose path, or target of a rename or link, `predicate` holds.
    pub fn path(mut self, predicate: impl Fn(&Path) -> bool + Send + Sync + 'static) -> Self {
        self.path = Some(Arc::new(predicate));
        self
    }

    /// Matches calls on paths that end in `suffix`, as text: `.log`, `CURRENT`.
    pub fn path_suffix(self, suffix: &str) -> Self {
        let suffix = suffix.to_owned();
        self.path(move |path| path.as_os_str().as_encoded_bytes().ends_with(suffix.as_bytes()))
    }

    /// Sets what happens.
    pub fn mode(mut self, mode: FaultMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the kind of the error.
    pub fn error(mut self, kind: io::ErrorKind) -> Self {
        self.failure = Failure::Kind(kind);
        self
    }

    /// Sets the error to that of the operating system with this number, as `EIO`.
    pub fn os_error(mut self, code: i32) -> Self {
        self.failure = Failure::Os(code);
        self
    }

    /// A sync that this fault hits also loses what was pending there, and reads show `shown` from then on: see
    /// [`MemVfs::lose_pending`]. Has an effect only on a layer made by [`FaultVfs::over_mem`].
    pub fn lose_pending(mut self, shown: LostData) -> Self {
        self.lose_pending = Some(shown);
        self
    }

    fn matches(&self, call: &Call<'_>) -> bool {
        let path_fits = match &self.path {
            Some(predicate) => predicate(call.path) || call.target.is_some_and(|target| predicate(target)),
            None => true,
        };
        path_fits && (self.kinds.is_empty() || self.kinds.contains(&call.kind))
    }

    fn error_of(&self, call: &Call<'_>) -> io::Error {
        match self.failure {
            Failure::Kind(kind) => io::Error::new(kind, format!("injected fault: {call}")),
            Failure::Os(code) => io::Error::from_raw_os_error(code),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("nth", &self.nth)
            .field("forever", &self.forever)
            .field("kinds", &self.kinds)
            .field("for_some_paths", &self.path.is_some())
            .field("mode", &self.mode)
            .field("failure", &self.failure)
            .field("lose_pending", &self.lose_pending)
            .finish()
    }
}

#[derive(Debug)]
struct Armed {
    fault: Fault,
    /// Calls that matched since arming.
    matched: u64,
}

/// The armed faults and the counts of a [`FaultVfs`].
#[derive(Debug, Default)]
pub struct Faults {
    calls: AtomicU64,
    fired: AtomicU64,
    armed: Mutex<Vec<Armed>>,
    mem: Option<MemVfs>,
}

impl Faults {
    fn armed(&self) -> MutexGuard<'_, Vec<Armed>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the call, and finds the fault that hits it.
    fn hit(&self, call: &Call<'_>) -> Option<Fault> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut hit = None;
        for armed in self.armed().iter_mut().filter(|armed| armed.fault.matches(call)) {
            armed.matched += 1;
            let due =
                armed.matched == armed.fault.nth || (armed.fault.forever && armed.matched > armed.fault.nth);
            if due && hit.is_none() {
                hit = Some(armed.fault.clone());
            }
        }
        if let Some(fault) = &hit {
            self.fired.fetch_add(1, Ordering::Relaxed);
            self.lose_pending(fault, call);
        }
        hit
    }

    fn lose_pending(&self, fault: &Fault, call: &Call<'_>) {
        if let Some(mem) = &self.mem
            && let Some(shown) = fault.lose_pending
            && call.kind.is_sync()
        {
            // The file may have been renamed or removed since; then there is nothing to lose under its old name.
            let _ = mem.lose_pending(call.path, shown);
        }
    }
}

impl Interceptor for Faults {
    fn call<T>(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        match self.hit(call) {
            None => run(),
            Some(fault) => match fault.mode {
                FaultMode::Flip => run(),
                FaultMode::After => run().and_then(|_| Err(fault.error_of(call))),
                FaultMode::Before | FaultMode::Short | FaultMode::Lie => Err(fault.error_of(call)),
            },
        }
    }

    fn unit(&self, call: &Call<'_>, run: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.hit(call) {
            None => run(),
            Some(fault) => match fault.mode {
                FaultMode::Flip => run(),
                FaultMode::After => run().and_then(|()| Err(fault.error_of(call))),
                FaultMode::Lie if call.kind != CallKind::Close => Ok(()),
                FaultMode::Before | FaultMode::Short | FaultMode::Lie => Err(fault.error_of(call)),
            },
        }
    }

    fn append(&self, call: &Call<'_>, file: &mut dyn WritableFile, data: &[u8]) -> io::Result<()> {
        match self.hit(call) {
            None => file.append(data),
            Some(fault) => match fault.mode {
                FaultMode::Flip => file.append(data),
                FaultMode::Lie => Ok(()),
                FaultMode::Before => Err(fault.error_of(call)),
                FaultMode::Short => {
                    file.append(&data[..data.len() / 2]).and_then(|()| Err(fault.error_of(call)))
                }
                FaultMode::After => file.append(data).and_then(|()| Err(fault.error_of(call))),
            },
        }
    }

    fn read(
        &self,
        call: &Call<'_>,
        file: &dyn RandomAccessFile,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        let Some(fault) = self.hit(call) else {
            return file.read_at(offset, buf);
        };
        match fault.mode {
            FaultMode::Before | FaultMode::Lie => return Err(fault.error_of(call)),
            FaultMode::After => file.read_at(offset, buf)?,
            FaultMode::Short => {
                let half = buf.len() / 2;
                file.read_at(offset, &mut buf[..half])?
            }
            FaultMode::Flip => {
                let read = file.read_at(offset, buf)?;
                if let Some(byte) = buf[..read].get_mut(read / 2) {
                    *byte ^= 0x10;
                }
                return Ok(read);
            }
        };
        Err(fault.error_of(call))
    }
}

#[cfg(test)]
mod tests;
