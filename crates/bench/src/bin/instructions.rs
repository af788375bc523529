//! `instructions`: how many instructions an operation takes, counted by callgrind, beside a committed baseline.
//!
//! The program runs itself under valgrind, once for each row, and only what [`esker_measured`] runs is counted. All is
//! in memory, on one thread, from fixed seeds, so the counts of a build are the same in each run, but for the addresses
//! of memory: another directory or compiler changes them by a few in a hundred. The exit code is 1 when a count has grown by more than a tenth.
//!
//! ```sh
//! cargo run --release -p esker-bench --bin instructions                       # compares with the baseline
//! cargo run --release -p esker-bench --bin instructions -- --rewrite          # makes it anew
//! cargo run --release -p esker-bench --bin instructions -- --profile put      # where a row's instructions go
//! ```

#![allow(
    clippy::disallowed_methods,
    reason = "reads and writes the baseline, which is no file of a database"
)]

use clap::Parser;
use esker::vfs::CrashMode;
use esker::{Cursor, Db};
use esker_bench::data::{DataSet, ENTRIES};
use esker_bench::fixture::{self, BeforeCompaction};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// What the counts are compared with.
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/callgrind-baseline.csv");

const HEAD: &str = "\
# Instructions for one operation or entry, counted by callgrind in a release build.
# `cargo run --release -p esker-bench --bin instructions -- --rewrite` writes this file; .ci/run fails when a count grows
# by more than 10 %. A new baseline that is higher needs a line in docs/decisions that says what the instructions buy.
row,instructions
";

/// A count may grow by so much.
const GROWTH_MAX: f64 = 1.10;

/// Puts in a batch.
const BATCH: usize = 500;

/// A row: makes its database, has its work measured, checks it.
type Row = (&'static str, fn(&DataSet));

/// Each row's work is over all 2,000 entries.
const ROWS: [Row; 12] = [
    ("get-memtable", |set| gets(&fixture::in_memtable(set), &set.shuffled, true)),
    ("get-table", |set| gets(&fixture::in_level0(set), &set.shuffled, true)),
    ("get-level2", |set| gets(&fixture::in_level2(set), &set.shuffled, true)),
    ("get-absent", |set| gets(&fixture::in_level0(set), &set.absent, false)),
    ("put", |set| write(|db| fixture::put_all(db, set))),
    ("batch-put", |set| write(|db| fixture::write_batches(db, set, BATCH))),
    ("scan", |set| scan(&fixture::in_memtable_and_level0(set), Cursor::seek_to_first, Cursor::next)),
    ("scan-table", |set| scan(&fixture::in_level0(set), Cursor::seek_to_first, Cursor::next)),
    ("scan-table-reverse", |set| scan(&fixture::in_level0(set), Cursor::seek_to_last, Cursor::prev)),
    ("flush", flush),
    ("compaction", compaction),
    ("recovery", recovery),
];

/// Instructions of an operation by callgrind, beside the baseline.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    /// Write the baseline anew.
    #[arg(long)]
    rewrite: bool,
    /// Print the functions in which a row's instructions are spent.
    #[arg(long, value_name = "ROW", conflicts_with = "rewrite")]
    profile: Option<String>,
    /// Do a row's work in this process. For the program itself.
    #[arg(long, hide = true)]
    work: Option<String>,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let done = match (&cli.work, &cli.profile) {
        (Some(row), _) => find(row).map(|(_, work)| {
            work(&DataSet::sequential());
            true
        }),
        (_, Some(row)) => profile(row).map(|()| true),
        _ => compare(cli.rewrite),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::from(2)
        }
    }
}

fn find(name: &str) -> Result<Row> {
    let row = ROWS.into_iter().find(|(row, _)| *row == name);
    let names = || ROWS.map(|(row, _)| row).join(", ");
    row.ok_or_else(|| format!("no row {name:?}; there are {}", names()).into())
}

/// Counts all rows, prints them beside the baseline, and says whether none has grown too much.
fn compare(rewrite: bool) -> Result<bool> {
    let baseline = if rewrite { BTreeMap::new() } else { read_baseline()? };
    let mut file = HEAD.to_owned();
    let mut good = true;
    println!("| row | baseline | now | ratio | |");
    println!("|---|--:|--:|--:|---|");
    for (row, _) in ROWS {
        let now = count(row)?;
        writeln!(file, "{row},{now:.1}")?;
        let Some(before) = baseline.get(row) else {
            good &= rewrite;
            println!("| {row} | | {now:.1} | | {} |", if rewrite { "" } else { "**not in the baseline**" });
            continue;
        };
        let ratio = now / before;
        good &= ratio <= GROWTH_MAX;
        let note = match ratio {
            ratio if ratio > GROWTH_MAX => "**grown**",
            ratio if ratio < 1.0 / GROWTH_MAX => "less: rewrite the baseline",
            _ => "",
        };
        println!("| {row} | {before:.1} | {now:.1} | {ratio:.3} | {note} |");
    }
    if rewrite {
        std::fs::write(BASELINE, file)?;
    }
    Ok(good)
}

fn read_baseline() -> Result<BTreeMap<String, f64>> {
    let text = std::fs::read_to_string(BASELINE).map_err(|error| format!("{BASELINE}: {error}"))?;
    let lines = text.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .map(|line| {
            let (row, count) = line.split_once(',').ok_or("a line of the baseline without a comma")?;
            Ok((row.to_owned(), count.parse()?))
        })
        .collect()
}

/// Instructions of a row's work for one entry.
fn count(row: &str) -> Result<f64> {
    let output = callgrind(row, Path::new("/dev/null"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected =
        text.lines().find_map(|line| line.split_once("Collected :")?.1.trim().parse::<u64>().ok());
    let collected = collected.ok_or_else(|| format!("callgrind counted nothing:\n{text}"))?;
    if collected < ENTRIES as u64 {
        return Err(
            format!("only {collected} instructions for {row}: was `esker_measured` not found?").into()
        );
    }
    Ok(collected as f64 / ENTRIES as f64)
}

/// This program again under callgrind, which counts only in [`esker_measured`].
fn callgrind(row: &str, out: &Path) -> Result<Output> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--toggle-collect=*esker_measured*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args(["--work", row])
        .output()
        .map_err(|error| format!("valgrind: {error}; Debian's package has its name"))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

fn profile(row: &str) -> Result<()> {
    find(row)?;
    let out = PathBuf::from(format!("callgrind.out.{row}"));
    callgrind(row, &out)?;
    let output = Command::new("callgrind_annotate").arg("--threshold=95").arg(&out).output()?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("\nThe whole profile, for kcachegrind too: {}", out.display());
    Ok(())
}

/// What is counted.
#[inline(never)]
fn esker_measured(work: &mut dyn FnMut()) {
    work();
}

fn gets(db: &Db, keys: &[Vec<u8>], hits: bool) {
    esker_measured(&mut || {
        for key in keys {
            let len = db.get_with(key, <[u8]>::len).expect("tables are sound");
            assert_eq!(black_box(len).is_some(), hits);
        }
    });
}

fn write(mut work: impl FnMut(&Db)) {
    let db = fixture::open(fixture::options());
    esker_measured(&mut || work(&db));
    assert_eq!(db.stats().memtable_entries, ENTRIES as u64);
}

fn scan(db: &Db, start: fn(&mut Cursor) -> esker::Result<()>, step: fn(&mut Cursor) -> esker::Result<()>) {
    let mut count = 0;
    esker_measured(&mut || {
        let mut cursor = db.cursor().expect("tables are sound");
        start(&mut cursor).expect("tables are sound");
        while cursor.valid() {
            black_box((cursor.key(), cursor.value()));
            count += 1;
            step(&mut cursor).expect("tables are sound");
        }
    });
    assert_eq!(count, ENTRIES);
}

fn flush(set: &DataSet) {
    let db = fixture::in_memtable(set);
    esker_measured(&mut || db.flush().expect("memory can be written to"));
    assert_eq!(db.stats().flushes, 1);
}

fn compaction(set: &DataSet) {
    let db = BeforeCompaction::new(set, fixture::options()).open();
    esker_measured(&mut || fixture::compact(&db));
    fixture::assert_compacted(&db, ENTRIES);
}

fn recovery(_set: &DataSet) {
    let vfs = fixture::unclean_end(ENTRIES);
    let mut db = None;
    esker_measured(&mut || {
        db = Some(fixture::open_on(vfs.crash_clone_with(CrashMode::Keep), fixture::options()));
    });
    assert_eq!(db.map(|db| db.stats().last_sequence), Some(ENTRIES as u64));
}
