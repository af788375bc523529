//! Group commit: writers that come while a commit is under way are written together by the next one.
//!
//! ```text
//! writer --> nobody leads?  yes: lead with the own request
//!                           no:  queue up and sleep until told "lead" or "done"
//! leader --> wait a moment for those of the last group to come back
//!        --> commit the group: one log write, one sync, memtable, publish
//!        --> tell every follower the result
//!        --> hand over to the first that queued up meanwhile
//! ```
//!
//! The queue is for writers that sync, since a sync costs more than a hundred appends. Others don't come here: they
//! commit one by one under the log's lock, which a running thread takes again without a switch.
//!
//! Without the wait, writers would split into two groups that take turns, and a sync would serve half of them. The
//! number to wait for is the size of the last group and of the queue at its end: so one writer waits for nobody, and a
//! writer that has left is waited for once. (The idea is that of PostgreSQL's `commit_siblings`, without the option.)
//!
//! Every member of a group gets the group's result: if the log fails, all of them are told. Nothing here knows what a
//! commit does; see `write` for that.

use crate::{Durability, Error, Result};
use esker_base::sync::atomic::{AtomicU64, Ordering};
use esker_base::sync::{Arc, Condvar, Mutex, thread};
use esker_base::{SequenceNumber, planted};
use std::collections::VecDeque;
use std::time::Duration;

/// Payload bytes after which a group takes no more followers.
const GROUP_BYTES_MAX: usize = 1 << 20;

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

    /// Called by the leader only, after the memtable holds everything up to `seq`.
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

/// Writes a group.
pub(crate) trait CommitGroup {
    /// Commits all requests, in order, or fails for all of them.
    fn commit(&self, group: &[&Request]) -> Result<()>;

    /// The time, for measuring a commit.
    fn now(&self) -> Duration;
}

/// The queue of writers.
#[derive(Debug, Default)]
pub(crate) struct CommitQueue {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Whether some writer leads or was told to.
    led: bool,
    /// How many writers the next leader should find, itself included.
    expected: usize,
    /// How long commits take, smoothed.
    commit_time: Duration,
    waiting: VecDeque<Arc<Ticket>>,
}

/// A writer that sleeps.
struct Ticket {
    request: Request,
    state: Mutex<TicketState>,
    wake: Condvar,
}

enum TicketState {
    Waiting,
    Lead,
    Done(Result<()>),
}

impl Ticket {
    fn set(&self, state: TicketState) {
        *self.state.lock() = state;
        self.wake.notify_one();
    }

    /// Sleeps until the state is no longer `Waiting`. `None` means: lead.
    fn wait(&self) -> Option<Result<()>> {
        let mut state = self.state.lock();
        loop {
            match &*state {
                TicketState::Waiting => state = self.wake.wait(state),
                TicketState::Lead => return None,
                TicketState::Done(result) => return Some(result.clone()),
            }
        }
    }
}

impl CommitQueue {
    /// Commits `request`, alone or in a group, and returns its result.
    pub(crate) fn submit(&self, request: Request, target: &impl CommitGroup) -> Result<()> {
        let mut queue = self.queue.lock();
        if !queue.led {
            queue.led = true;
            drop(queue);
            let mut lead = Leadership { queue: self, followers: Vec::new(), size: 1, took: Duration::ZERO };
            return lead.commit(&[&request], target);
        }
        let ticket =
            Arc::new(Ticket { request, state: Mutex::new(TicketState::Waiting), wake: Condvar::new() });
        queue.waiting.push_back(Arc::clone(&ticket));
        drop(queue);
        match ticket.wait() {
            Some(result) => result,
            None => self.lead(&ticket.request, target),
        }
    }

    fn lead(&self, own: &Request, target: &impl CommitGroup) -> Result<()> {
        self.gather(target);
        let followers = self.take_followers(own.payload.len());
        let size = 1 + followers.len();
        let mut lead = Leadership { queue: self, followers: Vec::new(), size, took: Duration::ZERO };
        let requests: Vec<&Request> =
            std::iter::once(own).chain(followers.iter().map(|ticket| &ticket.request)).collect();
        lead.followers.clone_from(&followers);
        let result = lead.commit(&requests, target);
        for follower in std::mem::take(&mut lead.followers) {
            let told = if planted::is(planted::Fault::FollowerGetsOk) { Ok(()) } else { result.clone() };
            follower.set(TicketState::Done(told));
        }
        result
    }

    /// Gives the writers of the last group a moment to come back: an eighth of a commit, at most 200 us.
    fn gather(&self, target: &impl CommitGroup) {
        const GATHER_MAX: Duration = Duration::from_micros(200);
        /// Ends the wait when the clock stands still.
        const YIELDS_MAX: u32 = 2_000;
        let started = target.now();
        for _ in 0..YIELDS_MAX {
            {
                let queue = self.queue.lock();
                let limit = (queue.commit_time / 8).min(GATHER_MAX);
                if queue.waiting.len() + 1 >= queue.expected || target.now().saturating_sub(started) >= limit
                {
                    return;
                }
            }
            thread::yield_now();
        }
    }

    fn take_followers(&self, own_bytes: usize) -> Vec<Arc<Ticket>> {
        let mut queue = self.queue.lock();
        let mut bytes = own_bytes;
        let mut followers = Vec::with_capacity(queue.waiting.len());
        while bytes < GROUP_BYTES_MAX
            && let Some(next) = queue.waiting.pop_front()
        {
            bytes += next.request.payload.len();
            followers.push(next);
        }
        followers
    }

    /// Ends the lead of a group of `size`, whose commit took so long.
    fn hand_over(&self, size: usize, took: Duration) {
        let mut queue = self.queue.lock();
        queue.expected = size + queue.waiting.len();
        queue.commit_time = (queue.commit_time * 7 + took) / 8;
        match queue.waiting.pop_front() {
            Some(next) => next.set(TicketState::Lead),
            None => queue.led = false,
        }
    }
}

/// The duty of a leader, done also when the commit panics: nobody may wait for ever.
struct Leadership<'a> {
    queue: &'a CommitQueue,
    /// Followers that were not told their result yet.
    followers: Vec<Arc<Ticket>>,
    /// The size of the group, and how long its commit took.
    size: usize,
    took: Duration,
}

impl Leadership<'_> {
    fn commit(&mut self, group: &[&Request], target: &impl CommitGroup) -> Result<()> {
        let started = target.now();
        let result = target.commit(group);
        self.took = target.now().saturating_sub(started);
        result
    }
}

impl Drop for Leadership<'_> {
    fn drop(&mut self) {
        for follower in self.followers.drain(..) {
            follower.set(TicketState::Done(Err(Error::fatal("the leader of the write group panicked"))));
        }
        self.queue.hand_over(self.size, self.took);
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("led", &self.led).field("waiting", &self.waiting.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    fn request(tag: u8) -> Request {
        Request {
            payload: std::sync::Arc::from([tag]),
            count: 1,
            durability: Durability::Buffered,
            wal: true,
        }
    }

    /// Collects what was committed; fails for groups that hold the tag 13, panics for 66.
    #[derive(Default)]
    struct Target {
        committed: Mutex<Vec<u8>>,
        groups: AtomicUsize,
        inside: AtomicUsize,
    }

    impl CommitGroup for Target {
        fn commit(&self, group: &[&Request]) -> Result<()> {
            assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two leaders at once");
            std::thread::yield_now();
            self.groups.fetch_add(1, Ordering::SeqCst);
            self.inside.fetch_sub(1, Ordering::SeqCst);
            let tags: Vec<u8> = group.iter().map(|request| request.payload[0]).collect();
            assert!(!tags.contains(&66), "on purpose");
            if tags.contains(&13) {
                return Err(Error::fatal("13"));
            }
            self.committed.lock().extend(tags);
            Ok(())
        }

        fn now(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// DW24: whoever gets Ok was committed, whoever gets an error was not; CC10: nobody hangs.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of what happens between threads")]
    fn dw24_every_member_gets_the_result_of_its_group() {
        let (queue, target) = (Arc::new(CommitQueue::default()), Arc::new(Target::default()));
        let writers: Vec<_> = (0..8_u8)
            .map(|writer| {
                let (queue, target) = (Arc::clone(&queue), Arc::clone(&target));
                std::thread::spawn(move || {
                    let mut acknowledged = Vec::new();
                    for round in 0..200_u32 {
                        let tag = 100 + writer * 16 + (round % 16) as u8;
                        let tag = if round % 50 == 49 { 13 } else { tag };
                        if queue.submit(request(tag), &*target).is_ok() {
                            acknowledged.push(tag);
                        }
                    }
                    acknowledged
                })
            })
            .collect();
        let mut acknowledged: Vec<u8> =
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        let mut committed = std::mem::take(&mut *target.committed.lock());
        acknowledged.sort_unstable();
        committed.sort_unstable();
        assert_eq!(acknowledged, committed);
        assert!(!committed.contains(&13));
        assert!(!queue.queue.lock().led);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of what happens between threads")]
    fn a_panicking_leader_leaves_nobody_waiting() {
        let (queue, target) = (Arc::new(CommitQueue::default()), Arc::new(Target::default()));
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let (queue, target) = (Arc::clone(&queue), Arc::clone(&target));
                std::thread::spawn(move || {
                    for round in 0..100 {
                        let tag = if (round + writer) % 20 == 0 { 66 } else { 1 };
                        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                            queue.submit(request(tag), &*target)
                        }));
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        queue.submit(request(1), &*target).unwrap();
    }
}
