//! The memory of a process that fills, overwrites and reads, with a small cache.

use super::{Plan, SMALL_CACHE, about_self, get_all, put_all, remove};
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
    figures.add("memory.peak", about_self("status", "VmHWM:")? / 1024.0)?;
    figures.add("memory.anonymous", about_self("status", "RssAnon:")? / 1024.0)?;
    engine.close()?;
    remove(&settings.dir)
}
