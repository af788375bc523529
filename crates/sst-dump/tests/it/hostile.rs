//! Files from strangers, through the library: bytes changed at random, also under checksums that match again. Nothing
//! panics, and sections always add up.

use crate::util::{crashed, files, table};
use esker_base::{Checksum, SplitMix64};
use esker_sst_dump::{
    Form, Kind, LogItem, ScanOptions, StateInfo, db, info, layout, manifest, scan, verify, wal,
};
use esker_vfs::{MemVfs, Vfs};
use std::path::Path;

/// Runs everything on a file; returns whether `verify` found something.
fn look_at(vfs: &MemVfs, path: &Path) -> bool {
    for form in [Form::Escaped, Form::Hex] {
        let info = info(vfs, path, form);
        let _ = info.to_string();
        if let Some(table) = info.table {
            let sum: i64 = table.parts.iter().map(|part| part.bytes).sum();
            assert_eq!(u64::try_from(sum).unwrap(), info.size, "{:?}", table.parts);
        }
    }
    for blocks in [false, true] {
        let mut end = 0;
        let summary = layout(vfs, path, blocks, &mut |section| {
            assert_eq!(section.offset, end);
            end += section.length;
            Ok(())
        });
        if let Ok(summary) = summary {
            assert_eq!(end, summary.size, "{:?}", summary.faults);
        }
    }
    for reverse in [false, true] {
        let options = ScanOptions { reverse, prefix: Some(b"k".to_vec()), ..ScanOptions::default() };
        let _ = scan(vfs, path, &options, &mut |_, _| Ok(()));
    }
    let mut ended = 0;
    let walked = wal(vfs, path, Some(Form::Text), &mut |item| {
        ended += usize::from(matches!(item, LogItem::End(_)));
        let _ = item.to_string();
        Ok(())
    });
    assert_eq!(ended, usize::from(walked.is_ok()));
    if let Ok(report) = manifest(vfs, path) {
        report.items(Form::Escaped).for_each(|item| drop(item.to_string()));
        let _ = StateInfo::new(&report.picture, Form::Escaped).to_string();
    }
    verify(vfs, &[path], &mut |_| Ok(())).unwrap().code() != 0
}

#[test]
fn random_damage() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    table(&dir.path().join("000001.sst"), 60);
    for path in files(dir.path()).into_iter().filter(|path| !path.ends_with("LOCK")) {
        let good = std::fs::read(&path).unwrap();
        let name = Path::new("/").join(path.file_name().unwrap());
        let vfs = MemVfs::new();
        for seed in 0..150 {
            let mut rng = SplitMix64::new(seed);
            let mut bad = good.clone();
            for _ in 0..=rng.below(3) {
                let at = usize::try_from(rng.below(bad.len() as u64)).unwrap();
                match rng.below(4) {
                    0 => bad.truncate(at.max(1)),
                    1 => bad[at..].fill(0),
                    2 => bad.insert(at, 0x55),
                    _ => bad[at] = rng.below(256) as u8,
                }
            }
            vfs.write_file(&name, &bad).unwrap();
            let found = look_at(&vfs, &name);
            // The rest of a log or of a manifest may be what a crash has left.
            let zeros = bad.iter().rev().take_while(|byte| **byte == 0).count();
            let cut = good.starts_with(&bad[..bad.len() - zeros]);
            let is_log = name.extension().is_some_and(|extension| extension == "wal");
            let is_manifest = name.to_string_lossy().contains("MANIFEST");
            let may_pass = bad == good || is_log || (is_manifest && cut);
            assert!(found || may_pass, "{} with seed {seed} passes", name.display());
        }
    }
}

/// One byte of a section of a table is changed and its checksum made to match: what a stranger would do.
#[test]
fn damage_under_checksums_that_match() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 60);
    let good = std::fs::read(&path).unwrap();
    let vfs = MemVfs::new();
    let name = Path::new("/000001.sst");
    vfs.write_file(name, &good).unwrap();
    let mut sections = Vec::new();
    let summary = layout(&vfs, name, true, &mut |section| {
        sections.push(section);
        Ok(())
    });
    assert_eq!(summary.ok().unwrap().kind, Kind::Table);
    let (mut seen, mut missed) = (0, 0);
    for section in sections.iter().filter(|section| !matches!(section.name, "header" | "footer")) {
        let start = usize::try_from(section.offset).unwrap();
        let checked = usize::try_from(section.length).unwrap() - 4;
        for at in 0..checked {
            for mask in [0x01, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[start + at] ^= mask;
                let crc = Checksum::new(&[5, 0, 1])
                    .bytes(&section.offset.to_le_bytes())
                    .bytes(&bad[start..start + checked])
                    .finish();
                bad[start + checked..start + checked + 4].copy_from_slice(&crc.to_le_bytes());
                vfs.write_file(name, &bad).unwrap();
                seen += 1;
                missed += u32::from(!look_at(&vfs, name));
            }
        }
    }
    // Values, most sequence numbers, filter bits that are set, and a few properties have nothing to be held against.
    assert!(seen > 1500 && missed < seen * 2 / 3, "{missed} of {seen} pass");
}

/// All commands on a directory whose files are swapped, cut and crossed at random.
#[test]
fn random_directories() {
    let dir = tempfile::tempdir().unwrap();
    crashed(dir.path());
    let contents: Vec<(String, Vec<u8>)> = files(dir.path())
        .iter()
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
        .collect();
    for seed in 0..100 {
        let mut rng = SplitMix64::new(seed);
        let vfs = MemVfs::new();
        vfs.create_dir_all(Path::new("/db")).unwrap();
        for (name, bytes) in &contents {
            let mut bytes = bytes.clone();
            match rng.below(6) {
                0 => continue,
                1 => bytes.truncate(usize::try_from(rng.below(bytes.len() as u64 + 1)).unwrap()),
                2 => bytes = contents[usize::try_from(rng.below(contents.len() as u64)).unwrap()].1.clone(),
                _ => {}
            }
            vfs.write_file(Path::new("/db").join(name), &bytes).unwrap();
        }
        let dir = Path::new("/db");
        let report = db(&vfs, dir, Form::Escaped);
        let mut faults = 0;
        let exit = verify(&vfs, &[dir], &mut |event| {
            faults += u32::from(matches!(event, esker_sst_dump::VerifyEvent::Fault(_)));
            Ok(())
        });
        assert_eq!(exit.unwrap().code() != 0, faults > 0, "seed {seed}");
        if let Ok(report) = report {
            assert!(report.faults.is_empty() || faults > 0, "seed {seed}: {:?}", report.faults);
        }
        let _ = manifest(&vfs, dir);
        // What passes, opens.
        if faults == 0 {
            let (options, mut components) = esker::Components::in_memory(1, esker::Options::new());
            components.vfs = std::sync::Arc::new(vfs);
            esker::Db::open_with(dir, options, components)
                .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
    }
}
