//! Stream-ordered memory from a pool of the driver.

use crate::check::INTERFACE;
use cuda_safe::context::MemoryInfo;
use cuda_safe::device::attribute::MEMORY_POOLS_SUPPORTED;
use cuda_safe::manager::{
    Block, CleanupGuard, DeferOptions, DriverMemory, IpcHandle, MemoryManager, Order,
};
use cuda_safe::memory::pool::attribute::{RESERVED_CURRENT, USED_CURRENT};
use cuda_safe::memory::{MemoryAccess, MemoryLocation, MemoryPool, MemoryPoolOptions};
use cuda_safe::{Context, Error, Invalid, Result};

/// A manager of stream-ordered memory: it allocates from a memory pool of the driver with
/// `cuMemAllocFromPoolAsync`, and frees with `cuMemFreeAsync`.
///
/// It allocates synchronous memory, whose frees are [deferred](DriverMemory), for requests without a
/// stream or on a default stream, and for all requests if the device or the driver has no pools.
/// Stream-ordered frees of pool memory are not deferred: such a free waits for nothing, even while a
/// clean-up guard is alive.
#[derive(Debug)]
pub struct OrderedManager {
    base: DriverMemory,
    pool: Option<MemoryPool>,
    /// Whether the pool was created for this manager.
    is_own: bool,
}

/// A flag in the token of pool memory; the other bits are the address where the allocation begins. The
/// token of synchronous memory is its address, which is a multiple of a larger power of two.
const OF_POOL: u64 = 1;

#[inline]
fn is_of_pool(block: &Block) -> bool {
    block.token & OF_POOL != 0
}

impl OrderedManager {
    /// Creates a manager that uses the device's default memory pool, which is never destroyed.
    ///
    /// # Errors
    /// The query whether the device supports memory pools fails.
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        let base = DriverMemory::new(context, DeferOptions::default())?;
        let pool = match context.device().attribute(MEMORY_POOLS_SUPPORTED) {
            Ok(true) => match MemoryPool::default_of(base.context()) {
                Err(Error::Missing(_)) => None,
                pool => Some(pool?),
            },
            Ok(false) => None,
            // Drivers without memory pools do not know this attribute.
            Err(Error::Invalid(_)) => None,
            Err(error) => return Err(error),
        };
        Ok(Self { base, pool, is_own: false })
    }

    /// Creates a manager with a memory pool of its own. If the pool is
    /// [shareable](cuda_safe::memory::MemoryPoolOptions::shareable), its memory has
    /// [handles](MemoryManager::ipc_handle), and the pool can be [exported](MemoryPool::export) like
    /// any other. Dropping the manager destroys the pool, which waits for all work of the context.
    ///
    /// # Errors
    /// See [`MemoryPool::new`]. [`Invalid::NoAccessToPool`] if the context's device has no access to the
    /// pool, because the pool is located elsewhere.
    ///
    /// ```no_run
    /// use cuda_memory::OrderedManager;
    /// use cuda_safe::manager::set_memory_manager;
    /// use cuda_safe::{Context, Device};
    /// use cuda_safe::memory::MemoryPoolOptions;
    ///
    /// let options = MemoryPoolOptions { shareable: true, ..Default::default() };
    /// set_memory_manager(move |context| OrderedManager::with(context, options))?;
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let manager = context.memory_manager_as::<OrderedManager>()?.expect("the manager is set");
    /// # #[cfg(unix)]
    /// let descriptor = manager.pool().expect("the manager has a pool").export()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn with(context: &Context, options: MemoryPoolOptions) -> Result<Self> {
        let base = DriverMemory::new(context, DeferOptions::default())?;
        let pool = MemoryPool::new(base.context(), options)?;
        check_access(&pool, options.location, base.context())?;
        Ok(Self { base, pool: Some(pool), is_own: true })
    }

    /// Returns the memory pool, if there is one. Its [attributes](cuda_safe::memory::pool::attribute) control, for
    /// example, how much unused memory it keeps.
    #[inline]
    pub fn pool(&self) -> Option<&MemoryPool> {
        self.pool.as_ref()
    }
}

/// Returns an error unless the context's device can read and write the memory of a new pool.
#[inline]
fn check_access(
    pool: &MemoryPool,
    location: Option<MemoryLocation>,
    context: &Context,
) -> Result<()> {
    let device = context.device();
    let Some(other) = location.filter(|its| *its != MemoryLocation::Device(device)) else {
        return Ok(());
    };
    match pool.access(&device)? {
        MemoryAccess::None | MemoryAccess::Read => {
            Err(Invalid::NoAccessToPool { pool: other.to_string(), device: device.ordinal() }
                .into())
        }
        _ => Ok(()),
    }
}

/// Returns whether memory of an order comes from the pool: if the order has a stream that is not a
/// default stream.
#[inline]
fn has_own_stream(order: Order<'_>) -> bool {
    const PER_THREAD: usize = 2;
    order.key().is_some_and(|key| key > PER_THREAD)
}

// SAFETY: the memory comes from the driver, has the requested size and is aligned to 512 bytes. Pool
// memory is freed in stream order, or like synchronous memory, by a wait for all work.
unsafe impl MemoryManager for OrderedManager {
    #[inline]
    fn interface_version() -> u32 {
        INTERFACE
    }

    #[inline]
    fn base(&self) -> &DriverMemory {
        &self.base
    }

    #[inline]
    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let Some(pool) = self.pool.as_ref().filter(|_| has_own_stream(order)) else {
            return self.base.allocate(size);
        };
        let block = self.base.allocate_from_pool(pool, size, order)?;
        let token = block.address | OF_POOL;
        Ok(Block { token, ..block })
    }

    #[inline]
    unsafe fn free(&self, block: Block, order: Order<'_>) {
        match self.pool.as_ref().filter(|_| is_of_pool(&block)) {
            // SAFETY: the caller's promise; the block was allocated from this pool.
            Some(pool) => unsafe { self.base.free_to_pool(block, pool, order) },
            // SAFETY: the caller's promise; the block is synchronous memory.
            None => unsafe { self.base.free(block, order) },
        }
    }

    /// Returns the memory of the device, where the unused bytes of the pool count as free.
    #[inline]
    fn memory_info(&self) -> Result<MemoryInfo> {
        let info = self.base.context().memory_info()?;
        let kept = match &self.pool {
            Some(pool) => {
                let (reserved, used) =
                    (pool.attribute(RESERVED_CURRENT)?, pool.attribute(USED_CURRENT)?);
                usize::try_from(reserved.saturating_sub(used)).unwrap_or(0)
            }
            None => 0,
        };
        Ok(MemoryInfo { free: info.free.saturating_add(kept), total: info.total })
    }

    /// # Errors
    /// [`Invalid::NotShareable`](cuda_safe::Invalid::NotShareable) for memory of a pool that is not
    /// [shareable](cuda_safe::memory::MemoryPoolOptions::shareable), such as the device's default pool.
    #[inline]
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        if !is_of_pool(block) {
            return IpcHandle::of(self.base.context(), block);
        }
        match self.pool.as_ref().filter(|_| self.is_own) {
            Some(pool) => IpcHandle::of_pool_memory(pool, block.token - OF_POOL, block),
            None => Err(Invalid::NotShareable { memory: "stream-ordered" }.into()),
        }
    }

    #[inline]
    fn defer_cleanup(&self) -> CleanupGuard {
        self.base.defer_cleanup()
    }

    #[inline]
    fn trim(&self, keep: usize) -> Result<usize> {
        let (_, pending) = self.base.pending();
        let flushed = if self.base.flush() { pending } else { 0 };
        if let Some(pool) = &self.pool {
            pool.trim_to(keep)?;
        }
        Ok(flushed)
    }
}
