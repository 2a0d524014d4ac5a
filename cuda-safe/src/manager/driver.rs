//! Synchronous memory of the driver, freed in batches.

use super::{Block, DeferOptions, DriverMemory, INTERFACE_VERSION, MemoryManager, Order};
use crate::call::Result;
use crate::context::{Context, MemoryInfo};

/// A manager of synchronous memory: it allocates with `cuMemAlloc` and defers `cuMemFree`, as
/// [`DriverMemory`] does.
///
/// Each free waits for all running work. So frees are deferred and done in one batch, when more than
/// the [limit](DeferOptions) are pending or when there is not enough memory. While a
/// [guard](MemoryManager::defer_cleanup) is alive, nothing is freed, and freed memory stays reserved.
/// Pinned memory with an owner is unregistered at once; while a guard is alive, it is deferred with the
/// other frees.
#[derive(Debug)]
pub struct DriverManager {
    base: DriverMemory,
}

impl DriverManager {
    /// Creates a manager with Numba's limits for deferred frees.
    ///
    /// # Errors
    /// The device's total memory cannot be queried.
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, DeferOptions::default())
    }

    /// Creates a manager with the given limits for deferred frees.
    ///
    /// # Errors
    /// The device's total memory cannot be queried.
    #[inline]
    pub fn with(context: &Context, options: DeferOptions) -> Result<Self> {
        Ok(Self { base: DriverMemory::new(context, options)? })
    }
}

// SAFETY: the memory comes from the driver, has the requested size, is aligned to 512 bytes, and is
// freed after the event of the order and all running work.
unsafe impl MemoryManager for DriverManager {
    #[inline]
    fn interface_version() -> u32 {
        INTERFACE_VERSION
    }

    #[inline]
    fn base(&self) -> &DriverMemory {
        &self.base
    }

    #[inline]
    fn allocate(&self, size: usize, _: Order<'_>) -> Result<Block> {
        self.base.allocate(size)
    }

    #[inline]
    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base.free(block, order) }
    }

    #[inline]
    fn memory_info(&self) -> Result<MemoryInfo> {
        self.base.context().memory_info()
    }

    #[inline]
    fn trim(&self, _: usize) -> Result<usize> {
        let (_, bytes) = self.base.pending();
        Ok(if self.base.flush() { bytes } else { 0 })
    }
}
