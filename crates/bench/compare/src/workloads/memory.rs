//! The memory of a process that fills, overwrites and reads, with a small cache.

use super::{Plan, SMALL_CACHE, get_all, put_all, remove};
use crate::data::{self, Values};
use crate::engine::{Engine, Result, Settings};
use crate::rows::Figures;

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let settings = Settings { cache: SMALL_CACHE, ..plan.settings("memory") };
    let values = Values::new(plan.seed);
    let order = data::shuffled(plan.entries, plan.seed);
    let engine = E::open(&settings)?;
    put_all(&engine, &values, &order, 0)?;
    put_all(&engine, &values, &order, 1)?;
    get_all(&mut engine.reader()?, &order, 1)?;
    figures.add("memory.peak", status("VmHWM:")?);
    figures.add("memory.anonymous", status("RssAnon:")?);
    engine.close()?;
    remove(&settings.dir)
}

/// MiB of a line of this process's status.
fn status(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such line in the status")?;
    let kib: f64 = line.split_whitespace().nth(1).ok_or("an empty line in the status")?.parse()?;
    Ok(kib / 1024.0)
}
