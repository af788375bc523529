//! The engines: one file each, behind a feature each (RocksDB and LevelDB are in `ffi`), and [`with_engine`], which
//! turns a name into a type.

mod esker;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "sled")]
mod sled;
#[cfg(feature = "surrealkv")]
mod surrealkv;

use crate::engine::{Engine, Result};
use serde::{Deserialize, Serialize};

/// Something to do with an engine whose type is found by its name.
pub(crate) trait Task {
    type Output;
    fn run<E: Engine>(self) -> Result<Self::Output>;
}

/// The peers, by their feature, which is also their name.
macro_rules! peers {
    ($($feature:literal => $engine:ty,)*) => {
        /// The names of all engines that are built in, esker first.
        pub(crate) const NAMES: &[&str] = &["esker", $(#[cfg(feature = $feature)] $feature,)*];

        /// Runs `task` with the engine of that name.
        pub(crate) fn with_engine<T: Task>(name: &str, task: T) -> Result<T::Output> {
            match name {
                "esker" => task.run::<esker::Esker>(),
                $(#[cfg(feature = $feature)]
                $feature => task.run::<$engine>(),)*
                _ => Err(format!("no engine {name:?} is built in; there are {}", NAMES.join(", ")).into()),
            }
        }
    };
}

peers! {
    "rocksdb" => crate::ffi::rocks::Store,
    "leveldb" => crate::ffi::level::Store,
    "fjall" => fjall::Fjall,
    "surrealkv" => surrealkv::SurrealKv,
    "sled" => sled::Sled,
    "lmdb" => lmdb::Lmdb,
    "redb" => redb::Redb,
}

/// The engines of these names, or all that are built in.
pub(crate) fn named(names: &[String]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(NAMES.iter().map(|&name| name.into()).collect());
    }
    names.iter().map(|name| about(name).map(|about| about.name)).collect()
}

/// What is known of an engine before it is measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct About {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Whether it is a log-structured merge tree.
    pub(crate) lsm: bool,
    /// Its settings and guarantee, where they are its own.
    pub(crate) note: String,
}

/// What is known of the engine of that name.
pub(crate) fn about(name: &str) -> Result<About> {
    struct Describe;
    impl Task for Describe {
        type Output = About;
        fn run<E: Engine>(self) -> Result<About> {
            Ok(About { name: E::NAME.into(), version: E::version(), lsm: E::LSM, note: E::NOTE.into() })
        }
    }
    with_engine(name, Describe)
}
