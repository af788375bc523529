//! Cursors that go over blocks alone, beside the model, and turns among keys that are newer than the cursor.

use super::{Cursor, Place};
use crate::bounds::Bounds;
use crate::{Components, Db, Options};
use esker_base::SplitMix64;
use esker_testkit::{Coverage, Model, ModelCursor, Move, WriteOp};
use std::ops::Bound;
use std::sync::Arc;

mod batches;

const KEYS: u64 = 1500;

/// A database of some shape, with its model.
struct Pair {
    db: Db,
    model: Model,
    prefix: Vec<u8>,
    writes: u64,
}

impl Pair {
    fn new(seed: u64, rng: &mut SplitMix64) -> Self {
        let block_size = [256, 1024, 4096][rng.below(3) as usize];
        let options = Options::new().block_size(block_size).table_size(16 << 10).l0_trigger(8);
        let (options, components) = Components::in_memory(seed, options);
        let db = Db::open_with("/db", options, components).unwrap();
        let prefix = vec![b'p'; [0, 3, 40][rng.below(3) as usize]];
        Pair { db, model: Model::new(), prefix, writes: 0 }
    }

    fn key(&self, number: u64) -> Vec<u8> {
        [&self.prefix[..], format!("{number:05}").as_bytes()].concat()
    }

    fn write(&mut self, number: u64, put: bool) {
        let key = self.key(number);
        self.writes += 1;
        let value = format!("{number} {}", self.writes).into_bytes();
        let op = if put { WriteOp::Put(key.clone(), value.clone()) } else { WriteOp::Delete(key.clone()) };
        self.model.apply(&[op]);
        if put { self.db.put(key, value) } else { self.db.delete(key) }.unwrap();
    }

    /// Most keys at the bottom, then some changes in level 0 and in the memtable, here and there or in one place.
    fn fill(&mut self, rng: &mut SplitMix64) {
        for number in 0..KEYS {
            if !rng.percent(10) {
                self.write(number, true);
            }
        }
        if rng.percent(70) {
            self.db.compact_range::<&[u8], _>(..).unwrap();
        }
        for _ in 0..rng.below(4) {
            let (start, near) = (rng.below(KEYS), rng.percent(50));
            for number in 0..rng.below(30) {
                let number = if near { (start + number) % KEYS } else { rng.below(KEYS) };
                self.write(number, !rng.percent(30));
            }
            if rng.percent(60) {
                self.db.flush().unwrap();
            }
        }
    }

    fn bounds(&self, rng: &mut SplitMix64) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let mut bound = |low, high| match rng.below(3) {
            0 => Bound::Unbounded,
            1 => Bound::Included(self.key(low + rng.below(high - low))),
            _ => Bound::Excluded(self.key(low + rng.below(high - low))),
        };
        (bound(0, KEYS / 3), bound(KEYS / 2, KEYS))
    }
}

fn step(cursor: &mut Cursor, wanted: &mut ModelCursor, model: &Model, step: &Move) {
    match step {
        Move::First => cursor.seek_to_first(),
        Move::Last => cursor.seek_to_last(),
        Move::Next => cursor.next(),
        Move::Prev => cursor.prev(),
        Move::Seek(key) => cursor.seek(key),
        Move::SeekForPrev(key) => cursor.seek_for_prev(key),
    }
    .unwrap();
    wanted.apply(step, model);
    let found = cursor.valid().then(|| (cursor.key(), cursor.value()));
    assert_eq!(found, wanted.entry(model), "after {step:?}");
    assert_eq!(cursor.value_slice(), found.map_or(&[][..], |(_, value)| value));
}

/// Walks of hundreds of steps with few turns, over all kinds of bounds and snapshots, while others write and flush. Fails
/// when a run goes on over an entry of another source, over a bound, beyond what its snapshot may see, or into the first
/// entry of a block going backward; when the block is not given back before a seek or a turn; and when the merge goes on
/// from where the run began.
#[test]
fn long_walks_agree_with_the_model() {
    let mut coverage = Coverage::default();
    for seed in 0..60 {
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let mut pair = Pair::new(seed, &mut rng);
        pair.fill(&mut rng);
        let snapshot = pair.db.snapshot();
        let at = pair.model.snapshot();
        // Single keys with two versions, which a compaction puts beside each other, at times in two blocks.
        for _ in 0..rng.below(100) {
            let number = rng.below(KEYS);
            pair.write(number, rng.percent(90));
        }
        if rng.percent(50) {
            pair.db.compact_range::<&[u8], _>(..).unwrap();
        }
        for _ in 0..6 {
            let old = rng.percent(50);
            let (lower, upper) = pair.bounds(&mut rng);
            let bounds = Bounds { lower: lower.clone(), upper: upper.clone() };
            let seq = old.then_some(snapshot.sequence());
            let version = if old { at } else { pair.model.snapshot() };
            let mut cursor = Cursor::new(&Arc::clone(&pair.db.handle), bounds, seq).unwrap();
            let mut wanted = ModelCursor::within((lower, upper), version);
            let (mut forward, turns) = (rng.percent(50), 1 + rng.below(20));
            for _ in 0..300 {
                if rng.percent(turns) {
                    forward = !forward;
                    coverage.hit(if cursor.place == Place::InRun { "turn in a run" } else { "turn" });
                }
                let target = pair.key(rng.below(KEYS));
                let next = match rng.below(100) {
                    0 => Move::Seek(target),
                    1 => Move::SeekForPrev(target),
                    _ if !cursor.valid() && forward => Move::First,
                    _ if !cursor.valid() => Move::Last,
                    _ if forward => Move::Next,
                    _ => Move::Prev,
                };
                step(&mut cursor, &mut wanted, &pair.model, &next);
                coverage.hit(match (cursor.place, forward) {
                    (Place::InRun, true) => "forward in a run",
                    (Place::InRun, false) => "backward in a run",
                    (_, true) => "forward",
                    (_, false) => "backward",
                });
                if rng.percent(3) {
                    let number = rng.below(KEYS);
                    pair.write(number, rng.percent(70));
                }
            }
            if rng.percent(30) {
                pair.db.flush().unwrap();
            }
        }
    }
    let kinds = ["turn in a run", "turn", "forward in a run", "backward in a run", "forward", "backward"];
    coverage.demand(&kinds);
}

/// A cursor goes back and then forward, over many keys that are newer than itself: the following key comes, not the
/// same one once more. Mutation: `next` steps on from before the key.
#[test]
fn it_turning_round_among_newer_keys_goes_on() {
    let db = Db::in_memory().unwrap();
    for key in ["a", "m", "z"] {
        db.put(key, "old").unwrap();
    }
    // In another source, so that the merge does not go on in entries that it has read ahead.
    db.flush().unwrap();
    db.put("b", "old").unwrap();
    let mut cursor = db.cursor().unwrap();
    cursor.seek_to_last().unwrap();
    cursor.prev().unwrap();
    assert_eq!(cursor.key(), b"m");
    for number in 0..20 {
        db.put(format!("c{number:02}"), "new").unwrap();
        db.put("m", format!("new {number}")).unwrap();
    }
    cursor.next().unwrap();
    assert_eq!((cursor.key(), cursor.value()), (&b"z"[..], &b"old"[..]));
    cursor.prev().unwrap();
    assert_eq!((cursor.key(), cursor.value()), (&b"m"[..], &b"old"[..]));
    cursor.prev().unwrap();
    assert_eq!(cursor.key(), b"b");
}
