//! A read takes the picture first and the visible number second.
//!
//! Mirrors `crates/engine/src/read.rs` (and `super_version.rs`): the picture, then the number. The writer mirrors an
//! overwrite (`write.rs`), and the flush one in `flush.rs`: it captures the stripes, keeps of a key what `SnapshotStripes`
//! says, and replaces the picture, which here is a number with acquire and release, weaker than the engine's `ArcSwap`.

use esker_compaction::SnapshotStripes;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::commit::Visible;
use crate::registry::SnapshotRegistry;

/// The order of the two loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOrder {
    /// The picture, then the number: as the engine does it.
    PictureFirst,
    /// The number, then the picture.
    SequenceFirst,
}

/// One key, with its versions 1 and 2.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) visible: Visible,
    pub(crate) registry: SnapshotRegistry,
    /// 0: the memtable counts. 1: the table does.
    picture: AtomicU64,
    /// Bit `v` for version `v`.
    memtable: AtomicU64,
    /// Whether nothing comes to the memtable any more.
    sealed: AtomicU64,
    table: AtomicU64,
}

impl Store {
    /// Version 1 is there.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Store {
            visible: Visible::new(1),
            registry: SnapshotRegistry::default(),
            picture: AtomicU64::new(0),
            memtable: AtomicU64::new(1 << 1),
            sealed: AtomicU64::new(0),
            table: AtomicU64::new(0),
        })
    }

    /// Writes version 2.
    pub(crate) fn overwrite(&self) {
        self.memtable.store(1 << 1 | 1 << 2, Ordering::Relaxed);
        self.visible.publish(2);
    }

    /// Seals the memtable, and writes something to the next one.
    pub(crate) fn rotate(&self) {
        self.sealed.store(1, Ordering::Release);
        self.visible.publish(3);
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire) == 1
    }

    /// Makes a table of the memtable, without what nobody may need, and shows it to readers.
    pub(crate) fn flush(&self) {
        let stripes = self.registry.stripes(&self.visible);
        let memtable = self.memtable.load(Ordering::Relaxed);
        self.table.store(rewrite(memtable, &stripes), Ordering::Relaxed);
        self.picture.store(1, Ordering::Release);
    }

    pub(crate) fn load_picture(&self) -> u64 {
        self.picture.load(Ordering::Acquire)
    }

    /// The newest version up to `seq`.
    pub(crate) fn find(&self, picture: u64, seq: u64) -> Option<u64> {
        let source = if picture == 0 { &self.memtable } else { &self.table };
        let versions = source.load(Ordering::Relaxed);
        (1..=2).rev().find(|version| *version <= seq && versions >> version & 1 == 1)
    }
}

/// Of each stripe the newest version, as a compaction keeps it.
fn rewrite(versions: u64, stripes: &SnapshotStripes) -> u64 {
    let hidden =
        versions & (1 << 1) != 0 && versions & (1 << 2) != 0 && stripes.stripe(1) == stripes.stripe(2);
    if hidden { versions & !(1 << 1) } else { versions }
}

/// A reader beside an overwrite and the flush behind it.
///
/// # Panics
///
/// When the reader misses the key, or what was visible when it began.
pub fn picture_and_sequence(order: ReadOrder) {
    loom::model(move || {
        let store = Store::new();
        let writer = {
            let store = Arc::clone(&store);
            loom::thread::spawn(move || {
                store.overwrite();
                store.flush();
            })
        };
        let acknowledged = store.visible.load();
        let (picture, seq) = match order {
            ReadOrder::PictureFirst => {
                let picture = store.load_picture();
                (picture, store.visible.load())
            }
            ReadOrder::SequenceFirst => {
                let seq = store.visible.load();
                (store.load_picture(), seq)
            }
        };
        let found = store.find(picture, seq);
        assert!(found >= Some(acknowledged), "found {found:?} at {seq} in picture {picture}");
        writer.join().expect("the writer");
    });
}
