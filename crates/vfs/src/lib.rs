//! The file system as esker sees it: one small trait, [`Vfs`], and its implementations.
//!
//! Every file that esker touches is reached through this trait, so the whole engine runs in memory, on a disk that
//! fails at the n-th call, or on a disk that loses power, without a change. The trait's documentation states what
//! survives a crash after which call; [`MemVfs`] implements exactly that promise and no more.
//!
//! | type | what it is |
//! |---|---|
//! | [`OsVfs`] | the real disk |
//! | [`MemVfs`] | memory, with a quota and with images of what a crash would leave |
//! | [`FaultVfs`] | a layer over any of them that fails chosen calls |
//! | [`BoundedVfs`] | a layer that bounds the files that are open for reading |
//! | [`CountingVfs`] | a layer that counts calls and bytes |
//! | [`ObserveVfs`] | a layer that reports every call to a function |
//!
//! No unsafe code but in one small module, the windows of a mapped log (`map`).
//!
//! Errors are plain [`std::io::Error`]s. The layers above add the operation and the path.

mod api;
mod call;
pub mod contract;
mod fault;
mod intercept;
#[cfg(target_os = "linux")]
mod map;
mod mem;
mod observe;
mod open_files;
#[cfg(any(unix, windows))]
mod os;
mod rng;

pub use api::{DirEntry, EntryKind, FileLock, FileSync, RandomAccessFile, Vfs, WritableFile};
pub use call::{Call, CallKind};
pub use fault::{Fault, FaultMode, FaultVfs, Faults};
pub use intercept::{InterceptVfs, Interceptor};
pub use mem::{CrashMode, LostData, MemVfs};
pub use observe::{Counters, CountingVfs, Counts, Event, Observe, ObserveVfs, Observer};
pub use open_files::{BoundedVfs, OpenFiles};
#[cfg(any(unix, windows))]
pub use os::OsVfs;
