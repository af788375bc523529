//! Files that are allocated ahead of their records: when, how far, and that failures there are none of the log.

use esker_base::ErrorKind;
use esker_vfs::{CallKind, CountingVfs, CrashMode, Fault, FaultMode, FaultVfs, MemVfs, Vfs};

use super::util::{batch, header, path, replay};
use crate::{LogWriter, SegmentEnd};
use std::path::Path;
use std::sync::Arc;

const LIMIT: u64 = 1 << 20;

fn create(vfs: &dyn Vfs) -> LogWriter {
    LogWriter::create(vfs, &path(1), header(1, SegmentEnd::none(0)), 0).unwrap()
}

/// A record of at least `len` bytes, flushed.
fn put(writer: &mut LogWriter, len: usize) -> esker_base::Result<()> {
    let first = writer.last_sequence() + 1;
    writer.append_batch(first, 1, batch(first, 1, len).encoded())?;
    writer.flush()
}

fn sync(writer: &mut LogWriter) {
    writer.extend_for_sync();
    writer.sync().unwrap();
}

fn file_len(mem: &MemVfs) -> u64 {
    mem.read_file(path(1)).unwrap().len() as u64
}

/// Before a sync the file gets room as long as itself, when the last is used up; records take its place, and what is
/// left at the end is cut off. It never counts as written.
#[test]
fn syncs_find_room_ahead() {
    let mem = MemVfs::new();
    let vfs = CountingVfs::new(Arc::new(mem.clone()));
    let mut writer = create(&vfs);
    sync(&mut writer);
    assert_eq!(file_len(&mem), writer.written(), "nothing without leave");
    writer.allow_extents(LIMIT, false);
    sync(&mut writer);
    assert_eq!(file_len(&mem), writer.written() + (16 << 10));
    let mut records = 0;
    while writer.written() < 200 << 10 {
        put(&mut writer, 100).unwrap();
        sync(&mut writer);
        records += 1;
        assert_eq!(writer.end().length, writer.written());
        assert!(file_len(&mem) > writer.written() && file_len(&mem) <= 2 * writer.written() + (16 << 10));
    }
    let extensions = vfs.counts().calls(CallKind::Extend);
    assert!((4..=6).contains(&extensions), "{extensions} for {records} syncs");
    assert_eq!(vfs.counts().calls(CallKind::Map), 0);
    put(&mut writer, 100).unwrap();
    let (seen, found) = replay(&mem.crash_clone_with(CrashMode::Keep)).unwrap();
    assert_eq!((seen.len(), found.end, found.dropped), (records + 1, writer.end(), None));
    writer.trim();
    assert_eq!(file_len(&mem), writer.written());
    let truncations = vfs.counts().calls(CallKind::Truncate);
    writer.trim();
    assert_eq!(vfs.counts().calls(CallKind::Truncate), truncations, "once is enough");
    // Up to the limit, and not beyond it.
    writer.allow_extents(writer.written() + 7, false);
    sync(&mut writer);
    assert_eq!(file_len(&mem), writer.written() + 7);
    put(&mut writer, 100).unwrap();
    sync(&mut writer);
    assert_eq!(file_len(&mem), writer.written());
}

/// What is not synced is mapped, in pieces as long as itself; who syncs all the time, and large batches, are not.
#[test]
fn unsynced_records_are_mapped() {
    let mem = MemVfs::new();
    let vfs = CountingVfs::new(Arc::new(mem.clone()));
    let mut writer = create(&vfs);
    writer.allow_extents(8 * LIMIT, true);
    let maps = || vfs.counts().calls(CallKind::Map);
    for _ in 0..300 {
        put(&mut writer, 200).unwrap();
        sync(&mut writer);
    }
    assert_eq!(maps(), 0);
    while writer.written() < 500 << 10 {
        put(&mut writer, 200).unwrap();
        assert!(file_len(&mem) >= writer.written());
    }
    assert!((4..=7).contains(&maps()), "{} windows", maps());
    let before = maps();
    put(&mut writer, 300 << 10).unwrap();
    (0..100).for_each(|_| put(&mut writer, 4 << 10).unwrap());
    assert_eq!(maps(), before, "nothing is mapped for large records");
    // A mapping is memory.
    writer.keep_buffer(4 << 10);
    writer.trim();
    let (start, before) = (writer.written(), maps());
    while writer.written() < start + (40 << 10) {
        put(&mut writer, 200).unwrap();
    }
    assert!((8..=11).contains(&(maps() - before)), "{} windows of 4 KiB", maps() - before);
    assert_eq!(replay(&mem).unwrap().1.end, writer.end());
}

/// Room that can't be had is done without: no write fails, and it is not asked for again for each record.
#[test]
fn failures_to_allocate_are_no_errors() {
    for (kind, mapped) in [(CallKind::Extend, false), (CallKind::Map, true)] {
        for error in [std::io::ErrorKind::StorageFull, std::io::ErrorKind::Unsupported] {
            for mode in [FaultMode::Before, FaultMode::After, FaultMode::Lie] {
                let mem = MemVfs::new();
                let vfs = FaultVfs::over_mem(&mem);
                vfs.arm(Fault::always().kind(kind).mode(mode).error(error));
                let mut writer = create(&vfs);
                writer.allow_extents(LIMIT, mapped);
                for number in 0..1_000 {
                    put(&mut writer, 100).unwrap();
                    if !mapped || number == 500 {
                        sync(&mut writer);
                    }
                }
                let told = error == std::io::ErrorKind::Unsupported && mode != FaultMode::Lie;
                let most = if mapped && told { 1 } else { 8 };
                assert!(
                    (1..=most).contains(&vfs.fired()),
                    "{kind:?} {error} {mode:?}: {} times",
                    vfs.fired()
                );
                assert_eq!(replay(&mem).unwrap().1.records, 1_000);
                writer.trim();
                assert_eq!(file_len(&mem), writer.written());
            }
        }
    }
}

/// A failed append into the room ahead leaves no trace: the room is cut away with it, and a later sync gets some anew.
#[test]
fn w11_a_failed_append_into_the_room_ahead() {
    for mode in [FaultMode::Before, FaultMode::Short, FaultMode::After] {
        let mem = MemVfs::new();
        let vfs = FaultVfs::over_mem(&mem);
        let mut writer = create(&vfs);
        vfs.sync_dir(Path::new("/")).unwrap();
        writer.allow_extents(LIMIT, false);
        put(&mut writer, 100).unwrap();
        sync(&mut writer);
        let mark = writer.mark();
        vfs.arm(Fault::nth(1).kind(CallKind::Append).mode(mode));
        let error = put(&mut writer, 100).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { op: "append", .. }), "{mode:?}: {error}");
        writer.rollback(mark).unwrap();
        assert_eq!(file_len(&mem), writer.written());
        for crash in [CrashMode::Drop, CrashMode::Keep] {
            assert_eq!(
                replay(&mem.crash_clone_with(crash)).unwrap().1.end,
                writer.end(),
                "{mode:?} {crash:?}"
            );
        }
        writer.append_skip(2, 1).unwrap();
        sync(&mut writer);
        put(&mut writer, 100).unwrap();
        assert!(file_len(&mem) > writer.written());
        assert_eq!(replay(&mem).unwrap().1.end, writer.end());
    }
}
