//! FI: filters.

use std::sync::Arc;

use esker::Db;
use esker::vfs::CountingVfs;
use esker_testkit::prefix_range;

use crate::support::{Rig, content, key, small, value};

/// FI02, FI03. Prefix scans with every part of the keys, with filters on, in tables where the last key is the one that is
/// looked for, and behind the last one. Mutation: a filter over whole keys is asked about a prefix.
#[test]
fn fi02_prefixes_of_every_length() {
    let rig = Rig::new();
    let db = rig.open_inline(&small()).unwrap();
    let keys = ["h.com", "h.com.my/x", "h.com/y", "h.com/y/z", "h.net/", "h", "i", "\u{7f}", "zz/last"];
    keys.iter().for_each(|key| db.put(key, key).unwrap());
    for _ in 0..2 {
        for prefix in
            keys.iter().flat_map(|key| (0..=key.len()).map(|cut| &key[..cut])).chain(["zz/lasu", "zzz", "~"])
        {
            let wanted = keys.iter().filter(|key| key.starts_with(prefix)).count();
            assert_eq!(db.prefix(prefix).count(), wanted, "{prefix:?}");
            assert_eq!(db.prefix(prefix).rev().count(), wanted, "{prefix:?} backward");
            let (lower, upper) = prefix_range(prefix.as_bytes());
            assert_eq!(db.range::<Vec<u8>, _>((lower, upper)).count(), wanted, "{prefix:?} as a range");
            let mut cursor = db.cursor().unwrap();
            cursor.seek(prefix).unwrap();
            assert_eq!(
                cursor.valid() && cursor.key().starts_with(prefix.as_bytes()),
                wanted > 0,
                "{prefix:?}"
            );
        }
        db.compact_range::<&[u8], _>(..).unwrap();
    }
}

/// FI05. No filter, the smallest and the largest one, over one key and over tombstones only. Mutation: a filter without
/// bits is divided by.
#[test]
fn fi05_filters_at_the_limits() {
    for bits in [0, 1, 10, 64] {
        let rig = Rig::new();
        let db = rig.open_inline(&small().bloom_bits(bits).l0_trigger(64)).unwrap();
        db.put("one", "1").unwrap();
        db.flush().unwrap();
        db.put("two", "2").unwrap();
        let snapshot = db.snapshot();
        db.delete("one").unwrap();
        db.delete("three").unwrap();
        db.flush().unwrap();
        assert_eq!(db.get("one").unwrap(), None, "{bits} bits");
        assert_eq!(db.get("two").unwrap().unwrap(), "2", "{bits} bits");
        assert_eq!(snapshot.get("one").unwrap().unwrap(), "1", "{bits} bits");
        assert_eq!((db.get("").unwrap(), db.get("three").unwrap()), (None, None));
        assert_eq!(content(&db).unwrap().len(), 1);
    }
}

/// FI08. Filters are used, also by a later open: absent keys cost hardly any read. Mutation: a filter of this build's own
/// making is not recognised.
#[test]
fn fi08_absent_keys_cost_no_reads() {
    let rig = Rig::new();
    let options =
        small().cache_size(0).memtable_size(256 << 10).wal_segment_size(1 << 20).table_size(64 << 10);
    let db = rig.open_inline(&options).unwrap();
    (0..4000_u64).for_each(|number| db.put(key(2 * number), value(number, 30)).unwrap());
    db.close().unwrap();
    let counting = CountingVfs::new(Arc::new(rig.order.clone()));
    let db = Db::open_with("/db", options.clone(), rig.components_on(Arc::new(counting.clone()), &options))
        .unwrap();
    assert!(db.get(key(2_u64)).unwrap().is_some() && db.iter().count() == 4000);
    let before = counting.counts();
    (0..4000_u64).for_each(|number| assert!(db.get(key(2 * number + 1)).unwrap().is_none()));
    let reads = (counting.counts() - before).reads();
    assert!(reads < 200, "{reads} reads for 4000 absent keys at 10 bits a key");
}
