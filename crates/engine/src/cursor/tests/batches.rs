//! Batches beside the steps of a plain cursor.

use super::super::{Batch, Cursor, Place};
use crate::bounds::Bounds;
use crate::{Components, Db, Options};
use esker_base::SplitMix64;
use esker_testkit::Coverage;
use esker_vfs::{CallKind, Fault, FaultVfs, MemVfs};
use std::ops::Bound;
use std::sync::Arc;

/// Keys of some shape: without a prefix in common, with a short or a long one; of one length or of many, some very long.
fn keys(shape: u64, rng: &mut SplitMix64) -> Vec<Vec<u8>> {
    let bytes = |rng: &mut SplitMix64, len: u64| (0..len).map(|_| rng.below(256) as u8).collect::<Vec<u8>>();
    let mut keys: Vec<Vec<u8>> = (0..1200)
        .map(|number| match shape {
            0 => bytes(rng, 16),
            1 => {
                let len = 1 + rng.below(40);
                bytes(rng, len)
            }
            2 => format!("p{number:05}").into_bytes(),
            3 => [&[b'p'; 40][..], format!("{number:05}").as_bytes()].concat(),
            4 => {
                let len = 1 + rng.below(60);
                [&[b'p'; 20][..], &bytes(rng, len)].concat()
            }
            _ => {
                let len = if rng.percent(3) { 300 } else { 1 + rng.below(20) };
                [&b"p"[..], &bytes(rng, len)].concat()
            }
        })
        .collect();
    keys.sort_unstable();
    keys
}

fn write(db: &Db, rng: &mut SplitMix64, key: &[u8], puts: u64) {
    if rng.percent(puts) {
        let len = if rng.percent(2) { 5_000 } else { rng.below(60) };
        db.put(key, vec![rng.below(256) as u8; len as usize]).unwrap();
    } else {
        db.delete(key).unwrap();
    }
}

/// Most keys at the bottom, some changes above.
fn fill(db: &Db, keys: &[Vec<u8>], rng: &mut SplitMix64) {
    for key in keys {
        write(db, rng, key, 92);
    }
    if rng.percent(80) {
        db.compact_range::<&[u8], _>(..).unwrap();
    }
    for _ in 0..rng.below(4) {
        let (start, near) = (rng.below(keys.len() as u64), rng.percent(50));
        for number in 0..rng.below(40) {
            let at = if near { start + number } else { rng.below(keys.len() as u64) };
            write(db, rng, &keys[at as usize % keys.len()], 70);
        }
        if rng.percent(60) {
            db.flush().unwrap();
        }
    }
}

fn bounds(keys: &[Vec<u8>], rng: &mut SplitMix64) -> Bounds {
    let third = keys.len() as u64 / 3;
    let mut bound = |from| match rng.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(keys[(from + rng.below(third)) as usize].clone()),
        _ => Bound::Excluded(keys[(from + rng.below(third)) as usize].clone()),
    };
    Bounds { lower: bound(0), upper: bound(2 * third) }
}

fn entry(cursor: &Cursor) -> Option<(&[u8], &[u8])> {
    cursor.valid().then(|| (cursor.key(), cursor.value()))
}

/// What a batch is must be what a cursor shows that steps as often.
fn check(batch: &Batch<'_>, plain: &mut Cursor, forward: bool, most: usize) {
    assert!(batch.len() <= most);
    assert_eq!(batch.is_empty(), !plain.valid() || most == 0);
    assert!(batch.keys().eq(batch.iter().map(|(key, _)| key)));
    assert!(batch.values().rev().eq(batch.iter().rev().map(|(_, value)| value)));
    for found in batch.iter() {
        assert_eq!(Some(found), entry(plain));
        if forward { plain.next() } else { plain.prev() }.unwrap();
    }
}

/// Batches of all sizes, both ways, between seeks and steps, within bounds and snapshots, while others write and flush.
/// Fails when a batch goes on over an entry of another source or a bound, in the wrong order, or when the cursor does not
/// go on behind it.
#[test]
fn batches_are_what_steps_show() {
    let mut coverage = Coverage::default();
    for seed in 0..48 {
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let keys = keys(seed % 6, &mut rng);
        let block_size = [256, 1024, 4096][rng.below(3) as usize];
        let options = Options::new().block_size(block_size).table_size(16 << 10).l0_trigger(8);
        let (options, components) = Components::in_memory(seed, options);
        let db = Db::open_with("/db", options, components).unwrap();
        fill(&db, &keys, &mut rng);
        let snapshot = db.snapshot();
        for _ in 0..rng.below(100) {
            let at = rng.below(1200) as usize;
            write(&db, &mut rng, &keys[at], 90);
        }
        if rng.percent(30) {
            db.compact_range::<&[u8], _>(..).unwrap();
        }
        for _ in 0..4 {
            let seq = rng.percent(50).then_some(snapshot.sequence());
            let bounds = bounds(&keys, &mut rng);
            let mut cursor = Cursor::new(&Arc::clone(&db.handle), bounds, seq).unwrap();
            let mut plain = cursor.twin().unwrap();
            let (mut forward, turns) = (rng.percent(50), 1 + rng.below(20));
            for _ in 0..120 {
                forward ^= rng.percent(turns);
                let key = &keys[rng.below(1200) as usize];
                match rng.below(50) {
                    0 => (cursor.seek(key).unwrap(), plain.seek(key).unwrap()),
                    1 => (cursor.seek_for_prev(key).unwrap(), plain.seek_for_prev(key).unwrap()),
                    2..10 if forward => (cursor.next().unwrap(), plain.next().unwrap()),
                    2..10 => (cursor.prev().unwrap(), plain.prev().unwrap()),
                    _ if cursor.valid() => {
                        let most = if rng.percent(70) { usize::MAX } else { rng.below(20) as usize };
                        let in_run = cursor.place == Place::InRun;
                        let read = |batch: &Batch<'_>| {
                            coverage.hit(match (forward, batch.kind()) {
                                (true, "run") => "run forward",
                                (false, "run") => "run backward",
                                (true, "copies") if in_run => "copies in a run",
                                (true, "copies") => "copies forward",
                                (false, "copies") => "copies backward",
                                _ => "a large value",
                            });
                            check(batch, &mut plain, forward, most);
                        };
                        if forward { cursor.next_batch(most, read) } else { cursor.prev_batch(most, read) }
                            .unwrap();
                        ((), ())
                    }
                    _ if forward => (cursor.seek_to_first().unwrap(), plain.seek_to_first().unwrap()),
                    _ => (cursor.seek_to_last().unwrap(), plain.seek_to_last().unwrap()),
                };
                assert_eq!(entry(&cursor), entry(&plain));
                if rng.percent(3) {
                    let at = rng.below(1200) as usize;
                    write(&db, &mut rng, &keys[at], 70);
                }
            }
            if rng.percent(30) {
                db.flush().unwrap();
            }
        }
    }
    let kinds = ["run forward", "run backward", "copies forward", "copies backward", "copies in a run"];
    coverage.demand(&kinds);
    coverage.demand(&["a large value"]);
}

/// A batch at the end is empty, and one after a close an error that stays.
#[test]
fn ends_and_errors_are_told_apart() {
    let db = Db::in_memory().unwrap();
    db.put("a", "1").unwrap();
    db.put("b", "2").unwrap();
    let mut cursor = db.cursor().unwrap();
    assert_eq!(cursor.next_batch(9, |batch| batch.len()).unwrap(), 0);
    cursor.seek_to_first().unwrap();
    assert_eq!(cursor.next_batch(0, |batch| batch.len()).unwrap(), 0);
    assert_eq!(cursor.next_batch(1, |batch| batch.get(0).0.to_vec()).unwrap(), b"a");
    assert_eq!(cursor.prev_batch(9, |batch| batch.len()).unwrap(), 2);
    assert_eq!(cursor.prev_batch(9, |batch| batch.len()).unwrap(), 0);
    cursor.seek_to_first().unwrap();
    db.close().unwrap();
    for _ in 0..2 {
        let mut read = false;
        cursor.next_batch(9, |_| read = true).unwrap_err();
        assert!(!read && !cursor.valid());
    }
}

/// A block that can't be read ends a scan by batches with an error, behind the entries before it; the error stays, and a
/// seek tries anew.
#[test]
fn a_block_that_cannot_be_read_is_no_end() {
    let vfs = FaultVfs::over_mem(&MemVfs::new());
    let (options, components) = Components::in_memory(3, Options::new().block_size(512).cache_size(0));
    let components = Components { vfs: Arc::new(vfs.clone()), ..components };
    let db = Db::open_with("/db", options, components).unwrap();
    for number in 0..1000 {
        db.put(format!("{number:04}"), "some value").unwrap();
    }
    db.compact_range::<&[u8], _>(..).unwrap();
    for forward in [true, false] {
        let mut cursor = db.cursor().unwrap();
        let first =
            |cursor: &mut Cursor| if forward { cursor.seek_to_first() } else { cursor.seek_to_last() };
        let batch = |cursor: &mut Cursor, count: &mut usize| {
            let read = |batch: &Batch<'_>| *count += batch.len();
            if forward { cursor.next_batch(99, read) } else { cursor.prev_batch(99, read) }
        };
        first(&mut cursor).unwrap();
        vfs.arm(Fault::nth(3).kind(CallKind::Read).path_suffix(".sst").forever());
        let mut count = 0;
        let error = loop {
            assert!(cursor.valid(), "an error is no end");
            if let Err(error) = batch(&mut cursor, &mut count) {
                break error;
            }
        };
        vfs.disarm();
        assert!((1..1000).contains(&count) && !cursor.valid());
        let mut more = 0;
        assert_eq!(batch(&mut cursor, &mut more).unwrap_err().to_string(), error.to_string());
        assert_eq!(more, 0);
        first(&mut cursor).unwrap();
        while cursor.valid() {
            batch(&mut cursor, &mut more).unwrap();
        }
        assert_eq!(more, 1000);
    }
}
