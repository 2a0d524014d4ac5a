//! Managers that are called with their context current.

use super::{Block, CleanupGuard, DriverMemory, HostBlock, MemoryManager, Order, StreamEnd};
use crate::call::{Result, debug, fork, in_host_function, refuse_in_host_function};
use crate::context::{CurrentContext, MemoryInfo};
use crate::manager::{IpcHandle, PinnedFlags};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Makes the context of a manager current, if the manager
/// [requires](MemoryManager::needs_current_context) that.
///
/// # Errors
/// The caller is a host function; the driver refuses, as it does on its callback threads.
#[inline]
fn enter(manager: &dyn MemoryManager) -> Result<Option<CurrentContext>> {
    if !manager.needs_current_context() {
        return Ok(None);
    }
    refuse_in_host_function()?;
    manager.base().context().make_current().map(Some)
}

/// Makes the context of a manager current for a call that cannot fail. Where that is not possible, the
/// manager is called without it.
#[inline]
pub(crate) fn try_enter(manager: &dyn MemoryManager) -> Option<CurrentContext> {
    if !manager.needs_current_context() || in_host_function() || fork::in_child() {
        return None;
    }
    manager.base().context().make_current().ok()
}

/// Returns a manager whose methods are called with its context current, if the manager
/// [requires](MemoryManager::needs_current_context) that. Any other manager is returned unchanged, so
/// its calls have no overhead.
///
/// [`set_memory_manager`](super::set_memory_manager) does this with the manager of a context. A manager
/// that rarely calls an inner one does it with the inner manager, and need not have the context current
/// in its own methods.
#[inline]
pub fn with_current_context(manager: Box<dyn MemoryManager>) -> Box<dyn MemoryManager> {
    match manager.needs_current_context() {
        false => manager,
        true => Box::new(WithCurrent { inner: ManuallyDrop::new(manager) }),
    }
}

/// Returns the manager that was given to [`with_current_context`].
#[inline]
pub(crate) fn without_current(manager: &dyn MemoryManager) -> &dyn MemoryManager {
    match manager.as_any().downcast_ref::<WithCurrent>() {
        Some(its) => &**its.inner,
        None => manager,
    }
}

/// A wrapper that calls a manager with its context current.
struct WithCurrent {
    inner: ManuallyDrop<Box<dyn MemoryManager>>,
}

impl WithCurrent {
    #[inline]
    fn inner(&self) -> &dyn MemoryManager {
        &**self.inner
    }

    fn call<T>(&self, call: impl FnOnce(&dyn MemoryManager) -> Result<T>) -> Result<T> {
        let _current = enter(self.inner())?;
        call(self.inner())
    }

    /// Calls a method that cannot fail.
    fn call_always<T>(&self, call: impl FnOnce(&dyn MemoryManager) -> T) -> T {
        let _current = try_enter(self.inner());
        call(self.inner())
    }
}

// SAFETY: all memory is that of the inner manager.
unsafe impl MemoryManager for WithCurrent {
    #[inline]
    fn interface_version() -> u32 {
        // The version of the inner manager was checked before it was boxed.
        super::INTERFACE_VERSION
    }

    #[inline]
    fn needs_current_context(&self) -> bool {
        true
    }

    #[inline]
    fn base(&self) -> &DriverMemory {
        self.inner().base()
    }

    #[inline]
    fn wrapped(&self) -> Option<&dyn MemoryManager> {
        Some(self.inner())
    }

    #[inline]
    fn initialize(&self) -> Result<()> {
        self.call(|inner| inner.initialize())
    }

    #[inline]
    fn reset(&self) {
        self.call_always(|inner| inner.reset());
    }

    #[inline]
    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.call(|inner| inner.allocate(size, order))
    }

    #[inline]
    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise; the block is of the inner manager.
        self.call_always(|inner| unsafe { inner.free(block, order) });
    }

    #[inline]
    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        self.call(|inner| inner.allocate_host(size, flags))
    }

    #[inline]
    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        // SAFETY: the caller's promise; the block is of the inner manager.
        self.call_always(|inner| unsafe { inner.free_host(block, order) });
    }

    #[inline]
    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        // SAFETY: the caller's promise.
        self.call(|inner| unsafe { inner.pin(start, size, flags) })
    }

    #[inline]
    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        // SAFETY: the caller's promise; the block is of the inner manager.
        self.call(|inner| unsafe { inner.unpin(block) })
    }

    #[inline]
    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        // SAFETY: the caller's promise; the block is of the inner manager.
        self.call_always(|inner| unsafe { inner.release_pin(block, owner, order) });
    }

    #[inline]
    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        self.call(|inner| inner.allocate_managed(size, global))
    }

    #[inline]
    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise; the block is of the inner manager.
        self.call_always(|inner| unsafe { inner.free_managed(block, order) });
    }

    #[inline]
    fn memory_info(&self) -> Result<MemoryInfo> {
        self.call(|inner| inner.memory_info())
    }

    #[inline]
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        self.call(|inner| inner.ipc_handle(block))
    }

    #[inline]
    fn defer_cleanup(&self) -> CleanupGuard {
        self.call_always(|inner| inner.defer_cleanup())
    }

    #[inline]
    fn trim(&self, keep: usize) -> Result<usize> {
        self.call(|inner| inner.trim(keep))
    }

    /// Does nothing: the inner manager is [wrapped](MemoryManager::wrapped), and so is notified
    /// directly.
    #[inline]
    fn stream_ends(&self, _: &StreamEnd<'_>) {}
}

impl Drop for WithCurrent {
    #[inline]
    fn drop(&mut self) {
        let _current = try_enter(self.inner());
        // SAFETY: this is the only place where it is dropped, once, and it is not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

debug! { WithCurrent |its, f| fmt::Debug::fmt(its.inner(), f) }
