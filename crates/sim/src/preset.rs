//! [`Setup`]: the options of a case: one of the test kit's presets, or random ones.

use esker::{Background, Compression, Durability, LogSink, Options};
use esker_base::SplitMix64;
use esker_testkit::{Preset, Promise, presets};

/// Of so many cases without a named preset, one has random options.
const RANDOM_SHARE: u64 = 4;

/// The options of a case.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The preset's name, or "random".
    pub name: &'static str,
    /// The options.
    pub options: Options,
    /// What they say about durability.
    pub default: Promise,
}

impl Setup {
    /// The preset of this name, or one that the seed chooses.
    ///
    /// # Panics
    ///
    /// When no preset has the name.
    pub fn choose(name: Option<&str>, seed: u64) -> Self {
        let presets = presets();
        let mut rng = SplitMix64::new(seed ^ 0x009a_e5e7);
        let mut setup = match name {
            Some("random") => Self::random(&mut rng),
            Some(name) => {
                let found = presets.iter().find(|preset| preset.name == name);
                Self::of(found.unwrap_or_else(|| panic!("no preset has the name {name}")))
            }
            None if rng.below(RANDOM_SHARE) == 0 => Self::random(&mut rng),
            None => Self::of(&presets[rng.below(presets.len() as u64) as usize]),
        };
        let sink = if rng.percent(50) { LogSink::Mapped } else { LogSink::Plain };
        setup.options = setup.options.log_sink(sink);
        setup
    }

    /// Everything as small as it may be.
    pub fn tiny() -> Self {
        Self::of(&presets()[0])
    }

    /// A preset's options.
    pub fn of(preset: &Preset) -> Self {
        let (durability, default) = durability(preset.durability);
        let options = Options::new()
            .memtable_size(preset.memtable_size)
            .cache_size(preset.cache_size)
            .block_size(preset.block_size)
            .restart_interval(preset.restart_interval)
            .table_size(preset.table_size)
            .l0_trigger(preset.l0_trigger)
            .base_level_size(preset.base_level_size)
            .level_ratio(preset.level_ratio)
            .wal_segment_size(preset.wal_segment_size)
            .bloom_bits(preset.bloom_bits)
            .compression(if preset.snappy { Compression::Snappy } else { Compression::None })
            .durability(durability)
            .verify_reads(preset.verify_reads)
            .background(Background::Inline)
            .seed(42);
        Setup { name: preset.name, options, default }
    }

    /// Any small options.
    pub fn random(rng: &mut SplitMix64) -> Self {
        let mut power =
            |least: u32, most: u32| 1_u64 << (u64::from(least) + rng.below(u64::from(most - least) + 1));
        let (memtable, cache, block) = (power(14, 17), power(10, 18), power(8, 14));
        let (restart, table, base, segment) = (power(0, 7), power(12, 17), power(12, 18), power(14, 18));
        let (durability, default) = durability(rng.below(3) as u8);
        let options = Options::new()
            .memtable_size(memtable as usize)
            .cache_size(if rng.percent(20) { 0 } else { cache as usize })
            .block_size(block as usize)
            .restart_interval(restart as usize)
            .table_size(table)
            .l0_trigger(1 + rng.below(6) as usize)
            .base_level_size(base)
            .level_ratio(2 + rng.below(9))
            .wal_segment_size(segment)
            .bloom_bits(rng.below(16) as u32)
            .compression(if rng.percent(50) { Compression::Snappy } else { Compression::None })
            .durability(durability)
            .verify_reads(rng.percent(30))
            .background(Background::Inline)
            .seed(rng.next_u64());
        Setup { name: "random", options, default }
    }
}

fn durability(number: u8) -> (Durability, Promise) {
    match number {
        0 => (Durability::Memory, Promise::Memory),
        1 => (Durability::Buffered, Promise::Buffered),
        _ => (Durability::Sync, Promise::Sync),
    }
}
