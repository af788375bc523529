//! Which job goes on when several could, step by step.

use super::*;
use crate::scheduler::{BackgroundWork, Scheduler};
use crate::{Components, Db, Options};
use esker_base::SplitMix64;
use esker_compaction::{LevelTargets, LeveledPicker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Works only for those who wait. Counts how often it was told of work.
#[derive(Debug, Default)]
struct Lazy(AtomicU64);

impl Scheduler for Lazy {
    fn work_available(&self, _work: &Arc<dyn BackgroundWork>) {
        self.0.fetch_add(1, Relaxed);
    }
    fn progressed(&self) {}
    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, _seen: u64) {
        work.step();
    }
    fn delay(&self, _duration: Duration) {}
    fn stop(&self) {}
}

fn open() -> Db {
    open_on(Arc::new(Lazy::default()))
}

fn open_on(scheduler: Arc<Lazy>) -> Db {
    let options = Options::new().memtable_size(256 << 10).base_level_size(256 << 10).table_size(256 << 10);
    let (options, mut components) =
        Components::in_memory(1, options.level_ratio(4).wal_segment_size(1 << 30));
    components.scheduler = scheduler;
    Db::open_with("/db", options.background(Background::Threads(1)), components).unwrap()
}

/// Writes and flushes a memtable of keys from everywhere.
fn fill(db: &Db, rng: &mut SplitMix64) {
    for _ in 0..700 {
        let key = rng.next_u64() % 100_000;
        db.put(key.to_be_bytes(), key.to_be_bytes().repeat(12)).unwrap();
    }
    db.flush().unwrap();
}

fn level0_tables(core: &Core) -> usize {
    core.state.lock().keyspaces[0].tables.level0.len()
}

/// Whether a compaction of levels below the base is between two steps.
fn deep_is_paused(core: &Core) -> bool {
    let state = core.state.lock();
    let version = &state.keyspaces[0].tables.version;
    let base = LevelTargets::new(version, &core.shape).base_level();
    state.paused.iter().any(|job| matches!(job, Job::Compact(job) if job.start_level() > base))
}

/// Purpose: with one thread, a flush goes before a compaction of level 0, and that before a deeper one that has begun.
/// Mutation: paused jobs go on in the order in which they came.
#[test]
fn what_is_more_urgent_goes_first_between_two_steps() {
    let db = open();
    let core: &Core = &db.handle;
    let mut rng = SplitMix64::new(3);
    let mut pressed = 0;
    for _ in 0..400 {
        fill(&db, &mut rng);
        while level0_tables(core) >= 4 && !deep_is_paused(core) && core.step() {}
        if !deep_is_paused(core) {
            continue;
        }
        // The flush, although a compaction is under way.
        while level0_tables(core) < 8 {
            let (before, deep) = (level0_tables(core), deep_is_paused(core));
            fill(&db, &mut rng);
            assert!(!deep || (deep_is_paused(core) && level0_tables(core) == before + 1));
        }
        let state = core.state.lock();
        let could = LeveledPicker.pick_level0(&core.pick_input(&state, 0, &core.shape)).is_some();
        drop(state);
        if !could {
            continue;
        }
        pressed += 1;
        core.step();
        let state = core.state.lock();
        let level0 = state.paused.iter().any(|job| matches!(job, Job::Compact(job) if job.is_of_level0()));
        let fewer = state.keyspaces[0].tables.level0.len() < 8;
        drop(state);
        assert!((level0 || fewer) && deep_is_paused(core), "a deep compaction went before level 0");
        // It goes on by itself.
        while level0_tables(core) >= 8 && core.step() {}
        assert!(deep_is_paused(core), "the deep one went on before level 0 was done");
        while core.step() {}
    }
    assert!(pressed > 1, "it came to that {pressed} times");
    db.close().unwrap();
}

/// The background is told when the oldest snapshot goes, once until it looks; other snapshots go unnoticed.
///
/// Mutations: every drop tells; the mark is never taken back.
#[test]
fn dropped_snapshots_ask_for_work_once() {
    let scheduler = Arc::new(Lazy::default());
    let db = open_on(Arc::clone(&scheduler));
    let take = |count: u64| -> Vec<_> {
        let snapshot = |number: u64| {
            db.put(number.to_be_bytes(), b"v").unwrap();
            db.snapshot()
        };
        (0..count).map(snapshot).collect()
    };
    while db.handle.step() {}
    let calls = |work: &mut dyn FnMut()| {
        let before = scheduler.0.load(Relaxed);
        work();
        scheduler.0.load(Relaxed) - before
    };
    let mut held = take(100);
    assert_eq!(calls(&mut || held.truncate(1)), 0, "younger ones");
    assert_eq!(calls(&mut || held.clear()), 1, "the only one");
    let mut held = take(100);
    assert_eq!(calls(&mut || drop(held.drain(..50))), 0, "the request is pending");
    while db.handle.step() {}
    assert_eq!(calls(&mut || drop(held.drain(..))), 1, "the oldest first");
    while db.handle.step() {}
    let mut twice = vec![db.snapshot(), db.snapshot()];
    assert_eq!(calls(&mut || twice.clear()), 1, "two at one number");
    db.close().unwrap();
}
