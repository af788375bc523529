//! The group commit under a few thousand random schedules for each plan.
//!
//! `ESKER_SCHEDULES` sets how many; a failing schedule is printed, and shuttle can replay it.

#![cfg(feature = "shuttle")]

use esker_model_shuttle::{Plan, Told, group_commit};

fn schedules() -> usize {
    std::env::var("ESKER_SCHEDULES").ok().and_then(|count| count.parse().ok()).unwrap_or(1_000)
}

fn check(plan: Plan, told: Told) {
    let count = schedules();
    shuttle::check_random(move || group_commit(plan, told), count);
    // Few changes of thread, at the worst moments.
    shuttle::check_pct(move || group_commit(plan, told), count, 3);
}

const PLAN: Plan =
    Plan { writers: 3, rounds: 2, failing: None, panicking: None, stalled: false, closed: false };

#[test]
fn all_is_well() {
    check(Plan { writers: 4, ..PLAN }, Told::Truth);
}

/// DW24, F2.
#[test]
fn dw24_a_failing_leader() {
    check(Plan { failing: Some(16), ..PLAN }, Told::Truth);
}

/// CC10.
#[test]
fn cc10_a_panicking_leader() {
    check(Plan { panicking: Some(16), ..PLAN }, Told::Truth);
}

#[test]
fn failing_and_panicking_leaders() {
    check(Plan { writers: 4, failing: Some(1), panicking: Some(32), ..PLAN }, Told::Truth);
}

#[test]
fn stalled_writers() {
    check(Plan { stalled: true, failing: Some(1), ..PLAN }, Told::Truth);
}

#[test]
fn close_under_load() {
    check(Plan { writers: 4, closed: true, ..PLAN }, Told::Truth);
}

#[test]
fn a_close_of_stalled_writers() {
    check(Plan { stalled: true, closed: true, panicking: Some(0), ..PLAN }, Told::Truth);
}

#[test]
#[should_panic(expected = "DW24")]
fn a_failure_that_is_told_as_success_is_found() {
    check(Plan { failing: Some(16), ..PLAN }, Told::Ok);
}
