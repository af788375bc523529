//! The policy in a closed loop: a writer that goes as fast as it may, and background work of a given speed, in simulated
//! time. What is looked at is what each second got.

use super::*;
use crate::options::MAX_IMMUTABLES;
use crate::stall::{Admission, StallInput, WaitFor, admit};

const MIB: f64 = (1 << 20) as f64;

/// The speeds of a machine, in bytes a second, and a load.
#[derive(Clone, Copy, Debug)]
struct Plant {
    writer: f64,
    flush: f64,
    compaction: f64,
    /// Bytes of the base level that each compaction of level 0 rewrites.
    base: f64,
    /// Bytes of deeper work for each byte that left level 0.
    deep: f64,
    memtable: f64,
    /// Memtables that one flush takes, if they wait.
    together: usize,
    write: usize,
}

const PLANT: Plant = Plant {
    writer: 300.0 * MIB,
    flush: 200.0 * MIB,
    compaction: 100.0 * MIB,
    base: 64.0 * MIB,
    deep: 3.0,
    memtable: 64.0 * MIB,
    together: 1,
    write: 4096,
};

/// Flushes are what limits the writer.
const SLOW_FLUSH: Plant =
    Plant { writer: 100.0 * MIB, flush: 40.0 * MIB, compaction: 400.0 * MIB, deep: 0.0, ..PLANT };

/// A job: how many memtables or tables it works on, and when.
#[derive(Clone, Copy)]
struct Job {
    tables: usize,
    started: f64,
    ends: f64,
}

impl Job {
    fn part(self, now: f64) -> f64 {
        ((now - self.started) / (self.ends - self.started)).clamp(0.0, 1.0)
    }
}

#[derive(Default)]
struct Loop {
    now: f64,
    active: f64,
    immutables: usize,
    tables: usize,
    flush: Option<Job>,
    level0: Option<Job>,
    deep_until: f64,
    throttle: Throttle,
    /// Bytes admitted in each second.
    seconds: Vec<f64>,
    most_tables: usize,
    longest_delay: f64,
    waited: f64,
}

fn time(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl Loop {
    fn background(&mut self, plant: &Plant) {
        if let Some(job) = self.flush.filter(|job| job.ends <= self.now) {
            (self.immutables, self.tables) = (self.immutables - job.tables, self.tables + 1);
            let bytes = plant.memtable as u64 * job.tables as u64;
            // Tables are half as large as what is in them.
            let (from, to, more) = (time(job.started), time(self.now), self.immutables > 0);
            self.throttle.flushed((bytes, bytes / 2), from, to, more);
            self.flush = None;
        }
        if self.flush.is_none() && self.immutables > 0 {
            let tables = self.immutables.min(plant.together);
            let ends = self.now + plant.memtable * tables as f64 / plant.flush;
            self.flush = Some(Job { tables, started: self.now, ends });
        }
        if let Some(job) = self.level0.filter(|job| job.ends <= self.now) {
            self.tables -= job.tables;
            let bytes = job.tables as f64 * plant.memtable / 2.0;
            let more = self.tables >= 4 || plant.deep > 0.0;
            self.throttle.drained_level0(bytes as u64, time(job.started), time(self.now), more);
            self.deep_until = self.now + bytes * plant.deep / plant.compaction;
            self.level0 = None;
        }
        if self.level0.is_none() && self.tables >= 4 && self.now >= self.deep_until {
            let tables = self.tables.min(12);
            let bytes = tables as f64 * plant.memtable / 2.0 + plant.base;
            self.level0 = Some(Job { tables, started: self.now, ends: self.now + bytes / plant.compaction });
        }
        self.most_tables = self.most_tables.max(self.tables);
    }

    fn input(&self, plant: &Plant) -> StallInput {
        let done = |job: Option<Job>| job.map_or(0.0, |job| job.part(self.now) * job.tables as f64);
        StallInput {
            l0_tables: self.tables,
            l0_done: done(self.level0),
            l0_trigger: 4,
            immutables: self.immutables,
            flushed: done(self.flush),
            fill: (self.active / plant.memtable).min(1.0),
            pending_bytes: 0,
            base_level_size: 64 << 20,
            memtable_full: self.active >= plant.memtable,
        }
    }

    fn write(&mut self, plant: &Plant) {
        self.background(plant);
        loop {
            match admit(self.input(plant)) {
                Admission::Go => break,
                Admission::Slow(debt) => {
                    let delay = self.throttle.book(plant.write, debt, time(self.now)).as_secs_f64();
                    self.longest_delay = self.longest_delay.max(delay);
                    self.now += delay;
                    break;
                }
                Admission::Wait(WaitFor::Flush | WaitFor::Compaction) => {
                    (self.now, self.waited) = (self.now + 1e-3, self.waited + 1e-3);
                    self.background(plant);
                }
            }
        }
        if self.active >= plant.memtable {
            assert!(self.immutables < MAX_IMMUTABLES);
            (self.active, self.immutables) = (0.0, self.immutables + 1);
        }
        self.now += plant.write as f64 / plant.writer;
        self.active += plant.write as f64;
        let second = self.now as usize;
        self.seconds.resize(self.seconds.len().max(second + 1), 0.0);
        self.seconds[second] += plant.write as f64;
    }

    fn run(plant: &Plant, seconds: f64) -> Loop {
        let mut run = Loop::default();
        while run.now < seconds {
            run.write(plant);
        }
        run
    }
}

/// Purpose: a writer that is faster than compaction gets the same in each second, once the drain is known; it never
/// stands still, and no write is held up for long. Fails (by far) when the debt is a whole number of tables.
#[test]
fn a_closed_loop_finds_its_rate_and_does_not_swing() {
    let plants = [
        PLANT,
        Plant { compaction: 30.0 * MIB, ..PLANT },
        Plant { deep: 8.0, ..PLANT },
        Plant { base: 256.0 * MIB, deep: 0.0, ..PLANT },
        Plant { memtable: 8.0 * MIB, base: 16.0 * MIB, ..PLANT },
        Plant { write: 100_000, ..PLANT },
        SLOW_FLUSH,
    ];
    for plant in plants {
        let run = Loop::run(&plant, 240.0);
        let settled = &run.seconds[90..239];
        let (least, most) = settled
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), &second| (least.min(second), most.max(second)));
        let mean = settled.iter().sum::<f64>() / settled.len() as f64;
        let all_least = run.seconds[..239].iter().fold(f64::MAX, |least, &second| least.min(second));
        println!(
            "{plant:?}\n  a second: {:.1} MiB, {:.1} to {:.1}, at the start {:.1}; {} tables, delay {:.1} ms, waited {:.1} s",
            mean / MIB,
            least / MIB,
            most / MIB,
            all_least / MIB,
            run.most_tables,
            run.longest_delay * 1e3,
            run.waited
        );
        assert!(least > mean / 4.0 && most < mean * 4.0, "it swings: {plant:?}");
        assert!(all_least > 0.0 && run.waited == 0.0, "it stands still: {plant:?}");
        assert!(run.longest_delay <= DELAY_MAX.as_secs_f64());
        assert!(run.most_tables < 32, "level 0 is not held");
    }
}

/// Purpose: shows why a flush takes one full memtable. With two, both are in memory until both are written, and a writer
/// that gets the same rate on the whole has to stand still for it.
#[test]
fn full_memtables_flushed_together_make_writers_wait() {
    let (one, two) = (Loop::run(&SLOW_FLUSH, 240.0), Loop::run(&Plant { together: 2, ..SLOW_FLUSH }, 240.0));
    println!("waited {:.1} s and {:.1} s", one.waited, two.waited);
    assert!(one.waited == 0.0 && two.waited > 10.0);
}

/// Purpose: nobody is held up while background work keeps pace.
#[test]
fn a_writer_that_is_slower_than_the_drain_is_never_delayed() {
    let run = Loop::run(&Plant { writer: 15.0 * MIB, deep: 1.0, ..PLANT }, 120.0);
    assert_eq!((run.longest_delay, run.waited), (0.0, 0.0));
}

fn debt(part: f64) -> Debt {
    Debt { part, of: DebtOf::Level0 }
}

#[test]
fn the_rate_falls_smoothly_to_an_eighth() {
    let mut throttle = Throttle::default();
    let second = Duration::from_secs(1);
    throttle.flushed((80 << 20, 40 << 20), Duration::ZERO, second, false);
    throttle.drained_level0(20 << 20, Duration::ZERO, second, false);
    let drain = throttle.rate(debt(STEADY));
    assert!(drain > 20.0 * MIB && drain < 80.0 * MIB);
    let near = |part: f64, rate: f64| (throttle.rate(debt(part)) / rate - 1.0).abs() < 1e-9;
    assert!(near(0.0, 2.0 * drain) && near(1.0, drain / 8.0) && near(1.5, drain / 32.0));
    for step in 0..100 {
        let (here, next) =
            (throttle.rate(debt(f64::from(step) / 100.0)), throttle.rate(debt(f64::from(step + 1) / 100.0)));
        assert!(next < here && next > here * 0.9);
    }
}

#[test]
fn a_standing_clock_and_idle_times_spoil_no_measurement() {
    let mut throttle = Throttle::default();
    let at = Duration::from_secs;
    throttle.drained_level0(1 << 20, at(5), at(5), false);
    assert_eq!(throttle.level0.rate, None);
    throttle.drained_level0(10 << 20, at(10), at(11), false);
    // Nothing to do for a long time, then a job as fast as the first.
    throttle.drained_level0(10 << 20, at(1_000), at(1_001), true);
    assert_eq!(throttle.level0.rate(), 10.0 * MIB);
    // Work waited, so the time to the end of the next job counts, whatever else was done in it.
    throttle.drained_level0(10 << 20, at(1_010), at(1_011), true);
    assert!(throttle.level0.rate() < 5.0 * MIB);
}

#[test]
fn one_write_is_held_up_for_ten_milliseconds_at_most() {
    let mut throttle = Throttle::default();
    let now = Duration::from_secs(9);
    assert_eq!(throttle.book(1 << 30, debt(1.0), now), Duration::ZERO, "nothing was owed before");
    assert_eq!(throttle.book(1 << 30, debt(1.0), now), DELAY_MAX);
    assert_eq!(throttle.delay(now + LEAD_MAX), Duration::ZERO, "what is owed is bounded");
    // Small writes go on until it is worth a sleep.
    let mut throttle = Throttle::default();
    let writes = (0..10_000).take_while(|_| throttle.book(100, debt(0.0), now).is_zero()).count();
    assert!((2_000..5_000).contains(&writes), "{writes}");
}
