//! Recording the frees of a pool's memory, so that the pool is destroyed only after them.

use crate::call::{Invalid, Ownership, Result, answer, call, count_leak, fork};
use crate::capture_state::{Operation, is_default};
use crate::event::Event;
use crate::manager::order::{OrderOwners, enqueue};
use crate::manager::{Block, DriverMemory, Order};
use crate::memory::MemoryPool;
use crate::release::{After, Handle, Keep, destroy, owners, relaxed, release};
use crate::stream::{Stream, same_context};
use crate::sync::{Mutex, lock};
use cuda_sys::{CU_STREAM_LEGACY, CUdeviceptr, CUstream};
use std::sync::PoisonError;

/// The events recorded after the frees of a pool's memory. (The streams are not kept, because they
/// may be borrowed or leased.)
#[derive(Default)]
pub(super) struct FreeEvents {
    events: Mutex<Vec<Event>>,
}

/// With more events than this, completed events are removed each time the number of events doubles.
const PRUNE_THRESHOLD: usize = 64;

impl FreeEvents {
    /// Records an event on `stream` after a free.
    #[inline]
    fn mark(&self, stream: &Stream) -> Result<()> {
        // The context may have a manager that owns the pool, so an event that keeps the manager
        // alive would create a cycle.
        let event = stream.context().without_extension().event_now()?;
        // The release has counted itself as a call on the stream, so no capture can include the
        // record.
        event.enqueue_record(stream)?;
        let mut left = {
            let mut events = lock(&self.events);
            events.push(event);
            if events.len() < PRUNE_THRESHOLD || !events.len().is_power_of_two() {
                return Ok(());
            }
            std::mem::take(&mut *events)
        };
        // This calls the driver, so it must not run under the lock.
        let is_over = |event: &Event| event.is_complete().is_ok_and(|done| done);
        let _ = relaxed(|| {
            left.retain(|event| !is_over(event));
            Ok(())
        });
        let mut events = lock(&self.events);
        events.extend(left);
        Ok(())
    }

    #[inline]
    pub(super) fn take(&mut self) -> Vec<Event> {
        let events = self.events.get_mut();
        std::mem::take(events.unwrap_or_else(PoisonError::into_inner))
    }
}

/// Memory of a pool that is freed on a stream. The pool is destroyed after the free is complete.
pub(crate) struct PoolMemory {
    address: CUdeviceptr,
    of: OfPool,
}

/// The objects that memory of a pool keeps alive until it is freed.
#[derive(Clone)]
struct OfPool {
    stream: Stream,
    pool: MemoryPool,
}

impl PoolMemory {
    #[inline]
    pub(crate) fn new(address: CUdeviceptr, stream: &Stream, pool: &MemoryPool) -> Self {
        let of = OfPool { stream: stream.clone(), pool: pool.clone() };
        Self { address, of }
    }

    /// Frees the memory, which its creator has given up.
    #[inline]
    pub(crate) fn release(self) {
        let owners = self.of.clone();
        release(self, &owners);
    }
}

destroy! {
    PoolMemory as "stream-ordered device memory", after StreamOrder, leaves Object;
    |its| {
        let stream = its.of.stream.raw();
        // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
        // The stream orders the free after the uses of the memory, which safe code can enqueue only on
        // this stream.
        unsafe { answer!(cuMemFreeAsync(its.address, stream)) }
    };

    #[inline]
    fn has_been_destroyed(&mut self) {
        let OfPool { stream, pool } = &self.of;
        if matches!(pool.inner.ownership, Ownership::Borrowed) {
            // The owner of the borrowed pool waits for the frees.
            return;
        }
        // An event must not outlive a context that other code may destroy.
        let is_lent = stream.context().depends_on_borrowed();
        if is_lent || pool.inner.free_events.mark(stream).is_err() {
            pool.never_destroy();
        }
    }

    #[inline]
    fn has_leaked(&self, _owners: &dyn Keep) {
        self.of.pool.never_destroy();
    }
}

owners! {
    OfPool |its| {
        context: Some(its.stream.context()),
        is_borrowed: its.pool.is_borrowed() || its.stream.is_borrowed(),
        streams: [Some(its.stream.by_ref()), None],
    }
}

impl DriverMemory {
    /// Allocates stream-ordered memory from a memory pool. Calls `cuMemAllocFromPoolAsync`, and retries
    /// after all deferred frees have been done if there is not enough memory.
    ///
    /// The pool must belong to the [context](Self::context) of this object. A manager that owns a pool
    /// creates it in that context, which does not keep the manager alive.
    ///
    /// The memory keeps the pool alive. Destroying the pool then waits for all work of the context.
    /// (Memory of a default pool or of a [borrowed](MemoryPool::borrow_raw) one does not keep it alive.)
    /// If the pool is located on another device, the manager must check that its device has
    /// [access](MemoryPool::access).
    ///
    /// # Errors
    /// - `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` if `size` is 0.
    /// - [`Invalid::OrderWithoutStream`]; [`Invalid::Handle`] for default streams.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Invalid::OtherContext`] if the pool belongs to another context.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemAllocFromPoolAsync`](fn@cuda_sys::cuMemAllocFromPoolAsync).
    #[doc(alias = "cuMemAllocFromPoolAsync")]
    #[inline]
    pub fn allocate_from_pool(
        &self,
        pool: &MemoryPool,
        size: usize,
        order: Order<'_>,
    ) -> Result<Block> {
        same_context("the pool", pool.context(), self.context())?;
        order.expect_stream("an allocation from a memory pool")?;
        if let Some(raw) = order.raw().filter(|raw| is_default(*raw)) {
            return Err(Invalid::Handle { what: "non-default stream", value: raw.addr() }.into());
        }
        let (mut address, raw) = (0, pool.as_raw());
        let place = &raw mut address;
        self.retry(|| {
            enqueue(order, Operation::Allocate, self.context(), |stream| {
                // SAFETY: the pool and the stream are alive, and the pointer is to a local.
                unsafe { call!(cuMemAllocFromPoolAsync(place, size, raw, stream)) }
            })
        })
        .map_err(|error| error.with_requested_bytes(size))?;
        pool.retain_for_memory();
        Ok(Block { address, size, token: address })
    }

    /// Frees memory of a memory pool in stream order. Calls `cuMemFreeAsync`. The free waits for nothing,
    /// even while a [guard](Self::defer_cleanup) is alive.
    ///
    /// For an order without a stream, or on a default stream, the free is deferred like that of
    /// [synchronous memory](Self::free), until all work of the context is complete.
    ///
    /// # Safety
    /// See [`MemoryManager::free`](crate::manager::MemoryManager::free). `block` was returned by
    /// [`allocate_from_pool`](Self::allocate_from_pool) of this object for `pool` or a clone of it, not
    /// for another object with the same handle. (The token of the block is not used.)
    ///
    /// Since CUDA 11.2. Raw: [`cuMemFreeAsync`](fn@cuda_sys::cuMemFreeAsync).
    #[doc(alias = "cuMemFreeAsync")]
    #[inline]
    pub unsafe fn free_to_pool(&self, block: Block, pool: &MemoryPool, order: Order<'_>) {
        if fork::in_child() {
            return count_leak();
        }
        // SAFETY: the caller promises that the block is of this pool, so it holds a clone of it, and is
        // freed once.
        let pool = unsafe { pool.reclaim_from_memory() };
        // A wait for this context would not cover a free on a stream of another one, so it is recorded.
        let other = (order.stream()).filter(|stream| stream.context() != self.context());
        if let (Some(pool), Some(stream)) = (&pool, other) {
            return PoolMemory::new(block.address, stream, pool).release();
        }
        let memory =
            PoolBlock { address: block.address, stream: stream_of(order).map(Handle), pool };
        if memory.stream.is_none() {
            return self.free_of_pool(memory, block.size);
        }
        let owners = OrderOwners { order, context: self.context() };
        release(memory, &owners);
    }
}

/// Returns the stream of an order. A default stream is excluded, because a query whether it is captured
/// might apply to another context's.
#[inline]
fn stream_of(order: Order<'_>) -> Option<CUstream> {
    order.raw().filter(|raw| !is_default(*raw))
}

/// Memory of a memory pool that a manager allocated.
pub(crate) struct PoolBlock {
    pub(crate) address: CUdeviceptr,
    /// The stream on which the memory is freed. `None` if the memory is not ordered on one stream, and is
    /// freed after all work.
    pub(crate) stream: Option<Handle<CUstream>>,
    /// The pool, unless other code keeps it alive.
    pub(crate) pool: Option<MemoryPool>,
}

destroy! {
    PoolBlock as "stream-ordered device memory", leaves Object;
    |its| {
        let stream = its.stream.map_or(CU_STREAM_LEGACY, |stream| stream.0);
        // SAFETY: this value stands for the memory, and the caller promises that this is the first call.
        // The stream orders the free after the uses of the memory. Without a stream, all work is
        // complete, and the context is current, so this is its default stream.
        unsafe { answer!(cuMemFreeAsync(its.address, stream)) }
    };
    #[inline]
    fn after(&self) -> After {
        match self.stream {
            Some(_) => After::StreamOrder,
            // `cuMemFree` does not wait for kernels that use pool memory (measured).
            None => After::AllWork,
        }
    }

    /// A driver (580) continues to use a pool that is destroyed before its memory.
    #[inline]
    fn has_leaked(&self, _owners: &dyn Keep) {
        if let Some(pool) = &self.pool {
            pool.never_destroy();
        }
    }
}
