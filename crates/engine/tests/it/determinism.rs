//! The same seed and operations give the same files, byte for byte: twice in memory, and on the real disk too.

use std::collections::BTreeMap;
use std::path::Path;

use esker::vfs::{OsVfs, Vfs};
use esker::{Background, Db, Options};
use esker_testkit::{KeySpace, Mix, Op, Workload, presets};

use crate::support::{Rig, options_of, write};

type Files = BTreeMap<String, Vec<u8>>;

/// Carries out a workload with some reopening in it, and closes.
fn run(seed: u64, open: impl Fn() -> Db) {
    let mix = Mix { reopens: 1, flushes: 3, compactions: 2, value_len_max: 500, ..Mix::changes() };
    let mut db = open();
    let mut snapshots = Vec::new();
    for op in Workload::new(seed, KeySpace::new(seed, 100, 500), mix).take(800) {
        match op {
            Op::Write(ops, promise) => write(&db, &ops, promise).unwrap(),
            Op::Flush => db.flush().unwrap(),
            Op::Compact(range) => {
                let bounds = (range.0.as_ref().map(Vec::as_slice), range.1.as_ref().map(Vec::as_slice));
                db.compact_range::<&[u8], _>(bounds).unwrap();
            }
            Op::Sync => db.sync().unwrap(),
            Op::TakeSnapshot => snapshots.push(db.snapshot()),
            Op::DropSnapshot(_) => drop(snapshots.pop()),
            Op::Reopen => {
                snapshots.clear();
                db.close().unwrap();
                db = open();
            }
            _ => {}
        }
    }
    snapshots.clear();
    db.close().unwrap();
}

fn in_memory(seed: u64, options: &Options) -> Files {
    let rig = Rig::new();
    run(seed, || rig.open_inline(options).unwrap());
    let files = rig.mem.files().into_iter();
    files.map(|(path, bytes)| (path.file_name().unwrap().to_str().unwrap().to_owned(), bytes)).collect()
}

fn on_disk(seed: u64, options: &Options) -> Files {
    let temp = tempfile::tempdir().unwrap();
    run(seed, || options.clone().open(temp.path()).unwrap());
    let entries = OsVfs::new().list(temp.path()).unwrap().into_iter();
    entries
        .map(|entry| (entry.name.clone(), std::fs::read(Path::new(temp.path()).join(entry.name)).unwrap()))
        .collect()
}

/// What differs, in few words.
fn difference(a: &Files, b: &Files) -> Vec<String> {
    let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    // The lock file may name its holder.
    let differing = names.into_iter().filter(|name| *name != "LOCK" && a.get(*name) != b.get(*name));
    differing
        .map(|name| {
            format!("{name}: {:?} and {:?} bytes", a.get(name).map(Vec::len), b.get(name).map(Vec::len))
        })
        .collect()
}

/// Mutation: a table's creation time comes from the clock although there is a seed; a file number is drawn by chance.
#[test]
fn the_same_operations_give_the_same_files() {
    for (index, preset) in presets().iter().enumerate() {
        let seed = index as u64;
        let options = options_of(preset).background(Background::Inline).seed(seed);
        let first = in_memory(seed, &options);
        assert!(first.keys().any(|name| name.ends_with(".sst")), "no table was made");
        for (what, files) in
            [("in memory again", in_memory(seed, &options)), ("on disk", on_disk(seed, &options))]
        {
            let difference = difference(&first, &files);
            assert!(difference.is_empty(), "preset {}, {what}: {difference:?}", preset.name);
        }
        let other = in_memory(seed, &options.clone().seed(seed + 1000));
        assert!(!difference(&first, &other).is_empty(), "the seed changes nothing");
    }
}
