//! Flushing: sealed memtables become tables of level 0.

use crate::background::{ENTRIES_A_STEP, JobStep};
use crate::core::Core;
use crate::event::Event;
use crate::flow::Share;
use crate::sink::{MadeTables, sync_dir};
use crate::state::State;
use crate::super_version::Generation;
use crate::{Error, Result};
use esker_base::{FileKind, FileNumber, planted, points};
use esker_compaction::{CompactionJob, DeeperTables, Step};
use esker_manifest::VersionEdit;
use esker_memtable::MemtableIterator;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// The flush of the oldest sealed memtables: one generation, all keyspaces, installed as one edit.
pub(crate) struct FlushJob {
    generation: Arc<Generation>,
    /// Positions of the keyspaces still to be written, last first; the job of the one that is being written.
    todo: Vec<usize>,
    current: Option<(usize, CompactionJob<MemtableIterator>)>,
    /// Outputs by position of their keyspace.
    outputs: Vec<(usize, MadeTables)>,
    /// Set once the manifest may name the outputs: they are not removed then, whatever happens.
    installing: bool,
    entries: u64,
    /// Bytes of keys and values read so far.
    payload: u64,
    share: Share,
    started: Duration,
}

impl Core {
    /// Takes the oldest sealed generation, unless it is being flushed.
    pub(crate) fn plan_flush(&self, state: &mut State) -> Option<FlushJob> {
        if state.flush_running {
            return None;
        }
        let mut generation = Arc::clone(state.immutables.last()?);
        if planted::is(planted::Fault::FlushOutOfOrder) {
            generation = Arc::clone(state.immutables.first()?);
        }
        state.flush_running = true;
        let entries = generation.memtables.iter().map(|memtable| memtable.len() as u64).sum();
        let share = self.flow.flush_share(1, entries);
        Some(FlushJob {
            todo: (0..generation.memtables.len()).rev().collect(),
            generation,
            current: None,
            outputs: Vec::new(),
            installing: false,
            entries: 0,
            payload: 0,
            share,
            started: self.components.clock.now(),
        })
    }
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
        let step = core.with_sink(made, |sink| job.step(sink, ENTRIES_A_STEP))?;
        self.share.show(job.stats().entries_in);
        if step == Step::Done {
            self.payload += job.stats().bytes_in;
            self.entries += job.stats().entries_out;
            self.current = None;
        }
        Ok(JobStep::More)
    }

    fn start(&mut self, core: &Core, position: usize) {
        let memtable = &self.generation.memtables[position];
        if memtable.is_empty() {
            return;
        }
        let version = Arc::clone(&core.state.lock().keyspaces[position].tables.version);
        points::here(points::Point::FlushPlanned);
        let stripes = core.snapshots.stripes(&core.visible);
        points::here(points::Point::FlushCaptured);
        let job = CompactionJob::flush(memtable.iter(), stripes, DeeperTables::below_memtables(&version));
        self.current = Some((position, job));
    }

    fn install(&mut self, core: &Core) -> Result<()> {
        points::here(points::Point::TablesMade);
        if self.outputs.iter().any(|(_, made)| !made.finished.is_empty()) {
            sync_dir(core.components.vfs.as_ref(), &core.dir)?;
        }
        points::here(points::Point::TablesNamed);
        let next_log = {
            let state = core.state.lock();
            let newer = state.immutables.iter().rev().find(|sealed| sealed.log > self.generation.log);
            newer.map_or(state.active.log, |sealed| sealed.log)
        };
        let mut edit = VersionEdit::new();
        edit.last_sequence = Some(self.generation.last_seq());
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
            let _ = core.components.vfs.remove(&core.file_path(FileKind::Wal, self.generation.log));
        }
        self.installing = true;
        let generation = Arc::clone(&self.generation);
        core.install(edit, |state| {
            state.immutables.retain(|sealed| !Arc::ptr_eq(sealed, &generation));
            state.obsolete_files.push((FileKind::Wal, generation.log));
            state.retired.push(generation);
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
        write!(f, "FlushJob(log {})", self.generation.log)
    }
}
