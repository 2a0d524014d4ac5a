//! Bounded retries for locks that are held across driver calls.
//!
//! A thread that holds such a lock can be blocked in the driver by work that waits for the thread that
//! wants the lock. An unbounded wait could therefore deadlock, so a thread retries for a limited time.

use crate::release::may_block;
use crate::sync::{Mutex, MutexGuard};
use std::sync::TryLockError;
use std::time::{Duration, Instant};

/// How long a thread retries while another thread holds the lock. In an explored schedule no time
/// passes, so the attempt is made only once.
const TIMEOUT: Duration = match cfg!(feature = "explore") {
    true => Duration::ZERO,
    false => Duration::from_secs(10),
};
/// The time between two attempts.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// Calls `attempt` every millisecond until it returns a value, for at most [`TIMEOUT`]. Calls it only
/// once where a thread must not wait: in a host function, in another callback of the driver, or in the
/// report hook.
pub(crate) fn repeat<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let done = attempt();
        if done.is_some() || begin.elapsed() >= TIMEOUT || !may_block() {
            return done;
        }
        std::thread::sleep(MOMENT);
    }
}

/// Takes a lock that may be held across driver calls. Returns `None` if another thread does not release
/// it in time.
#[inline]
pub(crate) fn lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    // The common case, a free lock, does not read the clock.
    try_lock(lock).or_else(|| wait(lock))
}

#[inline]
fn try_lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cold]
#[inline(never)]
fn wait<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    repeat(|| try_lock(lock))
}

#[cfg(test)]
mod tests {
    use super::repeat;
    use crate::call::zone;

    /// Returns the number of attempts that fail before [`repeat`] gives up.
    fn attempts() -> u32 {
        let mut count = 0;
        let found = repeat(|| {
            count += 1;
            None::<()>
        });
        assert_eq!(found, None);
        count
    }

    #[test]
    fn a_thread_that_must_not_wait_makes_one_attempt() {
        let (mut in_host_function, mut in_report_hook) = (0, 0);
        zone::run_host_function(|| in_host_function = attempts());
        zone::run_report_hook(|| in_report_hook = attempts());
        assert_eq!((in_host_function, in_report_hook), (1, 1));
    }
}
