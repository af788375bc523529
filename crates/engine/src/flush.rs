//! Flushing: sealed memtables become tables of level 0.
//!
//! Small memtables that wait together become one table: those that were sealed early, by a `flush` or because their log
//! segment was full. They are the oldest ones, merged in the order of their sequence numbers; their log segments go together,
//! once the one edit that names the table is durable. A flush that fails leaves all of them as they were.
//!
//! Together they are at most as large as a full memtable. Two full ones would make level 0 shorter, but keep their memory
//! until both are written, and writers would wait for it.

use crate::background::{ENTRIES_A_STEP, JobStep};
use crate::core::Core;
use crate::event::Event;
use crate::flow::Share;
use crate::memory::JobMemory;
use crate::room::{Claim, Floor};
use crate::sink::{MadeTables, sync_dir};
use crate::state::State;
use crate::super_version::Generation;
use crate::{Error, Result};
use esker_base::{FileKind, FileNumber, MergingIterator, planted, points};
use esker_compaction::{CompactionJob, DeeperTables, Step};
use esker_manifest::VersionEdit;
use esker_memtable::MemtableIterator;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The flush of the oldest sealed memtables: one generation or a few, all keyspaces, installed as one edit.
pub(crate) struct FlushJob {
    /// What is flushed, newest first. Never empty.
    generations: Vec<Arc<Generation>>,
    /// Positions of the keyspaces still to be written, last first; the job of the one that is being written.
    todo: Vec<usize>,
    current: Option<(usize, CompactionJob<MergingIterator<MemtableIterator>>)>,
    /// Outputs by position of their keyspace.
    outputs: Vec<(usize, MadeTables)>,
    /// Set once the manifest may name the outputs: they are not removed then, whatever happens.
    installing: bool,
    entries: u64,
    /// Bytes of keys and values read so far.
    payload: u64,
    share: Share,
    /// Room on the device for the outputs.
    claim: Claim,
    memory: JobMemory,
    started: Duration,
}

impl Core {
    /// Takes the oldest sealed generations, unless some are being flushed.
    pub(crate) fn plan_flush(&self, state: &mut State) -> Option<FlushJob> {
        if state.flush_running {
            return None;
        }
        let generations = self.generations_to_flush(state)?;
        state.flush_running = true;
        let memtables = || generations.iter().flat_map(|generation| &generation.memtables);
        let entries = memtables().map(|memtable| memtable.len() as u64).sum();
        let share = self.flow.flush_share(generations.len(), entries);
        let bytes = generations.iter().map(|generation| generation.table_bytes()).sum();
        Some(FlushJob {
            todo: (0..state.keyspaces.len()).rev().collect(),
            generations,
            current: None,
            outputs: Vec::new(),
            installing: false,
            entries: 0,
            payload: 0,
            share,
            claim: self.room.claim(bytes),
            memory: self.tables.memory.job(),
            started: self.components.clock.now(),
        })
    }

    /// The oldest sealed generations that are to be flushed together, newest first; `None` when nothing waits.
    fn generations_to_flush(&self, state: &State) -> Option<Vec<Arc<Generation>>> {
        let oldest = state.immutables.last()?;
        if planted::is(planted::Fault::FlushOutOfOrder) {
            return Some(vec![Arc::clone(state.immutables.first()?)]);
        }
        // With little space, the smallest step: its log segment can go before the next table is written.
        if state.flush_alone || self.room.is_low() {
            return Some(vec![Arc::clone(oldest)]);
        }
        let bytes_max = self.options.effective_memtable_size();
        Some(oldest_within(&state.immutables, bytes_max, |generation| generation.memory_usage()))
    }
}

/// The last of `newest_first`, and before it as many as have `bytes_max` together.
fn oldest_within<T: Clone>(newest_first: &[T], bytes_max: usize, bytes: impl Fn(&T) -> usize) -> Vec<T> {
    let mut sum = 0_usize;
    let fit = newest_first.iter().rev().take_while(|item| {
        sum = sum.saturating_add(bytes(item));
        sum <= bytes_max
    });
    let count = fit.count().max(1).min(newest_first.len());
    newest_first[newest_first.len() - count..].to_vec()
}

impl FlushJob {
    pub(crate) fn step(&mut self, core: &Core) -> Result<JobStep> {
        if self.current.is_none() {
            let Some(position) = self.todo.pop() else {
                self.install(core)?;
                return Ok(JobStep::Done);
            };
            self.start(core, position);
        }
        let Some((position, job)) = &mut self.current else { return Ok(JobStep::More) };
        let position = *position;
        let made = match self.outputs.iter_mut().find(|(at, _)| *at == position) {
            Some((_, made)) => made,
            None => {
                self.outputs.push((position, MadeTables::default()));
                &mut self.outputs.last_mut().ok_or_else(|| Error::fatal("an output was just added"))?.1
            }
        };
        let step = core.with_sink(made, Floor::Flush, |sink| job.step(sink, ENTRIES_A_STEP))?;
        self.claim.written(job.stats().bytes_out);
        self.share.show(job.stats().entries_in);
        self.memory.show(job.memory());
        if step == Step::Done {
            self.payload += job.stats().bytes_in;
            self.entries += job.stats().entries_out;
            self.current = None;
        }
        Ok(JobStep::More)
    }

    fn start(&mut self, core: &Core, position: usize) {
        let memtables = self.generations.iter().filter_map(|generation| generation.memtables.get(position));
        let sources: Vec<_> =
            memtables.filter(|memtable| !memtable.is_empty()).map(|memtable| memtable.iter_whole()).collect();
        if sources.is_empty() {
            return;
        }
        let version = Arc::clone(&core.state.lock().keyspaces[position].tables.version);
        points::here(points::Point::FlushPlanned);
        let stripes = core.snapshots.stripes(&core.visible);
        points::here(points::Point::FlushCaptured);
        let deeper = DeeperTables::below_memtables(&version);
        let job = CompactionJob::flush(MergingIterator::new(sources), stripes, deeper);
        self.current = Some((position, job));
    }

    fn install(&mut self, core: &Core) -> Result<()> {
        points::here(points::Point::TablesMade);
        if self.outputs.iter().any(|(_, made)| !made.finished.is_empty()) {
            sync_dir(core.components.vfs.as_ref(), &core.dir)?;
        }
        points::here(points::Point::TablesNamed);
        let newest = self.generations.first().ok_or_else(|| Error::fatal("a flush of nothing"))?;
        let next_log = {
            let state = core.state.lock();
            let newer = state.immutables.iter().rev().find(|sealed| sealed.log > newest.log);
            newer.map_or(state.active.log, |sealed| sealed.log)
        };
        let mut edit = VersionEdit::new();
        edit.last_sequence = Some(newest.last_seq());
        edit.durable_sequence = Some(core.queue.durable());
        {
            let state = core.state.lock();
            for (position, keyspace) in state.keyspaces.iter().enumerate() {
                edit.set_log_number(keyspace.id, next_log);
                for (_, made) in self.outputs.iter().filter(|(at, _)| *at == position) {
                    for table in &made.finished {
                        edit.add_table(keyspace.id, 0, Arc::clone(table));
                    }
                }
            }
        }
        if planted::is(planted::Fault::SegmentRemovedEarly) {
            for generation in &self.generations {
                let _ = core.components.vfs.remove(&core.file_path(FileKind::Wal, generation.log));
            }
        }
        let flushed = &self.generations;
        core.install(edit, &mut self.installing, |state| {
            state.immutables.retain(|sealed| !flushed.iter().any(|flushed| Arc::ptr_eq(sealed, flushed)));
            state.obsolete_files.extend(flushed.iter().map(|flushed| (FileKind::Wal, flushed.log)));
            state.retired.extend(flushed.iter().cloned());
        })?;
        points::here(points::Point::Installed);
        let bytes = self.outputs.iter().map(|(_, made)| made.bytes()).sum();
        core.metrics.flushes.fetch_add(1, Relaxed);
        core.metrics.flushed_bytes.fetch_add(bytes, Relaxed);
        let now = core.components.clock.now();
        let more_waits = !core.super_version.load().immutables.is_empty();
        core.flow.throttle.lock().flushed((self.payload, bytes), self.started, now, more_waits);
        let took = now.saturating_sub(self.started);
        core.emit(&Event::Flushed { entries: self.entries, bytes, took });
        Ok(())
    }

    /// Tables that the manifest may or may not name, after a failed install.
    pub(crate) fn doubtful(&self) -> Vec<FileNumber> {
        if !self.installing {
            return Vec::new();
        }
        self.outputs.iter().flat_map(|(_, made)| made.numbers.iter().copied()).collect()
    }

    /// What is to be removed when the job fails.
    pub(crate) fn made(&self) -> Vec<&MadeTables> {
        if self.installing { Vec::new() } else { self.outputs.iter().map(|(_, made)| made).collect() }
    }
}

impl std::fmt::Debug for FlushJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let logs: Vec<_> = self.generations.iter().map(|generation| generation.log.0).collect();
        write!(f, "FlushJob(logs {logs:?})")
    }
}
