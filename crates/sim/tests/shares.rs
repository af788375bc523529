//! A small share of every harness, for each run of the tests: seconds, in the dev profile. The long shares are run by
//! hand, see `docs/RELIABILITY.md`.
//!
//! `ESKER_SIM_SECONDS` is the time for each harness, 4 by default; `ESKER_SIM_SEED` the first seed.

#![allow(clippy::disallowed_methods, reason = "the environment, and child processes")]

use std::process::Command;

/// The binary's output, and whether it found nothing.
fn sim(arguments: &[&str]) -> (bool, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_esker-sim")).args(arguments).output().expect("the binary runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn variable(name: &str, default: u64) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_string())
}

/// Runs a harness for a few seconds. That is too short for all that a long share demands, so exit code 3 is fine.
fn share(harness: &str) {
    let (seconds, seed) = (variable("ESKER_SIM_SECONDS", 4), variable("ESKER_SIM_SEED", 0));
    let (_, text) = sim(&[harness, "--seconds", &seconds, "--seed", &seed]);
    println!("{text}");
    assert!(!text.contains("FAILED") && text.contains(" a second"), "{text}");
}

#[test]
fn model() {
    share("model");
}

#[test]
fn metamorphic() {
    share("metamorphic");
}

#[test]
fn crash() {
    share("crash");
}

#[test]
fn error() {
    share("error");
}

#[test]
fn schedule() {
    share("schedule");
}

#[test]
fn flips() {
    share("flips");
}

#[test]
fn kill() {
    share("kill");
}

#[test]
fn full() {
    share("full");
}

#[test]
fn soak() {
    share("soak");
}

#[test]
fn limits() {
    share("limits");
}

/// A table and a log segment of equal length changed places in a killed store: keys of the table give errors, and beside
/// them an older prefix shows, since the log looks torn off. Each is as promised.
#[test]
fn flips_of_a_table_and_the_log_at_once() {
    let (good, text) = sim(&["flips", "--seed", "700866", "--count", "1", "--part", "raw"]);
    assert!(good, "{text}");
}

/// The same seed covers the same, to the last count.
#[test]
fn cases_are_functions_of_their_seeds() {
    let covered = || {
        let (good, text) = sim(&["model", "--seed", "5", "--count", "3", "--ops", "800"]);
        assert!(good, "{text}");
        text.lines().find(|line| line.starts_with("  covered")).map(str::to_owned).expect("a line")
    };
    assert_eq!(covered(), covered());
}

/// Every point is come to and interrupted, and nothing is found there.
#[test]
#[cfg(feature = "points")]
fn points() {
    let (good, text) = sim(&["schedule", "--part", "points", "--count", "4000", "--jobs", "2"]);
    assert!(good, "{text}");
    let (good, text) = sim(&["schedule", "--part", "pairs", "--seconds", &variable("ESKER_SIM_SECONDS", 4)]);
    assert!(good, "{text}");
}

/// A build without the feature has no faults to plant, and says so.
#[test]
#[cfg(not(feature = "planted"))]
fn nothing_is_planted_in_this_build() {
    let (good, text) = sim(&["model", "--plant", "filter-always-no", "--count", "1"]);
    assert!(!good && text.contains("--features planted"), "{text}");
}

/// A planted fault is found, and the line that is printed replays it.
#[test]
#[cfg(feature = "planted")]
fn a_planted_fault_is_found_and_replayed() {
    let (good, text) = sim(&["model", "--plant", "filter-always-no", "--seconds", "20"]);
    assert!(!good && text.contains("FAILED"), "{text}");
    let line =
        text.lines().find_map(|line| line.strip_prefix("replay: esker-sim ")).expect("a line to replay");
    let (good, again) = sim(&line.split(' ').collect::<Vec<_>>());
    let failure = |text: &str| text.lines().find(|line| line.starts_with("FAILED")).map(str::to_owned);
    assert!(!good && failure(&again) == failure(&text), "{again}\nfor\n{text}");
}
