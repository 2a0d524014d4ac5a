//! A manager around another, for one thread at a time.

use super::forward::forward;
use super::lock::{leaf, this_thread};
use super::{Block, MemoryManager, Order};
use crate::error::{Error, Result};
use crate::fork;
use crate::release;
use crate::sync::{Mutex, MutexGuard};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, TryLockError};

/// Calls another manager from one thread at a time, in everything that allocates and frees device memory: for a
/// manager that is not written for several threads. (The managers of this crate are.)
///
/// This is the one manager that holds a lock while the driver is called, as the inner manager calls it. So a
/// thread that allocates may wait for a thread that is inside the driver. A program in which a host function
/// waits for a thread that allocates must not use it.
///
/// A thread does not wait for the lock in a host function, in another callback of the driver or in the report
/// hook. There an allocation fails, and a free is deferred to the next call of another thread; the memory is
/// then freed as memory that no stream orders. The inner manager hears of the
/// [end of a stream](MemoryManager::stream_ends) without the lock.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
pub struct SerialManager<M> {
    inner: M,
    gate: Gate,
    /// What was freed where the lock could not be waited for.
    late: Mutex<Vec<Block>>,
}

impl<M> SerialManager<M> {
    /// Around a manager.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            gate: Gate::default(),
            late: Mutex::default(),
        }
    }

    /// The manager that this is around.
    pub fn inner(&self) -> &M {
        &self.inner
    }
}

impl<M: MemoryManager> SerialManager<M> {
    /// Calls the inner manager under the lock; none if another thread has it and must not be waited for.
    fn alone<T>(&self, call: impl FnOnce(&M) -> T) -> Option<T> {
        let done = match self.gate.enter() {
            Entered::No => return None,
            Entered::Before => return Some(call(&self.inner)),
            Entered::Now(_entry) => call(&self.inner),
        };
        self.free_late();
        Some(done)
    }

    fn free_late(&self) {
        let is_due = || leaf(&self.late).is_some_and(|late| !late.is_empty());
        // The thread that has the lock comes here afterwards.
        while is_due() {
            let Some(Entered::Now(_entry)) = self.gate.try_enter() else {
                return;
            };
            let late = leaf(&self.late).map(|mut late| std::mem::take(&mut *late));
            for block in late.into_iter().flatten() {
                // SAFETY: it was given back, in an order that is behind the one of its allocation; what used
                // it is part of all work of the context, which this is behind.
                unsafe { self.inner.free(block, Order::NONE) };
            }
        }
    }
}

// SAFETY: all memory is that of the inner manager, which may be called by several threads, as any may.
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
            // SAFETY: the caller's promise.
            unsafe { inner.free(block, order) };
        });
        if done.is_none() {
            let mut late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
            late.push(block);
            drop(late);
            // If it has become free.
            self.free_late();
        }
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.alone(|inner| inner.trim(keep))
            .unwrap_or(Err(Error::InHostFunction))
    }
}

/// A lock that the thread that has it may enter again: by a host function that the software driver runs on
/// it, by what the release queue drops, by the report hook.
#[derive(Debug, Default)]
struct Gate {
    lock: Mutex<()>,
    /// The thread that has it; 0: none.
    thread: AtomicUsize,
}

/// The outcome of entering a gate.
enum Entered<'a> {
    /// The thread has the lock until this is dropped.
    Now(#[allow(dead_code, reason = "held, not read")] Entry<'a>),
    /// The thread had the lock before; or there is no other thread, in a forked child.
    Before,
    /// Another thread has the lock, and may be waiting for this one.
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

impl Gate {
    /// Waits for the lock, where a thread may wait.
    fn enter(&self) -> Entered<'_> {
        if let Some(entered) = self.try_enter() {
            return entered;
        }
        if !release::may_wait() {
            return Entered::No;
        }
        self.keep(self.lock.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does not wait; none if another thread has the lock.
    fn try_enter(&self) -> Option<Entered<'_>> {
        // Only this thread writes its own number there. (A forked child has one thread.)
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
