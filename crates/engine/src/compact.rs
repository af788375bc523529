//! Compaction: the tables of some levels become other tables, one level down or where they are.

use crate::background::{ENTRIES_A_STEP, JobStep};
use crate::core::Core;
use crate::event::Event;
use crate::flow::Share;
use crate::memory::JobMemory;
use crate::room::{Claim, Floor};
use crate::sink::{MadeTables, sync_dir};
use crate::sources::{Child, LevelSource};
use crate::state::{ManualRequest, State};
use crate::table_cache::TableHandle;
use crate::{Error, Result};
use esker_base::{ConcatIterator, FileKind, FileNumber, KeyspaceId, MergingIterator, planted, points};
use esker_compaction::{
    Compaction, CompactionJob, CompactionPicker, LeveledOptions, LeveledPicker, ManualCompaction, ManualPick,
    OutputRange, PickInput, Reason, RewriteStats, Step,
};
use esker_manifest::VersionEdit;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// A compaction in the works.
pub(crate) struct CompactJob {
    position: usize,
    keyspace: KeyspaceId,
    compaction: Compaction,
    range: OutputRange,
    /// The inputs with their level, upper first.
    inputs: Vec<(usize, Vec<Arc<TableHandle>>)>,
    /// Whether it is a step of the present manual compaction.
    manual: bool,
    job: Option<CompactionJob<MergingIterator<Child>>>,
    made: MadeTables,
    /// Set once the manifest may name the outputs.
    installing: bool,
    /// For a compaction out of level 0: how far it is.
    share: Option<Share>,
    cost: Cost,
    /// Room on the device for the outputs.
    claim: Claim,
    memory: JobMemory,
    started: Duration,
}

/// How many bytes a job has moved, for the rate limit.
struct Cost {
    /// Bytes and entries of all inputs.
    bytes: u64,
    entries: u64,
    charged: u64,
}

impl Cost {
    /// Bytes read and written since the last call.
    fn moved(&mut self, stats: &RewriteStats) -> u64 {
        let part = (stats.entries_in as f64 / self.entries.max(1) as f64).min(1.0);
        let moved = (self.bytes as f64 * part) as u64 + stats.bytes_out;
        let new = moved.saturating_sub(self.charged);
        self.charged = self.charged.max(moved);
        new
    }
}

/// Level 0 presses from this many times its trigger on: just before writers are slowed.
const LEVEL0_PRESSES: usize = 2;

/// What a compaction needs on the device.
type Needs = fn(&Compaction) -> u64;

/// What there is to compact.
enum Picked {
    This(Box<Compaction>),
    /// Something, for which there is no room.
    NoRoom,
    Nothing,
}

/// How many compactions are looked at for one that there is room for.
const FIT_TRIES: usize = 32;

/// The manual compaction that is being done.
#[derive(Debug)]
pub(crate) struct Manual {
    request: ManualRequest,
    progress: ManualCompaction,
    /// Whether one of its steps is running.
    running: bool,
}

impl Manual {
    /// Whether this is the request `ticket`, with no step running.
    pub(crate) fn is_idle(&self, ticket: u64) -> bool {
        self.request.ticket == ticket && !self.running
    }
}

impl Core {
    /// Picks the next compaction, unless enough are running.
    pub(crate) fn plan_compaction(&self, state: &mut State) -> Option<CompactJob> {
        if state.compactions_running >= self.compactions_max() {
            return None;
        }
        let options = &self.leveled_options();
        // The default keyspace is the only one that can hold data so far.
        let position = 0;
        let wanted = self.pick_manual(state, position, options);
        if wanted.is_some()
            && let Some(current) = &mut state.manual_current
        {
            current.running = false;
        }
        let (compaction, manual) = self.choose(state, position, options, wanted)?;
        if manual && let Some(current) = &mut state.manual_current {
            current.running = true;
        }
        Some(self.begin(state, position, compaction, manual))
    }

    /// The compaction to do, and whether it is the manual one that is wanted: what surely has room before what has if its
    /// tombstones remove something. The manual one is done at last without: it may free space when much was overwritten,
    /// ends when it has taken what jobs may take, and who asked for it is told.
    fn choose(
        &self,
        state: &State,
        position: usize,
        options: &LeveledOptions,
        wanted: Option<Compaction>,
    ) -> Option<(Compaction, bool)> {
        // What was reckoned wrongly fails, but then nobody else's room is gone.
        let needs: &[Needs] = match state.compactions_running {
            0 => &[Compaction::output_bytes_max, Compaction::output_bytes_expected],
            _ => &[Compaction::output_bytes_max],
        };
        for &needs in needs {
            let input = self.pick_input(state, position, options);
            if let Some(wanted) = &wanted
                && let Some(manual) = self.fit(&input, state, wanted, needs)
            {
                return Some((manual, true));
            }
            if let Picked::This(picked) = self.pick_fitting(state, position, options, needs) {
                return Some((*picked, false));
            }
        }
        wanted.filter(|_| state.compactions_running == 0).map(|manual| (manual, true))
    }

    /// As much of a compaction as there is room for on the device.
    fn fit(
        &self,
        input: &PickInput<'_>,
        state: &State,
        compaction: &Compaction,
        needs: Needs,
    ) -> Option<Compaction> {
        let flush = state.immutables.last().filter(|_| !state.flush_running);
        let flush = flush.map_or(0, |oldest| oldest.table_bytes());
        let room = self.room.for_compactions().saturating_sub(flush);
        if needs(compaction) <= room {
            return Some(compaction.clone());
        }
        LeveledPicker.part_of(input, compaction, room)
    }

    /// Picks a compaction that there is room for: if not the most urgent, then another one. While space is low, those that
    /// drop tombstones are the most urgent.
    fn pick_fitting(&self, state: &State, position: usize, options: &LeveledOptions, needs: Needs) -> Picked {
        let mut passed = BTreeSet::new();
        for _ in 0..FIT_TRIES {
            let mut input = self.pick_input(state, position, options);
            let busy: BTreeSet<FileNumber>;
            if !passed.is_empty() {
                busy = state.busy.union(&passed).copied().collect();
                input.busy = &busy;
            }
            let freeing = if self.room.is_low() { LeveledPicker.pick_tombstones(&input) } else { None };
            let Some(picked) = freeing.or_else(|| LeveledPicker.pick(&input)) else { break };
            if let Some(fitting) = self.fit(&input, state, &picked, needs) {
                return Picked::This(Box::new(fitting));
            }
            let upper = picked.inputs.first();
            passed.extend(upper.into_iter().flat_map(|(_, tables)| tables).map(|table| table.number));
        }
        if passed.is_empty() { Picked::Nothing } else { Picked::NoRoom }
    }

    /// Picks a compaction of level 0 although enough others are running: those wait meanwhile. Only when level 0 presses
    /// and none of its compactions is running.
    pub(crate) fn plan_pressing_level0(&self, state: &mut State) -> Option<CompactJob> {
        let position = 0;
        let tables = &state.keyspaces[position].tables;
        let pressing = tables.level0.len() >= self.shape.l0_trigger.max(1) * LEVEL0_PRESSES;
        if !pressing || tables.level0.iter().any(|table| state.busy.contains(&table.meta.number)) {
            return None;
        }
        let options = &self.leveled_options();
        let picked = LeveledPicker.pick_level0(&self.pick_input(state, position, options))?;
        let input = self.pick_input(state, position, options);
        let compaction = self.fit(&input, state, &picked, Compaction::output_bytes_max)?;
        Some(self.begin(state, position, compaction, false))
    }

    /// Marks the inputs as busy and the output range as running.
    fn begin(&self, state: &mut State, position: usize, compaction: Compaction, manual: bool) -> CompactJob {
        state.compactions_running += 1;
        if compaction.reason == Reason::Scans && !compaction.trivial_move {
            self.compacts_for_scans();
        }
        state.busy.extend(compaction.input_numbers());
        let keyspace = &mut state.keyspaces[position];
        let range = compaction.output_range();
        keyspace.running.push(range.clone());
        let inputs = compaction.inputs.iter().map(|(level, tables)| {
            let numbers: Vec<FileNumber> = tables.iter().map(|table| table.number).collect();
            (*level, keyspace.tables.handles_of(*level, &numbers))
        });
        let entries =
            compaction.input_tables().fold(0_u64, |sum, (_, table)| sum.saturating_add(table.entries));
        let share = (compaction.start_level == 0).then(|| {
            let tables = compaction.input_tables().filter(|(level, _)| *level == 0).count();
            // Merged with each other, they leave one.
            let stay = usize::from(compaction.output_level == 0);
            self.flow.level0_share(tables - stay, entries)
        });
        CompactJob {
            position,
            keyspace: keyspace.id,
            inputs: inputs.collect(),
            range,
            manual,
            job: None,
            made: MadeTables::default(),
            installing: false,
            cost: Cost { bytes: compaction.input_bytes(), entries, charged: 0 },
            claim: self.room.claim(compaction.output_bytes_max()),
            compaction,
            share,
            memory: self.tables.memory.job(),
            started: self.components.clock.now(),
        }
    }

    /// Whether a compaction runs, or there is one that there is room for.
    pub(crate) fn compactions_can_go_on(&self) -> bool {
        let options = &self.leveled_options();
        let state = self.state.lock();
        state.compactions_running > 0
            || (state.compaction_retry.is_due(|| self.components.clock.now())
                && matches!(
                    self.pick_fitting(&state, 0, options, Compaction::output_bytes_expected),
                    Picked::This(_)
                ))
    }

    /// Whether nothing runs that could free space, and the compactions that wait have no room.
    pub(crate) fn is_blocked_by_space(&self, state: &State) -> bool {
        state.compactions_running == 0
            && !state.flush_running
            && state.immutables.is_empty()
            && matches!(
                self.pick_fitting(state, 0, &self.leveled_options(), Compaction::output_bytes_expected),
                Picked::NoRoom
            )
    }

    /// Whether no compaction runs or can be picked because damaged tables are in the way.
    pub(crate) fn is_blocked_by_damage(&self, state: &State) -> bool {
        !state.quarantined.is_empty()
            && state.compactions_running == 0
            && self.pick(state, 0, &self.leveled_options()).is_none()
    }

    fn pick(&self, state: &State, position: usize, options: &LeveledOptions) -> Option<Compaction> {
        LeveledPicker.pick(&self.pick_input(state, position, options))
    }

    pub(crate) fn pick_input<'a>(
        &self,
        state: &'a State,
        position: usize,
        options: &'a LeveledOptions,
    ) -> PickInput<'a> {
        let keyspace = &state.keyspaces[position];
        PickInput {
            version: &keyspace.tables.version,
            busy: &state.busy,
            running: &keyspace.running,
            oldest_snapshot: self.snapshots.oldest(&self.visible),
            scanned_tombstones: self.scanned_tombstones(),
            options,
        }
    }

    /// The next step of the oldest manual compaction; marks those as done that have none left.
    fn pick_manual(
        &self,
        state: &mut State,
        position: usize,
        options: &LeveledOptions,
    ) -> Option<Compaction> {
        loop {
            let mut manual = match state.manual_current.take() {
                Some(manual) => manual,
                None => {
                    let request = state.manual.pop_front()?;
                    let version = &state.keyspaces[position].tables.version;
                    let progress = ManualCompaction::new(request.begin.clone(), request.end.clone(), version);
                    Manual { request, progress, running: false }
                }
            };
            if manual.running {
                state.manual_current = Some(manual);
                return None;
            }
            match manual.progress.pick(&self.pick_input(state, position, options)) {
                ManualPick::Compact(compaction) => {
                    manual.running = true;
                    state.manual_current = Some(manual);
                    return Some(*compaction);
                }
                ManualPick::Wait if state.compactions_running > 0 => {
                    state.manual_current = Some(manual);
                    return None;
                }
                // What is in the way is no job that will end: it is a damaged table.
                ManualPick::Wait => {
                    manual.request.failed.store(true, Relaxed);
                    state.manual_done = manual.request.ticket;
                }
                ManualPick::Done => state.manual_done = manual.request.ticket,
            }
        }
    }
}

impl CompactJob {
    #[cfg(test)]
    pub(crate) fn start_level(&self) -> usize {
        self.compaction.start_level
    }

    pub(crate) fn is_of_level0(&self) -> bool {
        self.compaction.start_level == 0
    }

    pub(crate) fn step(&mut self, core: &Core) -> Result<JobStep> {
        if self.compaction.trivial_move {
            self.install(core)?;
            return Ok(JobStep::Done);
        }
        let inputs = core.input_bytes(self.sources());
        let job = match &mut self.job {
            Some(job) => job,
            None => {
                points::here(points::Point::CompactionPlanned);
                let stripes = core.snapshots.stripes(&core.visible);
                points::here(points::Point::CompactionCaptured);
                let input = self.input(core.readahead(self.sources()))?;
                let job = CompactionJob::compaction(input, &self.compaction, stripes, &core.shape);
                self.job.insert(job)
            }
        };
        let step =
            core.with_sink(&mut self.made, Floor::Compaction, |sink| job.step(sink, ENTRIES_A_STEP))?;
        let stats = job.stats();
        self.claim.written(stats.bytes_out);
        self.memory.show(inputs + job.memory());
        if let Some(share) = &mut self.share {
            share.show(stats.entries_in);
        }
        let moved = self.cost.moved(&stats);
        core.charge_compaction(moved);
        if step == Step::More {
            return Ok(JobStep::More);
        }
        // The inputs are read to their ends: let their readers go.
        self.job = None;
        self.install(core)?;
        Ok(JobStep::Done)
    }

    /// How many inputs are read at once: each table of level 0, and one of each deeper level.
    fn sources(&self) -> usize {
        self.inputs.iter().map(|(level, tables)| if *level == 0 { tables.len() } else { 1 }).sum()
    }

    /// All inputs, merged, the newest first. Blocks that are read go past the cache.
    fn input(&self, readahead: usize) -> Result<MergingIterator<Child>> {
        let mut children = Vec::new();
        for (level, tables) in &self.inputs {
            if *level == 0 {
                for table in tables {
                    children.push(Child::Table(table.reader()?.iter_once(readahead)));
                }
            } else {
                let source = LevelSource { tables: tables.clone().into(), readahead: Some(readahead) };
                children.push(Child::Level(ConcatIterator::new(source)));
            }
        }
        let handles: usize = self.inputs.iter().map(|(_, tables)| tables.len()).sum();
        if handles != self.compaction.input_tables().count() {
            return Err(Error::fatal("an input of a compaction is not in the present version"));
        }
        Ok(MergingIterator::new(children))
    }

    fn install(&mut self, core: &Core) -> Result<()> {
        points::here(points::Point::TablesMade);
        if !self.made.finished.is_empty() {
            sync_dir(core.components.vfs.as_ref(), &core.dir)?;
        }
        points::here(points::Point::TablesNamed);
        let mut edit = VersionEdit::new();
        self.compaction.record(self.keyspace, &mut edit);
        for table in &self.made.finished {
            edit.add_table(self.keyspace, self.compaction.output_level, Arc::clone(table));
        }
        if planted::is(planted::Fault::InputsRemovedEarly) && !self.compaction.trivial_move {
            for number in self.compaction.input_numbers() {
                let _ = core.components.vfs.remove(&core.file_path(FileKind::Table, number));
            }
        }
        core.install(edit, &mut self.installing, |state| {
            if self.manual
                && let Some(manual) = &mut state.manual_current
            {
                manual.progress.completed(&self.compaction);
            }
        })?;
        points::here(points::Point::Installed);
        self.report(core);
        Ok(())
    }

    fn report(&self, core: &Core) {
        let moved = self.compaction.trivial_move;
        let (bytes_in, bytes_out) = (self.compaction.input_bytes(), self.made.bytes());
        if moved {
            core.metrics.moves.fetch_add(1, Relaxed);
        } else {
            core.metrics.compactions.fetch_add(1, Relaxed);
            core.metrics.compacted_in.fetch_add(bytes_in, Relaxed);
            core.metrics.compacted_out.fetch_add(bytes_out, Relaxed);
        }
        let now = core.components.clock.now();
        if self.compaction.start_level == 0 && self.compaction.output_level > 0 {
            let bytes = self.compaction.level0_bytes();
            // Level 0 shares the threads with the levels below, so their work is part of how long this one takes.
            let more_waits = core.super_version.load().pending_bytes > 0;
            core.flow.throttle.lock().drained_level0(bytes, self.started, now, more_waits);
        }
        core.emit(&Event::Compacted {
            from_level: self.compaction.start_level,
            to_level: self.compaction.output_level,
            bytes_in,
            bytes_out,
            moved,
            took: now.saturating_sub(self.started),
        });
    }

    /// Takes the job's marks out of the state.
    pub(crate) fn release(&self, state: &mut State) {
        state.compactions_running -= 1;
        for number in self.compaction.input_numbers() {
            state.busy.remove(&number);
        }
        let running = &mut state.keyspaces[self.position].running;
        if let Some(at) = running.iter().position(|range| *range == self.range) {
            running.swap_remove(at);
        }
        if self.manual
            && let Some(manual) = &mut state.manual_current
        {
            manual.running = false;
        }
    }

    pub(crate) fn input_numbers(&self) -> impl Iterator<Item = FileNumber> {
        self.compaction.input_numbers()
    }

    /// Tables that the manifest may or may not name, after a failed install.
    pub(crate) fn doubtful(&self) -> Vec<FileNumber> {
        if self.installing { self.made.numbers.clone() } else { Vec::new() }
    }

    /// What is to be removed when the job fails.
    pub(crate) fn made(&self) -> Vec<&MadeTables> {
        if self.installing { Vec::new() } else { vec![&self.made] }
    }
}

impl std::fmt::Debug for CompactJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompactJob({})", self.compaction)
    }
}
