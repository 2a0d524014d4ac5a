//! The lock of a green context, and the thread on which it is current. All objects with the same handle
//! share both.
//!
//! The lock is held across driver calls, some of which may block. A thread therefore waits for it for a
//! limited time only and then gets [`Invalid::GreenContextInUse`](crate::Invalid::GreenContextInUse).

use crate::call::{Invalid, Result, fork};
use crate::release::attempts;
use crate::sync::{Mutex, MutexGuard};
use cuda_sys::CUgreenCtx;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::ThreadId;

/// The lock of a green context, and the thread on which it is current.
#[derive(Default)]
pub(super) struct CallState {
    /// Serializes the calls that take the handle itself. NVIDIA's documentation required this up to
    /// 13.4.
    lock: Mutex<()>,
    /// The thread on which the view is current, and its number of guards. NVIDIA's documentation allows
    /// the view to be current on one thread at a time. This lock is never held across a driver call, so
    /// that a guard can always end.
    current: Mutex<Option<(ThreadId, usize)>>,
}

impl CallState {
    /// Locks the green context for calls that take the handle.
    ///
    /// # Errors
    /// [`Invalid::GreenContextInUse`]; [`Error::Forked`](crate::Error::Forked).
    #[inline]
    pub(super) fn lock(&self) -> Result<MutexGuard<'_, ()>> {
        fork::refuse_in_child()?;
        attempts::lock(&self.lock).ok_or_else(|| Invalid::GreenContextInUse.into())
    }

    /// Checks that the green context is not current on another thread. The caller holds the lock.
    ///
    /// # Errors
    /// [`Invalid::CurrentElsewhere`].
    #[inline]
    pub(super) fn check_thread(&self) -> Result<()> {
        let current = *self.current();
        match current {
            Some((thread, _)) if thread != std::thread::current().id() => {
                Err(Invalid::CurrentElsewhere.into())
            }
            _ => Ok(()),
        }
    }

    /// Records a guard of this thread. The caller holds the lock and has checked the thread.
    #[inline]
    pub(super) fn add_guard(&self) {
        let mut current = self.current();
        let guards = current.map_or(0, |(_, guards)| guards);
        *current = Some((std::thread::current().id(), guards + 1));
    }

    /// Records that a guard of this thread has ended.
    #[inline]
    pub(super) fn remove_guard(&self) {
        let mut current = self.current();
        *current = match *current {
            Some((thread, guards)) if guards > 1 => Some((thread, guards - 1)),
            _ => None,
        };
    }

    #[inline]
    fn current(&self) -> MutexGuard<'_, Option<(ThreadId, usize)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The locks of the green contexts that have at least one object, by handle.
static LOCKS: Mutex<Vec<(usize, Weak<CallState>)>> = Mutex::new(Vec::new());

/// Returns the lock of a green context that is alive.
#[inline]
pub(super) fn lock_of(raw: CUgreenCtx) -> Arc<CallState> {
    // In a forked child, a thread that no longer exists may hold the mutex of the list. A fresh lock is
    // enough there, because no thread of a forked child calls the driver.
    if fork::in_child() {
        return Arc::<CallState>::default();
    }
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    // A handle without an object may have been reused for another green context.
    locks.retain(|(_, lock)| lock.strong_count() != 0);
    let known = locks.iter().find(|(handle, _)| *handle == raw.addr());
    if let Some(lock) = known.and_then(|(_, lock)| lock.upgrade()) {
        return lock;
    }
    let lock = Arc::<CallState>::default();
    locks.push((raw.addr(), Arc::downgrade(&lock)));
    lock
}
