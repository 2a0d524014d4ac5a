//! The locks of memory managers, and what takes the place of waiting for one.
//!
//! A manager holds a lock for a few instructions only: never while it calls the driver, another manager or code
//! of the user. So a thread may take one anywhere, also on a driver callback thread and in the report hook.
//! The exception is [`SerialManager`](super::SerialManager), whose purpose is to call another manager under a lock.
//!
//! A thread that needs what another thread is about to free does not wait for a lock either. It repeats its
//! attempt while the other thread is at work ([`Frees::retry`]), for a limited time: the other thread may be
//! inside the driver, which may wait for a host function, which may wait for this thread.

use super::is_out_of_memory;
use crate::attempts::repeat;
use crate::error::Result;
use crate::fork;
use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, TryLockError};

/// Locks data that is never locked while something else is called. In a forked child the lock may belong to a
/// thread that does not exist there: none then.
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

/// Returns a number that no other living thread has.
pub(super) fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    // It needs no `Drop`, so it is there to the end of the thread.
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// Counts the threads that free memory now, for allocations that find none meanwhile.
#[derive(Debug, Default)]
pub(super) struct Frees {
    under_way: AtomicUsize,
    done: AtomicU64,
}

/// A thread that frees memory; until this is dropped.
pub(super) struct Free<'a> {
    frees: &'a Frees,
    /// Whether it has freed something.
    pub(super) is_some: bool,
}

impl Frees {
    /// To be called before the memory is taken from where other threads would find it.
    pub(super) fn begin(&self) -> Free<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Free {
            frees: self,
            is_some: false,
        }
    }

    /// Returns how often a thread has freed something.
    pub(super) fn count(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Whether a thread frees something now.
    pub(super) fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) != 0
    }

    /// Whether a thread frees something now, or has done so since `count`.
    pub(super) fn is_some_since(&self, count: u64) -> bool {
        self.are_under_way() || self.count() != count
    }

    /// Attempts an allocation, and repeats it while it fails for want of memory and another thread frees some.
    pub(super) fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut last = None;
        let done = repeat(|| {
            // Before the attempt: so there is one after the last free.
            let may_help = self.are_under_way();
            match attempt() {
                Err(error) if is_out_of_memory(&error) && may_help => {
                    last = Some(error);
                    None
                }
                done => Some(done),
            }
        });
        match (done, last) {
            (Some(done), _) => done,
            (None, Some(error)) => Err(error),
            (None, None) => attempt(),
        }
    }
}

impl Drop for Free<'_> {
    fn drop(&mut self) {
        if self.is_some {
            self.frees.done.fetch_add(1, Ordering::SeqCst);
        }
        self.frees.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}
