//! The locks of managers.
//!
//! A manager holds a lock for a few instructions only, and never while it calls the driver, another
//! manager or user code. So a thread may take one anywhere, also on a driver callback thread and in the
//! report hook.

#[cfg(feature = "explore")]
pub(crate) use cuda_safe::explore::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "explore"))]
pub(crate) use std::sync::{Mutex, MutexGuard};

use cuda_safe::manager::in_forked_child;
use std::sync::{PoisonError, TryLockError};

/// Locks data that is never locked during a call of other code. In a forked child the lock may be held
/// by a thread that does not exist there; the result is then `None`.
pub(crate) fn leaf<T: ?Sized + Send>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if !in_forked_child() {
        return Some(lock.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Returns a number that no other living thread has.
#[inline]
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    // The static needs no `Drop`, so it is accessible until the thread has ended.
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}
