//! Deliberate faults that only such schedules find: each must be found.

use std::panic::catch_unwind;

use esker_base::planted::{Fault, plant};
use esker_model_engine as scenario;

/// One test for all: the fault is the whole process's.
#[test]
fn every_planted_fault_is_found() {
    let plans: [(Fault, fn(), &str); 4] = [
        (Fault::ProgressNotTold, scenario::stalled_writers, "a lost wake-up"),
        (Fault::LocksReversed, scenario::stalled_writers, "a deadlock"),
        (Fault::PublishedBeforeApplied, scenario::synced_writers, "half a batch"),
        (Fault::FollowerGetsOk, scenario::failing_group, "a lost write"),
    ];
    for (fault, run, what) in plans {
        plant(Some(fault));
        let found = catch_unwind(|| scenario::check(2_000, run)).is_err();
        plant(None);
        assert!(found, "{fault:?}: {what} was not found");
    }
}
