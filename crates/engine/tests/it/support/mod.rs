//! What the modules share: a database on a watched disk, its options, and comparisons with the right answers.

mod driver;
mod rig;
mod steps;

pub use driver::{Driver, Replay, Shared};
pub use rig::Rig;
pub use steps::{StepScheduler, crash_points};

use esker::{Options, Result, Snapshot};
use esker_sim::preset::Setup;
pub use esker_sim::session::{Content, assert_sound, batch, content, write};
use esker_testkit::Preset;

/// The options of a preset, with background work on the caller's thread.
pub fn options_of(preset: &Preset) -> Options {
    Setup::of(preset).options
}

/// Tiny everything: the SMALL of the recipes.
pub fn small() -> Options {
    options_of(&esker_testkit::presets()[0])
}

/// The content that a snapshot shows.
pub fn snapshot_content(snapshot: &Snapshot) -> Result<Content> {
    snapshot.iter().map(|entry| entry.map(|(key, value)| (key.to_vec(), value.to_vec()))).collect()
}

/// A number from the environment.
pub fn env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// The factor for lengths of tests.
pub fn scale() -> u64 {
    env("ESKER_SCALE", 1).max(1)
}

/// A key that sorts by its number.
pub fn key(number: impl Into<u64>) -> Vec<u8> {
    format!("k{:06}", number.into()).into_bytes()
}

/// A value of `len` bytes that tells the number.
pub fn value(number: impl Into<u64>, len: usize) -> Vec<u8> {
    esker_testkit::value_for(number.into(), b"", len)
}
