//! The rows of the report: their order, titles and units, and [`Figure`], one measured value of one.

use serde::{Deserialize, Serialize};

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
        }
    }
}

/// A group of workloads, measured in one child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Group {
    /// 2,000 keys `k00000`.. with 64-byte values: the rows that other projects publish.
    Published,
    /// The workloads over `--entries` entries of 16 + 100 bytes.
    Core,
    /// Writes that are synced one by one, on a real disk.
    Sync,
    /// An open after `kill -9`.
    Crash,
    /// Peak memory.
    Memory,
}

impl Group {
    /// Its title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Group::Published => "2,000 keys `k00000`.., 64-byte values",
            Group::Core => "16-byte keys, 100-byte values",
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
        row("fillseq", Core, "fillseq", Nanoseconds),
        row("batch", Core, "batch of 500 random keys, per key", Nanoseconds),
        row("fillrandom", Core, "fillrandom", Nanoseconds),
        row("overwrite", Core, "overwrite", Nanoseconds),
        row("delete", Core, "delete", Nanoseconds),
        row("compact", Core, "full compaction after it all, per entry", Nanoseconds),
        row("read.filled", Core, "readrandom right after fillrandom", Nanoseconds),
        row("read.warm", Core, "readrandom, warm", Nanoseconds),
        row("read.small", Core, "readrandom, 8 MiB cache", Nanoseconds),
        row("read.missing", Core, "readmissing", Nanoseconds),
        row("multiget", Core, "multi_get of 256, per key", Nanoseconds),
        row("readseq", Core, "readseq, per entry", Nanoseconds),
        row("readreverse", Core, "readreverse, per entry", Nanoseconds),
        row("seek10", Core, "seek + 10 entries", Nanoseconds),
        row("seek100", Core, "seek + 100 entries", Nanoseconds),
        row("rww.get", Core, "read while writing: one get", Nanoseconds),
        row("rww.put", Core, "read while writing: one put", Nanoseconds),
        row("open.clean", Core, "open after a close", Milliseconds),
        row("size.filled", Core, "on disk after overwrite and close", Mebibytes),
        row("size.compacted", Core, "on disk after a full compaction", Mebibytes),
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

/// The figures of one child process.
#[derive(Debug, Default)]
pub(crate) struct Figures(pub(crate) Vec<Figure>);

impl Figures {
    /// Adds a figure. The row is one of [`ROWS`].
    pub(crate) fn add(&mut self, row: &str, took: impl Into<Took>) {
        assert!(ROWS.iter().any(|known| known.id == row), "{row} is a row of the report");
        let took = took.into();
        eprintln!("    {row} {:.1}", took.wall);
        self.0.push(Figure { row: row.into(), took });
    }
}
