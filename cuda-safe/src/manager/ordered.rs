//! The driver's own pools.

use super::capture::enqueue;
use super::order::OrderParent;
use super::{
    Block, CleanupGuard, DeferOptions, DriverMemory, INTERFACE_VERSION, IpcHandle, MemoryManager,
    Order,
};
use crate::attribute::MEMORY_POOLS_SUPPORTED;
use crate::call::call;
use crate::capture::Operation;
use crate::context::{Context, MemoryInfo};
use crate::error::{Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use crate::memory::{MemoryPool, MemoryPoolOptions};
use crate::release::{Parent, Resource, release};
use crate::report::count_leak;
use crate::stream::OrderedOn;
use crate::stream::is_default;
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
    /// After what is put off of its memory.
    pool: Option<MemoryPool>,
    /// Whether it was made for this manager.
    is_own: bool,
}

/// A part of the token of memory of the pool, beside the address where the allocation begins; the token of
/// plain memory is its address, which is a multiple of more.
const OF_POOL: u64 = 1;

fn is_of_pool(block: &Block) -> bool {
    block.token & OF_POOL != 0
}

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
        Ok(Self {
            base,
            pool,
            is_own: false,
        })
    }

    /// Over a pool of its own, which is made now; one that is
    /// [shareable](crate::MemoryPoolOptions::shareable) has [handles](MemoryManager::ipc_handle) of its memory,
    /// and is [exported](MemoryPool::export) as any. It is destroyed at the manager's end, which waits for all
    /// work of the context.
    ///
    /// # Errors
    /// Those of [`MemoryPool::new`]; [`Invalid::NoAccessToPool`] for one of another place.
    ///
    /// ```no_run
    /// use cuda_safe::manager::{OrderedManager, set_memory_manager};
    /// use cuda_safe::{Context, Device, MemoryPoolOptions};
    ///
    /// let options = MemoryPoolOptions { shareable: true, ..Default::default() };
    /// set_memory_manager(move |context| OrderedManager::with(context, options))?;
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let manager = context.memory_manager_as::<OrderedManager>()?.expect("it was chosen");
    /// # #[cfg(unix)]
    /// let descriptor = manager.pool().expect("it has its own").export()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn with(context: &Context, options: MemoryPoolOptions) -> Result<Self> {
        let base = DriverMemory::new(context, DeferOptions::default())?;
        let pool = MemoryPool::for_manager(base.context(), options)?;
        Ok(Self {
            base,
            pool: Some(pool),
            is_own: true,
        })
    }

    /// The pool, if there is one: for its [attributes](crate::pool::attribute), how much it keeps above all.
    pub fn pool(&self) -> Option<&MemoryPool> {
        self.pool.as_ref()
    }

    /// Allocates on the stream of an order.
    fn allocate_of_pool(&self, pool: CUmemoryPool, size: usize, order: Order<'_>) -> Result<Block> {
        let mut address = 0;
        let place = &raw mut address;
        self.base.retry(|| {
            enqueue(order, Operation::Allocate, self.base.context(), |stream| {
                // SAFETY: the pool and the stream are alive, and the pointer is to a local.
                unsafe { call!(cuMemAllocFromPoolAsync(place, size, pool, stream)) }
            })
        })?;
        Ok(Block {
            address,
            size,
            token: address | OF_POOL,
        })
    }

    /// The pool, if memory of it has to hold it.
    fn own_pool(&self) -> Option<&MemoryPool> {
        self.pool.as_ref().filter(|_| self.is_own)
    }
}

// SAFETY: the memory is the driver's, as large as was asked for and aligned to 512 bytes. That of the pool
// is freed in the order of a stream, or as plain memory is, by a wait for all work.
unsafe impl MemoryManager for OrderedManager {
    fn interface_version() -> u32 {
        INTERFACE_VERSION
    }

    fn base(&self) -> &DriverMemory {
        &self.base
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let stream = order.raw().filter(|raw| !is_default(*raw));
        match (&self.pool, stream) {
            (Some(pool), Some(_)) => self.allocate_of_pool(pool.as_raw(), size, order),
            _ => self.base.allocate(size),
        }
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        if !is_of_pool(&block) {
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
                let memory = Resource::OrderedMemory(block.address, stream);
                match self.own_pool().cloned() {
                    None => release(memory, &parent),
                    Some(pool) => release(memory, &OfPool { parent, pool }),
                }
            }
            // Behind all work.
            _ => self.base.free_of_pool(block, self.own_pool().cloned()),
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
    /// [`Invalid::NotShareable`](crate::Invalid::NotShareable) for memory of a pool that is not
    /// [shareable](crate::MemoryPoolOptions::shareable), as the device's own.
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        if !is_of_pool(block) {
            return IpcHandle::of(self.base.context(), block);
        }
        let start = block.token - OF_POOL;
        match (self.own_pool(), block.address.checked_sub(start)) {
            (Some(pool), Some(offset)) => pool.handle_at(start, offset, block.size),
            _ => Err(Invalid::NotShareable {
                memory: "stream-ordered",
            }
            .into()),
        }
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

/// What memory of a manager's own pool needs until it is freed.
pub(super) struct OfPool<P> {
    pub(super) parent: P,
    pub(super) pool: MemoryPool,
}

impl<P: Parent> Parent for OfPool<P> {
    fn context(&self) -> Option<&Context> {
        self.parent.context()
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        self.parent.ordered_on()
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(OfPool {
            parent: self.parent.keep(),
            pool: self.pool.clone(),
        })
    }

    fn is_borrowed(&self) -> bool {
        self.parent.is_borrowed()
    }

    /// A driver (580) goes on to use a pool that goes before its memory.
    fn has_leaked(&self) {
        self.parent.has_leaked();
        self.pool.stay();
    }
}
