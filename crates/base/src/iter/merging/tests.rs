//! The merging and concat iterators against one sorted vector, under every short sequence of moves.

use crate::iter::{ConcatIterator, ConcatSource, InternalIterator, MergingIterator, VecIterator};
use crate::{Error, InternalKey, InternalKeyRef, Result, Slice, SplitMix64, ValueKind};

type Entry = (InternalKey, Slice);

fn entry(key: &str, seq: u64) -> Entry {
    (InternalKey::new(key, seq, ValueKind::Put), Slice::from(format!("{key}@{seq}").as_bytes()))
}

#[derive(Clone, Copy, Debug)]
enum Move {
    First,
    Last,
    Next,
    Prev,
    Seek(usize),
    SeekForPrev(usize),
}

fn apply(iter: &mut impl InternalIterator, step: Move, targets: &[InternalKey]) {
    match step {
        Move::First => iter.seek_to_first(),
        Move::Last => iter.seek_to_last(),
        Move::Next => iter.next(),
        Move::Prev => iter.prev(),
        Move::Seek(at) => iter.seek(targets[at].as_ref()),
        Move::SeekForPrev(at) => iter.seek_for_prev(targets[at].as_ref()),
    }
    .unwrap();
}

fn agree(mut iter: impl InternalIterator, all: &[Entry], steps: &[Move], targets: &[InternalKey]) {
    let mut model = VecIterator::new(all.to_vec());
    for step in steps {
        apply(&mut iter, *step, targets);
        apply(&mut model, *step, targets);
        assert_eq!(iter.valid(), model.valid(), "{steps:?}");
        if model.valid() {
            assert_eq!(iter.key(), model.key(), "{steps:?}");
            assert_eq!(iter.value(), model.value(), "{steps:?}");
            assert_eq!(iter.value_slice(), model.value());
        }
    }
}

/// All sequences of up to `depth` moves.
fn each_sequence(depth: usize, targets: usize, run: &mut dyn FnMut(&[Move])) {
    let mut moves = vec![Move::First, Move::Last, Move::Next, Move::Prev];
    moves.extend((0..targets).flat_map(|at| [Move::Seek(at), Move::SeekForPrev(at)]));
    let mut sequence = vec![0; depth];
    loop {
        let steps: Vec<Move> = sequence.iter().map(|&at| moves[at]).collect();
        run(&steps);
        let Some(at) = sequence.iter().rposition(|&at| at + 1 < moves.len()) else { return };
        sequence[at] += 1;
        sequence[at + 1..].fill(0);
    }
}

/// IT01 and IT03 at this layer. Fails when `turn` leaves the other children where they are.
#[test]
fn it01_every_short_sequence_of_moves_agrees_with_a_vector() {
    let sources = [
        vec![entry("a", 9), entry("c", 8)],
        vec![entry("a", 5), entry("b", 4), entry("d", 6)],
        vec![],
        vec![entry("a", 1), entry("c", 2), entry("c", 1)],
    ];
    let mut all: Vec<Entry> = sources.concat();
    all.sort();
    let targets = [entry("a", 5).0, entry("b", 9).0, entry("c", 2).0, entry("e", 1).0];
    let mut sequences = 0;
    each_sequence(4, targets.len(), &mut |steps| {
        let children = sources.iter().map(|source| VecIterator::new(source.clone())).collect();
        agree(MergingIterator::new(children), &all, steps, &targets);
        sequences += 1;
    });
    assert_eq!(sequences, 12_usize.pow(4));
}

struct Parts(Vec<Vec<Entry>>);

impl ConcatSource for Parts {
    type Iter = VecIterator;

    fn count(&self) -> usize {
        self.0.len()
    }

    fn find(&self, target: InternalKeyRef<'_>) -> usize {
        self.0.partition_point(|part| part.last().is_some_and(|(key, _)| key.as_ref() < target))
    }

    fn open(&self, index: usize) -> Result<VecIterator> {
        Ok(VecIterator::new(self.0[index].clone()))
    }
}

#[test]
fn concat_agrees_with_a_vector() {
    let parts = || {
        Parts(vec![
            vec![entry("a", 1), entry("b", 2)],
            vec![entry("c", 9), entry("c", 3)],
            vec![entry("d", 4)],
        ])
    };
    let all = parts().0.concat();
    let targets = [entry("a", 1).0, entry("c", 5).0, entry("d", 1).0, entry("0", 1).0];
    each_sequence(4, targets.len(), &mut |steps| {
        agree(ConcatIterator::new(parts()), &all, steps, &targets);
    });
    let mut empty = ConcatIterator::new(Parts(vec![]));
    empty.seek_to_last().unwrap();
    assert!(!empty.valid());
}

#[test]
fn random_merges_agree_with_a_vector() {
    let seed = 0x5eed;
    println!("seed {seed:#x}");
    let mut rng = SplitMix64::new(seed);
    for _ in 0..200 {
        let mut sources = vec![Vec::new(); 1 + rng.below(6) as usize];
        for seq in 1..=rng.below(60) {
            let at = rng.below(sources.len() as u64) as usize;
            sources[at].push(entry(&format!("k{:02}", rng.below(20)), seq));
        }
        let mut all = sources.concat();
        all.sort();
        sources.iter_mut().for_each(|source| source.sort());
        let targets: Vec<_> = (0..20).map(|n| entry(&format!("k{n:02}"), rng.below(60)).0).collect();
        let steps: Vec<Move> = (0..100)
            .map(|_| match rng.below(12) {
                0 => Move::First,
                1 => Move::Last,
                2..=5 => Move::Next,
                6..=9 => Move::Prev,
                10 => Move::Seek(rng.below(20) as usize),
                _ => Move::SeekForPrev(rng.below(20) as usize),
            })
            .collect();
        let children = sources.into_iter().map(VecIterator::new).collect();
        agree(MergingIterator::new(children), &all, &steps, &targets);
    }
}

/// A child that fails at its `n`-th movement.
struct Failing(VecIterator, u32);

impl Failing {
    fn count_down(&mut self) -> Result<()> {
        self.1 = self.1.wrapping_sub(1);
        if self.1 == 0 { Err(Error::corruption("000001.sst", 0, "planted")) } else { Ok(()) }
    }
}

impl InternalIterator for Failing {
    fn seek_to_first(&mut self) -> Result<()> {
        self.count_down()?;
        self.0.seek_to_first()
    }
    fn seek_to_last(&mut self) -> Result<()> {
        self.count_down()?;
        self.0.seek_to_last()
    }
    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.count_down()?;
        self.0.seek(target)
    }
    fn next(&mut self) -> Result<()> {
        self.count_down()?;
        self.0.next()
    }
    fn prev(&mut self) -> Result<()> {
        self.count_down()?;
        self.0.prev()
    }
    fn valid(&self) -> bool {
        self.0.valid()
    }
    fn key(&self) -> InternalKeyRef<'_> {
        self.0.key()
    }
    fn value(&self) -> &[u8] {
        self.0.value()
    }
}

/// ER08: an error in one child ends the scan with that error after a right prefix, and stays until the next seek.
#[test]
fn er08_an_error_is_never_the_end() {
    let sources = [
        (0..10).map(|n| entry(&format!("a{n}"), 20 + n)).collect::<Vec<_>>(),
        (0..10).map(|n| entry(&format!("a{n}"), 1 + n)).collect(),
    ];
    let mut all = sources.concat();
    all.sort();
    for fail_at in 1..=11 {
        let children = vec![
            Failing(VecIterator::new(sources[0].clone()), 0),
            Failing(VecIterator::new(sources[1].clone()), fail_at),
        ];
        let mut iter = MergingIterator::new(children);
        let mut seen = Vec::new();
        let mut result = iter.seek_to_first();
        while result.is_ok() && iter.valid() {
            seen.push(iter.key().to_owned());
            result = iter.next();
        }
        assert!(result.is_err(), "the error at movement {fail_at} was swallowed");
        assert!(!iter.valid());
        iter.next().unwrap();
        assert!(!iter.valid(), "sticky until a seek");
        assert!(all.iter().map(|(key, _)| key).zip(&seen).all(|(a, b)| a == b));
        iter.seek_to_first().unwrap();
        assert!(iter.valid());
    }
}

/// A memtable that entries come into: its second positioning, and every later one, sees those of `later` too.
struct Growing {
    now: VecIterator,
    later: Vec<Entry>,
    positionings: u32,
}

impl Growing {
    fn position(&mut self, movement: impl FnOnce(&mut VecIterator) -> Result<()>) -> Result<()> {
        self.positionings += 1;
        movement(&mut self.now)?;
        // What comes after this call is there for the next one; the place stays where it is.
        if self.positionings == 2 && !self.now.valid() {
            self.now = VecIterator::new(std::mem::take(&mut self.later));
        }
        Ok(())
    }
}

impl InternalIterator for Growing {
    fn seek_to_first(&mut self) -> Result<()> {
        self.position(VecIterator::seek_to_first)
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.position(VecIterator::seek_to_last)
    }

    fn seek(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.position(|now| now.seek(target))
    }

    fn seek_for_prev(&mut self, target: InternalKeyRef<'_>) -> Result<()> {
        self.position(|now| now.seek_for_prev(target))
    }

    fn next(&mut self) -> Result<()> {
        self.now.next()
    }

    fn prev(&mut self) -> Result<()> {
        self.now.prev()
    }

    fn valid(&self) -> bool {
        self.now.valid()
    }

    fn key(&self) -> InternalKeyRef<'_> {
        self.now.key()
    }

    fn value(&self) -> &[u8] {
        self.now.value()
    }
}

/// Entries that come into a child while the merge turns don't take it back over what it has passed: a cursor that seeks
/// past the versions of a key would go on from there. Found with real threads. Mutation: `turn` seeks, and then goes to
/// the child's last entry.
#[test]
fn a_turn_does_not_meet_what_comes_meanwhile() {
    let child = |now: &[Entry], later: &[Entry]| Growing {
        now: VecIterator::new(now.to_vec()),
        later: later.to_vec(),
        positionings: 0,
    };
    let fixed = child(&[entry("a", 1), entry("c", 1), entry("e", 1)], &[]);
    let growing = child(&[], &[entry("d", 9), entry("z", 8)]);
    let mut merged = MergingIterator::new(vec![growing, fixed]);
    merged.seek_to_first().unwrap();
    merged.next().unwrap();
    assert_eq!(merged.key().user_key, b"c");
    merged.prev().unwrap();
    assert_eq!(merged.key().user_key, b"a");
    merged.prev().unwrap();
    assert!(!merged.valid());
}
