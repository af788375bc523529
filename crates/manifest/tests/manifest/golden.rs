//! Golden files: the bytes of this format, which every later build must go on reading. `REWRITE=1` writes them anew.

use crate::{content, current_path, dir, empty_disk, manifest_path, position, recovered, small_store};
use esker_manifest::dump_manifest;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name)
}

/// Compares with the golden file, or writes it.
fn check(name: &str, bytes: &[u8]) {
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(golden(name), bytes).unwrap();
    }
    assert!(std::fs::read(golden(name)).unwrap() == bytes, "{name} differs from what is written today");
}

#[test]
fn golden_files_are_written_as_ever() {
    let (mem, writer, _) = small_store();
    check("MANIFEST-000002", &mem.read_file(manifest_path(2)).unwrap());
    check("CURRENT.open", &mem.read_file(current_path()).unwrap());
    writer.write_clean_current().unwrap();
    check("CURRENT.closed", &mem.read_file(current_path()).unwrap());
}

#[test]
fn golden_files_are_read_as_ever() {
    let (with_tables, _, states) = small_store();
    for (name, clean) in [("CURRENT.open", false), ("CURRENT.closed", true)] {
        let mem = empty_disk();
        for (path, bytes) in with_tables.files() {
            if path.extension().is_some() {
                mem.write_file(path, bytes).unwrap();
            }
        }
        mem.write_file(manifest_path(2), std::fs::read(golden("MANIFEST-000002")).unwrap()).unwrap();
        mem.write_file(current_path(), std::fs::read(golden(name)).unwrap()).unwrap();
        let found = recovered(&mem);
        assert_eq!(position(&states, &found.state), 3);
        assert_eq!((found.clean, found.torn_tail), (clean, None));
        let dump = dump_manifest(&mem, &dir().join("MANIFEST-000002")).unwrap();
        assert_eq!(content(&dump.state.unwrap()), content(&states[3]));
    }
}

/// The worked example of the format's description is the golden file, byte for byte.
#[test]
fn the_described_example_is_the_golden_file() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format/manifest.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut bytes = Vec::new();
    for line in page.lines() {
        let Some((offset, rest)) = line.split_once("  ") else { continue };
        if offset.len() != 8 || !offset.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            continue;
        }
        assert_eq!(usize::from_str_radix(offset, 16).unwrap(), bytes.len(), "{line}");
        let hex = rest.split_once("   ").map_or(rest, |(hex, _)| hex);
        bytes.extend(
            hex.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|_| panic!("{line}"))),
        );
    }
    assert_eq!(bytes, std::fs::read(golden("MANIFEST-000002")).unwrap());
    for name in ["CURRENT.open", "CURRENT.closed"] {
        let text = std::fs::read_to_string(golden(name)).unwrap();
        assert!(page.contains(&format!("```text\n{text}```")), "{name}");
    }
}
