//! `table` and `filter`: a table that anybody could have built, read in every way.
//!
//! Whatever its bytes are, reads come to an end, and the errors name the damage. A table in which `verify` finds nothing
//! must give right answers: the same entries in both directions, each found by its key.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use esker_base::{InternalIterator, InternalKey, Lookup, MAX_SEQUENCE, key_hash};
use esker_sstable::{BlockCache, OpenTable, TableReader, verify_table};
use esker_vfs::{MemVfs, RandomAccessFile, Vfs};

use crate::table_bytes::{HASH_SEED, Raw, build};
use crate::{Input, assert_of_bytes, seal};

/// More entries are not looked at.
const ENTRIES_MAX: usize = 20_000;

type Entries = Vec<(InternalKey, Vec<u8>)>;

/// A first byte: a whole file, or which parts are raw. The rest is that.
pub(crate) fn table(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let flags = input.byte();
    let file = if flags & 0x80 != 0 {
        let mut file = input.rest().to_vec();
        if flags & 1 == 0 {
            seal::table(&mut file);
        }
        file
    } else {
        let filter = (flags & 0x10 != 0).then(|| input.small());
        build(&mut input, Raw::from_bits(flags), filter)
    };
    examine(&file, flags & 0x20 != 0);
}

/// The payload of a filter, behind the keys that are asked for.
pub(crate) fn filter(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let keys: Vec<&[u8]> = (0..4).map(|_| input.small()).collect();
    let payload = input.rest();
    let file = build(&mut Input::new(&[1, b'k']), Raw::from_bits(0), Some(payload));
    let (_, opened) = open(&file);
    let table = TableReader::open(opened, path(), OpenTable::default()).expect("only the filter is odd");
    for key in keys {
        let hash = key_hash(HASH_SEED, key);
        let wanted = may_contain(payload, hash);
        assert_eq!(table.may_contain(hash), wanted, "{key:?}");
    }
    if let Some(fault) = table.filter_fault() {
        assert_of_bytes(fault);
    }
    let _ = table.filter_dump();
    table.verify(&mut |fault| assert_of_bytes(&fault));
}

/// The answer of a filter as `docs/format/sstable.md` has it.
fn may_contain(payload: &[u8], mut hash: u64) -> bool {
    let Some((&[kind, hashes], words)) = payload.split_first_chunk::<2>() else { return true };
    let (words, rest) = words.as_chunks::<8>();
    if kind != 1 || !(1..=30).contains(&hashes) || words.is_empty() || !rest.is_empty() {
        return true;
    }
    let bits = 64 * words.len() as u64;
    let step = hash.wrapping_mul(0x517c_c1b7_2722_0a95);
    (0..hashes).all(|number| {
        if number > 0 {
            hash = hash.rotate_left(5).wrapping_add(step);
        }
        let bit = ((u128::from(hash) * u128::from(bits)) >> 64) as u64;
        u64::from_le_bytes(words[(bit / 64) as usize]) >> (bit % 64) & 1 == 1
    })
}

fn path() -> PathBuf {
    PathBuf::from("/000007.sst")
}

fn open(file: &[u8]) -> (MemVfs, Arc<dyn RandomAccessFile>) {
    let mem = MemVfs::new();
    mem.write_file(path(), file).expect("a memory file");
    let opened = mem.open(&path()).expect("it is there");
    (mem, opened)
}

fn examine(file: &[u8], cached: bool) {
    let (_, opened) = open(file);
    let mut clean = true;
    let mut report = |fault: esker::Error| {
        assert_of_bytes(&fault);
        clean = false;
    };
    drop(verify_table(&opened, Path::new("/000007.sst"), OpenTable::default(), &mut report));
    let cache = cached.then(|| Arc::new(BlockCache::new(1 << 20)));
    let open = OpenTable { cache, verify_reads: cached, ..OpenTable::default() };
    let table = match TableReader::open(opened, path(), open) {
        Ok(table) => table,
        Err(error) => {
            assert!(!clean, "it verifies, and does not open: {error}");
            return assert_of_bytes(&error);
        }
    };
    dump(&table, clean);
    let (forward, whole) = scan(&table, true, cached);
    let (mut backward, whole_too) = scan(&table, false, cached);
    backward.reverse();
    assert!(!clean || (whole && whole_too), "it verifies, and a scan fails");
    if whole && whole_too {
        assert_eq!(forward, backward, "the scans of both directions differ");
    }
    look_up(&table, &forward, clean);
}

fn dump(table: &Arc<TableReader>, clean: bool) {
    drop(table.layout());
    let _ = table.filter_dump();
    for number in 0..table.block_count().min(64) {
        let mut entries = 0;
        match table.dump_block(number, &mut |_| entries += 1) {
            // The number is what the block claims.
            Ok(block) => assert!(!clean || block.entries == entries),
            Err(error) => assert_of_bytes(&error),
        }
    }
    if let Err(error) = table.dump_index(&mut |_| {}) {
        assert_of_bytes(&error);
    }
}

/// The entries, and whether they came without an error and all.
fn scan(table: &Arc<TableReader>, forward: bool, fill_cache: bool) -> (Entries, bool) {
    let mut iterator = table.iter(fill_cache);
    let mut entries = Vec::new();
    let mut moved = if forward { iterator.seek_to_first() } else { iterator.seek_to_last() };
    loop {
        if let Err(error) = moved {
            assert_of_bytes(&error);
            return (entries, false);
        }
        if !iterator.valid() {
            return (entries, true);
        }
        if entries.len() == ENTRIES_MAX {
            return (entries, false);
        }
        entries.push((iterator.key().to_owned(), iterator.value().to_vec()));
        moved = if forward { iterator.next() } else { iterator.prev() };
    }
}

/// Asks for some keys of the table, and their neighbours.
fn look_up(table: &Arc<TableReader>, entries: &Entries, clean: bool) {
    let seed = table.properties().hash_seed;
    let mut iterator = table.iter(true);
    let step = entries.len() / 32 + 1;
    for (key, value) in entries.iter().step_by(step) {
        let user_key = key.user_key.as_slice();
        let lookup = Lookup { user_key, hash: key_hash(seed, user_key), seq: key.seq };
        match table.get(&lookup) {
            Ok(found) if clean => {
                let found = found.expect("a key of the table");
                // Of one key and number the larger kind comes first.
                assert_eq!(found.seq, key.seq);
                assert!(found.kind != key.kind || found.value == value[..], "{key:?}");
            }
            Ok(_) => {}
            Err(error) => assert_of_bytes(&error),
        }
        match iterator.seek(key.as_ref()) {
            Ok(()) if clean => assert!(iterator.valid() && iterator.key() == key.as_ref(), "{key:?}"),
            Ok(()) => {
                let moved = if iterator.valid() { iterator.prev() } else { Ok(()) };
                moved.unwrap_or_else(|error| assert_of_bytes(&error));
            }
            Err(error) => assert_of_bytes(&error),
        }
        let longer = [user_key, b"\0"].concat();
        let lookup = Lookup { user_key: &longer, hash: key_hash(seed, &longer), seq: MAX_SEQUENCE };
        table.get(&lookup).map(drop).unwrap_or_else(|error| assert_of_bytes(&error));
        let _ = table.approximate_offset(user_key);
    }
}
