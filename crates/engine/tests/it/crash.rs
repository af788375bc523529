//! A crash at every call of the file system: short workloads, and images of the disk before each call that changes
//! something. Each image is opened, and what it holds is judged by the history (see `esker_testkit::History`).
//!
//! Some images crash again, at each call of their recovery (DW12, DW19); some are written to and crash then (DW20); some
//! lose power right after the open, which must have made durable what it showed (F5). The harness is `esker_sim::crash`; a
//! failure says how `esker-sim` replays it.

use esker_sim::crash::CRASH;
use esker_sim::lab::{Settings, run_units};

use crate::support::env;

fn runs(part: &str) {
    let settings =
        Settings { seed: env("ESKER_CRASH_SEED", 0), part: Some(part.to_owned()), ..Settings::default() };
    // Workloads of three operations need only the kinds of images, which come first.
    let demands = if part == "random" { CRASH.demands } else { &CRASH.demands[..9] };
    run_units(&CRASH, &settings, env("ESKER_CRASH_IMAGES", 40_000) / 2, demands);
}

/// Workloads of 20 to 200 operations under all options.
#[test]
fn dw19_crash_at_every_call_of_random_workloads() {
    runs("random");
}

/// Workloads of three operations, every kind of image at every call.
#[test]
fn dw19_crash_at_every_call_of_workloads_of_three() {
    runs("triples");
}
