//! The output itself: JSON with a stable shape, a closed pipe, a full disk.

use crate::util::{flip, log, manifest, metadata, run_on, table, tool};
use esker_base::FileNumber;
use esker_manifest::{Current, KeyspaceRecord, ManifestEnd, VersionEdit};
use esker_wal::SegmentEnd;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A golden file: compared, or written when `SST_DUMP_GOLDEN` is set. A change of it is a change of a schema: fields may be
/// added; for anything else the number of the schema grows.
fn assert_golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("SST_DUMP_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(found, expected, "{name}");
}

fn tables() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 6);
    (dir, path)
}

#[test]
fn documents_about_a_table_are_stable() {
    let (dir, path) = tables();
    for (words, name) in [
        ("info --json", "info.json"),
        ("layout --json --blocks", "layout.json"),
        ("scan --json", "scan.json"),
        ("verify --json", "verify.json"),
    ] {
        let out = run_on(words, &path).out;
        assert_golden(name, &out.replace(dir.path().to_str().unwrap(), "DIR"));
    }
    flip(&path, 40, 1);
    let out = run_on("verify --json", &path).out;
    let out = out.replace(dir.path().to_str().unwrap(), "DIR");
    assert!(
        out.contains(
            "\"class\":\"damage\",\"file\":\"DIR/000001.sst\",\"offset\":32,\"what\":\"block checksum"
        ),
        "{out}"
    );
}

/// Paths of all fields with the types of their values.
fn shape(value: &Value, path: &str, fields: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(items) => {
            items.iter().for_each(|item| shape(item, &format!("{path}[]"), fields));
            return;
        }
        Value::Object(object) => {
            let tag =
                object.get("item").and_then(Value::as_str).map_or(String::new(), |tag| format!("({tag})"));
            object.iter().for_each(|(name, field)| shape(field, &format!("{path}{tag}.{name}"), fields));
            return;
        }
    };
    fields.insert(path.to_owned(), kind);
}

#[test]
fn shapes_of_documents_are_stable() {
    let dir = tempfile::tempdir().unwrap();
    // Everything that a document can hold, whatever the engine writes at present.
    let mut edit = VersionEdit::new();
    edit.keyspaces.push(KeyspaceRecord { id: 3, name: "third".into(), options: vec![1] });
    edit.log_numbers.push((3, FileNumber(1)));
    edit.add_table(0, 1, metadata(10, 0, 10, (1, 2)));
    edit.add_table(0, 2, metadata(11, 0, 10, (1, 2)));
    edit.set_cursor(0, 1, Some(b"k".to_vec()));
    let mut second = VersionEdit::new();
    second.delete_table(0, 2, FileNumber(11));
    let manifest = manifest(dir.path(), &[edit, second]);
    let first = log(dir.path(), 1, SegmentEnd::none(0));
    log(dir.path(), 2, first);
    let segment = dir.path().join("000001.wal");
    std::fs::write(&segment, [&std::fs::read(&segment).unwrap()[..], b"garbage"].concat()).unwrap();
    let segment = dir.path().join("000002.wal");
    std::fs::write(&segment, [&std::fs::read(&segment).unwrap()[..], b"torn"].concat()).unwrap();
    std::fs::write(&manifest, [&std::fs::read(&manifest).unwrap()[..], b"torn"].concat()).unwrap();
    let closed = ManifestEnd { len: 1, crc: 2 };
    let current = Current { manifest: FileNumber(1), closed: Some(closed) };
    std::fs::write(dir.path().join("CURRENT"), current.encode()).unwrap();
    table(&dir.path().join("000001.sst"), 6);
    for name in ["foreign", "MANIFEST-000077", "000099.sst"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    for (words, name) in [
        ("db --json", "db.shape"),
        ("manifest --json", "manifest.shape"),
        ("wal --json --ops", "wal.shape"),
        ("verify --json", "verify.shape"),
    ] {
        let mut fields = BTreeMap::new();
        let json = run_on(words, dir.path()).json();
        assert!(json["schema"].as_str().unwrap().ends_with("/1"));
        shape(&json, "", &mut fields);
        let text: String = fields.iter().map(|(path, kind)| format!("{path}: {kind}\n")).collect();
        assert_golden(name, &text);
    }
}

/// Also when there is nothing to say, a document comes, with the fault in it.
#[test]
fn every_json_output_is_a_document() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    for words in ["info", "layout", "scan", "verify", "manifest", "wal", "db"] {
        let ran = run_on(&format!("{words} --json"), &missing);
        let json = ran.json();
        let faults = if words == "info" { &json["files"][0]["faults"] } else { &json["faults"] };
        assert_eq!(ran.code, 3, "{words}");
        assert_eq!(faults[0]["class"], "io", "{words}: {json}");
    }
}

#[test]
fn a_closed_pipe_is_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, 50_000);
    for words in ["scan", "scan --json", "scan --reverse", "layout --blocks"] {
        let mut child = tool()
            .args(words.split_whitespace())
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        let mut out = child.stdout.take().unwrap();
        out.read_exact(&mut first).unwrap();
        drop(out);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{words}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_output_is_an_error() {
    let (_dir, path) = tables();
    for words in ["scan", "info", "verify --json"] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output =
            tool().args(words.split_whitespace()).arg(&path).stdout(Stdio::from(full)).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{words}");
        assert!(String::from_utf8(output.stderr).unwrap().contains("can't write the output"), "{words}");
    }
}
