//! The engines: one file each, behind a feature each, and [`with_engine`], which turns a name into a type.

mod esker;
#[cfg(feature = "fjall")]
mod fjall;
#[cfg(feature = "leveldb")]
mod leveldb;
#[cfg(feature = "lmdb")]
mod lmdb;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sled")]
mod sled;
#[cfg(feature = "surrealkv")]
mod surrealkv;

use crate::engine::{Engine, Family, Result};
use serde::{Deserialize, Serialize};

/// Something to do with an engine whose type is found by its name.
pub(crate) trait Task {
    type Output;
    fn run<E: Engine>(self) -> Result<Self::Output>;
}

/// The names of all engines that are built in, esker first.
pub(crate) const NAMES: &[&str] = &[
    "esker",
    #[cfg(feature = "rocksdb")]
    "rocksdb",
    #[cfg(feature = "leveldb")]
    "leveldb",
    #[cfg(feature = "fjall")]
    "fjall",
    #[cfg(feature = "surrealkv")]
    "surrealkv",
    #[cfg(feature = "sled")]
    "sled",
    #[cfg(feature = "lmdb")]
    "lmdb",
    #[cfg(feature = "redb")]
    "redb",
];

/// Runs `task` with the engine of that name.
pub(crate) fn with_engine<T: Task>(name: &str, task: T) -> Result<T::Output> {
    match name {
        "esker" => task.run::<esker::Esker>(),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => task.run::<rocksdb::RocksDb>(),
        #[cfg(feature = "leveldb")]
        "leveldb" => task.run::<leveldb::LevelDb>(),
        #[cfg(feature = "fjall")]
        "fjall" => task.run::<fjall::Fjall>(),
        #[cfg(feature = "surrealkv")]
        "surrealkv" => task.run::<surrealkv::SurrealKv>(),
        #[cfg(feature = "sled")]
        "sled" => task.run::<sled::Sled>(),
        #[cfg(feature = "lmdb")]
        "lmdb" => task.run::<lmdb::Lmdb>(),
        #[cfg(feature = "redb")]
        "redb" => task.run::<redb::Redb>(),
        _ => Err(format!("no engine {name:?} is built in; there are {}", NAMES.join(", ")).into()),
    }
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
            Ok(About {
                name: E::NAME.into(),
                version: E::version(),
                lsm: E::FAMILY == Family::Lsm,
                note: E::NOTE.into(),
            })
        }
    }
    with_engine(name, Describe)
}
