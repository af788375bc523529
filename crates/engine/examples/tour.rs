//! A tour of esker on a real source tree: every line of every file becomes an entry.
//!
//! ```sh
//! cargo run --release --example tour [DIR]
//! ```
//!
//! Without `DIR` it reads the sources of esker itself. It loads them, looks things up, renames a file in one atomic
//! batch while a snapshot looks on, and then crashes for real: it runs itself again as a child, kills that with SIGKILL
//! in the middle of its writes, opens the database again, and shows that every acknowledged batch is there and whole.

#![allow(
    clippy::disallowed_methods,
    reason = "an example is a program of its own: it reads files and starts processes"
)]

use esker::{Db, WriteBatch};
use indicatif::{ProgressBar, ProgressStyle};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Keys that each of the child's batches writes.
const KEYS_A_BATCH: u32 = 8;

fn main() -> Outcome {
    let mut args = std::env::args().skip(1);
    match (args.next(), args.next()) {
        (Some(flag), Some(dir)) if flag == "--write-until-killed" => write_until_killed(Path::new(&dir)),
        (dir, None) => tour(dir.map_or_else(own_sources, PathBuf::from)),
        _ => Err("usage: tour [DIR]".into()),
    }
}

fn own_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tour(tree: PathBuf) -> Outcome {
    let tree = tree.canonicalize().map_err(|error| format!("{}: {error}", tree.display()))?;
    let dir = std::env::temp_dir().join(format!("esker-tour-{}", std::process::id()));
    let db = Db::open(&dir)?;

    title("Load");
    let paths = load(&db, &tree)?;

    title("Get");
    let first = paths.first().ok_or("there is no text file in that directory")?;
    get(&db, first, 1)?;
    get(&db, paths.last().unwrap_or(first), 1)?;
    get(&db, "no/such/file", 1)?;

    title("Scan the prefix of one file");
    let file = paths.iter().find(|path| path.ends_with("lib.rs")).unwrap_or(first);
    scan(&db, file)?;

    title("Rename a file in one batch, while a snapshot looks on");
    rename(&db, file)?;

    title("Crash");
    db.close()?;
    crash(&dir)?;

    title("Stats");
    let db = Db::open(&dir)?;
    db.compact_range::<&[u8], _>(..)?;
    println!("{}", db.stats());
    println!("Verified: {}", db.verify()?);
    db.close()?;

    title("Look inside");
    println!("The files are in {}. Try:\n", dir.display());
    println!("  cargo run --release --bin sst-dump -- db {}", dir.display());
    println!("  cargo run --release --bin sst-dump -- verify {}", dir.display());
    if let Some(table) = some_table(&dir)? {
        println!("  cargo run --release --bin sst-dump -- layout {}", table.display());
    }
    Ok(())
}

fn title(text: &str) {
    println!("\n== {text} ==");
}

/// Lines sort by number, and all lines of a file lie together.
fn line_key(path: &str, line: usize) -> String {
    format!("{path}:{line:06}")
}

/// Loads every text file below `tree`, one atomic batch a file. Returns their paths, sorted.
fn load(db: &Db, tree: &Path) -> Outcome<Vec<String>> {
    let files = text_files(tree)?;
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} files  {msg}")?;
    let bar = ProgressBar::new(files.len() as u64).with_style(style);
    let (start, mut lines, mut bytes) = (Instant::now(), 0, 0);
    let mut paths = Vec::new();
    for file in files {
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let path = file.strip_prefix(tree)?.to_string_lossy().into_owned();
        let mut batch = WriteBatch::new();
        for (at, line) in text.lines().enumerate() {
            batch.put(line_key(&path, at + 1), line);
        }
        lines += batch.len();
        bytes += text.len();
        db.write(batch)?;
        paths.push(path);
        bar.inc(1);
        bar.set_message(format!("{lines} lines"));
    }
    bar.finish();
    let took = start.elapsed();
    let rate = f64::from(lines) / took.as_secs_f64();
    println!(
        "{lines} lines, {bytes} bytes, from {}, in {took:.1?}: {rate:.0} lines a second",
        tree.display()
    );
    paths.sort();
    Ok(paths)
}

/// Files that are small enough and not in a directory of build products or of git.
fn text_files(tree: &Path) -> Outcome<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![tree.to_path_buf()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let kind = entry.file_type()?;
            if kind.is_dir() && name != "target" && name != ".git" && name != "node_modules" {
                todo.push(entry.path());
            } else if kind.is_file() && entry.metadata()?.len() < 4 << 20 {
                found.push(entry.path());
            }
        }
    }
    Ok(found)
}

fn get(db: &Db, path: &str, line: usize) -> Outcome {
    let start = Instant::now();
    let found = db.get(line_key(path, line))?;
    let took = start.elapsed();
    match found {
        Some(text) => println!("{path}, line {line}: {:?}  ({took:.1?})", String::from_utf8_lossy(&text)),
        None => println!("{path}, line {line}: nothing  ({took:.1?})"),
    }
    Ok(())
}

fn scan(db: &Db, path: &str) -> Outcome {
    let start = Instant::now();
    let count = db.prefix(format!("{path}:")).count();
    println!("{path} has {count} lines, counted in {:.1?}. The first three, and the last:", start.elapsed());
    let prefix = || db.prefix(format!("{path}:"));
    for entry in prefix().take(3).chain(prefix().rev().take(1)) {
        let (key, value) = entry?;
        println!("  {} {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
    }
    Ok(())
}

fn rename(db: &Db, old: &str) -> Outcome {
    let new = format!("renamed/{old}");
    let snapshot = db.snapshot();
    let mut batch = WriteBatch::new();
    for entry in db.prefix(format!("{old}:")) {
        let (key, value) = entry?;
        batch.put([b"renamed/", &key[..]].concat(), &value).delete(&key);
    }
    println!("{} operations, all or nothing.", batch.len());
    db.write(batch)?;
    let count = |path: &str| db.prefix(format!("{path}:")).count();
    let seen = |path: &str| snapshot.prefix(format!("{path}:")).count();
    println!("            {:>10} {:>10}", "old name", "new name");
    println!("now         {:>10} {:>10}", count(old), count(&new));
    println!("snapshot    {:>10} {:>10}", seen(old), seen(&new));
    Ok(())
}

/// The child: writes numbered batches for ever, and says which were acknowledged.
fn write_until_killed(dir: &Path) -> Outcome {
    let db = Db::open(dir)?;
    let mut out = std::io::stdout().lock();
    for round in 0_u32.. {
        let mut batch = WriteBatch::new();
        for key in 0..KEYS_A_BATCH {
            batch.put(crash_key(round, key), round.to_le_bytes());
        }
        db.write(batch)?;
        writeln!(out, "{round}")?;
        out.flush()?;
    }
    Ok(())
}

fn crash_key(round: u32, key: u32) -> String {
    format!("crash/{round:08}/{key}")
}

fn crash(dir: &Path) -> Outcome {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("--write-until-killed")
        .arg(dir)
        .stdout(Stdio::piped())
        .spawn()?;
    let pid = child.id();
    let lines = BufReader::new(child.stdout.take().ok_or("the child has no output")?).lines();
    let reader =
        std::thread::spawn(move || lines.map_while(Result::ok).filter_map(|line| line.parse().ok()).last());
    std::thread::sleep(Duration::from_millis(400));
    child.kill()?;
    child.wait()?;
    let last: Option<u32> = reader.join().map_err(|_| "the reader panicked")?;
    let acknowledged = last.ok_or("the child was killed before its first batch")? + 1;
    println!(
        "Process {pid} was killed after it had reported {acknowledged} batches of {KEYS_A_BATCH} writes."
    );

    let start = Instant::now();
    let db = Db::open(dir)?;
    println!("Opened again in {:.1?}, without any repair.", start.elapsed());
    let mut whole = 0;
    for round in 0.. {
        let there =
            (0..KEYS_A_BATCH).filter(|&key| matches!(db.get(crash_key(round, key)), Ok(Some(_)))).count();
        match there as u32 {
            KEYS_A_BATCH => whole += 1,
            0 => break,
            part => return Err(format!("batch {round} has {part} of {KEYS_A_BATCH} writes").into()),
        }
    }
    if whole < acknowledged {
        return Err(format!("{acknowledged} batches were acknowledged, {whole} are there").into());
    }
    println!(
        "All {acknowledged} acknowledged batches are there and whole; {} more had reached the log.",
        whole - acknowledged
    );
    Ok(db.close()?)
}

fn some_table(dir: &Path) -> Outcome<Option<PathBuf>> {
    let mut entries = std::fs::read_dir(dir)?.filter_map(Result::ok).map(|entry| entry.path());
    Ok(entries.find(|path| path.extension().is_some_and(|extension| extension == "sst")))
}
