//! A crash at every call of the file system: short workloads, and images of the disk before each call that changes
//! something. Each image is opened, and what it holds is judged by the history (see `esker_testkit::History`).
//!
//! Some images crash again, at each call of their recovery (DW12, DW19); some are written to and crash then (DW20); some
//! lose power right after the open, which must have made durable what it showed (F5). The harness is `esker_sim::crash`; a
//! failure says how `esker-sim` replays it.

use esker_sim::crash::CRASH;
use esker_sim::lab::{Settings, run_units};

use crate::support::env;

/// What must come up: kinds of images, of crashes, of what is done after them, and operations.
const DEMANDS: [&str; 24] = [
    "keep",
    "drop",
    "random 10",
    "random 50",
    "random 90",
    "prefix",
    "torn",
    "size only",
    "unlink first",
    "second crash",
    "third crash",
    "replayed",
    "torn tail",
    "power loss after the open",
    "writes after the crash",
    "put",
    "delete",
    "batch",
    "flush",
    "compact",
    "sync",
    "reopen",
    "rotate",
    "flushed",
];

fn runs(part: &str) {
    let settings =
        Settings { seed: env("ESKER_CRASH_SEED", 0), part: Some(part.to_owned()), ..Settings::default() };
    let demands = if part == "random" { &DEMANDS[..] } else { &DEMANDS[..9] };
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
