//! Group commit: writers that wait for the device share its syncs.
//!
//! Each writer appends its own batch to the log, applies and publishes it (see `write`); those that asked for more then
//! come here with their sequence number, and wait until the log is durable up to it.
//!
//! ```text
//! writer --> durable already?  done
//!        --> nobody leads?     yes: lead a round
//!                              no:  sleep until its round has ended, or until told to lead it
//! leader --> wait a moment for those of the last round to come back
//!        --> close the round: whoever comes from now on belongs to the next one
//!        --> sync the log, without any lock of this queue
//!        --> wake one of the next round to lead it, then all of its own
//! ```
//!
//! The log takes writes while a round syncs, so the next round has its batches in the file when the device is free.
//!
//! Without the moment at the start, writers would split into two rounds that take turns, and a sync would serve half of
//! them. The number to wait for is the size of the last round and of the one that was gathering at its end: so one writer
//! waits for nobody, and a writer that has left is waited for once. (The idea is that of PostgreSQL's `commit_siblings`,
//! without the option.)
//!
//! A failed sync fails every member of its round (F2). Nothing here knows what a sync does; see `sync_log` for that.
//!
//! Who does not want to wait leaves a [`Callback`] or a wish, which a thread of the background serves
//! ([`CommitQueue::serve`]).

use crate::{Durability, Error, Result};
use esker_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_base::sync::{Condvar, Mutex, thread};
use esker_base::{SequenceNumber, planted};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The sequence number up to which readers see writes: whole batches only.
#[derive(Debug)]
pub(crate) struct Visible(AtomicU64);

impl Visible {
    pub(crate) fn new(seq: SequenceNumber) -> Self {
        Visible(AtomicU64::new(seq))
    }

    #[inline]
    pub(crate) fn load(&self) -> SequenceNumber {
        self.0.load(Ordering::Acquire)
    }

    /// Called with the log locked, after the memtable holds everything up to `seq`.
    #[inline]
    pub(crate) fn publish(&self, seq: SequenceNumber) {
        self.0.store(seq, Ordering::Release);
    }
}

/// One writer's batch.
#[derive(Debug)]
pub(crate) struct Request {
    /// The encoded operations. Memtable entries will point into this buffer.
    pub(crate) payload: std::sync::Arc<[u8]>,
    /// Number of operations.
    pub(crate) count: u32,
    pub(crate) durability: Durability,
    /// Whether the batch goes to the log.
    pub(crate) wal: bool,
}

/// What is synced.
pub(crate) trait SyncLog {
    /// Makes the log durable, and returns the sequence number up to which it is. Called by one thread at a time.
    fn sync_log(&self) -> Result<SequenceNumber>;

    /// The time, for measuring a sync.
    fn now(&self) -> Duration;
}

/// What is called with the outcome of a commit.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// Those who wait for the log to be durable.
pub(crate) struct CommitQueue {
    /// The log is durable up to this number.
    durable: AtomicU64,
    queue: Mutex<Queue>,
    /// Where members of even and of odd rounds sleep.
    rounds: [Condvar; 2],
    /// Set while some thread serves callbacks; others leave them to that one.
    serving: AtomicBool,
}

#[derive(Default)]
struct Queue {
    /// Whether some member leads, or was told to.
    led: bool,
    /// A member of the present round shall lead, and none has taken that up yet.
    offered: bool,
    /// The round that gathers.
    round: u64,
    /// Its members.
    members: usize,
    /// Rounds below have ended.
    ended: u64,
    /// How the last failed round ended.
    failure: Option<Error>,
    /// How many members the next leader should find, itself included.
    expected: usize,
    /// How long syncs take, smoothed.
    sync_time: Duration,
    /// Somebody wants the log durable up to this number, and does not wait.
    wanted: SequenceNumber,
    /// What is called when the log is durable up to a number.
    callbacks: VecDeque<(SequenceNumber, Callback)>,
    /// The threads that are in callbacks.
    calling: Vec<thread::ThreadId>,
    /// Callbacks are served on the caller's thread from now on.
    closed: bool,
}

impl CommitQueue {
    pub(crate) fn new(durable: SequenceNumber) -> Self {
        CommitQueue {
            durable: AtomicU64::new(durable),
            queue: Mutex::default(),
            rounds: [Condvar::new(), Condvar::new()],
            serving: AtomicBool::new(false),
        }
    }

    /// The number up to which the log is known to be durable.
    pub(crate) fn durable(&self) -> SequenceNumber {
        self.durable.load(Ordering::Acquire)
    }

    /// Somebody else has made the log durable up to `seq`.
    pub(crate) fn raise(&self, seq: SequenceNumber) {
        self.durable.fetch_max(seq, Ordering::AcqRel);
    }

    /// Waits until everything up to `seq`, which is in the log, is durable.
    pub(crate) fn wait(&self, seq: SequenceNumber, log: &impl SyncLog) -> Result<()> {
        if self.durable() >= seq {
            return Ok(());
        }
        let mut queue = self.queue.lock();
        queue.members += 1;
        if !queue.led {
            queue.led = true;
            drop(queue);
            return self.lead(seq, log);
        }
        if planted::is(planted::Fault::AcknowledgedBeforeSynced) {
            return Ok(());
        }
        let round = queue.round;
        loop {
            if queue.ended > round {
                return self.outcome(seq, &queue);
            }
            if queue.offered && queue.round == round {
                queue.offered = false;
                drop(queue);
                return self.lead(seq, log);
            }
            queue = self.rounds[parity(round)].wait(queue);
        }
    }

    /// What a member of an ended round is told.
    fn outcome(&self, seq: SequenceNumber, queue: &Queue) -> Result<()> {
        match &queue.failure {
            _ if self.durable() >= seq => Ok(()),
            Some(_) if planted::is(planted::Fault::FollowerGetsOk) => Ok(()),
            Some(error) => Err(error.clone()),
            None => Err(Error::fatal("a sync that did not reach what it was for")),
        }
    }

    /// Syncs for the present round.
    fn lead(&self, seq: SequenceNumber, log: &impl SyncLog) -> Result<()> {
        self.gather(log);
        let mut lead = {
            let mut queue = self.queue.lock();
            let round = queue.round;
            queue.round += 1;
            let size = std::mem::take(&mut queue.members);
            Leadership { queue: self, round, size, took: Duration::ZERO, failure: None }
        };
        let started = log.now();
        let result = log.sync_log();
        lead.took = log.now().saturating_sub(started);
        let result = match result {
            Ok(durable) => {
                self.raise(durable);
                if durable >= seq {
                    Ok(())
                } else {
                    Err(Error::fatal("a sync that did not reach what it was for"))
                }
            }
            // A close that came first has synced for us.
            Err(_) if self.durable() >= seq => Ok(()),
            Err(error) => Err(error),
        };
        lead.failure = Some(result.clone().err());
        result
    }

    /// Gives the members of the last round a moment to come back: a sixth of a sync after each that has come, at most
    /// 200 us, and no longer than a sync in all.
    fn gather(&self, log: &impl SyncLog) {
        const GATHER_MAX: Duration = Duration::from_micros(200);
        /// Ends the wait when the clock stands still.
        const YIELDS_MAX: u32 = 2_000;
        let started = log.now();
        let (mut members, mut last_came) = (0, started);
        for _ in 0..YIELDS_MAX {
            {
                let queue = self.queue.lock();
                let now = log.now();
                if queue.members > members {
                    (members, last_came) = (queue.members, now);
                }
                let moment = (queue.sync_time / 6).min(GATHER_MAX);
                if members >= queue.expected
                    || now.saturating_sub(last_came) >= moment
                    || now.saturating_sub(started) >= queue.sync_time
                {
                    return;
                }
            }
            thread::yield_now();
        }
    }

    /// Wants the log durable up to `seq`, without waiting for it.
    pub(crate) fn want(&self, seq: SequenceNumber) {
        let mut queue = self.queue.lock();
        queue.wanted = queue.wanted.max(seq);
    }

    /// Whether some thread serves. It looks for what is wanted once more before it ends.
    pub(crate) fn is_served(&self) -> bool {
        self.serving.load(Ordering::SeqCst)
    }

    /// Has `callback` called by whoever serves, once the log is durable up to `seq` or a sync of it has failed. Gives it
    /// back when nobody serves any more.
    pub(crate) fn call(&self, seq: SequenceNumber, callback: Callback) -> Option<Callback> {
        let mut queue = self.queue.lock();
        if queue.closed {
            return Some(callback);
        }
        queue.wanted = queue.wanted.max(seq);
        queue.callbacks.push_back((seq, callback));
        None
    }

    /// The log goes on after an error, with all that was in it durable.
    pub(crate) fn resumed(&self, durable: SequenceNumber) {
        if planted::is(planted::Fault::CallbackLost) {
            self.queue.lock().callbacks.clear();
        }
        self.raise(durable);
    }

    /// Whether something is wanted, or waits to be called.
    pub(crate) fn has_wishes(&self) -> bool {
        let queue = self.queue.lock();
        queue.wanted > self.durable() || !queue.callbacks.is_empty()
    }

    /// Syncs the log as far as somebody wants it, and calls what waits for that, without any lock. Returns at once when
    /// another thread is doing it: that one sees to all.
    pub(crate) fn serve(&self, log: &impl SyncLog) {
        while self.has_wishes() && !self.serving.swap(true, Ordering::SeqCst) {
            let wanted = self.queue.lock().wanted;
            let result = if wanted > self.durable() && !planted::is(planted::Fault::TicketToldEarly) {
                catch_unwind(AssertUnwindSafe(|| self.wait(wanted, log)))
                    .unwrap_or_else(|_| Err(Error::fatal("a sync of the log panicked")))
            } else {
                Ok(())
            };
            self.call_up_to(wanted, &result);
            self.serving.store(false, Ordering::SeqCst);
        }
    }

    /// Calls everything that waits for numbers up to `reached`, in the order in which it came.
    fn call_up_to(&self, reached: SequenceNumber, result: &Result<()>) {
        let due: Vec<_> = {
            let mut queue = self.queue.lock();
            if queue.wanted <= reached {
                queue.wanted = 0;
            }
            let (due, later) = queue.callbacks.drain(..).partition(|(seq, _)| *seq <= reached);
            queue.callbacks = later;
            queue.calling.push(thread::current().id());
            Vec::from(due)
        };
        for (seq, callback) in due {
            let result = if self.durable() >= seq { Ok(()) } else { result.clone() };
            call(callback, result);
        }
        let this = thread::current().id();
        let mut queue = self.queue.lock();
        if let Some(place) = queue.calling.iter().rposition(|thread| *thread == this) {
            queue.calling.swap_remove(place);
        }
    }

    /// Whether this thread is in a callback.
    pub(crate) fn is_calling(&self) -> bool {
        let this = thread::current().id();
        self.queue.lock().calling.contains(&this)
    }

    /// Nobody serves any more: what is left is called here, with `result` where the log is not durable.
    pub(crate) fn close(&self, result: &Result<()>) {
        self.queue.lock().closed = true;
        self.call_up_to(SequenceNumber::MAX, result);
    }
}

/// Calls a callback. It is not ours: what it does to itself must not harm others, and what it panics with may panic too.
pub(crate) fn call(callback: Callback, result: Result<()>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| callback(result))) {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(panic))).map_err(std::mem::forget);
    }
}

fn parity(round: u64) -> usize {
    usize::from(round % 2 == 1)
}

/// The duty of a leader, done also when the sync panics: nobody may wait for ever.
struct Leadership<'a> {
    queue: &'a CommitQueue,
    round: u64,
    /// The size of the round, and how long its sync took.
    size: usize,
    took: Duration,
    /// How the sync failed, or that it did not.
    failure: Option<Option<Error>>,
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        let offered = {
            let mut queue = self.queue.queue.lock();
            let panicked = || Some(Error::fatal("the leader of the write group panicked"));
            if let Some(failure) = self.failure.take().unwrap_or_else(panicked) {
                queue.failure = Some(failure);
            }
            queue.ended = self.round + 1;
            queue.expected = self.size + queue.members;
            queue.sync_time = (queue.sync_time * 7 + self.took) / 8;
            queue.offered = queue.members > 0;
            queue.led = queue.offered;
            queue.offered
        };
        if offered {
            self.queue.rounds[parity(self.round + 1)].notify_one();
        }
        self.queue.rounds[parity(self.round)].notify_all();
    }
}

impl std::fmt::Debug for CommitQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CommitQueue").field("durable", &self.durable()).finish_non_exhaustive()
    }
}
