//! `CompactionJob`: the execution of a flush or a compaction, some entries at a time.
//!
//! The job reads versions from its input, drops what nobody needs (see [`CompactionIterator`]), and writes tables through
//! an [`OutputSink`]. It holds no lock and knows no file: whoever drives it decides when to go on, and may stop at any
//! step by dropping the job. Then, and after an error, the sink's owner removes what was written; the inputs are as they
//! were.
//!
//! A flush is the same work over the entries of a memtable: one output, and sequence numbers stay.

use crate::iter::Kept;
use crate::{
    Compaction, CompactionIterator, DeeperTables, LeveledOptions, OutputSplitter, RewriteStats,
    SnapshotStripes,
};
use esker_base::{Error, InternalIterator, Result, planted};
use esker_sstable::TableBuilder;

/// Where a job's tables go. The engine's sink numbers and creates the files, syncs them, and keeps their metadata for
/// the version edit.
pub trait OutputSink {
    /// A builder for the next table.
    fn create(&mut self) -> Result<TableBuilder>;

    /// Takes a complete table, which has at least one entry: finishes and syncs it.
    fn finish(&mut self, builder: TableBuilder) -> Result<()>;
}

/// Whether a job goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// All outputs are written and handed to the sink.
    Done,
}

/// A flush or a compaction in the works.
pub struct CompactionJob<I> {
    iter: CompactionIterator<I, DeeperTables>,
    splitter: OutputSplitter,
    /// The table that is being written.
    builder: Option<TableBuilder>,
    state: State,
    tables_out: u64,
    bytes_out: u64,
}

enum State {
    New,
    /// Between two steps: the iterator is paused.
    Started,
    Done,
    Failed(Error),
}

impl<I: InternalIterator> CompactionJob<I> {
    /// The job of `compaction`. `input` merges all its input tables; `stripes` were captured after the pick's version.
    pub fn compaction(
        input: I,
        compaction: &Compaction,
        stripes: SnapshotStripes,
        options: &LeveledOptions,
    ) -> Self {
        let (deeper, splitter) = (compaction.deeper_tables(), compaction.splitter(options));
        Self::new(input, stripes, deeper, splitter, compaction.zeroes_sequences())
    }

    /// The job of a flush: `input` merges the memtables. `deeper` is all that lies below them, as
    /// [`DeeperTables::below_memtables`] gives it; tombstones for keys that are nowhere below are dropped.
    pub fn flush(input: I, stripes: SnapshotStripes, deeper: DeeperTables) -> Self {
        Self::new(input, stripes, deeper, OutputSplitter::never(), false)
    }

    /// A job out of its parts: for flushes that cut their output, or tests.
    pub fn new(
        input: I,
        stripes: SnapshotStripes,
        deeper: DeeperTables,
        splitter: OutputSplitter,
        zero_sequences: bool,
    ) -> Self {
        CompactionJob {
            iter: CompactionIterator::new(input, stripes, deeper, zero_sequences),
            splitter,
            builder: None,
            state: State::New,
            tables_out: 0,
            bytes_out: 0,
        }
    }

    /// Reads up to `entries` entries, at least one if there is one, and writes those that stay.
    ///
    /// # Errors
    ///
    /// The first error of the input or the sink ends the job: it is returned again by later steps. It is never taken for
    /// the end of the input.
    pub fn step(&mut self, sink: &mut dyn OutputSink, entries: usize) -> Result<Step> {
        let result = self.try_step(sink, entries.max(1));
        if let Err(error) = &result {
            self.builder = None;
            self.state = State::Failed(error.clone());
        }
        result
    }

    /// What was read, dropped and written so far. Complete once the job is done.
    pub fn stats(&self) -> RewriteStats {
        let open = self.builder.as_ref().map_or(0, TableBuilder::estimated_size);
        RewriteStats { tables_out: self.tables_out, bytes_out: self.bytes_out + open, ..*self.iter.stats() }
    }

    /// Bytes that the table in the works takes in memory, and may take while it is finished. Not those of the input.
    pub fn memory(&self) -> usize {
        self.builder.as_ref().map_or(0, TableBuilder::memory)
    }

    fn try_step(&mut self, sink: &mut dyn OutputSink, entries: usize) -> Result<Step> {
        let new = match &self.state {
            State::New => true,
            State::Started => false,
            State::Done => return Ok(Step::Done),
            State::Failed(error) => return Err(error.clone()),
        };
        // Entries that are dropped count too, so that a step is short whatever the input holds.
        let read = self.iter.stats().entries_in;
        self.iter.pause_at(read.saturating_add(entries as u64));
        if new {
            self.state = State::Started;
            self.iter.seek_to_first()?;
        } else {
            self.iter.next()?;
        }
        while self.iter.valid() {
            self.write_entry(sink)?;
            self.iter.next()?;
        }
        if self.iter.paused() {
            return Ok(Step::More);
        }
        self.finish_table(sink)?;
        self.state = State::Done;
        Ok(Step::Done)
    }

    /// Adds the current entry to the table in the works, or to a new one where that is to be cut.
    #[inline]
    fn write_entry(&mut self, sink: &mut dyn OutputSink) -> Result<()> {
        if self.iter.first_of_key() || planted::is(planted::Fault::UserKeySplit) {
            let size = self.builder.as_ref().map_or(0, TableBuilder::estimated_size);
            if self.splitter.cut_before(self.iter.user_key(), size) {
                self.finish_table(sink)?;
            }
        }
        let builder = match &mut self.builder {
            Some(builder) => builder,
            none => none.insert(sink.create()?),
        };
        let Kept { key, value, shared } = self.iter.take();
        builder.add_sharing(key, value, shared)
    }

    /// Hands the table in the works over, if there is one.
    fn finish_table(&mut self, sink: &mut dyn OutputSink) -> Result<()> {
        let Some(builder) = self.builder.take() else { return Ok(()) };
        self.bytes_out += builder.estimated_size();
        self.tables_out += 1;
        sink.finish(builder)
    }
}
