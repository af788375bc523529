//! The command line.

use crate::rows::Group;
use clap::{Parser, Subcommand};
use esker_bench::load::Arguments;
use std::path::PathBuf;

/// esker beside its peers: the same keys, values, cache, memtable and durability for all, a process of its own for
/// each engine, group and round.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) run: Run,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What else the program does.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Prints engines, versions and settings.
    Engines,
    /// Builds the report again from the JSON files of earlier runs with the same settings, taken together.
    Report {
        /// The files.
        #[arg(required = true)]
        results: Vec<PathBuf>,
        /// The folder for Markdown, CSV and charts.
        #[arg(long, default_value = "out")]
        out: PathBuf,
    },
    /// Prints what is aimed at, and whether it holds, from the JSON files of runs of any sizes.
    Gates {
        /// The files.
        #[arg(required = true)]
        results: Vec<PathBuf>,
    },
    /// Puts the same sustained load on several engines, one after the other, and sets side by side what it did to them.
    Stress(Stress),
    /// Puts a load on an engine in this process, as told by a line of JSON on standard input. For the program itself.
    #[command(hide = true)]
    StressChild,
    /// Measures in this process, as told by a line of JSON on standard input. For the program itself.
    #[command(hide = true)]
    Child,
}

/// A run of all workloads.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Run {
    /// 30,000 entries, 100 synced writes, 3 rounds: two minutes for eight engines.
    #[arg(long, conflicts_with_all = ["large", "entries", "rounds"])]
    pub(crate) quick: bool,
    /// 2,000,000 entries, 64 MiB memtable, 512 MiB cache.
    #[arg(long, conflicts_with = "entries")]
    pub(crate) large: bool,
    /// Entries of the larger workloads. Default: 100,000.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    pub(crate) entries: Option<u64>,
    /// Rounds: each measures every engine once, in an order that rotates. Default: 3.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: Option<u32>,
    /// MiB of cache. Default: 64.
    #[arg(long)]
    pub(crate) cache: Option<usize>,
    /// MiB of a memtable. Default: 4, so that 100,000 entries are flushed and compacted too.
    #[arg(long)]
    pub(crate) memtable: Option<usize>,
    /// Engines, separated by commas. Default: all that are built in.
    #[arg(long, value_delimiter = ',')]
    pub(crate) engines: Vec<String>,
    /// Groups of workloads, separated by commas. Default: all.
    #[arg(long, value_delimiter = ',')]
    pub(crate) groups: Vec<Group>,
    /// Synced writes of one thread; each of eight makes half as many. Default: 400.
    #[arg(long)]
    pub(crate) synced: Option<u64>,
    /// Where databases lie, but for synced writes: in memory, so that no disk is measured.
    #[arg(long, default_value = "/dev/shm")]
    pub(crate) dir: PathBuf,
    /// Where the databases of synced writes lie: on a disk.
    #[arg(long, default_value = "/var/tmp")]
    pub(crate) disk: PathBuf,
    /// Seconds after which a child is taken to hang, and killed; what it has measured by then counts.
    #[arg(long, default_value_t = 600)]
    pub(crate) child_seconds: u64,
    /// The seed of keys, values and orders.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,
    /// The folder for Markdown, CSV, JSON and charts.
    #[arg(long, default_value = "out")]
    pub(crate) out: PathBuf,
}

/// A sustained load on several engines.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Stress {
    #[command(flatten)]
    pub(crate) load: Arguments,
    /// Engines, separated by commas. Default: all that are built in.
    #[arg(long, value_delimiter = ',')]
    pub(crate) engines: Vec<String>,
    /// Where databases lie.
    #[arg(long, default_value = "/var/tmp")]
    pub(crate) dir: PathBuf,
    /// The folder for `stress.md`, `stress.csv`, `stress.json` and `stress.svg`.
    #[arg(long, default_value = "out")]
    pub(crate) out: PathBuf,
}
