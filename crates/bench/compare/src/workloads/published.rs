//! The rows that other projects publish: 2,000 keys `k00000` to `k01999`, values of 64 bytes.

use super::{BATCH, Plan, expect, median, per_operation, remove};
use crate::data::{self, Values};
use crate::engine::{Change, Direction, Engine, Reader, Result, Settle};
use crate::rows::{Figures, Took};

const ENTRIES: u64 = 2_000;
const VALUE_LEN: usize = 64;
/// Databases that are filled, for the median of them.
const FILLS: usize = 15;
/// Times that all keys are asked for.
const PASSES: u64 = 25;

type Entry = (Vec<u8>, Vec<u8>);

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let values = Values::new(plan.seed);
    let entries: Vec<Entry> = (0..ENTRIES)
        .map(|index| (format!("k{index:05}").into_bytes(), values.value(index, 0)[..VALUE_LEN].to_vec()))
        .collect();
    let order = data::shuffled(ENTRIES, plan.seed);

    figures.add("p.put", fills::<E>(plan, |engine| put_all(engine, &entries))?)?;
    figures.add("p.batch", fills::<E>(plan, |engine| batches(engine, &entries))?)?;
    gets::<E>(plan, figures, &entries, &order)?;
    scan::<E>(plan, figures, &entries)
}

/// The median of several fills of empty databases, per entry.
fn fills<E: Engine>(plan: &Plan, fill: impl Fn(&E) -> Result<()>) -> Result<Took> {
    let settings = plan.settings("published-fill");
    let mut took = Vec::new();
    for _ in 0..FILLS {
        remove(&settings.dir)?;
        let engine = E::open(&settings)?;
        took.push(per_operation(ENTRIES, || fill(&engine))?);
        engine.close()?;
    }
    remove(&settings.dir)?;
    Ok(median(&took))
}

fn put_all<E: Engine>(engine: &E, entries: &[Entry]) -> Result<()> {
    entries.iter().try_for_each(|(key, value)| engine.put(key, value))
}

fn batches<E: Engine>(engine: &E, entries: &[Entry]) -> Result<()> {
    for chunk in entries.chunks(BATCH) {
        let batch: Vec<Change<'_>> = chunk.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
        engine.write(&batch)?;
    }
    Ok(())
}

fn gets<E: Engine>(plan: &Plan, figures: &mut Figures, entries: &[Entry], order: &[u32]) -> Result<()> {
    let settings = plan.settings("published-get");
    let engine = E::open(&settings)?;
    put_all(&engine, entries)?;
    figures.add("p.get.memtable", get_all(&engine, entries, order)?)?;
    if engine.settle(Settle::FirstLevel)? {
        figures.add("p.get.l0", get_all(&engine, entries, order)?)?;
    }
    if engine.settle(Settle::LastLevel)? {
        figures.add("p.get.bottom", get_all(&engine, entries, order)?)?;
    }
    figures.add("p.miss", misses(&engine, entries, order)?)?;
    engine.close()?;
    remove(&settings.dir)
}

fn get_all<E: Engine>(engine: &E, entries: &[Entry], order: &[u32]) -> Result<Took> {
    let mut reader = engine.reader()?;
    let mut pass = |sum: &mut u64| -> Result<()> {
        for &index in order {
            let check = reader.get(&entries[index as usize].0, check)?;
            *sum = sum.wrapping_add(check.unwrap_or(1));
        }
        Ok(())
    };
    let mut sum = 0;
    pass(&mut sum)?;
    let took = per_operation(PASSES * ENTRIES, || (0..PASSES).try_for_each(|_| pass(&mut sum)))?;
    expect("gets", sum, super::marks(order, 0).wrapping_mul(PASSES + 1))?;
    Ok(took)
}

fn misses<E: Engine>(engine: &E, entries: &[Entry], order: &[u32]) -> Result<Took> {
    let absent: Vec<Vec<u8>> =
        order.iter().map(|&index| [&entries[index as usize].0, &b"x"[..]].concat()).collect();
    let mut reader = engine.reader()?;
    let mut found = 0;
    let took = per_operation(PASSES * ENTRIES, || {
        for key in (0..PASSES).flat_map(|_| &absent) {
            found += u64::from(reader.get(key, |_| ())?.is_some());
        }
        Ok(())
    })?;
    expect("gets of absent keys", found, 0)?;
    Ok(took)
}

/// Every second entry in level 0, the others in memory.
fn scan<E: Engine>(plan: &Plan, figures: &mut Figures, entries: &[Entry]) -> Result<()> {
    let settings = plan.settings("published-scan");
    let engine = E::open(&settings)?;
    for (key, value) in entries.iter().step_by(2) {
        engine.put(key, value)?;
    }
    let settled = engine.settle(Settle::FirstLevel)?;
    for (key, value) in entries.iter().skip(1).step_by(2) {
        engine.put(key, value)?;
    }
    let mut expected = 0;
    for (index, (key, _)) in (0..).zip(entries) {
        expected = data::fold(data::fold(expected, key_check(key)), data::mark(index, 0));
    }
    let mut reader = engine.reader()?;
    let mut pass = || -> Result<()> {
        let mut sum = 0;
        let count = reader.scan(None, Direction::Forward, usize::MAX, |key, value| {
            sum = data::fold(data::fold(sum, key_check(key)), check(value));
        })?;
        expect("a scan", (count as u64, sum), (ENTRIES, expected))
    };
    pass()?;
    let took = per_operation(PASSES * ENTRIES, || (0..PASSES).try_for_each(|_| pass()))?;
    if settled {
        figures.add("p.scan", took)?;
    }
    drop(reader);
    engine.close()?;
    remove(&settings.dir)
}

/// The mark of a value of 64 bytes.
#[inline]
fn check(value: &[u8]) -> u64 {
    match value.first_chunk::<8>() {
        Some(mark) if value.len() == VALUE_LEN => u64::from_le_bytes(*mark),
        _ => 1,
    }
}

/// The digits of a key.
#[inline]
fn key_check(key: &[u8]) -> u64 {
    match key.last_chunk::<4>() {
        Some(digits) => u32::from_be_bytes(*digits).into(),
        None => 1,
    }
}
