//! A manager that tells an observer which of its methods are called.

use cuda_safe::Result;
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::{
    Block, CleanupGuard, DriverManager, DriverMemory, HostBlock, IpcHandle, MemoryManager, Order,
    StreamEnd,
};
use cuda_safe::memory::PinnedFlags;
use std::any::Any;
use std::fmt::Debug;
use std::ptr::NonNull;

/// Is told the name of each method that is called, and `drop`.
pub(super) trait Observer: Debug + Send + Sync + 'static {
    /// Whether the manager is called with its context current.
    const NEEDS_CURRENT_CONTEXT: bool = false;

    fn called(&self, method: &'static str);
}

/// Forwards every call to the driver manager.
#[derive(Debug)]
pub(super) struct Watched<O: Observer> {
    pub(super) inner: DriverManager,
    pub(super) observer: O,
}

impl<O: Observer> Drop for Watched<O> {
    fn drop(&mut self) {
        self.observer.called("drop");
    }
}

// SAFETY: every call is forwarded to the inner manager.
unsafe impl<O: Observer> MemoryManager for Watched<O> {
    fn interface_version() -> u32 {
        1
    }

    fn needs_current_context(&self) -> bool {
        O::NEEDS_CURRENT_CONTEXT
    }

    fn base(&self) -> &DriverMemory {
        self.inner.base()
    }

    fn initialize(&self) -> Result<()> {
        self.observer.called("initialize");
        self.inner.initialize()
    }

    fn reset(&self) {
        self.observer.called("reset");
        self.inner.reset();
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.observer.called("allocate");
        self.inner.allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        self.observer.called("free");
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.free(block, order) }
    }

    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        self.observer.called("allocate_host");
        self.inner.allocate_host(size, flags)
    }

    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        self.observer.called("free_host");
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.free_host(block, order) }
    }

    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        self.observer.called("pin");
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.pin(start, size, flags) }
    }

    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        self.observer.called("unpin");
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.unpin(block) }
    }

    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        self.observer.called("release_pin");
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.release_pin(block, owner, order) }
    }

    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        self.observer.called("allocate_managed");
        self.inner.allocate_managed(size, global)
    }

    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        self.observer.called("free_managed");
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.free_managed(block, order) }
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.observer.called("memory_info");
        self.inner.memory_info()
    }

    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        self.observer.called("ipc_handle");
        self.inner.ipc_handle(block)
    }

    fn defer_cleanup(&self) -> CleanupGuard {
        self.observer.called("defer_cleanup");
        self.inner.defer_cleanup()
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        self.observer.called("trim");
        self.inner.trim(keep)
    }

    fn stream_ends(&self, _: &StreamEnd<'_>) {
        self.observer.called("stream_ends");
    }
}
