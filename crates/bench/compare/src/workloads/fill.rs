//! Writes of many entries of 16 + 100 bytes, named as in `db_bench`, and what they leave on disk.
//!
//! One database is filled in a random order (generation 0), overwritten in another (generation 1), closed, opened,
//! compacted, and emptied key by key.

use super::{
    Plan, about_self, expect, get_all, milliseconds, per_operation, put_all, put_batches, remove, size,
};
use crate::data::{self, KEY_LEN, VALUE_LEN, Values};
use crate::engine::{Direction, Engine, Reader, Result, Settle};
use crate::rows::{Figures, Took};

/// Puts of the first and of the last part of a fill.
const PART: usize = 100_000;

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let values = Values::new(plan.seed);
    let order = data::shuffled(plan.entries, plan.seed);
    let other = data::shuffled(plan.entries, plan.seed + 1);

    let sorted: Vec<u32> = (0..plan.entries as u32).collect();
    figures.add("fillseq", alone::<E>(plan, |engine| put_all(engine, &values, &sorted, 0))?)?;
    figures.add("batch", alone::<E>(plan, |engine| put_batches(engine, &values, &order))?)?;

    let settings = plan.settings("fill");
    let written = about_self("io", "wchar:")?;
    let engine = E::open(&settings)?;
    fill_at_random(figures, &engine, &values, &order)?;
    figures.add("read.filled", get_all(&mut engine.reader()?, &other, 0)?)?;
    figures.add("overwrite", put_all(&engine, &values, &other, 1)?)?;
    engine.close()?;
    let bytes = 2 * plan.entries * (KEY_LEN + VALUE_LEN) as u64;
    figures.add("written", (about_self("io", "wchar:")? - written) / bytes as f64)?;
    figures.add("size.filled", size(&settings.dir)?)?;

    let (took, engine) = milliseconds(|| E::open(&settings))?;
    figures.add("open.clean", took)?;
    let took = per_operation(plan.entries, || engine.settle(Settle::LastLevel).map(drop))?;
    if E::LSM {
        // Others than the calling thread do the work.
        figures.add("compact", took.wall)?;
    }
    get_all(&mut engine.reader()?, &order, 1)?;
    engine.close()?;
    figures.add("size.compacted", size(&settings.dir)?)?;

    let engine = E::open(&settings)?;
    figures.add("delete", delete_all(&engine, &order)?)?;
    let left = engine.reader()?.scan(None, Direction::Forward, usize::MAX, |_, _| {})?;
    expect("a scan after all deletes", left, 0)?;
    engine.close()?;
    remove(&settings.dir)
}

/// What `fill` takes in a database of its own.
fn alone<E: Engine>(plan: &Plan, fill: impl FnOnce(&E) -> Result<Took>) -> Result<Took> {
    let settings = plan.settings("fill-alone");
    let engine = E::open(&settings)?;
    let took = fill(&engine)?;
    engine.close()?;
    remove(&settings.dir)?;
    Ok(took)
}

/// A fill in three parts, of which the first and the last are as long.
fn fill_at_random<E: Engine>(
    figures: &mut Figures,
    engine: &E,
    values: &Values,
    order: &[u32],
) -> Result<()> {
    let part = PART.min(order.len() / 4);
    let (first, rest) = order.split_at(part);
    let (middle, last) = rest.split_at(rest.len() - part);
    let mut sum = Took { wall: 0.0, cpu: Some(0.0) };
    for (row, keys) in [("fillrandom.first", first), ("", middle), ("fillrandom.last", last)] {
        let took = put_all(engine, values, keys, 0)?;
        if !row.is_empty() {
            figures.add(row, took)?;
        }
        let share = took.times(keys.len() as f64 / order.len() as f64);
        sum =
            Took { wall: sum.wall + share.wall, cpu: sum.cpu.zip(share.cpu).map(|(one, other)| one + other) };
    }
    figures.add("fillrandom", sum)
}

fn delete_all<E: Engine>(engine: &E, order: &[u32]) -> Result<Took> {
    per_operation(order.len() as u64, || {
        order.iter().try_for_each(|&index| engine.delete(&data::key(index.into())))
    })
}
