//! [`Store`]: the few calls that a load needs of an engine.

use serde::{Deserialize, Serialize};

/// Any error of an engine: it ends the run.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What an engine tells of its inside, where it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inside {
    /// Tables of level 0.
    pub level0: Option<u64>,
    /// Bytes that compactions are yet to rewrite, as the engine estimates it.
    pub debt: Option<u64>,
    /// Bytes of memtables and cache.
    pub memory: Option<u64>,
    /// Seconds that writers were held up, of all together.
    pub stalled: Option<f64>,
}

/// An engine under load. Called by several threads at once.
pub trait Store: Sync {
    /// Puts an entry.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes an entry.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// The check of the value of a key, as [`check`](super::keys::check) gives it.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    fn get(&self, key: &[u8]) -> Result<Option<u64>>;

    /// Calls `each` with up to `limit` entries from `from` on, and returns their number.
    ///
    /// # Errors
    ///
    /// Those of the engine.
    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize>;

    /// What it tells of its inside.
    fn inside(&self) -> Inside;
}
