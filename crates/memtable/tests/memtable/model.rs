//! A memtable under random operations equals an ordered map.

use super::{SEED, get, lookup};
use esker_base::{
    InternalIterator, InternalKey, InternalKeyRef, SplitMix64, ValueKind, WriteBatch, key_hash,
};
use esker_memtable::{Memtable, MemtableIterator};
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

type Model = BTreeMap<InternalKey, Vec<u8>>;

/// Random numbers, and a prefix that most keys have.
struct Random {
    numbers: SplitMix64,
    prefix: Vec<u8>,
}

impl Random {
    fn new(seed: u64) -> Self {
        Random { numbers: SplitMix64::new(seed), prefix: vec![b'p'; [0, 40, 0, 9][seed as usize % 4]] }
    }
}

impl Deref for Random {
    type Target = SplitMix64;

    fn deref(&self) -> &SplitMix64 {
        &self.numbers
    }
}

impl DerefMut for Random {
    fn deref_mut(&mut self) -> &mut SplitMix64 {
        &mut self.numbers
    }
}

/// Keys that meet around the end of the inline head, differ in zeros and lengths only, or are long.
fn random_key(random: &mut Random) -> Vec<u8> {
    let stem = [0, 1, 7, 8, 14, 15, 16, 17, 40, 280][random.below(10) as usize];
    let mut key = if random.percent(99) { random.prefix.clone() } else { Vec::new() };
    key.resize(key.len() + stem, b'k');
    for _ in 0..random.below(4) {
        key.push([0, 0, 1, b'k', 255][random.below(5) as usize]);
    }
    if random.percent(50) {
        key.extend_from_slice(&random.below(30).to_be_bytes()[6..]);
    }
    key
}

fn random_value(random: &mut Random) -> Vec<u8> {
    let len = [0, 1, 30, 31, 100, 1000][random.below(6) as usize];
    vec![random.below(256) as u8; len]
}

/// Inserts an encoded batch, rarely of many operations, half of them in ascending order.
fn insert_encoded(random: &mut Random, table: &Memtable, model: &mut Model, seq: &mut u64) {
    let count = if random.percent(5) { random.below(1200) } else { random.below(40) };
    let (mut batch, first) = (WriteBatch::new(), *seq + 1);
    let mut keys: Vec<_> = (0..count).map(|_| random_key(random)).collect();
    match random.below(4) {
        0 => keys.sort_unstable(),
        1 => {
            keys.sort_unstable();
            keys.dedup();
        }
        _ => {}
    }
    for key in keys {
        *seq += 1;
        let (kind, value) = if random.percent(20) {
            batch.delete(&key);
            (ValueKind::Delete, Vec::new())
        } else {
            let value = random_value(random);
            batch.put(&key, &value);
            (ValueKind::Put, value)
        };
        model.insert(InternalKey::new(key, *seq, kind), value);
    }
    let mut told = first..;
    let inserted = |seq| assert_eq!(Some(seq), told.next());
    table.writer().insert_batch(&Arc::from(batch.encoded()), first, batch.len(), inserted).unwrap();
    assert_eq!(told.start, *seq + 1);
}

/// Inserts a batch of up to 5 operations that share a buffer, or an encoded one.
fn insert_batch(random: &mut Random, table: &Memtable, model: &mut Model, seq: &mut u64) {
    if random.percent(10) {
        return insert_encoded(random, table, model, seq);
    }
    let mut bytes = vec![9; random.below(3) as usize];
    let mut ops = Vec::new();
    for _ in 0..=random.below(5) {
        let kind = if random.percent(20) { ValueKind::Delete } else { ValueKind::Put };
        let key = random_key(random);
        let value = if kind == ValueKind::Put { random_value(random) } else { Vec::new() };
        let start = bytes.len();
        bytes.extend_from_slice(&key);
        bytes.push(0);
        bytes.extend_from_slice(&value);
        let ends = (start + key.len(), start + key.len() + 1, bytes.len());
        *seq += 1 + random.below(2);
        ops.push((start..ends.0, ends.1..ends.2, *seq, kind));
        model.insert(InternalKey::new(key, *seq, kind), value);
    }
    let owner: Arc<[u8]> = Arc::from(bytes);
    for (key, value, seq, kind) in ops {
        let hash = key_hash(SEED, &owner[key.clone()]);
        table.writer().insert(&owner, key, value, seq, kind, hash);
    }
}

fn check_get(table: &Memtable, model: &Model, key: &[u8], seq: u64) {
    let expected = model
        .range(InternalKeyRef::seek_to(key, seq).to_owned()..)
        .next()
        .filter(|(found, _)| found.user_key == key)
        .map(|(found, value)| (found.seq, found.kind, value.clone()));
    let found = get(table, key, seq).map(|found| (found.seq, found.kind, found.value.to_vec()));
    assert_eq!(found, expected, "get {key:?} at {seq}");
    let borrowed =
        table.get_ref(&lookup(key, seq)).map(|found| (found.seq, found.kind, found.value.to_vec()));
    assert_eq!(borrowed, expected, "get_ref {key:?} at {seq}");
}

/// Where the model stands after a movement.
type Place<'a> = Option<(&'a InternalKey, &'a Vec<u8>)>;

fn check_place(iter: &MemtableIterator, place: Place<'_>, what: &str) {
    assert_eq!(iter.valid(), place.is_some(), "{what}");
    if let Some((key, value)) = place {
        assert_eq!(iter.key(), key.as_ref(), "{what}");
        assert_eq!(iter.value(), value, "{what}");
        assert_eq!(iter.value_slice(), *value, "{what}");
    }
}

/// Moves an iterator and a place in the model at random, and compares them after each step.
fn walk(random: &mut Random, table: &Arc<Memtable>, model: &Model, steps: usize) {
    let mut iter = if random.below(2) == 0 { table.iter() } else { table.iter_whole() };
    let mut place: Place<'_> = None;
    for _ in 0..steps {
        let target = InternalKey::new(random_key(random), random.below(400), ValueKind::Put);
        let what;
        match random.below(20) {
            0 => {
                what = "seek_to_first";
                iter.seek_to_first().unwrap();
                place = model.iter().next();
            }
            1 => {
                what = "seek_to_last";
                iter.seek_to_last().unwrap();
                place = model.iter().next_back();
            }
            2 => {
                what = "seek";
                iter.seek(target.as_ref()).unwrap();
                place = model.range(&target..).next();
            }
            3 => {
                what = "seek_for_prev";
                iter.seek_for_prev(target.as_ref()).unwrap();
                place = model.range(..=&target).next_back();
            }
            n if n % 2 == 0 => {
                what = "next";
                for _ in 0..=random.below(20) {
                    iter.next().unwrap();
                    let after = |(key, _)| (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
                    place = place.and_then(|place| model.range::<InternalKey, _>(after(place)).next());
                }
            }
            _ => {
                what = "prev";
                for _ in 0..=random.below(20) {
                    iter.prev().unwrap();
                    place = place.and_then(|(key, _)| model.range(..key).next_back());
                }
            }
        }
        check_place(&iter, place, what);
    }
}

#[test]
fn a_memtable_equals_a_map() {
    for seed in 0..60 {
        println!("seed {seed}");
        let random = &mut Random::new(seed);
        let table = Arc::new(Memtable::new(SEED, 16 << 10));
        let (mut model, mut seq) = (Model::new(), 0);
        for round in 0..8 {
            for _ in 0..random.below(60) {
                insert_batch(random, &table, &mut model, &mut seq);
            }
            for _ in 0..100 {
                check_get(&table, &model, &random_key(random), random.below(seq + 2));
            }
            walk(random, &table, &model, 60);
            let deletes = model.keys().filter(|key| key.kind == ValueKind::Delete).count();
            assert_eq!((table.len(), table.deletes()), (model.len(), deletes), "round {round}");
            assert_eq!(table.smallest_seq(), model.keys().map(|key| key.seq).min());
            assert_eq!(table.largest_seq(), model.keys().map(|key| key.seq).max());
        }
        for key in model.keys() {
            for seq in [key.seq - 1, key.seq, key.seq + 1, u64::MAX >> 8] {
                check_get(&table, &model, &key.user_key, seq);
            }
        }
    }
}

/// An iterator that was opened first sees at least what was there, in order, whatever comes between its steps.
#[test]
fn inserts_do_not_disturb_iterators() {
    for seed in 0..60 {
        println!("seed {seed}");
        let random = &mut Random::new(seed);
        let table = Arc::new(Memtable::new(SEED, 16 << 10));
        let (mut model, mut seq) = (Model::new(), 0);
        for _ in 0..random.below(200) {
            insert_batch(random, &table, &mut model, &mut seq);
        }
        let there = model.clone();
        let snapshot = seq;
        let forward = random.percent(50);
        let mut iter = table.iter();
        if forward {
            iter.seek_to_first().unwrap()
        } else {
            iter.seek_to_last().unwrap()
        }
        let (mut seen, mut last) = (Vec::new(), None::<InternalKey>);
        while iter.valid() {
            let key = iter.key().to_owned();
            assert_eq!(model.get(&key).map(Vec::as_slice), Some(iter.value()), "garbage at {key:?}");
            if let Some(last) = last {
                assert!(if forward { last < key } else { last > key }, "{last:?} before {key:?}");
            }
            if key.seq <= snapshot {
                seen.push(key.clone());
            }
            last = Some(key);
            if random.percent(50) {
                insert_batch(random, &table, &mut model, &mut seq);
            }
            if forward { iter.next().unwrap() } else { iter.prev().unwrap() }
        }
        if !forward {
            seen.reverse();
        }
        assert!(seen.iter().eq(there.keys()), "something that was there is missing");
    }
}

/// Versions that come out of order, or twice, are kept and found as if they had come in order.
#[test]
fn the_order_of_insertion_does_not_matter() {
    for seed in 0..20 {
        println!("seed {seed}");
        let random = &mut Random::new(seed);
        let table = Arc::new(Memtable::new(SEED, 16 << 10));
        let mut model = Model::new();
        for _ in 0..500 {
            let (key, seq) = (random_key(random), random.below(100));
            let value = model.entry(InternalKey::new(key.clone(), seq, ValueKind::Put));
            let value = value.or_insert_with(|| key.clone());
            super::put(&table, &key, seq, value);
            check_get(&table, &model, &key, random.below(100));
        }
        assert_eq!(table.len(), model.len());
        walk(random, &table, &model, 60);
    }
}

/// The hash index grows while it is read: every key is found after every insertion around each growth.
#[test]
fn every_key_is_found_while_the_index_grows() {
    let table = Memtable::new(SEED, 0);
    for seq in 1..3000u64 {
        super::put(&table, &(seq % 700).to_le_bytes(), seq, &seq.to_le_bytes());
        let oldest = seq.saturating_sub(699).max(1);
        for back in [oldest, (oldest + seq) / 2, seq, oldest + seq % 97.min(seq - oldest + 1)] {
            let found = get(&table, &(back % 700).to_le_bytes(), seq).unwrap();
            assert_eq!((found.seq, &found.value[..]), (back, &back.to_le_bytes()[..]));
        }
        assert!(get(&table, &(seq + 100_000).to_le_bytes(), seq).is_none());
    }
}

/// Enough leaves that the writer's directory has several blocks: of keys whose heads tell them apart, whose heads tell few
/// of them apart, and whose heads are all the same; at random, ascending, and descending.
#[test]
fn large_ones_are_in_order() {
    const ENTRIES: u64 = 25_000;
    for (prefix, spread) in [(&b""[..], u64::MAX), (b"", 1 << 20), (b"a long common prefix/", 1 << 40)] {
        for order in 0..3 {
            let random = &mut SplitMix64::new(order);
            let table = Arc::new(Memtable::new(SEED, 16 << 10));
            let mut keys: Vec<_> = (0..ENTRIES)
                .map(|_| [prefix, &random.below(spread).to_be_bytes()].concat())
                .zip(1..)
                .collect();
            match order {
                0 => {}
                1 => keys.sort(),
                _ => keys.sort_by(|a, b| b.cmp(a)),
            }
            for (key, seq) in &keys {
                super::put(&table, key, *seq, key);
            }
            keys.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
            let mut iter = table.iter();
            iter.seek_to_first().unwrap();
            for (key, seq) in &keys {
                assert_eq!((iter.key().user_key, iter.key().seq, iter.value()), (&key[..], *seq, &key[..]));
                iter.next().unwrap();
            }
            assert!(!iter.valid());
            iter.seek_to_last().unwrap();
            for (key, seq) in keys.iter().rev() {
                assert_eq!((iter.key().user_key, iter.key().seq), (&key[..], *seq));
                iter.prev().unwrap();
            }
            assert!(!iter.valid());
            for (key, seq) in keys.iter().step_by(97) {
                iter.seek(InternalKeyRef::seek_to(key, *seq)).unwrap();
                assert_eq!((iter.key().user_key, iter.key().seq), (&key[..], *seq));
            }
        }
    }
}
