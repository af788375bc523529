//! [`Model`]: what a database should answer, as a sorted map from keys to their versions.
//!
//! Every write makes one new version number, also a batch of many operations. A reader at version `v` sees for each
//! key the newest entry with a number of at most `v`. Versions that no snapshot and no present reader sees are pruned,
//! so a long test doesn't grow.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::WriteOp;

/// A range of keys.
pub type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Versions of one key after which old ones are looked through for pruning.
const PRUNE_LEN: usize = 12;

type Versions = Vec<(u64, Option<Arc<[u8]>>)>;

/// The right answers.
#[derive(Clone, Debug, Default)]
pub struct Model {
    keys: BTreeMap<Vec<u8>, Versions>,
    version: u64,
    /// Held snapshots: version to count.
    held: BTreeMap<u64, u64>,
}

impl Model {
    /// An empty database.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies operations as one batch: later ones on a key win.
    pub fn apply(&mut self, ops: &[WriteOp]) {
        if ops.is_empty() {
            return;
        }
        self.version += 1;
        for op in ops {
            let (key, value) = match op {
                WriteOp::Put(key, value) => (key, Some(Arc::from(value.as_slice()))),
                WriteOp::Delete(key) => (key, None),
            };
            let versions = self.keys.entry(key.clone()).or_default();
            match versions.last_mut() {
                Some((version, newest)) if *version == self.version => *newest = value,
                _ => versions.push((self.version, value)),
            }
            if versions.len() > PRUNE_LEN {
                prune(versions, &self.held, self.version);
            }
        }
    }

    /// The present version.
    pub fn now(&self) -> u64 {
        self.version
    }

    /// Takes a snapshot of the present.
    pub fn snapshot(&mut self) -> u64 {
        *self.held.entry(self.version).or_default() += 1;
        self.version
    }

    /// Gives a snapshot back.
    ///
    /// # Panics
    ///
    /// When it is not held: a mistake of the test.
    pub fn release(&mut self, version: u64) {
        let count = self.held.get_mut(&version).expect("a snapshot that is held");
        *count -= 1;
        if *count == 0 {
            self.held.remove(&version);
        }
    }

    /// Gives all snapshots back: the database was closed.
    pub fn release_all(&mut self) {
        self.held.clear();
    }

    /// The value of a key at a version.
    pub fn get(&self, key: &[u8], at: u64) -> Option<&[u8]> {
        visible(self.keys.get(key)?, at)
    }

    /// The entries of a range at a version, in order, from both ends.
    pub fn range<'a>(
        &'a self,
        range: &KeyRange,
        at: u64,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        // An inverted range, for which the map would panic, is an empty one.
        let bounds = if is_empty_range(range) {
            (Bound::Excluded(&[][..]), Bound::Included(&[][..]))
        } else {
            (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice))
        };
        let entries = self.keys.range::<[u8], _>(bounds);
        entries.filter_map(move |(key, versions)| Some((key.as_slice(), visible(versions, at)?)))
    }

    /// All entries at a version.
    pub fn content(&self, at: u64) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        self.range(&all, at).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    /// Every key that was ever written and not pruned as a whole, deleted ones included.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.keys().map(Vec::as_slice)
    }
}

fn visible(versions: &Versions, at: u64) -> Option<&[u8]> {
    let seen = versions.partition_point(|(version, _)| *version <= at);
    versions.get(seen.checked_sub(1)?)?.1.as_deref()
}

/// Removes what neither the present nor a held snapshot sees.
fn prune(versions: &mut Versions, held: &BTreeMap<u64, u64>, now: u64) {
    let newer: Vec<u64> = versions.iter().skip(1).map(|(version, _)| *version).collect();
    let mut index = 0;
    versions.retain(|(version, _)| {
        // Seen by readers at `version` up to the next newer one, exclusive.
        let until = newer.get(index).copied().unwrap_or(now + 1);
        index += 1;
        until > now || held.range(*version..until).next().is_some()
    });
}

/// Whether no key can lie in a range.
pub fn is_empty_range(range: &KeyRange) -> bool {
    match range {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(lower), Bound::Included(upper)) => lower > upper,
        (
            Bound::Excluded(lower) | Bound::Included(lower),
            Bound::Excluded(upper) | Bound::Included(upper),
        ) => lower >= upper,
    }
}

/// The range of all keys that start with `prefix`.
pub fn prefix_range(prefix: &[u8]) -> KeyRange {
    let kept = prefix.iter().rposition(|byte| *byte != 0xff).map_or(0, |last| last + 1);
    let upper = match prefix[..kept].split_last() {
        Some((last, rest)) => {
            let mut upper = rest.to_vec();
            upper.push(last + 1);
            Bound::Excluded(upper)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), upper)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> WriteOp {
        WriteOp::Put(key.into(), value.into())
    }

    #[test]
    fn snapshots_see_their_version_also_after_pruning() {
        let mut model = Model::new();
        model.apply(&[put("a", "1"), put("a", "2"), put("b", "1")]);
        let first = model.snapshot();
        model.apply(&[WriteOp::Delete(b"a".to_vec())]);
        let second = model.snapshot();
        for round in 0..100 {
            model.apply(&[put("a", &format!("round {round}"))]);
        }
        assert_eq!(model.get(b"a", first), Some(&b"2"[..]));
        assert_eq!(model.get(b"a", second), None);
        assert_eq!(model.get(b"a", model.now()), Some(&b"round 99"[..]));
        assert!(model.keys[&b"a"[..]].len() <= PRUNE_LEN + 1);
        assert_eq!(model.content(first).len(), 2);
        assert_eq!(model.content(second).len(), 1);
        model.release(first);
        for round in 0..100 {
            model.apply(&[put("a", &format!("round {round}"))]);
        }
        assert_eq!(model.get(b"a", second), None);
    }

    #[test]
    fn ranges_with_every_form_of_bound() {
        let mut model = Model::new();
        model.apply(&["", "a", "ab", "b", "\u{7f}"].map(|key| put(key, key)));
        let keys = |range: KeyRange| -> Vec<String> {
            let forward: Vec<_> = model.range(&range, 1).collect();
            let mut backward: Vec<_> = model.range(&range, 1).rev().collect();
            backward.reverse();
            assert_eq!(forward, backward);
            forward.into_iter().map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect()
        };
        let (a, b) = (b"a".to_vec(), b"b".to_vec());
        assert_eq!(keys((Bound::Included(a.clone()), Bound::Excluded(b.clone()))), ["a", "ab"]);
        assert_eq!(keys((Bound::Excluded(a.clone()), Bound::Included(b.clone()))), ["ab", "b"]);
        assert_eq!(keys((Bound::Excluded(b.clone()), Bound::Included(a.clone()))), [""; 0]);
        assert_eq!(keys((Bound::Excluded(a.clone()), Bound::Excluded(a.clone()))), [""; 0]);
        assert_eq!(keys((Bound::Unbounded, Bound::Excluded(a))), [""]);
        assert_eq!(keys(prefix_range(b"a")), ["a", "ab"]);
        assert_eq!(keys(prefix_range(b"")).len(), 5);
        assert_eq!(prefix_range(b"a\xff\xff").1, Bound::Excluded(b"b".to_vec()));
        assert_eq!(prefix_range(b"\xff").1, Bound::Unbounded);
    }
}
