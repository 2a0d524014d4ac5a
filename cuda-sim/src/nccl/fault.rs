//! Failures on demand.

use super::outcome::REMOTE_ERROR;
use crate::call::wake;
use crate::state;
use core::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A call that fails. Dropping it ends the fault.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct FailingCall(Arc<Active>);

#[derive(Debug)]
struct Active {
    function: &'static str,
    nth: u64,
    code: u32,
    seen: AtomicU64,
}

static ACTIVE: Mutex<Vec<Arc<Active>>> = Mutex::new(Vec::new());

/// Makes the n-th call of a function fail with a code, counted from 1. The function has no effect then.
pub fn fail_call(function: &'static str, nth: u64, code: u32) -> FailingCall {
    let active = Arc::new(Active { function, nth, code, seen: AtomicU64::new(0) });
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&active));
    FailingCall(active)
}

impl FailingCall {
    /// Returns whether the call was made.
    pub fn has_failed(&self) -> bool {
        self.0.seen.load(Ordering::Relaxed) >= self.0.nth
    }
}

impl Drop for FailingCall {
    fn drop(&mut self) {
        let mut active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
        active.retain(|its| !Arc::ptr_eq(its, &self.0));
    }
}

/// Returns the code that a fault makes this call return.
pub(super) fn hit(function: &str) -> Option<u32> {
    let active = ACTIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut code = None;
    for its in active.iter().filter(|its| its.function == function) {
        if its.seen.fetch_add(1, Ordering::Relaxed) + 1 == its.nth {
            code = Some(its.code);
        }
    }
    code
}

/// Sets the error that `ncclCommGetAsyncError` returns for a communicator, as if its work had failed in the background.
/// Returns whether there is such a communicator.
pub fn set_error(communicator: *mut c_void, code: u32) -> bool {
    let set = state::with(|world| {
        let its = world.objects.nccl.communicators.get(communicator.addr())?;
        its.life.error.store(code, Ordering::Release);
        Some(())
    });
    wake();
    set.flatten().is_some()
}

/// Makes the rank of a communicator disappear, as if its process had ended: its operations end, and the other ranks get
/// an error in the background. Their operations wait until they are aborted. Returns whether there is such a
/// communicator.
pub fn kill(communicator: *mut c_void) -> bool {
    let killed = state::with(|world| {
        let its = world.objects.nccl.communicators.get(communicator.addr())?;
        its.life.is_aborted.store(true, Ordering::Release);
        its.life.error.store(REMOTE_ERROR, Ordering::Release);
        its.board.lose();
        Some(())
    });
    wake();
    killed.flatten().is_some()
}
