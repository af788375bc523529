//! [`Load`]: which thread does which operation, on which keys.

use super::Setting;
use super::keys::{Key, Values, Zipf, check, expected, key, scatter};
use super::recorder::Op;
use super::store::{Result, Store};
use esker_base::SplitMix64;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Load {
    /// New keys in a random order.
    Fill,
    /// Random keys of a filled database.
    Overwrite,
    /// One thread writes at a steady rate, the others get, and scan 10 entries once in ten times. The writer stands
    /// still for the first quarter of the time.
    #[value(name = "readwhilewriting")]
    ReadWhileWriting,
    /// A queue: one thread puts behind the last key, one takes the first and deletes it.
    Queue,
    /// Gets and puts, as many of each; few keys are asked for most of the time (Zipf, 0.99).
    Zipf,
    /// Points of 500 series; each put beyond a window deletes the oldest point, one in a hundred is followed by a scan
    /// of 100 points.
    #[value(name = "timeseries")]
    TimeSeries,
    /// Values of 128 KiB to 1 MiB: put, got and deleted at random.
    Large,
}

/// Series of [`Load::TimeSeries`].
const SERIES: u64 = 500;
/// Points of each that are kept.
const WINDOW: u64 = 100;
/// Keys of [`Load::Large`], and the shortest value.
const LARGE_KEYS: u64 = 200;
const LARGE_LEN: usize = 128 << 10;
/// Entries that may wait in the queue.
const QUEUE_MAX: u64 = 10_000;

impl Load {
    /// Its name.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Whether the database is filled before the time runs.
    pub(super) fn is_prepared(self) -> bool {
        matches!(self, Load::Overwrite | Load::ReadWhileWriting | Load::Zipf)
    }

    /// Bytes of the longest value.
    pub(super) fn longest(self, setting: &Setting) -> usize {
        if self == Load::Large { 8 * LARGE_LEN } else { setting.value_len }
    }

    /// The number of threads that it can have which is nearest to `wanted`.
    pub fn threads(self, wanted: usize) -> usize {
        match self {
            Load::Queue => 2,
            Load::ReadWhileWriting => wanted.max(2),
            _ => wanted.max(1),
        }
    }

    /// Operations a second of a paced thread, if nothing else is asked for; 0 is as fast as it can.
    pub fn rate(self) -> u32 {
        if self == Load::ReadWhileWriting { 20_000 } else { 0 }
    }
}

/// What all threads of a load share.
#[derive(Debug)]
pub(super) struct Shared {
    load: Load,
    setting: Setting,
    zipf: Zipf,
    /// The next number that is put, and the first that is not yet deleted.
    head: AtomicU64,
    tail: AtomicU64,
    /// Bytes of keys and values that were written.
    pub(super) bytes: AtomicU64,
    /// Wrong answers.
    pub(super) wrong: AtomicU64,
}

impl Shared {
    pub(super) fn new(setting: &Setting) -> Self {
        Shared {
            load: setting.load,
            setting: setting.clone(),
            zipf: Zipf::new(setting.keys),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
        }
    }
}

/// One thread of a load.
#[derive(Debug)]
pub(super) struct Worker<'a> {
    shared: &'a Shared,
    thread: usize,
    rng: SplitMix64,
    values: Values,
    /// What a step is part of: a delete after a put, a scan after a hundred puts.
    steps: u64,
}

/// What a worker does next. Made before its time is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Put(u64, usize),
    Get(u64),
    Scan(u64, usize),
    Delete(u64),
    /// Takes the first entry of the queue.
    Pop,
    /// Nothing can be done now.
    Wait,
}

impl<'a> Worker<'a> {
    pub(super) fn new(shared: &'a Shared, thread: usize) -> Self {
        let seed = shared.setting.seed ^ scatter(thread as u64);
        let values = Values::new(shared.setting.seed, shared.load.longest(&shared.setting));
        Worker { shared, thread, rng: SplitMix64::new(seed), values, steps: 0 }
    }

    /// Whether the rate of the writers holds for this thread.
    pub(super) fn is_paced(&self) -> bool {
        self.shared.load != Load::ReadWhileWriting || self.thread == 0
    }

    /// Whether this thread stands still in the first quarter of the time.
    pub(super) fn starts_late(&self) -> bool {
        self.shared.load == Load::ReadWhileWriting && self.thread == 0
    }

    pub(super) fn next(&mut self) -> Step {
        self.steps += 1;
        let (shared, len) = (self.shared, self.shared.setting.value_len);
        let any = |rng: &mut SplitMix64| scatter(rng.below(shared.setting.keys));
        match shared.load {
            Load::Fill => Step::Put(scatter(shared.head.fetch_add(1, Relaxed)), len),
            Load::Overwrite => Step::Put(any(&mut self.rng), len),
            Load::ReadWhileWriting if self.thread == 0 => Step::Put(any(&mut self.rng), len),
            Load::ReadWhileWriting if self.steps.is_multiple_of(10) => Step::Scan(any(&mut self.rng), 10),
            Load::ReadWhileWriting => Step::Get(any(&mut self.rng)),
            Load::Queue => self.next_of_queue(),
            Load::Zipf => {
                let number = scatter(shared.zipf.draw(&mut self.rng));
                if self.steps.is_multiple_of(2) { Step::Put(number, len) } else { Step::Get(number) }
            }
            Load::TimeSeries => self.next_of_series(),
            Load::Large => {
                let number = scatter(self.rng.below(LARGE_KEYS));
                let longer = self.rng.below(7 * LARGE_LEN as u64) as usize;
                match self.rng.below(10) {
                    0..5 => Step::Put(number, LARGE_LEN + longer),
                    5..9 => Step::Get(number),
                    _ => Step::Delete(number),
                }
            }
        }
    }

    /// Thread 0 puts, thread 1 takes.
    fn next_of_queue(&mut self) -> Step {
        let shared = self.shared;
        let (head, tail) = (shared.head.load(Acquire), shared.tail.load(Acquire));
        let waiting = head.saturating_sub(tail);
        match self.thread {
            0 if waiting < QUEUE_MAX => Step::Put(head, shared.setting.value_len),
            1 if waiting > 0 => Step::Pop,
            _ => Step::Wait,
        }
    }

    /// The high half of a number is the series, the low one the time. A thread has series of its own, so that a window
    /// is complete.
    fn next_of_series(&mut self) -> Step {
        let (shared, threads) = (self.shared, self.shared.setting.threads as u64);
        let own = (SERIES / threads).max(1);
        // Steps come in threes: a put, the delete of the oldest point, and now and then a scan.
        let (point, part) = (self.steps / 3, self.steps % 3);
        let (series, time) = (point % own * threads + self.thread as u64, point / own);
        match part {
            0 => Step::Put(series << 32 | time, shared.setting.value_len),
            1 if time >= WINDOW => Step::Delete(series << 32 | (time - WINDOW)),
            2 if point.is_multiple_of(100) => Step::Scan(series << 32 | time.saturating_sub(100), 100),
            _ => {
                self.steps += 1;
                self.next_of_series()
            }
        }
    }

    /// Does a step; `None` when nothing was to be done.
    pub(super) fn run(&mut self, store: &impl Store, step: Step) -> Result<Option<Op>> {
        let shared = self.shared;
        let wrong = |is_wrong: bool| shared.wrong.fetch_add(u64::from(is_wrong), Relaxed);
        let op = match step {
            Step::Put(number, len) => {
                let value = self.values.value(number, len, self.steps);
                store.put(&key(number), value)?;
                shared.bytes.fetch_add((key(number).len() + len) as u64, Relaxed);
                if shared.load == Load::Queue {
                    shared.head.store(number + 1, Release);
                }
                Op::Put
            }
            Step::Get(number) => {
                let found = store.get(&key(number))?;
                let may_be_missing = shared.load == Load::Large;
                wrong(found.map_or(!may_be_missing, |found| found != expected(number)));
                Op::Get
            }
            Step::Scan(number, limit) => {
                let from = key(number);
                let mut last: Option<Key> = None;
                let mut disordered = false;
                store.scan(&from, limit, &mut |key, _| {
                    disordered |= key < &from[..] || last.is_some_and(|last| key <= &last[..]);
                    last = key.try_into().ok();
                })?;
                wrong(disordered);
                Op::Scan
            }
            Step::Delete(number) => {
                store.delete(&key(number))?;
                shared.bytes.fetch_add(key(number).len() as u64, Relaxed);
                Op::Delete
            }
            Step::Pop => {
                let number = shared.tail.load(Acquire);
                let mut first = None;
                store.scan(b"", 1, &mut |key, value| first = Some((key.to_vec(), check(value))))?;
                wrong(first != Some((key(number).to_vec(), expected(number))));
                store.delete(&key(number))?;
                shared.tail.store(number + 1, Release);
                Op::Delete
            }
            Step::Wait => return Ok(None),
        };
        Ok(Some(op))
    }

    /// Fills the database with the keys that the load then asks for: this thread's share of them.
    pub(super) fn prepare(&mut self, store: &impl Store) -> Result<()> {
        let (setting, threads) = (&self.shared.setting, self.shared.setting.threads as u64);
        let mut number = self.thread as u64;
        while number < setting.keys {
            let scattered = scatter(number);
            store.put(&key(scattered), self.values.value(scattered, setting.value_len, 0))?;
            number += threads;
        }
        Ok(())
    }
}
