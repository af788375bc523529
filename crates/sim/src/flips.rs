//! `flips`: damaged files. `raw`: flipped bits, cuts, zeroed pages, blocks and files that changed places; whatever is read
//! is right or a named error, and damage is told unless it could be a torn end of the log. `patched`: changes under
//! checksums that match, as a stranger could make them: answers may be wrong, but nothing panics, hangs, or allocates
//! without bound.

use std::path::PathBuf;

use esker::vfs::{CrashMode, MemVfs};
use esker::{Compression, Db, ErrorKind};
use esker_base::SplitMix64;

use crate::damaged::{Damage, Recipe, Store, kind_of, name_of};
use crate::lab::{Case, Harness};
use crate::patch;

/// Damaged files.
pub const FLIPS: Harness = Harness {
    name: "flips",
    unit: "damage",
    parts: &["raw", "patched"],
    demands: &[
        "flip",
        "cut",
        "zero page",
        "swap inside",
        "swap files",
        "patched",
        "sst",
        "wal",
        "MANIFEST",
        "CURRENT",
        "told",
        "cut without a word",
        "killed store",
        "closed store",
        "point in time",
    ],
    part_demands: &[],
    demand_after: 20,
    case,
};

/// Damages in one case, all of one store.
const DAMAGES: u64 = 400;

/// Asks everything; answers may be anything, but come to an end.
fn interrogate(db: &Db, what: &str) -> bool {
    let limit = 100_000;
    let entries = db.iter().take(limit).filter(|entry| entry.is_ok()).count();
    let back = db.iter().rev().take(limit).filter(|entry| entry.is_ok()).count();
    assert!(entries < limit && back < limit, "{what}: a scan without end");
    for number in 0..70 {
        let _ = db.get(format!("key{number:03}"));
    }
    if let Ok(mut cursor) = db.cursor() {
        for number in [0, 7, 33, 59, 99] {
            let key = format!("key{number:03}");
            let _ = cursor.seek(&key).and_then(|()| cursor.prev());
            let _ = cursor.seek_for_prev(&key).and_then(|()| cursor.next());
        }
    }
    let told = db.verify().map_or(true, |report| !report.is_clean());
    let _ = db.put("key030", "new");
    let _ = db.flush();
    let _ = db.compact_range::<&[u8], _>(..);
    if let Some(error) = db.background_error() {
        assert!(
            !matches!(error.kind(), ErrorKind::Fatal { .. }) || !error.to_string().contains("panicked"),
            "{what}: {error}"
        );
    }
    told
}

/// Does one damage to a disk: what it was, and what sort of damage; `None` when it would change nothing.
fn damage(mem: &MemVfs, rng: &mut SplitMix64, patched: bool) -> Option<(Damage, &'static str)> {
    let files: Vec<(PathBuf, Vec<u8>)> =
        mem.files().into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
    let (path, bytes) = &files[rng.below(files.len() as u64) as usize];
    let name = name_of(path);
    let (len, mut new) = (bytes.len() as u64, bytes.clone());
    let mut touched = vec![name.clone()];
    let at = rng.below(len) as usize;
    let (kind, what) = if patched {
        let parts = patch::parts(mem, path, bytes);
        if parts.is_empty() {
            return None;
        }
        let part = &parts[rng.below(parts.len() as u64) as usize];
        let mut what = String::new();
        for _ in 0..1 + rng.below(3) {
            what += &patch::change(&mut new, part, rng);
        }
        patch::seal(&mut new, part);
        ("patched", what)
    } else {
        match rng.below(10) {
            0..=5 => {
                let mask = if rng.percent(70) { 1 << rng.below(8) } else { 1 + rng.below(255) as u8 };
                new[at] ^= mask;
                ("flip", format!("@ {at} ^ {mask:#04x}"))
            }
            6 => {
                new.truncate(at);
                if rng.percent(40) {
                    new.resize(bytes.len(), 0);
                }
                ("cut", format!("to {at} of {len}, then {} bytes", new.len()))
            }
            7 => {
                let (start, size) = if rng.percent(50) { (at & !511, 512) } else { (at & !15, 64) };
                let end = (start + size).min(new.len());
                new[start..end].fill(0);
                ("zero page", format!("{start}..{end}"))
            }
            8 => {
                let size = (1 + rng.below(len.div_ceil(2).min(256))) as usize;
                let (a, b) =
                    (rng.below(len - size as u64 + 1) as usize, rng.below(len - size as u64 + 1) as usize);
                let (from_a, from_b) = (bytes[a..a + size].to_vec(), bytes[b..b + size].to_vec());
                new[a..a + size].copy_from_slice(&from_b);
                new[b..b + size].copy_from_slice(&from_a);
                ("swap inside", format!("{size} bytes at {a} and {b}"))
            }
            _ => {
                let (other, content) = &files[rng.below(files.len() as u64) as usize];
                let other_name = name_of(other);
                if content == bytes || [kind_of(&name), kind_of(&other_name)].contains(&"LOCK") {
                    return None;
                }
                mem.write_file(other, bytes).ok()?;
                new.clone_from(content);
                let what = format!("with {other_name}");
                touched.push(other_name);
                ("swap files", what)
            }
        }
    };
    if new == *bytes {
        return None;
    }
    mem.write_file(path, &new).ok()?;
    let mut damage = Damage { what: format!("{name}: {kind} {what}"), files: touched, proof_gone: false };
    // What was synced last is proved by what comes after it: when that is gone too, it looks like a torn end.
    damage.proof_gone = damage.of_log() && kind != "flip";
    Some((damage, kind))
}

/// Tables at several levels, as the seed chooses.
fn store(case: &Case<'_>) -> Store {
    let mut rng = case.rng(1);
    let clean = rng.percent(50);
    let compression = if rng.percent(50) { Compression::Snappy } else { Compression::None };
    let counts = [20 + rng.below(60), 10 + rng.below(40), 5 + rng.below(20)];
    let (order, lie) = (case.settings.order, case.settings.lie);
    Store::new(Recipe { clean, compression, counts, order, lie })
}

fn case(case: &mut Case<'_>) {
    let store = store(case);
    let mut rng = case.rng(2);
    let patched = case.part == "patched";
    case.coverage.hit(if store.clean { "closed store" } else { "killed store" });
    assert!(!store.examine(store.copy(), &Damage::default()), "no damage, and it is told");
    for number in 0..case.ops(DAMAGES) {
        let mem = store.copy();
        let Some((damage, name)) = damage(&mem, &mut rng, patched) else { continue };
        if case.settings.trace {
            println!("{number}: {}", damage.what);
        }
        let kind = damage.files.first().map_or("other", |name| kind_of(name));
        let copy = mem.crash_clone_with(CrashMode::Keep);
        let told = if patched {
            store.open_damaged(mem, &damage, |db| interrogate(db, &damage.what))
        } else {
            store.examine(mem, &damage)
        };
        // The lock's file holds nothing that is read. A log after an unclean end may be cut without a word.
        let silent = patched || kind == "LOCK" || damage.of_log_only();
        assert!(told || silent, "{}: nothing tells of the damage", damage.what);
        if damage.of_log_only() && !patched && !store.clean {
            store.recover_to_a_point(copy, &damage.what);
            case.coverage.hit("point in time");
        }
        case.coverage.hit("damage");
        case.coverage.hit(name);
        case.coverage.hit(kind);
        case.coverage.hit(if told { "told" } else { "cut without a word" });
    }
}
