//! The lock of a green context: one for each handle, however many objects have it.
//!
//! It is held across driver calls, some of which may block. So a thread waits for it for a limited time
//! only, and gets [`Invalid::GreenContextInUse`](crate::Invalid::GreenContextInUse) then.

use crate::fork;
use crate::sync::Mutex;
use cuda_sys::CUgreenCtx;
use std::sync::{Arc, PoisonError, Weak};
use std::thread::ThreadId;

/// What the lock of a green context is for.
#[derive(Default)]
pub(super) struct Calls {
    /// The thread on which the view is current, and how many guards there are: it may be on one
    /// thread at a time, says NVIDIA's text.
    pub(super) current: Option<(ThreadId, usize)>,
}

/// Calls that take the handle itself go one at a time: NVIDIA's text asked for it up to 13.4.
pub(super) type Lock = Arc<Mutex<Calls>>;

/// Those of green contexts that some object has, by handle.
static LOCKS: Mutex<Vec<(usize, Weak<Mutex<Calls>>)>> = Mutex::new(Vec::new());

/// The lock of a green context that is alive.
pub(super) fn lock_of(raw: CUgreenCtx) -> Lock {
    // There a thread that is no more may have the list, and nobody calls the driver.
    if fork::in_child() {
        return Lock::default();
    }
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    // A handle without an object may be another green context's by now.
    locks.retain(|(_, lock)| lock.strong_count() != 0);
    let known = locks.iter().find(|(handle, _)| *handle == raw.addr());
    if let Some(lock) = known.and_then(|(_, lock)| lock.upgrade()) {
        return lock;
    }
    let lock = Lock::default();
    locks.push((raw.addr(), Arc::downgrade(&lock)));
    lock
}
