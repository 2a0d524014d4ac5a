//! Untyped device memory: its address, its stream, and how it is released.

use crate::call::{Result, answer, count_leak, fork};
use crate::capture_state::Operation;
use crate::context::SyncMemory;
use crate::manager::{Block, ManagerSlot, Order};
use crate::memory::pool::{MemoryPool, PoolMemory};
use crate::release::{Handle, destroy, release, release_stream_ordered};
use crate::stream::Stream;
use cuda_sys::{CUdeviceptr, CUstream};
use std::any::Any;

/// Memory that is used in stream order. Dropping this releases the memory.
pub(crate) struct Allocation {
    address: CUdeviceptr,
    /// Declared before the stream, so that it is dropped first: a foreign owner may free on the
    /// stream.
    release: Release,
    stream: Stream,
}

/// How an allocation is released.
pub(crate) enum Release {
    /// Nothing was allocated.
    Nothing,
    /// Freed in stream order.
    StreamOrdered,
    /// Freed in stream order. The pool is not destroyed before the free has completed.
    OfPool(MemoryPool),
    /// Freed synchronously, after a wait for all work of the context.
    Sync,
    /// Returned to the memory manager of the stream's context.
    Managed(Managed),
    /// Released by an object of a room above, after the work on the stream.
    Backed(Box<dyn Backing>),
    /// Borrowed from other code, which guarantees that the memory stays allocated.
    Borrowed,
    /// Kept allocated by an owner, which is dropped with this.
    Foreign(#[allow(dead_code, reason = "held, not read")] Box<dyn Any + Send + Sync>),
}

/// Memory of a room above, with its way to release it: virtual memory, and memory of allocation nodes.
pub(crate) trait Backing: Any + Send + Sync {
    /// Releases the memory after the work on the stream.
    fn release_after(self: Box<Self>, stream: &Stream);

    fn as_any(&self) -> &dyn Any;

    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl Allocation {
    #[inline]
    pub(crate) fn new(address: CUdeviceptr, stream: &Stream, release: Release) -> Self {
        Self { address, release, stream: stream.clone() }
    }

    #[inline]
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    #[inline]
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns whether other code controls the lifetime of the memory, which was promised for this
    /// stream.
    #[inline]
    pub(crate) fn is_foreign(&self) -> bool {
        matches!(self.release, Release::Borrowed | Release::Foreign(_))
    }

    /// Returns how the memory is released.
    #[inline]
    pub(crate) fn release(&self) -> &Release {
        &self.release
    }

    /// Binds the memory to another stream. The caller must order the work of both streams.
    #[inline]
    pub(crate) fn set_stream(&mut self, stream: &Stream) {
        self.stream = stream.clone();
    }

    /// Releases ownership without freeing the memory. The memory's pool is never destroyed
    /// afterwards.
    #[inline]
    pub(crate) fn into_raw(mut self) -> (CUdeviceptr, Stream) {
        match std::mem::replace(&mut self.release, Release::Nothing) {
            Release::OfPool(pool) => pool.never_destroy(),
            // Leaking a clone of the context keeps the manager alive.
            Release::Managed(_) => std::mem::forget(self.stream.context().clone()),
            owner => std::mem::forget(owner),
        }
        (self.address, self.stream.clone())
    }

    /// Returns the object that would release the memory, or the allocation if it is of another type. The caller
    /// ensures that no work uses the memory.
    pub(crate) fn into_backing<B: Backing>(mut self) -> Result<Box<B>, Self> {
        match std::mem::replace(&mut self.release, Release::Nothing) {
            Release::Backed(backing) if backing.as_any().is::<B>() => {
                backing.into_any().downcast().map_err(|_| self)
            }
            release => {
                self.release = release;
                Err(self)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn release_backing(&mut self) {
        if let Release::Backed(backing) = std::mem::replace(&mut self.release, Release::Nothing) {
            backing.release_after(&self.stream);
        }
    }

    /// Frees memory of a pool. This is a separate cold function, so that other drops do not pay for
    /// it.
    #[cold]
    #[inline(never)]
    fn free_of_pool(&self, pool: &MemoryPool) {
        // Checked before any lock is taken.
        if fork::in_child() {
            return count_leak();
        }
        PoolMemory::new(self.address, &self.stream, pool).release();
    }
}

/// The data that identifies an allocation to its manager.
#[derive(Clone, Copy)]
pub(crate) struct Managed {
    pub(crate) size: usize,
    pub(crate) token: u64,
    /// Whether this is managed memory in CUDA's sense (`cuMemAllocManaged`).
    pub(crate) migrates: bool,
}

impl Allocation {
    /// Allocates from the manager of the stream's context, or returns `None` while the manager is
    /// being created.
    #[inline(never)]
    pub(crate) fn managed(
        choice: &ManagerSlot,
        stream: &Stream,
        size: usize,
    ) -> Result<Option<Self>> {
        let _call = stream.uncaptured(Operation::Allocate)?;
        let Some(manager) = choice.manager(stream.context())? else { return Ok(None) };
        let block = manager.allocate(size, Order::of(stream))?;
        let managed = Managed { size, token: block.token, migrates: false };
        let release = Release::Managed(managed);
        Ok(Some(Self::new(block.address, stream, release)))
    }

    /// Returns whether the memory may be bound to `stream`. Memory from a manager must be freed by
    /// the same manager, so the context of `stream` must have this manager.
    #[inline]
    pub(crate) fn may_move_to(&self, stream: &Stream) -> bool {
        !matches!(self.release, Release::Managed(_))
            || self.stream.context().has_manager_of(stream.context())
    }

    #[inline(never)]
    fn free_managed(&self, managed: &Managed) {
        if fork::in_child() {
            return count_leak();
        }
        // The manager exists, because it allocated this memory.
        let Some(manager) = self.stream.context().made_manager() else { return count_leak() };
        let block = Block { address: self.address, size: managed.size, token: managed.token };
        let order = Order::of(&self.stream);
        match managed.migrates {
            // SAFETY: the block was allocated by this manager, whose context the stream kept alive.
            // The block is freed exactly once, here. Safe code has used it only on this stream.
            false => unsafe { manager.free(block, order) },
            // SAFETY: as above.
            true => unsafe { manager.free_managed(block, order) },
        }
    }
}

/// Memory that is freed on a stream.
#[derive(Clone, Copy)]
struct OrderedMemory {
    address: CUdeviceptr,
    stream: Handle<CUstream>,
}

destroy! {
    OrderedMemory as "stream-ordered device memory", after StreamOrder, leaves Object;
    // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
    // The stream orders the free after the uses of the memory, which safe code can enqueue only on
    // this stream.
    |its| unsafe { answer!(cuMemFreeAsync(its.address, its.stream.0)) }
}

#[inline(never)]
fn release_sync(address: CUdeviceptr, stream: &Stream) {
    release(SyncMemory(address), stream);
}

impl Drop for Allocation {
    #[inline]
    fn drop(&mut self) {
        let (address, stream) = (self.address, Handle(self.stream.raw()));
        // Each arm makes its own call, so that the compiler knows the kind of release there.
        match &self.release {
            Release::StreamOrdered => {
                let memory = OrderedMemory { address, stream };
                release_stream_ordered(memory, self.stream.state(), &self.stream);
            }
            Release::Sync => release_sync(address, &self.stream),
            Release::Managed(managed) => self.free_managed(managed),
            Release::OfPool(pool) => self.free_of_pool(pool),
            Release::Backed(_) => self.release_backing(),
            Release::Nothing | Release::Borrowed | Release::Foreign(_) => {}
        }
    }
}
