//! Faults of other engines, each as a table that would show it.

use crate::model::check;
use crate::support::{Entry, build, delete, expected, lookup, open, plain, put, tiny};
use esker_base::{InternalIterator, InternalKeyRef, MAX_KEY_LEN, MAX_SEQUENCE, SplitMix64};
use esker_sstable::TableOptions;

/// One key with 200 versions over many blocks: the newest visible one is found each time.
///
/// Fails when a block boundary between two versions gets a shortened separator.
#[test]
fn it07_one_key_in_many_blocks() {
    for interval in [1, 3, 16] {
        let mut entries: Vec<Entry> =
            (1..=200).map(|seq| put("k", seq * 2, format!("value {seq} of the key k"))).collect();
        entries.extend([put("a", 1, "first"), put("j", 3, ""), delete("kk", 5), put("l", 7, "last")]);
        entries.sort();
        let (bytes, summary) = build(&tiny(interval), &entries);
        assert!(summary.data_blocks > 10, "{}", summary.data_blocks);
        let table = open(&bytes).unwrap();
        for seq in 0..=500 {
            let found = table.get(&lookup(b"k", seq)).unwrap().map(|found| found.seq);
            assert_eq!(found, (seq >= 2).then_some((seq / 2 * 2).min(400)), "at {seq}");
        }
        let mut iter = table.iter(true);
        iter.seek(InternalKeyRef::before(b"k")).unwrap();
        assert_eq!(iter.key().seq, 400);
        iter.seek_for_prev(InternalKeyRef::seek_to(b"k", 0)).unwrap();
        assert_eq!(iter.key().seq, 2);
        check(&table, &entries, &[b"k".to_vec(), b"j".to_vec(), b"ka".to_vec(), b"".to_vec()]);
    }
}

/// Truncated keys against needles that are shorter, longer, and off by one.
///
/// Fails when the search takes an entry that shares more than matched for one behind the target.
#[test]
fn it17_shared_prefixes_of_every_length() {
    let suffixes: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff"];
    for len in 0..=64 {
        let prefix: Vec<u8> = (0..len).map(|index| b'a' + index as u8 % 26).collect();
        let mut entries: Vec<Entry> =
            suffixes.iter().map(|suffix| put([&prefix, *suffix].concat(), 5, prefix.clone())).collect();
        entries.sort();
        let mut needles: Vec<Vec<u8>> = (0..=len).map(|end| prefix[..end].to_vec()).collect();
        for suffix in suffixes {
            needles.push([&prefix, suffix].concat());
            needles.push([&prefix, suffix, b"\0"].concat());
            needles.push([&prefix, suffix, &[b'z'; 80]].concat());
        }
        for off in [1, 0xff] {
            let mut near = prefix.clone();
            if let Some(last) = near.last_mut() {
                *last = last.wrapping_add(off);
            }
            needles.push(near);
        }
        for interval in [1, 2, 16] {
            let (bytes, _) = build(&TableOptions { restart_interval: interval, ..plain() }, &entries);
            check(&open(&bytes).unwrap(), &entries, &needles);
        }
    }
}

/// Long keys with long shared prefixes: the index stays small on disk and in memory.
///
/// Fails when restarts of the index repeat whole keys.
#[test]
fn pf06_keys_of_64_kib() {
    let count = if cfg!(debug_assertions) { 300 } else { 3000 };
    let long_key = |index: usize| {
        let mut key = vec![b'p'; 60 << 10];
        // The second half has another prefix, so that not all separators share the first one.
        if index >= count / 2 {
            key[0] = b'q';
        }
        key.extend_from_slice(format!("{index:08}").as_bytes());
        key.resize(MAX_KEY_LEN, b'z');
        key
    };
    let entries: Vec<Entry> = (0..count).map(|index| put(long_key(index), 1, "v")).collect();
    let (bytes, summary) = build(&plain(), &entries);
    // Each partition holds one whole separator, and so some hundred others; naively it is 60 KiB for each key.
    assert!(summary.index_size < 300_000 + 130 * count as u64, "{}", summary.index_size);
    let table = open(&bytes).unwrap();
    assert!(table.memory() < 300_000 + 150 * count, "{}", table.memory());
    for (key, value) in entries.iter().step_by(7) {
        assert_eq!(table.get(&lookup(&key.user_key, 9)).unwrap().unwrap().value, value);
        let absent = &key.user_key[..MAX_KEY_LEN - 1];
        let mut iter = table.iter(true);
        iter.seek(InternalKeyRef::before(absent)).unwrap();
        assert_eq!(iter.key(), key.as_ref());
    }
    let mut faults = 0;
    table.verify(&mut |_| faults += 1);
    assert_eq!(faults, 0);
}

/// The longest key, the empty key, values from nothing to megabytes, each found and passed both ways.
#[test]
fn extremes_of_keys_and_values() {
    let mut rng = SplitMix64::new(3);
    let mut entries = vec![
        put("", 9, ""),
        delete("", 8),
        put("", 0, "oldest"),
        put(vec![0; MAX_KEY_LEN], 3, vec![1; 65_536]),
        put(vec![0xff; MAX_KEY_LEN], MAX_SEQUENCE, crate::support::random_bytes(&mut rng, 5 << 20)),
        put(vec![0xff; MAX_KEY_LEN], 0, "x"),
    ];
    for index in 0..300_u32 {
        let key = vec![b'm'; index as usize];
        entries.push(put(key, u64::from(index), vec![b'v'; (index * 211 % 65_537) as usize]));
    }
    entries.sort();
    entries.dedup_by(|a, b| (&a.0.user_key, a.0.seq) == (&b.0.user_key, b.0.seq));
    let probes = vec![Vec::new(), vec![0], vec![b'm'; 150], vec![b'm'; 301], vec![0xff; 3]];
    for options in [tiny(1), tiny(16), TableOptions::default()] {
        let (bytes, summary) = build(&options, &entries);
        assert_eq!(summary.largest_seq, MAX_SEQUENCE);
        check(&open(&bytes).unwrap(), &entries, &probes);
    }
}

/// A large value has a block of its own, so that its neighbours are read without it.
///
/// Fails when a block is closed only by the entry that makes it too long.
#[test]
fn large_values_do_not_crowd_small_ones() {
    let entries =
        [put("a", 1, "small"), put("b", 1, vec![0; 100_000]), put("c", 1, "small"), put("d", 1, "small")];
    let (bytes, summary) = build(&plain(), &entries);
    assert_eq!(summary.data_blocks, 3);
    let table = open(&bytes).unwrap();
    let blocks = [0, 1, 2].map(|number| table.dump_block(number, &mut |_| {}).unwrap().entries);
    assert_eq!(blocks, [1, 1, 2]);
}

/// An empty table answers, too.
#[test]
fn a_table_without_entries() {
    let (bytes, summary) = build(&TableOptions::default(), &[]);
    assert_eq!((summary.entries, summary.data_blocks), (0, 0));
    check(&open(&bytes).unwrap(), &[], &[b"".to_vec(), b"a".to_vec()]);
    assert_eq!(expected(&[], b"a", 1), None);
    assert_eq!(open(&bytes).unwrap().approximate_offset(b"a"), 32);
}

/// Offsets grow with the keys and reach from the header to the end of the data.
#[test]
fn approximate_offsets_ascend() {
    let entries: Vec<Entry> = (0..500).map(|index| put(format!("{index:04}"), 1, [7; 50])).collect();
    let (bytes, summary) = build(&tiny(4), &entries);
    let table = open(&bytes).unwrap();
    let offsets: Vec<u64> = entries.iter().map(|(key, _)| table.approximate_offset(&key.user_key)).collect();
    assert!(offsets.is_sorted());
    assert_eq!(offsets[0], 32);
    assert_eq!(table.approximate_offset(b"zz"), summary.file_size - summary.tail_size);
}

/// A table of the same entries has the same bytes.
#[test]
fn the_same_entries_give_the_same_bytes() {
    let entries = crate::model::random_entries(&mut SplitMix64::new(5), 200, 100, 1000);
    for options in [tiny(3), TableOptions::default()] {
        assert!(build(&options, &entries).0 == build(&options, &entries).0);
    }
}
