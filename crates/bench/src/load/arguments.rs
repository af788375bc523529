//! [`Arguments`]: the command line of a load, the same for `stress` and `compare stress`.

use super::{Load, Setting};

/// A load and its size.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The load.
    #[arg(long, value_enum, default_value_t = Load::Fill)]
    pub load: Load,
    /// How long it lasts.
    #[arg(long, default_value_t = 30.0)]
    pub seconds: f64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Keys of the loads that begin with a full database.
    #[arg(long, default_value_t = 200_000)]
    pub keys: u64,
    /// Bytes of a value, at least 8; the load `large` has its own.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(8..=1 << 20))]
    pub value: u32,
    /// Operations a second of each writing thread, 0 for as fast as it can. Default: 20,000 for `readwhilewriting`, else
    /// 0. With a rate, latencies count from when an operation was due.
    #[arg(long)]
    pub rate: Option<u32>,
    /// MiB for memtables and cache.
    #[arg(long, default_value_t = 64)]
    pub memory: usize,
    /// Milliseconds from one sample to the next.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub interval: u64,
    /// The seed of keys and values.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Arguments {
    /// What the run is told.
    pub fn setting(&self) -> Setting {
        Setting {
            load: self.load,
            seconds: self.seconds,
            interval_millis: self.interval,
            threads: self.load.threads(self.threads),
            keys: self.keys.max(1),
            value_len: self.value as usize,
            rate: self.rate.unwrap_or(self.load.rate()),
            memory_limit: self.memory << 20,
            seed: self.seed,
        }
    }
}
