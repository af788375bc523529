//! Scans against a plain list of the same entries.

use crate::util::{flip, key, run, run_on, table};
use std::path::PathBuf;

struct Fixture {
    _dir: tempfile::TempDir,
    path: PathBuf,
    /// The lines of a whole scan.
    lines: Vec<String>,
}

const ENTRIES: u32 = 100;

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("000001.sst");
    table(&path, ENTRIES);
    let line = |n: u32| match n % 5 {
        4 => format!("\"{}\" @{} delete", key(n), n + 1),
        _ => format!("\"{}\" @{} put => \"value {n}\"", key(n), n + 1),
    };
    Fixture { _dir: dir, path, lines: (0..ENTRIES).map(line).collect() }
}

impl Fixture {
    fn scan(&self, words: &str) -> Vec<String> {
        let ran = run_on(&format!("scan {words}"), &self.path);
        assert_eq!(ran.code, 0, "{words}: {}", ran.err);
        ran.out.lines().map(str::to_owned).collect()
    }

    /// What the scan should print: the entries that `wanted` takes, in either direction, up to each limit.
    fn check(&self, words: &str, wanted: impl Fn(u32) -> bool) {
        let mut expected: Vec<String> =
            (0..ENTRIES).filter(|&n| wanted(n)).map(|n| self.lines[n as usize].clone()).collect();
        assert_eq!(self.scan(words), expected, "{words}");
        assert_eq!(self.scan(&format!("{words} --count")), [expected.len().to_string()], "{words}");
        expected.reverse();
        assert_eq!(self.scan(&format!("{words} --reverse")), expected, "{words}");
        for limit in [0, 1, 7, 1000] {
            let limited: Vec<String> = expected.iter().take(limit).cloned().collect();
            assert_eq!(self.scan(&format!("{words} --reverse --limit {limit}")), limited, "{words}");
        }
    }
}

#[test]
fn ranges_prefixes_kinds_and_sequences() {
    let fixture = fixture();
    fixture.check("", |_| true);
    fixture.check("--from k00026", |n| n >= 26);
    fixture.check("--to k00026", |n| n < 26);
    fixture.check("--from k00025x --to k00051", |n| (26..51).contains(&n));
    fixture.check("--from k00051 --to k00026", |_| false);
    fixture.check("--from z", |_| false);
    fixture.check("--to a", |_| false);
    fixture.check("--prefix k0003", |n| (30..40).contains(&n));
    fixture.check("--prefix k0003 --from k00035 --to k00099", |n| (35..40).contains(&n));
    fixture.check("--prefix q", |_| false);
    fixture.check("--kind delete", |n| n % 5 == 4);
    fixture.check("--kind put --prefix k0009", |n| n % 5 != 4 && n >= 90);
    fixture.check("--min-seq 50 --max-seq 60", |n| (49..60).contains(&n));
    fixture.check("--from 6b3030303930 --key-hex", |n| n >= 90);
    fixture.check("--from \\x6b0009\\x30", |n| n >= 90);
}

#[test]
fn forms_of_bytes() {
    let fixture = fixture();
    assert_eq!(fixture.scan("--limit 1 --hex"), ["6b3030303030 @1 put => 76616c75652030"]);
    let ran = run_on("scan --json --hex --from k00004 --limit 2", &fixture.path);
    let json = ran.json();
    assert_eq!(json["bytes"], "hex");
    assert_eq!(json["count"], 2);
    assert_eq!(json["entries"][0]["kind"], "delete");
    assert!(json["entries"][0].get("value").is_none());
    assert_eq!(json["entries"][1]["key"], "6b3030303035");
}

/// Keys and values with every byte, and characters that turn the text round: none reaches the terminal (`run` checks
/// that), and the forms differ.
#[test]
fn hostile_bytes_are_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let db = crate::util::options().open(dir.path()).unwrap();
    let all: Vec<u8> = (0..=255).collect();
    db.put(&all, "grün \u{202e}\u{9b}2J\x1b[2J").unwrap();
    db.close().unwrap();
    let path = crate::util::with_name(dir.path(), ".sst").pop().unwrap();
    for words in
        ["scan", "scan --text", "scan --hex", "scan --json", "scan --json --text", "info", "info --text"]
    {
        let ran = run_on(words, &path);
        assert_eq!(ran.code, 0, "{}", ran.err);
    }
    let escaped = run_on("scan", &path).out;
    assert!(escaped.contains("gr\\xc3\\xbcn \\xe2\\x80\\xae\\xc2\\x9b2J\\x1b[2J"), "{escaped}");
    let text = run_on("scan --text", &path).out;
    assert!(text.contains("grün \\xe2\\x80\\xae\\xc2\\x9b2J\\x1b[2J"), "{text}");
    for words in ["db", "manifest", "db --text", "manifest --json"] {
        assert_eq!(run_on(words, dir.path()).code, 0);
    }
}

/// A damaged block is left out and named; all others come.
#[test]
fn damaged_blocks_are_left_out() {
    let fixture = fixture();
    flip(&fixture.path, 310, 1);
    for (words, reverse) in [("scan", false), ("scan --reverse", true)] {
        let ran = run_on(words, &fixture.path);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("000001.sst @ 303: block checksum"), "{}", ran.err);
        let mut lines: Vec<&str> = ran.out.lines().collect();
        if reverse {
            lines.reverse();
        }
        let expected: Vec<&String> = fixture.lines[..26].iter().chain(&fixture.lines[51..]).collect();
        assert_eq!(lines, expected);
    }
}

#[test]
fn scans_of_other_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    crate::util::crashed(dir.path());
    for path in crate::util::files(dir.path()) {
        if path.extension().is_none_or(|extension| extension != "sst") {
            let ran = run_on("scan", &path);
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", path.display());
            assert!(ran.err.contains("not a table"), "{}", ran.err);
        }
    }
    let table = crate::util::with_name(dir.path(), ".sst").pop().unwrap();
    for words in [
        "scan --from \\q",
        "scan --from 0 --key-hex",
        "scan --kind merge",
        "scan --hex --text",
        "scan --limit -1",
    ] {
        assert_eq!(run_on(words, &table).code, 2, "{words}");
    }
    assert_eq!(run(Vec::<String>::new()).code, 2);
    assert_eq!(run(["frobnicate"]).code, 2);
    assert_eq!(run(["--help"]).code, 0);
}
