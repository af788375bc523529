//! Writers that commit through the queue, and what each of them must be told.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as StdArc;
use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::commit::{CommitGroup, CommitQueue, Request};
use crate::sync::{Condvar, Mutex};
use crate::{Durability, Error, Result};

/// What happens in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Threads that write.
    pub writers: u8,
    /// Writes of each.
    pub rounds: u8,
    /// A group with this write, counted over all, fails.
    pub failing: Option<u8>,
    /// A group with this write panics.
    pub panicking: Option<u8>,
    /// Commits wait until a thread of its own lets them go on, as writers do behind a full memtable.
    pub stalled: bool,
    /// A thread of its own closes the database at some moment.
    pub closed: bool,
}

/// What writers are told of a group that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The result of their group: as the engine does it.
    Truth,
    /// That all is well: what a wrong queue would do.
    Ok,
}

/// Stands for the log and the memtable.
struct Target {
    plan: Plan,
    /// The writes that are there, in order.
    committed: Mutex<Vec<u8>>,
    inside: AtomicU64,
    time: AtomicU64,
    stalled: Mutex<bool>,
    goes_on: Condvar,
    closed: Mutex<bool>,
}

impl CommitGroup for Target {
    fn commit(&self, group: &[&Request]) -> Result<()> {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two leaders at once");
        let result = self.commit_alone(group);
        let has = |tag: Option<u8>| tag.is_some_and(|tag| group.iter().any(|one| one.payload[0] == tag));
        self.inside.fetch_sub(1, Ordering::SeqCst);
        assert!(!has(self.plan.panicking), "on purpose");
        result
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.time.fetch_add(30, Ordering::SeqCst))
    }
}

impl Target {
    fn commit_alone(&self, group: &[&Request]) -> Result<()> {
        let mut stalled = self.stalled.lock();
        while *stalled {
            stalled = self.goes_on.wait(stalled);
        }
        drop(stalled);
        if *self.closed.lock() {
            return Err(Error::closed());
        }
        thread::yield_now();
        let tags: Vec<u8> = group.iter().map(|request| request.payload[0]).collect();
        let has = |tag: Option<u8>| tag.is_some_and(|tag| tags.contains(&tag));
        if has(self.plan.failing) {
            return Err(Error::fatal("on purpose"));
        }
        if !has(self.plan.panicking) {
            self.committed.lock().extend(tags);
        }
        Ok(())
    }
}

fn request(tag: u8) -> Request {
    Request { payload: StdArc::from([tag]), count: 1, durability: Durability::Sync, wal: true }
}

/// All writers at once. To be called inside a run of shuttle, which finds who waits for ever.
///
/// # Panics
///
/// When a writer was told otherwise than what became of its write, when its writes changed places, when there were two
/// leaders, and when the queue is not free at the end.
pub fn group_commit(plan: Plan, told: Told) {
    let queue = Arc::new(CommitQueue::default());
    let target = Arc::new(Target {
        plan,
        committed: Mutex::default(),
        inside: AtomicU64::new(0),
        time: AtomicU64::new(0),
        stalled: Mutex::new(plan.stalled),
        goes_on: Condvar::new(),
        closed: Mutex::new(false),
    });
    let writers: Vec<_> = (0..plan.writers)
        .map(|writer| {
            let (queue, target) = (Arc::clone(&queue), Arc::clone(&target));
            thread::spawn(move || write(writer, plan, told, &queue, &target))
        })
        .collect();
    if plan.closed {
        *target.closed.lock() = true;
    }
    if plan.stalled {
        *target.stalled.lock() = false;
        target.goes_on.notify_all();
    }
    let acknowledged: Vec<Vec<u8>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let committed = std::mem::take(&mut *target.committed.lock());
    for tags in &acknowledged {
        let of_this: Vec<u8> = committed
            .iter()
            .copied()
            .filter(|tag| tags.first().is_some_and(|own| own / 16 == tag / 16))
            .collect();
        assert_eq!(*tags, of_this, "DW24: what a writer was told is not what is there");
    }
    assert_eq!(committed.len(), acknowledged.iter().map(Vec::len).sum::<usize>(), "DW24: told of too little");
    *target.closed.lock() = false;
    queue.submit(request(0xff), &*target).expect("nobody leads any more");
    assert_eq!(*target.committed.lock(), [0xff]);
}

/// Writes in turn, and returns what was acknowledged. The number of a write is 16 times the writer's and the round's.
fn write(writer: u8, plan: Plan, told: Told, queue: &CommitQueue, target: &Target) -> Vec<u8> {
    let mut acknowledged = Vec::new();
    for round in 0..plan.rounds {
        let tag = writer * 16 + round;
        let result = catch_unwind(AssertUnwindSafe(|| queue.submit(request(tag), target)));
        let ok = match result {
            Ok(result) => result.is_ok() || told == Told::Ok,
            // The leader's own panic.
            Err(_) => false,
        };
        if ok {
            acknowledged.push(tag);
        }
    }
    acknowledged
}
