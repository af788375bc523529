//! The rows of the report: their order, titles and units, and [`Figure`], one measured value of one.

use crate::engine::Result;
use serde::{Deserialize, Serialize};
use std::io::Write;

/// What the values of a row are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nanoseconds for one operation or entry.
    Nanoseconds,
    /// Microseconds for one operation.
    Microseconds,
    /// Milliseconds in all.
    Milliseconds,
    /// MiB.
    Mebibytes,
    /// Of a hundred: more is better, and no ratio is built.
    Percent,
    /// A ratio.
    Times,
}

impl Unit {
    /// Its sign.
    pub(crate) fn sign(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "µs",
            Unit::Milliseconds => "ms",
            Unit::Mebibytes => "MiB",
            Unit::Percent => "%",
            Unit::Times => "×",
        }
    }
}

/// A group of workloads, measured in one child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Group {
    /// 2,000 keys `k00000`.. with 64-byte values: the rows that other projects publish.
    Published,
    /// Writes of `--entries` entries of 16 + 100 bytes, and what they leave on disk.
    Fill,
    /// Reads of `--entries` entries of 16 + 100 bytes.
    Read,
    /// Gets of 100,000 entries that are all in the memtable; the processor's time of a flush and of a merge.
    Work,
    /// Values of 128 KiB, 1 MiB and 16 MiB.
    Values,
    /// Writes that are synced one by one, on a real disk.
    Sync,
    /// An open after `kill -9`.
    Crash,
    /// Peak memory.
    Memory,
}

impl Group {
    /// All groups in the order of the report.
    pub(crate) fn all() -> &'static [Group] {
        <Group as clap::ValueEnum>::value_variants()
    }

    /// Its title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Group::Published => "2,000 keys `k00000`.., 64-byte values",
            Group::Fill => "16-byte keys, 100-byte values: writes",
            Group::Read => "16-byte keys, 100-byte values: reads",
            Group::Work => "At most 100,000 entries, memtable of 1 GiB",
            Group::Values => "Large values",
            Group::Sync => "Synced writes, real disk",
            Group::Crash => "After kill -9, nothing flushed",
            Group::Memory => "Memory: fill at random, overwrite, read at random; 8 MiB cache",
        }
    }
}

/// A row of the report.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) id: &'static str,
    pub(crate) group: Group,
    pub(crate) title: &'static str,
    pub(crate) unit: Unit,
}

/// All rows in the order of the report.
pub(crate) const ROWS: &[Row] = {
    use Group::*;
    use Unit::*;
    const fn row(id: &'static str, group: Group, title: &'static str, unit: Unit) -> Row {
        Row { id, group, title, unit }
    }
    &[
        row("p.put", Published, "put", Nanoseconds),
        row("p.batch", Published, "batch of 500, per put", Nanoseconds),
        row("p.get.memtable", Published, "get, memtable", Nanoseconds),
        row("p.get.l0", Published, "get, level 0", Nanoseconds),
        row("p.get.bottom", Published, "get, last level", Nanoseconds),
        row("p.miss", Published, "get of an absent key", Nanoseconds),
        row("p.scan", Published, "scan over memtable + level 0, per entry", Nanoseconds),
        row("fillseq", Fill, "fillseq", Nanoseconds),
        row("batch", Fill, "batch of 500 random keys, per key", Nanoseconds),
        row("fillrandom", Fill, "fillrandom", Nanoseconds),
        row("fillrandom.first", Fill, "its first 100,000 (at most a quarter)", Nanoseconds),
        row("fillrandom.last", Fill, "its last 100,000 (at most a quarter)", Nanoseconds),
        row("read.filled", Fill, "readrandom right after fillrandom", Nanoseconds),
        row("overwrite", Fill, "overwrite", Nanoseconds),
        row("written", Fill, "bytes written for a byte of fillrandom + overwrite + close, log too", Times),
        row("size.filled", Fill, "on disk after overwrite and close", Mebibytes),
        row("open.clean", Fill, "open after a close", Milliseconds),
        row("compact", Fill, "full compaction after it all, per entry", Nanoseconds),
        row("size.compacted", Fill, "on disk after a full compaction", Mebibytes),
        row("delete", Fill, "delete", Nanoseconds),
        row("read.warm", Read, "readrandom, warm", Nanoseconds),
        row("read.small", Read, "readrandom, 8 MiB cache", Nanoseconds),
        row("read.missing", Read, "readmissing", Nanoseconds),
        row("multiget", Read, "multi_get of 256, per key", Nanoseconds),
        row("readseq", Read, "readseq, per entry", Nanoseconds),
        row("readreverse", Read, "readreverse, per entry", Nanoseconds),
        row("seek10", Read, "seek + 10 entries", Nanoseconds),
        row("seek100", Read, "seek + 100 entries", Nanoseconds),
        row("rww.get", Read, "read while writing: one get", Nanoseconds),
        row("rww.put", Read, "read while writing: one put", Nanoseconds),
        row("get.memtable", Work, "readrandom out of the memtable", Nanoseconds),
        row("flush", Work, "flush, per entry", Nanoseconds),
        row("flush.cpu", Work, "flush, CPU time of all threads, per entry", Nanoseconds),
        row("merge", Work, "merge of two tables, half of the keys in both, per entry read", Nanoseconds),
        row("merge.cpu", Work, "merge, CPU time of all threads, per entry read", Nanoseconds),
        row("put.128k", Values, "put of 128 KiB", Microseconds),
        row("get.128k", Values, "get of 128 KiB, every byte read", Microseconds),
        row("put.1m", Values, "put of 1 MiB", Microseconds),
        row("get.1m", Values, "get of 1 MiB", Microseconds),
        row("put.16m", Values, "put of 16 MiB", Microseconds),
        row("get.16m", Values, "get of 16 MiB", Microseconds),
        row("sync.1", Sync, "fillsync, 1 thread", Microseconds),
        row("sync.8", Sync, "fillsync, 8 threads", Microseconds),
        row("crash.open", Crash, "open and first get", Milliseconds),
        row("crash.there", Crash, "entries that are there", Percent),
        row("memory.peak", Memory, "peak of resident memory (VmHWM)", Mebibytes),
        row("memory.anonymous", Memory, "anonymous memory at the end (RssAnon)", Mebibytes),
    ]
};

/// A measured value: what the clock said, and for the time of a thread also what its CPU clock said, which leaves out
/// the time that the thread waited or other programs had its core.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// In the row's unit.
    pub(crate) wall: f64,
    /// In the row's unit, where the work is the calling thread's.
    pub(crate) cpu: Option<f64>,
}

impl Took {
    /// With both clocks times a factor.
    pub(crate) fn times(self, factor: f64) -> Self {
        Took { wall: self.wall * factor, cpu: self.cpu.map(|cpu| cpu * factor) }
    }
}

impl From<f64> for Took {
    fn from(wall: f64) -> Self {
        Took { wall, cpu: None }
    }
}

/// One measured value of a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// The [`Row::id`].
    pub(crate) row: String,
    /// The value.
    pub(crate) took: Took,
}

/// Where a child process says what it has measured: each figure is a line on its standard output, at once, so that
/// those before a failure are kept.
#[derive(Debug, Default)]
pub(crate) struct Figures;

impl Figures {
    /// Says a figure. The row is one of [`ROWS`].
    pub(crate) fn add(&mut self, row: &str, took: impl Into<Took>) -> Result<()> {
        assert!(ROWS.iter().any(|known| known.id == row), "{row} is a row of the report");
        let took = took.into();
        eprintln!("    {row} {:.1}", took.wall);
        let mut output = std::io::stdout().lock();
        writeln!(output, "{}", serde_json::to_string(&Figure { row: row.into(), took })?)?;
        Ok(output.flush()?)
    }
}
