//! The iterator against a naive model, and the histories that broke other engines.

use super::*;
use esker_base::{InternalKey, MergingIterator, Slice, SplitMix64, VecIterator};
use std::collections::{BTreeMap, BTreeSet};

type Entry = (InternalKey, Slice);

fn put(key: &str, seq: SequenceNumber) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Put), Slice::copy_from(format!("v{seq}").as_bytes()))
}

fn delete(key: &str, seq: SequenceNumber) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Delete), Slice::copy_from(b""))
}

/// Runs the iterator to its end; checks that the value and the marks belong to the key.
fn run_over<I: InternalIterator>(
    input: I,
    stripes: &SnapshotStripes,
    deeper: impl FnMut(&[u8]) -> bool,
    zero: bool,
) -> Result<(Vec<Entry>, RewriteStats)> {
    let mut iter = CompactionIterator::new(input, stripes.clone(), deeper, zero);
    iter.seek_to_first()?;
    let mut out: Vec<Entry> = Vec::new();
    while iter.valid() {
        let key = iter.key().to_owned();
        let first = out.last().is_none_or(|(last, _)| last.user_key != key.user_key);
        assert_eq!(iter.first_of_key(), first, "{key:?}");
        out.push((key, Slice::copy_from(iter.value())));
        iter.next()?;
    }
    iter.next()?;
    assert!(!iter.valid());
    Ok((out, *iter.stats()))
}

fn run(input: Vec<Entry>, stripes: &SnapshotStripes, deeper: impl FnMut(&[u8]) -> bool) -> Vec<Entry> {
    run_over(VecIterator::new(input), stripes, deeper, true).unwrap().0
}

fn show(entries: &[Entry]) -> String {
    let name = |kind| if kind == ValueKind::Put { "PUT" } else { "DEL" };
    let shown: Vec<_> = entries
        .iter()
        .map(|(key, _)| format!("{}.{}.{}", key.user_key.escape_ascii(), name(key.kind), key.seq))
        .collect();
    shown.join(" ")
}

/// Purpose: the pictures at the head of the file are true.
#[test]
fn pictures() {
    let none = SnapshotStripes::new([], 100);
    let input = || vec![put("a", 9), put("a", 7), put("a", 2), put("b", 4)];
    assert_eq!(show(&run(input(), &none, |_| true)), "a.PUT.9 b.PUT.4");

    let input = vec![put("a", 9), put("a", 8), put("a", 6), delete("a", 5), put("a", 2)];
    assert_eq!(show(&run(input, &SnapshotStripes::new([3, 7], 100), |_| true)), "a.PUT.9 a.PUT.6 a.PUT.2");

    let input = || vec![delete("a", 9), put("a", 2)];
    assert_eq!(show(&run(input(), &none, |_| true)), "a.DEL.9");
    assert_eq!(show(&run(input(), &none, |_| false)), "");
    let held = SnapshotStripes::new([5], 100);
    assert_eq!(show(&run(input(), &held, |_| true)), "a.DEL.9 a.PUT.2");

    let input = vec![put("a", 9), put("a", 2), put("b", 4)];
    assert_eq!(show(&run(input, &held, |_| false)), "a.PUT.9 a.PUT.0 b.PUT.0");
}

/// Purpose: versions written after the capture all stay; snapshots between them may exist by now.
#[test]
fn sn07_versions_newer_than_the_capture_stay() {
    let stripes = SnapshotStripes::new([], 10);
    let input = vec![put("k", 14), delete("k", 12), put("k", 11), put("k", 10), put("k", 4)];
    assert_eq!(show(&run(input, &stripes, |_| false)), "k.PUT.14 k.DEL.12 k.PUT.11 k.PUT.0");
}

/// Purpose: a tombstone as the newest version at the bottom leaves the older version that a snapshot sees; without the
/// snapshot nothing is left.
#[test]
fn sn05_snapshot_below_a_bottom_tombstone() {
    let input = || vec![delete("k", 100), put("k", 30)];
    let held = SnapshotStripes::new([50], 120);
    let kept = run(input(), &held, |_| false);
    assert_eq!(show(&kept), "k.DEL.100 k.PUT.0");
    let released = SnapshotStripes::new([], 120);
    assert_eq!(show(&run(kept, &released, |_| false)), "");
}

/// Purpose: the predicate is asked for keys of every input, with ascending keys, once each.
#[test]
fn sn13_keys_of_all_inputs_are_checked() {
    let upper = VecIterator::new(vec![put("a", 20), put("z", 21)]);
    let lower = VecIterator::new(vec![delete("k", 10), delete("m", 11), put("m", 3)]);
    let mut asked = Vec::new();
    let deeper = |key: &[u8]| {
        asked.push(key.to_vec());
        key == b"k"
    };
    let stripes = SnapshotStripes::new([], 30);
    let (out, stats) = run_over(MergingIterator::new(vec![upper, lower]), &stripes, deeper, true).unwrap();
    assert_eq!(show(&out), "a.PUT.0 k.DEL.10 z.PUT.0");
    assert_eq!(asked, [b"a", b"k", b"m", b"z"]);
    assert_eq!((stats.tombstones_dropped, stats.shadowed, stats.zeroed), (1, 1, 2));
}

/// Purpose: of one key in five sources the newest wins, and every held snapshot keeps its version.
#[test]
fn it09_newest_wins_among_five_sources() {
    let sources =
        || (1..=5_u64).rev().map(|seq| VecIterator::new(vec![put("k", seq * 10)])).collect::<Vec<_>>();
    let cases = [
        (vec![], "k.PUT.0"),
        (vec![10], "k.PUT.50 k.PUT.0"),
        (vec![10, 20, 30, 40, 50], "k.PUT.50 k.PUT.40 k.PUT.30 k.PUT.20 k.PUT.0"),
    ];
    for (snapshots, expected) in cases {
        let stripes = SnapshotStripes::new(snapshots, 60);
        let merged = MergingIterator::new(sources());
        let (out, _) = run_over(merged, &stripes, |_: &[u8]| false, true).unwrap();
        assert_eq!(show(&out), expected);
        assert_eq!(&*out[0].1, b"v50");
    }
}

/// Purpose: N puts, all deleted, nothing deeper, no snapshots: nothing at all is left.
#[test]
fn sp06_deleted_keys_leave_nothing_at_the_bottom() {
    let mut input = Vec::new();
    for n in 0..1_000_u64 {
        let key = format!("{n:04}");
        input.push(delete(&key, 1_001 + n));
        input.push(put(&key, 1 + n));
    }
    let stripes = SnapshotStripes::new([], 2_000);
    let (out, stats) = run_over(VecIterator::new(input), &stripes, |_: &[u8]| false, true).unwrap();
    assert!(out.is_empty());
    assert_eq!((stats.entries_in, stats.entries_out), (2_000, 0));
    assert_eq!((stats.tombstones_dropped, stats.shadowed), (1_000, 1_000));
}

/// What a reader at `seq` finds: the value, or nothing. `deep` holds what lies below the output.
fn read<'a>(
    entries: &'a [Entry],
    deep: &'a BTreeMap<Vec<u8>, Slice>,
    key: &[u8],
    seq: u64,
) -> Option<&'a [u8]> {
    match entries.iter().find(|(k, _)| k.user_key == key && k.seq <= seq) {
        Some((found, value)) => (found.kind == ValueKind::Put).then_some(&**value),
        None => deep.get(key).map(|value| &**value),
    }
}

/// What must be left, worked out the slow way.
fn model(
    input: &[Entry],
    boundaries: &BTreeSet<u64>,
    deep: impl Fn(&[u8]) -> bool,
    zero: bool,
) -> Vec<Entry> {
    let newest = *boundaries.last().unwrap();
    let oldest = *boundaries.first().unwrap();
    let mut out = Vec::new();
    for (at, (key, value)) in input.iter().enumerate() {
        // Who reads this version? Boundaries that see it and no newer one of the key, and possible later snapshots.
        let newer = input[..at].iter().rev().find(|(k, _)| k.user_key == key.user_key).map(|(k, _)| k.seq);
        let readers =
            boundaries.iter().filter(|&&b| b >= key.seq && newer.is_none_or(|newer| newer > b)).count();
        if readers == 0 && key.seq <= newest {
            continue;
        }
        let bottom = key.seq <= oldest && !deep(&key.user_key);
        let mut key = key.clone();
        match key.kind {
            ValueKind::Delete if bottom => continue,
            ValueKind::Put if bottom && zero => key.seq = 0,
            _ => {}
        }
        out.push((key, value.clone()));
    }
    out
}

/// Purpose: for random histories, snapshots and deeper levels, the rewrite is exactly the model's (so nothing needless
/// is kept), and no reader can tell the difference.
#[test]
fn random_histories_read_the_same() {
    for seed in 0..3_000_u64 {
        let mut rng = SplitMix64::new(seed);
        let mut entries = BTreeMap::new();
        let last = 10 + rng.below(60);
        for seq in 1..=last {
            if rng.percent(20) {
                continue;
            }
            let key = format!("{}", rng.below(6));
            let entry = if rng.percent(40) { delete(&key, seq) } else { put(&key, seq) };
            entries.insert(entry.0.clone(), entry.1);
        }
        let input: Vec<Entry> = entries.into_iter().collect();
        let visible = last - rng.below(last / 3 + 1);
        let snapshots: Vec<u64> = (0..rng.below(5)).map(|_| rng.below(visible + 1)).collect();
        let deep: BTreeMap<Vec<u8>, Slice> = (0..6)
            .filter(|_| rng.percent(50))
            .map(|n| (format!("{n}").into_bytes(), Slice::copy_from(b"deep")))
            .collect();
        let zero = rng.percent(50);

        let stripes = SnapshotStripes::new(snapshots.iter().copied(), visible);
        let deeper = |key: &[u8]| deep.contains_key(key);
        let (out, stats) = run_over(VecIterator::new(input.clone()), &stripes, deeper, zero).unwrap();

        let boundaries: BTreeSet<u64> = snapshots.iter().copied().chain([visible]).collect();
        let expected = model(&input, &boundaries, deeper, zero);
        assert_eq!(
            show(&out),
            show(&expected),
            "seed {seed}, boundaries {boundaries:?}, input {}",
            show(&input)
        );
        assert!(out.is_sorted_by(|a, b| a.0 < b.0), "seed {seed}");
        for n in 0..6 {
            let key = format!("{n}").into_bytes();
            // Later snapshots may be anywhere above the visible sequence.
            for &at in boundaries.iter().chain(&(visible..=last).collect::<Vec<_>>()) {
                let (before, after) = (read(&input, &deep, &key, at), read(&out, &deep, &key, at));
                assert_eq!(before, after, "seed {seed}, key {n} at {at}");
            }
        }
        let dropped = stats.shadowed + stats.tombstones_dropped;
        assert_eq!(stats.entries_in, stats.entries_out + dropped, "seed {seed}");
        assert_eq!(stats.entries_out, out.len() as u64, "seed {seed}");
    }
}

/// An input that need not be in order, and can fail: what a damaged file looks like.
struct Raw {
    entries: Vec<(InternalKey, bool)>,
    at: usize,
}

impl Raw {
    fn new(entries: impl IntoIterator<Item = InternalKey>) -> Self {
        Raw { entries: entries.into_iter().map(|key| (key, false)).collect(), at: usize::MAX }
    }

    fn failing_at(mut self, at: usize) -> Self {
        self.entries[at].1 = true;
        self
    }

    fn go(&mut self, at: usize) -> Result<()> {
        self.at = at;
        match self.entries.get(at) {
            Some((_, true)) => {
                self.at = usize::MAX;
                Err(Error::io("read", "000007.sst", std::io::Error::from(std::io::ErrorKind::Other)))
            }
            _ => Ok(()),
        }
    }
}

impl InternalIterator for Raw {
    fn seek_to_first(&mut self) -> Result<()> {
        self.go(0)
    }
    fn seek_to_last(&mut self) -> Result<()> {
        unreachable!("compactions go forward")
    }
    fn seek(&mut self, _: InternalKeyRef<'_>) -> Result<()> {
        unreachable!("compactions go forward")
    }
    fn next(&mut self) -> Result<()> {
        if self.valid() { self.go(self.at + 1) } else { Ok(()) }
    }
    fn prev(&mut self) -> Result<()> {
        unreachable!("compactions go forward")
    }
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    fn key(&self) -> InternalKeyRef<'_> {
        self.entries[self.at].0.as_ref()
    }
    fn value(&self) -> &[u8] {
        b""
    }
}

/// Purpose: kinds of later builds are never dropped or passed on as something else.
#[test]
fn unsupported_kinds_are_corruption() {
    use ValueKind::{BlobPointer, Merge, PutExpiring, RangeDelete, SingleDelete};
    for kind in [Merge, SingleDelete, RangeDelete, BlobPointer, PutExpiring] {
        let raw = Raw::new([InternalKey::new("a", 1, ValueKind::Put), InternalKey::new("b", 2, kind)]);
        let error = run_over(raw, &SnapshotStripes::new([], 9), |_: &[u8]| false, true).unwrap_err();
        assert!(error.is_corruption(), "{error}");
        assert!(error.to_string().contains(kind.name()), "{error}");
    }
}

/// Purpose: an input out of order ends the rewrite; going on would drop the wrong versions.
#[test]
fn disorder_is_corruption() {
    let key = |name: &str, seq| InternalKey::new(name, seq, ValueKind::Put);
    let disorders = [
        [key("b", 5), key("a", 9)],
        [key("a", 5), key("a", 9)],
        [key("a", 5), key("a", 5)],
        [key("", 0), key("", 0)],
    ];
    for disorder in disorders {
        let shown = format!("{disorder:?}");
        let result = run_over(Raw::new(disorder), &SnapshotStripes::new([7], 9), |_: &[u8]| true, true);
        assert!(result.unwrap_err().is_corruption(), "{shown}");
    }
}

/// Purpose: the empty key is a key like any other, also as the first one.
#[test]
fn the_empty_key_is_collapsed_too() {
    let stripes = SnapshotStripes::new([], 9);
    assert_eq!(show(&run(vec![put("", 3), put("", 2), put("a", 1)], &stripes, |_| true)), ".PUT.3 a.PUT.1");
}

/// Purpose: an input error is no end, at whichever entry it strikes, and stays.
#[test]
fn er05_an_input_error_is_never_the_end() {
    let keys = || (0..20_u64).map(|n| InternalKey::new(format!("{:02}", n / 2), 100 - n, ValueKind::Put));
    for at in 0..20 {
        let input = Raw::new(keys()).failing_at(at);
        let mut iter = CompactionIterator::new(input, SnapshotStripes::new([], 200), |_: &[u8]| true, true);
        let mut result = iter.seek_to_first();
        while result.is_ok() && iter.valid() {
            result = iter.next();
        }
        assert!(result.is_err(), "failing at {at}");
        assert!(!iter.valid());
        assert!(iter.next().is_err() && iter.next().is_err(), "the error stays");
    }
}
