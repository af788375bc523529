//! Damaged and hostile files: every answer is right or an error, nothing panics, nothing allocates what a file claims.

use crate::support::{
    Entry, PATH, all, build, build_as, delete, here, identity, lookup, open, open_with, plain, put, tiny,
};
use esker_base::{
    Checksum, ErrorKind, FileNumber, InternalIterator, InternalKeyRef, Result, SplitMix64, key_hash,
};
use esker_sstable::{
    BlockCache, Compression, FOOTER_LEN, HEADER_LEN, OpenTable, TableIdentity, TableOptions, TableReader,
};
use std::ops::Range;
use std::sync::Arc;

/// Some blocks with everything in them: versions, tombstones, long values, shared prefixes.
fn small() -> Vec<Entry> {
    let mut entries = Vec::new();
    for index in 0..24_u64 {
        let key = format!("prefix/{:03}", index * index);
        entries.push(put(
            key.clone(),
            100 + index,
            format!("value of {index}").repeat(1 + index as usize % 3),
        ));
        if index % 4 == 0 {
            entries.push(delete(key.clone(), 50 + index));
            entries.push(put(key, 7, "old"));
        }
    }
    entries.sort();
    entries
}

/// Two-level index, restarts inside blocks, few bytes.
fn options(compression: Compression) -> TableOptions {
    TableOptions {
        block_size: 300,
        restart_interval: 4,
        index_partition_size: 64,
        compression,
        bloom_bits: 10,
    }
}

/// Where the checksummed parts of an intact table are: blocks with their trailers, and the footer last.
fn parts(bytes: &[u8]) -> Vec<Range<usize>> {
    let table = open(bytes).unwrap();
    let sections = table.layout();
    sections[1..].iter().map(|s| s.offset as usize..(s.offset + s.len) as usize).collect()
}

/// Makes the checksum of a part match again.
fn seal(bytes: &mut [u8], part: &Range<usize>) {
    if part.end == bytes.len() {
        let footer = &mut bytes[part.clone()];
        let checksum = Checksum::new(&[]).bytes(&footer[..60]).bytes(&footer[64..]).finish();
        footer[60..64].copy_from_slice(&checksum.to_le_bytes());
        return;
    }
    let id = identity();
    let context = [id.store_id as u64, (id.store_id >> 64) as u64, id.number.0, part.start as u64];
    let checksum = Checksum::new(&context).bytes(&bytes[part.start..part.end - 4]).finish();
    bytes[part.end - 4..part.end].copy_from_slice(&checksum.to_le_bytes());
}

/// Asks a table everything. Every entry that comes back is given to `judge`; errors end a question, not the questions.
///
/// With a cache, its blocks are images, and so are looked at in another way.
fn interrogate(
    bytes: &[u8],
    open: &OpenTable,
    keys: &[Entry],
    judge: &mut dyn FnMut(&str, Option<Entry>),
) -> usize {
    let cached = OpenTable { cache: Some(Arc::new(BlockCache::new(1 << 20))), ..open.clone() };
    let tables = [open_with(bytes, open.clone()), open_with(bytes, cached)];
    tables.iter().flatten().map(|table| ask(table, keys, judge)).sum()
}

fn ask(table: &Arc<TableReader>, keys: &[Entry], judge: &mut dyn FnMut(&str, Option<Entry>)) -> usize {
    let errors = std::cell::Cell::new(0);
    let mut iter = table.iter(true);
    let limit = 100_000;
    let mut steps = 0;
    let mut moved = |result: Result<()>| {
        steps += 1;
        assert!(steps < limit, "an iteration without end");
        errors.set(errors.get() + usize::from(result.is_err()));
        result.is_ok()
    };
    let mut ok = moved(iter.seek_to_first());
    while ok && iter.valid() {
        judge("forward", here(&iter));
        ok = moved(iter.next());
    }
    assert!(ok || !iter.valid(), "valid after an error");
    ok = moved(iter.seek_to_last());
    while ok && iter.valid() {
        judge("backward", here(&iter));
        ok = moved(iter.prev());
    }
    assert!(ok || !iter.valid(), "valid after an error");
    for (key, _) in keys {
        if moved(iter.seek(key.as_ref())) {
            judge("seek", here(&iter));
            let _ = moved(iter.prev());
        }
        let _ = moved(iter.seek_for_prev(InternalKeyRef::seek_to(&key.user_key, key.seq / 2)));
        let _ = moved(iter.next());
        let mut longer = key.user_key.clone();
        longer.push(0);
        let _ = moved(iter.seek(InternalKeyRef::before(&longer)));
        let _ = table.approximate_offset(&longer);
        match table.get(&lookup(&key.user_key, key.seq)) {
            Ok(found) => {
                let found = found.map(|found| {
                    let key = InternalKeyRef::new(&key.user_key, found.seq, found.kind).to_owned();
                    (key, found.value.to_vec())
                });
                judge("get", found);
            }
            Err(error) => {
                assert!(is_clean(&error), "{error}");
                errors.set(errors.get() + 1);
            }
        }
    }
    for number in 0..table.block_count() {
        let _ = table.dump_block(number, &mut |_| {});
    }
    let _ = table.dump_index(&mut |_| {});
    let _ = table.layout();
    errors.get()
}

/// Whether an error is one that damage may cause.
fn is_clean(error: &esker_base::Error) -> bool {
    matches!(error.kind(), ErrorKind::Corruption { .. } | ErrorKind::UnsupportedFormat { .. })
}

fn faults(table: &TableReader) -> Vec<String> {
    let mut faults = Vec::new();
    table.verify(&mut |fault| {
        assert!(is_clean(&fault), "{fault}");
        faults.push(fault.to_string());
    });
    faults
}

/// Every bit of a table flipped, one at a time: each answer is right or an error, and `verify` finds every one.
///
/// Fails when the checksum leaves out the compression kind, or a filter with a bad checksum is used.
#[test]
fn co07_every_bit_flipped() {
    let entries = small();
    let known = OpenTable { identity: Some(identity()), ..OpenTable::default() };
    for compression in [Compression::None, Compression::Snappy] {
        let (intact, summary) = build(&options(compression), &entries);
        assert!(summary.data_blocks >= 3);
        for at in 0..intact.len() {
            for bit in 0..8 {
                let mut bytes = intact.clone();
                bytes[at] ^= 1 << bit;
                let table = match open(&bytes) {
                    Ok(table) => table,
                    Err(error) => {
                        assert!(is_clean(&error), "byte {at}: {error}");
                        continue;
                    }
                };
                assert!(!faults(&table).is_empty(), "byte {at}, bit {bit}: not found");
                if bit == at % 8 {
                    interrogate(&bytes, &known, &entries, &mut |how, entry| match entry {
                        Some(entry) => assert!(entries.contains(&entry), "byte {at}, {how}: {entry:?}"),
                        None => assert!(how != "get", "byte {at}: a key is gone"),
                    });
                }
            }
        }
    }
}

/// Random bytes of every part changed, with checksums that match: no panic, no endless loop, whatever comes back.
///
/// Fails when a decoder indexes before it checks.
#[test]
fn co01_changed_fields_under_a_good_checksum() {
    let entries = small();
    let probes: Vec<Entry> = entries.iter().step_by(5).cloned().collect();
    let rounds = if cfg!(debug_assertions) { 6_000 } else { 100_000 };
    for compression in [Compression::None, Compression::Snappy] {
        let (intact, _) = build(&options(compression), &entries);
        let parts = parts(&intact);
        let mut refused = 0;
        for seed in 0..rounds {
            let mut rng = SplitMix64::new(seed);
            let mut bytes = intact.clone();
            let part = &parts[rng.below(parts.len() as u64) as usize];
            let end = if part.end == bytes.len() { part.end } else { part.end - 4 };
            for _ in 0..1 + rng.below(3) {
                let at = part.start + rng.below((end - part.start) as u64) as usize;
                bytes[at] = match rng.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => bytes[at].wrapping_add(1),
                    _ => rng.next_u64() as u8,
                };
            }
            seal(&mut bytes, part);
            let round = std::panic::catch_unwind(|| {
                let any = OpenTable::default();
                let Ok(table) = open_with(&bytes, any.clone()) else { return 1 };
                let found = faults(&table).len();
                interrogate(&bytes, &any, &probes, &mut |_, _| {}) + found
            });
            match round {
                Ok(errors) => refused += usize::from(errors > 0),
                Err(_) => panic!("seed {seed}, {compression:?}, part {part:?}"),
            }
        }
        // Most changes are seen; those that only change a value's bytes cannot be.
        assert!(refused > rounds as usize / 2, "{refused} of {rounds}");
    }
}

/// Every number of the fixed structures set to the extremes, with checksums that match.
///
/// Fails when a length is used before it is compared with what is there.
#[test]
fn co03_extreme_numbers_under_a_good_checksum() {
    let entries = small();
    for compression in [Compression::None, Compression::Snappy] {
        let (intact, _) = build(&options(compression), &entries);
        for part in parts(&intact) {
            let end = if part.end == intact.len() { part.end } else { part.end - 4 };
            for at in part.start..end {
                for (value, width) in [
                    (0, 1),
                    (1, 1),
                    (0xff, 1),
                    (0, 2),
                    (0xffff, 2),
                    (0x7fff_ffff, 4),
                    (0xffff_ffff, 4),
                    (0, 4),
                    (1 << 63, 8),
                    (u64::MAX, 8),
                    (0, 8),
                    (0xffff_ff0f_ffff_ffff, 8),
                    (0x0001_ffff_ffff_ffff, 8),
                ] {
                    if at + width > end {
                        continue;
                    }
                    let mut bytes = intact.clone();
                    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                    seal(&mut bytes, &part);
                    if let Ok(table) = open_with(&bytes, OpenTable::default()) {
                        let _ = faults(&table);
                        let _ = all(&table);
                        let _ = table.get(&lookup(&entries[20].0.user_key, 100));
                    }
                }
            }
        }
    }
}

/// The tests of this file in a process that may only have 1 GiB of address space.
///
/// Fails when a length from a file is allocated before it is checked.
#[test]
#[cfg(target_os = "linux")]
fn co01_no_allocation_by_a_length_from_a_file() {
    let itself = std::env::current_exe().unwrap();
    let status = std::process::Command::new("sh")
        .arg("-c")
        .arg("ulimit -v 1048576; exec \"$0\" --test-threads=1 hostile::co03 hostile::co11 hostile::co17")
        .arg(itself)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// Files that are too short for a table, or hold nothing of one.
///
/// Fails when the footer is read before the length is checked.
#[test]
fn co11_short_files_and_garbage() {
    let (intact, summary) = build(&TableOptions::default(), &small());
    for len in [0, 1, HEADER_LEN, FOOTER_LEN - 1, FOOTER_LEN, FOOTER_LEN + 1, FOOTER_LEN + HEADER_LEN, 4096] {
        for fill in [0, 0xff, b'E'] {
            let bytes = vec![fill; len];
            for tail_size in [None, Some(0), Some(FOOTER_LEN as u64), Some(len as u64), Some(u64::MAX)] {
                let open = OpenTable { tail_size, ..OpenTable::default() };
                assert!(open_with(&bytes, open).unwrap_err().is_corruption());
            }
        }
    }
    for len in 0..intact.len() {
        assert!(open(&intact[..len]).unwrap_err().is_corruption(), "cut to {len}");
        let known = OpenTable { file_size: Some(summary.file_size), ..OpenTable::default() };
        assert!(open_with(&intact[..len], known).unwrap_err().is_corruption());
    }
    // A good footer behind other things, and a tail that is not as long as the manifest says.
    let mut longer = intact.clone();
    longer.splice(40..40, [0; 16]);
    assert!(open(&longer).unwrap_err().is_corruption());
    for off in [1, 2, 100] {
        for tail in [summary.tail_size - off, summary.tail_size + off] {
            let open = OpenTable { tail_size: Some(tail), ..OpenTable::default() };
            assert!(open_with(&intact, open).unwrap_err().is_corruption());
        }
    }
}

/// Sections and blocks that overlap, point behind the file or into one another.
///
/// Fails when the sections need not fill the file exactly.
#[test]
fn co12_no_handle_points_elsewhere() {
    let entries = small();
    let (intact, _) = build(&options(Compression::None), &entries);
    let footer_at = intact.len() - FOOTER_LEN;
    let footer = footer_at..intact.len();
    let mut rng = SplitMix64::new(12);
    // Any single change of an offset or a length leaves a gap or an overlap.
    for field in 0..6 {
        let (at, width) = if field == 0 { (footer_at, 8) } else { (footer_at + 4 + 4 * field, 4) };
        for round in 0..200 {
            let mut bytes = intact.clone();
            let value = if round < 100 { rng.below(intact.len() as u64) } else { rng.next_u64() };
            bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            if bytes == intact {
                continue;
            }
            seal(&mut bytes, &footer);
            assert!(open(&bytes).unwrap_err().is_corruption(), "field {field} = {value}");
        }
    }
    // Two changes that keep the sum: sections take each other's bytes, and their checksums tell.
    for (a, b) in [(0, 1), (1, 3), (3, 4), (4, 5), (0, 5)] {
        for shift in [1_u64, 5, 40] {
            let mut bytes = intact.clone();
            for (field, add) in [(a, shift), (b, shift.wrapping_neg())] {
                let (at, width) = if field == 0 { (footer_at, 8) } else { (footer_at + 4 + 4 * field, 4) };
                let mut number = [0; 8];
                number[..width].copy_from_slice(&bytes[at..at + width]);
                let value = u64::from_le_bytes(number).wrapping_add(add);
                bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            seal(&mut bytes, &footer);
            match open(&bytes) {
                Ok(table) => panic!("fields {a} and {b} by {shift}: {:?}", table.footer()),
                Err(error) => assert!(is_clean(&error), "{error}"),
            }
        }
    }
}

/// Kinds that this build does not know, keys out of order, equal keys: errors in a scan, and found by `verify`.
///
/// Fails when the iterator no longer compares a key with the one before.
#[test]
fn co13_bad_entries_under_a_good_checksum() {
    let keys = ["a", "b", "c", "d", "e", "f", "g"];
    let entries: Vec<Entry> = keys.iter().map(|key| put(*key, 5, "val")).collect();
    for interval in [2, 16] {
        let (intact, _) = build(&TableOptions { restart_interval: interval, ..plain() }, &entries);
        let table = open(&intact).unwrap();
        let mut heads = Vec::new();
        table.dump_block(0, &mut |entry| heads.push(HEADER_LEN + entry.offset)).unwrap();
        let block = parts(&intact)[0].clone();
        let refused = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = intact.clone();
            change(&mut bytes);
            seal(&mut bytes, &block);
            let table = open(&bytes).unwrap();
            assert!(all(&table).unwrap_err().is_corruption());
            assert!(!faults(&table).is_empty());
        };
        for head in &heads {
            for kind in 2..8 {
                refused(&|bytes| bytes[head + 1] = bytes[head + 1] & !7 | kind);
            }
        }
        for (index, head) in heads.iter().enumerate().skip(1) {
            let key_at =
                intact[*head..].iter().position(|byte| *byte == keys[index].as_bytes()[0]).unwrap() + head;
            let before = keys[index - 1].as_bytes()[0];
            // Equal to the key before with the same sequence, and before it.
            refused(&|bytes| bytes[key_at] = before);
            refused(&|bytes| bytes[key_at] = before - 1);
        }
    }
}

/// A block whose first key is not behind the block before it: a scan stops there, and `verify` says so.
///
/// Fails when the iterator no longer compares keys over the end of a block.
#[test]
fn co13_blocks_out_of_order_under_good_checksums() {
    let entries: Vec<Entry> = ["b", "d", "f", "h"].iter().map(|key| put(*key, 5, [0; 200])).collect();
    let (intact, _) = build(&TableOptions { block_size: 64, ..plain() }, &entries);
    let parts = parts(&intact);
    let key_at = parts[1].start + intact[parts[1].clone()].iter().position(|byte| *byte == b'd').unwrap();
    for byte in [b'a', b'b'] {
        let mut bytes = intact.clone();
        bytes[key_at] = byte;
        seal(&mut bytes, &parts[1]);
        let table = open(&bytes).unwrap();
        let mut iter = table.iter(true);
        iter.seek_to_first().unwrap();
        let result = iter.next();
        // The key is its predecessor's; or it is before it.
        assert!(result.unwrap_err().is_corruption() && !iter.valid());
        assert!(!faults(&table).is_empty());
    }
}

/// Another table under this one's name, an older copy, and blocks that changed places.
///
/// Fails when the block checksum leaves out the table or the offset.
#[test]
fn co15_misplaced_tables_and_blocks() {
    let entries: Vec<Entry> = (0..40).map(|index| put(format!("{index:03}"), 1, [index; 30])).collect();
    let options = TableOptions { block_size: 256, compression: Compression::None, ..TableOptions::default() };
    let (intact, summary) = build(&options, &entries);
    let others = [
        TableIdentity { store_id: 1, ..identity() },
        TableIdentity { number: FileNumber(8), ..identity() },
        TableIdentity { hash_seed: 1, ..identity() },
    ];
    for other in others {
        let (bytes, other_summary) = build_as(&options, other, &entries);
        assert_eq!(other_summary.file_size, summary.file_size);
        assert!(open(&bytes).unwrap_err().is_corruption());
        let any = open_with(&bytes, OpenTable::default()).unwrap();
        assert_eq!(any.properties().identity(), other);
        let key = &entries[3].0.user_key;
        let own = esker_base::Lookup { user_key: key, hash: key_hash(other.hash_seed, key), seq: 9 };
        assert!(any.get(&own).unwrap().is_some());
        // One of its blocks in this table.
        let mut mixed = intact.clone();
        let block = parts(&intact)[1].clone();
        mixed[block.clone()].copy_from_slice(&bytes[block]);
        if other.hash_seed == identity().hash_seed {
            assert!(all(&open(&mixed).unwrap()).unwrap_err().is_corruption());
        }
    }
    let parts = parts(&intact);
    assert_eq!(parts[2].len(), parts[3].len());
    let mut swapped = intact.clone();
    swapped[parts[2].clone()].copy_from_slice(&intact[parts[3].clone()]);
    swapped[parts[3].clone()].copy_from_slice(&intact[parts[2].clone()]);
    let table = open(&swapped).unwrap();
    assert!(all(&table).unwrap_err().is_corruption());
    assert_eq!(faults(&table).len(), 2);
    // Keys of other blocks are still served.
    assert!(table.get(&lookup(&entries[0].0.user_key, 9)).unwrap().is_some());
}

/// Compressed blocks that claim to be larger than they can be, or are not compressed at all.
///
/// Fails when the claimed length is not compared with the stored one.
#[test]
fn co17_hostile_compressed_blocks() {
    let entries: Vec<Entry> = (0..100).map(|index| put(format!("{index:04}"), 1, [b'x'; 40])).collect();
    let (intact, _) = build(&TableOptions::default(), &entries);
    let block = parts(&intact)[0].clone();
    assert_eq!(intact[block.end - 5], 1, "compressed");
    let mut claims = vec![vec![0], vec![1], vec![0xff, 0xff, 0xff, 0xff, 0x0f], vec![0xff; 10]];
    claims.push(vec![0x80, 0x80, 0x80, 0x80, 0x08]);
    claims.push(vec![0xff, 0xff, 0xff, 0x7f]);
    for claim in claims {
        let mut bytes = intact.clone();
        bytes[block.start..block.start + claim.len()].copy_from_slice(&claim);
        seal(&mut bytes, &block);
        assert!(all(&open(&bytes).unwrap()).unwrap_err().is_corruption(), "{claim:x?}");
    }
    for kind in [2, 3, 255] {
        let mut bytes = intact.clone();
        bytes[block.end - 5] = kind;
        seal(&mut bytes, &block);
        let error = all(&open(&bytes).unwrap()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{error}");
    }
    for kind in [0_u8, 1] {
        let mut bytes = intact.clone();
        for (index, byte) in bytes[block.start..block.end - 5].iter_mut().enumerate() {
            *byte = (index * 7) as u8;
        }
        bytes[block.end - 5] = kind;
        seal(&mut bytes, &block);
        assert!(all(&open(&bytes).unwrap()).unwrap_err().is_corruption());
    }
}

/// What is wrong under good checksums, and no read can see: `verify` names it.
///
/// Fails when one of the comparisons of `verify` is left out.
#[test]
fn verify_finds_what_checksums_cannot() {
    let entries = [put("ab", 9, "12"), put("acx", 8, "34"), put("b", 7, [5; 300]), put("c", 6, "")];
    let options = TableOptions { restart_interval: 1, block_size: 256, ..plain() };
    let (intact, summary) = build(&options, &entries);
    assert_eq!(summary.data_blocks, 2);
    let parts = parts(&intact);
    let [data, filter, index, properties] = [0, 2, 3, 4].map(|part| parts[part].clone());
    let find = |part: &Range<usize>, what: &[u8]| {
        part.start + intact[part.clone()].windows(what.len()).position(|bytes| bytes == what).unwrap()
    };
    let verify = |part: &Range<usize>, at: usize, change: &[u8]| {
        let mut bytes = intact.clone();
        bytes[at..at + change.len()].copy_from_slice(change);
        assert_ne!(bytes, intact);
        seal(&mut bytes, part);
        faults(&open(&bytes).unwrap()).join("\n")
    };
    let found = verify(&data, find(&data, b"ab"), b"ac");
    assert!(found.contains("shares 2 bytes, not 1") && found.contains("smallest key"), "{found}");
    let found = verify(&filter, filter.start + 2, &[0; 8]);
    assert_eq!(found.matches("the filter excludes").count(), 4, "{found}");
    // The separator of the first block: shorter than its last key, then behind the next block's first.
    let separator = index.start + 3;
    assert_eq!(intact[separator], b'b');
    let found = verify(&index, separator, b"a");
    assert!(found.contains("is behind the separator of its block"), "{found}");
    let (tag_entries, tag_values) = (find(&properties, &[10, 4]), find(&properties, &[18, 0xb0, 2]));
    let found = verify(&properties, tag_entries, &[10, 5]);
    assert!(found.contains("entries: 4, the properties say 5"), "{found}");
    let found = verify(&properties, tag_values, &[18, 0xb1, 2]);
    assert!(found.contains("raw value bytes: 304, the properties say 305"), "{found}");
    // A tag twice.
    let mut bytes = intact.clone();
    bytes[tag_entries + 2] = 10;
    seal(&mut bytes, &properties);
    assert!(open(&bytes).unwrap_err().is_corruption());
}

/// A newer table is refused as such, and so is one with features that this build does not know.
#[test]
fn newer_formats_are_unsupported_not_corrupt() {
    let (intact, _) = build(&TableOptions::default(), &small());
    let footer = intact.len() - FOOTER_LEN..intact.len();
    for (at, supported) in [(28, false), (64, false), (32, true)] {
        let mut bytes = intact.clone();
        bytes[footer.start + at] ^= 0x40;
        seal(&mut bytes, &footer);
        match open(&bytes) {
            Ok(table) => assert!(supported && faults(&table).is_empty()),
            Err(error) => {
                assert!(!supported && matches!(error.kind(), ErrorKind::UnsupportedFormat { .. }), "{error}");
            }
        }
    }
}

/// A damaged filter, and one of an unknown kind, cost time and no answer.
#[test]
fn a_bad_filter_may_contain_anything() {
    let entries = small();
    let (intact, summary) = build(&tiny(4), &entries);
    let table = open(&intact).unwrap();
    let at = table.footer().filter_offset as usize;
    let part = at..at + summary.filter_size as usize;
    let mut damaged = intact.clone();
    damaged[at + 5] ^= 1;
    let mut unknown = intact.clone();
    unknown[at] = 9;
    seal(&mut unknown, &part);
    let mut hashes = [intact.clone(), intact.clone()];
    hashes[0][at + 1] = 31;
    hashes[1][at + 1] = 0;
    hashes.iter_mut().for_each(|bytes| seal(bytes, &part));
    let [many, none] = hashes;
    for (bytes, faulty) in [(damaged, true), (unknown, false), (many, true), (none, true)] {
        let table = open(&bytes).unwrap();
        assert_eq!(table.filter_fault().is_some(), faulty);
        assert_eq!(!faults(&table).is_empty(), faulty);
        assert!(table.may_contain(1) && table.filter_dump().is_none());
        for (key, value) in &entries {
            assert_eq!(table.get(&lookup(&key.user_key, key.seq)).unwrap().unwrap().value, value);
        }
        assert!(table.get(&lookup(b"absent", 9)).unwrap().is_none());
    }
}

/// Errors name the file and the place.
#[test]
fn corruption_names_file_and_offset() {
    let (mut bytes, _) = build(&plain(), &small());
    let block = parts(&bytes)[0].clone();
    bytes[block.start + 9] ^= 1;
    let error = all(&open(&bytes).unwrap()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("{PATH} @ 32: block checksum ")), "{text}");
    assert!(text.contains(", computed "), "{text}");
}
