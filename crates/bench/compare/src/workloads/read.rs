//! Reads of many entries of 16 + 100 bytes, named as in `db_bench`.
//!
//! One database is filled in a random order in batches (generation 0), compacted, read in every way, and written by one
//! thread while another reads (generation 1).

use super::{Plan, SMALL_CACHE, Watch, expect, get_all, marks, per_operation, put_batches, remove};
use crate::data::{self, Key, Rng, Values};
use crate::engine::{Direction, Engine, Reader, Result, Settings, Settle};
use crate::rows::{Figures, Took};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const MULTI_GET: usize = 256;
/// Gets after which the reader beside a writer takes a newer state.
const READER_AGE: usize = 100;
/// The longest time of reading while writing.
const READING_MAX: Duration = Duration::from_secs(5);

pub(super) fn run<E: Engine>(plan: &Plan, figures: &mut Figures) -> Result<()> {
    let values = Values::new(plan.seed);
    let order = data::shuffled(plan.entries, plan.seed);
    let other = data::shuffled(plan.entries, plan.seed + 1);

    let settings = plan.settings("read");
    let engine = E::open(&settings)?;
    put_batches(&engine, &values, &order)?;
    engine.settle(Settle::LastLevel)?;
    reads(plan, figures, &engine, &order)?;
    engine.close()?;

    let engine = E::open(&Settings { cache: SMALL_CACHE, ..settings.clone() })?;
    get_all(&mut engine.reader()?, &other, 0)?;
    figures.add("read.small", get_all(&mut engine.reader()?, &order, 0)?)?;
    engine.close()?;

    let engine = E::open(&settings)?;
    get_all(&mut engine.reader()?, &other, 0)?;
    read_while_writing(figures, &engine, &values, &order, &other)?;
    engine.close()?;
    remove(&settings.dir)
}

/// All ways of reading a compacted database in which everything is of generation 0.
fn reads<E: Engine>(plan: &Plan, figures: &mut Figures, engine: &E, order: &[u32]) -> Result<()> {
    let mut reader = engine.reader()?;
    get_all(&mut reader, order, 0)?;
    figures.add("read.warm", get_all(&mut reader, order, 0)?)?;
    figures.add("read.missing", misses(&mut reader, order)?)?;
    figures.add("multiget", multi_get(&mut reader, order)?)?;
    figures.add("readseq", scan(&mut reader, plan.entries, Direction::Forward)?)?;
    figures.add("readreverse", scan(&mut reader, plan.entries, Direction::Reverse)?)?;
    figures.add("seek10", seek(&mut reader, plan, 10, 20_000)?)?;
    figures.add("seek100", seek(&mut reader, plan, 100, 5_000)?)?;
    Ok(())
}

fn misses<R: Reader>(reader: &mut R, order: &[u32]) -> Result<Took> {
    let mut found = 0;
    let took = per_operation(order.len() as u64, || {
        for &index in order {
            found += u64::from(reader.get(&data::absent_key(index.into()), |_| ())?.is_some());
        }
        Ok(())
    })?;
    expect("gets of absent keys", found, 0)?;
    Ok(took)
}

fn multi_get<R: Reader>(reader: &mut R, order: &[u32]) -> Result<Took> {
    let (mut sum, mut found) = (0u64, 0);
    let took = per_operation(order.len() as u64, || {
        for chunk in order.chunks(MULTI_GET) {
            let keys: Vec<Key> = chunk.iter().map(|&index| data::key(index.into())).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            reader.multi_get(&keys, |_, value| {
                sum = sum.wrapping_add(data::check(value));
                found += 1;
            })?;
        }
        Ok(())
    })?;
    expect("multi_get", (found, sum), (order.len(), marks(order, 0)))?;
    Ok(took)
}

/// The middle of three scans over everything, per entry.
fn scan<R: Reader>(reader: &mut R, entries: u64, direction: Direction) -> Result<Took> {
    let check_entry =
        |sum: u64, key: &[u8], check: u64| data::fold(data::fold(sum, data::key_check(key)), check);
    let expected = |sum: u64, index: u64| check_entry(sum, &data::key(index), data::mark(index, 0));
    let expected = match direction {
        Direction::Forward => (0..entries).fold(0, expected),
        Direction::Reverse => (0..entries).rev().fold(0, expected),
    };
    let mut took = Vec::new();
    for _ in 0..3 {
        let mut sum = 0;
        let mut count = 0;
        took.push(per_operation(entries, || {
            count = reader.scan(None, direction, usize::MAX, |key, value| {
                sum = check_entry(sum, key, data::check(value));
            })?;
            Ok(())
        })?);
        expect("a scan", (count as u64, sum), (entries, expected))?;
    }
    Ok(super::median(&took))
}

/// Seeks to random keys, each with a scan of `limit` entries from there.
fn seek<R: Reader>(reader: &mut R, plan: &Plan, limit: u64, seeks: u64) -> Result<Took> {
    let seeks = seeks.min(plan.entries);
    let mut rng = Rng::new(plan.seed + limit);
    let starts: Vec<u64> = (0..seeks).map(|_| rng.below(plan.entries - limit)).collect();
    let (mut sum, mut count) = (0u64, 0);
    let took = per_operation(seeks, || {
        for &start in &starts {
            count +=
                reader.scan(Some(&data::key(start)), Direction::Forward, limit as usize, |_, value| {
                    sum = sum.wrapping_add(data::check(value));
                })?;
        }
        Ok(())
    })?;
    let seen = starts.iter().flat_map(|&start| start..start + limit);
    let expected = seen.fold(0u64, |sum, index| sum.wrapping_add(data::mark(index, 0)));
    expect("seeks", (count as u64, sum), (seeks * limit, expected))?;
    Ok(took)
}

/// One thread overwrites as fast as it can while another gets every key once.
fn read_while_writing<E: Engine>(
    figures: &mut Figures,
    engine: &E,
    values: &Values,
    order: &[u32],
    other: &[u32],
) -> Result<()> {
    let done = AtomicBool::new(false);
    let (read, written) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(engine, values, order, &done));
        let read = read_beside(engine, other);
        done.store(true, Ordering::Relaxed);
        (read, writer.join())
    });
    figures.add("rww.get", read?)?;
    figures.add("rww.put", written.map_err(|_| "the writer panicked")??)?;
    Ok(())
}

fn write_until<E: Engine>(engine: &E, values: &Values, order: &[u32], done: &AtomicBool) -> Result<Took> {
    let mut count = 0;
    let watch = Watch::start();
    for &index in order.iter().cycle() {
        if done.load(Ordering::Relaxed) {
            break;
        }
        engine.put(&data::key(index.into()), &values.value(index.into(), 1))?;
        count += 1;
    }
    Ok(watch.per(f64::from(count)))
}

fn read_beside<E: Engine>(engine: &E, order: &[u32]) -> Result<Took> {
    let (mut wrong, mut count) = (0, 0);
    let watch = Watch::start();
    for chunk in order.chunks(READER_AGE) {
        let mut reader = engine.reader()?;
        for &index in chunk {
            let index = u64::from(index);
            let check = reader.get(&data::key(index), data::check)?;
            let right =
                check.is_some_and(|check| check == data::mark(index, 0) || check == data::mark(index, 1));
            wrong += u64::from(!right);
            count += 1;
        }
        if watch.wall.elapsed() > READING_MAX {
            break;
        }
    }
    let took = watch.per(f64::from(count));
    expect("gets beside a writer", wrong, 0)?;
    Ok(took)
}
