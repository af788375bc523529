//! The scenarios, under a few hundred schedules each.
//!
//! `ESKER_SCHEDULES` sets how many; a failing schedule is printed, and shuttle can replay it.

use esker_model_engine as scenario;

fn check(run: fn()) {
    let count = std::env::var("ESKER_SCHEDULES").ok().and_then(|count| count.parse().ok());
    scenario::check(count.unwrap_or(100), run);
}

#[test]
fn synced_writers() {
    check(scenario::synced_writers);
}

/// CC10.
#[test]
fn stalled_writers() {
    check(scenario::stalled_writers);
}

#[test]
fn close_under_load() {
    check(scenario::close_under_load);
}

/// DW24, F2.
#[test]
fn failing_group() {
    check(scenario::failing_group);
}

#[test]
fn resume_beside_close() {
    check(scenario::resume_beside_close);
}

/// SN07, SN08.
#[test]
fn snapshots_beside_compaction() {
    check(scenario::snapshots_beside_compaction);
}
