//! The driver's own memory, freed in batches.

use super::{Block, DeferOptions, DriverMemory, INTERFACE_VERSION, MemoryManager, Order};
use crate::context::{Context, MemoryInfo};
use crate::error::Result;

/// A manager of the driver's plain memory: `cuMemAlloc`, and `cuMemFree` put off, as
/// [`DriverMemory`] has it.
///
/// Each free waits for all running work; so they are done together, when more than
/// [so many](DeferOptions) are pending, and when there is too little memory. While a
/// [guard](MemoryManager::defer_cleanup) lives none is done, and memory that was freed stays taken. Pinned
/// memory of an owner is unregistered at once, but with the other frees while a guard lives.
#[derive(Debug)]
pub struct DriverManager {
    base: DriverMemory,
}

impl DriverManager {
    /// With the limits that Numba has.
    ///
    /// # Errors
    /// The device does not tell how much memory it has.
    pub fn new(context: &Context) -> Result<Self> {
        Self::with(context, DeferOptions::default())
    }

    /// With other limits.
    ///
    /// # Errors
    /// The device does not tell how much memory it has.
    pub fn with(context: &Context, options: DeferOptions) -> Result<Self> {
        Ok(Self {
            base: DriverMemory::new(context, options)?,
        })
    }
}

// SAFETY: the memory is the driver's, as large as was asked for, aligned to 512 bytes, and freed behind
// the order's events and all running work.
unsafe impl MemoryManager for DriverManager {
    fn interface_version() -> u32 {
        INTERFACE_VERSION
    }

    fn base(&self) -> &DriverMemory {
        &self.base
    }

    fn allocate(&self, size: usize, _: Order<'_>) -> Result<Block> {
        self.base.allocate(size)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base.free(block, order) }
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.base.context().memory_info()
    }

    fn trim(&self, _: usize) -> Result<usize> {
        let (_, bytes) = self.base.pending();
        Ok(if self.base.flush() { bytes } else { 0 })
    }
}
