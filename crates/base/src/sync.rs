//! One facade over the primitives of std, loom or shuttle, chosen by feature.
//!
//! Locks do not poison: a panic in a background job must not take the foreground with it. Whoever holds data under a
//! lock keeps it consistent at each point where a panic is possible.

#[cfg(all(not(feature = "loom"), not(feature = "shuttle")))]
use std::sync as imp;

#[cfg(feature = "loom")]
use loom::sync as imp;

#[cfg(all(feature = "shuttle", not(feature = "loom")))]
use shuttle::sync as imp;

/// Threads of the same source: how to start them, and how to give way.
#[cfg(all(not(feature = "loom"), not(feature = "shuttle")))]
pub use std::thread;

#[cfg(feature = "loom")]
pub use loom::thread;

#[cfg(all(feature = "shuttle", not(feature = "loom")))]
pub use shuttle::thread;

pub use imp::atomic;
pub use imp::{Arc, MutexGuard};

use std::fmt;

/// A mutex that ignores poisoning.
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub fn new(value: T) -> Self {
        Mutex(imp::Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The lock, if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

/// A condition variable for [`Mutex`].
pub struct Condvar(imp::Condvar);

impl Condvar {
    /// A condition variable that nobody waits on.
    pub fn new() -> Self {
        Condvar(imp::Condvar::new())
    }

    /// Gives the lock up until notified. May return without a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The same for at most `timeout`. For background housekeeping only, never in the commit path. With shuttle the time
    /// never comes, so that nothing which a model shows to go on owes it to a timeout.
    #[cfg(not(feature = "loom"))]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: std::time::Duration,
    ) -> MutexGuard<'a, T> {
        match self.0.wait_timeout(guard, timeout) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        }
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Condvar")
    }
}

#[cfg(all(test, not(feature = "loom"), not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test of what happens between threads")]
    fn a_panic_under_the_lock_does_not_poison() {
        let mutex = Arc::new(Mutex::new(1));
        let other = Arc::clone(&mutex);
        let panicked = std::thread::spawn(move || {
            let _guard = other.lock();
            panic!("on purpose");
        })
        .join();
        assert!(panicked.is_err());
        *mutex.lock() += 1;
        assert_eq!(*mutex.lock(), 2);
    }
}
