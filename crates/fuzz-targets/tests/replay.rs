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
