//! [`within`] and [`Patience`]: a hang becomes a failure that says what hung.
//!
//! The watched work stays on the caller's thread, so counters of that thread and panics behave as without a watchdog;
//! a second thread waits for its end. A hang can't be unwound, hence it ends the process.

#![allow(clippy::disallowed_methods, reason = "a watchdog needs a thread and real time")]

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Runs `work`; ends the process with a message when it takes longer than `limit`.
pub fn within<R>(limit: Duration, what: &str, work: impl FnOnce() -> R) -> R {
    let patience = Patience::new(limit);
    patience.next(what);
    work()
}

/// A watchdog over a sequence of steps, each of which may take up to a limit. One thread for all steps, so that
/// thousands of short steps cost little.
#[derive(Debug)]
pub struct Patience {
    steps: Option<Sender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Patience {
    /// Allows each step `limit`; the first one starts now.
    pub fn new(limit: Duration) -> Self {
        let (steps, told) = channel::<String>();
        let thread = std::thread::spawn(move || {
            let mut step = "the start".to_owned();
            loop {
                match told.recv_timeout(limit) {
                    Ok(next) => step = next,
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        eprintln!("watchdog: more than {limit:?} in: {step}");
                        // Goes past the capture of a test's output, and past what hangs.
                        std::process::exit(124);
                    }
                }
            }
        });
        Patience { steps: Some(steps), thread: Some(thread) }
    }

    /// The next step begins.
    pub fn next(&self, step: impl Into<String>) {
        if let Some(steps) = &self.steps {
            let _ = steps.send(step.into());
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        self.steps = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
