//! Gets out of a full memtable, and what a flush and a merge cost the processor, whichever threads do it.
//!
//! The keys of one half are written and flushed, then all keys are written and flushed; so the merge reads half as many
//! entries again as there are keys.

use super::{LARGE_MEMTABLE, Plan, clock_ns, get_all, per_operation, put_all, remove};
use crate::data::{self, Values};
use crate::engine::{Engine, Result, Settings, Settle};
use crate::rows::Figures;
use rustix::time::ClockId;

const ENTRIES_MAX: u64 = 100_000;

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let settings = Settings { memtable: LARGE_MEMTABLE, ..plan.settings("work") };
    let entries = plan.entries.min(ENTRIES_MAX);
    let values = Values::new(plan.seed);
    let order = data::shuffled(entries, plan.seed);
    let half = &order[..order.len() / 2];

    let mut engine = E::open(&settings)?;
    put_all(&engine, &values, half, 0)?;
    if E::LSM {
        engine = to_first_level(engine, &settings)?.0;
    }
    put_all(&engine, &values, &order, 1)?;
    get_all(&mut engine.reader()?, &order, 1)?;
    figures.add("get.memtable", get_all(&mut engine.reader()?, &order, 1)?)?;
    if E::LSM {
        let flushed;
        (engine, flushed) = to_first_level(engine, &settings)?;
        if let Some((wall, cpu)) = flushed {
            figures.add("flush", wall / entries as f64)?;
            figures.add("flush.cpu", cpu / entries as f64)?;
        }
        let count = (order.len() + half.len()) as f64;
        let (wall, cpu) = process(|| engine.settle(Settle::LastLevel).map(drop))?;
        figures.add("merge", wall / count)?;
        figures.add("merge.cpu", cpu / count)?;
        get_all(&mut engine.reader()?, &order, 1)?;
    }
    engine.close()?;
    remove(&settings.dir)
}

/// Brings the memtable to level 0: by the call for it, with what that took, or by opening the database anew.
fn to_first_level<E: Engine>(engine: E, settings: &Settings) -> Result<(E, Option<(f64, f64)>)> {
    let mut settled = false;
    let took = process(|| {
        settled = engine.settle(Settle::FirstLevel)?;
        Ok(())
    })?;
    if settled {
        return Ok((engine, Some(took)));
    }
    engine.close()?;
    Ok((E::open(settings)?, None))
}

/// Nanoseconds of `run`: by the clock on the wall, and of processor time of all threads.
fn process(run: impl FnOnce() -> Result<()>) -> Result<(f64, f64)> {
    let cpu = clock_ns(ClockId::ProcessCPUTime);
    let took = per_operation(1, run)?;
    Ok((took.wall, clock_ns(ClockId::ProcessCPUTime) - cpu))
}
