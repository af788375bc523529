//! [`Replayed`]: what a log holds, on its way into a table.
//!
//! Nobody reads a database while it is opened, so what is replayed needs no memtable: no index, no order that can be read
//! while it grows. The bytes of the batches are kept one after the other, with a reference to each operation, and the
//! references are sorted once, when a table is to be written:
//!
//! ```text
//! chunks:     [batch batch batch ..] [batch batch ..] ..
//! references: (head of the key, sequence and kind, where it is) ..
//! ```

use crate::{Error, Result};
use esker_base::{
    BatchReader, InternalIterator, InternalKeyRef, SequenceNumber, ValueKind, common_prefix_len,
};
use std::cmp::Ordering;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

/// Bytes in a chunk. A larger batch gets one of its own.
const CHUNK: usize = 1 << 20;
/// Fewest bytes of an operation.
const MIN_OPERATION: usize = 2;
/// Entries that are read a little of before the first of them is wanted.
const AHEAD: usize = 16;
/// Bytes of a key that are in its reference.
const HEAD: usize = 8;

/// Operations of batches, in the order of the log.
#[derive(Debug, Default)]
pub(crate) struct Replayed {
    chunks: Chunks,
    references: Vec<Reference>,
    bytes: usize,
    /// How many leading bytes all user keys share.
    shared: usize,
    /// References before this one have heads behind more bytes than that.
    stale: usize,
}

/// Operations that are to be sorted, and that a table may be made of without the others: all versions of their keys.
#[derive(Debug)]
pub(crate) struct Unsorted {
    chunks: Arc<Chunks>,
    references: Vec<Reference>,
    /// How many leading bytes all user keys share.
    shared: usize,
}

/// The bytes that references refer to.
#[derive(Debug, Default)]
struct Chunks(Vec<Vec<u8>>);

/// One operation: where it is.
#[derive(Clone, Copy, Debug)]
struct Reference {
    /// Bytes of the user key behind those that all keys share, as they compare.
    head: u64,
    seq: SequenceNumber,
    chunk: u32,
    key_at: u32,
    value_at: u32,
    value_len: u32,
    key_len: u16,
    kind: ValueKind,
}

impl Replayed {
    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.references.is_empty()
    }

    /// Bytes in use.
    pub(crate) fn memory_usage(&self) -> usize {
        self.bytes + self.references.len() * size_of::<Reference>()
    }

    /// Adds the operations of a batch, `count` of them; the first one has the sequence number `first`. `dir` is for messages.
    ///
    /// Fails with `UnsupportedFormat` for operations that this build does not know.
    pub(crate) fn add(
        &mut self,
        first: SequenceNumber,
        count: u64,
        payload: &[u8],
        dir: &Path,
    ) -> Result<()> {
        let too_large = || Error::fatal("the log handed out a batch that is too large");
        let chunks = &mut self.chunks.0;
        if chunks.last().is_none_or(|chunk| chunk.capacity() - chunk.len() < payload.len()) {
            chunks.push(Vec::with_capacity(payload.len().max(CHUNK)));
        }
        let chunk = u32::try_from(chunks.len() - 1).map_err(|_| too_large())?;
        let bytes = &mut chunks[chunk as usize];
        let start = bytes.len();
        bytes.extend_from_slice(payload);
        self.bytes += payload.len();
        // For many small operations, what grows by doubling would for a moment take three times as much.
        self.references
            .reserve(usize::try_from(count).map_or(0, |count| count.min(payload.len() / MIN_OPERATION)));
        for (seq, op) in (first..).zip(BatchReader::new(payload)) {
            let op = op.map_err(|_| Error::fatal("the log handed out a batch that is not well formed"))?;
            if op.keyspace != 0 || !op.kind.is_supported() {
                return Err(Error::unsupported(
                    dir.join("the log"),
                    format!("an operation of kind {} on keyspace {}", op.kind.name(), op.keyspace),
                ));
            }
            let at = |place: usize| u32::try_from(start + place).map_err(|_| too_large());
            let user_key = payload.get(op.key.clone()).unwrap_or_default();
            let shared = self.shared_with(user_key);
            if shared < self.shared {
                self.stale = self.references.len();
            }
            self.shared = shared;
            self.references.push(Reference {
                head: head_of(user_key.get(self.shared..).unwrap_or_default()),
                seq,
                chunk,
                key_at: at(op.key.start)?,
                value_at: at(op.value.start)?,
                value_len: u32::try_from(op.value.len()).map_err(|_| too_large())?,
                key_len: u16::try_from(op.key.len()).map_err(|_| too_large())?,
                kind: op.kind,
            });
        }
        Ok(())
    }

    /// How many leading bytes all user keys and this one share: after a few keys, few or none.
    #[inline]
    fn shared_with(&self, user_key: &[u8]) -> usize {
        match self.references.first() {
            None => user_key.len(),
            Some(_) if self.shared == 0 => 0,
            Some(first) => {
                let first = self.chunks.user_key(first);
                common_prefix_len(first.get(..self.shared).unwrap_or_default(), user_key)
            }
        }
    }

    /// All operations, with their heads.
    pub(crate) fn into_unsorted(self) -> Unsorted {
        let Replayed { chunks, mut references, shared, stale, .. } = self;
        for reference in &mut references[..stale] {
            reference.head = head_of(chunks.user_key(reference).get(shared..).unwrap_or_default());
        }
        Unsorted { chunks: Arc::new(chunks), references, shared }
    }
}

impl Unsorted {
    /// Takes the upper half of the user keys out; `None` when there is only one user key.
    pub(crate) fn split_off_half(&mut self) -> Option<Unsorted> {
        let half = self.references.len() / 2;
        let Unsorted { chunks, references, shared } = self;
        if half == 0 {
            return None;
        }
        let (lower, &mut middle, _) =
            references.select_nth_unstable_by(half, |a, b| chunks.compare(a, b, *shared));
        // Newer versions of the key in the middle are before it, anywhere in the lower half.
        let middle_key = chunks.user_key(&middle);
        let mut end = half;
        let mut at = 0;
        while at < end {
            if lower[at].head == middle.head && chunks.user_key(&lower[at]) == middle_key {
                end -= 1;
                lower.swap(at, end);
            } else {
                at += 1;
            }
        }
        let upper = references.split_off(end);
        if end == 0 {
            *references = upper;
            return None;
        }
        Some(Unsorted { chunks: Arc::clone(chunks), references: upper, shared: *shared })
    }

    /// In the order of the keys. Not positioned yet.
    pub(crate) fn sorted(self) -> ReplayedIterator {
        let Unsorted { chunks, mut references, shared } = self;
        references.sort_unstable_by(|a, b| chunks.compare(a, b, shared));
        ReplayedIterator { chunks, references, at: usize::MAX }
    }
}

impl Chunks {
    #[inline]
    fn user_key(&self, reference: &Reference) -> &[u8] {
        let start = reference.key_at as usize;
        &self.0[reference.chunk as usize][start..start + usize::from(reference.key_len)]
    }

    /// The order of internal keys, given that all keys share `shared` bytes, and that the heads are those behind.
    #[inline]
    fn compare(&self, a: &Reference, b: &Reference, shared: usize) -> Ordering {
        if a.head != b.head {
            return a.head.cmp(&b.head);
        }
        let behind = shared + HEAD;
        let user_key = if usize::from(a.key_len.min(b.key_len)) <= behind {
            // All bytes of the shorter one are equal, or are zeros that may stand for the end of the longer one.
            a.key_len.cmp(&b.key_len)
        } else {
            self.user_key(a)[behind..].cmp(&self.user_key(b)[behind..])
        };
        user_key.then(b.seq.cmp(&a.seq)).then((b.kind as u8).cmp(&(a.kind as u8)))
    }
}

/// The first bytes as a number that compares as they do, zeros after the end.
#[inline]
fn head_of(bytes: &[u8]) -> u64 {
    let mut head = [0; HEAD];
    match bytes.first_chunk::<HEAD>() {
        Some(first) => head = *first,
        None => head[..bytes.len()].copy_from_slice(bytes),
    }
    u64::from_be_bytes(head)
}

/// Walks what was replayed, in order.
#[derive(Debug)]
pub(crate) struct ReplayedIterator {
    chunks: Arc<Chunks>,
    references: Vec<Reference>,
    /// Place of the present entry; there is none at the end, and before the first seek.
    at: usize,
}

impl ReplayedIterator {
    #[inline]
    fn present(&self) -> &Reference {
        &self.references[self.at]
    }

    /// Before the first of some entries that lie all over the memory: reads a little of each, so that the processor waits for
    /// all of them at once.
    #[inline]
    fn look_ahead(&self) {
        if !self.at.is_multiple_of(AHEAD) {
            return;
        }
        let rest = self.references.get(self.at..).unwrap_or_default();
        let seen = rest.iter().take(AHEAD).fold(0, |seen, reference| {
            let chunk = &self.chunks.0[reference.chunk as usize];
            let end = reference.value_at as usize + reference.value_len as usize;
            seen ^ chunk.get(reference.key_at as usize).unwrap_or(&0)
                ^ chunk.get(end.wrapping_sub(1)).unwrap_or(&0)
        });
        black_box(seen);
    }

    #[inline]
    fn key_of(&self, reference: &Reference) -> InternalKeyRef<'_> {
        InternalKeyRef::new(self.chunks.user_key(reference), reference.seq, reference.kind)
    }
}

impl InternalIterator for ReplayedIterator {
    fn seek_to_first(&mut self) -> Result<()> {
        self.at = 0;
        self.look_ahead();
        Ok(())
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.at = self.references.len().wrapping_sub(1);
        Ok(())
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.at = self.references.partition_point(|reference| self.key_of(reference) < target);
        Ok(())
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        if self.valid() {
            self.at += 1;
            self.look_ahead();
        }
        Ok(())
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        if self.valid() {
            self.at = self.at.wrapping_sub(1);
        }
        Ok(())
    }

    #[inline]
    fn valid(&self) -> bool {
        self.at < self.references.len()
    }

    #[inline]
    fn key(&self) -> InternalKeyRef<'_> {
        self.key_of(self.present())
    }

    #[inline]
    fn value(&self) -> &[u8] {
        let reference = self.present();
        let start = reference.value_at as usize;
        &self.chunks.0[reference.chunk as usize][start..start + reference.value_len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteBatch;
    use esker_base::{InternalKey, SplitMix64};
    use std::collections::BTreeMap;

    /// Two parts are what one would be, and no user key is in both.
    fn check_halves(lower: Unsorted, upper: Unsorted, model: &BTreeMap<InternalKey, Vec<u8>>) {
        let mut expected = model.iter();
        let (mut last, mut lens) = (None::<InternalKey>, [0, 0]);
        for (half, len) in [lower, upper].into_iter().zip(&mut lens) {
            let mut iter = half.sorted();
            iter.seek_to_first().unwrap();
            assert!(last.is_none_or(|last| last.user_key != iter.key().user_key), "a key in both halves");
            last = None;
            while iter.valid() {
                let (key, value) = expected.next().unwrap();
                assert_eq!((iter.key(), iter.value()), (key.as_ref(), &value[..]));
                last = Some(key.clone());
                *len += 1;
                iter.next().unwrap();
            }
        }
        assert!(expected.next().is_none() && lens.iter().all(|&len| len > 0), "{lens:?}");
    }

    /// Keys with and without a prefix that all share, that differ in zeros and lengths only, or are versions of one.
    #[test]
    fn what_was_replayed_comes_in_order() {
        for seed in 0..60 {
            println!("seed {seed}");
            let random = &mut SplitMix64::new(seed);
            let prefix = vec![b'p'; [0, 0, 3, 8, 40][random.below(5) as usize]];
            let (mut replayed, mut model) = (Replayed::default(), BTreeMap::new());
            let mut seq = 1;
            for _ in 0..random.below(200) {
                let first = seq;
                let mut batch = WriteBatch::new();
                for _ in 0..random.below(5) {
                    let mut key = prefix.clone();
                    key.resize(key.len() + [0, 1, 7, 8, 9, 17][random.below(6) as usize], 0);
                    if random.percent(70) {
                        key.push(random.below(3) as u8);
                    }
                    let value = vec![seq as u8; random.below(50) as usize];
                    let kind = if random.percent(20) {
                        batch.delete(&key);
                        ValueKind::Delete
                    } else {
                        batch.put(&key, &value);
                        ValueKind::Put
                    };
                    let value = if kind == ValueKind::Put { value } else { Vec::new() };
                    model.insert(InternalKey::new(key, seq, kind), value);
                    seq += 1;
                }
                replayed.add(first, u64::from(batch.len()), batch.encoded(), Path::new("dir")).unwrap();
            }
            let mut unsorted = replayed.into_unsorted();
            if seed % 2 == 1
                && let Some(upper) = unsorted.split_off_half()
            {
                check_halves(unsorted, upper, &model);
                continue;
            }
            let mut iter = unsorted.sorted();
            assert!(!iter.valid());
            iter.seek_to_first().unwrap();
            for (key, value) in &model {
                assert_eq!((iter.key(), iter.value()), (key.as_ref(), &value[..]));
                iter.next().unwrap();
            }
            assert!(!iter.valid());
            iter.seek_to_last().unwrap();
            for key in model.keys().rev() {
                assert_eq!(iter.key(), key.as_ref());
                iter.prev().unwrap();
            }
            assert!(!iter.valid());
            for key in model.keys() {
                iter.seek(key.as_ref()).unwrap();
                assert_eq!(iter.key(), key.as_ref());
            }
        }
    }

    #[test]
    fn a_batch_larger_than_a_chunk_is_kept_whole() {
        let mut replayed = Replayed::default();
        let value = vec![7; CHUNK + 1];
        for seq in 1..=3 {
            let mut batch = WriteBatch::new();
            batch.put([seq as u8], &value[..value.len() * (seq as usize % 2)]);
            replayed.add(seq, 1, batch.encoded(), Path::new("dir")).unwrap();
        }
        assert!(replayed.memory_usage() > 2 * CHUNK);
        let mut iter = replayed.into_unsorted().sorted();
        iter.seek_to_first().unwrap();
        for len in [value.len(), 0, value.len()] {
            assert_eq!(iter.value(), &value[..len]);
            iter.next().unwrap();
        }
        assert!(!iter.valid());
    }

    #[test]
    fn operations_of_other_builds_are_refused() {
        let mut batch = WriteBatch::new();
        batch.push(7, ValueKind::Put, b"k", b"v");
        let error = Replayed::default().add(1, 1, batch.encoded(), Path::new("dir")).unwrap_err();
        assert!(matches!(error.kind(), crate::ErrorKind::UnsupportedFormat { .. }), "{error}");
    }
}
