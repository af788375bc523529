//! `Level`: the tables of one level of a version, in the order in which reads visit them.
//!
//! Level 0 holds its tables newest first; they may overlap. The levels below hold them by key, disjoint by user key, so
//! that at most one table can have a key. Never changed after it is made.

use crate::TableMetadata;
use esker_base::common_prefix_len;
use std::cmp::{Ordering, Reverse};
use std::ops::Range;
use std::sync::Arc;

/// The tables of one level.
#[derive(Clone, Debug, Default)]
pub struct Level {
    number: usize,
    tables: Vec<Arc<TableMetadata>>,
    size_bytes: u64,
    entries: u64,
    deletes: u64,
    /// Finds a key's table without a visit to the tables; empty in level 0.
    index: BoundIndex,
}

impl Level {
    /// Puts the tables of level `number` into order. Does not check them.
    pub(crate) fn new(number: usize, mut tables: Vec<Arc<TableMetadata>>) -> Self {
        if number == 0 {
            tables.sort_by_key(|table| Reverse((table.largest_seq, table.number)));
        } else {
            tables.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        }
        let size_bytes = tables.iter().fold(0_u64, |sum, table| sum.saturating_add(table.file_size));
        // As the tables' files say, which may say anything.
        let entries = tables.iter().fold(0_u64, |sum, table| sum.saturating_add(table.entries));
        let deletes = tables.iter().fold(0_u64, |sum, table| sum.saturating_add(table.deletes));
        let index = if number == 0 { BoundIndex::default() } else { BoundIndex::new(&tables) };
        Level { number, tables, size_bytes, entries, deletes, index }
    }

    /// Which level this is: 0 is the youngest.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The tables: newest first in level 0, by key below.
    #[inline]
    pub fn tables(&self) -> &[Arc<TableMetadata>] {
        &self.tables
    }

    /// Number of tables.
    #[inline]
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Whether there is no table.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Sum of the file sizes, in bytes.
    #[inline]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Sum of the tables' entries.
    #[inline]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// How many of the entries are tombstones.
    #[inline]
    pub fn deletes(&self) -> u64 {
        self.deletes
    }

    /// The one table that can hold `user_key`.
    ///
    /// # Panics
    ///
    /// In level 0, where several may.
    #[inline]
    pub fn find(&self, user_key: &[u8]) -> Option<&Arc<TableMetadata>> {
        let table = self.tables.get(self.first_ending_at_or_after(user_key))?;
        (table.smallest.user_key.as_slice() <= user_key).then_some(table)
    }

    /// Index of the first table whose last user key is at or after `user_key`: where a seek starts. The number of
    /// tables when there is none.
    ///
    /// # Panics
    ///
    /// In level 0, which is not sorted by key.
    #[inline]
    pub fn first_ending_at_or_after(&self, user_key: &[u8]) -> usize {
        assert!(self.number > 0, "level 0 is not sorted by key");
        self.index.first_at_or_after(&self.tables, user_key)
    }

    /// The tables that reach into a range of user keys, in the level's order. Both bounds are inclusive; `None` is no
    /// bound. An inverted range has no tables.
    pub fn overlapping<'a, 'k>(
        &'a self,
        begin: Option<&'k [u8]>,
        end: Option<&'k [u8]>,
    ) -> impl DoubleEndedIterator<Item = &'a Arc<TableMetadata>> + Clone + use<'a, 'k> {
        let candidates = if self.number == 0 { 0..self.len() } else { self.overlapping_indexes(begin, end) };
        let inverted = matches!((begin, end), (Some(begin), Some(end)) if begin > end);
        self.tables[candidates].iter().filter(move |table| !inverted && table.overlaps_range(begin, end))
    }

    /// Indexes of the tables that reach into a range of user keys. Both bounds are inclusive; `None` is no bound.
    ///
    /// # Panics
    ///
    /// In level 0, where they need not lie side by side.
    pub fn overlapping_indexes(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Range<usize> {
        assert!(self.number > 0, "level 0 is not sorted by key");
        let first = begin.map_or(0, |begin| self.first_ending_at_or_after(begin));
        let rest = &self.tables[first..];
        let count = match end {
            Some(end) => rest.partition_point(|table| table.smallest.user_key.as_slice() <= end),
            None => rest.len(),
        };
        first..first + count
    }
}

/// The largest user keys of a level's tables, as far as 8 bytes tell them apart, side by side: a binary search here costs
/// few cache lines, where one over the tables would follow two pointers a step.
#[derive(Clone, Debug, Default)]
struct BoundIndex {
    /// Bytes that all largest user keys have in common.
    shared: usize,
    /// The 8 bytes after those, see [`head`].
    heads: Vec<u64>,
}

impl BoundIndex {
    fn new(tables: &[Arc<TableMetadata>]) -> Self {
        let (Some(first), Some(last)) = (tables.first(), tables.last()) else { return Self::default() };
        // The keys are sorted, so what the outer two share, all share.
        let shared = common_prefix_len(&first.largest.user_key, &last.largest.user_key);
        let heads = tables
            .iter()
            .map(|table| head(table.largest.user_key.get(shared..).unwrap_or_default()))
            .collect();
        BoundIndex { shared, heads }
    }

    /// Index of the first table whose largest user key is at or after `user_key`.
    #[inline]
    fn first_at_or_after(&self, tables: &[Arc<TableMetadata>], user_key: &[u8]) -> usize {
        let Some(first) = tables.first() else { return 0 };
        let (start, rest) = user_key.split_at(user_key.len().min(self.shared));
        match start.cmp(&first.largest.user_key[..self.shared]) {
            Ordering::Less => return 0,
            Ordering::Greater => return tables.len(),
            Ordering::Equal => {}
        }
        let wanted = head(rest);
        let from = self.heads.partition_point(|head| *head < wanted);
        if self.heads.get(from) != Some(&wanted) {
            return from;
        }
        let equal = self.heads[from..].partition_point(|head| *head == wanted);
        let ties = &tables[from..from + equal];
        from + ties.partition_point(|table| table.largest.user_key.as_slice() < user_key)
    }
}

/// The first 8 bytes as a number, zeros behind shorter strings: in the order of the strings, but for ties.
#[inline]
fn head(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(padded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use esker_base::{FileNumber, InternalKey, SplitMix64, ValueKind};

    fn table(number: u64, smallest: &[u8], largest: &[u8]) -> Arc<TableMetadata> {
        Arc::new(TableMetadata {
            number: FileNumber(number),
            file_size: 100,
            tail_size: 10,
            smallest: InternalKey::new(smallest, 9, ValueKind::Put),
            largest: InternalKey::new(largest, 8, ValueKind::Put),
            smallest_seq: 8,
            largest_seq: 9,
            entries: 2,
            deletes: 0,
        })
    }

    /// Lookups in a sorted level agree with a look at every table, for keys of all lengths around and between the
    /// bounds, with long shared prefixes and with bounds that differ only in trailing zeros.
    #[test]
    fn find_and_overlapping_agree_with_a_full_scan() {
        for seed in 0..200 {
            println!("seed {seed}");
            let mut rng = SplitMix64::new(seed);
            let prefix = vec![b'p'; rng.below(12) as usize];
            let key = |rng: &mut SplitMix64| {
                let tail =
                    (0..rng.below(11)).map(|_| [0, 1, b'a', 255][rng.below(4) as usize]).collect::<Vec<_>>();
                [&prefix[..], &tail].concat()
            };
            let mut bounds: Vec<_> = (0..rng.below(40)).map(|_| key(&mut rng)).collect();
            bounds.sort();
            bounds.dedup();
            let tables: Vec<_> =
                bounds.chunks_exact(2).zip(1..).map(|(pair, n)| table(n, &pair[0], &pair[1])).collect();
            let level = Level::new(1, tables.clone());
            let mut wanted: Vec<_> = (0..50).map(|_| key(&mut rng)).collect();
            wanted.extend(bounds);
            wanted.extend([b"".to_vec(), b"o".to_vec(), b"pp".to_vec(), b"q".to_vec()]);
            for key in &wanted {
                let naive = tables.iter().find(|table| table.covers(key));
                assert_eq!(level.find(key), naive, "{key:?}");
                let other = &wanted[rng.below(wanted.len() as u64) as usize];
                for (begin, end) in
                    [(Some(key), Some(other)), (None, Some(other)), (Some(key), None), (None, None)]
                {
                    let (begin, end) = (begin.map(Vec::as_slice), end.map(Vec::as_slice));
                    let inverted = begin.zip(end).is_some_and(|(begin, end)| begin > end);
                    let naive: Vec<_> =
                        tables.iter().filter(|table| !inverted && table.overlaps_range(begin, end)).collect();
                    assert_eq!(
                        level.overlapping(begin, end).collect::<Vec<_>>(),
                        naive,
                        "{begin:?}..={end:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn level_0_is_newest_first() {
        // The sequence number counts, and the file number only where that is the same.
        let mut newest = (*table(1, b"a", b"b")).clone();
        (newest.smallest.seq, newest.largest.seq, newest.smallest_seq, newest.largest_seq) = (20, 20, 20, 20);
        let level = Level::new(0, vec![table(2, b"a", b"b"), Arc::new(newest), table(3, b"c", b"d")]);
        assert_eq!(level.tables().iter().map(|table| table.number.0).collect::<Vec<_>>(), [1, 3, 2]);
        assert_eq!(level.size_bytes(), 300);
        let key = Some(&b"b"[..]);
        assert_eq!(level.overlapping(key, key).map(|table| table.number.0).collect::<Vec<_>>(), [1, 2]);
    }
}
