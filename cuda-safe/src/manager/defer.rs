//! Frees that are done together.

use super::is_out_of_memory;
use super::lock::{Frees, leaf};
use super::ordered::OfPool;
use super::owned::{PinnedOwner, unregister};
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
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// While it lives, a manager holds back clean-up that waits for work, that of host memory included: see
/// [`defer_cleanup`](super::MemoryManager::defer_cleanup). Dropping it cleans nothing up: the next free over the
/// [limit](DeferOptions) does.
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
    /// Of `cuMemHostRegister`, with the owner of the memory.
    Registered(*mut c_void, PinnedOwner),
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
    frees: Frees,
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
            frees: Frees::default(),
            limit,
            context: context.clone(),
        })
    }

    pub(super) fn guard(&self) -> CleanupGuard {
        self.held.guard()
    }

    pub(super) fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// What is pending: how many, and how much device memory.
    pub(super) fn pending(&self) -> (usize, usize) {
        leaf(&self.pending).map_or((0, 0), |pending| (pending.items.len(), pending.bytes))
    }

    /// Defers a free. Over the limit it does all that are pending, unless another thread does so already.
    pub(super) fn push(&self, item: Item) {
        let is_over = match leaf(&self.pending) {
            None => return count_leak(),
            Some(mut pending) => {
                pending.bytes = pending.bytes.saturating_add(item.size);
                pending.items.push(item);
                pending.items.len() > self.options.count || pending.bytes > self.limit
            }
        };
        if is_over && !self.frees.are_under_way() {
            self.flush();
        }
    }

    /// Does what is pending, unless it is held back, and returns whether there was something. What another
    /// thread is doing already is not waited for.
    pub(super) fn flush(&self) -> bool {
        // A host function cannot wait: the next free elsewhere does it.
        if self.held.is_held() || is_inside() || fork::in_child() {
            return false;
        }
        let mut free = self.frees.begin();
        let Some(pending) = leaf(&self.pending).map(|mut pending| std::mem::take(&mut *pending))
        else {
            return false;
        };
        // Not under the lock: the driver waits, perhaps for a host function that frees something.
        free.is_some = !pending.items.is_empty();
        self.free(pending);
        free.is_some
    }

    /// Attempts an allocation, and repeats it after a flush if there was too little memory, and while another
    /// thread is freeing some.
    pub(super) fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let before = self.frees.count();
        match attempt() {
            Err(error) if is_out_of_memory(&error) => {
                if self.flush() || self.frees.is_some_since(before) {
                    return self.frees.retry(attempt);
                }
                Err(error)
            }
            done => done,
        }
    }

    /// Unregisters the pinned memory that is pending, also while the rest is held back. Returns whether there was
    /// any.
    pub(super) fn unregister_all(&self) -> bool {
        if is_inside() || fork::in_child() {
            return false;
        }
        let is_registered = |item: &Item| matches!(item.what, What::Registered(..));
        let taken = leaf(&self.pending).map(|mut pending| {
            let all = std::mem::take(&mut pending.items).into_iter();
            let (registered, others) = all.partition::<Vec<_>, _>(is_registered);
            pending.items = others;
            registered
        });
        let items = taken.unwrap_or_default();
        let is_some = !items.is_empty();
        self.free(Pending { items, bytes: 0 });
        is_some
    }

    fn free(&self, pending: Pending) {
        let mut rest = Rest {
            deferral: self,
            items: pending.items.into_iter(),
        };
        for item in rest.items.by_ref() {
            let behind = Behind {
                ends: item.end.into_iter().collect(),
                owner: None,
                context: self.context.clone(),
            };
            match item.what {
                What::Device(address) => release(Resource::Memory(address), &behind),
                What::Host(start) => release(Resource::Pinned(start), &behind),
                What::Registered(start, owner) => unregister(start, owner, behind),
                What::OfPool(address, pool) => self.free_of_pool(address, pool),
            }
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

/// Items that are being freed. Those that are left, if the drop of an owner panics, are pending again.
struct Rest<'a> {
    deferral: &'a Deferral,
    items: std::vec::IntoIter<Item>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if self.items.as_slice().is_empty() {
            return;
        }
        if let Some(mut pending) = leaf(&self.deferral.pending) {
            for item in self.items.by_ref() {
                pending.bytes = pending.bytes.saturating_add(item.size);
                pending.items.push(item);
            }
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
