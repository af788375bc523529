//! What stays in the cache and what goes, tables that go, and many threads.

use super::*;
use crate::block_builder::BlockBuilder;
use esker_base::{InternalKeyRef, SplitMix64, ValueKind};

/// A block of about 1,000 bytes, which holds `number`.
fn block(number: usize) -> Arc<CachedBlock> {
    let mut builder = BlockBuilder::new(16);
    let value = [&number.to_string().into_bytes()[..], &[b'.'; 1000]].concat();
    builder.add(0, InternalKeyRef::new(b"key", 0, ValueKind::Put), &value);
    Arc::new(CachedBlock::new(builder.finish(), 7, false, &mut Workbench::default()).unwrap())
}

/// A read as a table does it: whether the block was there.
fn read(slots: &Arc<Slots>, number: usize) -> bool {
    match slots.look(number).and_then(Guard::into_inner) {
        Some(found) => {
            found.hit();
            let Form::Image(image) = &found.form else { panic!("no image") };
            let spot = image.spot(0).unwrap();
            assert!(image.value(&spot).starts_with(format!("{number}.").as_bytes()), "another block");
            true
        }
        None => {
            slots.missed();
            slots.insert(number, block(number));
            false
        }
    }
}

/// Every block that the places have is counted, and nothing else.
fn check_sums(cache: &BlockCache, tables: &[Arc<Slots>]) {
    let (mut bytes, mut blocks) = (0, 0);
    for slots in tables {
        for place in &slots.blocks {
            if let Some(block) = &*place.load() {
                bytes += block.weight();
                blocks += 1;
            }
        }
    }
    let stats = cache.stats();
    assert_eq!((stats.bytes, stats.blocks), (bytes, blocks));
    assert!(bytes <= cache.capacity());
}

/// Hot blocks stay while a scan goes by that is many times the cache: at most 5 of 100 have to be read again.
///
/// Fails when what comes in drives out what is used, as in a queue without a second look.
#[test]
fn a_scan_leaves_hot_blocks_alone() {
    let cache = Arc::new(BlockCache::new(200 * 1200));
    let (hot, cold) = (Slots::new(&cache, 100), Slots::new(&cache, 5000));
    for _ in 0..4 {
        for number in 0..100 {
            read(&hot, number);
        }
    }
    let mut again = 0;
    for number in 0..5000 {
        read(&cold, number);
        again += usize::from(!read(&hot, number % 100));
    }
    assert!(again <= 5, "{again} of 5000 reads of hot blocks missed");
    check_sums(&cache, &[hot, cold]);
}

/// A working set that moves is followed. Fails when old blocks are never looked at again.
#[test]
fn new_hot_blocks_take_the_place_of_former_ones() {
    let cache = Arc::new(BlockCache::new(100 * 1200));
    let slots = Slots::new(&cache, 1000);
    for start in [0, 200, 400, 600] {
        let mut rng = SplitMix64::new(start as u64);
        let mut missed = 0;
        for round in 0..4000 {
            let hit = read(&slots, start + rng.below(80) as usize);
            missed += usize::from(!hit && round >= 3000);
        }
        assert!(missed <= 50, "{missed} of 1000 reads missed from {start}");
    }
    check_sums(&cache, &[slots]);
}

/// The bytes of a table go with it, and the tickets of many such tables do not pile up.
///
/// Fails when `Drop` leaves the sums alone, or the queues keep what is gone.
#[test]
fn a_table_takes_its_blocks_with_it() {
    let cache = Arc::new(BlockCache::new(1 << 20));
    let stays = Slots::new(&cache, 10);
    for number in 0..10 {
        read(&stays, number);
    }
    for _ in 0..200 {
        let slots = Slots::new(&cache, 50);
        for number in 0..50 {
            read(&slots, number);
        }
        slots.remove(7);
        assert!(!read(&slots, 7) && read(&slots, 7));
    }
    check_sums(&cache, std::slice::from_ref(&stays));
    let tickets = |queues: &Queues| queues.young.len() + queues.old.len();
    assert!(cache.shards.iter().all(|shard| tickets(&shard.queues.lock()) <= 1200));
    assert_eq!(cache.stats().misses, 10 + 200 * 51);
    assert_eq!(cache.stats().hits, 200);
    cache.clear();
    check_sums(&cache, &[stays]);
    assert_eq!(cache.stats().blocks, 0);
}

/// A smaller limit holds at once, and what is in use stays; with a larger one as much is kept as before.
///
/// Mutation: `set_capacity` leaves it to the next block that comes in.
#[test]
fn the_capacity_can_change() {
    let cache = Arc::new(BlockCache::new(16 << 20));
    let slots = Slots::new(&cache, 12_000);
    for _ in 0..2 {
        for number in 0..2000 {
            read(&slots, number);
        }
    }
    let hot: Vec<usize> = (0..100).collect();
    for _ in 0..3 {
        assert!(hot.iter().all(|&number| read(&slots, number)));
    }
    cache.set_capacity(1 << 20);
    assert_eq!(cache.capacity(), 1 << 20);
    assert!(cache.bytes() > 900_000, "{}", cache.bytes());
    check_sums(&cache, std::slice::from_ref(&slots));
    cache.set_capacity(0);
    assert_eq!((cache.bytes(), cache.stats().blocks), (0, 0));
    assert!(!read(&slots, 1) && !read(&slots, 1), "kept with a capacity of 0");
    cache.set_capacity(4 << 20);
    for number in 0..12_000 {
        read(&slots, number);
    }
    assert!(cache.bytes() > 4_000_000, "{}", cache.bytes());
    check_sums(&cache, &[slots]);
    let nothing = Arc::new(BlockCache::new(0));
    nothing.set_capacity(1 << 20);
    assert_eq!(nothing.capacity(), 0);
}

/// Random reads, removals and tables that go: the sums are right after each.
#[test]
fn the_sums_are_right_after_any_operations() {
    for seed in 0..20 {
        println!("seed {seed}");
        let mut rng = SplitMix64::new(seed);
        let cache = Arc::new(BlockCache::new([500, 3000, 20_000, 1 << 20][rng.below(4) as usize]));
        let mut tables: Vec<_> = (0..3).map(|_| Slots::new(&cache, 30)).collect();
        for _ in 0..600 {
            let table = rng.below(3) as usize;
            let number = rng.below(30) as usize;
            match rng.below(40) {
                0 => tables[table] = Slots::new(&cache, 30),
                1 => tables[table].remove_all(),
                2 => cache.clear(),
                3 => tables[table].heal(number),
                4 => tables[table].insert(number, block(number)),
                5 => cache.set_capacity([100, 2500, 30_000][rng.below(3) as usize]),
                _ => {
                    read(&tables[table], number);
                }
            }
            check_sums(&cache, &tables);
        }
    }
}

/// Threads over a cache that is too small for them get what they asked for, and the sums are right in the end.
#[test]
#[allow(clippy::disallowed_methods, reason = "threads of a test")]
fn threads_get_their_own_blocks() {
    let cache = Arc::new(BlockCache::new(30 * 1200));
    let tables: Vec<_> = (0..2).map(|_| Slots::new(&cache, 60)).collect();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let tables = &tables;
            let cache = &cache;
            scope.spawn(move || {
                let mut rng = SplitMix64::new(seed);
                for round in 0..5000 {
                    let slots = &tables[rng.below(2) as usize];
                    read(slots, rng.below(60) as usize);
                    if round % 500 == 0 {
                        slots.remove(rng.below(60) as usize);
                        assert!(cache.stats().blocks <= 30);
                        let short = Slots::new(cache, 5);
                        for number in 0..5 {
                            read(&short, number);
                        }
                    }
                }
            });
        }
    });
    check_sums(&cache, &tables);
}
