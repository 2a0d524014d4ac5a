//! A wrapper that serializes the calls of another manager.

use super::forward::forward;
use super::lock::{leaf, this_thread};
use super::{Block, MemoryManager, Order};
use crate::base::error::{Error, Result};
use crate::base::fork;
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::zone;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, TryLockError};

/// A wrapper for a manager whose device memory should be allocated, freed, trimmed and reset by one
/// thread at a time. All other methods are forwarded without the lock. (The managers of this crate
/// support concurrent calls without this wrapper.)
///
/// The lock stays held while the inner manager calls the driver. No other manager of this crate does
/// this. An allocation may therefore wait for a thread that is inside the driver. If a host function
/// waits for a thread that allocates, this wrapper can deadlock.
///
/// A thread does not wait for the lock in a host function, in another callback of the driver or in the
/// report hook. If another thread holds the lock, an allocation there fails with
/// [`Error::InHostFunction`]. A free is deferred until that thread releases the lock; the memory is
/// then freed [without a stream](Order::NONE). The inner manager is notified of the [end of a
/// stream](MemoryManager::stream_ends) without the lock.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is forwarded to the inner manager.
pub struct SerialManager<M> {
    inner: M,
    call_lock: ReentrantLock,
    /// Blocks that were freed where waiting for the lock was not allowed.
    late: Mutex<Vec<Block>>,
}

impl<M> SerialManager<M> {
    /// Creates a wrapper of `inner`.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            call_lock: ReentrantLock::default(),
            late: Mutex::default(),
        }
    }

    /// Returns the inner manager.
    pub fn inner(&self) -> &M {
        &self.inner
    }
}

impl<M: MemoryManager> SerialManager<M> {
    /// Calls the inner manager under the lock. Returns `None` if another thread holds the lock and the
    /// calling thread must not wait for it.
    fn alone<T>(&self, call: impl FnOnce(&M) -> T) -> Option<T> {
        let done = match self.call_lock.enter() {
            Entered::No => return None,
            Entered::Before => return Some(call(&self.inner)),
            Entered::Now(_entry) => call(&self.inner),
        };
        self.free_late();
        Some(done)
    }

    fn free_late(&self) {
        let is_due = || leaf(&self.late).is_some_and(|late| !late.is_empty());
        // A thread that holds the lock repeats this check after releasing it.
        while is_due() {
            let Some(Entered::Now(_entry)) = self.call_lock.try_enter() else {
                return;
            };
            let late = leaf(&self.late).map(|mut late| std::mem::take(&mut *late));
            for block in late.into_iter().flatten() {
                // SAFETY: the caller of `free` passed ownership of the block. All work that uses the
                // block was enqueued before that call, and `Order::NONE` orders this free after all
                // earlier work of the context.
                unsafe { self.inner.free(block, Order::NONE) };
            }
        }
    }
}

// SAFETY: the inner manager allocates all memory. The methods that are forwarded without the lock may be
// called by several threads, as for every manager.
unsafe impl<M: MemoryManager> MemoryManager for SerialManager<M> {
    forward!(version current base wrapped initialize host pin managed memory_info ipc_handle defer_cleanup);

    fn reset(&self) {
        let _ = self.alone(M::reset);
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.alone(|inner| inner.allocate(size, order))
            .unwrap_or(Err(Error::InHostFunction))
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        let done = self.alone(|inner| {
            // SAFETY: the caller of this function makes the same promise.
            unsafe { inner.free(block, order) };
        });
        if done.is_none() {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            late.push(block);
            drop(late);
            // The other thread may have released the lock before the block was added.
            self.free_late();
        }
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.alone(|inner| inner.trim(keep))
            .unwrap_or(Err(Error::InHostFunction))
    }
}

/// A reentrant lock. The thread that holds it may enter again from a host function that the software
/// driver runs on it, from the drop of an object in the release queue, or from the report hook.
#[derive(Debug, Default)]
struct ReentrantLock {
    lock: Mutex<()>,
    /// The thread that holds the lock; 0 if none does.
    thread: AtomicUsize,
}

/// The result of entering a [`ReentrantLock`].
enum Entered<'a> {
    /// The thread holds the lock until this is dropped.
    Now(#[allow(dead_code, reason = "held, not read")] Entry<'a>),
    /// The thread already held the lock, or it is the only thread of a forked child.
    Before,
    /// Another thread holds the lock, and may be waiting for this one.
    No,
}

struct Entry<'a> {
    thread: &'a AtomicUsize,
    #[allow(dead_code, reason = "held, not read")]
    lock: MutexGuard<'a, ()>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.thread.store(0, Ordering::Relaxed);
    }
}

impl ReentrantLock {
    /// Acquires the lock, and waits for it if waiting is allowed here.
    fn enter(&self) -> Entered<'_> {
        if let Some(entered) = self.try_enter() {
            return entered;
        }
        if !zone::may_block() {
            return Entered::No;
        }
        self.keep(self.lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Acquires the lock without waiting. Returns `None` if another thread holds it.
    fn try_enter(&self) -> Option<Entered<'_>> {
        // No other thread stores this thread's number, so a relaxed load is enough. A forked child has
        // only one thread.
        if fork::in_child() || self.thread.load(Ordering::Relaxed) == this_thread() {
            return Some(Entered::Before);
        }
        match self.lock.try_lock() {
            Ok(lock) => Some(self.keep(lock)),
            Err(TryLockError::Poisoned(lock)) => Some(self.keep(lock.into_inner())),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn keep<'a>(&'a self, lock: MutexGuard<'a, ()>) -> Entered<'a> {
        self.thread.store(this_thread(), Ordering::Relaxed);
        let thread = &self.thread;
        Entered::Now(Entry { thread, lock })
    }
}

impl<M: fmt::Debug> fmt::Debug for SerialManager<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialManager")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
