//! [`TurnLock`]: a mutex that a running thread takes again at will, but not for longer than a turn while others wait.
//!
//! Writers without a sync hold the log for about a microsecond at a time. A lock that is handed over each time costs a
//! switch of threads for each write; one that is not lets the thread that runs take it again and again, while others wait
//! for tens of milliseconds. Here whoever does not get it at once stands in a line. Only the first of the line contends
//! with the running thread, and the others sleep. When the first has waited for a turn, the lock is reserved: everybody else
//! goes to the end of the line, and the first has it.
//!
//! ```text
//! running thread --lock, unlock, lock, unlock, ... until the turn is over--> end of the line
//! first of the line --waits on the inner mutex--> runs, calls the next to the front
//! line --> sleeps, in order of arrival
//! ```
//!
//! So a thread waits for at most about a turn for each thread before it, and a switch is paid once a turn. The more wait, the
//! shorter is a turn.
//!
//! # Thread safety
//!
//! The data is under the inner mutex alone; the flags only say who may try for it. `reserved` may be seen late, which lets
//! somebody in once more. The line's mutex is a leaf, held for moments.

use esker_base::Clock;
use esker_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use esker_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// How long those who wait should wait together, about: with few of them turns are so long that less than one write in a
/// thousand waits for one.
const ROUND: Duration = Duration::from_millis(2);
/// The shortest turn: a switch of threads costs a tenth of it.
const TURN_MIN: Duration = Duration::from_micros(250);

/// How long the first of `waiting` threads waits before the lock is reserved for it, in nanoseconds.
fn turn(waiting: usize) -> u64 {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    (nanos(ROUND) / (waiting as u64).max(1)).max(nanos(TURN_MIN))
}

/// See the module.
pub(crate) struct TurnLock<T> {
    inner: Mutex<T>,
    clock: std::sync::Arc<dyn Clock>,
    /// Whether there is a first of the line, and when its turn comes, in nanoseconds.
    wanted: AtomicBool,
    due: AtomicU64,
    /// Whether it has come.
    reserved: AtomicBool,
    line: Mutex<Line>,
}

#[derive(Default)]
struct Line {
    /// Whether somebody is the first: waits for the inner mutex, or has it.
    has_first: bool,
    /// Those behind the first.
    waiting: VecDeque<Arc<Place>>,
}

/// Where a thread in the line sleeps.
#[derive(Default)]
struct Place {
    called: Mutex<bool>,
    wake: Condvar,
}

/// The lock, held.
pub(crate) struct TurnGuard<'a, T> {
    lock: &'a TurnLock<T>,
    /// Taken when it is dropped.
    inner: Option<MutexGuard<'a, T>>,
    /// Whether the holder came from the line, and has to call the next.
    first: bool,
}

impl<T> TurnLock<T> {
    pub(crate) fn new(value: T, clock: std::sync::Arc<dyn Clock>) -> Self {
        TurnLock {
            inner: Mutex::new(value),
            clock,
            wanted: AtomicBool::new(false),
            due: AtomicU64::new(0),
            reserved: AtomicBool::new(false),
            line: Mutex::default(),
        }
    }

    #[inline]
    pub(crate) fn lock(&self) -> TurnGuard<'_, T> {
        if !self.reserved.load(Ordering::Relaxed)
            && let Some(inner) = self.inner.try_lock()
        {
            return TurnGuard { lock: self, inner: Some(inner), first: false };
        }
        self.stand_in_line();
        // Those that run may come before, for a turn.
        let inner = self.inner.lock();
        self.wanted.store(false, Ordering::Relaxed);
        self.reserved.store(false, Ordering::Relaxed);
        TurnGuard { lock: self, inner: Some(inner), first: true }
    }

    /// Returns when the thread is the first of the line.
    #[cold]
    fn stand_in_line(&self) {
        let place = {
            let mut line = self.line.lock();
            if !line.has_first {
                line.has_first = true;
                self.begin_turn(1);
                return;
            }
            let place = Arc::new(Place::default());
            line.waiting.push_back(Arc::clone(&place));
            place
        };
        let mut called = place.called.lock();
        while !*called {
            called = place.wake.wait(called);
        }
    }

    /// Calls the next to the front. Its turn is counted from here: it may take long until it runs.
    #[cold]
    fn call_next(&self) {
        let next = {
            let mut line = self.line.lock();
            let next = line.waiting.pop_front();
            match next {
                Some(_) => self.begin_turn(1 + line.waiting.len()),
                None => line.has_first = false,
            }
            next
        };
        if let Some(place) = next {
            *place.called.lock() = true;
            place.wake.notify_one();
        }
    }

    fn begin_turn(&self, waiting: usize) {
        self.due.store(self.now().saturating_add(turn(waiting)), Ordering::Relaxed);
        self.wanted.store(true, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.clock.now().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Called by the holder when somebody waits.
    #[cold]
    fn look_at_the_clock(&self) {
        if self.now() >= self.due.load(Ordering::Relaxed) {
            self.reserved.store(true, Ordering::Relaxed);
        }
    }
}

impl<T> Drop for TurnGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.wanted.load(Ordering::Relaxed) {
            self.lock.look_at_the_clock();
        }
        drop(self.inner.take());
        if self.first {
            self.lock.call_next();
        }
    }
}

impl<T> Deref for TurnGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for TurnGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("held until it is dropped")
    }
}

impl<T> fmt::Debug for TurnLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TurnLock")
    }
}
