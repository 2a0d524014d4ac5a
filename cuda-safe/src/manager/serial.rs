//! A manager around another, for one thread at a time.

use super::forward::forward;
use super::turn::{Asked, Turn, leaf};
use super::{Block, MemoryManager, Order};
use crate::error::{Error, Result};
use crate::sync::Mutex;
use cuda_sys::CUstream;
use std::fmt;
use std::sync::PoisonError;

/// Another manager, one thread at a time in what allocates and gives back device memory: for one whose author
/// does not trust it with several. (Those of this crate need none.)
///
/// Nobody waits for a turn in a host function, or in another callback of the driver's: whoever has it may be
/// waiting for that. What is freed there meanwhile goes to the inner manager with the next call, in no
/// stream's order.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
pub struct SerialManager<M> {
    inner: M,
    turn: Turn,
    /// What was freed where its turn could not be waited for.
    late: Mutex<Vec<Block>>,
}

impl<M> SerialManager<M> {
    /// Around a manager.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            turn: Turn::default(),
            late: Mutex::default(),
        }
    }

    /// The manager that this is around.
    pub fn inner(&self) -> &M {
        &self.inner
    }
}

impl<M: MemoryManager> SerialManager<M> {
    /// Calls it in this thread's turn; none if that is another one's, who must not be waited for.
    fn in_turn<T>(&self, call: impl FnOnce(&M) -> T) -> Option<T> {
        let done = match self.turn.ask() {
            Asked::Others => return None,
            Asked::Already => return Some(call(&self.inner)),
            Asked::Mine(_turn) => call(&self.inner),
        };
        self.free_late();
        Some(done)
    }

    fn free_late(&self) {
        let is_due = || leaf(&self.late).is_some_and(|late| !late.is_empty());
        // Whoever has its turn comes here afterwards.
        while is_due() {
            let Some(Asked::Mine(_turn)) = self.turn.ask_now() else {
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
    forward!(version base wrapped initialize host pin managed memory_info ipc_handle defer_cleanup);

    fn reset(&self) {
        let _ = self.in_turn(M::reset);
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.in_turn(|inner| inner.allocate(size, order))
            .unwrap_or(Err(Error::InHostFunction))
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        let done = self.in_turn(|inner| {
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
        self.in_turn(|inner| inner.trim(keep))
            .unwrap_or(Err(Error::InHostFunction))
    }

    fn stream_ends(&self, stream: CUstream) {
        if self.in_turn(|inner| inner.stream_ends(stream)).is_none() {
            // Afterwards the handle may be another stream's.
            self.inner.stream_ends(stream);
        }
    }
}

impl<M: fmt::Debug> fmt::Debug for SerialManager<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SerialManager")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
