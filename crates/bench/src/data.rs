//! [`DataSet`]: the keys and values of the benches. The same in every run.

use esker_base::SplitMix64;

/// Entries in a data set.
pub const ENTRIES: usize = 2_000;

/// Length of a value in bytes.
pub const VALUE_LEN: usize = 64;

/// Sorted keys, a value for each, and a fixed order to ask for them that is not the sorted one.
#[derive(Clone, Debug)]
pub struct DataSet {
    /// The keys, ascending, with their values.
    pub entries: Vec<(Vec<u8>, [u8; VALUE_LEN])>,
    /// The same keys, shuffled.
    pub shuffled: Vec<Vec<u8>>,
    /// Keys that are absent, each between two neighbours that are there; shuffled.
    pub absent: Vec<Vec<u8>>,
}

impl DataSet {
    /// `k00000` to `k01999`.
    pub fn sequential() -> Self {
        Self::over((0..ENTRIES).map(|number| format!("k{number:05}").into_bytes()).collect())
    }

    /// The same behind a shared prefix of 40 bytes.
    pub fn long_prefix() -> Self {
        let prefix = "tenant/0042/region/eu-central-1/objects/";
        assert_eq!(prefix.len(), 40, "the published set has a prefix of 40 bytes");
        Self::over((0..ENTRIES).map(|number| format!("{prefix}k{number:05}").into_bytes()).collect())
    }

    /// Random keys of 16 bytes, sorted.
    pub fn random() -> Self {
        Self::random_of(ENTRIES)
    }

    /// The same in another number, for what depends on that.
    pub fn random_of(entries: usize) -> Self {
        let mut rng = SplitMix64::new(16);
        let mut keys: Vec<Vec<u8>> = (0..entries)
            .map(|_| [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()].concat())
            .collect();
        keys.sort_unstable();
        Self::over(keys)
    }

    /// Every second entry, from the first on or from the second on.
    #[must_use]
    pub fn half(&self, second: bool) -> Self {
        let entries = self.entries.iter().skip(usize::from(second)).step_by(2).cloned().collect();
        Self::of(entries)
    }

    /// Values are random bytes, so that no compression is hidden in a figure.
    fn over(keys: Vec<Vec<u8>>) -> Self {
        let mut rng = SplitMix64::new(64);
        let entries = keys.into_iter().map(|key| {
            let mut value = [0; VALUE_LEN];
            for chunk in value.chunks_mut(8) {
                chunk.copy_from_slice(&rng.next_u64().to_le_bytes());
            }
            (key, value)
        });
        Self::of(entries.collect())
    }

    fn of(entries: Vec<(Vec<u8>, [u8; VALUE_LEN])>) -> Self {
        let shuffled = shuffle(entries.iter().map(|(key, _)| key));
        let absent = shuffled.iter().map(|key| [key, &b"x"[..]].concat()).collect();
        DataSet { entries, shuffled, absent }
    }
}

/// A copy of `keys` in a fixed random order.
fn shuffle<'a>(keys: impl Iterator<Item = &'a Vec<u8>>) -> Vec<Vec<u8>> {
    let mut rng = SplitMix64::new(1);
    let mut order: Vec<&Vec<u8>> = keys.collect();
    for at in (1..order.len()).rev() {
        let other = usize::try_from(rng.below(at as u64 + 1)).expect("smaller than a length");
        order.swap(at, other);
    }
    order.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All sets have distinct ascending keys, ask for each of them once, and keep absent keys apart from them.
    #[test]
    fn sets_are_what_they_say() {
        for (set, key_len) in
            [(DataSet::sequential(), 6), (DataSet::long_prefix(), 46), (DataSet::random(), 16)]
        {
            assert_eq!(set.entries.len(), ENTRIES);
            assert!(set.entries.is_sorted_by(|a, b| a.0 < b.0 && a.0.len() == key_len));
            let mut asked = set.shuffled.clone();
            assert!(!asked.is_sorted());
            asked.sort_unstable();
            assert!(asked.iter().eq(set.entries.iter().map(|(key, _)| key)));
            let there = |key: &Vec<u8>| set.entries.binary_search_by(|entry| entry.0.cmp(key)).is_ok();
            assert!(!set.absent.iter().any(there));
        }
        let (even, odd) = (DataSet::sequential().half(false), DataSet::sequential().half(true));
        assert_eq!(
            (even.entries[1].0.as_slice(), odd.entries[1].0.as_slice()),
            (&b"k00002"[..], &b"k00003"[..])
        );
        let mut both = [even.entries, odd.entries].concat();
        both.sort_unstable();
        assert_eq!(both, DataSet::sequential().entries);
    }
}
