//! One writer and several readers at once; and several writers, which the memtable must survive.
#![allow(clippy::disallowed_methods, reason = "tests of what happens between threads")]

use super::{SEED, get, lookup, put};
use esker_base::{InternalIterator, InternalKeyRef, SplitMix64, ValueKind, WriteBatch, key_hash};
use esker_memtable::Memtable;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The key of a write, some of them long, some overwritten often.
fn key_of(seq: u64) -> Vec<u8> {
    let number = SplitMix64::new(seq).below(if seq.is_multiple_of(2) { 50 } else { 20_000 });
    let mut key = number.to_be_bytes().repeat(1 + number as usize % 4);
    key.truncate(key.len() - number as usize % 3);
    key
}

/// The value of a write: its number, its key, and filling.
fn value_of(seq: u64) -> Vec<u8> {
    [&seq.to_le_bytes()[..], &key_of(seq), &[seq as u8; 40]].concat()
}

fn check(key: &[u8], seq: u64, value: &[u8]) {
    assert_eq!(key, key_of(seq), "the key of write {seq}");
    assert_eq!(value, value_of(seq), "the value of write {seq}");
}

/// What is visible is found at once, with the right value, by gets and by iterators in both directions.
#[test]
fn readers_see_what_is_visible() {
    const WRITES: u64 = 120_000;
    let table = Arc::new(Memtable::new(SEED, 16 << 10));
    let visible = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (table, visible) = (&table, &visible);
            scope.spawn(move || {
                let random = &mut SplitMix64::new(reader);
                let mut rounds = 0;
                while visible.load(Ordering::Acquire) < WRITES || rounds < 100 {
                    rounds += 1;
                    read_some(table, visible, random);
                    if rounds % 50 == 0 {
                        walk(table, visible.load(Ordering::Acquire), random);
                    }
                }
            });
        }
        for seq in 1..=WRITES {
            put(&table, &key_of(seq), seq, &value_of(seq));
            visible.store(seq, Ordering::Release);
        }
    });
    assert_eq!(table.len(), WRITES as usize);
}

fn read_some(table: &Memtable, visible: &AtomicU64, random: &mut SplitMix64) {
    for _ in 0..100 {
        let snapshot = visible.load(Ordering::Acquire);
        if snapshot == 0 {
            continue;
        }
        // Recent writes meet a table that grows; old ones a chain or the order.
        let back = if random.percent(50) { random.below(50.min(snapshot)) } else { random.below(snapshot) };
        let seq = snapshot - back;
        let key = key_of(seq);
        let found = get(table, &key, snapshot).expect("a visible key is found");
        assert!((seq..=snapshot).contains(&found.seq));
        check(&key, found.seq, &found.value);
        let found = table.get_ref(&lookup(&key, seq)).expect("a visible version is found");
        assert_eq!(found.seq, seq);
        check(&key, seq, found.value);
        assert!(get(table, b"no such key", snapshot).is_none());
    }
}

/// Walks a few hundred entries and counts nothing twice.
fn walk(table: &Arc<Memtable>, snapshot: u64, random: &mut SplitMix64) {
    let mut iter = table.iter();
    let forward = random.percent(50);
    let from = key_of(1 + random.below(snapshot.max(1)));
    iter.seek(super::before(&from)).unwrap();
    let mut last = None;
    for _ in 0..300 {
        if !iter.valid() {
            break;
        }
        let key = iter.key().to_owned();
        check(&key.user_key, key.seq, iter.value());
        if let Some(last) = last {
            assert!(if forward { last < key } else { last > key });
        }
        last = Some(key);
        if forward { iter.next().unwrap() } else { iter.prev().unwrap() }
    }
}

/// A scan at a snapshot sees every visible write while others come.
#[test]
fn scans_are_complete() {
    let table = Arc::new(Memtable::new(SEED, 16 << 10));
    for seq in 1..=20_000 {
        put(&table, &key_of(seq), seq, &value_of(seq));
    }
    std::thread::scope(|scope| {
        let readers = [true, false].map(|forward| {
            let table = &table;
            scope.spawn(move || {
                let mut iter = table.iter();
                if forward {
                    iter.seek_to_first().unwrap()
                } else {
                    iter.seek_to_last().unwrap()
                }
                let mut seen = 0;
                while iter.valid() {
                    check(iter.key().user_key, iter.key().seq, iter.value());
                    seen += usize::from(iter.key().seq <= 20_000);
                    if forward { iter.next().unwrap() } else { iter.prev().unwrap() }
                }
                assert_eq!(seen, 20_000);
            })
        });
        for seq in 20_001..=60_000 {
            put(&table, &key_of(seq), seq, &value_of(seq));
            if readers.iter().all(|reader| reader.is_finished()) {
                break;
            }
        }
    });
}

/// Batches whose keys ascend, and come all over the order or at its end, beside readers: what is visible is there for gets, and
/// for scans in both directions, while one leaf becomes several.
#[test]
fn batches_in_order_beside_readers() {
    const EACH: u64 = 700;
    const BATCHES: u64 = 200;
    // The keys of a batch are neighbours of those of others, or behind them all.
    let key = |batch: u64, at: u64| match batch % 4 {
        0 => format!("z{:012}", batch * EACH + at),
        other => format!("k{:03}{:09}", at / (1 << (2 * other)), at * BATCHES + batch),
    };
    let table = Arc::new(Memtable::new(SEED, 16 << 10));
    let visible = AtomicU64::new(0);
    let read = |seed| {
        let (random, mut iter) = (&mut SplitMix64::new(seed), table.iter());
        let mut batches = 0;
        while batches < BATCHES {
            batches = visible.load(Ordering::Acquire);
            for _ in 0..batches.min(200) {
                let (batch, at) = (random.below(batches), random.below(EACH));
                let found = get(&table, key(batch, at).as_bytes(), batches * EACH).expect("it is visible");
                assert_eq!(found.seq, batch * EACH + at + 1);
            }
            let forward = random.percent(50);
            if forward {
                iter.seek_to_first().unwrap()
            } else {
                iter.seek_to_last().unwrap()
            }
            let (mut seen, mut last) = (0, None);
            while iter.valid() {
                seen += u64::from(iter.key().seq <= batches * EACH);
                let key = iter.key().to_owned();
                assert!(last.is_none_or(|last| if forward { last < key } else { last > key }));
                last = Some(key);
                if forward { iter.next().unwrap() } else { iter.prev().unwrap() }
            }
            assert_eq!(seen, batches * EACH);
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..2 {
            scope.spawn({
                let read = &read;
                move || read(seed)
            });
        }
        for number in 0..BATCHES {
            let mut batch = WriteBatch::new();
            for at in 0..EACH {
                batch.put(key(number, at), [7; 10]);
            }
            let encoded = Arc::from(batch.encoded());
            table.writer().insert_batch(&encoded, number * EACH + 1, batch.len(), |_| ()).unwrap();
            visible.store(number + 1, Ordering::Release);
        }
    });
    assert_eq!(table.len() as u64, EACH * BATCHES);
}

/// Writers at the same time are not what the engine does, but nothing may be lost.
#[test]
fn several_writers_lose_nothing() {
    let table = Memtable::new(SEED, 16 << 10);
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for seq in (1..=20_000).filter(|seq| seq % 4 == writer) {
                    let key = key_of(seq);
                    let owner: Arc<[u8]> = Arc::from([&key[..], &value_of(seq)].concat());
                    let (value, hash) = (key.len()..owner.len(), key_hash(SEED, &key));
                    table.writer().insert(&owner, 0..key.len(), value, seq, ValueKind::Put, hash);
                }
            });
        }
    });
    assert_eq!(table.len(), 20_000);
    for seq in 1..=20_000 {
        let found = get(&table, &key_of(seq), seq).unwrap();
        assert_eq!(found.seq, seq);
        check(&key_of(seq), seq, &found.value);
    }
}

/// Seeks in both directions land exactly, also while the stretch of the order that they land in is being split: the
/// writer appends, so every split is where the readers are. The keys share a prefix, so the first split changes all heads.
#[test]
fn seeks_land_exactly_while_leaves_are_split() {
    const WRITES: u64 = 200_000;
    let shared = |seq: u64| [b"a prefix that all share/", &seq.to_be_bytes()[..]].concat();
    let table = Arc::new(Memtable::new(SEED, 16 << 10));
    let visible = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for forward in [true, false] {
            let (table, visible) = (&table, &visible);
            scope.spawn(move || {
                let mut iter = table.iter();
                loop {
                    let seq = visible.load(Ordering::Acquire);
                    let key = shared(seq);
                    let target = InternalKeyRef::new(&key, seq, ValueKind::Put);
                    if forward {
                        iter.seek(target).unwrap()
                    } else {
                        iter.seek_for_prev(target).unwrap()
                    }
                    assert!(seq == 0 || iter.key() == target, "at {:?}, not {target:?}", iter.key());
                    iter.seek_to_last().unwrap();
                    assert!(seq == 0 || iter.key() >= target, "the last is {:?}, not {target:?}", iter.key());
                    if seq == WRITES {
                        return;
                    }
                }
            });
        }
        for seq in 1..=WRITES {
            put(&table, &shared(seq), seq, b"");
            visible.store(seq, Ordering::Release);
        }
    });
}
