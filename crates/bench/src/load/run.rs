//! [`run`]: puts a load on a store, and samples it as it goes.
//!
//! Each thread has a recorder of its own behind a lock that the sampler takes once an interval, so that the threads do not
//! disturb one another. With a rate, a latency counts from when its operation was due, not from when the thread got to
//! it: a stall then shows in all operations that it held up.

use super::kind::{Load, Shared, Step, Worker};
use super::process;
use super::recorder::{Op, Recorder, Summary};
use super::store::{Inside, Result, Store};
use esker_base::sync::Mutex;
use esker_base::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// What a run is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// The load.
    pub load: Load,
    /// How long it lasts.
    pub seconds: f64,
    /// Milliseconds from one sample to the next.
    pub interval_millis: u64,
    /// Threads.
    pub threads: usize,
    /// Keys of a database that is filled before.
    pub keys: u64,
    /// Bytes of a value, at least 8.
    pub value_len: usize,
    /// Operations a second of each thread that the rate is for; 0 for as fast as it can.
    pub rate: u32,
    /// Bytes that the engine may use for memtables and cache.
    pub memory_limit: usize,
    /// The seed of keys and values.
    pub seed: u64,
}

/// What was seen in one interval.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start, at its end.
    pub at: f64,
    /// How long it was, in seconds.
    pub seconds: f64,
    /// Latencies by operation, in the order of [`Op::ALL`].
    pub ops: [Summary; 4],
    /// The engine's inside at its end.
    pub inside: Inside,
    /// MiB of resident memory at its end.
    pub resident_mib: f64,
}

impl Sample {
    /// Puts and deletes in a second.
    pub fn writes_per_second(&self) -> f64 {
        (self.ops[Op::Put as usize].count + self.ops[Op::Delete as usize].count) as f64 / self.seconds
    }

    /// All operations in a second.
    pub fn per_second(&self) -> f64 {
        self.ops.iter().map(|op| op.count).sum::<u64>() as f64 / self.seconds
    }
}

/// What came out of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The engine.
    pub engine: String,
    /// What was asked for.
    pub setting: Setting,
    /// The time series.
    pub samples: Vec<Sample>,
    /// Latencies over all of it.
    pub ops: [Summary; 4],
    /// Gets while nothing was written, where the load has such a time.
    pub idle_gets: Summary,
    /// Gets beside writes, where the load has a time without them.
    pub busy_gets: Summary,
    /// Bytes of keys and values that were written.
    pub user_bytes: u64,
    /// Bytes given to write calls while the load lasted.
    pub written_bytes: f64,
    /// Wrong answers: a run with any is worth nothing.
    pub wrong: u64,
}

/// A check that all threads stand still for.
pub struct Soak<'a> {
    /// From one check to the next.
    pub every: Duration,
    /// The check. What it returns as an error ends the run.
    pub check: Box<dyn FnMut() -> Result<()> + 'a>,
}

impl std::fmt::Debug for Soak<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Soak").field("every", &self.every).finish_non_exhaustive()
    }
}

/// What tells the threads what to do.
#[derive(Debug, Default)]
struct Signals {
    stop: AtomicBool,
    /// Whether all stand still, and how many do.
    hold: AtomicBool,
    held: AtomicUsize,
    /// Whether the writer that starts late writes.
    late: AtomicBool,
}

/// Puts the load on the store.
///
/// # Errors
///
/// Those of the store, of the soak's check, and a panic of a thread.
pub fn run(
    engine: &str,
    store: &impl Store,
    setting: &Setting,
    mut soak: Option<Soak<'_>>,
    mut progress: impl FnMut(&Sample),
) -> Result<Outcome> {
    let shared = Shared::new(setting);
    let signals = Signals::default();
    let clock = SystemClock::new();
    if setting.load.is_prepared() {
        each_thread(setting, |thread| Worker::new(&shared, thread).prepare(store))?;
    }
    let written_before = process::written_bytes();
    let recorders: Vec<Mutex<Recorder>> =
        (0..setting.threads).map(|_| Mutex::new(Recorder::default())).collect();
    let mut series = Series::default();
    std::thread::scope(|scope| -> Result<()> {
        let (done, ended) = mpsc::channel();
        let workers: Vec<_> = recorders
            .iter()
            .enumerate()
            .map(|(thread, recorder)| {
                let (done, clock, shared, signals) = (done.clone(), &clock, &shared, &signals);
                scope.spawn(move || {
                    let result = work(Worker::new(shared, thread), store, recorder, signals, clock, setting);
                    // A thread that ends before its time ends the run.
                    let _ = done.send(());
                    result
                })
            })
            .collect();
        let sampled =
            sample(store, setting, &recorders, &signals, &clock, &ended, &mut soak, |one, recorder| {
                progress(&one);
                series.add(one, recorder, setting);
            });
        signals.stop.store(true, SeqCst);
        for worker in workers {
            worker.join().map_err(|_| "a thread panicked")??;
        }
        sampled
    })?;
    Ok(Outcome {
        engine: engine.into(),
        setting: setting.clone(),
        ops: Op::ALL.map(|op| series.all.summary(op)),
        idle_gets: series.idle.summary(Op::Get),
        busy_gets: series.busy.summary(Op::Get),
        samples: series.samples,
        user_bytes: shared.bytes.load(Relaxed),
        written_bytes: process::written_bytes() - written_before,
        wrong: shared.wrong.load(Relaxed),
    })
}

/// What is gathered of all intervals.
#[derive(Debug, Default)]
struct Series {
    samples: Vec<Sample>,
    all: Recorder,
    idle: Recorder,
    busy: Recorder,
}

impl Series {
    fn add(&mut self, sample: Sample, recorder: &Recorder, setting: &Setting) {
        self.all.add(recorder);
        if setting.load == Load::ReadWhileWriting {
            let part = if sample.at <= setting.seconds / 4.0 { &mut self.idle } else { &mut self.busy };
            part.add(recorder);
        }
        self.samples.push(sample);
    }
}

/// Runs `work` in as many threads as the load has.
fn each_thread(setting: &Setting, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = (0..setting.threads).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread panicked")?)
    })
}

/// The loop of one thread.
fn work(
    mut worker: Worker<'_>,
    store: &impl Store,
    recorder: &Mutex<Recorder>,
    signals: &Signals,
    clock: &SystemClock,
    setting: &Setting,
) -> Result<()> {
    let pace = (setting.rate > 0 && worker.is_paced()).then(|| Duration::from_secs(1) / setting.rate);
    let mut due = clock.now();
    while !signals.stop.load(Relaxed) {
        if signals.hold.load(Relaxed) || worker.starts_late() && !signals.late.load(Relaxed) {
            stand_still(signals);
            due = clock.now();
            continue;
        }
        let step = worker.next();
        if matches!(step, Step::Wait) {
            std::thread::yield_now();
            continue;
        }
        let start = match pace {
            Some(pace) => {
                wait_until(clock, due);
                due += pace;
                due - pace
            }
            None => clock.now(),
        };
        if let Some(op) = worker.run(store, step)? {
            recorder.lock().record(op, clock.now().saturating_sub(start));
        }
    }
    Ok(())
}

fn stand_still(signals: &Signals) {
    signals.held.fetch_add(1, SeqCst);
    std::thread::park_timeout(Duration::from_millis(1));
    signals.held.fetch_sub(1, SeqCst);
}

fn wait_until(clock: &SystemClock, due: Duration) {
    loop {
        let left = due.saturating_sub(clock.now());
        if left.is_zero() {
            return;
        }
        // The system wakes a thread some tens of microseconds late.
        if left > Duration::from_micros(200) {
            std::thread::park_timeout(left - Duration::from_micros(100));
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Takes a sample in each interval until the time is over.
#[expect(clippy::too_many_arguments, reason = "all of what a run has, lent for its length")]
fn sample(
    store: &impl Store,
    setting: &Setting,
    recorders: &[Mutex<Recorder>],
    signals: &Signals,
    clock: &SystemClock,
    ended: &mpsc::Receiver<()>,
    soak: &mut Option<Soak<'_>>,
    mut each: impl FnMut(Sample, &Recorder),
) -> Result<()> {
    let start = clock.now();
    // The time that all stood still does not count.
    let mut held = Duration::ZERO;
    let (mut last, mut last_check) = (start, start);
    let end = Duration::from_secs_f64(setting.seconds);
    loop {
        match ended.recv_timeout(Duration::from_millis(setting.interval_millis)) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return Ok(()),
        }
        let mut recorder = Recorder::default();
        recorders.iter().for_each(|one| recorder.take(&mut one.lock()));
        let now = clock.now();
        let sample = Sample {
            at: (now - start - held).as_secs_f64(),
            seconds: (now - last).as_secs_f64(),
            ops: Op::ALL.map(|op| recorder.summary(op)),
            inside: store.inside(),
            resident_mib: process::resident_mib(),
        };
        signals.late.store(sample.at >= setting.seconds / 4.0, Relaxed);
        each(sample, &recorder);
        last = now;
        if now - start - held >= end {
            return Ok(());
        }
        if let Some(soak) = soak.as_mut().filter(|soak| now - last_check >= soak.every) {
            signals.hold.store(true, SeqCst);
            while signals.held.load(SeqCst) < setting.threads && !signals.stop.load(Relaxed) {
                match ended.recv_timeout(Duration::from_millis(1)) {
                    Err(RecvTimeoutError::Timeout) => {}
                    _ => return Ok(()),
                }
            }
            let checked = (soak.check)();
            signals.hold.store(false, SeqCst);
            checked?;
            last_check = clock.now();
            held += last_check - now;
            last = last_check;
        }
    }
}
