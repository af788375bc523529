//! Power losses: a log that is written, loses power at any moment, is recovered, and is written on, many times over.
//!
//! Whatever unsynced bytes and names survive, a strict recovery opens (DW17), gives a prefix of what was written, and has
//! everything that a sync promised. Segments of earlier lives stay in the directory, or not.

use std::path::Path;

use esker_base::{FileNumber, SequenceNumber, SplitMix64};
use esker_vfs::{MemVfs, Vfs};

use super::util::{Seen, batch, header, options, path, replay_with};
use crate::{LogReplay, LogWriter};

struct Life {
    vfs: MemVfs,
    rng: SplitMix64,
    writer: LogWriter,
    /// All records since the last flush of the memtables, and the first number that is needed.
    history: Seen,
    first_needed: SequenceNumber,
    /// The oldest segment that is needed, as a manifest would know.
    first_segment: u64,
    /// The durable sequence that a manifest would hold, and what a sync promised.
    manifest: SequenceNumber,
    promised: SequenceNumber,
    dir_synced: bool,
}

impl Life {
    fn step(&mut self) {
        match self.rng.below(12) {
            0 => self.rotate(),
            1 | 2 => self.sync(),
            3 | 4 => self.writer.flush().unwrap(),
            6 if self.rng.percent(20) => self.writer.trim(),
            5 => self.manifest = self.manifest.max(self.promised),
            _ => self.append(),
        }
    }

    fn append(&mut self) {
        let first = self.writer.last_sequence() + 1;
        let count = 1 + self.rng.below(4);
        if self.rng.percent(10) {
            self.writer.append_skip(first, count).unwrap();
            return self.history.push((first, count, Vec::new()));
        }
        let len = match self.rng.percent(5) {
            true => 3_000 + self.rng.below(3_000),
            false => self.rng.below(60),
        };
        let batch = batch(first, count, len as usize);
        self.writer.append_batch(first, count, batch.encoded()).unwrap();
        self.history.push((first, count, batch.encoded().to_vec()));
    }

    fn sync(&mut self) {
        if !self.dir_synced {
            self.vfs.sync_dir(Path::new("/")).unwrap();
            self.dir_synced = true;
        }
        self.writer.extend_for_sync();
        self.writer.sync().unwrap();
        self.promised = self.promised.max(self.writer.durable_sequence());
    }

    fn rotate(&mut self) {
        if self.rng.percent(50) {
            self.sync();
        } else {
            self.writer.flush().unwrap();
        }
        let (end, durable) = (self.writer.end(), self.writer.durable_sequence());
        let all = self.writer.is_durable();
        self.start(end, durable);
        if all {
            self.writer.previous_is_durable();
        }
    }

    fn start(&mut self, end: crate::SegmentEnd, durable: SequenceNumber) {
        let newest = options(&self.vfs).segments.last().map_or(0, |number| number.0);
        let number = newest.max(self.writer.header().number.0) + 1;
        self.writer = LogWriter::create(&self.vfs, &path(number), header(number, end), durable).unwrap();
        self.allow_extents();
        self.dir_synced = false;
    }

    /// Zeros behind the records before each sync, with a mapping between, or none.
    fn allow_extents(&mut self) {
        let limit = [0, 300, 5_000, 50_000][self.rng.below(4) as usize];
        self.writer.allow_extents(limit, self.rng.percent(50));
    }

    fn recover(&self) -> (Seen, LogReplay) {
        let mut options = options(&self.vfs);
        options.segments.retain(|number| number.0 >= self.first_segment);
        options.durable = self.manifest;
        options.first_needed = self.first_needed;
        replay_with(&self.vfs, &options).unwrap()
    }

    /// Loses power, recovers, checks, and starts the next life.
    fn crash(&mut self, seed: u64) {
        self.vfs = self.vfs.crash_clone(seed);
        let (seen, found) = self.recover();
        let last = found.end.last_sequence.max(self.first_needed - 1);
        assert!(last >= self.promised, "{} was promised: {found:?}", self.promised);
        self.history.retain(|record| record.0 <= last);
        assert_eq!(seen, self.history);
        assert_eq!(self.recover(), (seen, found.clone()), "twice the same");

        // With or without a flush of what was recovered before the crash that comes next.
        let flushed = self.rng.percent(60);
        let durable =
            if flushed { found.end.last_sequence } else { self.promised.min(found.end.last_sequence) };
        self.start(found.end, durable);
        if last > found.end.last_sequence {
            let skipped = last - found.end.last_sequence;
            self.writer.append_skip(found.end.last_sequence + 1, skipped).unwrap();
        }
        if flushed {
            self.flush(last);
        }
    }

    /// The tables have everything up to `last`, so the log before this segment is no longer needed. The new segment is
    /// durable before the manifest says so, the old ones are removed after it.
    fn flush(&mut self, last: SequenceNumber) {
        self.writer.previous_is_durable();
        self.sync();
        self.first_segment = self.writer.header().number.0;
        self.first_needed = last + 1;
        self.promised = last;
        self.history.clear();
        for number in options(&self.vfs).segments {
            if number.0 < self.first_segment && self.rng.percent(50) {
                self.vfs.remove(&path(number.0)).unwrap();
            }
        }
    }
}

#[test]
fn w3_w8_dw17_power_losses_without_end() {
    let mut torn = 0;
    for seed in 0..400 {
        let vfs = MemVfs::new();
        let writer = LogWriter::create(&vfs, &path(1), header(1, crate::SegmentEnd::none(0)), 0).unwrap();
        let mut life = Life {
            vfs,
            rng: SplitMix64::new(seed),
            writer,
            history: Vec::new(),
            first_needed: 1,
            first_segment: 1,
            manifest: 0,
            promised: 0,
            dir_synced: false,
        };
        life.allow_extents();
        for round in 0..8 {
            for _ in 0..life.rng.below(40) {
                life.step();
            }
            println!("seed {seed}, round {round}");
            let written = life.history.len();
            life.crash(seed * 100 + round);
            torn += u32::from(life.history.len() != written && life.writer.header().number != FileNumber(1));
        }
    }
    assert!(torn > 500, "crashes must lose something: {torn}");
}
