//! Tables of fixed content have exactly these sizes: every byte spent in the format shows here.

use crate::support::{Entry, build, plain, put};
use esker_base::SplitMix64;

/// 2,000 sorted keys with 64-byte values and the sequences 1 to 2,000, or all 0 as at the bottom level.
fn set(keys: Vec<Vec<u8>>, bottom: bool) -> Vec<Entry> {
    let mut rng = SplitMix64::new(2);
    keys.into_iter()
        .enumerate()
        .map(|(index, key)| {
            let value: Vec<u8> = (0..64).map(|_| rng.next_u64() as u8).collect();
            put(key, if bottom { 0 } else { index as u64 + 1 }, value)
        })
        .collect()
}

fn fixed_keys() -> Vec<Vec<u8>> {
    (0..2000).map(|index| format!("k{index:05}").into_bytes()).collect()
}

fn prefixed_keys() -> Vec<Vec<u8>> {
    (0..2000).map(|index| format!("{:a<40}{index:06}", "").into_bytes()).collect()
}

fn random_keys() -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(1);
    let mut keys: Vec<Vec<u8>> = (0..2000).map(|_| (0..16).map(|_| rng.next_u64() as u8).collect()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 2000);
    keys
}

fn size(keys: Vec<Vec<u8>>, bottom: bool) -> u64 {
    let (_, summary) = build(&plain(), &set(keys, bottom));
    summary.file_size
}

#[test]
fn the_sizes_are_exactly_these_and_within_the_bars() {
    let sizes = [
        ("fixed", size(fixed_keys(), false), size(fixed_keys(), true), 138_500),
        ("prefixed", size(prefixed_keys(), false), size(prefixed_keys(), true), 146_200),
        ("random", size(random_keys(), false), size(random_keys(), true), 168_200),
    ];
    for (name, flushed, bottom, goal) in sizes {
        assert!(flushed <= goal, "{name}: {flushed}");
        assert!(bottom <= flushed, "{name}: {bottom} at the bottom level, {flushed} flushed");
    }
    assert_eq!(
        sizes.map(|(_, flushed, bottom, _)| [flushed, bottom]),
        [[138_185, 138_018], [139_873, 139_630], [166_284, 166_084]]
    );
}
