//! Retries of allocations while other threads free memory.
//!
//! A thread that needs memory which another thread is about to free does not wait for a lock. It repeats
//! its attempt while the other thread is working, for a limited time: the other thread may be inside the
//! driver, which may wait for a host function, which may wait for this thread.

use super::is_out_of_memory;
use crate::call::Result;
use crate::release::attempts::repeat;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Counts the threads that are returning memory to the driver or to another manager, so that an
/// allocation which finds no memory meanwhile is [retried](Self::retry) instead of failing.
///
/// A manager that caches memory has one. Without it, an allocation can fail because another thread has
/// taken cached memory to free it, and has not freed it yet.
///
/// ```no_run
/// use cuda_safe::manager::{Block, DriverMemory, FreeCounter};
/// # use cuda_safe::manager::{DeferOptions, Order};
/// # use cuda_safe::{Context, Device};
///
/// fn free_all(frees: &FreeCounter, cached: &mut Vec<Block>, free: impl Fn(Block)) {
///     // Before other threads could miss the blocks.
///     let mut freeing = frees.begin();
///     for block in cached.drain(..) {
///         freeing.mark_freed();
///         free(block);
///     }
/// }
///
/// fn allocate(frees: &FreeCounter, base: &DriverMemory) -> cuda_safe::Result<Block> {
///     frees.retry(|| base.allocate(1 << 20))
/// }
/// # let context = Context::primary(&Device::get(0)?)?;
/// # let base = DriverMemory::new(&context, DeferOptions::default())?;
/// # let frees = FreeCounter::default();
/// # let mut cached = vec![allocate(&frees, &base)?];
/// # free_all(&frees, &mut cached, |block| unsafe { base.free(block, Order::NONE) });
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct FreeCounter {
    in_progress: AtomicUsize,
    completed: AtomicU64,
}

/// A thread that is freeing memory, until this is dropped. Created by [`FreeCounter::begin`].
#[must_use = "other threads retry while this is alive"]
#[derive(Debug)]
pub struct FreeInProgress<'a> {
    frees: &'a FreeCounter,
    has_freed: bool,
}

impl FreeCounter {
    /// Registers this thread. Call it before taking the memory from the place where other threads would
    /// find it.
    #[inline]
    pub fn begin(&self) -> FreeInProgress<'_> {
        self.in_progress.fetch_add(1, Ordering::SeqCst);
        FreeInProgress { frees: self, has_freed: false }
    }

    /// Returns the number of completed frees that freed something.
    #[inline]
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::SeqCst)
    }

    /// Returns whether a thread is freeing memory now.
    #[inline]
    pub(super) fn are_in_progress(&self) -> bool {
        self.in_progress.load(Ordering::SeqCst) != 0
    }

    /// Returns whether a thread is freeing memory now, or has freed some since
    /// [`completed`](Self::completed) returned `count`.
    #[inline]
    pub fn has_freed_since(&self, count: u64) -> bool {
        self.are_in_progress() || self.completed() != count
    }

    /// Attempts an allocation, and repeats it while it fails because there is [not enough
    /// memory](is_out_of_memory) and another thread is freeing some. It is repeated every millisecond
    /// for at most ten seconds, and only where this thread [may block](super::may_block).
    ///
    /// # Errors
    /// The error of the last attempt.
    pub fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut last = None;
        let done = repeat(|| {
            // Checked before the attempt, so that one attempt follows the last free.
            let may_help = self.are_in_progress();
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

impl FreeInProgress<'_> {
    /// Notes that this thread has something to free.
    #[inline]
    pub fn mark_freed(&mut self) {
        self.has_freed = true;
    }
}

impl Drop for FreeInProgress<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.has_freed {
            self.frees.completed.fetch_add(1, Ordering::SeqCst);
        }
        self.frees.in_progress.fetch_sub(1, Ordering::SeqCst);
    }
}

// In an explored schedule, an allocation is not repeated.
#[cfg(all(test, not(feature = "explore")))]
mod tests {
    use super::FreeCounter;
    use crate::call::error::{Error, Result};
    use crate::call::invalid::Invalid;

    #[inline]
    fn out_of_memory() -> Error {
        let (limit, used, asked) = (1, 1, 1);
        Invalid::MemoryLimit { limit, used, asked }.into()
    }

    #[test]
    #[inline]
    fn a_free_counts_when_it_has_ended_and_has_freed_something() {
        let frees = FreeCounter::default();
        assert!(!frees.are_in_progress() && !frees.has_freed_since(0));
        for is_some in [false, true, true] {
            let before = frees.completed();
            let mut free = frees.begin();
            if is_some {
                free.mark_freed();
            }
            assert!(frees.are_in_progress() && frees.has_freed_since(before));
            assert_eq!(frees.completed(), before);
            drop(free);
            assert!(!frees.are_in_progress());
            assert_eq!(frees.completed() - before, u64::from(is_some));
            assert_eq!(frees.has_freed_since(before), is_some);
        }
        assert_eq!(frees.completed(), 2);
        assert!(frees.has_freed_since(0) && frees.has_freed_since(1) && !frees.has_freed_since(2));
    }

    /// The last attempt follows the last free.
    #[test]
    #[inline]
    fn an_allocation_is_repeated_until_no_other_thread_frees_memory() {
        let frees = FreeCounter::default();
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
    #[inline]
    fn an_allocation_that_succeeds_is_not_repeated() {
        let frees = FreeCounter::default();
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
    #[inline]
    fn an_allocation_that_fails_for_another_reason_is_not_repeated() {
        let frees = FreeCounter::default();
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
