//! Runs the contract suite on every implementation, and on the layers over them.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use esker_vfs::{CountingVfs, FaultVfs, MemVfs, ObserveVfs, OsVfs, Vfs, contract};

type Layer = fn(Arc<dyn Vfs>) -> Arc<dyn Vfs>;

const LAYERS: [Layer; 4] = [
    |vfs| vfs,
    |vfs| Arc::new(FaultVfs::new(vfs)),
    |vfs| Arc::new(CountingVfs::new(vfs)),
    |vfs| Arc::new(ObserveVfs::new(vfs, Arc::new(|_, _| {}))),
];

/// Memory, plain and under each layer, in the root and below, also as the image of a crash.
#[test]
fn mem() {
    for layer in LAYERS {
        contract::check_all(&|| (layer(Arc::new(MemVfs::new())), PathBuf::from("/")));
        contract::check_all(&|| {
            let vfs = MemVfs::with_quota(1 << 20);
            vfs.create_dir_all("a/b".as_ref()).unwrap();
            let vfs = vfs.crash_clone_with(esker_vfs::CrashMode::Keep);
            (layer(Arc::new(vfs)), PathBuf::from("a/b"))
        });
    }
}

/// The real disk, plain and under each layer.
#[test]
fn os() {
    for layer in LAYERS {
        let dirs = Mutex::new(Vec::new());
        contract::check_all(&|| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().to_owned();
            dirs.lock().unwrap().push(dir);
            (layer(Arc::new(OsVfs::new())), path)
        });
    }
}
