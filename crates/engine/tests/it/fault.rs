//! A fault at every call of the file system, once and for ever, of several kinds.
//!
//! While the fault lasts, a read gives the right answer or an error, and a write that is refused stays unseen. After the
//! process has died, or the power has gone, a healthy disk gives back everything that was acknowledged, and each failed
//! write whole or not at all. The harness is `esker_sim::error`; a failure says how `esker-sim` replays it.

use esker_sim::error::ERROR;
use esker_sim::lab::{Settings, run_units};

use crate::support::{Rig, assert_sound, scale, small};

/// At least so many runs with a fault in each test.
const RUNS: u64 = 900;

fn runs(part: &str, seed: u64, demands: &[&str]) {
    let settings = Settings { seed, part: Some(part.to_owned()), ..Settings::default() };
    run_units(&ERROR, &settings, RUNS * scale(), demands);
}

const DEMANDS: [&str; 6] =
    ["failed open", "failed close", "refused write", "write of unknown outcome", "failed scan", "resumed"];

#[test]
fn er11_a_fault_at_every_call_once() {
    runs("once", 0, &[&DEMANDS[..], &["resumed in between"]].concat());
}

#[test]
fn er11_a_fault_at_every_call_for_ever() {
    runs("for-ever", 10_000, &[&DEMANDS[..], &["failed resume"]].concat());
}

/// F1, F2, F4: a failed sync has lost what was pending, and reads show either state.
#[test]
fn f1_syncs_that_fail_and_lose() {
    runs("lossy-sync", 20_000, &["ReadsNew", "ReadsOld", "resumed", "resumed in between"]);
}

/// ER03: no panic and a typed error when the disk is full, whichever file it hits; after space is freed and a reopen,
/// everything acknowledged is there. Mutation: `Error::io` without its case for a full device.
#[test]
fn er03_a_full_disk_gives_typed_errors() {
    for quota in (2_000..60_000).step_by(1_900) {
        let rig = Rig::new();
        rig.mem.set_quota(quota);
        let mut written = 0_u64;
        match rig.open_inline(&small()) {
            Ok(db) => {
                while written < 2000 {
                    match db.put_with(format!("k{written:05}"), [b'v'; 100], &esker::WriteOptions::sync()) {
                        Ok(()) => written += 1,
                        Err(error) => {
                            let text = format!("{error:?}");
                            assert!(text.contains("NoSpace"), "not told that the disk is full: {text}");
                            break;
                        }
                    }
                }
                for number in 0..written {
                    assert!(db.get(format!("k{number:05}")).expect("reads go on").is_some(), "{number}");
                }
            }
            Err(error) => assert!(error.is_no_space(), "{error:?}"),
        }
        rig.mem.set_quota(u64::MAX);
        let db = rig.open_inline(&small()).expect("it opens when there is room again");
        for number in 0..written {
            assert!(db.get(format!("k{number:05}")).unwrap().is_some(), "{number} of {written} is lost");
        }
        assert_sound(&db);
    }
}
