//! The group commit under a few thousand random schedules for each plan.
//!
//! `ESKER_SCHEDULES` sets how many; a failing schedule is printed, and shuttle can replay it.

#![cfg(feature = "shuttle")]

use std::time::Duration;

use esker_model_shuttle::{Plan, Wrong, group_commit, turns};

fn schedules() -> usize {
    std::env::var("ESKER_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000)
}

fn check(plan: Plan, wrong: Wrong) {
    let count = schedules();
    shuttle::check_random(move || group_commit(plan, wrong), count);
    // Few changes of thread, at the worst moments.
    shuttle::check_pct(move || group_commit(plan, wrong), count, 3);
}

const PLAN: Plan =
    Plan { writers: 3, submitters: 0, rounds: 3, failing: None, panicking: None, stalled: false };

#[test]
fn all_is_well() {
    check(Plan { writers: 4, ..PLAN }, Wrong::Nothing);
}

/// DW24, F2.
#[test]
fn dw24_a_failing_sync() {
    check(Plan { failing: Some(1), ..PLAN }, Wrong::Nothing);
    check(Plan { failing: Some(3), ..PLAN }, Wrong::Nothing);
}

/// CC10.
#[test]
fn cc10_a_panicking_leader() {
    check(Plan { panicking: Some(2), ..PLAN }, Wrong::Nothing);
}

#[test]
fn failing_and_panicking_leaders() {
    check(Plan { writers: 4, failing: Some(3), panicking: Some(1), ..PLAN }, Wrong::Nothing);
}

#[test]
fn stalled_syncs() {
    check(Plan { stalled: true, failing: Some(2), ..PLAN }, Wrong::Nothing);
}

#[test]
fn callbacks_are_called_once() {
    check(Plan { writers: 0, submitters: 3, ..PLAN }, Wrong::Nothing);
    check(Plan { writers: 2, submitters: 2, rounds: 2, ..PLAN }, Wrong::Nothing);
}

#[test]
fn callbacks_of_failing_and_panicking_syncs() {
    check(Plan { writers: 1, submitters: 2, failing: Some(2), ..PLAN }, Wrong::Nothing);
    check(Plan { writers: 1, submitters: 2, panicking: Some(1), ..PLAN }, Wrong::Nothing);
}

#[test]
#[should_panic(expected = "DW24")]
fn a_failure_that_is_told_as_success_is_found() {
    check(Plan { failing: Some(2), ..PLAN }, Wrong::ToldOk);
}

#[test]
#[should_panic(expected = "DW24")]
fn a_sync_that_claims_what_came_later_is_found() {
    check(PLAN, Wrong::CoversLater);
}

/// Without turns, with turns that end at once, and with turns that end now and then.
#[test]
fn the_lock_of_the_log() {
    for step in [0, 100, 1000].map(Duration::from_micros) {
        shuttle::check_random(move || turns(4, 4, step), schedules());
        shuttle::check_pct(move || turns(4, 4, step), schedules(), 3);
    }
}
