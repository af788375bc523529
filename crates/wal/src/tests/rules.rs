//! The rules of the log, each by its id: what the writer does when the file fails, how segments are chained, and what
//! recovery does at the odd ends.

use std::path::Path;

use esker_base::{ErrorKind, FileNumber};
use esker_vfs::{CallKind, CrashMode, Fault, FaultMode, FaultVfs, LostData, MemVfs, Vfs};

use super::util::{Log, STORE, batch, header, options, path, replay, replay_with, with_segment};
use crate::{LogKind, LogReader, LogWriter, RecoverOptions, RecoveryMode, SegmentEnd, SegmentHeader};

fn create(vfs: &dyn Vfs) -> LogWriter {
    LogWriter::create(vfs, &path(1), header(1, SegmentEnd::none(0)), 0).unwrap()
}

fn put(writer: &mut LogWriter) -> esker_base::Result<()> {
    let first = writer.last_sequence() + 1;
    writer.append_batch(first, 1, batch(first, 1, 8).encoded())
}

/// A failed append is cut off and synced: the error says "not there", and a power loss can't prove it wrong.
#[test]
fn w11_a_failed_append_leaves_no_trace() {
    for mode in [FaultMode::Before, FaultMode::Short, FaultMode::After] {
        let mem = MemVfs::new();
        let vfs = FaultVfs::over_mem(&mem);
        let mut writer = create(&vfs);
        vfs.sync_dir(Path::new("/")).unwrap();
        put(&mut writer).unwrap();
        writer.flush().unwrap();
        let (end, mark) = (writer.end(), writer.mark());
        vfs.arm(Fault::nth(1).kind(CallKind::Append).mode(mode));
        put(&mut writer).unwrap();
        let error = writer.flush().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { op: "append", .. }), "{mode:?}: {error}");
        assert_eq!(mem.read_file(path(1)).unwrap().len() as u64, end.length);
        assert_eq!((writer.end(), writer.durable_sequence()), (end, 1));
        for crash in [CrashMode::Drop, CrashMode::Keep] {
            let (seen, _) = replay(&mem.crash_clone_with(crash)).unwrap();
            assert_eq!(seen.len(), 1, "{mode:?} {crash:?}");
        }
        // The numbers of the failed batch are not given out again: they are skipped.
        writer.rollback(mark).unwrap();
        writer.append_skip(2, 1).unwrap();
        put(&mut writer).unwrap();
        writer.sync().unwrap();
        let (seen, found) = replay(&mem).unwrap();
        assert_eq!(seen.iter().map(|record| record.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(found.dropped, None);
    }
}

/// A flush that failed may be tried again: the records are still in the buffer, those of others too.
#[test]
fn w11_a_failed_flush_can_be_repeated() {
    let mem = MemVfs::new();
    let vfs = FaultVfs::over_mem(&mem);
    let mut writer = create(&vfs);
    put(&mut writer).unwrap();
    vfs.arm(
        Fault::nth(1).kind(CallKind::Append).mode(FaultMode::Short).error(std::io::ErrorKind::StorageFull),
    );
    assert!(writer.flush().unwrap_err().is_no_space());
    put(&mut writer).unwrap();
    writer.sync().unwrap();
    assert_eq!(replay(&mem).unwrap().0.len(), 2);
    let flushed = writer.mark();
    put(&mut writer).unwrap();
    writer.flush().unwrap();
    assert!(matches!(writer.rollback(flushed).unwrap_err().kind(), ErrorKind::Fatal { .. }));
}

/// A failed append that can't be cut off: the writer is of no more use, and the header of the next segment says where
/// this one ends, so that what the failed append left does not come back.
#[test]
fn w11_the_successor_says_where_a_segment_ends() {
    for fail_sync in [false, true] {
        let mem = MemVfs::new();
        let vfs = FaultVfs::over_mem(&mem);
        let mut writer = create(&vfs);
        put(&mut writer).unwrap();
        writer.sync().unwrap();
        let end = writer.end();
        vfs.arm(Fault::nth(1).kind(CallKind::Append).mode(FaultMode::After));
        vfs.arm(Fault::nth(1).kind(CallKind::Truncate));
        if fail_sync {
            vfs.disarm();
            vfs.arm(Fault::nth(1).kind(CallKind::Append).mode(FaultMode::After));
            vfs.arm(Fault::nth(1).kind(CallKind::SyncData));
        }
        put(&mut writer).unwrap();
        let error = writer.flush().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::WriteUnknown { .. }), "{error}");
        assert_eq!(writer.end(), end);
        let calls = vfs.calls();
        for again in [put(&mut writer), writer.flush(), writer.sync(), writer.append_skip(3, 1)] {
            assert!(matches!(again.unwrap_err().kind(), ErrorKind::WriteUnknown { .. }));
        }
        assert_eq!(vfs.calls(), calls, "a poisoned writer leaves its file alone");
        assert!(writer.poisoned().is_some());

        let mut next = LogWriter::create(&vfs, &path(2), header(2, end), 1).unwrap();
        next.append_skip(2, 1).unwrap();
        put(&mut next).unwrap();
        next.sync().unwrap();
        let (seen, found) = replay(&mem).unwrap();
        assert_eq!(
            seen.iter().map(|record| (record.0, record.2.len())).collect::<Vec<_>>(),
            [(1, 13), (2, 0), (3, 13)]
        );
        assert_eq!((found.dropped, found.durable), (None, 1));
    }
}

/// Every call of the writer fails once, or from then on, in every way; then power is lost. What the errors said holds.
#[test]
fn w11_f1_f2_errors_say_what_is_there() {
    let (mut absent_seen, mut unknown_seen) = (0, 0);
    for mode in [FaultMode::Before, FaultMode::Short, FaultMode::After] {
        for (shown, forever, nth) in
            (1..=40).flat_map(|nth| plans().map(move |(shown, forever)| (shown, forever, nth)))
        {
            let mem = MemVfs::new();
            let vfs = FaultVfs::over_mem(&mem);
            let mut writer = create(&vfs);
            vfs.sync_dir(Path::new("/")).unwrap();
            let fault = Fault::nth(nth).mode(mode).lose_pending(shown);
            vfs.arm(if forever { fault.forever() } else { fault });
            let (mut synced, mut absent, mut written) = (0, Vec::new(), Vec::new());
            for round in 0..12 {
                let (mark, first) = (writer.mark(), writer.last_sequence() + 1);
                put(&mut writer).unwrap();
                match if round % 3 == 2 { writer.sync() } else { writer.flush() } {
                    Ok(()) => written.push(first),
                    Err(error) if matches!(error.kind(), ErrorKind::Io { .. }) => {
                        absent.push(first);
                        writer.rollback(mark).unwrap();
                        writer.append_skip(first, 1).unwrap();
                    }
                    Err(error) => {
                        assert!(matches!(error.kind(), ErrorKind::WriteUnknown { .. }), "{error}");
                        unknown_seen += 1;
                        break;
                    }
                }
                synced = writer.durable_sequence();
            }
            absent_seen += absent.len();
            let crashes = (0..6).map(CrashMode::from_seed).chain([CrashMode::Drop, CrashMode::Keep]);
            for crash in crashes {
                let what = format!("{mode:?} {shown:?} {forever} {nth} {crash:?}");
                let (seen, found) = replay(&mem.crash_clone_with(crash)).unwrap();
                let there: Vec<_> =
                    seen.iter().filter(|record| !record.2.is_empty()).map(|record| record.0).collect();
                assert!(found.end.last_sequence >= synced, "{what}");
                assert!(absent.iter().all(|first| !there.contains(first)), "{what}: {absent:?}, {there:?}");
                let kept = written.iter().filter(|first| **first <= found.end.last_sequence);
                assert!(
                    kept.eq(there.iter().take_while(|first| **first <= *written.last().unwrap_or(&0))),
                    "{what}"
                );
            }
        }
    }
    assert!(absent_seen > 20 && unknown_seen > 20, "{absent_seen}, {unknown_seen}");
}

/// What reads show after a failed sync, and whether it is the only one that fails.
fn plans() -> impl Iterator<Item = (LostData, bool)> {
    [LostData::ReadsNew, LostData::ReadsOld].into_iter().flat_map(|shown| [(shown, false), (shown, true)])
}

/// After a failed sync the file is never synced again, not even when the system would say yes.
#[test]
fn f1_a_failed_sync_is_for_ever() {
    for shown in [LostData::ReadsNew, LostData::ReadsOld] {
        let mem = MemVfs::new();
        let vfs = FaultVfs::over_mem(&mem);
        let mut writer = create(&vfs);
        vfs.sync_dir(Path::new("/")).unwrap();
        put(&mut writer).unwrap();
        writer.sync().unwrap();
        put(&mut writer).unwrap();
        vfs.arm(Fault::nth(1).kind(CallKind::SyncData).lose_pending(shown));
        assert!(matches!(writer.sync().unwrap_err().kind(), ErrorKind::WriteUnknown { .. }));
        assert_eq!(writer.durable_sequence(), 1);
        let calls = vfs.calls();
        assert!(writer.sync().is_err() && writer.sync().is_err() && put(&mut writer).is_err());
        assert_eq!(vfs.calls(), calls);
        let (seen, found) = replay(&mem.crash_clone_with(CrashMode::Drop)).unwrap();
        assert_eq!((seen.len(), found.end.last_sequence), (1, 1), "{shown:?}");
    }
}

/// Errors of close are not swallowed (DW16).
#[test]
fn dw16_a_failed_close_is_reported() {
    let vfs = FaultVfs::over_mem(&MemVfs::new());
    let mut writer = create(&vfs);
    put(&mut writer).unwrap();
    vfs.arm(Fault::nth(1).kind(CallKind::Close));
    assert!(matches!(writer.close().unwrap_err().kind(), ErrorKind::WriteUnknown { .. }));
    let writer = LogWriter::create(&vfs, &path(2), header(2, SegmentEnd::none(0)), 0).unwrap();
    assert_eq!(writer.close().unwrap(), SegmentEnd { number: FileNumber(2), length: 64, last_sequence: 0 });
}

/// A sync of the newest segment proves nothing while an older one is not synced to its end.
#[test]
fn f7_durable_counts_only_when_earlier_segments_are() {
    let vfs = MemVfs::new();
    let mut old = create(&vfs);
    put(&mut old).unwrap();
    old.sync().unwrap();
    put(&mut old).unwrap();
    old.flush().unwrap();
    let mut new = LogWriter::create(&vfs, &path(2), header(2, old.end()), old.durable_sequence()).unwrap();
    put(&mut new).unwrap();
    new.sync().unwrap();
    assert_eq!(new.durable_sequence(), 1);
    old.sync().unwrap();
    new.previous_is_durable();
    assert_eq!(new.durable_sequence(), 3);
}

/// Syncs and appends one file with many buffered records in one call each.
#[test]
fn a_group_is_one_write() {
    let vfs = FaultVfs::over_mem(&MemVfs::new());
    let mut writer = create(&vfs);
    let calls = vfs.calls();
    for _ in 0..100 {
        put(&mut writer).unwrap();
    }
    assert_eq!(vfs.calls(), calls);
    assert!(writer.buffered() > 100 * 20);
    writer.flush().unwrap();
    assert_eq!((vfs.calls(), writer.buffered()), (calls + 1, 0));
    writer.sync().unwrap();
    assert_eq!(vfs.calls(), calls + 2);
}

/// A failed read is an error in every mode and at every call, never the end of the log.
#[test]
fn w3_a_read_error_is_no_corruption() {
    let log = Log::random(1);
    for mode in [RecoveryMode::Strict, RecoveryMode::PointInTime] {
        // The second log is torn, so that the search behind the tear is read too.
        let bytes = log.bytes(2);
        for mem in [log.vfs.clone(), with_segment(&log, 2, &bytes[..bytes.len() - 1])] {
            let vfs = FaultVfs::over_mem(&mem);
            let options = RecoverOptions { mode, ..options(&mem) };
            let _ = replay_with(&vfs, &options);
            let calls = vfs.calls();
            assert!(calls > 9);
            for nth in 1..=calls {
                let vfs = FaultVfs::over_mem(&mem);
                vfs.arm(Fault::nth(nth));
                let error = replay_with(&vfs, &options).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::Io { .. }), "call {nth}: {error}");
            }
        }
    }
}

/// A segment of another store, another number or another kind is damage wherever it is in the chain; and its records
/// do not count under another header either.
#[test]
fn w1_w2_foreign_and_stale_bytes_never_match() {
    let mut log = Log::new();
    log.put(2, 20);
    log.rotate();
    log.put(2, 20);
    let own = log.bytes(2);
    let previous = LogReader::open(&log.vfs, &path(2), LogKind::Wal).unwrap().0.previous;
    let foreign = [
        SegmentHeader { store_id: STORE ^ 1, ..header(2, previous) },
        SegmentHeader { number: FileNumber(3), ..header(3, previous) },
        SegmentHeader { number: FileNumber(2 + 256), ..header(2 + 256, previous) },
        SegmentHeader { kind: LogKind::Manifest, ..header(2, previous) },
    ];
    for header in foreign {
        // The whole file under the wrong name.
        let vfs = with_segment(&log, 2, &[&header.encode()[..], &own[64..]].concat());
        assert!(replay(&vfs).unwrap_err().is_corruption(), "{header:?}");
        // The right header, and records that another segment had at this place.
        let other = MemVfs::new();
        let mut writer = LogWriter::create(&other, &path(9), header, 0).unwrap();
        match header.kind {
            LogKind::Wal => writer.append_batch(3, 2, &log.written[1].payload).unwrap(),
            LogKind::Manifest => writer.append_edit(3, &log.written[1].payload).unwrap(),
        }
        writer.flush().unwrap();
        let stale = other.read_file(path(9)).unwrap();
        let (seen, found) = replay(&with_segment(&log, 2, &[&own[..64], &stale[64..]].concat())).unwrap();
        assert_eq!(seen, log.before(3), "{header:?}");
        assert!(found.dropped.is_some());
    }
    // The segment's own records at another place.
    let moved = [&own[..], &own[64..]].concat();
    let (seen, found) = replay(&with_segment(&log, 2, &moved)).unwrap();
    assert_eq!(seen, log.before(u64::MAX));
    assert_eq!(found.dropped.unwrap().offset, own.len() as u64);
}

/// Obsolete segments may be there or not, in any combination; what is needed decides where the replay starts.
#[test]
fn w7_w8_obsolete_segments_do_not_matter() {
    let mut log = Log::new();
    for _ in 0..5 {
        log.put(3, 9);
        log.rotate();
    }
    log.put(3, 9);
    for present in 0..8_u64 {
        let vfs = with_segment(&log, 0, &[]);
        for gone in (1..=3).filter(|number| present & (1 << (number - 1)) == 0) {
            vfs.remove(&path(gone)).unwrap();
        }
        let needed = RecoverOptions { first_needed: 11, ..options(&vfs) };
        let (seen, found) = replay_with(&vfs, &needed).unwrap();
        assert_eq!(seen.iter().map(|record| record.0).collect::<Vec<_>>(), [10, 13, 16]);
        assert_eq!(found.obsolete.len(), present.count_ones() as usize);
        if present != 7 {
            let (seen, _) = replay(&vfs).unwrap();
            assert!(seen.len() < 4, "nothing behind the gap: {seen:?}");
        }
    }
}

/// A recovery that drops a tail, starts the next segment and crashes before the old files are deleted: the next one finds
/// the same, and later writes are found after it.
#[test]
fn w6_w8_a_dropped_tail_does_not_come_back() {
    let mut log = Log::new();
    log.put(1, 9);
    log.put(1, 9);
    log.rotate();
    log.put(1, 9);
    let torn = log.bytes(1);
    let vfs = with_segment(&log, 1, &torn[..torn.len() - 3]);
    let (seen, found) = replay(&vfs).unwrap();
    assert_eq!((seen.len(), found.end.last_sequence), (1, 1));
    let dropped = found.dropped.clone().unwrap();
    let numbers: Vec<_> = dropped.segments.iter().map(|segment| segment.number.0).collect();
    assert_eq!((numbers, dropped.offset, dropped.promised), (vec![1, 2], found.end.length, None));
    assert_eq!(replay(&vfs).unwrap(), (seen.clone(), found.clone()), "twice the same");

    let mut writer = LogWriter::create(&vfs, &path(3), header(3, found.end), 1).unwrap();
    let (again, found) = replay(&vfs).unwrap();
    assert_eq!((again, found.obsolete, found.dropped), (seen, vec![FileNumber(2)], None));
    put(&mut writer).unwrap();
    writer.sync().unwrap();
    put(&mut writer).unwrap();
    writer.sync().unwrap();
    let (seen, _) = replay(&vfs).unwrap();
    assert_eq!(seen.iter().map(|record| record.0).collect::<Vec<_>>(), [1, 2, 3]);
}

/// Tables may hold later numbers than the log, for instance of writes with the log off: that is no loss.
#[test]
fn w3_a_log_that_ends_before_what_is_needed_is_complete() {
    let mut log = Log::new();
    log.put(3, 9);
    let ahead = RecoverOptions { first_needed: 100, durable: 50, ..options(&log.vfs) };
    let (seen, found) = replay_with(&log.vfs, &ahead).unwrap();
    assert_eq!((seen.len(), found.end.last_sequence, found.dropped), (0, 3, None));
    let lost = RecoverOptions { first_needed: 4, durable: 4, ..options(&log.vfs) };
    assert!(replay_with(&log.vfs, &lost).unwrap_err().is_corruption());
    let none = RecoverOptions { segments: Vec::new(), ..lost.clone() };
    assert!(replay_with(&log.vfs, &none).unwrap_err().is_corruption(), "DW22: the log is gone");
    let none = RecoverOptions { first_needed: 5, ..none };
    assert_eq!(replay_with(&log.vfs, &none).unwrap().1.end, SegmentEnd::none(4));
}

/// What the visitor returns ends the recovery.
#[test]
fn the_visitors_error_is_returned() {
    let log = Log::random(1);
    let error =
        crate::recover(&log.vfs, &options(&log.vfs), |_| Err(esker_base::Error::closed())).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed));
}
