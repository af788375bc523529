//! Writes that are on the device before their call returns: one thread, then eight.

use super::{Plan, expect, per_operation, remove};
use crate::data::{self, Values};
use crate::engine::{Engine, Reader, Result, Settings};
use crate::rows::Figures;

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    figures.add("sync.1", fill::<E>(plan, 1, plan.synced)?)?;
    figures.add("sync.8", fill::<E>(plan, 8, plan.synced / 2)?)?;
    Ok(())
}

/// Microseconds per write of all threads together.
fn fill<E: Engine>(plan: &Plan, threads: u64, writes: u64) -> Result<f64> {
    let settings = Settings { sync: true, ..plan.settings("sync") };
    let values = Values::new(plan.seed);
    let engine = E::open(&settings)?;
    let write = |thread: u64| -> Result<()> {
        (0..writes).try_for_each(|number| {
            let index = number * threads + thread;
            engine.put(&data::key(index), &values.value(index, 0))
        })
    };
    let took = per_operation(threads * writes, || {
        std::thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || write(thread))).collect();
            running.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a writer panicked")?)
        })
    })?;
    let mut reader = engine.reader()?;
    for index in 0..threads * writes {
        let check = reader.get(&data::key(index), data::check)?;
        expect("synced writes", check, Some(data::mark(index, 0)))?;
    }
    drop(reader);
    engine.close()?;
    remove(&settings.dir)?;
    Ok(took.wall / 1e3)
}
