//! `salvage`: what is intact is kept, what is lost is named, whatever part of the table is damaged.

use crate::util::{Ran, closed, flip, key, manifest, run, run_on, table, with_name};
use esker_base::{Checksum, FileNumber, InternalKeyRef, SplitMix64, ValueKind};
use esker_sst_dump::{
    Failure, Form, SalvageOptions, SalvageReport, ScanOptions, VerifyEvent, layout, salvage, scan, verify,
};
use esker_sstable::{TableBuilder, TableIdentity, TableOptions};
use esker_vfs::{MemVfs, Vfs};
use std::ops::Range;
use std::path::Path;
use std::time::Instant;

type Entries = Vec<(Vec<u8>, u64, Vec<u8>)>;

const IN: &str = "/000001.sst";
const OUT: &str = "/out.sst";

fn entries(vfs: &dyn Vfs, path: &str) -> Entries {
    let mut entries = Vec::new();
    let scanned = scan(vfs, Path::new(path), &ScanOptions::default(), &mut |key, value| {
        entries.push((key.user_key.to_vec(), key.seq, value.to_vec()));
        Ok(())
    });
    assert!(scanned.is_ok_and(|summary| summary.faults.is_empty()));
    entries
}

fn read(vfs: &dyn Vfs, path: &str) -> Vec<u8> {
    let file = vfs.open(Path::new(path)).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

/// A table that is made once, and salvaged from damaged copies.
struct Source {
    vfs: MemVfs,
    good: Vec<u8>,
    entries: Entries,
    /// The data blocks, each with its entries.
    blocks: Vec<(Range<u64>, Entries)>,
    /// The other sections.
    sections: Vec<(&'static str, Range<u64>)>,
}

impl Source {
    fn new(options: &TableOptions, count: u64, value: impl Fn(u64) -> Vec<u8>) -> Source {
        let vfs = MemVfs::new();
        let path = Path::new(IN);
        let identity = TableIdentity { store_id: 5, number: FileNumber(1), hash_seed: 6 };
        let mut builder = TableBuilder::new(vfs.create_new(path).unwrap(), path.into(), options, identity, 9);
        for n in 0..count {
            let key = format!("k{:05}", n / 3);
            let kind = if n % 7 == 6 { ValueKind::Delete } else { ValueKind::Put };
            let value = if n % 7 == 6 { Vec::new() } else { value(n) };
            builder.add(InternalKeyRef::new(key.as_bytes(), 1_000_000 - n, kind), &value).unwrap();
        }
        builder.finish().unwrap();
        let (mut ranges, mut sections) = (Vec::new(), Vec::new());
        let summary = layout(&vfs, path, true, &mut |section| {
            let range = section.offset..section.offset + section.length;
            match section.name {
                "data block" => ranges.push(range),
                name => sections.push((name, range)),
            }
            Ok(())
        });
        assert!(summary.is_ok());
        let reader =
            esker_sstable::TableReader::open(vfs.open(path).unwrap(), path.into(), Default::default());
        let reader = reader.unwrap();
        let blocks = ranges.into_iter().enumerate().map(|(number, range)| {
            let mut entries = Vec::new();
            reader
                .dump_block(number, &mut |entry| {
                    entries.push((entry.key.user_key.to_vec(), entry.key.seq, entry.value.to_vec()));
                })
                .unwrap();
            (range, entries)
        });
        let blocks = blocks.collect();
        Source { good: read(&vfs, IN), entries: entries(&vfs, IN), vfs, blocks, sections }
    }

    fn small() -> Source {
        let options = TableOptions { block_size: 100, index_partition_size: 64, ..TableOptions::default() };
        Source::new(&options, 120, |n| format!("value {n} {}", n * n * 7919).into_bytes())
    }

    fn section(&self, name: &str) -> Range<usize> {
        let (_, range) = self.sections.iter().find(|(found, _)| *found == name).unwrap();
        usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
    }

    fn data_end(&self) -> u64 {
        self.blocks.last().unwrap().0.end
    }

    fn salvage_with(
        &self,
        bad: &[u8],
        options: &SalvageOptions,
    ) -> Result<(SalvageReport, Vec<u8>), Failure> {
        self.vfs.write_file(Path::new(IN), bad).unwrap();
        let _ = self.vfs.remove(Path::new(OUT));
        let report = salvage(&self.vfs, Path::new(IN), Path::new(OUT), options, Form::Escaped);
        assert_eq!(read(&self.vfs, IN), bad);
        match report {
            Ok(report) => Ok((report, read(&self.vfs, OUT))),
            Err(failure) => {
                assert!(self.vfs.kind(Path::new(OUT)).unwrap().is_none(), "a failure leaves nothing behind");
                Err(failure)
            }
        }
    }

    /// Salvages `bad`, of which the blocks with these numbers are damaged: all others must be there, the damaged ones in
    /// gaps with the right keys around, and the new table sound.
    fn check(&self, bad: &[u8], lost: &[usize], what: &str) -> Option<SalvageReport> {
        let kept: Vec<&(Range<u64>, Entries)> =
            (0..self.blocks.len()).filter(|n| !lost.contains(n)).map(|n| &self.blocks[n]).collect();
        let expected: Entries = kept.iter().flat_map(|(_, entries)| entries.clone()).collect();
        let (report, _) = match self.salvage_with(bad, &SalvageOptions::default()) {
            Ok(salvaged) => salvaged,
            Err(_) if expected.is_empty() => return None,
            Err(failure) => panic!("{what}: {failure:?}"),
        };
        assert_eq!(entries(&self.vfs, OUT), expected, "{what}: {report}");
        assert_eq!(report.blocks, kept.len() as u64, "{what}");
        verify(&self.vfs, &[Path::new(OUT)], &mut |event| match event {
            VerifyEvent::Fault(fault) => panic!("{what}: {fault}"),
            VerifyEvent::Checked(_) => Ok(()),
        })
        .unwrap();
        for number in lost {
            let (range, entries) = &self.blocks[*number];
            let inside = |gap: &&esker_sst_dump::LostRange| {
                let end = if gap.before.is_none() { u64::MAX } else { gap.offset + gap.length };
                (gap.offset..end).contains(&range.start)
            };
            let gap = report.gaps.iter().find(inside).unwrap_or_else(|| panic!("{what}: {report}"));
            for (key, seq, _) in entries {
                let key = (std::str::from_utf8(key).unwrap(), std::cmp::Reverse(*seq));
                let bound = |bound: &esker_sst_dump::KeyBound| (bound.key.clone(), bound.seq);
                if let Some((after, seq)) = gap.after.as_ref().map(bound) {
                    assert!((after.as_str(), std::cmp::Reverse(seq)) < key, "{what}: {report}");
                }
                if let Some((before, seq)) = gap.before.as_ref().map(bound) {
                    assert!(key < (before.as_str(), std::cmp::Reverse(seq)), "{what}: {report}");
                }
            }
        }
        assert_eq!(report.faults.is_empty(), report.gaps.is_empty(), "{what}");
        Some(report)
    }

    /// The blocks that are not as they were.
    fn lost(&self, bad: &[u8]) -> Vec<usize> {
        let differs = |range: &Range<u64>| {
            let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
            bad.get(range.clone()) != self.good.get(range)
        };
        (0..self.blocks.len()).filter(|&n| differs(&self.blocks[n].0)).collect()
    }
}

/// A sound table comes out as it went in, byte for byte when its index has one level.
#[test]
fn sound_tables_are_copied() {
    for source in [
        Source::new(&TableOptions::default(), 3000, |n| format!("value {n}").into_bytes()),
        Source::new(&TableOptions { bloom_bits: 0, ..TableOptions::default() }, 1, |_| b"x".to_vec()),
        Source::new(&TableOptions::default(), 40, |n| vec![n as u8; 9000]),
    ] {
        let report = source.check(&source.good, &[], "sound").unwrap();
        assert!(report.notes.is_empty() && report.gaps.is_empty(), "{report}");
        assert_eq!(read(&source.vfs, OUT), source.good);
    }
    let report = Source::small();
    let report = report.check(&report.good, &[], "two levels").unwrap();
    assert_eq!(report.found_by, "index");
}

/// Any byte: of a data block, that block is lost and nothing else; of any other part, nothing is.
#[test]
fn every_byte() {
    let source = Source::small();
    assert!(
        source.blocks.len() > 8 && source.sections.iter().filter(|s| s.0 == "index partition").count() > 2
    );
    for at in 0..source.good.len() {
        let mut bad = source.good.clone();
        bad[at] ^= 1 << (at % 8);
        let lost = source.lost(&bad);
        let report = source.check(&bad, &lost, &format!("byte {at}")).unwrap();
        assert_eq!(report.gaps.len(), lost.len(), "byte {at}: {report}");
        assert_eq!(report.entries_expected.is_some(), !source.section("properties").contains(&at));
    }
}

/// With its footer or index damaged, but properties that can be read, a table comes back byte for byte.
#[test]
fn tables_are_rebuilt() {
    let source = Source::new(&TableOptions::default(), 3000, |n| format!("value {n}").into_bytes());
    for name in ["header", "filter", "index", "footer"] {
        let mut bad = source.good.clone();
        bad[source.section(name)].fill(0xee);
        source.check(&bad, &[], name).unwrap();
        assert!(read(&source.vfs, OUT) == source.good, "{name}");
    }
}

/// Every length: the blocks that are whole are kept. Without anything of what follows the data, nobody can say that they
/// are all.
#[test]
fn every_length() {
    let source = Source::small();
    for len in 0..source.good.len() {
        let bad = &source.good[..len];
        let lost = source.lost(bad);
        let Some(report) = source.check(bad, &lost, &format!("length {len}")) else { continue };
        let says_end = len >= source.section("filter").end;
        assert_eq!(report.gaps.is_empty(), says_end, "length {len}: {report}");
    }
    // With zeros behind it, as reserved space leaves them.
    for cut in (0..source.good.len()).step_by(61) {
        let mut bad = source.good[..cut].to_vec();
        bad.resize(cut + 1_200_000 * usize::from(cut % 8 == 0) + 500, 0);
        source.check(&bad, &source.lost(&bad), &format!("zeros behind {cut}"));
    }
}

/// Stretches of zeros or noise, one to three, with and without index and footer.
#[test]
fn stretches() {
    let source = Source::small();
    let data_end = usize::try_from(source.data_end()).unwrap();
    for seed in 0..300 {
        let mut rng = SplitMix64::new(seed);
        let mut bad = source.good.clone();
        for _ in 0..=rng.below(3) {
            let start = 32 + usize::try_from(rng.below(data_end as u64 - 32)).unwrap();
            let len = usize::try_from(rng.below(600)).unwrap().min(bad.len() - start);
            let noise = rng.below(2) == 0;
            bad[start..start + len]
                .iter_mut()
                .for_each(|byte| *byte = if noise { rng.below(256) as u8 } else { 0 });
        }
        match rng.below(4) {
            0 => bad[source.section("footer")].fill(0),
            1 => bad[source.section("index").start..].fill(0),
            2 => bad[data_end..].fill(0),
            _ => {}
        }
        source.check(&bad, &source.lost(&bad), &format!("seed {seed}"));
    }
}

/// Blocks longer than a window are found behind damage too.
#[test]
fn long_blocks_behind_damage() {
    let source = Source::new(&TableOptions::default(), 8, |n| {
        let mut rng = SplitMix64::new(n);
        (0..n * 150_000).map(|_| rng.below(256) as u8).collect()
    });
    let mut bad = source.good.clone();
    bad[source.section("index").start..].fill(0);
    for (range, _) in source.blocks.iter().step_by(3) {
        bad[usize::try_from(range.start).unwrap() + 3] ^= 1;
    }
    let lost = source.lost(&bad);
    assert!(lost.len() >= 2);
    source.check(&bad, &lost, "long blocks").unwrap();
}

/// Header and footer damaged: options, or a manifest and the name, say which table it is.
#[test]
fn without_an_identity() {
    let source = Source::small();
    let mut bad = source.good.clone();
    bad[..32].fill(0);
    bad[source.section("footer")].fill(0);
    let Err(Failure::Fault(fault)) = source.salvage_with(&bad, &SalvageOptions::default()) else { panic!() };
    assert!(fault.what.contains("--store-id"), "{fault}");
    let told = SalvageOptions { store_id: Some(5), number: Some(FileNumber(1)), ..SalvageOptions::default() };
    let (report, _) = source.salvage_with(&bad, &told).ok().unwrap();
    assert_eq!((report.entries, report.gaps.len()), (120, 0), "{report}");
    assert_eq!(entries(&source.vfs, OUT), source.entries);
    // The number is in the name.
    let told = SalvageOptions { store_id: Some(5), ..SalvageOptions::default() };
    assert!(source.salvage_with(&bad, &told).is_ok());
    let wrong = SalvageOptions { store_id: Some(4), ..SalvageOptions::default() };
    assert!(source.salvage_with(&bad, &wrong).is_err());
    // A header that lies is found out.
    let mut bad = source.good.clone();
    bad[10] ^= 1;
    source.check(&bad, &[], "store id in the header");
    bad[10] ^= 1;
    bad[24] ^= 1;
    bad[source.section("footer")].fill(0);
    source.check(&bad, &[], "number in the header");
}

#[test]
fn the_hash_seed() {
    let source = Source::small();
    let dir = tempfile::tempdir().unwrap();
    let manifest = manifest(dir.path(), &[]);
    source.vfs.write_file(Path::new("/MANIFEST-000001"), std::fs::read(manifest).unwrap()).unwrap();
    let mut bad = source.good.clone();
    bad[source.section("properties")].fill(0);
    let (report, _) = source.salvage_with(&bad, &SalvageOptions::default()).ok().unwrap();
    assert!(!report.has_filter && report.hash_seed.is_none() && report.gaps.is_empty(), "{report}");
    for options in [
        SalvageOptions { hash_seed: Some(6), ..SalvageOptions::default() },
        SalvageOptions { manifest: Some("/MANIFEST-000001".into()), ..SalvageOptions::default() },
    ] {
        let (report, _) = source.salvage_with(&bad, &options).ok().unwrap();
        assert!(report.has_filter && report.hash_seed.as_deref() == Some("0000000000000006"), "{report}");
        let exit = verify(&source.vfs, &[Path::new(OUT)], &mut |_| Ok(())).unwrap();
        assert_eq!(exit.code(), 0);
    }
}

/// Any bytes, also under checksums that match: no panic, a sound table or none, and work that is bounded.
#[test]
fn hostile_files() {
    let source = Source::small();
    let started = Instant::now();
    let ranges: Vec<Range<u64>> = source.blocks.iter().map(|(range, _)| range.clone()).collect();
    let metadata = source.sections.iter().filter(|(name, _)| !matches!(*name, "header" | "footer"));
    let ranges: Vec<Range<u64>> =
        ranges.into_iter().chain(metadata.map(|(_, range)| range.clone())).collect();
    for seed in 0..1500 {
        let mut rng = SplitMix64::new(seed);
        let mut bad = source.good.clone();
        for _ in 0..=rng.below(2) {
            let range = &ranges[usize::try_from(rng.below(ranges.len() as u64)).unwrap()];
            let (start, end) =
                (usize::try_from(range.start).unwrap(), usize::try_from(range.end).unwrap() - 4);
            let at = start + usize::try_from(rng.below((end - start) as u64)).unwrap();
            bad[at] = rng.below(256) as u8;
            let crc = Checksum::new(&[5, 0, 1]).bytes(&range.start.to_le_bytes());
            let crc = crc.bytes(&bad[start..end]).finish();
            bad[end..end + 4].copy_from_slice(&crc.to_le_bytes());
        }
        if rng.below(2) == 0 {
            bad[source.section("footer")].fill(0);
        }
        if let Ok((report, _)) = source.salvage_with(&bad, &SalvageOptions::default()) {
            assert_eq!(entries(&source.vfs, OUT).len() as u64, report.entries, "seed {seed}");
        }
    }
    // Thousands of tiny blocks with rubbish between: each is a gap, and none starts the work anew.
    let mut bad = source.good[..32].to_vec();
    for n in 0..20_000_u32 {
        let start = bad.len();
        bad.extend_from_slice(&[0x74, 0x51, 0]);
        bad.extend_from_slice(&n.to_be_bytes());
        bad.extend_from_slice(&[1, 0, 1, 0, 0, 0]);
        let crc = Checksum::new(&[5, 0, 1]).bytes(&(start as u64).to_le_bytes());
        let crc = crc.bytes(&bad[start..]).finish();
        bad.extend_from_slice(&crc.to_le_bytes());
        bad.extend_from_slice(b"rubbish");
    }
    let (report, _) = source.salvage_with(&bad, &SalvageOptions::default()).ok().unwrap();
    assert_eq!((report.entries, report.gaps.len()), (20_000, 20_000));
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}

fn run_salvage(words: &str, input: &Path, output: &Path) -> Ran {
    let words = words.split_whitespace().map(std::ffi::OsStr::new);
    run(["salvage".as_ref()].into_iter().chain(words).chain([input.as_os_str(), output.as_os_str()]))
}

#[test]
fn the_command() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("000001.sst"), dir.path().join("out"));
    table(&input, 100);
    let ran = run_salvage("", &input, &output);
    assert_eq!(
        (ran.code, std::fs::read(&output).unwrap()),
        (0, std::fs::read(&input).unwrap()),
        "{}",
        ran.out
    );
    // Nothing is overwritten, neither another file nor the table itself.
    let before = crate::util::state(dir.path());
    assert_eq!(run_salvage("", &input, &output).code, 2);
    assert_eq!(run_salvage("", &input, &input).code, 2);
    assert_eq!(run_salvage("", &dir.path().join("missing"), &dir.path().join("new")).code, 3);
    assert_eq!(run_salvage("", &input, &dir.path().join("no/such")).code, 3);
    assert_eq!(crate::util::state(dir.path()), before);
    flip(&input, 600, 1);
    std::fs::remove_file(&output).unwrap();
    let ran = run_salvage("", &input, &output);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("000001.sst @ 572: lost: 268 bytes, 1 blocks, keys after \"k0"), "{}", ran.out);
    std::fs::remove_file(&output).unwrap();
    let ran = run_salvage("--json", &input, &output);
    let json = ran.json();
    assert_eq!((ran.code, json["schema"].as_str()), (1, Some("sst-dump/salvage/1")));
    let gap = &json["salvage"]["gaps"][0];
    assert_eq!((&gap["offset"], &gap["length"], &gap["blocks"]), (&572.into(), &268.into(), &1.into()));
    assert_eq!(json["faults"][0]["class"], "damage");
    let after = gap["after"]["seq"].as_u64().unwrap();
    let before = gap["before"]["seq"].as_u64().unwrap();
    assert_eq!(gap["after"]["key"], key(u32::try_from(after).unwrap() - 1), "{json:#}");
    assert_eq!(json["salvage"]["entries"].as_u64().unwrap() + (before - after - 1), 100, "{json:#}");
    assert_eq!(run_on("verify", &output).code, 0);
}

/// The way that the documentation describes: salvage, put in place, repair.
#[test]
fn a_database_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    closed(dir.path());
    let input = &with_name(dir.path(), ".sst")[0];
    let read = |path: &Path| {
        let db = crate::util::options().open(path).unwrap();
        (0..400).filter(|&n| db.get(key(n)).unwrap().is_some()).count()
    };
    let whole = tempfile::tempdir().unwrap();
    crate::util::copy(dir.path(), whole.path());
    assert_eq!(read(whole.path()), 360);
    flip(input, 40, 1);
    let output = dir.path().join("salvaged");
    let ran = run_salvage("--json", input, &output);
    let json = ran.json();
    assert_eq!(ran.code, 1, "{json:#}");
    let salvaged = &json["salvage"];
    let lost = salvaged["entries_expected"].as_u64().unwrap() - salvaged["entries"].as_u64().unwrap();
    assert!(lost > 0);
    std::fs::rename(input, dir.path().join("damaged")).unwrap();
    std::fs::rename(&output, input).unwrap();
    let report = esker::Db::repair(dir.path()).unwrap();
    assert!(report.tables_lost.is_empty() && report.faults.is_empty(), "{report}");
    let found = read(dir.path()) as u64;
    assert!(found < 360 && found >= 360 - lost, "{found} keys, {lost} entries lost");
}
