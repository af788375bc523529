//! `esker-sim`: runs the harnesses of the library.

#![allow(clippy::disallowed_methods, reason = "a program that reads its arguments")]

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use esker_sim::disk::Lie;
use esker_sim::lab::{Harness, Settings, run_and_print};

#[derive(Debug, Parser)]
#[command(
    name = "esker-sim",
    about = "Looks for faults in esker. Exit codes: 0 nothing found, 1 found, 3 too little covered, 124 a hang."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Random operations against a model of the right answers.
    Model(Common),
    /// The same operations under six sets of options: all answers equal.
    Metamorphic(Common),
    /// A crash at every call of the file system, and in the recovery from that.
    Crash(Common),
    /// An error at every call of the file system.
    Error(Common),
    /// Many orders of the same things: clients and background steps, and real threads.
    Schedule(Common),
    /// Damaged files.
    Flips(Common),
    /// Kills of a child that writes to the real disk.
    Kill(Common),
    /// Full disks.
    Full(Common),
    /// Limits that the system sets: sizes of files, open files, directories and file systems that can't be written.
    Limits(Common),
    /// Writers, readers, flushes, compactions, closes and reopens together, over one database.
    Soak(Common),
    /// The self-test: each deliberate fault must be found. Needs a build with `--features planted`.
    Planted {
        /// Limit of a run.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Only this fault.
        #[arg(long)]
        only: Option<String>,
        /// How many of the three seeds.
        #[arg(long, default_value_t = 3)]
        seeds: usize,
    },
    /// All harnesses, for so long that a commit can wait for it.
    T0 {
        /// Threads that try cases.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Seed of the first case.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Percent of the usual time.
        #[arg(long, default_value_t = 100)]
        percent: u64,
    },
    /// All harnesses, for about half an hour.
    T1 {
        /// Threads that try cases.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Seed of the first case.
        #[arg(long, default_value_t = 1_000_000)]
        seed: u64,
        /// Percent of the usual time.
        #[arg(long, default_value_t = 100)]
        percent: u64,
    },
    /// The child of `limits`.
    #[command(hide = true)]
    LimitsChild {
        /// The limit that it sets itself.
        part: String,
        /// The directory of the database.
        dir: std::path::PathBuf,
        /// Seed of the limit and of the writes.
        seed: u64,
    },
    /// The child of `kill`.
    #[command(hide = true)]
    KillChild {
        /// The directory of the database.
        dir: std::path::PathBuf,
        /// Seed of its options and its writes.
        seed: u64,
    },
}

#[derive(Clone, Debug, Args)]
struct Common {
    /// Seed of the first case; the others follow it.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Cases to try.
    #[arg(long)]
    count: Option<u64>,
    /// No case is begun after so many seconds; 10 when there is no count either.
    #[arg(long)]
    seconds: Option<u64>,
    /// A preset's name, or "random"; else each case chooses.
    #[arg(long)]
    preset: Option<String>,
    /// The part of the harness to try; else each case chooses.
    #[arg(long)]
    part: Option<String>,
    /// Operations in a case.
    #[arg(long)]
    ops: Option<u64>,
    /// Threads that try cases.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Leaves the checker of the order of calls out.
    #[arg(long)]
    no_order: bool,
    /// Compiled with `--features planted`: the deliberate fault to have.
    #[arg(long)]
    plant: Option<String>,
    /// Prints each operation.
    #[arg(long)]
    trace: bool,
}

impl Common {
    fn settings(&self) -> Result<Settings, String> {
        let mut tail = String::new();
        if self.no_order {
            tail += " --no-order";
        }
        let mut lie = None;
        if let Some(name) = &self.plant {
            tail += &format!(" --plant {name}");
            lie = Lie::ALL.iter().find(|(known, _)| known == name).map(|(_, lie)| *lie);
            if lie.is_none() {
                esker_sim::plant(name)?;
            }
        }
        let seconds = self.seconds.or(if self.count.is_none() { Some(10) } else { None });
        Ok(Settings {
            seed: self.seed,
            count: self.count,
            seconds,
            preset: self.preset.clone(),
            part: self.part.clone(),
            ops: self.ops,
            jobs: self.jobs,
            order: !self.no_order,
            lie,
            replay_tail: tail,
            trace: self.trace,
        })
    }
}

fn harness(harness: &Harness, common: &Common) -> Result<u8, String> {
    let settings = common.settings()?;
    if let Some(part) = &settings.part
        && !harness.parts.contains(&part.as_str())
    {
        return Err(format!("{} has the parts {:?}", harness.name, harness.parts));
    }
    Ok(run_and_print(harness, &settings))
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Model(common) => harness(&esker_sim::model::MODEL, &common),
        Command::Metamorphic(common) => harness(&esker_sim::model::METAMORPHIC, &common),
        Command::Crash(common) => harness(&esker_sim::crash::CRASH, &common),
        Command::Error(common) => harness(&esker_sim::error::ERROR, &common),
        Command::Schedule(common) => harness(&esker_sim::schedule::SCHEDULE, &common),
        Command::Flips(common) => harness(&esker_sim::flips::FLIPS, &common),
        Command::Kill(common) => harness(&esker_sim::kill::KILL, &common),
        Command::Full(common) => harness(&esker_sim::full::FULL, &common),
        Command::Limits(common) => harness(&esker_sim::limits::LIMITS, &common),
        Command::Soak(common) => harness(&esker_sim::soak::SOAK, &common),
        Command::Planted { seconds, only, seeds } => {
            esker_sim::planted::self_test(&esker_sim::planted::SelfTest { seconds, only, seeds })
        }
        Command::T0 { jobs, seed, percent } => Ok(esker_sim::share(300 * percent / 100, jobs, seed)),
        Command::T1 { jobs, seed, percent } => Ok(esker_sim::share(1_920 * percent / 100, jobs, seed)),
        Command::LimitsChild { part, dir, seed } => {
            esker_sim::limits::child(&part, &dir, seed).map(|()| 0).map_err(|error| error.to_string())
        }
        Command::KillChild { dir, seed } => {
            esker_sim::kill::child(&dir, seed).map(|()| 0).map_err(|error| error.to_string())
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("esker-sim: {error}");
            ExitCode::from(2)
        }
    }
}
