//! Scripts in `testdata/`: shapes of the tree in text, and what is picked for them.
//!
//! A script is a list of commands. Each has an input that ends with `----`, then its result, which ends with an empty
//! line. `REWRITE=1` writes the results anew; review the difference. Lines with `#` between commands are comments.
//!
//! - `options name=value ...` changes [`LeveledOptions`]; `oldest=N` the oldest snapshot,
//!   `scanned=N` the tombstones that scans have stepped over.
//! - `define` makes a tree of lines `L5 7 a..m size=100 seq=3-9 entries=10 deletes=4`; `busy 7`, `running L5 a..c` and
//!   `cursor L5 g` belong to it.
//! - `targets`, `pick`, `manual a..m` print what they say.
//! - `apply` picks and applies until nothing is picked; the inputs become one table of the same size.
#![allow(clippy::disallowed_methods, reason = "the scripts are files of this crate")]

use esker_base::{FileNumber, InternalKey, ValueKind};
use esker_compaction::{
    Compaction, CompactionPicker, LevelTargets, LeveledOptions, LeveledPicker, ManualCompaction, ManualPick,
    OutputRange, PickInput,
};
use esker_manifest::{CursorChange, NUM_LEVELS, TableMetadata, Version, VersionEdit};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

/// Purpose: what is picked for a shape of the tree changes only on purpose.
#[test]
fn picks_are_as_recorded() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/testdata");
    let mut paths: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let script = std::fs::read_to_string(&path).unwrap();
        let result = run_script(&script);
        if std::env::var_os("REWRITE").is_some() {
            std::fs::write(&path, result).unwrap();
        } else {
            let first = script.lines().zip(result.lines()).position(|(old, new)| old != new);
            assert!(script == result, "{}, line {:?}:\n{result}", path.display(), first.map(|line| line + 1));
        }
    }
}

/// The script with the results as they are now.
fn run_script(script: &str) -> String {
    let mut out = String::new();
    let mut shape = Shape::default();
    let mut lines = script.lines();
    while let Some(line) = lines.next() {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut input = Vec::new();
        for line in lines.by_ref().take_while(|line| *line != "----") {
            writeln!(out, "{line}").unwrap();
            input.push(line);
        }
        // The old result.
        lines.by_ref().take_while(|line| !line.is_empty()).for_each(drop);
        let result = shape.command(line, &input);
        writeln!(out, "----\n{}\n", result.trim_end()).unwrap();
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

struct Shape {
    version: Version,
    busy: BTreeSet<FileNumber>,
    running: Vec<OutputRange>,
    oldest: u64,
    scanned: u64,
    options: LeveledOptions,
}

impl Default for Shape {
    fn default() -> Self {
        let options = LeveledOptions {
            l0_trigger: 2,
            l0_bytes: 1_000_000,
            base_level_size: 1_000,
            level_ratio: 10,
            table_size: 100,
            max_compaction_bytes: 2_500,
        };
        let version = Version::new();
        Shape { version, busy: BTreeSet::new(), running: Vec::new(), oldest: 1_000_000, scanned: 0, options }
    }
}

impl Shape {
    fn input(&self) -> PickInput<'_> {
        PickInput {
            version: &self.version,
            busy: &self.busy,
            running: &self.running,
            oldest_snapshot: self.oldest,
            scanned_tombstones: self.scanned,
            options: &self.options,
        }
    }

    fn command(&mut self, line: &str, input: &[&str]) -> String {
        let (name, args) = line.split_once(' ').unwrap_or((line, ""));
        match name {
            "options" => self.set_options(args),
            "define" => self.define(input),
            "targets" => self.targets(),
            "pick" => show(LeveledPicker.pick(&self.input()).as_ref()),
            "apply" => self.apply_all(),
            "manual" => self.manual(args),
            _ => panic!("no such command: {line}"),
        }
    }

    fn set_options(&mut self, args: &str) -> String {
        for (name, value) in args.split(' ').map(|arg| arg.split_once('=').expect("name=value")) {
            let value: u64 = value.parse().unwrap();
            match name {
                "l0_trigger" => self.options.l0_trigger = value as usize,
                "l0_bytes" => self.options.l0_bytes = value,
                "base_level_size" => self.options.base_level_size = value,
                "level_ratio" => self.options.level_ratio = value,
                "table_size" => self.options.table_size = value,
                "max_compaction_bytes" => self.options.max_compaction_bytes = value,
                "oldest" => self.oldest = value,
                "scanned" => self.scanned = value,
                _ => panic!("no such option: {name}"),
            }
        }
        "ok".to_owned()
    }

    fn define(&mut self, input: &[&str]) -> String {
        (self.busy, self.running) = (BTreeSet::new(), Vec::new());
        let mut edit = VersionEdit::new();
        for line in input {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "busy" => self.busy.extend(words[1..].iter().map(|word| FileNumber(word.parse().unwrap()))),
                "running" => {
                    let (smallest, largest) = range(words[2]);
                    self.running.push(OutputRange { level: level(words[1]), smallest, largest });
                }
                "cursor" => {
                    let user_key = Some(words[2].as_bytes().to_vec());
                    edit.cursors.push(CursorChange { keyspace: 0, level: level(words[1]), user_key });
                }
                _ => {
                    edit.add_table(0, level(words[0]), table(&words));
                }
            }
        }
        self.version = Version::new().apply(0, &edit).unwrap();
        self.levels()
    }

    fn levels(&self) -> String {
        let mut out = String::new();
        for level in self.version.levels().filter(|level| !level.is_empty()) {
            write!(out, "L{}: {} bytes:", level.number(), level.size_bytes()).unwrap();
            for table in level.tables() {
                let key = |key: &InternalKey| key.user_key.escape_ascii().to_string();
                write!(out, " {}[{}..{}]", table.number.0, key(&table.smallest), key(&table.largest))
                    .unwrap();
            }
            out.push('\n');
        }
        if out.is_empty() { "empty".to_owned() } else { out }
    }

    fn targets(&self) -> String {
        let targets = LevelTargets::new(&self.version, &self.options);
        let sizes: Vec<_> = (targets.base_level()..NUM_LEVELS)
            .map(|level| format!("L{level} {}", targets.size(level)))
            .collect();
        format!("base L{}: {}", targets.base_level(), sizes.join(", "))
    }

    fn apply_all(&mut self) -> String {
        let mut out = String::new();
        for _ in 0..100 {
            let Some(compaction) = LeveledPicker.pick(&self.input()) else {
                return out + &show(None) + "\n" + &self.levels();
            };
            writeln!(out, "{compaction}").unwrap();
            self.apply(&compaction);
        }
        out + "no end"
    }

    fn manual(&mut self, args: &str) -> String {
        let (begin, end) = range(args);
        let mut manual = ManualCompaction::new(Some(begin), Some(end), &self.version);
        let mut out = String::new();
        for _ in 0..100 {
            match manual.pick(&self.input()) {
                ManualPick::Compact(compaction) => {
                    writeln!(out, "{compaction}").unwrap();
                    self.apply(&compaction);
                    manual.completed(&compaction);
                }
                ManualPick::Wait => return out + "wait",
                ManualPick::Done => return out + "done\n" + &self.levels(),
            }
        }
        out + "no end"
    }

    /// Replaces the inputs by one table with all they hold, but for tombstones with nothing below.
    fn apply(&mut self, compaction: &Compaction) {
        let mut edit = VersionEdit::new();
        compaction.record(0, &mut edit);
        let tables = || compaction.input_tables().map(|(_, table)| table);
        let dropped =
            if compaction.deeper.iter().all(Vec::is_empty) { tables().map(|t| t.deletes).sum() } else { 0 };
        let entries = tables().map(|table| table.entries).sum::<u64>() - dropped;
        if !compaction.trivial_move && entries > 0 {
            let number = self.version.tables().map(|(_, table)| table.number.0).max().unwrap() + 1;
            // The newest bound stays the newest, which a version checks.
            let newest = tables().map(|table| table.largest_seq).max().unwrap();
            let range = compaction.output_range();
            edit.add_table(
                0,
                compaction.output_level,
                Arc::new(TableMetadata {
                    number: FileNumber(number),
                    file_size: compaction.input_bytes(),
                    tail_size: 0,
                    smallest: InternalKey::new(range.smallest, newest, ValueKind::Put),
                    largest: InternalKey::new(range.largest, newest, ValueKind::Put),
                    smallest_seq: newest,
                    largest_seq: newest,
                    entries,
                    deletes: tables().map(|table| table.deletes).sum::<u64>() - dropped,
                }),
            );
        }
        self.version = self.version.apply(0, &edit).unwrap();
    }
}

fn show(compaction: Option<&Compaction>) -> String {
    compaction.map_or("nothing".to_owned(), Compaction::to_string)
}

fn level(word: &str) -> usize {
    word.strip_prefix('L')
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no level: {word}"))
}

fn range(word: &str) -> (Vec<u8>, Vec<u8>) {
    let (begin, end) = word.split_once("..").unwrap_or_else(|| panic!("no range: {word}"));
    (begin.as_bytes().to_vec(), end.as_bytes().to_vec())
}

/// A table of words: level, number, range, then settings. By default it has 100 bytes and 10 puts, and sequence
/// numbers that fit its level.
fn table(words: &[&str]) -> Arc<TableMetadata> {
    let number: u64 = words[1].parse().unwrap();
    let (smallest, largest) = range(words[2]);
    let by_level = 100 * (NUM_LEVELS - level(words[0])) as u64 + if words[0] == "L0" { number } else { 0 };
    let (mut file_size, mut entries, mut deletes, mut seqs) = (100, 10, 0, (by_level, by_level));
    for (name, value) in words[3..].iter().map(|word| word.split_once('=').expect("name=value")) {
        match name {
            "size" => file_size = value.parse().unwrap(),
            "entries" => entries = value.parse().unwrap(),
            "deletes" => deletes = value.parse().unwrap(),
            "seq" => {
                let (low, high) = value.split_once('-').expect("low-high");
                seqs = (low.parse().unwrap(), high.parse().unwrap());
            }
            _ => panic!("no such setting: {name}"),
        }
    }
    Arc::new(TableMetadata {
        number: FileNumber(number),
        file_size,
        tail_size: 0,
        smallest: InternalKey::new(smallest, seqs.1, ValueKind::Put),
        largest: InternalKey::new(largest, seqs.1, ValueKind::Put),
        smallest_seq: seqs.0,
        largest_seq: seqs.1,
        entries,
        deletes,
    })
}
