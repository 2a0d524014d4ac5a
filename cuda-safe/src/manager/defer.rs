//! Frees that are done together.

use super::ordered::OfPool;
use super::turn::{Asked, Turn, leaf};
use crate::context::Context;
use crate::device::Device;
use crate::error::Result;
use crate::event::Event;
use crate::fork;
use crate::memory::MemoryPool;
use crate::release::{Behind, Resource, release};
use crate::report::count_leak;
use crate::stream::is_inside;
use crate::sync::Mutex;
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

/// When frees that were put off are done. The default is Numba's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeferOptions {
    /// More than so many may not be pending: 10.
    pub count: usize,
    /// Nor more device memory than this share of all: 0.2.
    pub share: f64,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for DeferOptions {
    fn default() -> Self {
        Self {
            count: 10,
            share: 0.2,
            _non_exhaustive: (),
        }
    }
}

impl DeferOptions {
    /// The share in bytes.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of memory need not be exact, and casts of floats end at the ends"
    )]
    pub(super) fn bytes_of(&self, device: Device) -> Result<usize> {
        Ok((device.total_memory()? as f64 * self.share) as usize)
    }
}

/// While it lives, a manager holds back clean-up that waits for work; of
/// [`defer_cleanup`](super::MemoryManager::defer_cleanup). Its end does nothing by itself: the next
/// free over the limit does.
#[must_use = "clean-up is held back for as long as it lives"]
pub struct CleanupGuard(#[allow(dead_code, reason = "held, not read")] Box<dyn Any + Send>);

impl CleanupGuard {
    /// One that keeps `value`, whose `Drop` is the end of it.
    pub fn holding(value: impl Any + Send) -> Self {
        Self(Box::new(value))
    }

    /// Both as one.
    pub fn and(self, other: Self) -> Self {
        Self::holding((self, other))
    }
}

impl fmt::Debug for CleanupGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CleanupGuard").finish_non_exhaustive()
    }
}

/// How many guards there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

impl Held {
    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    pub(super) fn guard(&self) -> CleanupGuard {
        self.0.fetch_add(1, Ordering::AcqRel);
        CleanupGuard::holding(End(self.clone()))
    }
}

/// The end of a guard.
struct End(Held);

impl Drop for End {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What is to be freed.
#[derive(Debug)]
pub(super) enum What {
    /// Of `cuMemAlloc` or `cuMemAllocManaged`.
    Device(CUdeviceptr),
    /// Of `cuMemHostAlloc`.
    Host(*mut c_void),
    /// Of a memory pool, of which a free waits for nothing; used by whatever work. The pool, if it is to stay
    /// as long.
    OfPool(CUdeviceptr, Option<MemoryPool>),
}

// SAFETY: it only says where memory is.
unsafe impl Send for What {}

pub(super) struct Item {
    pub(super) what: What,
    /// Of device memory.
    pub(super) size: usize,
    /// Behind what it was used for; none: behind all work.
    pub(super) end: Option<Event>,
}

#[derive(Default)]
struct Pending {
    items: Vec<Item>,
    bytes: usize,
}

/// The queue of a manager's frees.
pub(super) struct Deferral {
    options: DeferOptions,
    held: Held,
    pending: Mutex<Pending>,
    /// Whoever does what is pending.
    turn: Turn,
    /// How often that was done.
    flushes: AtomicU64,
    /// The bytes that may be pending.
    limit: usize,
    context: Context,
}

impl Deferral {
    pub(super) fn new(context: &Context, options: DeferOptions) -> Result<Self> {
        let limit = options.bytes_of(context.device())?;
        Ok(Self {
            options,
            held: Held::default(),
            pending: Mutex::default(),
            turn: Turn::default(),
            flushes: AtomicU64::new(0),
            limit,
            context: context.clone(),
        })
    }

    pub(super) fn guard(&self) -> CleanupGuard {
        self.held.guard()
    }

    /// What is pending: how many, and how much device memory.
    pub(super) fn pending(&self) -> (usize, usize) {
        leaf(&self.pending).map_or((0, 0), |pending| (pending.items.len(), pending.bytes))
    }

    /// Puts a free off; over the limit all that are pending are done, unless another thread is at it.
    pub(super) fn push(&self, item: Item) {
        let is_over = match leaf(&self.pending) {
            None => return count_leak(),
            Some(mut pending) => {
                pending.bytes = pending.bytes.saturating_add(item.size);
                pending.items.push(item);
                pending.items.len() > self.options.count || pending.bytes > self.limit
            }
        };
        if is_over && self.may_flush() {
            if let Some(Asked::Mine(_turn)) = self.turn.ask_now() {
                self.free_pending();
            }
        }
    }

    /// Does what is pending, unless it is held back; whether there was something.
    pub(super) fn flush(&self) -> bool {
        self.may_flush() && matches!(self.turn.ask(), Asked::Mine(_turn) if self.free_pending())
    }

    /// How often what was pending was done, for [`flush_since`](Self::flush_since).
    pub(super) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// Does what is pending, or waits for the thread that does; whether something was freed since then.
    pub(super) fn flush_since(&self, then: u64) -> bool {
        if !self.may_flush() {
            return false;
        }
        match self.turn.ask() {
            Asked::Mine(_turn) => self.free_pending() || self.flushes() != then,
            // This thread is in the middle of it, or is waited for by the one that is.
            Asked::Already | Asked::Others => false,
        }
    }

    /// In a host function nothing can be waited for: the next free does it.
    fn may_flush(&self) -> bool {
        !self.held.is_held() && !is_inside() && !fork::in_child()
    }

    /// In this thread's turn.
    fn free_pending(&self) -> bool {
        let Some(pending) = leaf(&self.pending).map(|mut pending| std::mem::take(&mut *pending))
        else {
            return false;
        };
        // Not under the lock: the driver waits, perhaps for a host function that frees something.
        if pending.items.is_empty() {
            return false;
        }
        self.free(pending);
        self.flushes.fetch_add(1, Ordering::Release);
        true
    }

    fn free(&self, pending: Pending) {
        for item in pending.items {
            let resource = match item.what {
                What::Device(address) => Resource::Memory(address),
                What::Host(start) => Resource::Pinned(start),
                What::OfPool(address, pool) => {
                    self.free_of_pool(address, pool);
                    continue;
                }
            };
            let behind = Behind {
                ends: item.end.into_iter().collect(),
                owner: None,
                context: self.context.clone(),
            };
            release(resource, &behind);
        }
    }

    fn free_of_pool(&self, address: CUdeviceptr, pool: Option<MemoryPool>) {
        let memory = Resource::LoosePoolMemory(address);
        let parent = self.context.clone();
        match pool {
            None => release(memory, &parent),
            Some(pool) => release(memory, &OfPool { parent, pool }),
        }
    }
}

impl Drop for Deferral {
    /// Whoever has a guard still: the manager goes, and takes nothing along.
    fn drop(&mut self) {
        let pending = self.pending.get_mut();
        let pending = std::mem::take(pending.unwrap_or_else(PoisonError::into_inner));
        self.free(pending);
    }
}

impl fmt::Debug for Deferral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = self.pending();
        f.debug_struct("Deferral")
            .field("options", &self.options)
            .field("pending", &count)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}
