//! Runs the real compaction picker over a tree without files, and counts what it costs.
//!
//! Tables are sorted lists of key numbers, so overlaps and duplicates are exact; nothing is encoded or written. First all
//! keys are loaded, then they are overwritten; a queue is loaded at its end, then each put goes with a delete from its front.
//! The result is the shape of the levels over time, the write amplification (bytes written to each level by bytes put), and
//! how many tables level 0 has at a flush. The same seed gives the same numbers.
//!
//! Compactions take no time, unless `--speed` says how many bytes each of `--slots` of them writes while one is put. Then
//! level 0 grows meanwhile, as it does beside a writer that nobody holds up.
//!
//! ```text
//! cargo run --release -p esker-compaction --example simulate -- --workload uniform --gib 8
//! cargo run --release -p esker-compaction --example simulate -- --workload queue --gib 1 --overwrites 20
//! cargo run --release -p esker-compaction --example simulate -- --slots 2 --speed 5
//! ```

#![allow(clippy::disallowed_methods, reason = "it measures the picker with the system's clock")]

use clap::{Parser, ValueEnum};
use esker_base::{FileNumber, InternalKey, SplitMix64, ValueKind};
use esker_compaction::{
    Compaction, CompactionPicker, DeeperKeys, LevelTargets, LeveledOptions, LeveledPicker, OutputRange,
    PickInput,
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
    #[arg(long, default_value_t = 64.0)]
    memtable: f64,
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
    /// Bytes that a compaction writes while one byte is put; 0 for compactions that take no time.
    #[arg(long, default_value_t = 0.0)]
    speed: f64,
    /// Compactions that may run at once.
    #[arg(long, default_value_t = 1)]
    slots: usize,
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
    /// Keys are put in ascending order and deleted in the same order, a queue's length later.
    Queue,
}

/// What a write does to a key number: the lowest bit says that it deletes. Sorts by key.
type Op = u32;

fn put(key: u32) -> Op {
    key << 1
}

fn delete(key: u32) -> Op {
    put(key) | 1
}

fn key_of(op: Op) -> u32 {
    op >> 1
}

fn deletes(op: Op) -> bool {
    op & 1 == 1
}

/// Bytes of a tombstone.
const TOMBSTONE_BYTES: u64 = 32;

/// From this many times the trigger on, level 0 goes before compactions that are running, as in the engine.
const LEVEL0_PRESSES: usize = 2;

fn main() {
    let args = Args::parse();
    let mut simulation = Simulation::new(&args);
    let keys = ((args.gib * f64::from(1 << 30)) as u64 / args.entry_bytes).clamp(1, u64::from(u32::MAX >> 1));
    let mut workload = Keys { rng: SplitMix64::new(args.seed), kind: args.workload, keys, next: 0 };

    let order = workload.load_order();
    simulation.phase("load", order.len() as u64, args.reports, |n| put(order[n as usize]));
    let overwrites = (keys as f64 * args.overwrites) as u64;
    if args.workload == Workload::Queue {
        let at =
            |n: u64| if n.is_multiple_of(2) { put((keys + n / 2) as u32) } else { delete((n / 2) as u32) };
        simulation.phase("queue", 2 * overwrites, args.reports, at);
    } else {
        simulation.phase("overwrite", overwrites, args.reports, |_| put(workload.overwrite()));
    }
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
        if !matches!(self.kind, Workload::Sequential | Workload::Queue) {
            for at in (1..order.len()).rev() {
                order.swap(at, self.rng.below(at as u64 + 1) as usize);
            }
        }
        order
    }

    fn overwrite(&mut self) -> u32 {
        match self.kind {
            Workload::Uniform => self.rng.below(self.keys) as u32,
            Workload::Sequential | Workload::Queue => {
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

/// A compaction that runs, and the bytes that it has still to write.
struct Running {
    compaction: Compaction,
    left: f64,
}

/// A tree whose tables are lists of key numbers.
struct Simulation {
    options: LeveledOptions,
    entry_bytes: u64,
    memtable_bytes: u64,
    speed: f64,
    slots: usize,
    running: Vec<Running>,
    explain: bool,
    version: Version,
    tables: HashMap<FileNumber, Arc<[Op]>>,
    last_file: u64,
    last_seq: u64,
    /// Bytes written to each level in this phase.
    written: [u64; NUM_LEVELS],
    compactions: u64,
    moves: u64,
    /// Flushes, the tables that level 0 had at each, summed up, and the most.
    level0: (u64, u64, usize),
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
            memtable_bytes: (args.memtable * f64::from(1 << 20)) as u64,
            speed: args.speed,
            slots: args.slots.max(1),
            running: Vec::new(),
            explain: args.explain,
            version: Version::new(),
            tables: HashMap::new(),
            last_file: 0,
            // Above all that stand for levels.
            last_seq: NUM_LEVELS as u64,
            written: [0; NUM_LEVELS],
            compactions: 0,
            moves: 0,
            level0: (0, 0, 0),
            picks: (0, Duration::ZERO),
        }
    }

    /// Writes `count` keys and prints what that did.
    fn phase(&mut self, name: &str, count: u64, reports: u64, mut op: impl FnMut(u64) -> Op) {
        println!("{name}: {count} writes");
        println!("  {:>6}  {:>6}  levels: MiB (tables)", "done", "amp");
        (self.written, self.compactions, self.moves) = ([0; NUM_LEVELS], 0, 0);
        (self.level0, self.picks) = ((0, 0, 0), (0, Duration::ZERO));
        let (mut memtable, mut bytes, mut put) = (Vec::new(), 0, 0);
        let mut reported = 0;
        for n in 0..count {
            let op = op(n);
            memtable.push(op);
            bytes += self.bytes_of(op);
            if bytes >= self.memtable_bytes || n + 1 == count {
                self.flush(std::mem::take(&mut memtable));
                self.compact(bytes);
                (put, bytes) = (put + bytes, 0);
            }
            let due = (n + 1) * reports.max(1) / count;
            if due > reported {
                reported = due;
                self.report((n + 1) as f64 / count as f64, put);
            }
        }
        self.summary(put);
    }

    fn bytes_of(&self, op: Op) -> u64 {
        if deletes(op) { TOMBSTONE_BYTES.min(self.entry_bytes) } else { self.entry_bytes }
    }

    fn flush(&mut self, mut ops: Vec<Op>) {
        self.last_seq += ops.len() as u64;
        // The last operation on a key counts: sorted stably, it is the last of its key.
        ops.reverse();
        ops.sort_by_key(|op| key_of(*op));
        ops.dedup_by_key(|op| key_of(*op));
        let mut edit = VersionEdit::new();
        edit.add_table(0, 0, self.new_table(0, ops, self.last_seq));
        self.install(&edit);
        let tables = self.version.level(0).len();
        let (flushes, sum, most) = self.level0;
        self.level0 = (flushes + 1, sum + tables as u64, most.max(tables));
    }

    /// Lets compactions run while `bytes` are put; to their end if they take no time.
    fn compact(&mut self, bytes: u64) {
        // What each slot can write.
        let mut budget = if self.speed > 0.0 { bytes as f64 * self.speed } else { f64::INFINITY };
        loop {
            while let Some(compaction) = self.pick() {
                if self.explain {
                    println!("  {compaction}");
                }
                let left = if compaction.trivial_move { 0.0 } else { compaction.input_bytes() as f64 };
                self.running.push(Running { compaction, left });
            }
            // Those of level 0 first; what is beyond the slots stands still.
            self.running.sort_by_key(|running| running.compaction.start_level > 0);
            let going = self.running.len().min(self.slots);
            let Some(next) = self.running[..going].iter().map(|running| running.left).reduce(f64::min) else {
                return;
            };
            let part = next.min(budget);
            self.running[..going].iter_mut().for_each(|running| running.left -= part);
            budget -= part;
            match self.running[..going].iter().position(|running| running.left <= 0.0) {
                Some(done) => {
                    let done = self.running.swap_remove(done);
                    self.execute(&done.compaction);
                }
                None => return,
            }
        }
    }

    /// The next compaction, if there is a slot for it, or level 0 presses.
    fn pick(&mut self) -> Option<Compaction> {
        let busy: BTreeSet<FileNumber> =
            self.running.iter().flat_map(|running| running.compaction.input_numbers()).collect();
        let running: Vec<OutputRange> =
            self.running.iter().map(|running| running.compaction.output_range()).collect();
        let input = PickInput {
            version: &self.version,
            busy: &busy,
            running: &running,
            oldest_snapshot: self.last_seq,
            scanned_tombstones: 0,
            options: &self.options,
        };
        let level0_runs = || self.running.iter().any(|running| running.compaction.start_level == 0);
        let presses = self.version.level(0).len() >= self.options.l0_trigger * LEVEL0_PRESSES;
        let started = Instant::now();
        let picked = if self.running.len() < self.slots {
            LeveledPicker.pick(&input)
        } else if presses && !level0_runs() {
            LeveledPicker.pick_level0(&input)
        } else {
            return None;
        };
        self.picks = (self.picks.0 + 1, self.picks.1 + started.elapsed());
        picked
    }

    fn execute(&mut self, compaction: &Compaction) {
        let mut edit = VersionEdit::new();
        compaction.record(0, &mut edit);
        if compaction.trivial_move {
            self.moves += 1;
            for added in &mut edit.added {
                added.table = at_level(added.level, TableMetadata::clone(&added.table), 0);
            }
        } else {
            self.compactions += 1;
            let mut keys: Vec<Op> = Vec::new();
            for (level, tables) in &compaction.inputs {
                if *level == 0 {
                    for table in tables {
                        keys = union(&keys, &self.tables[&table.number]);
                    }
                } else {
                    let run: Vec<Op> =
                        tables.iter().flat_map(|table| self.tables[&table.number].iter().copied()).collect();
                    keys = union(&keys, &run);
                }
            }
            let mut deeper = compaction.deeper_tables();
            keys.retain(|op| !deletes(*op) || deeper.may_exist(&key_of(*op).to_be_bytes()));
            let newest = compaction.input_tables().map(|(_, table)| table.largest_seq).max().unwrap_or(0);
            for output in self.split(compaction, keys) {
                let table = self.new_table(compaction.output_level, output, newest);
                edit.add_table(0, compaction.output_level, table);
            }
        }
        self.install(&edit);
    }

    /// Cuts the output as a job does.
    fn split(&self, compaction: &Compaction, ops: Vec<Op>) -> Vec<Vec<Op>> {
        let mut splitter = compaction.splitter(&self.options);
        let (mut outputs, mut open, mut bytes) = (Vec::new(), Vec::new(), 0);
        for op in ops {
            if splitter.cut_before(&key_of(op).to_be_bytes(), bytes) {
                outputs.push(std::mem::take(&mut open));
                bytes = 0;
            }
            open.push(op);
            bytes += self.bytes_of(op);
        }
        outputs.push(open);
        outputs.retain(|output| !output.is_empty());
        outputs
    }

    fn new_table(&mut self, level: usize, ops: Vec<Op>, newest: u64) -> Arc<TableMetadata> {
        self.last_file += 1;
        let number = FileNumber(self.last_file);
        let file_size = ops.iter().map(|op| self.bytes_of(*op)).sum();
        self.written[level] += file_size;
        let bound = |op: Option<&Op>| {
            InternalKey::new(key_of(*op.expect("no empty tables")).to_be_bytes(), 0, ValueKind::Put)
        };
        let table = TableMetadata {
            number,
            file_size,
            tail_size: 0,
            smallest: bound(ops.first()),
            largest: bound(ops.last()),
            smallest_seq: 0,
            largest_seq: 0,
            entries: ops.len() as u64,
            deletes: ops.iter().filter(|op| deletes(**op)).count() as u64,
        };
        self.tables.insert(number, ops.into());
        at_level(level, table, newest)
    }

    fn install(&mut self, edit: &VersionEdit) {
        self.version = self.version.apply(0, edit).expect("the picker keeps the invariants");
        let added: BTreeSet<FileNumber> = edit.added.iter().map(|added| added.table.number).collect();
        for deleted in edit.deleted.iter().filter(|deleted| !added.contains(&deleted.number)) {
            self.tables.remove(&deleted.number);
        }
    }

    fn report(&self, done: f64, put: u64) {
        let amplification = self.written.iter().sum::<u64>() as f64 / put.max(1) as f64;
        print!("  {:>5.0}%  {amplification:>6.2} ", done * 100.0);
        for level in self.version.levels().filter(|level| !level.is_empty()) {
            print!("  L{}: {} ({})", level.number(), level.size_bytes() >> 20, level.len());
        }
        let tombstones: u64 = self.version.tables().map(|(_, table)| table.deletes).sum();
        println!("{}", if tombstones > 0 { format!("  {tombstones} tombstones") } else { String::new() });
    }

    fn summary(&self, put: u64) {
        let user = put.max(1) as f64;
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
        let (flushes, sum, most) = self.level0;
        println!("  level 0 after a flush: {:.1} tables, at most {most}", sum as f64 / flushes.max(1) as f64);
        println!("  {} picks, {:?} each", self.picks.0, self.picks.1 / self.picks.0.max(1));
    }
}

/// The table with sequence numbers that fit its level; in level 0, `newest`. Entries have none here, but a version checks
/// that upper levels are newer.
fn at_level(level: usize, mut table: TableMetadata, newest: u64) -> Arc<TableMetadata> {
    let seq = if level == 0 { newest } else { (NUM_LEVELS - level) as u64 };
    (table.smallest.seq, table.largest.seq) = (seq, seq);
    (table.smallest_seq, table.largest_seq) = (seq, seq);
    Arc::new(table)
}

/// The sorted union of two sorted lists; where both have a key, `newer` counts.
fn union(newer: &[Op], older: &[Op]) -> Vec<Op> {
    let mut merged = Vec::with_capacity(newer.len() + older.len());
    let (mut i, mut j) = (0, 0);
    while i < newer.len() && j < older.len() {
        let key = key_of(newer[i]).min(key_of(older[j]));
        merged.push(if key_of(newer[i]) == key { newer[i] } else { older[j] });
        i += usize::from(key_of(newer[i]) == key);
        j += usize::from(key_of(older[j]) == key);
    }
    merged.extend_from_slice(&newer[i..]);
    merged.extend_from_slice(&older[j..]);
    merged
}
