//! Recording the frees of a pool's memory, so that the pool is destroyed only after them.

use super::MemoryPool;
use crate::call::{Ownership, Result, answer};
use crate::event::Event;
use crate::release::{Keep, destroy, owners, relaxed, release};
use crate::stream::Stream;
use crate::sync::Mutex;
use cuda_sys::CUdeviceptr;
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
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
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
