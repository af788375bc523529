//! [`Harness`], [`Case`] and [`run`]: what all harnesses have in common.
//!
//! A harness is a function that tries one case, which is derived from a seed; it fails by a panic. The laboratory runs
//! many cases on some threads, catches their panics, watches over their time, adds up what they covered, and prints one
//! command line that replays a failed one.

#![allow(clippy::disallowed_methods, reason = "threads, and real time for limits and rates")]

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, Instant};

use esker_base::SplitMix64;
use esker_testkit::{Coverage, Patience};

use crate::disk::Lie;
use crate::preset::Setup;

/// What is to be run, and on what.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of the first case; the others follow it.
    pub seed: u64,
    /// Cases to try; no limit when `None`.
    pub count: Option<u64>,
    /// No case is begun after so many seconds.
    pub seconds: Option<u64>,
    /// Name of the preset, instead of one chosen by the seed.
    pub preset: Option<String>,
    /// The part of the harness, instead of one chosen by the seed.
    pub part: Option<String>,
    /// Operations in a case, instead of the harness's own number.
    pub ops: Option<u64>,
    /// Threads that try cases.
    pub jobs: usize,
    /// Whether the order of calls is checked under every database.
    pub order: bool,
    /// What the disk lies about.
    pub lie: Option<Lie>,
    /// Options of the command line that a replay has to repeat.
    pub replay_tail: String,
    /// Prints each operation.
    pub trace: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            seed: 0,
            count: None,
            seconds: None,
            preset: None,
            part: None,
            ops: None,
            jobs: 1,
            order: true,
            lie: None,
            replay_tail: String::new(),
            trace: false,
        }
    }
}

/// One way of testing.
#[derive(Debug)]
pub struct Harness {
    /// Its name, which is the subcommand's.
    pub name: &'static str,
    /// What its rate counts.
    pub unit: &'static str,
    /// Its parts. A case is of one of them.
    pub parts: &'static [&'static str],
    /// What must have been counted, each at least once.
    pub demands: &'static [&'static str],
    /// What parts must have counted besides.
    pub part_demands: &'static [PartDemand],
    /// Cases after which that is demanded.
    pub demand_after: u64,
    /// Tries a case.
    pub case: fn(&mut Case<'_>),
}

/// What a part of a harness must have counted, each at least once.
#[derive(Debug)]
pub struct PartDemand {
    /// The part.
    pub part: &'static str,
    /// The counts.
    pub demands: &'static [&'static str],
    /// Cases of the harness after which that is demanded.
    pub after: u64,
}

/// One case under way.
#[derive(Debug)]
pub struct Case<'a> {
    /// What was asked for.
    pub settings: &'a Settings,
    /// Everything random comes from it.
    pub seed: u64,
    /// The part to try.
    pub part: &'static str,
    /// What was covered.
    pub coverage: Coverage,
    /// The watchdog of this thread.
    pub patience: &'a Patience,
}

impl Case<'_> {
    /// A stream of random numbers; `purpose` tells the streams of a case apart.
    pub fn rng(&self, purpose: u64) -> SplitMix64 {
        SplitMix64::new(SplitMix64::new(self.seed ^ (purpose << 40)).next_u64())
    }

    /// The options of the case.
    pub fn setup(&self) -> Setup {
        Setup::choose(self.settings.preset.as_deref(), self.seed)
    }

    /// The operations of the case, unless the command line says otherwise.
    pub fn ops(&self, own: u64) -> u64 {
        self.settings.ops.unwrap_or(own)
    }
}

/// What a run has come to.
#[derive(Debug)]
pub struct Outcome {
    /// Cases tried.
    pub cases: u64,
    /// What they covered.
    pub coverage: Coverage,
    /// Why the first failed one failed, with the line that replays it.
    pub failure: Option<String>,
    /// What was demanded and never reached.
    pub missing: Vec<&'static str>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// 0; 1 after a failure; 3 when something demanded was not reached.
    pub fn exit_code(&self) -> u8 {
        match (&self.failure, self.missing.is_empty()) {
            (Some(_), _) => 1,
            (None, false) => 3,
            (None, true) => 0,
        }
    }
}

thread_local! {
    /// The last panic of this thread, with its place.
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are caught and told with the replay line; nothing is printed when they happen.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::panic::set_hook(Box::new(|info| {
            let text = info.payload();
            let text = text
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| text.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            let place = info.location().map(|place| format!(" ({}:{})", place.file(), place.line()));
            PANIC.with_borrow_mut(|panic| *panic = text + &place.unwrap_or_default());
        }));
    });
}

/// Runs `work` and turns a panic into its message.
///
/// # Errors
///
/// The message of the panic, with its place.
pub fn attempt<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    quiet_panics();
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| PANIC.take())
}

fn replay_line(harness: &Harness, settings: &Settings, seed: u64, part: &str) -> String {
    let mut line = format!("esker-sim {} --seed {seed} --count 1", harness.name);
    if let Some(preset) = &settings.preset {
        line += &format!(" --preset {preset}");
    }
    if harness.parts.len() > 1 {
        line += &format!(" --part {part}");
    }
    if let Some(ops) = settings.ops {
        line += &format!(" --ops {ops}");
    }
    line + &settings.replay_tail
}

/// Runs cases of a harness until the count or the time is used up, or one fails.
pub fn run(harness: &Harness, settings: &Settings) -> Outcome {
    let start = Instant::now();
    let limit = settings.seconds.map(Duration::from_secs);
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let total = Mutex::new((0_u64, Coverage::default(), None::<String>));
    let worker = || {
        let patience = Patience::new(Duration::from_secs(120));
        while !stop.load(Ordering::Relaxed) && limit.is_none_or(|limit| start.elapsed() < limit) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if settings.count.is_some_and(|count| index >= count) {
                break;
            }
            let seed = settings.seed.wrapping_add(index);
            let part = part_of(harness, settings, seed);
            let line = replay_line(harness, settings, seed, part);
            patience.next(format!("replay: {line}"));
            let mut case = Case { settings, seed, part, coverage: Coverage::default(), patience: &patience };
            let result = attempt(|| (harness.case)(&mut case));
            let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
            total.0 += 1;
            total.1.merge(&case.coverage);
            if let Err(why) = result {
                stop.store(true, Ordering::Relaxed);
                total.2.get_or_insert_with(|| format!("{why}\nreplay: {line}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..settings.jobs.max(1) {
            scope.spawn(worker);
        }
        worker();
    });
    let (cases, coverage, failure) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    let missing = missing(harness, settings, cases, &coverage);
    Outcome { cases, coverage, failure, missing, took: start.elapsed() }
}

/// What was demanded of so many cases and never counted.
fn missing(harness: &Harness, settings: &Settings, cases: u64, coverage: &Coverage) -> Vec<&'static str> {
    if settings.preset.is_some() {
        return Vec::new();
    }
    let part = settings.part.as_deref();
    let is_for_all = part.is_none() && cases >= harness.demand_after;
    let mut demanded = if is_for_all { harness.demands.to_vec() } else { Vec::new() };
    let of_parts = harness.part_demands.iter();
    for one in of_parts.filter(|one| part.is_none_or(|part| part == one.part) && cases >= one.after) {
        demanded.extend_from_slice(one.demands);
    }
    coverage.missing(&demanded)
}

/// Runs cases of a harness from `settings.seed` on until so many of its units were counted, for tests. What they covered.
///
/// # Panics
///
/// When a case fails, and when something of `demands` was never reached.
pub fn run_units(harness: &Harness, settings: &Settings, units: u64, demands: &[&str]) -> Coverage {
    let mut coverage = Coverage::default();
    let mut settings = Settings { count: Some(4), seconds: None, ..settings.clone() };
    while coverage.get(harness.unit) < units {
        let outcome = run(harness, &settings);
        if let Some(failure) = outcome.failure {
            panic!("{failure}");
        }
        coverage.merge(&outcome.coverage);
        settings.seed += 4;
    }
    println!("{} up to seed {}: {coverage}", harness.name, settings.seed);
    coverage.demand(demands);
    coverage
}

fn part_of(harness: &Harness, settings: &Settings, seed: u64) -> &'static str {
    let named = settings.part.as_deref().and_then(|name| harness.parts.iter().find(|part| **part == name));
    let index = usize::try_from(seed % harness.parts.len().max(1) as u64).unwrap_or(0);
    named.or_else(|| harness.parts.get(index)).copied().unwrap_or_default()
}

/// Runs a harness and prints what came of it. The exit code.
pub fn run_and_print(harness: &Harness, settings: &Settings) -> u8 {
    let outcome = run(harness, settings);
    let seconds = outcome.took.as_secs_f64().max(1e-9);
    let units = outcome.coverage.get(harness.unit);
    println!(
        "{}: {} cases, seeds {} to {}, {units} x {} in {seconds:.1} s: {:.0} a second",
        harness.name,
        outcome.cases,
        settings.seed,
        settings.seed.wrapping_add(outcome.cases.saturating_sub(1)),
        harness.unit,
        units as f64 / seconds,
    );
    println!("  covered: {}", outcome.coverage);
    if let Some(failure) = &outcome.failure {
        println!("FAILED {}: {failure}", harness.name);
    } else if !outcome.missing.is_empty() {
        println!("NEVER REACHED: {:?}", outcome.missing);
    } else {
        println!("  ok");
    }
    outcome.exit_code()
}
