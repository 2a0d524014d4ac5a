//! The driver's own pools.

use super::order::{OrderParent, is_default, refuse_captured};
use super::{Block, CleanupGuard, DeferOptions, DriverMemory, IpcHandle, MemoryManager, Order};
use crate::attribute::MEMORY_POOLS_SUPPORTED;
use crate::call::call;
use crate::context::{Context, MemoryInfo};
use crate::error::{Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::memory::MemoryPool;
use crate::release::{self, Resource, release};
use crate::report::count_leak;
use crate::stream::stay_outside_raw;
use cuda_sys::CUmemoryPool;

/// A manager of stream-ordered memory: `cuMemAllocFromPoolAsync` of one of the driver's pools, and
/// `cuMemFreeAsync`.
///
/// Memory of no stream's order, or of a default stream's, is plain memory, whose frees are [put off](DriverMemory), and so is all where
/// the device or the driver has no pools. Nothing else is put off: a free in the order of a stream waits for
/// nothing, also while clean-up is held back.
#[derive(Debug)]
pub struct OrderedManager {
    base: DriverMemory,
    pool: Option<MemoryPool>,
}

/// The token of memory of the pool; that of plain memory is its address, and never this.
const OF_POOL: u64 = 1;

impl OrderedManager {
    /// Over the pool that the device allocates from by itself, which is never destroyed.
    ///
    /// # Errors
    /// The device does not tell whether it has pools.
    pub fn new(context: &Context) -> Result<Self> {
        let base = DriverMemory::new(context, DeferOptions::default())?;
        let pool = match context.device().attribute(MEMORY_POOLS_SUPPORTED) {
            Ok(true) => match MemoryPool::default_of(base.context()) {
                Err(Error::Missing(_)) => None,
                pool => Some(pool?),
            },
            Ok(false) => None,
            // Drivers without pools do not know the question.
            Err(Error::Invalid(what)) if matches!(*what, Invalid::UnknownAttribute { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { base, pool })
    }

    /// The pool, if there is one: for its [attributes](crate::pool::attribute), how much it keeps above all.
    pub fn pool(&self) -> Option<&MemoryPool> {
        self.pool.as_ref()
    }

    fn allocate_of_pool(&self, pool: CUmemoryPool, size: usize, order: Order<'_>) -> Result<Block> {
        release::drain();
        let mut address = 0;
        let place = &raw mut address;
        let outside = order.raw().map(stay_outside_raw);
        if let Some(None) = outside {
            return Err(Error::InHostFunction);
        }
        refuse_captured(order, self.base.context())?;
        order.call(self.base.context(), |stream| {
            // SAFETY: the pool and the stream are alive, and the pointer is to a local.
            unsafe { call!(cuMemAllocFromPoolAsync(place, size, pool, stream)) }
        })?;
        Ok(Block {
            address,
            size,
            token: OF_POOL,
        })
    }
}

// SAFETY: the memory is the driver's, as large as was asked for and aligned to 512 bytes. That of the pool
// is freed in the order of a stream, or as plain memory is, by a wait for all work.
unsafe impl MemoryManager for OrderedManager {
    fn base(&self) -> &DriverMemory {
        &self.base
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        match &self.pool {
            Some(pool) if order.raw().is_some_and(|raw| !is_default(raw)) => {
                self.allocate_of_pool(pool.as_raw(), size, order)
            }
            _ => self.base.allocate(size),
        }
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        if block.token != OF_POOL {
            // SAFETY: the caller's promise; it is plain memory.
            return unsafe { self.base.free(block, order) };
        }
        if fork::in_child() {
            return count_leak();
        }
        let parent = OrderParent {
            order,
            context: self.base.context(),
        };
        match order.raw() {
            // The question whether a default stream is captured would be of another context's, perhaps.
            Some(stream) if !is_default(stream) => {
                release(Resource::OrderedMemory(block.address, stream), &parent);
            }
            // Behind all work.
            _ => self.base.free_of_pool(block),
        }
    }

    /// That of the device, with what the pool keeps.
    fn memory_info(&self) -> Result<MemoryInfo> {
        use crate::memory::pool::attribute::{RESERVED_CURRENT, USED_CURRENT};
        let info = self.base.context().memory_info()?;
        let kept = match &self.pool {
            Some(pool) => {
                let (reserved, used) = (
                    pool.attribute(RESERVED_CURRENT)?,
                    pool.attribute(USED_CURRENT)?,
                );
                usize::try_from(reserved.saturating_sub(used)).unwrap_or(0)
            }
            None => 0,
        };
        Ok(MemoryInfo {
            free: info.free.saturating_add(kept),
            total: info.total,
        })
    }

    /// # Errors
    /// [`Invalid::NotShareable`](crate::Invalid::NotShareable) for memory of the pool.
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        if block.token == OF_POOL {
            return Err(Invalid::NotShareable {
                memory: "stream-ordered",
            }
            .into());
        }
        IpcHandle::of(self.base.context(), block)
    }

    fn defer_cleanup(&self) -> CleanupGuard {
        self.base.defer_cleanup()
    }

    fn trim(&self, keep: usize) -> Result<usize> {
        let (_, pending) = self.base.pending();
        let flushed = if self.base.flush() { pending } else { 0 };
        if let Some(pool) = &self.pool {
            pool.trim_to(keep)?;
        }
        Ok(flushed)
    }
}
