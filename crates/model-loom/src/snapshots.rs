//! A snapshot never needs what a capture lets a compaction drop.
//!
//! The registry is the real one. A snapshot is taken; an overwrite and then a write to the next memtable are published;
//! a flush of the sealed memtable captures its stripes: three threads. See `picture` for what they mirror.

use std::time::Duration;

use loom::sync::Arc;

use crate::commit::Visible;
use crate::picture::Store;

/// How a snapshot is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOrder {
    /// Number and registration under the one lock: as the engine does it.
    AtOnce,
    /// The number first, and its registration later.
    InTwoSteps,
}

/// A snapshot beside an overwrite and a flush.
///
/// # Panics
///
/// When the snapshot misses the key, sees different versions at two reads, or sees what is newer.
pub fn snapshots_keep_what_they_see(order: TakeOrder) {
    loom::model(move || {
        let store = Store::new();
        let writes = |store: &Store| {
            store.overwrite();
            store.rotate();
        };
        let flushes = |store: &Store| {
            if store.is_sealed() {
                store.flush();
            }
        };
        let threads: [fn(&Store); 2] = [writes, flushes];
        let threads = threads.map(|work| {
            let store = Arc::clone(&store);
            loom::thread::spawn(move || work(&store))
        });
        let seq = match order {
            TakeOrder::AtOnce => store.registry.take(&store.visible, Duration::ZERO),
            TakeOrder::InTwoSteps => {
                let seq = store.visible.load();
                store.registry.take(&Visible::new(seq), Duration::ZERO)
            }
        };
        let first = store.find(store.load_picture(), seq);
        let second = store.find(store.load_picture(), seq);
        assert_eq!(first, Some(seq.min(2)), "a snapshot at {seq}");
        assert_eq!(second, Some(seq.min(2)), "a snapshot at {seq}, read again");
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert!(store.registry.release(seq));
    });
}
