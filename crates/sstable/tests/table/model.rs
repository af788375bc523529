//! Every answer of a table against a sorted vector.

use crate::support::{
    Entry, all, build, delete, expected, here, lookup, open, open_with, put, random_bytes, tiny,
};
use esker_base::{InternalIterator, InternalKeyRef, SplitMix64, ValueKind};
use esker_sstable::{BlockCache, Compression, OpenTable, TableOptions, TableReader};
use std::sync::Arc;

/// All ways to ask, over all entries and over `probes`.
pub fn check(table: &Arc<TableReader>, entries: &[Entry], probes: &[Vec<u8>]) {
    assert!(all(table).unwrap() == entries, "forward");
    for fill_cache in [false, true] {
        let mut iter = table.iter(fill_cache);
        let mut backward = Vec::new();
        iter.seek_to_last().unwrap();
        while let Some(entry) = here(&iter) {
            backward.push(entry);
            iter.prev().unwrap();
        }
        backward.reverse();
        assert!(backward == entries, "backward");
    }
    // Out of the cache, if the table has one: then blocks are images.
    let mut iter = table.iter(true);

    let mut faults = Vec::new();
    table.verify(&mut |fault| faults.push(fault));
    assert!(faults.is_empty(), "{faults:?}");
    check_dump(table, entries);

    for (key, value) in entries {
        let found = table.get(&lookup(&key.user_key, key.seq)).unwrap().expect("present");
        assert_eq!((found.seq, found.kind, &found.value[..]), (key.seq, key.kind, &value[..]));
        seek(&mut iter, entries, key.as_ref());
    }
    for probe in probes {
        for seq in [0, 1, 7, 500, esker_base::MAX_SEQUENCE] {
            let found = table.get(&lookup(probe, seq)).unwrap();
            let found = found.map(|found| (found.seq, found.kind, found.value.to_vec()));
            let wanted = expected(entries, probe, seq);
            assert_eq!(found, wanted.map(|(key, value)| (key.seq, key.kind, value.clone())), "{probe:?}");
            seek(&mut iter, entries, InternalKeyRef::seek_to(probe, seq));
            seek(&mut iter, entries, InternalKeyRef::new(probe, seq, ValueKind::Delete));
        }
    }
}

/// The parts of the file, and the entries block by block.
fn check_dump(table: &TableReader, entries: &[Entry]) {
    let mut end = 0;
    for section in table.layout() {
        assert_eq!(section.offset, end, "{section:?}");
        end += section.len;
    }
    assert_eq!(end, table.file_size());
    let mut dumped = Vec::new();
    for number in 0..table.block_count() {
        let before = dumped.len();
        let mut at = 0;
        let mut restarts = 0;
        let block = table.dump_block(number, &mut |entry| {
            assert_eq!(entry.offset, at);
            at += entry.header_len + (entry.key.user_key.len() - entry.shared) + entry.value.len();
            restarts += usize::from(entry.restart);
            dumped.push((entry.key.to_owned(), entry.value.to_vec()));
        });
        let block = block.unwrap();
        assert_eq!((block.entries, block.restarts), (dumped.len() - before, restarts));
    }
    assert!(dumped == entries, "dump");
}

/// `seek` and `seek_for_prev`, each followed by a step either way.
fn seek(iter: &mut impl InternalIterator, entries: &[Entry], target: InternalKeyRef<'_>) {
    let at = entries.partition_point(|(key, _)| key.as_ref() < target);
    let behind = entries.partition_point(|(key, _)| key.as_ref() <= target);
    let entry = |index: usize| entries.get(index).cloned();
    iter.seek(target).unwrap();
    assert_eq!(here(iter), entry(at), "seek {target:?}");
    iter.next().unwrap();
    assert_eq!(here(iter), if at < entries.len() { entry(at + 1) } else { None }, "next after {target:?}");
    iter.seek(target).unwrap();
    iter.prev().unwrap();
    let before = if at < entries.len() { at.checked_sub(1).and_then(entry) } else { None };
    assert_eq!(here(iter), before, "prev after {target:?}");
    iter.seek_for_prev(target).unwrap();
    assert_eq!(here(iter), behind.checked_sub(1).and_then(entry), "seek_for_prev {target:?}");
    if iter.valid() {
        iter.next().unwrap();
        assert_eq!(here(iter), entry(behind), "next after seek_for_prev {target:?}");
    }
}

/// Keys over a small alphabet with both extremes, so that prefixes, runs and versions are common.
pub fn random_entries(rng: &mut SplitMix64, count: usize, longest: u64, largest_value: u64) -> Vec<Entry> {
    let prefix = random_bytes(rng, rng.clone().below(30) as usize);
    let mut entries = Vec::new();
    for _ in 0..count {
        let len = if rng.percent(10) { rng.below(longest + 1) } else { rng.below(6) };
        let mut key = if rng.percent(70) { prefix.clone() } else { Vec::new() };
        key.extend((0..len).map(|_| [0, 1, b'a', b'b', 0xfe, 0xff][rng.below(6) as usize]));
        for _ in 0..1 + if rng.percent(10) { rng.below(40) } else { 0 } {
            let seq = rng.below(1000);
            let len = if rng.percent(3) { rng.below(largest_value) } else { rng.below(20) };
            entries.push(if rng.percent(20) {
                delete(key.clone(), seq)
            } else if rng.percent(50) {
                put(key.clone(), seq, vec![b'x'; len as usize])
            } else {
                put(key.clone(), seq, random_bytes(rng, len as usize))
            });
        }
    }
    entries.sort();
    entries.dedup_by(|a, b| (&a.0.user_key, a.0.seq) == (&b.0.user_key, b.0.seq));
    entries
}

/// Probes near the keys: the keys, their prefixes, their neighbours.
pub fn probes(rng: &mut SplitMix64, entries: &[Entry], count: usize) -> Vec<Vec<u8>> {
    let mut probes = vec![Vec::new(), vec![0], vec![0xff; 10]];
    for _ in 0..count {
        let mut key = entries[rng.below(entries.len() as u64) as usize].0.user_key.clone();
        match rng.below(4) {
            0 => key.truncate(rng.below(key.len() as u64 + 1) as usize),
            1 => key.push(rng.next_u64() as u8),
            2 => {
                if let Some(last) = key.last_mut() {
                    *last = last.wrapping_add(if rng.percent(50) { 1 } else { 0xff });
                }
            }
            _ => {}
        }
        probes.push(key);
    }
    probes
}

#[test]
fn random_tables_answer_as_the_model() {
    for seed in 0..24 {
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let mut options = tiny(1 + rng.below(16) as usize);
        if rng.percent(50) {
            options.compression = Compression::None;
        }
        if rng.percent(30) {
            options.bloom_bits = 0;
        }
        if rng.percent(30) {
            options = TableOptions { restart_interval: options.restart_interval, ..TableOptions::default() };
        }
        let entries = random_entries(&mut rng, 300, 300, 3000);
        let probes = probes(&mut rng, &entries, 200);
        let (bytes, summary) = build(&options, &entries);
        let cache = Arc::new(BlockCache::new([0, 2000, 1 << 20][rng.below(3) as usize]));
        let with = OpenTable {
            identity: Some(crate::support::identity()),
            file_size: Some(summary.file_size),
            tail_size: Some(summary.tail_size),
            cache: Some(cache),
            verify_reads: rng.percent(50),
        };
        check(&open_with(&bytes, with).unwrap(), &entries, &probes);
        let table = open(&bytes).unwrap();
        assert!(table.filter_fault().is_none());
        assert_eq!(table.properties().compression, options.compression);
        assert_eq!(table.properties().smallest, summary.smallest);
        assert_eq!(summary.smallest, entries[0].0);
        assert_eq!(summary.largest, entries.last().unwrap().0);
        check(&table, &entries, &probes[..20]);
    }
}
