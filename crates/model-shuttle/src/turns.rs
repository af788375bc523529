//! Threads that take the lock of the log in turns: one at a time, and nobody is forgotten in the line.

use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shuttle::sync::Arc;
use shuttle::thread;

use crate::Clock;
use crate::turn_lock::TurnLock;

/// A clock that goes on with each look, so that turns come to their end at different places.
#[derive(Debug)]
struct Ticking {
    looks: AtomicU64,
    step: Duration,
}

impl Clock for Ticking {
    fn now(&self) -> Duration {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        self.step * u32::try_from(looks).expect("a short run")
    }

    fn unix_millis(&self) -> u64 {
        0
    }
}

/// `threads` threads take the lock `rounds` times each; the time goes on by `step` with each look at the clock. To be called
/// inside a run of shuttle, which finds who waits for ever.
///
/// # Panics
///
/// When two have the lock at once.
pub fn turns(threads: u64, rounds: u64, step: Duration) {
    let clock = StdArc::new(Ticking { looks: AtomicU64::new(0), step });
    let lock = Arc::new(TurnLock::new((0, false), clock));
    let running: Vec<_> = (0..threads)
        .map(|_| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                for _ in 0..rounds {
                    let mut held = lock.lock();
                    assert!(!held.1, "two have the lock");
                    held.1 = true;
                    let count = held.0;
                    thread::yield_now();
                    *held = (count + 1, false);
                }
            })
        })
        .collect();
    for thread in running {
        thread.join().expect("a thread with the lock");
    }
    assert_eq!(lock.lock().0, threads * rounds);
}
