//! Every file of the corpus runs through its target.

#![allow(clippy::disallowed_methods, reason = "the corpus is on the disk")]

use std::fs;
use std::path::PathBuf;

/// Inputs of a target, in the order of their names.
fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files: Vec<PathBuf> =
        fs::read_dir(&dir).expect("a folder for each target").map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn the_corpus_passes() {
    for (name, _) in esker_fuzz_targets::TARGETS {
        let inputs = corpus(name);
        assert!(inputs.len() >= 3, "{name} has no corpus");
        for (path, bytes) in inputs {
            assert!(bytes.len() <= 4096, "{} is too large to keep", path.display());
            let run = std::panic::catch_unwind(|| esker_fuzz_targets::run(name, &bytes));
            assert!(run.is_ok(), "{name}: {}", path.display());
        }
    }
}

#[test]
fn every_target_takes_no_input_at_all() {
    for (name, _) in esker_fuzz_targets::TARGETS {
        for input in [&[][..], &[0], &[0xff; 40], &[0; 200]] {
            esker_fuzz_targets::run(name, input);
        }
    }
}

/// What is well formed is not changed: else the fuzzer would never see a whole file.
#[test]
fn checksums_made_anew_are_the_same() {
    use esker_fuzz_targets::seal;
    use esker_wal::LogKind;
    let golden = |name: &str| {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
        fs::read(path).unwrap()
    };
    for name in ["no-filter", "none", "prefix", "snappy", "versions"] {
        let file = golden(&format!("sstable/testdata/{name}.sst"));
        let mut sealed = file.clone();
        seal::table(&mut sealed);
        assert_eq!(sealed, file, "{name}");
    }
    let logs = [
        ("wal/testdata/000001.wal", LogKind::Wal, 1),
        ("manifest/testdata/MANIFEST-000002", LogKind::Manifest, 2),
    ];
    for (name, kind, number) in logs {
        let file = golden(name);
        let mut sealed = file.clone();
        seal::log(&mut sealed, kind, number, usize::MAX);
        assert_eq!(sealed, file, "{name}");
    }
}

/// A database, described as an input and built again, is the same database.
#[test]
fn a_described_database_opens() {
    use esker_fuzz_targets::{Input, directory};
    use esker_sim::disk::Disk;
    use esker_sim::preset::Setup;
    let options = Setup::tiny().options;
    for clean in [true, false] {
        let disk = Disk::on(esker_vfs::MemVfs::new(), false, None);
        let db = disk.open_inline(&options).unwrap();
        db.put("in a table", "1").unwrap();
        db.flush().unwrap();
        db.put("in the log", "2").unwrap();
        if clean {
            db.close().unwrap()
        } else {
            drop(db)
        }
        let described = directory::describe(&disk.mem);
        let mut input = Input::new(&described);
        input.byte();
        let mem = directory::build(&mut input);
        let db = Disk::on(mem, false, None).open_inline(&options).unwrap();
        assert_eq!(db.get("in a table").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(db.get("in the log").unwrap().as_deref(), Some(&b"2"[..]));
        assert!(db.verify().unwrap().is_clean());
    }
}
