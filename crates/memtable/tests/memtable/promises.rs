//! Costs and limits, and faults that other engines had.

use super::{SEED, before, get, insert, lookup, put};
use esker_base::{EntryBatch, InternalIterator, InternalKeyRef, SplitMix64, ValueKind, key_hash};
use esker_memtable::Memtable;
use std::hint::black_box;
use std::sync::Arc;

/// IT10: a backward walk meets the versions of a key oldest first, so whoever wants the newest visible one must look on;
/// here: every version is met exactly once, in the exact reverse of the forward order.
#[test]
fn it10_backward_is_the_reverse_of_forward() {
    let table = Arc::new(Memtable::new(SEED, 16 << 10));
    for seq in 1..=15 {
        put(&table, [b"a", b"b", b"c"][seq as usize % 3], seq, &[seq as u8]);
    }
    let mut iter = table.iter();
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    iter.seek_to_first().unwrap();
    while iter.valid() {
        forward.push(iter.key().to_owned());
        iter.next().unwrap();
    }
    iter.seek_to_last().unwrap();
    while iter.valid() {
        backward.push(iter.key().to_owned());
        iter.prev().unwrap();
    }
    backward.reverse();
    assert_eq!(forward.len(), 15);
    assert_eq!(forward, backward);
    for key in [b"a", b"b", b"c"] {
        for snapshot in [4, 9, 15] {
            let newest = forward.iter().find(|found| found.user_key == key && found.seq <= snapshot);
            iter.seek(InternalKeyRef::seek_to(key, snapshot)).unwrap();
            assert_eq!(iter.key(), newest.unwrap().as_ref());
            assert_eq!(get(&table, key, snapshot).unwrap().seq, newest.unwrap().seq);
            iter.seek_for_prev(before(key)).unwrap();
            assert!(!iter.valid() || iter.key().user_key < &key[..]);
        }
    }
}

/// PF11: one key, a million versions: the newest and the oldest are found in about the same time as among few.
#[test]
fn pf11_many_versions_of_one_key() {
    let table = Memtable::new(SEED, 64 << 20);
    let versions = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };
    let owner: Arc<[u8]> = Arc::from(&b"key"[..]);
    for seq in 1..=versions {
        table.writer().insert(&owner, 0..3, 3..3, seq, ValueKind::Put, key_hash(SEED, b"key"));
    }
    // 100,000 lookups that walked the chain would take minutes.
    for step in 0..100_000 {
        assert_eq!(get(&table, b"key", versions).unwrap().seq, versions);
        let old = 1 + step % (versions / 2);
        assert_eq!(get(&table, b"key", old).unwrap().seq, old);
        assert!(get(&table, b"key", 0).is_none());
    }
}

/// Lookups allocate nothing: hits, misses, tombstones, long keys, and versions so old that the order is searched.
#[test]
fn lookups_do_not_allocate() {
    let table = Memtable::new(SEED, 16 << 10);
    let long = [b'x'; 300];
    for seq in 1..1000 {
        put(&table, &long, seq, &[7; 500]);
        put(&table, b"short", seq, b"value");
        insert(&table, &[&long[..], &seq.to_le_bytes()].concat(), seq, ValueKind::Delete, b"");
    }
    let lookups = || {
        for seq in [0, 1, 5, 500, 999] {
            for key in [&long[..], b"short", b"missing", b""] {
                black_box(table.get(&lookup(key, seq)));
                black_box(table.get_ref(&lookup(key, seq)));
            }
        }
    };
    // The first use of the epoch collector registers the thread.
    lookups();
    assert_eq!(allocation_counter::measure(lookups).count_total, 0);
}

/// An iterator allocates nothing after it was made, in either direction.
#[test]
fn iterators_do_not_allocate() {
    let table = Arc::new(Memtable::new(SEED, 16 << 10));
    let mut random = SplitMix64::new(1);
    for seq in 1..1000 {
        put(&table, &vec![b'k'; random.below(100) as usize], seq, &[7; 100]);
    }
    let mut iter = table.iter();
    let mut walk = || {
        iter.seek_to_first().unwrap();
        while iter.valid() {
            black_box((iter.key(), iter.value_slice()));
            iter.next().unwrap();
        }
        iter.seek_to_last().unwrap();
        while iter.valid() {
            black_box((iter.key(), iter.value()));
            iter.prev().unwrap();
        }
        iter.seek(before(&[b'k'; 50])).unwrap();
    };
    walk();
    assert_eq!(allocation_counter::measure(walk).count_total, 0);
}

/// What `memory_usage` says is within a factor of 1.3 of what was allocated, for single writes and for batches, and
/// within a few KiB for an empty memtable.
#[test]
fn memory_is_counted() {
    for (entries, batch, value_len) in
        [(0, 1, 0), (40, 1, 100), (5000, 1, 64), (60_000, 1, 100), (60_000, 100, 64), (3000, 1000, 1000)]
    {
        let mut table = None;
        let truth = allocation_counter::measure(|| {
            let made = Memtable::new(SEED, 1 << 20);
            let mut random = SplitMix64::new(3);
            let mut seq = 0;
            while seq < entries {
                let bytes = vec![0; batch * (16 + value_len)];
                let mut owner: Arc<[u8]> = Arc::from(bytes);
                for at in 0..batch {
                    let at = at * (16 + value_len);
                    let key = random.next_u64().to_le_bytes();
                    Arc::get_mut(&mut owner).unwrap()[at..at + 8].copy_from_slice(&key);
                }
                for at in 0..batch {
                    seq += 1;
                    let at = at * (16 + value_len);
                    let (key, value) = (at..at + 16, at + 16..at + 16 + value_len);
                    let hash = key_hash(SEED, &owner[key.clone()]);
                    made.writer().insert(&owner, key, value, seq as u64, ValueKind::Put, hash);
                }
            }
            table = Some(Box::new(made));
        });
        let (told, truth) = (table.unwrap().memory_usage() as f64, truth.bytes_current as f64);
        println!("{entries} entries in batches of {batch}: told {told}, allocated {truth}");
        let slack = 4096.0;
        assert!(told < truth * 1.3 + slack && truth < told * 1.3 + slack, "told {told}, allocated {truth}");
    }
}

/// A memtable for few bytes takes few: the smallest that the engine makes is 16 KiB.
#[test]
fn small_ones_are_small() {
    let small = Memtable::new(SEED, 16 << 10);
    assert!(small.memory_usage() < 5 << 10, "{}", small.memory_usage());
    put(&small, b"key", 1, b"value");
    assert!(small.memory_usage() < 7 << 10, "{}", small.memory_usage());
}

#[test]
fn an_empty_memtable_has_nothing() {
    let table = Arc::new(Memtable::new(SEED, 0));
    assert!(table.is_empty() && table.deletes() == 0);
    assert_eq!((table.smallest_seq(), table.largest_seq()), (None, None));
    assert!(get(&table, b"", 9).is_none());
    let mut iter = table.iter();
    for _ in 0..2 {
        iter.seek_to_first().unwrap();
        assert!(!iter.valid());
        iter.seek_to_last().unwrap();
        assert!(!iter.valid());
        iter.next().unwrap();
        iter.prev().unwrap();
        assert!(!iter.valid());
    }
}

/// The empty key is a key, and the longest one is, and values share the buffer they came in.
#[test]
fn odd_keys_and_shared_values() {
    let table = Memtable::new(SEED, 0);
    let longest = vec![0xff; esker_base::MAX_KEY_LEN];
    put(&table, b"", 1, b"empty");
    put(&table, &longest, 2, b"long");
    assert_eq!(get(&table, b"", 9).unwrap().value, b"empty");
    assert_eq!(get(&table, &longest, 9).unwrap().value, b"long");
    assert!(get(&table, &vec![0xff; 70_000], 9).is_none());

    let owner: Arc<[u8]> = Arc::from(vec![b'v'; 100]);
    table.writer().insert(&owner, 0..4, 10..100, 3, ValueKind::Put, key_hash(SEED, b"vvvv"));
    let count = Arc::strong_count(&owner);
    let found = get(&table, b"vvvv", 9).unwrap();
    assert_eq!(Arc::strong_count(&owner), count + 1);
    assert_eq!(found.value.as_ptr(), owner[10..].as_ptr());
    drop(table);
    assert_eq!(found.value, [b'v'; 90]);
}

/// A batch at a time equals one by one.
#[test]
fn fill_moves_entries_in_order() {
    let table = Arc::new(Memtable::new(SEED, 0));
    for seq in 1..=300u64 {
        put(&table, &seq.to_be_bytes(), seq, &seq.to_le_bytes());
    }
    let (mut iter, mut batch, mut next) = (table.iter(), EntryBatch::new(), 1u64);
    iter.seek_to_first().unwrap();
    loop {
        batch.clear();
        let filled = iter.fill(&mut batch, 70).unwrap();
        assert_eq!(filled, batch.len());
        assert_eq!(filled, 70.min(301 - next as usize));
        for (key, value) in batch.iter() {
            assert_eq!((key.user_key, value), (&next.to_be_bytes()[..], &next.to_le_bytes()[..]));
            next += 1;
        }
        if filled < 70 {
            break;
        }
    }
    assert!(!iter.valid());
}

/// The engine shares memtables between threads and sends iterators to them.
#[test]
fn threads_may_have_them() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send + 'static>() {}
    shared::<Memtable>();
    sent::<esker_memtable::MemtableIterator>();
}
