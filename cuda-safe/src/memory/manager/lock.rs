//! The locks of memory managers, and bounded retries that replace waiting for one.
//!
//! A manager holds a lock for a few instructions only, and never while it calls the driver, another
//! manager or user code. So a thread may take one anywhere, also on a driver callback thread and in the
//! report hook. The exception is [`SerialManager`](super::SerialManager), whose purpose is to call
//! another manager under a lock.
//!
//! A thread that needs memory which another thread is about to free does not wait for a lock either. It
//! repeats its attempt while the other thread is working ([`Frees::retry`]), for a limited time: the
//! other thread may be inside the driver, which may wait for a host function, which may wait for this
//! thread.

use super::is_out_of_memory;
use crate::base::attempts::repeat;
use crate::base::error::Result;
use crate::base::fork;
use crate::base::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{PoisonError, TryLockError};

/// Locks data that is never locked during a call of other code. In a forked child the lock may be held
/// by a thread that does not exist there; the result is then `None`.
pub(crate) fn leaf<T: ?Sized + Send>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
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
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static PLACE: u8 = const { 0 };
    }
    // The static needs no `Drop`, so it is accessible until the thread has ended.
    PLACE.with(|place| std::ptr::from_ref(place).addr())
}

/// Counts the threads that are freeing memory, for allocations that find none meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Frees {
    under_way: AtomicUsize,
    done: AtomicU64,
}

/// A thread that is freeing memory, until this is dropped.
pub(crate) struct Free<'a> {
    frees: &'a Frees,
    /// Whether it has freed something.
    pub(crate) is_some: bool,
}

impl Frees {
    /// Registers this thread. Call it before taking the memory from the place where other threads would
    /// find it.
    pub(crate) fn begin(&self) -> Free<'_> {
        self.under_way.fetch_add(1, Ordering::SeqCst);
        Free {
            frees: self,
            is_some: false,
        }
    }

    /// Returns the number of completed frees.
    pub(crate) fn count(&self) -> u64 {
        self.done.load(Ordering::SeqCst)
    }

    /// Returns whether a thread is freeing memory now.
    pub(crate) fn are_under_way(&self) -> bool {
        self.under_way.load(Ordering::SeqCst) != 0
    }

    /// Returns whether a thread is freeing memory now, or has done so since `count`.
    pub(crate) fn is_some_since(&self, count: u64) -> bool {
        self.are_under_way() || self.count() != count
    }

    /// Attempts an allocation, and repeats it while it fails because there is not enough memory and
    /// another thread is freeing some.
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut last = None;
        let done = repeat(|| {
            // Checked before the attempt, so that one attempt follows the last free.
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

// In an explored schedule, an allocation is not repeated.
#[cfg(all(test, not(feature = "explore")))]
mod tests {
    use super::Frees;
    use crate::base::error::{Error, Result};
    use crate::base::invalid::Invalid;

    fn out_of_memory() -> Error {
        let (limit, used, asked) = (1, 1, 1);
        Invalid::MemoryLimit { limit, used, asked }.into()
    }

    #[test]
    fn a_free_counts_when_it_has_ended_and_has_freed_something() {
        let frees = Frees::default();
        assert!(!frees.are_under_way() && !frees.is_some_since(0));
        for is_some in [false, true, true] {
            let before = frees.count();
            let mut free = frees.begin();
            free.is_some = is_some;
            assert!(frees.are_under_way() && frees.is_some_since(before));
            assert_eq!(frees.count(), before);
            drop(free);
            assert!(!frees.are_under_way());
            assert_eq!(frees.count() - before, u64::from(is_some));
            assert_eq!(frees.is_some_since(before), is_some);
        }
        assert_eq!(frees.count(), 2);
        assert!(frees.is_some_since(0) && frees.is_some_since(1) && !frees.is_some_since(2));
    }

    /// The last attempt follows the last free.
    #[test]
    fn an_allocation_is_repeated_until_no_other_thread_frees_memory() {
        let frees = Frees::default();
        let mut free = Some(frees.begin());
        let mut attempts = 0;
        let refused: Result<()> = frees.retry(|| {
            attempts += 1;
            if attempts == 3 {
                free = None;
            }
            Err(out_of_memory())
        });
        refused.expect_err("every attempt fails");
        assert_eq!(attempts, 4);
    }

    #[test]
    fn an_allocation_that_succeeds_is_not_repeated() {
        let frees = Frees::default();
        let _free = frees.begin();
        let mut attempts = 0;
        let done = frees.retry(|| {
            attempts += 1;
            match attempts {
                1 => Err(out_of_memory()),
                _ => Ok(attempts),
            }
        });
        assert_eq!(done.expect("the second attempt succeeds"), 2);
        assert_eq!(attempts, 2);
    }

    #[test]
    fn an_allocation_that_fails_for_another_reason_is_not_repeated() {
        let frees = Frees::default();
        let _free = frees.begin();
        let mut attempts = 0;
        let refused: Result<()> = frees.retry(|| {
            attempts += 1;
            Err(Error::Forked)
        });
        assert!(matches!(refused, Err(Error::Forked)));
        assert_eq!(attempts, 1);
    }
}
