//! Bounded repetition in the place of waiting for another thread.
//!
//! A thread that holds a lock across a driver call may be blocked there by work that waits for the thread
//! that wants the lock. So no thread waits for such a lock without a limit: it repeats its attempt.

use crate::release;
use crate::sync::{Mutex, MutexGuard};
use std::sync::TryLockError;
use std::time::{Duration, Instant};

/// How long a thread repeats an attempt while another thread is at work. In an explored schedule no time
/// passes, so it is made once there.
const PATIENCE: Duration = match cfg!(feature = "explore") {
    true => Duration::ZERO,
    false => Duration::from_secs(10),
};
/// The time between two attempts.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// Calls `attempt` until it returns something; every millisecond, for at most [`PATIENCE`]. Does not repeat it
/// where a thread must not wait: in a host function, in another callback of the driver, in the report hook.
pub(crate) fn repeat<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    loop {
        let done = attempt();
        if done.is_some() || begin.elapsed() >= PATIENCE || !release::may_wait() {
            return done;
        }
        std::thread::sleep(MOMENT);
    }
}

/// Takes a lock that may be held across driver calls; none if another thread does not release it in time.
#[inline]
pub(crate) fn lock<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    // Without a look at the clock where the lock is free.
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
