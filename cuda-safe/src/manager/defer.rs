//! Deferred frees, which are done in batches.

use super::free_counter::FreeCounter;
use super::is_out_of_memory;
use super::registered::Registered;
use crate::call::{Result, count_leak, debug_struct, fork, in_host_function};
use crate::context::{Context, PinnedMemory, SyncMemory};
use crate::device::Device;
use crate::event::{AfterEvents, Event};
use crate::release::{Destroy, Keep, release};
use crate::sync::{Mutex, MutexGuard};
use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, TryLockError};

/// The limits for pending frees. When one is exceeded, all pending frees are done. The defaults are
/// Numba's.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeferOptions {
    /// The maximum number of pending frees. The default is 10.
    pub count: usize,
    /// The maximum of pending device memory, as a share of the device's total memory. The default is
    /// 0.2.
    pub share: f64,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for DeferOptions {
    #[inline]
    fn default() -> Self {
        Self { count: 10, share: 0.2, _non_exhaustive: () }
    }
}

impl DeferOptions {
    /// Returns the share in bytes.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "a share of memory need not be exact, and casts of floats saturate"
    )]
    #[inline]
    pub(crate) fn bytes_of(&self, device: Device) -> Result<usize> {
        Ok((device.total_memory()? as f64 * self.share) as usize)
    }
}

/// A guard that makes a manager defer clean-up which waits for work, also of host memory. See
/// [`defer_cleanup`](super::MemoryManager::defer_cleanup). Dropping it does no clean-up itself: the
/// next free over the [limit](DeferOptions) does.
#[must_use = "clean-up is deferred while the guard is alive"]
pub struct CleanupGuard(#[allow(dead_code, reason = "held, not read")] Box<dyn Any + Send>);

impl CleanupGuard {
    /// Creates a guard that owns `value`. The `Drop` of `value` ends the deferral.
    pub fn holding(value: impl Any + Send) -> Self {
        Self(Box::new(value))
    }

    /// Combines two guards into one.
    #[inline]
    pub fn and(self, other: Self) -> Self {
        Self::holding((self, other))
    }
}

debug_struct! { CleanupGuard |_its| { .. } }

/// The number of live guards.
#[derive(Clone, Debug, Default)]
pub(super) struct Held(Arc<AtomicUsize>);

impl Held {
    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    #[inline]
    pub(crate) fn guard(&self) -> CleanupGuard {
        self.0.fetch_add(1, Ordering::AcqRel);
        CleanupGuard::holding(End(self.clone()))
    }
}

/// Decrements the number of live guards when it is dropped.
struct End(Held);

impl Drop for End {
    #[inline]
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Memory to free.
pub(super) enum What {
    Device(SyncMemory),
    Host(PinnedMemory),
    Registered(Registered<Box<dyn Any + Send>>),
    /// Memory whose free waits for nothing itself, and which any work may have used.
    OfPool(Box<dyn Destroy>),
}

impl What {
    #[inline]
    pub(super) fn release(self, owners: &impl Keep) {
        match self {
            Self::Device(memory) => release(memory, owners),
            Self::Host(memory) => release(memory, owners),
            Self::Registered(memory) => release(memory, owners),
            Self::OfPool(block) => release(block, owners),
        }
    }
}

pub(super) struct Item {
    pub(super) what: What,
    /// The number of bytes of device memory, otherwise 0.
    pub(super) size: usize,
    /// The event after the last use; `None` means after all work.
    pub(super) end: Option<Event>,
}

#[derive(Default)]
struct Pending {
    items: Vec<Item>,
    bytes: usize,
}

/// The queue of a manager's deferred frees.
pub(super) struct Deferral {
    options: DeferOptions,
    held: Held,
    pending: Mutex<Pending>,
    frees: FreeCounter,
    /// The maximum number of pending bytes.
    limit: usize,
    context: Context,
}

impl Deferral {
    #[inline]
    pub(super) fn new(context: &Context, options: DeferOptions) -> Result<Self> {
        let limit = options.bytes_of(context.device())?;
        Ok(Self {
            options,
            held: Held::default(),
            pending: Mutex::default(),
            frees: FreeCounter::default(),
            limit,
            context: context.clone(),
        })
    }

    #[inline]
    pub(crate) fn guard(&self) -> CleanupGuard {
        self.held.guard()
    }

    #[inline]
    pub(crate) fn is_held(&self) -> bool {
        self.held.is_held()
    }

    /// Returns the number of pending frees and the number of their bytes of device memory.
    #[inline]
    pub(super) fn pending(&self) -> (usize, usize) {
        leaf(&self.pending).map_or((0, 0), |pending| (pending.items.len(), pending.bytes))
    }

    /// Defers a free. If the limit is exceeded, all pending frees are done, unless another thread is
    /// doing them already.
    #[inline]
    pub(super) fn push(&self, item: Item) {
        let is_over = match leaf(&self.pending) {
            None => return count_leak(),
            Some(mut pending) => {
                pending.bytes = pending.bytes.saturating_add(item.size);
                pending.items.push(item);
                pending.items.len() > self.options.count || pending.bytes > self.limit
            }
        };
        if is_over && !self.frees.are_in_progress() {
            self.flush();
        }
    }

    /// Does all pending frees, unless a guard is alive, and returns whether there were any. Does not
    /// wait for frees that another thread is doing.
    #[inline]
    pub(super) fn flush(&self) -> bool {
        // A host function cannot wait. The next free on another thread does the pending ones.
        if self.held.is_held() || in_host_function() || fork::in_child() {
            return false;
        }
        let mut free = self.frees.begin();
        let Some(pending) = leaf(&self.pending).map(|mut pending| std::mem::take(&mut *pending))
        else {
            return false;
        };
        // This is not under the lock, because the driver waits here, possibly for a host function that
        // frees memory.
        let is_some = !pending.items.is_empty();
        if is_some {
            free.mark_freed();
        }
        self.free(pending);
        is_some
    }

    /// Attempts an allocation. If there was not enough memory, repeats it after a flush and while
    /// another thread is freeing some.
    pub(crate) fn retry<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let before = self.frees.completed();
        match attempt() {
            Err(error) if is_out_of_memory(&error) => {
                if self.flush() || self.frees.has_freed_since(before) {
                    return self.frees.retry(attempt);
                }
                Err(error)
            }
            done => done,
        }
    }

    /// Unregisters the pending pinned memory, even while a guard is alive. Returns whether there was
    /// any.
    #[inline]
    pub(super) fn unregister_all(&self) -> bool {
        if in_host_function() || fork::in_child() {
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

    #[inline]
    fn free(&self, pending: Pending) {
        let mut rest = Rest { deferral: self, items: pending.items.into_iter() };
        for item in rest.items.by_ref() {
            let owners = AfterEvents {
                events: item.end.into_iter().collect(),
                owner: None,
                context: self.context.clone(),
            };
            item.what.release(&owners);
        }
    }
}

/// Items that are being freed. If the drop of an owner panics, the remaining ones become pending again.
struct Rest<'a> {
    deferral: &'a Deferral,
    items: std::vec::IntoIter<Item>,
}

impl Drop for Rest<'_> {
    #[inline]
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
    /// Does all pending frees, even if a guard is still alive, as the manager ends here.
    #[inline]
    fn drop(&mut self) {
        let pending = self.pending.get_mut();
        let pending = std::mem::take(pending.unwrap_or_else(PoisonError::into_inner));
        self.free(pending);
    }
}

impl fmt::Debug for Deferral {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = self.pending();
        f.debug_struct("Deferral")
            .field("options", &self.options)
            .field("pending", &count)
            .field("bytes", &bytes)
            .finish_non_exhaustive()
    }
}

/// Locks data that is never locked during a call of other code.
///
/// A manager holds a lock for a few instructions only, and never while it calls the driver, another
/// manager or user code. So a thread may take one anywhere, also on a driver callback thread and in the
/// report hook. In a forked child the lock may be held
/// by a thread that does not exist there; the result is then `None`.
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
