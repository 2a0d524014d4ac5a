//! The lock of a green context. All objects with the same handle share one lock.
//!
//! The lock is held across driver calls, some of which may block. A thread therefore waits for it for a
//! limited time only and then gets [`Invalid::GreenContextInUse`](crate::Invalid::GreenContextInUse).

use crate::base::fork;
use crate::base::sync::Mutex;
use cuda_sys::CUgreenCtx;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::ThreadId;

/// The state that the lock of a green context protects.
#[derive(Default)]
pub(super) struct Calls {
    /// The thread on which the view is current, and its number of guards. NVIDIA's documentation allows
    /// the view to be current on one thread at a time.
    pub(super) current: Option<(ThreadId, usize)>,
}

/// Serializes the calls that take the handle itself. NVIDIA's documentation required this up to 13.4.
pub(super) type Lock = Arc<Mutex<Calls>>;

/// The locks of the green contexts that have at least one object, by handle.
static LOCKS: Mutex<Vec<(usize, Weak<Mutex<Calls>>)>> = Mutex::new(Vec::new());

/// Returns the lock of a green context that is alive.
pub(super) fn lock_of(raw: CUgreenCtx) -> Lock {
    // In a forked child, a thread that no longer exists may hold the mutex of the list. A fresh lock is
    // enough there, because no thread of a forked child calls the driver.
    if fork::in_child() {
        return Lock::default();
    }
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    // A handle without an object may have been reused for another green context.
    locks.retain(|(_, lock)| lock.strong_count() != 0);
    let known = locks.iter().find(|(handle, _)| *handle == raw.addr());
    if let Some(lock) = known.and_then(|(_, lock)| lock.upgrade()) {
        return lock;
    }
    let lock = Lock::default();
    locks.push((raw.addr(), Arc::downgrade(&lock)));
    lock
}
