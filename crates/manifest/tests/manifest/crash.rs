//! Crashes and failing calls: at every call of a creation, a roll, an append and a close, the directory opens in the
//! state before or after.

use crate::{
    content, create, current_path, dir, empty_disk, manifest_path, position, recovered, small_history, states,
};
use crate::{write_segment, write_table};
use esker_base::{ErrorKind, FileNumber};
use esker_manifest::{Current, ManifestState, ManifestWriter, Recovery, VersionEdit, recover};
use esker_vfs::{CallKind, CrashMode, Fault, FaultMode, FaultVfs, LostData, MemVfs};
use std::io;
use std::sync::Arc;

/// Images of what a crash now may leave.
fn images(mem: &MemVfs) -> impl Iterator<Item = (String, MemVfs)> {
    let fixed = [CrashMode::Keep, CrashMode::Drop];
    let seeded = (0..60).map(CrashMode::from_seed);
    fixed.into_iter().chain(seeded).map(|mode| (format!("{mode:?}"), mem.crash_clone_with(mode)))
}

/// A durable disk with the files of [`small_history`].
fn disk() -> MemVfs {
    let mem = empty_disk();
    (5..=10).for_each(|number| write_table(&mem, number));
    (3..=4).for_each(|number| write_segment(&mem, number));
    mem
}

fn try_create(
    vfs: &FaultVfs,
    number: u64,
    state: &ManifestState,
) -> Result<ManifestWriter, esker_manifest::CreateError> {
    ManifestWriter::create(Arc::new(vfs.clone()), dir(), FileNumber(number), state)
}

/// DM01, M2: the first creation, crashed before every call and after the last one.
#[test]
fn dm01_m2_a_crash_in_the_first_creation_leaves_no_store_or_a_whole_one() {
    let state = ManifestState::new(1, 2).apply(&next_file(2)).unwrap();
    let calls = {
        let vfs = FaultVfs::over_mem(&empty_disk());
        try_create(&vfs, 1, &state).unwrap();
        vfs.calls()
    };
    assert!(calls > 8, "{calls} calls");
    for nth in 1..=calls + 1 {
        let mem = empty_disk();
        let vfs = FaultVfs::over_mem(&mem);
        vfs.arm(Fault::nth(nth).forever());
        assert_eq!(try_create(&vfs, 1, &state).is_ok(), nth > calls);
        for (mode, image) in images(&mem) {
            match recover(&image, dir()).unwrap_or_else(|error| panic!("call {nth}, {mode}: {error}")) {
                Recovery::Missing { max_file_number_seen } => {
                    assert!(nth <= calls, "{mode}: a created store is gone");
                    assert!(max_file_number_seen.0 <= 1);
                }
                Recovery::Store(found) => assert_eq!(content(&found.state), content(&state)),
            }
        }
    }
}

fn next_file(number: u64) -> VersionEdit {
    VersionEdit { next_file: Some(FileNumber(number)), ..VersionEdit::new() }
}

/// DM03, M2: a roll, crashed before every call. The state is the same in the old and the new manifest, so it must be
/// found in every image, with an edit that was acknowledged before the roll.
#[test]
fn dm03_m2_a_crash_in_a_roll_loses_nothing() {
    let (state, edits) = small_history();
    let states = states(&state, &edits);
    let setup = || {
        let mem = disk();
        let mut writer = create(&mem, 2, &state);
        edits.iter().for_each(|edit| writer.append(edit).unwrap());
        (FaultVfs::over_mem(&mem), mem)
    };
    let calls = {
        let (vfs, _) = setup();
        try_create(&vfs, 6, &states[3]).unwrap();
        vfs.calls()
    };
    for nth in 1..=calls + 1 {
        let (vfs, mem) = setup();
        vfs.arm(Fault::nth(nth).forever());
        assert_eq!(try_create(&vfs, 6, &states[3]).is_ok(), nth > calls);
        for (mode, image) in images(&mem) {
            println!("call {nth}, {mode}");
            let found = recovered(&image);
            assert_eq!(position(&states, &found.state), 3);
            assert!(nth <= calls || found.manifest_number.0 == 6, "the old manifest could be deleted now");
        }
    }
}

/// Appends, crashed before every call: the edit is there or not, and once acknowledged it is there.
#[test]
fn m1_a_crash_in_an_append_leaves_the_state_before_or_after() {
    let (state, edits) = small_history();
    let states = states(&state, &edits);
    for nth in 1..=7 {
        let mem = disk();
        let vfs = FaultVfs::over_mem(&mem);
        let mut writer = try_create(&vfs, 2, &state).unwrap();
        vfs.arm(Fault::nth(nth).forever());
        let acknowledged = edits.iter().take_while(|edit| writer.append(edit).is_ok()).count();
        assert_eq!(acknowledged, (nth as usize - 1) / 2);
        for (mode, image) in images(&mem) {
            println!("call {nth}, {mode}");
            let found = position(&states, &recovered(&image).state);
            assert!((acknowledged..=acknowledged + 1).contains(&found), "{found} of {acknowledged}");
        }
    }
}

/// DM09, DM10, M5, M6: every call of a roll fails once, in each way. `CURRENT` goes on naming a whole manifest; the old
/// writer can be used when it is said to be current; a second roll always works.
/// What reads show after a failed sync.
const SHOWN: [LostData; 2] = [LostData::ReadsNew, LostData::ReadsOld];

#[test]
fn dm09_dm10_m6_a_failed_roll_leaves_a_current_manifest() {
    let (state, edits) = small_history();
    let states = states(&state, &edits);
    let kinds = [
        io::ErrorKind::Other,
        io::ErrorKind::NotFound,
        io::ErrorKind::AlreadyExists,
        io::ErrorKind::StorageFull,
    ];
    let mut still_current = 0;
    for (mode, kind) in [FaultMode::Before, FaultMode::Short, FaultMode::After]
        .into_iter()
        .flat_map(|mode| kinds.into_iter().map(move |kind| (mode, kind)))
    {
        for (nth, shown) in (1..).flat_map(|nth| SHOWN.map(|shown| (nth, shown))) {
            println!("call {nth} fails with {kind:?}, {mode:?}, {shown:?}");
            let mem = disk();
            let vfs = FaultVfs::over_mem(&mem);
            let mut old = try_create(&vfs, 2, &state).unwrap();
            let before = vfs.fired();
            vfs.arm(Fault::nth(nth).mode(mode).error(kind).lose_pending(shown));
            let result = try_create(&vfs, 5, &state);
            vfs.disarm();
            for (_, image) in images(&mem) {
                assert_eq!(position(&states, &recovered(&image).state), 0);
            }
            let mut writer = match result {
                Ok(writer) => writer,
                Err(failed) if failed.old_is_current => {
                    still_current += 1;
                    assert_eq!(Current::read(&mem, dir()).unwrap().unwrap().manifest, FileNumber(2));
                    old.append(&edits[0]).unwrap();
                    for (_, image) in images(&mem) {
                        assert_eq!(position(&states, &recovered(&image).state), 1, "appended to the old one");
                    }
                    try_create(&vfs, 6, &states[1]).unwrap()
                }
                Err(_) => try_create(&vfs, 6, &state.apply(&edits[0]).unwrap()).unwrap(),
            };
            let done = position(&states, &recovered(&mem).state);
            edits[done..].iter().for_each(|edit| writer.append(edit).unwrap());
            for (_, image) in images(&mem) {
                assert_eq!(position(&states, &recovered(&image).state), 3);
            }
            if vfs.fired() == before {
                break;
            }
        }
    }
    assert!(still_current > 20, "{still_current}");
}

/// DM10, M6: a rename that fails although it was done is found out.
#[test]
fn dm10_m6_a_rename_that_lies_is_found_out() {
    let (state, _) = small_history();
    for (mode, works) in [(FaultMode::Before, false), (FaultMode::After, true)] {
        let mem = disk();
        create(&mem, 2, &state);
        let vfs = FaultVfs::over_mem(&mem);
        vfs.arm(Fault::nth(1).kind(CallKind::Rename).mode(mode));
        match try_create(&vfs, 5, &state) {
            Ok(writer) => assert!(works && writer.number().0 == 5),
            Err(failed) => assert!(!works && failed.old_is_current, "{failed}"),
        }
    }
}

/// DM08, M5: an append or its sync fails in each way; the writer refuses to go on, and a new manifest keeps everything.
#[test]
fn dm08_m5_after_a_failed_append_only_a_new_manifest_goes_on() {
    let (state, edits) = small_history();
    let states = states(&state, &edits);
    for kind in [CallKind::Append, CallKind::SyncData] {
        for mode in [FaultMode::Before, FaultMode::Short, FaultMode::After] {
            for (failing, shown) in (0..edits.len()).flat_map(|at| SHOWN.map(|shown| (at, shown))) {
                let mem = disk();
                let vfs = FaultVfs::over_mem(&mem);
                let mut writer = try_create(&vfs, 2, &state).unwrap();
                edits[..failing].iter().for_each(|edit| writer.append(edit).unwrap());
                let fault = Fault::nth(1).kind(kind).mode(mode).error(io::ErrorKind::StorageFull);
                vfs.arm(fault.lose_pending(shown));
                assert!(writer.append(&edits[failing]).unwrap_err().is_no_space());
                vfs.disarm();
                let refused = writer.append(&edits[failing]).unwrap_err();
                assert!(matches!(refused.kind(), ErrorKind::ReadOnly { .. }), "{refused}");
                assert!(writer.poisoned().is_some_and(esker_base::Error::is_no_space));
                for (_, image) in images(&mem) {
                    let found = position(&states, &recovered(&image).state);
                    assert!((failing..=failing + 1).contains(&found));
                }
                assert!(writer.write_clean_current().is_err());
                assert_eq!(Current::read(&mem, dir()).unwrap().unwrap().closed, None);
                let mut writer = try_create(&vfs, 6, &states[failing]).unwrap();
                edits[failing..].iter().for_each(|edit| writer.append(edit).unwrap());
                for (_, image) in images(&mem) {
                    assert_eq!(position(&states, &recovered(&image).state), edits.len());
                }
            }
        }
    }
}

/// A clean close, crashed or failing at every call, opens as clean or as unclean, with everything.
#[test]
fn a_crash_in_a_clean_close_loses_nothing() {
    let (state, edits) = small_history();
    let states = states(&state, &edits);
    for nth in 1..12 {
        let mem = disk();
        let vfs = FaultVfs::over_mem(&mem);
        let mut writer = try_create(&vfs, 2, &state).unwrap();
        edits.iter().for_each(|edit| writer.append(edit).unwrap());
        vfs.arm(Fault::nth(nth).forever());
        let closed = writer.write_clean_current().is_ok();
        assert_eq!(closed, nth > 8, "call {nth}");
        for (mode, image) in images(&mem) {
            println!("call {nth}, {mode}");
            let found = recovered(&image);
            assert_eq!(position(&states, &found.state), 3);
            assert!(found.clean || !closed);
        }
    }
}

/// A failed read is an error and never an end (W3), and nothing is changed by it.
#[test]
fn w3_a_failed_read_is_no_corruption_and_no_end() {
    let (state, edits) = small_history();
    let mem = disk();
    let mut writer = create(&mem, 2, &state);
    edits.iter().for_each(|edit| writer.append(edit).unwrap());
    writer.write_clean_current().unwrap();
    let before = mem.files();
    for nth in 1.. {
        let vfs = FaultVfs::over_mem(&mem);
        vfs.arm(Fault::nth(nth));
        let result = recover(&vfs, dir());
        if vfs.fired() == 0 {
            assert!(nth > 6 && result.is_ok());
            break;
        }
        let error = result.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { .. }), "call {nth}: {error}");
    }
    assert!(mem.files() == before);
    assert!(mem.read_file(current_path()).unwrap().starts_with(b"esker current 1\nmanifest 2\nclosed "));
    assert!(mem.read_file(manifest_path(2)).is_ok());
}
