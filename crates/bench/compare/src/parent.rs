//! The parent process: rounds, child processes, and the cleaning up after them.

use crate::cli::Run;
use crate::engine::Result;
use crate::engines::{self, About};
use crate::report::{Results, Setting};
use crate::rows::{Figure, Group};
use crate::workloads::crash::READY;
use crate::workloads::{Plan, Step};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const GROUPS: [Group; 5] = [Group::Published, Group::Core, Group::Sync, Group::Crash, Group::Memory];

/// After this a child is taken to hang, and killed.
const CHILD_MAX: Duration = Duration::from_secs(1800);

/// Measures everything and writes the report.
pub(crate) fn run(run: &Run) -> Result<()> {
    let names: Vec<String> = match run.engines.is_empty() {
        true => engines::NAMES.iter().map(|&name| name.into()).collect(),
        false => run.engines.clone(),
    };
    let engines = names.iter().map(|name| engines::about(name)).collect::<Result<Vec<About>>>()?;
    let groups = if run.groups.is_empty() { GROUPS.to_vec() } else { run.groups.clone() };
    let setting = setting(run);
    let mut results = Results::new(engines, setting.clone());
    let start = Instant::now();
    for round in 0..setting.rounds {
        for group in &groups {
            for turn in 0..names.len() {
                // Another engine begins in each round, so that none always runs on the same heels.
                let engine = &names[(turn + round as usize) % names.len()];
                eprintln!(
                    "[{:4.0} s] round {} of {}, {group:?}: {engine}",
                    start.elapsed().as_secs_f64(),
                    round + 1,
                    setting.rounds
                );
                match measure(run, &setting, engine, *group) {
                    Ok(figures) => results.add(engine, figures),
                    Err(error) => results.fail(engine, *group, &error.to_string()),
                }
            }
        }
        results.write(&run.out)?;
    }
    println!("{}", results.markdown());
    println!("Measured in {:.0} s; files are in {}.", start.elapsed().as_secs_f64(), run.out.display());
    Ok(())
}

fn setting(run: &Run) -> Setting {
    let (entries, rounds, cache, memtable, synced) = match (run.quick, run.large) {
        (true, _) => (30_000, 3, 64, 4, 100),
        (_, true) => (2_000_000, 3, 512, 64, 400),
        _ => (100_000, 3, 64, 4, 400),
    };
    Setting {
        entries: run.entries.unwrap_or(entries),
        rounds: run.rounds.unwrap_or(rounds),
        cache_mib: run.cache.unwrap_or(cache),
        memtable_mib: run.memtable.unwrap_or(memtable),
        synced: run.synced.unwrap_or(synced),
        seed: run.seed,
    }
}

/// One engine and group, in a directory that is removed whatever happens.
fn measure(run: &Run, setting: &Setting, engine: &str, group: Group) -> Result<Vec<Figure>> {
    let above = if group == Group::Sync { &run.disk } else { &run.dir };
    let dir = Scratch::new(above, engine)?;
    let plan = Plan {
        engine: engine.into(),
        group,
        step: Step::Measure,
        dir: dir.0.clone(),
        entries: setting.entries,
        synced: setting.synced,
        cache: setting.cache_mib << 20,
        memtable: setting.memtable_mib << 20,
        seed: setting.seed,
    };
    if group == Group::Crash {
        fill_and_kill(&Plan { step: Step::FillAndWait, ..plan.clone() })?;
    }
    let mut child = spawn(&plan)?;
    let output = lines(&mut child);
    let line = output.recv_timeout(CHILD_MAX);
    if line.is_err() {
        // A child that has ended does not mind.
        child.kill()?;
    }
    let status = child.wait()?;
    match line {
        Ok(line) if status.success() => Ok(serde_json::from_str(&line)?),
        _ => Err(format!("the process ended with {status}").into()),
    }
}

/// Runs a child until it says that it has written everything, and kills it.
fn fill_and_kill(plan: &Plan) -> Result<()> {
    let mut child = spawn(plan)?;
    let line = lines(&mut child).recv_timeout(CHILD_MAX);
    child.kill()?;
    child.wait()?;
    match line.as_deref() {
        Ok(READY) => Ok(()),
        _ => Err("the process ended before everything was written".into()),
    }
}

/// This program again, told what to do.
fn spawn(plan: &Plan) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("a child without an input")?;
    input.write_all(serde_json::to_string(plan)?.as_bytes())?;
    Ok(child)
}

/// The lines that a child prints, from a thread that ends with it.
fn lines(child: &mut Child) -> std::sync::mpsc::Receiver<String> {
    let (sender, receiver) = std::sync::mpsc::channel();
    if let Some(output) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    receiver
}

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(above: &Path, name: &str) -> Result<Self> {
        let dir = above.join(format!("esker-compare-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(Scratch(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("compare: {} is left: {error}", self.0.display());
        }
    }
}
