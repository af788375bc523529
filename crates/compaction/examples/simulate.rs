//! Runs the real compaction picker over a tree without files, and counts what it costs.
//!
//! Tables are sorted lists of key numbers, so overlaps and duplicates are exact; nothing is encoded or written. First all
//! keys are loaded, then they are overwritten. The result is the shape of the levels over time, and the write
//! amplification: bytes written to each level by bytes put. The same seed gives the same numbers.
//!
//! ```text
//! cargo run --release -p esker-compaction --example simulate -- --workload uniform --gib 8
//! ```

#![allow(clippy::disallowed_methods, reason = "it measures the picker with the system's clock")]

use clap::{Parser, ValueEnum};
use esker_base::{FileNumber, InternalKey, SplitMix64, ValueKind};
use esker_compaction::{
    Compaction, CompactionPicker, LevelTargets, LeveledOptions, LeveledPicker, PickInput,
};
use esker_manifest::{NUM_LEVELS, TableMetadata, Version, VersionEdit};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Simulates leveled compaction and prints level shapes and write amplification.
#[derive(Parser, Debug)]
struct Args {
    /// Which keys the overwrites hit; sequential also loads in order.
    #[arg(long, value_enum, default_value_t = Workload::Uniform)]
    workload: Workload,
    /// Live data in GiB.
    #[arg(long, default_value_t = 8.0)]
    gib: f64,
    /// How many times as many writes as there are keys follow the load.
    #[arg(long, default_value_t = 1.0)]
    overwrites: f64,
    /// Bytes of an entry, key and value. Larger ones make the simulation coarser and faster.
    #[arg(long, default_value_t = 4096)]
    entry_bytes: u64,
    /// Memtable size in MiB.
    #[arg(long, default_value_t = 64)]
    memtable: u64,
    /// Size of the base level in MiB.
    #[arg(long, default_value_t = 64)]
    base: u64,
    /// Largest ratio between levels.
    #[arg(long, default_value_t = 8)]
    ratio: u64,
    /// Table size in MiB.
    #[arg(long, default_value_t = 16)]
    table: u64,
    /// Level-0 tables that start a compaction.
    #[arg(long, default_value_t = 4)]
    trigger: usize,
    /// Size in MiB beyond which a compaction is not made larger.
    #[arg(long, default_value_t = 400)]
    max_compaction: u64,
    /// Print the levels this many times during each phase.
    #[arg(long, default_value_t = 4)]
    reports: u64,
    /// Print every pick.
    #[arg(long)]
    explain: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Every key is as likely as any other.
    Uniform,
    /// Keys in ascending order, over and over.
    Sequential,
    /// A few keys get most of the writes; the popular ones lie scattered over the key space.
    Zipf,
}

fn main() {
    let args = Args::parse();
    let mut simulation = Simulation::new(&args);
    let keys = ((args.gib * f64::from(1 << 30)) as u64 / args.entry_bytes).clamp(1, u64::from(u32::MAX));
    let mut workload = Keys { rng: SplitMix64::new(args.seed), kind: args.workload, keys, next: 0 };

    let order = workload.load_order();
    simulation.phase("load", order.len() as u64, args.reports, |n| order[n as usize]);
    let overwrites = (keys as f64 * args.overwrites) as u64;
    simulation.phase("overwrite", overwrites, args.reports, |_| workload.overwrite());
}

/// Draws key numbers.
struct Keys {
    rng: SplitMix64,
    kind: Workload,
    keys: u64,
    next: u64,
}

impl Keys {
    fn load_order(&mut self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.keys as u32).collect();
        if self.kind != Workload::Sequential {
            for at in (1..order.len()).rev() {
                order.swap(at, self.rng.below(at as u64 + 1) as usize);
            }
        }
        order
    }

    fn overwrite(&mut self) -> u32 {
        match self.kind {
            Workload::Uniform => self.rng.below(self.keys) as u32,
            Workload::Sequential => {
                self.next += 1;
                ((self.next - 1) % self.keys) as u32
            }
            Workload::Zipf => {
                // Rank r with a probability near 1/r: the inverse of the logarithm. Then scattered by a multiplication
                // with a prime that is larger than any number of keys.
                let uniform = self.rng.next_u64() as f64 / u64::MAX as f64;
                let rank = ((self.keys as f64).powf(uniform) as u64).min(self.keys) - 1;
                (u128::from(rank) * 4_294_967_311 % u128::from(self.keys)) as u32
            }
        }
    }
}

/// A tree whose tables are lists of key numbers.
struct Simulation {
    options: LeveledOptions,
    entry_bytes: u64,
    memtable_entries: usize,
    explain: bool,
    version: Version,
    tables: HashMap<FileNumber, Arc<[u32]>>,
    last_file: u64,
    last_seq: u64,
    /// Bytes written to each level in this phase.
    written: [u64; NUM_LEVELS],
    compactions: u64,
    moves: u64,
    /// Calls of the picker, and how long they took.
    picks: (u32, Duration),
}

impl Simulation {
    fn new(args: &Args) -> Self {
        Simulation {
            options: LeveledOptions {
                l0_trigger: args.trigger,
                l0_bytes: u64::MAX,
                base_level_size: args.base << 20,
                level_ratio: args.ratio,
                table_size: args.table << 20,
                max_compaction_bytes: args.max_compaction << 20,
            },
            entry_bytes: args.entry_bytes.max(1),
            memtable_entries: ((args.memtable << 20) / args.entry_bytes.max(1)).max(1) as usize,
            explain: args.explain,
            version: Version::new(),
            tables: HashMap::new(),
            last_file: 0,
            // Above all that stand for levels.
            last_seq: NUM_LEVELS as u64,
            written: [0; NUM_LEVELS],
            compactions: 0,
            moves: 0,
            picks: (0, Duration::ZERO),
        }
    }

    /// Writes `count` keys and prints what that did.
    fn phase(&mut self, name: &str, count: u64, reports: u64, mut key: impl FnMut(u64) -> u32) {
        println!("{name}: {count} writes");
        println!("  {:>6}  {:>6}  levels: MiB (tables)", "done", "amp");
        (self.written, self.compactions, self.moves) = ([0; NUM_LEVELS], 0, 0);
        self.picks = (0, Duration::ZERO);
        let mut memtable = Vec::with_capacity(self.memtable_entries);
        let mut reported = 0;
        for n in 0..count {
            memtable.push(key(n));
            if memtable.len() == self.memtable_entries || n + 1 == count {
                self.flush(std::mem::take(&mut memtable));
                self.compact();
            }
            let due = (n + 1) * reports.max(1) / count;
            if due > reported {
                reported = due;
                self.report(n + 1, count);
            }
        }
        self.summary(count);
    }

    fn flush(&mut self, mut keys: Vec<u32>) {
        self.last_seq += keys.len() as u64;
        keys.sort_unstable();
        keys.dedup();
        let mut edit = VersionEdit::new();
        edit.add_table(0, 0, self.new_table(0, keys));
        self.install(&edit);
    }

    fn compact(&mut self) {
        let busy = BTreeSet::new();
        loop {
            let input = PickInput {
                version: &self.version,
                busy: &busy,
                running: &[],
                oldest_snapshot: self.last_seq,
                options: &self.options,
            };
            let started = Instant::now();
            let picked = LeveledPicker.pick(&input);
            self.picks = (self.picks.0 + 1, self.picks.1 + started.elapsed());
            let Some(compaction) = picked else { return };
            if self.explain {
                println!("  {compaction}");
            }
            self.execute(&compaction);
        }
    }

    fn execute(&mut self, compaction: &Compaction) {
        let mut edit = VersionEdit::new();
        compaction.record(0, &mut edit);
        if compaction.trivial_move {
            self.moves += 1;
            for added in &mut edit.added {
                added.table = self.at_level(added.level, TableMetadata::clone(&added.table));
            }
        } else {
            self.compactions += 1;
            let mut keys: Vec<u32> = Vec::new();
            for (level, tables) in &compaction.inputs {
                if *level == 0 {
                    for table in tables {
                        keys = union(&keys, &self.tables[&table.number]);
                    }
                } else {
                    let run: Vec<u32> =
                        tables.iter().flat_map(|table| self.tables[&table.number].iter().copied()).collect();
                    keys = union(&keys, &run);
                }
            }
            for output in self.split(compaction, keys) {
                edit.add_table(0, compaction.output_level, self.new_table(compaction.output_level, output));
            }
        }
        self.install(&edit);
    }

    /// Cuts the output as a job does.
    fn split(&self, compaction: &Compaction, keys: Vec<u32>) -> Vec<Vec<u32>> {
        let mut splitter = compaction.splitter(&self.options);
        let mut outputs = vec![Vec::new()];
        for key in keys {
            let open = outputs.last_mut().expect("there is one at least");
            if splitter.cut_before(&key.to_be_bytes(), open.len() as u64 * self.entry_bytes) {
                outputs.push(vec![key]);
            } else {
                open.push(key);
            }
        }
        outputs
    }

    fn new_table(&mut self, level: usize, keys: Vec<u32>) -> Arc<TableMetadata> {
        self.last_file += 1;
        let number = FileNumber(self.last_file);
        let file_size = keys.len() as u64 * self.entry_bytes;
        self.written[level] += file_size;
        let bound = |key: Option<&u32>| {
            InternalKey::new(key.expect("no empty tables").to_be_bytes(), 0, ValueKind::Put)
        };
        let table = TableMetadata {
            number,
            file_size,
            tail_size: 0,
            smallest: bound(keys.first()),
            largest: bound(keys.last()),
            smallest_seq: 0,
            largest_seq: 0,
            entries: keys.len() as u64,
            deletes: 0,
        };
        self.tables.insert(number, keys.into());
        self.at_level(level, table)
    }

    /// The table with sequence numbers that fit its level. Entries have none here, but a version checks that upper
    /// levels are newer.
    fn at_level(&self, level: usize, mut table: TableMetadata) -> Arc<TableMetadata> {
        let seq = if level == 0 { self.last_seq } else { (NUM_LEVELS - level) as u64 };
        (table.smallest.seq, table.largest.seq) = (seq, seq);
        (table.smallest_seq, table.largest_seq) = (seq, seq);
        Arc::new(table)
    }

    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(0, edit).expect("the picker keeps the invariants");
        let added: BTreeSet<FileNumber> = edit.added.iter().map(|added| added.table.number).collect();
        for deleted in edit.deleted.iter().filter(|deleted| !added.contains(&deleted.number)) {
            self.tables.remove(&deleted.number);
        }
    }

    fn report(&self, done: u64, count: u64) {
        let amplification = self.written.iter().sum::<u64>() as f64 / (done * self.entry_bytes) as f64;
        print!("  {:>5.0}%  {amplification:>6.2} ", done as f64 * 100.0 / count as f64);
        for level in self.version.levels().filter(|level| !level.is_empty()) {
            print!("  L{}: {} ({})", level.number(), level.size_bytes() >> 20, level.len());
        }
        println!();
    }

    fn summary(&self, count: u64) {
        let user = (count * self.entry_bytes).max(1) as f64;
        let targets = LevelTargets::new(&self.version, &self.options);
        println!("  level   target MiB   written MiB   amplification");
        for (level, written) in self.written.iter().enumerate().filter(|(_, written)| **written > 0) {
            let target = targets.size(level) >> 20;
            println!(
                "  L{level:<5}  {target:>10}   {:>11}   {:>13.2}",
                written >> 20,
                *written as f64 / user
            );
        }
        let total = self.written.iter().sum::<u64>() as f64 / user;
        println!("  all                                {total:>13.2}");
        println!("  {} compactions, {} moves", self.compactions, self.moves);
        println!("  {} picks, {:?} each", self.picks.0, self.picks.1 / self.picks.0.max(1));
    }
}

/// The sorted union of two sorted lists.
fn union(a: &[u32], b: &[u32]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(a.len() + b.len());
    let (mut i, mut j) = (0, 0);
    while i < a.len() && j < b.len() {
        let key = a[i].min(b[j]);
        i += usize::from(a[i] == key);
        j += usize::from(b[j] == key);
        merged.push(key);
    }
    merged.extend_from_slice(&a[i..]);
    merged.extend_from_slice(&b[j..]);
    merged
}
