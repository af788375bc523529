//! An open after an unclean end: one process writes and is killed, the next one opens what it left.

use super::{LARGE_MEMTABLE, Plan, Step, expect, milliseconds, put_all};
use crate::data::{self, Values};
use crate::engine::{Engine, Reader, Result, Settings};
use crate::rows::Figures;
use std::io::Write;
use std::time::Duration;

/// More would fill more than one log segment of some engines, and be flushed.
const ENTRIES_MAX: u64 = 200_000;

/// What the process that writes prints when it can be killed.
pub(crate) const READY: &str = "ready";

/// The longest wait for the end.
const WAIT: Duration = Duration::from_secs(120);

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let settings = Settings { memtable: LARGE_MEMTABLE, ..plan.settings("crash") };
    let entries = plan.entries.min(ENTRIES_MAX);
    let order = data::shuffled(entries, plan.seed);
    if plan.step == Step::FillAndWait {
        let engine = E::open(&settings)?;
        put_all(&engine, &Values::new(plan.seed), &order, 0)?;
        println!("{READY}");
        std::io::stdout().flush()?;
        std::thread::sleep(WAIT);
        return Ok(());
    }
    let (took, engine) = milliseconds(|| {
        let engine = E::open(&settings)?;
        engine.reader()?.get(&data::key(0), |_| ())?;
        Ok(engine)
    })?;
    figures.add("crash.open", took)?;
    let mut reader = engine.reader()?;
    let mut there = 0;
    for index in 0..entries {
        if let Some(check) = reader.get(&data::key(index), data::check)? {
            expect("entries after a crash", check, data::mark(index, 0))?;
            there += 1;
        }
    }
    figures.add("crash.there", 100.0 * f64::from(there) / entries as f64)?;
    drop(reader);
    engine.close()
}
