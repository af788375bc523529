//! IT: iterators and cursors.

use std::ops::Bound;

use esker::vfs::CrashMode;
use esker::{Cursor, Db, Options, Snapshot};
use esker_base::SplitMix64;
use esker_testkit::{Model, ModelCursor, Move, WriteOp};

use crate::support::{Rig, key, small, value, write};

fn put(key: &str, value: &str) -> WriteOp {
    WriteOp::Put(key.into(), value.into())
}

fn delete(key: &str) -> WriteOp {
    WriteOp::Delete(key.into())
}

/// A database and its model, side by side, with snapshots of both.
struct Pair {
    db: Db,
    model: Model,
    snapshots: Vec<(Snapshot, u64)>,
}

impl Pair {
    fn new(options: &Options) -> Self {
        Pair { db: Rig::new().open_inline(options).unwrap(), model: Model::new(), snapshots: Vec::new() }
    }

    fn write(&mut self, op: WriteOp) {
        write(&self.db, std::slice::from_ref(&op), esker_testkit::Promise::Default).unwrap();
        self.model.apply(&[op]);
    }

    fn snapshot(&mut self) {
        self.snapshots.push((self.db.snapshot(), self.model.snapshot()));
    }

    /// A cursor on the present, or on a snapshot, with that of the model.
    fn cursor(&self, snapshot: Option<usize>) -> (Cursor, ModelCursor) {
        match snapshot.map(|index| &self.snapshots[index]) {
            Some((snapshot, at)) => (snapshot.cursor().unwrap(), ModelCursor::new(*at)),
            None => (self.db.cursor().unwrap(), ModelCursor::new(self.model.now())),
        }
    }

    fn apply(&self, (cursor, wanted): &mut (Cursor, ModelCursor), step: &Move) {
        match step {
            Move::First => cursor.seek_to_first(),
            Move::Last => cursor.seek_to_last(),
            Move::Next => cursor.next(),
            Move::Prev => cursor.prev(),
            Move::Seek(key) => cursor.seek(key),
            Move::SeekForPrev(key) => cursor.seek_for_prev(key),
        }
        .unwrap();
        wanted.apply(step, &self.model);
        let found = cursor.valid().then(|| (cursor.key(), cursor.value()));
        assert_eq!(found, wanted.entry(&self.model), "after {step:?}");
    }

    /// All views: the present and each snapshot.
    fn views(&self) -> impl Iterator<Item = Option<usize>> + use<> {
        [None].into_iter().chain((0..self.snapshots.len()).map(Some))
    }
}

/// Every sequence of `depth` moves from `moves`, after every prefix of which the cursor agrees with the model.
fn exhaust(pair: &Pair, view: Option<usize>, moves: &[Move], depth: u32) -> u64 {
    let count = moves.len() as u64;
    let mut done = 0;
    for mut number in 0..count.pow(depth) {
        let mut cursor = pair.cursor(view);
        for _ in 0..depth {
            pair.apply(&mut cursor, &moves[(number % count) as usize]);
            number /= count;
        }
        done += 1;
    }
    done
}

/// IT01. Every sequence of moves over keys that are overwritten and deleted in three sources: all short ones from a new
/// cursor, and from each place all that change the direction. Mutation: `prev` uses the heap of `next`.
#[test]
fn it01_every_short_sequence_of_moves() {
    let mut pair = Pair::new(&small().l0_trigger(8));
    ["a", "b", "c", "d", "e", "f"].into_iter().for_each(|key| pair.write(put(key, "1")));
    pair.db.flush().unwrap();
    [put("c", "2"), delete("b"), delete("d")].into_iter().for_each(|op| pair.write(op));
    pair.db.flush().unwrap();
    pair.write(put("e", "3"));
    let seeks = ["a", "b", "c", "d", "e", "f", "g"]
        .map(|key| [Move::Seek(key.into()), Move::SeekForPrev(key.into())]);
    let mut moves = vec![Move::First, Move::Last, Move::Next, Move::Prev];
    moves.extend(seeks.into_iter().flatten());
    assert_eq!(exhaust(&pair, None, &moves, 3), 18_u64.pow(3));
    // From every start, every turn of directions.
    for start in &moves {
        for mut turns in 0..1_u32 << 7 {
            let mut cursor = pair.cursor(None);
            pair.apply(&mut cursor, start);
            for _ in 0..7 {
                pair.apply(&mut cursor, if turns & 1 == 0 { &Move::Next } else { &Move::Prev });
                turns >>= 1;
            }
        }
    }
}

/// IT03. Changes of direction where the versions of a key lie in several sources, at every snapshot. Mutation: after a
/// turn, the sources that stand on the present key are not moved over it.
#[test]
fn it03_a_change_of_direction_among_versions() {
    let mut pair = Pair::new(&small().l0_trigger(8));
    pair.write(put("A", "1"));
    pair.db.compact_range::<&[u8], _>(..).unwrap();
    pair.snapshot();
    pair.write(put("B", "1"));
    pair.snapshot();
    pair.write(put("A", "2"));
    pair.db.flush().unwrap();
    pair.snapshot();
    pair.write(put("A", "3"));
    pair.snapshot();
    pair.write(put("B", "2"));
    let moves: Vec<Move> = [Move::Next, Move::Prev, Move::First, Move::Last]
        .into_iter()
        .chain(["", "A", "B", "C"].map(|key| Move::Seek(key.into())))
        .chain(["A", "B"].map(|key| Move::SeekForPrev(key.into())))
        .collect();
    for view in pair.views() {
        assert_eq!(exhaust(&pair, view, &moves, 4), 10_u64.pow(4));
    }
}

/// IT06. Inverted bounds with much data between them, on tables of many blocks. Mutation: `start > end` is not looked at
/// before the scan.
#[test]
fn it06_inverted_bounds_far_apart() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    (0..3000_u64).for_each(|number| db.put(key(number), value(number, 60)).unwrap());
    let before = db.stats().last_sequence;
    for (lower, upper) in [(2500_u64, 10_u64), (2999, 0), (11, 10), (5000, 3)] {
        let bounds = [Bound::Included(key(lower)), Bound::Excluded(key(lower))];
        for lower in bounds {
            let range = (lower, Bound::Included(key(upper)));
            assert_eq!(db.range::<Vec<u8>, _>(range.clone()).count(), 0);
            assert_eq!(db.range::<Vec<u8>, _>(range.clone()).rev().count(), 0);
            db.compact_range::<Vec<u8>, _>(range).unwrap();
        }
    }
    assert_eq!((db.iter().count(), db.stats().last_sequence), (3000, before));
}

/// IT07, IT10. One key with 200 versions over many blocks, in the memtable, in level 0 and at the bottom: every snapshot
/// sees its own, in every way to read. Mutation: the search of the index stops at any block whose first key is the target.
#[test]
fn it07_one_key_in_many_blocks() {
    let mut pair = Pair::new(&small().memtable_size(1 << 20).wal_segment_size(1 << 20));
    for number in 0..200_u64 {
        pair.write(WriteOp::Put(b"k".to_vec(), value(number, 40)));
        pair.snapshot();
    }
    pair.write(put("j", "before"));
    pair.write(put("l", "after"));
    for place in ["memtable", "level 0", "bottom"] {
        match place {
            "memtable" => {}
            "level 0" => pair.db.flush().unwrap(),
            _ => pair.db.compact_range::<&[u8], _>(..).unwrap(),
        }
        for (number, (snapshot, _)) in pair.snapshots.iter().enumerate() {
            assert_eq!(snapshot.get("k").unwrap().unwrap(), value(number as u64, 40), "{place}");
        }
        for view in pair.views() {
            let mut cursor = pair.cursor(view);
            for step in [Move::Seek(b"k".to_vec()), Move::Prev, Move::Last, Move::Prev, Move::Next] {
                pair.apply(&mut cursor, &step);
            }
            pair.apply(&mut cursor, &Move::SeekForPrev(b"k".to_vec()));
            pair.apply(&mut cursor, &Move::Next);
        }
    }
}

/// IT09. One key in five sources, compacted with no snapshot, with the oldest, and with all held: the newest wins, and
/// every held snapshot keeps its version. Mutation: the merge breaks ties towards the lowest sequence number.
#[test]
fn it09_newest_wins_among_five_sources() {
    for held in ["none", "oldest", "all"] {
        let mut pair = Pair::new(&small().l0_trigger(64));
        for number in 0..5_u64 {
            pair.write(WriteOp::Put(b"k".to_vec(), value(number, 20)));
            if held == "all" || (held == "oldest" && number == 0) {
                pair.snapshot();
            }
            if number < 4 {
                pair.db.flush().unwrap();
            }
        }
        assert_eq!(pair.db.stats().levels[0].tables, 4);
        for _ in 0..2 {
            assert_eq!(pair.db.get("k").unwrap().unwrap(), value(4_u64, 20));
            for (number, (snapshot, _)) in pair.snapshots.iter().enumerate() {
                assert_eq!(snapshot.get("k").unwrap().unwrap(), value(number as u64, 20), "{held} held");
            }
            pair.db.compact_range::<&[u8], _>(..).unwrap();
        }
        let entries: u64 = pair.db.stats().levels.iter().map(|level| level.entries).sum();
        let wanted = match held {
            "none" => 1,
            "oldest" => 2,
            _ => 5,
        };
        assert_eq!(entries, wanted, "{held} held: more is kept than is needed");
    }
}

/// IT11. Whole blocks of which nothing is visible, now or at an old snapshot, in both directions. Mutation: a backward
/// step ends at a block in which every entry is hidden.
#[test]
fn it11_blocks_in_which_nothing_is_visible() {
    let mut pair = Pair::new(&small().memtable_size(1 << 20).wal_segment_size(1 << 20).l0_trigger(8));
    pair.write(put("k000000", "old"));
    pair.snapshot();
    for number in 0..1000_u64 {
        pair.write(WriteOp::Put(key(number), value(number, 30)));
    }
    pair.db.flush().unwrap();
    for number in 300..700_u64 {
        pair.write(WriteOp::Delete(key(number)));
    }
    for place in ["memtable", "level 0", "compacted"] {
        match place {
            "memtable" => {}
            "level 0" => pair.db.flush().unwrap(),
            _ => pair.db.compact_range(key(200_u64)..key(500_u64)).unwrap(),
        }
        assert_eq!(pair.db.iter().count(), 600, "{place}");
        assert_eq!(pair.db.iter().rev().count(), 600, "{place} backward");
        assert_eq!(pair.snapshots[0].0.iter().count(), 1, "{place}, at the snapshot");
        assert_eq!(pair.snapshots[0].0.iter().rev().count(), 1, "{place}, at the snapshot, backward");
        let mut cursor = pair.cursor(None);
        for step in
            [Move::Seek(key(500_u64)), Move::Prev, Move::Next, Move::SeekForPrev(key(500_u64)), Move::Next]
        {
            pair.apply(&mut cursor, &step);
        }
    }
}

/// IT13, FI07. One cursor for 1,000 seeks up and down, present and absent keys, with filters: equal to a new cursor each
/// time and to the model. Mutation: a seek to a smaller key starts from the present position.
#[test]
fn it13_a_reused_cursor_equals_a_new_one() {
    let mut pair = Pair::new(&small());
    let mut rng = SplitMix64::new(13);
    for number in 0..2000_u64 {
        pair.write(WriteOp::Put(key(rng.below(700) * 3), value(number, 30)));
        if rng.percent(2) {
            pair.write(WriteOp::Delete(key(rng.below(700) * 3)));
        }
    }
    let mut reused = pair.cursor(None);
    let mut at = 0;
    for _ in 0..1000 {
        // Slides forward and now and then jumps back.
        at = if rng.percent(15) { rng.below(2100) } else { (at + rng.below(9)) % 2100 };
        let step = if rng.percent(50) { Move::Seek(key(at)) } else { Move::SeekForPrev(key(at)) };
        pair.apply(&mut reused, &step);
        pair.apply(&mut pair.cursor(None), &step);
        for _ in 0..rng.below(4) {
            pair.apply(&mut reused, if rng.percent(50) { &Move::Next } else { &Move::Prev });
        }
    }
}

/// IT14. Moves past both ends and back. Mutation: `next` on a cursor at its end moves its sources.
#[test]
fn it14_moves_past_both_ends() {
    let mut pair = Pair::new(&small());
    (0..100_u64).for_each(|number| pair.write(WriteOp::Put(key(number), value(number, 200))));
    let mut cursor = pair.cursor(None);
    let drain = |cursor: &mut (Cursor, ModelCursor), step: &Move| {
        (0..103).for_each(|_| pair.apply(cursor, step));
    };
    pair.apply(&mut cursor, &Move::First);
    drain(&mut cursor, &Move::Next);
    pair.apply(&mut cursor, &Move::Prev);
    assert!(!cursor.0.valid(), "past its end a cursor is nowhere, and stays so");
    pair.apply(&mut cursor, &Move::Last);
    drain(&mut cursor, &Move::Prev);
    pair.apply(&mut cursor, &Move::Next);
    assert!(!cursor.0.valid());
    for step in
        [Move::Seek(key(50_u64)), Move::Next, Move::Seek(key(500_u64)), Move::Prev, Move::First, Move::Prev]
    {
        pair.apply(&mut cursor, &step);
    }
    let mut iter = pair.db.iter();
    assert_eq!(iter.by_ref().count(), 100);
    assert!(iter.next().is_none() && iter.next_back().is_none());
}

/// IT16. A damaged block in the middle: the error is the last item of an iterator, and stays with a cursor until it seeks.
/// Mutation: after an error, `next` goes on behind the damage.
#[test]
fn it16_an_error_is_sticky() {
    let rig = Rig::new();
    let options = small().memtable_size(1 << 20).wal_segment_size(1 << 20).table_size(1 << 20).cache_size(0);
    let db = rig.open_inline(&options).unwrap();
    (0..500_u64).for_each(|number| db.put(key(number), value(number, 30)).unwrap());
    db.flush().unwrap();
    db.close().unwrap();
    let name = rig.names(".sst").pop().unwrap();
    let middle = rig.read(&name).len() as u64 / 2;
    rig.mem.flip(rig.path(&name), middle, 0x40).unwrap();
    let rig = Rig::on(rig.mem.crash_clone_with(CrashMode::Keep));
    let db = rig.open_inline(&options).unwrap();
    for backward in [false, true] {
        let mut iter = db.iter();
        let mut step = || if backward { iter.next_back() } else { iter.next() };
        let mut good = 0_u64;
        let error = loop {
            match step().expect("the error comes before the end") {
                Ok((found, _)) => {
                    assert_eq!(found, key(if backward { 499 - good } else { good }));
                    good += 1;
                }
                Err(error) => break error,
            }
        };
        assert!(error.is_corruption() && good > 50, "{error} after {good}");
        assert!((0..100).all(|_| step().is_none()), "something comes after the error");
        let mut cursor = db.cursor().unwrap();
        if backward {
            cursor.seek_to_last().unwrap()
        } else {
            cursor.seek_to_first().unwrap()
        }
        while if backward { cursor.prev() } else { cursor.next() }.is_ok() {
            assert!(cursor.valid(), "the cursor ended without the error");
        }
        for _ in 0..100 {
            assert!(!cursor.valid());
            cursor.next().unwrap_err();
            cursor.prev().unwrap_err();
        }
        cursor.seek(key(3_u64)).unwrap();
        assert_eq!(cursor.key(), key(3_u64));
        cursor.next().unwrap();
        assert_eq!(cursor.key(), key(4_u64));
        let good_items = db.iter().filter_map(Result::ok).count();
        assert!(good_items < 500, "a scan without its errors looks whole");
    }
}

/// IT17. Keys behind shared prefixes of every length, and needles around each of them. Mutation: a prefix-compressed key
/// is compared without its prefix.
#[test]
fn it17_shared_prefixes_of_every_length() {
    let ends: [&[u8]; 7] = [b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff", b"\xff\xff"];
    for len in [0, 1, 2, 7, 8, 9, 15, 16, 31, 63, 64] {
        let prefix: Vec<u8> =
            (0..len).map(|at| if at % 5 == 4 { 0xff } else { b'a' + at as u8 % 20 }).collect();
        let mut pair = Pair::new(&small().block_size(4096).restart_interval(3));
        for (number, end) in ends.iter().enumerate() {
            pair.write(WriteOp::Put([&prefix[..], end].concat(), value(number as u64, 10)));
        }
        let mut needles: Vec<Vec<u8>> = (0..=len).map(|cut| prefix[..cut].to_vec()).collect();
        for end in ends {
            let key = [&prefix[..], end].concat();
            needles.push([&key[..], b"\0"].concat());
            needles.push([&key[..], &[0xff; 80]].concat());
            for by in [1, 0xff] {
                let mut near = key.clone();
                if let Some(last) = near.last_mut() {
                    *last = last.wrapping_add(by);
                }
                needles.push(near);
            }
            needles.push(key);
        }
        for flushed in [false, true] {
            if flushed {
                pair.db.compact_range::<&[u8], _>(..).unwrap();
            }
            for needle in &needles {
                assert_eq!(pair.db.get(needle).unwrap().as_deref(), pair.model.get(needle, pair.model.now()));
                let wanted = pair.model.range(&esker_testkit::prefix_range(needle), pair.model.now()).count();
                assert_eq!(pair.db.prefix(needle).count(), wanted, "prefix {needle:?}");
                let mut cursor = pair.cursor(None);
                pair.apply(&mut cursor, &Move::Seek(needle.clone()));
                pair.apply(&mut cursor, &Move::Prev);
                pair.apply(&mut cursor, &Move::SeekForPrev(needle.clone()));
                pair.apply(&mut cursor, &Move::Next);
            }
        }
    }
}
