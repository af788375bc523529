//! `stress`: a sustained mixed load on a database on disk, with histograms, a time series, a picture and verdicts.
//!
//! `--soak N` stops all threads each N seconds, lets the background work end, and fails when something has grown that
//! must not: files that no version has, open files, pins, memory.

#![allow(clippy::disallowed_methods, reason = "a soak waits for the background work")]

use clap::Parser;
use esker::vfs::{OsVfs, Vfs};
use esker::{Db, Options};
use esker_base::{FileKind, parse_file_name};
use esker_bench::load::keys::check;
use esker_bench::load::{Arguments, Inside, Result, Soak, Store, process, run, text};
use esker_bench::measure::median;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A sustained mixed load on esker, and what it does to latencies, levels and memory over time.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    arguments: Arguments,
    /// The directory in which the database is made, and removed at the end. Default: that for temporary files.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Check for leaks each so many seconds, and fail on growth.
    #[arg(long)]
    soak: Option<u64>,
    /// The folder for `stress.csv`, `stress.json` and `stress.svg`.
    #[arg(long, default_value = "out")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match stress(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stress: {error}");
            ExitCode::FAILURE
        }
    }
}

fn stress(cli: &Cli) -> Result<()> {
    let dir = match &cli.dir {
        Some(dir) => tempfile::tempdir_in(dir)?,
        None => tempfile::tempdir()?,
    };
    let setting = cli.arguments.setting();
    let db = Options::new().memory_limit(setting.memory_limit).open(dir.path())?;
    let store = Esker { db: db.clone(), scans: AtomicU64::new(0) };
    let mut leaks = Leaks::new(&db, dir.path());
    let soak = cli
        .soak
        .map(|seconds| Soak { every: Duration::from_secs(seconds), check: Box::new(|| leaks.check()) });
    let outcomes = [run("esker", &store, &setting, soak, text::each_second())?];
    println!("{}", text::report(&outcomes));
    println!("{}", db.stats());
    text::write(&outcomes, &cli.out)?;
    drop(store);
    db.close()?;
    if outcomes[0].wrong > 0 {
        return Err(format!("{} wrong answers", outcomes[0].wrong).into());
    }
    Ok(())
}

/// esker under load.
struct Esker {
    db: Db,
    scans: AtomicU64,
}

impl Store for Esker {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.db.put(key, value)?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.db.delete(key)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        Ok(self.db.get_with(key, check)?)
    }

    /// Each eighth scan is over a snapshot, so that a soak sees those come and go.
    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let snapshot = self.scans.fetch_add(1, Relaxed).is_multiple_of(8).then(|| self.db.snapshot());
        let mut cursor = match &snapshot {
            Some(snapshot) => snapshot.cursor()?,
            None => self.db.cursor()?,
        };
        cursor.seek(from)?;
        let mut count = 0;
        while cursor.valid() && count < limit {
            each(cursor.key(), cursor.value());
            count += 1;
            cursor.next()?;
        }
        Ok(count)
    }

    fn inside(&self) -> Inside {
        let stats = self.db.stats();
        let level0 = stats.levels.first();
        Inside {
            level0: level0.map(|level| level.tables),
            debt: Some(stats.pending_compaction_bytes),
            memory: Some(stats.memtable_bytes + stats.cache_bytes),
            stalled: Some(stats.stalls.values().map(|stall| stall.total).sum::<Duration>().as_secs_f64()),
        }
    }
}

/// Bytes besides tables that a database may have on disk after a flush: the log's segment, two manifests.
const BESIDES_MAX: u64 = 80 << 20;
/// Files that are open besides tables, and those of the program.
const OPEN_BESIDES_MAX: u64 = 32;
/// How long leftovers may take to go.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks for what grows.
struct Leaks<'a> {
    db: &'a Db,
    dir: &'a Path,
    resident: Vec<f64>,
}

impl<'a> Leaks<'a> {
    fn new(db: &'a Db, dir: &'a Path) -> Self {
        Leaks { db, dir, resident: Vec::new() }
    }

    /// Nothing else uses the database now.
    fn check(&mut self) -> Result<()> {
        self.db.flush()?;
        let wait = Duration::from_millis(100);
        let mut waited = Duration::ZERO;
        let mut problem = self.leftovers()?;
        while let (Some(_), true) = (&problem, waited < PATIENCE) {
            std::thread::sleep(wait);
            waited += wait;
            problem = self.leftovers()?;
        }
        if let Some(problem) = problem {
            return Err(format!("after {PATIENCE:?} without load: {problem}").into());
        }
        let (open, tables) = (process::open_files(), self.db.stats().tables());
        if open > tables + OPEN_BESIDES_MAX {
            return Err(format!("{open} files are open, with {tables} tables").into());
        }
        self.resident.push(process::resident_mib());
        let third = self.resident.len().div_ceil(3);
        let (first, last) = (median(&self.resident[..third]), *self.resident.last().unwrap_or(&0.0));
        eprintln!(
            "    soak: {tables} tables, {open} open files, {last:.1} MiB resident, first {first:.1} MiB"
        );
        if last > first * 1.25 + 16.0 {
            return Err(format!("{last:.1} MiB are resident, and were {first:.1} in the first third").into());
        }
        Ok(())
    }

    /// What is there that nobody needs, in words.
    fn leftovers(&self) -> Result<Option<String>> {
        let (mut tables, mut besides) = (0, 0);
        for entry in OsVfs::new().list(self.dir)? {
            match parse_file_name(&entry.name) {
                Some((FileKind::Table, _)) => tables += entry.size,
                _ => besides += entry.size,
            }
        }
        let stats = self.db.stats();
        let expected = stats.table_bytes();
        let problems = [
            (tables != expected, format!("tables have {tables} bytes, those of the version {expected}")),
            (besides > BESIDES_MAX, format!("{besides} bytes are no tables")),
            (stats.snapshots > 0, format!("{} snapshots are held", stats.snapshots)),
            (stats.cursors > 0, format!("{} cursors are open", stats.cursors)),
            (stats.pinned_memtable_bytes > 0, format!("{} bytes are pinned", stats.pinned_memtable_bytes)),
            (stats.obsolete_files > 0, format!("{} obsolete files are left", stats.obsolete_files)),
        ];
        Ok(problems.into_iter().find_map(|(is, text)| is.then_some(text)))
    }
}
