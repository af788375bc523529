//! [`Workload`]: a seeded, endless stream of operations.

use std::ops::Bound;

use esker_base::SplitMix64;

use crate::{Direction, KeyRange, KeySpace, Move, Op, Promise, View, WriteOp, value_for};

/// How often each kind of operation comes, as weights, and how large things are.
#[derive(Clone, Debug)]
pub struct Mix {
    /// Single puts, deletes and batches.
    pub writes: u64,
    /// Of the writes, how many of 100 are deletes.
    pub delete_percent: u64,
    /// Of the writes, how many of 100 are batches.
    pub batch_percent: u64,
    /// Point reads of all kinds.
    pub gets: u64,
    /// Ranges and prefixes.
    pub scans: u64,
    /// Cursors, new and long-lived.
    pub cursors: u64,
    /// Taking, dropping and checking snapshots.
    pub snapshots: u64,
    /// Flushes.
    pub flushes: u64,
    /// Compactions of everything or of a part.
    pub compactions: u64,
    /// Syncs.
    pub syncs: u64,
    /// Reopening.
    pub reopens: u64,
    /// Crashes, of both kinds.
    pub crashes: u64,
    /// Whether writes ask for various durabilities, or all for the default.
    pub promises: bool,
    /// Of 1,000 writes, how many leave out the log.
    pub no_log_permille: u64,
    /// Longest value in bytes.
    pub value_len_max: usize,
}

impl Mix {
    /// Everything but crashes.
    pub fn everything() -> Self {
        Mix {
            writes: 520,
            delete_percent: 25,
            batch_percent: 15,
            gets: 320,
            scans: 60,
            cursors: 60,
            snapshots: 20,
            flushes: 4,
            compactions: 2,
            syncs: 3,
            reopens: 1,
            crashes: 0,
            promises: true,
            no_log_permille: 10,
            value_len_max: 600,
        }
    }

    /// What changes the disk, for crash and fault tests.
    pub fn changes() -> Self {
        Mix {
            writes: 75,
            gets: 2,
            scans: 1,
            cursors: 0,
            snapshots: 2,
            flushes: 8,
            compactions: 4,
            syncs: 4,
            reopens: 3,
            no_log_permille: 0,
            value_len_max: 300,
            ..Self::everything()
        }
    }
}

/// An endless iterator of operations: the same ones for the same seed, keys and mix.
#[derive(Clone, Debug)]
pub struct Workload {
    rng: SplitMix64,
    keys: KeySpace,
    mix: Mix,
    /// Number of the next write, which goes into its values.
    number: u64,
}

impl Workload {
    /// A workload over `keys`.
    pub fn new(seed: u64, keys: KeySpace, mix: Mix) -> Self {
        Workload { rng: SplitMix64::new(seed), keys, mix, number: 0 }
    }

    /// The keys.
    pub fn keys(&self) -> &KeySpace {
        &self.keys
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.rng.below(limit)
    }

    fn index(&mut self) -> usize {
        self.below(1 << 16) as usize
    }

    fn write_op(&mut self) -> WriteOp {
        let key = self.keys.pick(&mut self.rng).to_vec();
        if self.rng.percent(self.mix.delete_percent) {
            return WriteOp::Delete(key);
        }
        self.number += 1;
        let max = self.mix.value_len_max as u64;
        let len = match self.below(20) {
            0 => 0,
            1..=12 => self.below(40.min(max) + 1),
            13..=18 => self.below(200.min(max) + 1),
            _ => self.below(max + 1),
        };
        let value = value_for(self.number, &key, len as usize);
        WriteOp::Put(key, value)
    }

    fn write(&mut self) -> Op {
        let count = if self.rng.percent(self.mix.batch_percent) { self.below(9) } else { 1 };
        let mut ops: Vec<WriteOp> = (0..count).map(|_| self.write_op()).collect();
        // Several operations on one key in a batch: the last one wins.
        if ops.len() > 2 && self.rng.percent(50) {
            let key = ops[0].key().to_vec();
            self.number += 1;
            let value = value_for(self.number, &key, 30);
            ops.push(if self.rng.percent(30) { WriteOp::Delete(key) } else { WriteOp::Put(key, value) });
        }
        let promise = if self.below(1000) < self.mix.no_log_permille {
            Promise::NoLog
        } else if !self.mix.promises {
            Promise::Default
        } else {
            match self.below(10) {
                0..=4 => Promise::Default,
                5 | 6 => Promise::Memory,
                7 => Promise::Buffered,
                _ => Promise::Sync,
            }
        };
        Op::Write(ops, promise)
    }

    fn view(&mut self) -> View {
        if self.rng.percent(70) { View::Now } else { View::Snapshot(self.index()) }
    }

    fn get(&mut self) -> Op {
        let key = self.keys.pick_near(&mut self.rng);
        match self.below(10) {
            0..=5 => Op::Get(key, self.view()),
            6 | 7 => Op::GetWith(key),
            _ => {
                let count = self.below(12);
                Op::MultiGet((0..count).map(|_| self.keys.pick_near(&mut self.rng)).collect())
            }
        }
    }

    fn bound(&mut self) -> Bound<Vec<u8>> {
        match self.below(10) {
            0 | 1 => Bound::Unbounded,
            2..=5 => Bound::Included(self.keys.pick_near(&mut self.rng)),
            _ => Bound::Excluded(self.keys.pick_near(&mut self.rng)),
        }
    }

    /// Any two bounds: in two of ten cases as they fall, so that some are inverted; else in order.
    fn range(&mut self) -> KeyRange {
        let (lower, upper) = (self.bound(), self.bound());
        let (a, b) = match (&lower, &upper) {
            (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => (a, b),
            _ => return (lower, upper),
        };
        if a > b && self.rng.percent(80) { (upper, lower) } else { (lower, upper) }
    }

    fn direction(&mut self) -> Direction {
        match self.below(3) {
            0 => Direction::Forward,
            1 => Direction::Backward,
            _ => Direction::Both(self.rng.next_u64()),
        }
    }

    fn scan(&mut self) -> Op {
        let (direction, view) = (self.direction(), self.view());
        if self.rng.percent(30) {
            let mut prefix = self.keys.pick_near(&mut self.rng);
            let keep = self.below(prefix.len() as u64 + 1) as usize;
            prefix.truncate(keep);
            return Op::Prefix(prefix, direction, view);
        }
        let limit = if self.rng.percent(10) { usize::MAX } else { self.below(30) as usize };
        Op::Scan(self.range(), direction, view, limit)
    }

    fn moves(&mut self) -> Vec<Move> {
        let count = 1 + self.below(14);
        let mut moves = Vec::new();
        for _ in 0..count {
            moves.push(match self.below(14) {
                0 => Move::First,
                1 => Move::Last,
                2..=5 => Move::Next,
                6..=9 => Move::Prev,
                10 | 11 => Move::Seek(self.keys.pick_near(&mut self.rng)),
                _ => Move::SeekForPrev(self.keys.pick_near(&mut self.rng)),
            });
        }
        moves
    }

    fn cursor(&mut self) -> Op {
        match self.below(10) {
            0..=4 => Op::Cursor(self.view(), self.moves()),
            5 => Op::OpenCursor,
            6 if self.rng.percent(30) => Op::CloseCursor,
            _ => Op::MoveCursor(self.moves()),
        }
    }

    fn snapshot(&mut self) -> Op {
        match self.below(10) {
            0..=3 => Op::TakeSnapshot,
            4..=7 => Op::DropSnapshot(self.index()),
            _ => Op::CheckSnapshot(self.index()),
        }
    }
}

impl Iterator for Workload {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        let mix = &self.mix;
        let weights = [
            mix.writes,
            mix.gets,
            mix.scans,
            mix.cursors,
            mix.snapshots,
            mix.flushes,
            mix.compactions,
            mix.syncs,
            mix.reopens,
            mix.crashes,
        ];
        let mut at = self.rng.below(weights.iter().sum());
        let mut kind = 0;
        while at >= weights[kind] {
            at -= weights[kind];
            kind += 1;
        }
        Some(match kind {
            0 => self.write(),
            1 => self.get(),
            2 => self.scan(),
            3 => self.cursor(),
            4 => self.snapshot(),
            5 => Op::Flush,
            6 if self.rng.percent(30) => Op::Compact((Bound::Unbounded, Bound::Unbounded)),
            6 => Op::Compact(self.range()),
            7 => Op::Sync,
            8 => Op::Reopen,
            _ if self.rng.percent(40) => Op::Kill,
            _ => Op::Crash(self.rng.next_u64()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Coverage;

    /// Every kind of operation comes up, and a seed gives the same ones twice.
    #[test]
    fn everything_comes_up_and_seeds_repeat() {
        let mix = Mix { crashes: 1, ..Mix::everything() };
        let workload = |seed| Workload::new(seed, KeySpace::new(seed, 200, 3000), mix.clone());
        let mut coverage = Coverage::default();
        workload(7).take(30_000).for_each(|op| coverage.hit(op.name()));
        coverage.demand(&Op::NAMES);
        assert!(workload(7).take(1000).eq(workload(7).take(1000)));
        assert!(!workload(7).take(100).eq(workload(8).take(100)));
    }

    #[test]
    fn keys_are_distinct_and_bounded() {
        let keys = KeySpace::new(1, 300, 2000);
        let mut sorted = keys.keys().to_vec();
        sorted.sort();
        sorted.dedup();
        assert_eq!(sorted.len(), 300);
        assert_eq!(sorted[0], b"");
        assert!(sorted.iter().any(|key| key.len() > 1000) && sorted.iter().all(|key| key.len() <= 2000));
    }
}
