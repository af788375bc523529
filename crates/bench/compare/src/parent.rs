//! The parent process: rounds, child processes, and the cleaning up after them.

use crate::cli::Run;
use crate::engine::{Failure, Result};
use crate::engines::{self, About};
use crate::gates;
use crate::report::{Results, Setting};
use crate::rows::{Figure, Group};
use crate::workloads::crash::READY;
use crate::workloads::{Plan, Step};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Measures everything and writes the report.
pub(crate) fn run(run: &Run) -> Result<()> {
    let names = engines::named(&run.engines)?;
    let engines = names.iter().map(|name| engines::about(name)).collect::<Result<Vec<About>>>()?;
    let groups = if run.groups.is_empty() { Group::all().to_vec() } else { run.groups.clone() };
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
                let (figures, failure) = measure(run, &setting, engine, *group);
                results.add(engine, figures);
                if let Some(failure) = failure {
                    results.fail(engine, *group, &failure.to_string());
                }
            }
            // What was measured is kept if the run is cut short.
            results.write(&run.out)?;
        }
    }
    println!("{}\n{}", results.markdown(), gates::table(std::slice::from_ref(&results)));
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

/// One engine and group: what was measured, and what went wrong after that.
fn measure(run: &Run, setting: &Setting, engine: &str, group: Group) -> (Vec<Figure>, Option<Failure>) {
    let mut figures = Vec::new();
    let failure = try_measure(run, setting, engine, group, &mut figures).err();
    (figures, failure)
}

/// The same, in a directory that is removed whatever happens.
fn try_measure(
    run: &Run,
    setting: &Setting,
    engine: &str,
    group: Group,
    figures: &mut Vec<Figure>,
) -> Result<()> {
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
    let limit = Duration::from_secs(run.child_seconds);
    if group == Group::Crash {
        fill_and_kill(&Plan { step: Step::FillAndWait, ..plan.clone() }, limit)?;
    }
    let mut child = spawn("child", &plan)?;
    // What else the library of an engine prints is no figure.
    let failure =
        read_lines(&mut child, limit, |line| figures.extend(serde_json::from_str::<Figure>(&line)))?;
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}

/// Gives `each` what a child prints until it ends, or kills it when it takes longer. What went wrong, if anything did.
pub(crate) fn read_lines(
    child: &mut Child,
    limit: Duration,
    mut each: impl FnMut(String),
) -> Result<Option<String>> {
    let (output, start) = (lines(child), Instant::now());
    let hangs = loop {
        match output.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(line) => each(line),
            Err(end) => break end == RecvTimeoutError::Timeout,
        }
    };
    if hangs {
        // A child that has ended does not mind.
        child.kill()?;
    }
    let status = child.wait()?;
    Ok(match status.success() {
        true => None,
        false if hangs => Some(format!("killed after {limit:?}")),
        false => Some(format!("the process ended with {status}")),
    })
}

/// Runs a child until it says that it has written everything, and kills it.
fn fill_and_kill(plan: &Plan, limit: Duration) -> Result<()> {
    let mut child = spawn("child", plan)?;
    let line = lines(&mut child).recv_timeout(limit);
    child.kill()?;
    child.wait()?;
    match line.as_deref() {
        Ok(READY) => Ok(()),
        _ => Err("the process ended before everything was written".into()),
    }
}

/// This program again, told what to do.
pub(crate) fn spawn(command: &str, plan: &impl serde::Serialize) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().ok_or("a child without an input")?;
    input.write_all(serde_json::to_string(plan)?.as_bytes())?;
    Ok(child)
}

/// The lines that a child prints, from a thread that ends with it.
fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
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
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(above: &Path, name: &str) -> Result<Self> {
        Self::sweep(above)?;
        let dir = above.join(format!("esker-compare-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        Ok(Scratch(dir))
    }

    /// Removes what is left of runs that were killed.
    fn sweep(above: &Path) -> Result<()> {
        for entry in std::fs::read_dir(above)? {
            let entry = entry?;
            let name = entry.file_name();
            let left = name.to_str().and_then(|name| name.strip_prefix("esker-compare-")?.split('-').next());
            if left.is_some_and(|process| !Path::new("/proc").join(process).exists()) {
                std::fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("compare: {} is left: {error}", self.0.display());
        }
    }
}
