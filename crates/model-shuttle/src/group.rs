//! Writers that share syncs, and what each of them must be told.
//!
//! A writer appends its number to the log, as `Core::commit` does, and then waits for it or leaves a callback. The log
//! behind it is a miniature that knows how far it is durable, and stalls, fails and panics.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::commit::{CommitQueue, SyncLog};
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result, SequenceNumber};

/// What happens in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// Threads that write and wait.
    pub writers: u64,
    /// Threads that write and leave callbacks, which one more thread serves.
    pub submitters: u64,
    /// Writes of each.
    pub rounds: u64,
    /// The sync with this number, counted from 1, fails, and the log takes no more after it.
    pub failing: Option<u64>,
    /// The sync with this number panics.
    pub panicking: Option<u64>,
    /// Syncs wait until a thread of its own lets them go on.
    pub stalled: bool,
}

/// What goes wrong, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nothing: as the engine does it.
    Nothing,
    /// Writers take a failure for a success.
    ToldOk,
    /// A sync claims what was written while it ran.
    CoversLater,
}

/// Stands for the log.
struct Log {
    plan: Plan,
    wrong: Wrong,
    /// The last number that was written.
    written: AtomicU64,
    /// The last number that a sync has reached.
    on_device: AtomicU64,
    syncs: AtomicU64,
    inside: AtomicU64,
    failed: Mutex<bool>,
    time: AtomicU64,
    stalled: Mutex<bool>,
    goes_on: Condvar,
}

impl SyncLog for Log {
    fn sync_log(&self) -> Result<SequenceNumber> {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two leaders at once");
        let end = self.written.load(Ordering::SeqCst);
        let mut stalled = self.stalled.lock();
        while *stalled {
            stalled = self.goes_on.wait(stalled);
        }
        drop(stalled);
        thread::yield_now();
        let number = Some(self.syncs.fetch_add(1, Ordering::SeqCst) + 1);
        self.inside.fetch_sub(1, Ordering::SeqCst);
        assert!(number != self.plan.panicking, "on purpose");
        let mut failed = self.failed.lock();
        *failed |= number == self.plan.failing;
        if *failed {
            return Err(Error::fatal("on purpose"));
        }
        self.on_device.fetch_max(end, Ordering::SeqCst);
        let claimed =
            if self.wrong == Wrong::CoversLater { self.written.load(Ordering::SeqCst) } else { end };
        Ok(claimed)
    }

    fn now(&self) -> Duration {
        Duration::from_micros(self.time.fetch_add(30, Ordering::SeqCst))
    }
}

impl Log {
    /// A write is judged when its answer comes: a success is on the device by then, a failure has a cause.
    fn judge(&self, number: SequenceNumber, result: &Result<()>) {
        let durable = self.on_device.load(Ordering::SeqCst) >= number;
        let may_fail = self.plan.failing.is_some() || self.plan.panicking.is_some();
        if result.is_ok() || self.wrong == Wrong::ToldOk {
            assert!(durable, "DW24: {number} is acknowledged, and not on the device");
        } else {
            assert!(may_fail, "DW24: {number} failed without a cause");
        }
    }
}

/// How often each callback was called.
type Calls = Arc<Mutex<BTreeMap<SequenceNumber, u32>>>;

/// All writers at once. To be called inside a run of shuttle, which finds who waits for ever.
///
/// # Panics
///
/// When a writer was told otherwise than what became of its write, when there were two leaders, when a callback was not
/// called or twice, and when the queue is not free at the end.
pub fn group_commit(plan: Plan, wrong: Wrong) {
    let queue = Arc::new(CommitQueue::new(0));
    let log = Arc::new(Log {
        plan,
        wrong,
        written: AtomicU64::new(0),
        on_device: AtomicU64::new(0),
        syncs: AtomicU64::new(0),
        inside: AtomicU64::new(0),
        failed: Mutex::new(false),
        time: AtomicU64::new(0),
        stalled: Mutex::new(plan.stalled),
        goes_on: Condvar::new(),
    });
    let calls: Calls = Arc::new(Mutex::default());
    let mut threads = Vec::new();
    for thread in 0..plan.writers + plan.submitters {
        let (queue, log, calls) = (Arc::clone(&queue), Arc::clone(&log), Arc::clone(&calls));
        threads.push(thread::spawn(move || {
            for _ in 0..plan.rounds {
                let number = log.written.fetch_add(1, Ordering::SeqCst) + 1;
                if thread < plan.writers {
                    wait(number, &queue, &log)
                } else {
                    leave(number, &queue, &log, &calls)
                }
            }
        }));
    }
    if plan.stalled {
        *log.stalled.lock() = false;
        log.goes_on.notify_all();
    }
    for thread in threads {
        thread.join().expect("a writer");
    }
    queue.close(&Err(Error::closed()));
    let calls = calls.lock();
    assert_eq!(calls.len() as u64, plan.submitters * plan.rounds, "a callback was not called");
    assert!(calls.values().all(|count| *count == 1), "a callback was called twice");
    let last = log.written.fetch_add(1, Ordering::SeqCst) + 1;
    let result = catch_unwind(AssertUnwindSafe(|| queue.wait(last, &*log)));
    if let Ok(result) = result {
        log.judge(last, &result);
    }
}

fn wait(number: SequenceNumber, queue: &CommitQueue, log: &Log) {
    // A panic is the leader's own.
    if let Ok(result) = catch_unwind(AssertUnwindSafe(|| queue.wait(number, log))) {
        log.judge(number, &result);
    }
}

fn leave(number: SequenceNumber, queue: &CommitQueue, log: &Arc<Log>, calls: &Calls) {
    let (of_log, calls) = (Arc::clone(log), Arc::clone(calls));
    let left = queue.call(
        number,
        Box::new(move |result| {
            of_log.judge(number, &result);
            *calls.lock().entry(number).or_default() += 1;
            assert!(!number.is_multiple_of(3), "a callback that panics harms nobody");
        }),
    );
    assert!(left.is_none(), "the queue is not closed yet");
    if !queue.is_served() {
        queue.serve(&**log);
    }
}
