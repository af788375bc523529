//! `planted`: the self-test. Each deliberate fault (see `esker_base::planted`, and [`Lie`](crate::disk::Lie) for those of
//! the disk) must be found by the harness named for it, from each of several seeds, within a time.
//!
//! Every run is a process of its own, so that a fault may hang or abort it. The checker of the order of calls is left out,
//! since it would find some of them before the harness does.

#![allow(clippy::disallowed_methods, reason = "processes and real time")]

use std::process::Command;
use std::time::{Duration, Instant};

use esker_testkit::Patience;

/// A fault and the harness that must find it, with its part if that matters.
struct Plan {
    fault: &'static str,
    harness: &'static str,
    part: Option<&'static str>,
}

const fn plan(fault: &'static str, harness: &'static str, part: Option<&'static str>) -> Plan {
    Plan { fault, harness, part }
}

/// Which harness must find which fault.
const PLANS: &[Plan] = &[
    plan("log-sync-ignored", "crash", None),
    plan("table-sync-ignored", "crash", None),
    plan("manifest-sync-ignored", "crash", None),
    plan("directory-sync-ignored", "crash", None),
    plan("log-checksum-ignored", "flips", Some("raw")),
    plan("torn-edit-accepted", "flips", Some("raw")),
    plan("block-checksum-ignored", "flips", Some("raw")),
    plan("filter-always-no", "model", None),
    plan("tombstone-dropped-early", "model", None),
    plan("sequence-zeroed-early", "model", None),
    plan("snapshots-forgotten", "model", None),
    plan("user-key-split", "model", None),
    plan("moved-over-overlap", "model", None),
    plan("published-before-applied", "schedule", Some("threads")),
    plan("half-batch-visible", "schedule", Some("threads")),
    plan("sequence-before-picture", "schedule", Some("threads")),
    plan("published-before-applied", "schedule", Some("points")),
    plan("half-batch-visible", "schedule", Some("points")),
    plan("sequence-before-picture", "schedule", Some("points")),
    plan("old-log-not-synced", "schedule", Some("points")),
    plan("resumed-without-flush", "schedule", Some("points")),
    plan("follower-gets-ok", "schedule", Some("threads")),
    plan("acknowledged-before-synced", "schedule", Some("threads")),
    plan("sync-covers-later", "schedule", Some("threads")),
    plan("log-error-ignored", "error", None),
    plan("sync-retried", "error", Some("lossy-sync")),
    plan("resumed-without-flush", "error", None),
    plan("error-is-end", "error", None),
    plan("turn-forgotten", "model", None),
    plan("bound-included", "model", None),
    plan("cursor-sees-newer", "model", None),
    plan("older-version-found", "model", None),
    plan("level-search-off-by-one", "model", None),
    plan("unreadable-table-skipped", "flips", Some("raw")),
    plan("last-segment-only", "crash", None),
    plan("segment-removed-early", "crash", None),
    plan("inputs-removed-early", "crash", None),
    plan("flush-out-of-order", "crash", Some("random")),
    plan("log-name-not-synced", "crash", None),
    plan("table-name-not-synced", "crash", None),
    plan("current-name-not-synced", "crash", None),
    plan("current-not-synced", "crash", None),
    plan("old-log-not-synced", "crash", None),
    plan("live-table-removed", "model", None),
    plan("file-number-reused", "crash", None),
    plan("close-without-flush", "model", None),
    plan("ticket-told-early", "error", None),
    plan("ticket-told-early", "model", None),
    plan("ticket-told-early", "schedule", Some("clients")),
    plan("callback-lost", "error", None),
];

/// Faults that are hangs only where no wait has a time limit: `crates/model-engine` must find them.
const BY_MODELS: [&str; 2] = ["progress-not-told", "locks-reversed"];

/// First seeds of the runs.
const SEEDS: [u64; 3] = [1_000, 2_000_000, 3_000_000_000];

/// What is to be run.
#[derive(Clone, Debug)]
pub struct SelfTest {
    /// Limit of a run.
    pub seconds: u64,
    /// Only this fault.
    pub only: Option<String>,
    /// How many of the three seeds.
    pub seeds: usize,
}

/// What one run came to.
struct Found {
    took: Duration,
    /// Why it failed; `None` when it found nothing.
    what: Option<String>,
}

fn run(plan: &Plan, seed: u64, seconds: u64) -> Result<Found, String> {
    let start = Instant::now();
    let exe = std::env::current_exe().map_err(|error| format!("this program's own path: {error}"))?;
    let mut command = Command::new(exe);
    command.args([plan.harness, "--plant", plan.fault, "--no-order"]);
    command.args(["--seed", &seed.to_string(), "--seconds", &seconds.to_string()]);
    if let Some(part) = plan.part {
        command.args(["--part", part]);
    }
    let output = command.output().map_err(|error| format!("{}: {error}", plan.harness))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let what = match output.status.code() {
        Some(0 | 3) => None,
        Some(1) => {
            let line = text.lines().find(|line| line.starts_with("FAILED"));
            Some(line.unwrap_or("FAILED without a word").chars().take(150).collect())
        }
        Some(2) => return Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Some(124) => Some("a hang".to_owned()),
        code => Some(format!("the process ended with {code:?}")),
    };
    Ok(Found { took: start.elapsed(), what })
}

/// Runs the self-test and prints its table. The exit code: 0 when every fault was found from every seed.
///
/// # Errors
///
/// When a run could not be made: in a build without the feature `planted`, for one.
pub fn self_test(test: &SelfTest) -> Result<u8, String> {
    let plans: Vec<&Plan> =
        PLANS.iter().filter(|plan| test.only.as_deref().is_none_or(|only| only == plan.fault)).collect();
    for (name, _) in crate::plants() {
        if !BY_MODELS.contains(&name) && !PLANS.iter().any(|plan| plan.fault == name) {
            return Err(format!("no harness is named for the fault {name}"));
        }
    }
    let patience = Patience::new(Duration::from_secs(test.seconds * 3 + 120));
    let seeds = &SEEDS[..test.seeds.clamp(1, SEEDS.len())];
    let (mut found, mut runs, mut runs_found) = (0, 0, 0);
    println!("{:26} {:17} {:24} what the first run said", "fault", "harness", "found after (s)");
    for plan in &plans {
        let mut times = Vec::new();
        let mut first = String::new();
        let mut all = true;
        for &seed in seeds {
            patience.next(plan.fault);
            let result = run(plan, seed, test.seconds)?;
            runs += 1;
            match result.what {
                Some(what) => {
                    runs_found += 1;
                    times.push(format!("{:.1}", result.took.as_secs_f64()));
                    if first.is_empty() {
                        first = what;
                    }
                }
                None => {
                    all = false;
                    times.push("NOT FOUND".to_owned());
                }
            }
        }
        found += usize::from(all);
        let harness = plan.part.map_or(plan.harness.to_owned(), |part| format!("{} {part}", plan.harness));
        println!("{:26} {harness:17} {:24} {first}", plan.fault, times.join(" "));
    }
    let mut faults: Vec<&str> = plans.iter().map(|plan| plan.fault).collect();
    faults.sort_unstable();
    faults.dedup();
    let (faults, plans_all) = (faults.len(), plans.len());
    println!(
        "planted: {faults} faults, {found} of {plans_all} plans found them, {runs_found} of {runs} runs"
    );
    Ok(u8::from(found != plans.len()))
}
