//! Databases whose data is in one known place, on a memory file system and without background threads.
//!
//! Each function asserts by `Db::stats` that the data is where its name says. Tables are not compressed, as those that
//! the figures are compared with.

use crate::data::{DataSet, ENTRIES};
use esker::vfs::{CrashMode, MemVfs};
use esker::{Components, Compression, Db, LogSink, Options, WriteBatch};
use std::sync::Arc;

/// The seed of the databases.
const SEED: u64 = 1;

/// The first level that level 0 is compacted into when there is little data: levels are numbered from the bottom.
const BOTTOM: usize = 6;

/// The options of all databases here.
pub fn options() -> Options {
    // In memory there is no call of the system that a mapped log could save.
    Options::new().compression(Compression::None).log_sink(LogSink::Plain)
}

/// A new database: memory file system, all work on the calling thread, a clock that stands still.
///
/// # Panics
///
/// When it can't be opened, which means that the options are wrong.
pub fn open(options: Options) -> Db {
    open_on(MemVfs::new(), options)
}

/// The same on a file system that may hold a database.
///
/// # Panics
///
/// As [`open`].
pub fn open_on(vfs: MemVfs, options: Options) -> Db {
    let (options, components) = Components::in_memory(SEED, options);
    let components = Components { vfs: Arc::new(vfs), ..components };
    Db::open_with("/db", options, components).expect("a database in memory opens")
}

/// Writes all entries of a set, one by one, in ascending order.
///
/// # Panics
///
/// When a write fails.
pub fn put_all(db: &Db, set: &DataSet) {
    for (key, value) in &set.entries {
        db.put(key, value).expect("memory can be written to");
    }
}

/// Writes all entries of a set in batches of `size`.
///
/// # Panics
///
/// When a write fails.
pub fn write_batches(db: &Db, set: &DataSet, size: usize) {
    for entries in set.entries.chunks(size) {
        let mut batch = WriteBatch::new();
        for (key, value) in entries {
            batch.put(key, value);
        }
        db.write(batch).expect("memory can be written to");
    }
}

/// All entries in the memtable.
///
/// # Panics
///
/// When they are elsewhere.
pub fn in_memtable(set: &DataSet) -> Db {
    let db = open(options());
    put_all(&db, set);
    let stats = db.stats();
    assert_eq!(stats.memtable_entries, set.entries.len() as u64);
    assert!(stats.levels.iter().all(|level| level.tables == 0), "{stats}");
    db
}

/// All entries in one table of level 0, its blocks in the cache.
///
/// # Panics
///
/// When they are elsewhere.
pub fn in_level0(set: &DataSet) -> Db {
    let db = open(options());
    put_all(&db, set);
    flush(&db);
    assert_eq!(places(&db), (0, vec![(0, 1, set.entries.len() as u64)]));
    warm(&db, set);
    db
}

/// All entries in one table of level 2, its blocks in the cache.
///
/// Levels are numbered from the bottom, so a small database has level 0 and level 6 only. Some megabytes of keys that
/// sort behind all others make level 2 the first one below level 0; one table of two keys in each of the levels 3 to 6
/// keeps what follows from sinking deeper.
///
/// # Panics
///
/// When they are elsewhere.
pub fn in_level2(set: &DataSet) -> Db {
    let db = open(options().l0_trigger(1).level_ratio(2).base_level_size(256 << 10));
    for number in 0..96 {
        db.put(format!("z{number:02}"), vec![number; 64 << 10]).expect("memory can be written to");
    }
    flush(&db);
    let before: &[u8] = b"";
    for _ in 3..=BOTTOM {
        db.put(before, b"before all keys").expect("memory can be written to");
        db.put("y", b"behind all keys").expect("memory can be written to");
        flush(&db);
    }
    put_all(&db, set);
    flush(&db);
    let entries = set.entries.len() as u64;
    assert_eq!(places(&db), (0, vec![(2, 1, entries), (3, 1, 2), (4, 1, 2), (5, 1, 2), (6, 2, 2 + 96)]));
    warm(&db, set);
    db
}

/// Half of the entries in a table of level 0, the others, each between two of those, in the memtable.
///
/// # Panics
///
/// When they are elsewhere.
pub fn in_memtable_and_level0(set: &DataSet) -> Db {
    let (first, second) = (set.half(false), set.half(true));
    let db = open(options());
    put_all(&db, &first);
    flush(&db);
    put_all(&db, &second);
    let (one, other) = (first.entries.len() as u64, second.entries.len() as u64);
    assert_eq!(places(&db), (other, vec![(0, 1, one)]));
    warm(&db, set);
    db
}

/// A file system with a database that has work for one compaction: half of the entries in level 0, the others, each
/// between two of those, in the level below. [`compact`] does that work.
#[derive(Clone, Debug)]
pub struct BeforeCompaction {
    vfs: MemVfs,
    options: Options,
}

impl BeforeCompaction {
    /// Writes the database.
    ///
    /// # Panics
    ///
    /// When its tables are elsewhere.
    pub fn new(set: &DataSet, options: Options) -> Self {
        let vfs = MemVfs::new();
        let db = open_on(vfs.clone(), options.clone());
        let (first, second) = (set.half(false), set.half(true));
        put_all(&db, &first);
        db.compact_range::<&[u8], _>(..).expect("memory can be written to");
        put_all(&db, &second);
        flush(&db);
        let (one, other) = (first.entries.len() as u64, second.entries.len() as u64);
        assert_eq!(places(&db), (0, vec![(0, 1, other), (BOTTOM, 1, one)]));
        drop(db);
        BeforeCompaction { vfs, options }
    }

    /// Opens a copy, which shares the bytes of the tables. The blocks are not in the cache.
    pub fn open(&self) -> Db {
        let db = open_on(self.vfs.crash_clone_with(CrashMode::Keep), self.options.clone());
        let stats = db.stats();
        assert_eq!((stats.compactions, stats.trivial_moves), (0, 0), "nothing is compacted by the open");
        db
    }
}

/// Merges level 0 into the level below. This is the work that is measured.
///
/// # Panics
///
/// When a write fails.
pub fn compact(db: &Db) {
    db.compact_range::<&[u8], _>(..).expect("memory can be written to");
}

/// Checks that [`compact`] has merged two tables into one: not moved them.
///
/// # Panics
///
/// When it has not.
pub fn assert_compacted(db: &Db, entries: usize) {
    let stats = db.stats();
    assert_eq!((stats.compactions, stats.trivial_moves), (1, 0));
    assert_eq!(places(db), (0, vec![(BOTTOM, 1, entries as u64)]));
}

/// A file system with a database of `entries` entries that was not closed: all of them are in the log.
///
/// # Panics
///
/// When a write fails.
pub fn unclean_end(entries: usize) -> MemVfs {
    let vfs = MemVfs::new();
    let db = open_on(vfs.clone(), options());
    let set = DataSet::sequential();
    for round in 0..entries.div_ceil(ENTRIES) {
        for (key, value) in set.entries.iter().take(entries - round * ENTRIES) {
            db.put([key, &round.to_string().into_bytes()[..]].concat(), value)
                .expect("memory can be written to");
        }
    }
    assert_eq!(db.stats().memtable_entries, entries as u64);
    vfs.crash_clone_with(CrashMode::Keep)
}

/// Number of entries in memtables; for each level that has tables its number, tables and entries.
pub fn places(db: &Db) -> (u64, Vec<(usize, u64, u64)>) {
    let stats = db.stats();
    let levels = stats.levels.iter().enumerate().filter(|(_, level)| level.tables > 0);
    (stats.memtable_entries, levels.map(|(number, level)| (number, level.tables, level.entries)).collect())
}

fn flush(db: &Db) {
    db.flush().expect("memory can be written to");
}

/// Reads every entry once, checks it, and so brings all blocks into the cache.
fn warm(db: &Db, set: &DataSet) {
    for (key, value) in &set.entries {
        assert_eq!(db.get(key).expect("tables are sound").as_deref(), Some(&value[..]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every fixture asserts its own places; this runs them all.
    #[test]
    fn data_is_where_it_should_be() {
        let set = DataSet::sequential();
        for db in [in_memtable(&set), in_level0(&set), in_level2(&set), in_memtable_and_level0(&set)] {
            assert_eq!(db.range(&b"k"[..]..&b"l"[..]).count(), ENTRIES);
            assert!(set.absent.iter().all(|key| db.get(key).unwrap().is_none()));
        }
        in_level0(&DataSet::long_prefix());
    }

    #[test]
    fn the_compaction_is_a_merge() {
        let set = DataSet::sequential();
        let before = BeforeCompaction::new(&set, options());
        for _ in 0..2 {
            let db = before.open();
            compact(&db);
            assert_compacted(&db, ENTRIES);
            assert_eq!(db.iter().count(), ENTRIES);
        }
    }

    #[test]
    fn an_unclean_end_is_recovered() {
        let vfs = unclean_end(3_000);
        let db = open_on(vfs.crash_clone_with(CrashMode::Keep), options());
        assert_eq!(db.iter().count(), 3_000);
    }

    #[test]
    fn batches_are_what_they_say() {
        let db = open(options());
        write_batches(&db, &DataSet::sequential(), 500);
        assert_eq!((db.stats().batches, db.iter().count()), (4, ENTRIES));
    }
}
