//! A batch is seen as a whole: insert, then publish.
//!
//! Mirrors `append_group` in `crates/engine/src/write.rs`: all operations are applied to the memtable, then
//! `visible.publish`. The memtable is an array of slots, written and read without any order of their own, so all order
//! comes from [`Visible`].

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::commit::Visible;

/// When the writer publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishOrder {
    /// After all entries are in: as the engine does it.
    AfterInsert,
    /// Before them.
    BeforeInsert,
    /// Between the entries of a batch.
    InTheMiddle,
}

/// Two batches of two entries, and a reader that looks twice.
///
/// # Panics
///
/// When the reader misses an entry that the visible number covers, or sees the number go back.
pub fn batches_are_whole(order: PublishOrder) {
    loom::model(move || {
        let memtable: Arc<[AtomicU64; 4]> = Arc::new(std::array::from_fn(|_| AtomicU64::new(0)));
        let visible = Arc::new(Visible::new(0));
        let writer = {
            let (memtable, visible) = (Arc::clone(&memtable), Arc::clone(&visible));
            loom::thread::spawn(move || {
                for last in [2_u64, 4] {
                    let insert = |seq: u64| memtable[seq as usize - 1].store(seq, Ordering::Relaxed);
                    if order == PublishOrder::BeforeInsert {
                        visible.publish(last);
                    }
                    insert(last - 1);
                    if order == PublishOrder::InTheMiddle {
                        visible.publish(last);
                    }
                    insert(last);
                    if order == PublishOrder::AfterInsert {
                        visible.publish(last);
                    }
                }
            })
        };
        let mut before = 0;
        for _ in 0..2 {
            let seen = visible.load();
            assert!(seen >= before && seen.is_multiple_of(2), "{seen} after {before}");
            for seq in 1..=seen {
                let found = memtable[seq as usize - 1].load(Ordering::Relaxed);
                assert_eq!(found, seq, "entry {seq} of {seen} is not there");
            }
            before = seen;
        }
        writer.join().expect("the writer");
    });
}
