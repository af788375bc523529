//! Tests of the fault layer: every call can be failed, in every mode.

use super::*;

fn path(name: &str) -> &Path {
    Path::new(name)
}

fn layers() -> (MemVfs, FaultVfs) {
    let mem = MemVfs::new();
    let vfs = FaultVfs::over_mem(&mem);
    (mem, vfs)
}

/// Each kind of call can be failed before it is done, and is then counted, refused and without effect.
#[test]
fn every_call_can_be_failed() {
    type Run = fn(&dyn Vfs) -> io::Result<()>;
    let runs: [(CallKind, Run); 22] = [
        (CallKind::Create, |vfs| vfs.create_new(path("/n")).map(drop)),
        (CallKind::Open, |vfs| vfs.open(path("/f")).map(drop)),
        (CallKind::OpenAppend, |vfs| vfs.open_append(path("/f")).map(drop)),
        (CallKind::Rename, |vfs| vfs.rename(path("/f"), path("/n"))),
        (CallKind::Link, |vfs| vfs.link(path("/f"), path("/n"))),
        (CallKind::Remove, |vfs| vfs.remove(path("/f"))),
        (CallKind::List, |vfs| vfs.list(path("/")).map(drop)),
        (CallKind::CreateDirAll, |vfs| vfs.create_dir_all(path("/n"))),
        (CallKind::SyncDir, |vfs| vfs.sync_dir(path("/"))),
        (CallKind::Lock, |vfs| vfs.lock(path("/f")).map(drop)),
        (CallKind::FreeSpace, |vfs| vfs.free_space(path("/")).map(drop)),
        (CallKind::Kind, |vfs| vfs.kind(path("/f")).map(drop)),
        (CallKind::Append, |vfs| vfs.open_append(path("/f"))?.append(b"y")),
        (CallKind::SyncData, |vfs| vfs.open_append(path("/f"))?.sync_data()),
        (CallKind::SyncAll, |vfs| vfs.open_append(path("/f"))?.sync_all()),
        (CallKind::Truncate, |vfs| vfs.open_append(path("/f"))?.truncate(0)),
        (CallKind::Preallocate, |vfs| vfs.open_append(path("/f"))?.preallocate(9)),
        (CallKind::Extend, |vfs| vfs.open_append(path("/f"))?.extend(9)),
        (CallKind::Map, |vfs| vfs.open_append(path("/f"))?.map(9)),
        (CallKind::Close, |vfs| vfs.open_append(path("/f"))?.close()),
        (CallKind::Read, |vfs| vfs.open(path("/f"))?.read_exact_at(0, &mut [0])),
        (CallKind::FileLen, |vfs| vfs.open(path("/f"))?.len().map(drop)),
    ];
    assert_eq!(runs.map(|(kind, _)| kind), CallKind::ALL);
    for (kind, run) in runs {
        let (mem, vfs) = layers();
        mem.write_file("/f", b"x").unwrap();
        run(&vfs).unwrap_or_else(|error| panic!("{kind:?} works without a fault: {error}"));
        let (mem, vfs) = layers();
        mem.write_file("/f", b"x").unwrap();
        vfs.arm(Fault::always().kind(kind).error(io::ErrorKind::PermissionDenied));
        let error = run(&vfs).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{kind:?}");
        assert!(error.to_string().contains(&format!("{kind:?}")), "{error}");
        assert_eq!(vfs.fired(), 1);
        assert!((1..=2).contains(&vfs.calls()));
        assert_eq!(mem.files().into_values().collect::<Vec<_>>(), [b"x"], "{kind:?} had no effect");
        vfs.disarm();
        run(&vfs).unwrap();
    }
}

/// The n-th call, once or for ever, counted from arming and over the matching calls only.
#[test]
fn nth_once_and_forever() {
    let (mem, vfs) = layers();
    let mut log = vfs.create_new(path("/1.log")).unwrap();
    let mut table = vfs.create_new(path("/2.sst")).unwrap();
    vfs.arm(Fault::nth(2).path_suffix(".log"));
    let results: Vec<bool> = (0..4).map(|_| (table.append(b"t"), log.append(b"l")).1.is_ok()).collect();
    assert_eq!(results, [true, false, true, true]);
    vfs.disarm();
    vfs.arm(Fault::nth(2).forever().path_suffix(".log").os_error(5));
    let results: Vec<bool> = (0..4).map(|_| (table.append(b"t"), log.append(b"l")).1.is_ok()).collect();
    assert_eq!(results, [true, false, false, false]);
    assert_eq!(log.append(b"l").unwrap_err().raw_os_error(), Some(5));
    assert_eq!((mem.read_file("/2.sst").unwrap().len(), mem.read_file("/1.log").unwrap().len()), (8, 4));
    assert_eq!((vfs.calls(), vfs.fired()), (19, 5));
}

/// A rename is matched by its target too; done although it failed, it has happened.
#[test]
fn error_although_done() {
    let (mem, vfs) = layers();
    mem.write_file("/tmp", b"new").unwrap();
    vfs.arm(Fault::nth(1).path_suffix("CURRENT").mode(FaultMode::After));
    assert!(vfs.rename(path("/tmp"), path("/CURRENT")).is_err());
    assert_eq!(mem.read_file("/CURRENT").unwrap(), b"new");
}

/// A short append leaves half of the data, a lying sync makes nothing durable, a flip changes one bit read.
#[test]
fn short_lie_and_flip() {
    let (mem, vfs) = layers();
    let mut file = vfs.create_new(path("/f")).unwrap();
    vfs.sync_dir(path("/")).unwrap();
    vfs.arm(Fault::nth(1).mode(FaultMode::Short).error(io::ErrorKind::StorageFull));
    assert_eq!(file.append(b"abcd").unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(mem.read_file("/f").unwrap(), b"ab");
    vfs.arm(Fault::nth(1).syncs().mode(FaultMode::Lie));
    file.sync_data().unwrap();
    assert_eq!(mem.crash_clone_with(crate::CrashMode::Drop).read_file("/f").unwrap(), b"");
    file.sync_data().unwrap();
    assert_eq!(mem.crash_clone_with(crate::CrashMode::Drop).read_file("/f").unwrap(), b"ab");

    let reader = vfs.open(path("/f")).unwrap();
    let mut buf = [0; 8];
    vfs.arm(Fault::nth(1).kind(CallKind::Read).mode(FaultMode::Flip));
    assert_eq!(reader.read_at(0, &mut buf).unwrap(), 2);
    assert_eq!(buf[..2], *b"ar");
    assert_eq!(reader.read_at(0, &mut buf).unwrap(), 2);
    assert_eq!(buf[..2], *b"ab");
    vfs.arm(Fault::nth(1).kind(CallKind::Read).mode(FaultMode::Short));
    assert!(reader.read_at(0, &mut buf).is_err());
}

/// A failed sync that loses what was pending: the next sync says yes, and yet a power loss takes the data.
#[test]
fn failed_sync_loses_pending_data() {
    for (shown, now) in [(LostData::ReadsNew, &b"abc"[..]), (LostData::ReadsOld, b"a")] {
        let (mem, vfs) = layers();
        let mut file = vfs.create_new(path("/f")).unwrap();
        vfs.sync_dir(path("/")).unwrap();
        file.append(b"a").unwrap();
        file.sync_data().unwrap();
        file.append(b"bc").unwrap();
        vfs.arm(Fault::nth(1).syncs().lose_pending(shown));
        assert!(file.sync_data().is_err());
        file.sync_data().unwrap();
        assert_eq!((mem.read_file("/f").unwrap().as_slice(), file.len()), (now, 3), "{shown:?}");
        let left = mem.crash_clone_with(crate::CrashMode::Drop).read_file("/f").unwrap();
        assert_eq!(left, [b'a', 0, 0][..now.len()], "{shown:?}");
    }
}
