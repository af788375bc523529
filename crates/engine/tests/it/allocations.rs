//! What reads allocate: nothing for a point read with a closure, and nothing for each entry of a scan.

use allocation_counter::measure;
use esker::{Background, Db, Options};

use crate::support::{Rig, key, value};

const ENTRIES: u64 = 4000;

fn loaded(options: &Options) -> (Rig, Db) {
    let rig = Rig::new();
    let db = rig.open_inline(options).unwrap();
    (0..ENTRIES).for_each(|number| db.put(key(2 * number), value(number, 40)).unwrap());
    (rig, db)
}

fn options() -> Options {
    Options::new().background(Background::Inline).seed(1).memtable_size(8 << 20)
}

/// Most allocations of one of many point reads of the keys, after one of each.
fn allocations_of_gets(db: &Db, keys: impl Iterator<Item = u64> + Clone) -> u64 {
    let keys: Vec<Vec<u8>> = keys.map(key).collect();
    let get = |key: &Vec<u8>| std::hint::black_box(db.get_with(key, <[u8]>::len).unwrap());
    for key in &keys {
        get(key);
    }
    keys.iter().map(|key| measure(|| assert!(get(key) != Some(1))).count_total).max().unwrap()
}

/// Mutation: `get` copies the value.
#[test]
fn get_with_allocates_nothing_in_the_memtable() {
    let (_rig, db) = loaded(&options());
    assert!(db.stats().tables() == 0 && db.get_with(key(2_u64), <[u8]>::len).unwrap() == Some(40));
    assert_eq!(allocations_of_gets(&db, (0..2000).map(|n| 2 * n)), 0, "hits");
    assert_eq!(allocations_of_gets(&db, (0..2000).map(|n| 2 * n + 1)), 0, "misses");
}

/// Mutation: a found block is copied out of the cache.
#[test]
fn get_with_allocates_nothing_in_cached_tables() {
    let (_rig, db) = loaded(&options());
    db.flush().unwrap();
    (0..ENTRIES / 4).for_each(|number| db.put(key(8 * number), value(number, 30)).unwrap());
    db.flush().unwrap();
    assert!(db.stats().tables() >= 2);
    assert_eq!(allocations_of_gets(&db, (0..2000).map(|n| 2 * n)), 0, "hits");
    assert_eq!(allocations_of_gets(&db, (0..2000).map(|n| 2 * n + 1)), 0, "misses");
    assert_eq!(allocations_of_gets(&db, ENTRIES * 2..ENTRIES * 2 + 100), 0, "beyond the last key");
    let keys: Vec<Vec<u8>> = (0..ENTRIES * 2).map(key).collect();
    let mut found = 0;
    let mut several = || db.multi_get_with(&keys, |_, answer| found += u64::from(answer.unwrap().is_some()));
    several();
    assert_eq!(measure(several).count_total, 0, "several at once");
    assert_eq!(found, 2 * ENTRIES);
    let no_filter = options().bloom_bits(0);
    let (_rig, db) = loaded(&no_filter);
    db.flush().unwrap();
    assert_eq!(allocations_of_gets(&db, (0..2000).map(|n| 2 * n + 1)), 0, "misses without a filter");
}

/// A scan may allocate for its start and for a block that it enters, but not for an entry. Mutation: the cursor makes a
/// new vector for each key.
#[test]
fn a_cursor_allocates_nothing_for_an_entry() {
    for (name, flushed, most) in [("memtable", false, 0), ("table", true, 4)] {
        let (_rig, db) = loaded(&options().block_size(64 << 10));
        if flushed {
            db.flush().unwrap();
        }
        for backward in [false, true] {
            let mut cursor = db.cursor().unwrap();
            let mut pass = |count: &mut u64| {
                if backward {
                    cursor.seek_to_last().unwrap()
                } else {
                    cursor.seek_to_first().unwrap()
                }
                *count = 0;
                measure(|| {
                    while cursor.valid() {
                        std::hint::black_box((cursor.key().len(), cursor.value().len()));
                        *count += 1;
                        if backward { cursor.prev().unwrap() } else { cursor.next().unwrap() }
                    }
                })
                .count_total
            };
            let mut count = 0;
            pass(&mut count);
            let allocations = pass(&mut count);
            assert_eq!(count, ENTRIES);
            assert!(
                allocations <= most,
                "{name}, backward {backward}: {allocations} allocations in {count} entries"
            );
        }
    }
}
