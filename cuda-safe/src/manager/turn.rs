//! Locks that may be held while the driver is called, or while somebody else's code is.
//!
//! The thread that has such a lock can come to it again: by a host function that the software driver runs
//! on it, by what the queue of releases drops, by a report hook. And who waits for it may be waited for by the
//! thread that has it: in a host function. Neither is to wait.

use crate::fork;
use crate::release;
use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, TryLockError};

/// One thread at a time.
#[derive(Debug, Default)]
pub(super) struct Turn {
    lock: Mutex<()>,
    /// The thread that has it; 0: none.
    thread: AtomicUsize,
}

/// What came of asking for a turn.
pub(super) enum Asked<'a> {
    /// It is this thread's until this is dropped.
    Mine(#[allow(dead_code, reason = "held, not read")] Mine<'a>),
    /// It was before; or there is no other thread: in a forked child.
    Already,
    /// It is another thread's, which may be waiting for this one.
    Others,
}

pub(super) struct Mine<'a> {
    thread: &'a AtomicUsize,
    #[allow(dead_code, reason = "held, not read")]
    lock: MutexGuard<'a, ()>,
}

impl Drop for Mine<'_> {
    fn drop(&mut self) {
        self.thread.store(0, Ordering::Relaxed);
    }
}

/// A number that no other living thread has.
fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    // It needs no `Drop`, so it is there to the very end.
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

impl Turn {
    /// Waits for it, where that is no danger.
    pub(super) fn ask(&self) -> Asked<'_> {
        if let Some(asked) = self.ask_now() {
            return asked;
        }
        if !release::may_wait() {
            return Asked::Others;
        }
        self.take(self.lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does not wait for it; none if it is another thread's.
    pub(super) fn ask_now(&self) -> Option<Asked<'_>> {
        // Only this thread writes its own number there. (A forked child has one thread.)
        if fork::in_child() || self.thread.load(Ordering::Relaxed) == this_thread() {
            return Some(Asked::Already);
        }
        match self.lock.try_lock() {
            Ok(lock) => Some(self.take(lock)),
            Err(TryLockError::Poisoned(lock)) => Some(self.take(lock.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn take<'a>(&'a self, lock: MutexGuard<'a, ()>) -> Asked<'a> {
        self.thread.store(this_thread(), Ordering::Relaxed);
        let thread = &self.thread;
        Asked::Mine(Mine { thread, lock })
    }
}

/// A lock of data that is never held while something else is called. In a forked child it may be a thread's
/// that is not there: none then.
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
