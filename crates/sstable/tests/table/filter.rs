//! The filter: bits that never change, no false negative, few false positives.

use crate::support::{build, lookup, open, plain, put};
use esker_base::key_hash;
use esker_sstable::TableOptions;

/// The words of the filter of a table are part of its format: fixed keys give fixed words for ever.
///
/// Fails when `fastbloom` maps hashes to bits in another way, or the key hash changes.
#[test]
fn golden_vectors() {
    for (count, bits, golden) in [
        (1_usize, 10_u32, "01070000040201000381"),
        (10, 10, "0107074028f03858d6ab366a422a0b06d290"),
        (20, 16, "010b893a000f99116e4147e6db7511f158bebdf7e749b5681eb937c8c4e40d75128a1369e3182c4d56e5"),
    ] {
        let entries: Vec<_> = (0..count).map(|index| put(format!("key{index:03}"), 1, "")).collect();
        let (bytes, summary) = build(&TableOptions { bloom_bits: bits, ..plain() }, &entries);
        let table = open(&bytes).unwrap();
        let at = table.footer().filter_offset as usize;
        let payload = &bytes[at..at + summary.filter_size as usize - 5];
        let hex: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden, "{count} keys at {bits} bits");
    }
}

/// The formula of the format's document, against the table's own filter.
#[test]
fn the_documented_formula_is_the_filters() {
    let entries: Vec<_> = (0..1000).map(|index| put(format!("{index:06}"), 1, "")).collect();
    let (bytes, _) = build(&plain(), &entries);
    let table = open(&bytes).unwrap();
    let at = table.footer().filter_offset as usize;
    let end = table.footer().partitions_offset() as usize - 5;
    let (kind, hashes, words) = (bytes[at], bytes[at + 1], &bytes[at + 2..end]);
    assert_eq!((kind, hashes, words.len() % 8), (1, 7, 0));
    let documented = |hash: u64| {
        let bits = words.len() as u128 * 8;
        let set = |hash: u64| {
            let bit = ((u128::from(hash) * bits) >> 64) as usize;
            words[bit / 64 * 8 + bit % 64 / 8] >> (bit % 8) & 1 == 1
        };
        let mut h1 = hash;
        let h2 = hash.wrapping_mul(0x517c_c1b7_2722_0a95);
        set(hash)
            && (1..hashes).all(|_| {
                h1 = h1.rotate_left(5).wrapping_add(h2);
                set(h1)
            })
    };
    for index in 0..20_000 {
        let hash = key_hash(crate::support::SEED, format!("{index:06}").as_bytes());
        assert_eq!(table.may_contain(hash), documented(hash), "{index}");
        assert!(index >= 1000 || table.may_contain(hash));
    }
}

#[test]
fn at_most_one_absent_key_in_a_hundred_passes() {
    let entries: Vec<_> = (0..20_000).map(|index| put(format!("{index:08}"), 1, "")).collect();
    let (bytes, _) = build(&plain(), &entries);
    let table = open(&bytes).unwrap();
    let probes = if cfg!(debug_assertions) { 200_000 } else { 1_000_000 };
    let passed = (0..probes)
        .filter(|index| {
            let key = format!("{:08}x", index + 20_000);
            table.may_contain(key_hash(crate::support::SEED, key.as_bytes()))
        })
        .count();
    let rate = passed as f64 / f64::from(probes);
    assert!(rate <= 0.01, "{rate}");
    let estimate = table.filter_dump().unwrap().false_positive_rate();
    assert!((rate - estimate).abs() < 0.002, "{rate} measured, {estimate} by the bits");
}

/// Tables with an empty filter, one key, no filter, and more bits than anyone wants.
///
/// Fails when the filter of no key is built with zero words.
#[test]
fn fi05_filters_of_any_size() {
    for bits in [0, 1, 2, 10, 100, u32::MAX] {
        for count in [0, 1, 2, 100] {
            let entries: Vec<_> = (0..count).map(|index| put(format!("{index:03}"), 1, "v")).collect();
            let (bytes, summary) = build(&TableOptions { bloom_bits: bits, ..plain() }, &entries);
            let table = open(&bytes).unwrap();
            assert_eq!(table.filter_dump().is_some(), bits > 0);
            assert!(summary.filter_size <= 2 + 5 + 8 * (1 + count as u64 * 100 / 64 + 1));
            for index in 0..200 {
                let key = format!("{index:03}");
                let found = table.get(&lookup(key.as_bytes(), 9)).unwrap();
                assert_eq!(found.is_some(), index < count, "{bits} bits, {count} keys");
            }
        }
    }
}
