//! NCCL's allocator as a memory manager.

use crate::call::nccl;
use crate::error::Error as NcclError;
use cuda_safe::manager::{
    Block, CleanupGuard, DeferOptions, DriverMemory, MemoryManager, Order, may_block, report_leak,
    without_invalidating_captures,
};
use cuda_safe::{Context, Error, Result};
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};

/// A [memory manager](cuda_safe::manager) whose device memory is that of `ncclMemAlloc`: it can be
/// [registered](crate::Registered), so that other GPUs access it without copies. Since NCCL 2.19.
///
/// NCCL allocates in units of 2 MiB. A free waits for all work of the context, and calls of other threads wait for the
/// free: the program hangs if an operation runs whose part another rank of this process has yet to enqueue. So it is
/// best as the upstream of a pool:
///
/// ```no_run
/// use cuda_memory::{CachingManager, CachingOptions};
/// use cuda_nccl::NcclManager;
/// use cuda_safe::manager::set_memory_manager;
///
/// set_memory_manager(|context| {
///     let upstream = NcclManager::new(context)?;
///     CachingManager::with_upstream(context, upstream, CachingOptions::default())
/// })?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// The context must be a primary context. Pinned and managed memory come from the driver.
///
/// Raw: [`ncclMemAlloc`](fn@crate::sys::ncclMemAlloc), [`ncclMemFree`](fn@crate::sys::ncclMemFree).
#[derive(Debug)]
#[doc(alias = "ncclMemAlloc", alias = "ncclMemFree")]
pub struct NcclManager {
    base: DriverMemory,
    /// Blocks that were freed while the host could not wait for the work that uses them.
    freed: Mutex<Vec<Block>>,
}

impl NcclManager {
    /// Returns a manager for a context.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        let base = DriverMemory::new(context, DeferOptions::default())?;
        Ok(Self { base, freed: Mutex::new(Vec::new()) })
    }

    #[inline]
    fn freed(&self) -> std::sync::MutexGuard<'_, Vec<Block>> {
        self.freed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the blocks whose frees were deferred, after all work of the context.
    ///
    /// # Errors
    /// An error of the work. The blocks are then kept.
    #[inline]
    fn flush(&self) -> Result<()> {
        if self.freed().is_empty() || !may_block() || self.base.is_cleanup_deferred() {
            return Ok(());
        }
        // Blocks that are freed from now on are not part of this flush.
        let blocks = std::mem::take(&mut *self.freed());
        if let Err(error) = self.base.synchronize() {
            self.freed().extend(blocks);
            return Err(error);
        }
        for block in blocks {
            if let Err(error) = self.free_now(block) {
                report_leak("memory of NCCL", error);
            }
        }
        Ok(())
    }

    /// Frees memory that no work uses.
    #[inline]
    fn free_now(&self, block: Block) -> Result<()> {
        let address = pointer(block.address);
        self.call(|| {
            // SAFETY: the memory was allocated by NCCL, is freed once, and no work uses it.
            unsafe { nccl!(ncclMemFree(address)) }
        })
    }

    /// Makes a call with the context current.
    fn call(&self, call: impl FnOnce() -> Result<crate::call::Progress, NcclError>) -> Result<()> {
        without_invalidating_captures(|| {
            let called = self.base.context().with_current(|_| call())?;
            called.map(|_| ()).map_err(|error| match error {
                NcclError::Driver(error) => error,
                other => Error::Manager(Arc::new(other)),
            })
        })
    }
}

#[inline]
fn pointer(address: u64) -> *mut c_void {
    core::ptr::without_provenance_mut(address as usize)
}

// SAFETY: NCCL's memory has the requested size, is aligned to more than 256 bytes, and is mapped until it is freed, which
// happens after all work of the context.
unsafe impl MemoryManager for NcclManager {
    #[inline]
    fn interface_version() -> u32 {
        1
    }

    #[inline]
    fn base(&self) -> &DriverMemory {
        &self.base
    }

    #[inline]
    fn reset(&self) {
        // An error of the work is one of each later call; the memory stays.
        let _ = self.flush();
        self.base.reset();
    }

    #[inline]
    fn allocate(&self, size: usize, _: Order<'_>) -> Result<Block> {
        self.flush()?;
        let mut address = core::ptr::null_mut();
        let place = &raw mut address;
        self.call(|| {
            // SAFETY: the pointer is valid for a write.
            unsafe { nccl!(ncclMemAlloc(place, size)) }
        })?;
        let address = address.addr() as u64;
        Ok(Block { address, size, token: address })
    }

    #[inline]
    unsafe fn free(&self, block: Block, _: Order<'_>) {
        self.freed().push(block);
        // An error of the work is one of each later call; the memory stays.
        let _ = self.flush();
    }

    #[inline]
    fn defer_cleanup(&self) -> CleanupGuard {
        self.base.defer_cleanup()
    }

    #[inline]
    fn trim(&self, _: usize) -> Result<usize> {
        let pending = self.freed().iter().map(|block| block.size).sum();
        self.flush()?;
        Ok(if self.freed().is_empty() { pending } else { 0 })
    }
}
