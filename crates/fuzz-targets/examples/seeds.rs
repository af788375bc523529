//! Writes the first inputs of a corpus: golden files, small databases, and random bytes of the right kind.
//!
//! `cargo run -p esker-fuzz-targets --example seeds -- FOLDER`

#![allow(clippy::disallowed_methods, reason = "the corpus is on the disk")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use esker::vfs::{CrashMode, MemVfs};
use esker::{Compression, Db};
use esker_base::SplitMix64;
use esker_fuzz_targets::directory::describe;
use esker_sim::disk::Disk;
use esker_sim::preset::Setup;

/// Larger inputs are left out.
const INPUT_MAX: usize = 4096;

struct Corpus(PathBuf);

impl Corpus {
    fn add(&self, target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let dir = self.0.join(target);
        fs::create_dir_all(&dir)?;
        if bytes.len() <= INPUT_MAX { fs::write(dir.join(name), bytes) } else { Ok(()) }
    }
}

fn golden(name: &str) -> std::io::Result<Vec<u8>> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name))
}

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = Corpus(std::env::args().nth(1).ok_or("usage: seeds FOLDER")?.into());
    logs(&corpus)?;
    tables(&corpus)?;
    directories(&corpus)?;
    let mut rng = SplitMix64::new(1);
    for number in 0..12 {
        let bytes: Vec<u8> = (0..40 << (number / 3)).map(|_| rng.next_u64() as u8).collect();
        for target in ["ops", "batch", "table"] {
            corpus.add(target, &format!("random-{number}"), &bytes)?;
        }
    }
    Ok(())
}

fn logs(corpus: &Corpus) -> std::io::Result<()> {
    let (first, second) = (golden("wal/testdata/000001.wal")?, golden("wal/testdata/000002.wal")?);
    let head = |flags: u8, durable: u8| vec![flags, 255, 255, durable, 0];
    corpus.add("wal_segment", "one", &[head(0, 0), first.clone()].concat())?;
    corpus.add("wal_segment", "torn", &[head(0, 0), first[..first.len() - 5].to_vec()].concat())?;
    let len = (first.len() as u16).to_le_bytes().to_vec();
    corpus.add("wal_segment", "two", &[head(1, 2), len.clone(), first.clone(), second.clone()].concat())?;
    corpus.add("wal_segment", "linked", &[head(5, 0), len, first.clone(), second.clone()].concat())?;
    corpus.add("batch", "one", &first[0x4c..0x63])?;
    corpus.add("batch", "delete", &first[0x6f..])?;
    let manifest = golden("manifest/testdata/MANIFEST-000002")?;
    for (name, flags) in [("open", 0), ("closed", 2), ("raw", 1)] {
        let text = b"esker current 1\nmanifest 2\nclosed 320 8fc1311c\n";
        let head = [&[flags, 255, text.len() as u8][..], text].concat();
        corpus.add("manifest", name, &[head, manifest.clone()].concat())?;
    }
    Ok(())
}

fn tables(corpus: &Corpus) -> std::io::Result<()> {
    for name in ["no-filter", "none", "prefix", "snappy", "versions"] {
        let file = golden(&format!("sstable/testdata/{name}.sst"))?;
        corpus.add("table", name, &[&[0x80], &file[..]].concat())?;
    }
    let built: Vec<u8> = (0..120).map(|number| (number * 37) as u8).collect();
    for flags in [0, 8, 0x20, 1, 2, 4, 9] {
        corpus.add("table", &format!("built-{flags}"), &[&[flags], &built[..]].concat())?;
    }
    let keys = [1, b'k', 2, b'a', b'b', 0, 1, 0xff];
    for (name, filter) in [("full", [0xff; 8]), ("half", [0x55; 8]), ("none", [0; 8])] {
        corpus.add("filter", name, &[&keys[..], &[1, 7], &filter[..], &filter[..]].concat())?;
    }
    corpus.add("filter", "kind", &[&keys[..], &[2, 7]].concat())?;
    corpus.add("filter", "hashes", &[&keys[..], &[1, 31], &[0; 16]].concat())
}

fn directories(corpus: &Corpus) -> Result<(), Box<dyn Error>> {
    for number in 0..6_u64 {
        let compression = if number & 1 == 0 { Compression::None } else { Compression::Snappy };
        let options = Setup::tiny().options.compression(compression);
        let disk = Disk::on(MemVfs::new(), false, None);
        let db = disk.open_inline(&options)?;
        fill(&db, number)?;
        if number < 4 {
            db.close()?
        } else {
            drop(db)
        }
        let mem = disk.mem.crash_clone_with(CrashMode::Keep);
        corpus.add("directory", &format!("database-{number}"), &describe(&mem))?;
    }
    Ok(())
}

fn fill(db: &Db, number: u64) -> esker::Result<()> {
    let key = |key: u64| format!("key{:02}", key % 20);
    for put in 0..6 + number {
        db.put(key(put * 7), vec![b'v'; (put * 5) as usize])?;
    }
    db.flush()?;
    for put in 0..4 + number {
        if put % 3 == 0 { db.delete(key(put * 7))? } else { db.put(key(put), "second")? }
    }
    if number > 1 {
        db.flush()?;
    }
    if number == 3 {
        db.compact_range::<&[u8], _>(..)?;
    }
    db.put(key(3), "last")?;
    db.put(key(4), "in the log")
}
