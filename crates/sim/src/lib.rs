//! Randomized and exhaustive harnesses that look for wrong answers, lost writes, hangs and panics in esker.
//!
//! Each harness tries cases that are derived from seeds, and fails by a panic; see [`lab`] for what they have in common
//! and the binary `esker-sim` for how they are run. What has been run, and what came of it, is in
//! `docs/RELIABILITY.md`.

pub mod crash;
pub mod damaged;
pub(crate) mod denied;
pub mod disk;
pub mod error;
pub mod flips;
pub mod full;
pub mod kill;
pub mod lab;
pub mod limits;
pub mod model;
pub mod patch;
pub mod planted;
#[cfg(feature = "points")]
pub mod points;
pub mod preset;
pub mod schedule;
pub mod scheduler;
pub mod session;
pub mod soak;
mod tickets;
#[cfg(feature = "points")]
pub mod timeline;
#[cfg(feature = "points")]
mod world;

use lab::Harness;

/// All harnesses that the binary has a subcommand for.
pub const HARNESSES: [&Harness; 10] = [
    &model::MODEL,
    &model::METAMORPHIC,
    &crash::CRASH,
    &error::ERROR,
    &schedule::SCHEDULE,
    &flips::FLIPS,
    &kill::KILL,
    &full::FULL,
    &limits::LIMITS,
    &soak::SOAK,
];

/// The deliberate faults that this build knows, with their names; none without the feature `planted`.
pub fn plants() -> impl Iterator<Item = (&'static str, esker_base::planted::Fault)> {
    let known = if cfg!(feature = "planted") { esker_base::planted::Fault::ALL } else { &[] };
    known.iter().copied()
}

/// Plants a deliberate fault in the engine, by its name.
///
/// # Errors
///
/// When no fault has the name, and in a build without the feature `planted`.
pub fn plant(name: &str) -> Result<(), String> {
    match plants().find(|(known, _)| *known == name) {
        Some((_, fault)) => {
            #[cfg(feature = "planted")]
            esker_base::planted::plant(Some(fault));
            let _ = fault;
            Ok(())
        }
        None if cfg!(feature = "planted") => Err(format!("no fault has the name {name}")),
        None => Err(format!("{name}: this build has no faults to plant (build with --features planted)")),
    }
}

/// How the time of a share is divided, in percent.
const SHARES: [(&Harness, u64); 10] = [
    (&model::MODEL, 14),
    (&model::METAMORPHIC, 10),
    (&crash::CRASH, 22),
    (&error::ERROR, 12),
    (&schedule::SCHEDULE, 12),
    (&flips::FLIPS, 12),
    (&kill::KILL, 8),
    (&full::FULL, 4),
    (&limits::LIMITS, 2),
    (&soak::SOAK, 4),
];

/// Runs every harness for its share of so many seconds. The exit code: the first one that is not 0.
pub fn share(seconds: u64, jobs: usize, seed: u64) -> u8 {
    let mut code = 0;
    for (harness, percent) in SHARES {
        let seconds = Some((seconds * percent / 100).max(1));
        let settings = lab::Settings { seed, seconds, jobs, ..lab::Settings::default() };
        let of_this = lab::run_and_print(harness, &settings);
        if code == 0 {
            code = of_this;
        }
    }
    code
}
