//! The workloads, a file for each group, and [`Plan`], what they are told.

pub(crate) mod crash;
mod fill;
mod memory;
mod published;
mod read;
mod sync;
mod values;
mod work;

use crate::data::{self, Key, Value, Values};
use crate::engine::{Change, Engine, Reader, Result, Settings};
use crate::engines::Task;
use crate::rows::{Figures, Group, Took};
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What a child process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The engine.
    pub(crate) engine: String,
    /// What to measure.
    pub(crate) group: Group,
    /// The step of a group that takes several processes.
    pub(crate) step: Step,
    /// A directory of its own, removed by the parent.
    pub(crate) dir: PathBuf,
    /// Entries of the larger workloads.
    pub(crate) entries: u64,
    /// Synced writes of one thread.
    pub(crate) synced: u64,
    /// Bytes of cache.
    pub(crate) cache: usize,
    /// Bytes of a memtable.
    pub(crate) memtable: usize,
    /// The seed of all data and orders.
    pub(crate) seed: u64,
}

/// A step of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Step {
    /// The whole group, or its last step.
    Measure,
    /// Writes, says that it is ready, and waits to be killed.
    FillAndWait,
}

/// Bytes of the small cache.
const SMALL_CACHE: usize = 8 << 20;

/// Bytes of a memtable that is never full.
const LARGE_MEMTABLE: usize = 1 << 30;

/// Puts in a batch.
const BATCH: usize = 500;

impl Plan {
    fn settings(&self, name: &str) -> Settings {
        Settings { dir: self.dir.join(name), cache: self.cache, memtable: self.memtable, sync: false }
    }
}

impl Task for &Plan {
    type Output = ();

    fn run<E: Engine>(self) -> Result<()> {
        let figures = &mut Figures;
        match self.group {
            Group::Published => published::run::<E>(self, figures),
            Group::Fill => fill::run::<E>(self, figures),
            Group::Read => read::run::<E>(self, figures),
            Group::Work => work::run::<E>(self, figures),
            Group::Values => values::run::<E>(self, figures),
            Group::Sync => sync::run::<E>(self, figures),
            Group::Crash => crash::run::<E>(self, figures),
            Group::Memory => memory::run::<E>(self, figures),
        }
    }
}

/// Nanoseconds per operation of what `run` does `count` times.
fn per_operation(count: u64, run: impl FnOnce() -> Result<()>) -> Result<Took> {
    let watch = Watch::start();
    run()?;
    Ok(watch.per(count as f64))
}

/// Two clocks, running: that of the wall, and the CPU clock of this thread.
struct Watch {
    wall: Instant,
    cpu: f64,
}

impl Watch {
    fn start() -> Self {
        Watch { wall: Instant::now(), cpu: cpu_ns() }
    }

    /// Nanoseconds since the start, for one of `count` operations.
    fn per(&self, count: f64) -> Took {
        let cpu = Some((cpu_ns() - self.cpu) / count);
        Took { wall: self.wall.elapsed().as_nanos() as f64 / count, cpu }
    }
}

/// The CPU time of this thread in nanoseconds.
fn cpu_ns() -> f64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn clock_ns(clock: ClockId) -> f64 {
    let now = rustix::time::clock_gettime(clock);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// The number in a line of a file about this process.
fn about_self(file: &str, line: &str) -> Result<f64> {
    let text = std::fs::read_to_string(Path::new("/proc/self").join(file))?;
    let found =
        text.lines().find_map(|found| found.strip_prefix(line)).ok_or("no such line about the process")?;
    Ok(found.split_whitespace().next().ok_or("an empty line about the process")?.parse()?)
}

/// Milliseconds of `run`, and what it returns.
fn milliseconds<T>(run: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let start = Instant::now();
    let result = run()?;
    Ok((start.elapsed().as_secs_f64() * 1e3, result))
}

/// Fails when an engine answered wrongly: what is measured on wrong answers is worth nothing.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(format!("wrong answers in {what}: {found:?} in place of {expected:?}").into())
}

/// Puts every key of `order` in that generation, one by one.
fn put_all<E: Engine>(engine: &E, values: &Values, order: &[u32], generation: u32) -> Result<Took> {
    per_operation(order.len() as u64, || {
        for &index in order {
            let index = u64::from(index);
            engine.put(&data::key(index), &values.value(index, generation))?;
        }
        Ok(())
    })
}

/// Puts every key of `order` in generation 0, in batches; the making of a batch's bytes is not measured.
fn put_batches<E: Engine>(engine: &E, values: &Values, order: &[u32]) -> Result<Took> {
    let (mut wall, mut cpu) = (0.0, 0.0);
    for chunk in order.chunks(BATCH) {
        let entries: Vec<(Key, Value)> =
            chunk.iter().map(|&index| (data::key(index.into()), values.value(index.into(), 0))).collect();
        let batch: Vec<Change<'_>> =
            entries.iter().map(|(key, value)| (&key[..], Some(&value[..]))).collect();
        let watch = Watch::start();
        engine.write(&batch)?;
        let took = watch.per(order.len() as f64);
        wall += took.wall;
        cpu += took.cpu.unwrap_or_default();
    }
    Ok(Took { wall, cpu: Some(cpu) })
}

/// Gets every key of `order`, and checks the values.
fn get_all<R: Reader>(reader: &mut R, order: &[u32], generation: u32) -> Result<Took> {
    let (mut sum, mut found) = (0u64, 0);
    let took = per_operation(order.len() as u64, || {
        for &index in order {
            if let Some(check) = reader.get(&data::key(u64::from(index)), data::check)? {
                sum = sum.wrapping_add(check);
                found += 1;
            }
        }
        Ok(())
    })?;
    expect("gets", (found, sum), (order.len(), marks(order, generation)))?;
    Ok(took)
}

/// The sum of the marks of the keys in `order`.
fn marks(order: &[u32], generation: u32) -> u64 {
    order.iter().fold(0, |sum, &index| sum.wrapping_add(data::mark(u64::from(index), generation)))
}

/// MiB of the file blocks under `dir`.
fn size(dir: &Path) -> Result<f64> {
    fn blocks(dir: &Path) -> std::io::Result<u64> {
        let mut sum = 0;
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let metadata = entry.metadata()?;
            sum += if metadata.is_dir() { blocks(&entry.path())? } else { metadata.blocks() };
        }
        Ok(sum)
    }
    Ok(blocks(dir)? as f64 * 512.0 / f64::from(1 << 20))
}

/// Removes a directory that may be missing.
fn remove(dir: &Path) -> Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// The middle one, for each clock.
fn median(values: &[Took]) -> Took {
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    Took {
        wall: middle(values.iter().map(|took| took.wall).collect()).expect("measured more than once"),
        cpu: middle(values.iter().filter_map(|took| took.cpu).collect()),
    }
}
