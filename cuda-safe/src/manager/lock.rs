//! The locks of memory managers.
//!
//! A manager holds a lock for a few instructions only, and never while it calls the driver, another
//! manager or user code. So a thread may take one anywhere, also on a driver callback thread and in the
//! report hook.

use crate::call::fork;
use crate::sync::{Mutex, MutexGuard};
use std::sync::{PoisonError, TryLockError};

/// Locks data that is never locked during a call of other code. In a forked child the lock may be held
/// by a thread that does not exist there; the result is then `None`.
pub(super) fn leaf<T: ?Sized + Send>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if !fork::in_child() {
        return Some(lock.lock().unwrap_or_else(PoisonError::into_inner));
    }
    match lock.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
