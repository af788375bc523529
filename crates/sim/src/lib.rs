//! Randomized and exhaustive harnesses that look for wrong answers, lost writes, hangs and panics in esker.
//!
//! Each harness tries cases that are derived from seeds, and fails by a panic; see [`lab`] for what they have in common
//! and the binary `esker-sim` for how they are run. What has been run, and what came of it, is in
//! `docs/RELIABILITY.md`.

pub mod crash;
pub mod disk;
pub mod error;
pub mod flips;
pub mod full;
pub mod kill;
pub mod lab;
pub mod model;
pub mod patch;
pub mod preset;
pub mod schedule;
pub mod scheduler;
pub mod session;

use lab::Harness;

/// All harnesses that the binary has a subcommand for.
pub const HARNESSES: [&Harness; 8] = [
    &model::MODEL,
    &model::METAMORPHIC,
    &crash::CRASH,
    &error::ERROR,
    &schedule::SCHEDULE,
    &flips::FLIPS,
    &kill::KILL,
    &full::FULL,
];

/// Plants a deliberate fault in the engine, by its name.
///
/// # Errors
///
/// When no fault has the name, and in a build without the feature `planted`.
pub fn plant(name: &str) -> Result<(), String> {
    Err(format!("{name}: this build has no faults to plant (build with --features planted)"))
}
