//! `compare stress`: the loads of `esker_bench::load` on several engines, in a process of its own each.

use crate::cli::Stress;
use crate::engine::{Direction, Engine, Reader, Result, Settings};
use crate::engines::{self, Task};
use crate::parent::{Scratch, read_lines, spawn};
use esker_bench::load::keys::check;
use esker_bench::load::{Inside, Outcome, Setting, Store, text};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// What a child process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    engine: String,
    dir: PathBuf,
    setting: Setting,
}

/// Puts the load on each engine, and writes the report. An engine that fails is left out.
pub(crate) fn run(stress: &Stress) -> Result<()> {
    let names = engines::named(&stress.engines)?;
    let setting = stress.load.setting();
    let mut outcomes = Vec::new();
    for engine in &names {
        eprintln!("{engine}");
        match measure(stress, engine, &setting) {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => eprintln!("{engine} failed: {error}"),
        }
    }
    if outcomes.is_empty() {
        return Err("no engine came to an end".into());
    }
    println!("{}", text::report(&outcomes));
    text::write(&outcomes, &stress.out)
}

fn measure(stress: &Stress, engine: &str, setting: &Setting) -> Result<Outcome> {
    let dir = Scratch::new(&stress.dir, engine)?;
    let plan = Plan { engine: engine.into(), dir: dir.path().join("db"), setting: setting.clone() };
    let mut child = spawn("stress-child", &plan)?;
    // The filling before the load and the closing behind it have no limit of their own.
    let limit = Duration::from_secs_f64(setting.seconds + 600.0);
    let mut found = None;
    let ended =
        read_lines(&mut child, limit, |line| found = serde_json::from_str(&line).ok().or(found.take()))?;
    match found {
        Some(outcome) => Ok(outcome),
        None => Err(ended.unwrap_or_else(|| "the process printed nothing".into()).into()),
    }
}

/// Reads a plan, runs the load, prints what came out as a line of JSON.
pub(crate) fn child() -> Result<()> {
    let plan: Plan = serde_json::from_reader(std::io::stdin().lock())?;
    let outcome = engines::with_engine(&plan.engine, &plan)?;
    println!("{}", serde_json::to_string(&outcome)?);
    Ok(())
}

impl Task for &Plan {
    type Output = Outcome;

    /// The memory limit is shared out as esker does: half for the cache, half for five memtables.
    fn run<E: Engine>(self) -> Result<Outcome> {
        let limit = self.setting.memory_limit;
        let settings =
            Settings { dir: self.dir.clone(), cache: limit / 2, memtable: limit / 10, sync: false };
        let engine = E::open(&settings)?;
        let outcome =
            esker_bench::load::run(E::NAME, &Under(&engine), &self.setting, None, text::each_second())?;
        engine.close()?;
        Ok(outcome)
    }
}

/// An engine under load: each read sees the newest state.
struct Under<'a, E>(&'a E);

impl<E: Engine> Store for Under<'_, E> {
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.put(key, value)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.0.delete(key)
    }

    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        self.0.reader()?.get(key, check)
    }

    fn scan(&self, from: &[u8], limit: usize, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<usize> {
        let from = (!from.is_empty()).then_some(from);
        self.0.reader()?.scan(from, Direction::Forward, limit, each)
    }

    fn inside(&self) -> Inside {
        self.0.inside()
    }
}
