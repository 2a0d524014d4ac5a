//! Device memory without a type: where it is, and how it goes.

use super::pool::{MemoryPool, OfPool};
use crate::capture::Operation;
use crate::error::Result;
use crate::fork;
use crate::manager::{Block, Choice, Order};
use crate::release::{Resource, release, release_in_order};
use crate::report::count_leak;
use crate::stream::Stream;
use cuda_sys::CUdeviceptr;
use std::any::Any;

/// Memory that is used in the order of a stream, and released with this.
pub(super) struct Allocation {
    address: CUdeviceptr,
    /// Before the stream in the order of drops: a foreign owner may free on it.
    release: Release,
    stream: Stream,
}

/// How memory goes.
pub(super) enum Release {
    /// Nothing was allocated.
    Nothing,
    /// Freed in the order of the stream.
    Ordered,
    /// Likewise; the pool that it is of is not destroyed before.
    OfPool(MemoryPool),
    /// Freed at once, after a wait for all work.
    Plain,
    /// Given back to the manager of the context, which is the stream's.
    Managed(Managed),
    /// Somebody else's, who promised to keep it.
    Borrowed,
    /// Somebody else's, kept alive by this.
    Foreign(#[allow(dead_code, reason = "held, not read")] Box<dyn Any + Send + Sync>),
}

impl Allocation {
    #[inline]
    pub(super) fn new(address: CUdeviceptr, stream: &Stream, release: Release) -> Self {
        Self {
            address,
            release,
            stream: stream.clone(),
        }
    }

    #[inline]
    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }

    #[inline]
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Whether how long it lives is said by somebody else, who thinks of this stream.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(self.release, Release::Borrowed | Release::Foreign(_))
    }

    /// How it goes.
    pub(super) fn release(&self) -> &Release {
        &self.release
    }

    /// Gives the memory another stream; it is for the caller to put their work in order.
    pub(super) fn set_stream(&mut self, stream: &Stream) {
        self.stream = stream.clone();
    }

    /// Never releases it, and its pool is not destroyed any more.
    pub(super) fn into_raw(mut self) -> (CUdeviceptr, Stream) {
        match std::mem::replace(&mut self.release, Release::Nothing) {
            Release::OfPool(pool) => pool.stay(),
            // The manager has to stay as well.
            Release::Managed(_) => std::mem::forget(self.stream.context().clone()),
            owner => std::mem::forget(owner),
        }
        (self.address, self.stream.clone())
    }

    /// The rare half of `drop`, so that nothing of it is in the way of the other.
    #[cold]
    #[inline(never)]
    fn free_of_pool(&self, pool: &MemoryPool) {
        // Before anything that may take a lock.
        if fork::in_child() {
            return count_leak();
        }
        let memory = Resource::PoolMemory(self.address, self.stream.raw());
        release(memory, &OfPool::new(&self.stream, pool));
    }
}

/// What a manager knows memory by.
#[derive(Clone, Copy)]
pub(super) struct Managed {
    pub(super) size: usize,
    pub(super) token: u64,
    /// Whether it is managed memory in the driver's sense.
    pub(super) migrates: bool,
}

impl Allocation {
    /// Memory of the manager of the stream's context; none while that is being made.
    #[inline(never)]
    pub(super) fn managed(choice: &Choice, stream: &Stream, size: usize) -> Result<Option<Self>> {
        let _call = stream.uncaptured(Operation::Allocate)?;
        let Some(manager) = choice.manager(stream.context())? else {
            return Ok(None);
        };
        let block = manager.allocate(size, Order::of(stream))?;
        let managed = Managed {
            size,
            token: block.token,
            migrates: false,
        };
        let release = Release::Managed(managed);
        Ok(Some(Self::new(block.address, stream, release)))
    }

    /// Whether the memory may be bound to a stream: what a manager gave goes back to that manager.
    pub(super) fn may_move_to(&self, stream: &Stream) -> bool {
        !matches!(self.release, Release::Managed(_))
            || self.stream.context().has_manager_of(stream.context())
    }

    #[inline(never)]
    fn free_managed(&self, managed: &Managed) {
        if fork::in_child() {
            return count_leak();
        }
        // It was allocated by the manager, so there is one.
        let Some(manager) = self.stream.context().made_manager() else {
            return count_leak();
        };
        let block = Block {
            address: self.address,
            size: managed.size,
            token: managed.token,
        };
        let order = Order::of(&self.stream);
        match managed.migrates {
            // SAFETY: the block is of this manager, whose context the stream has kept; it is given back
            // here, once; and safe code has used it on this stream only.
            false => unsafe { manager.free(block, order) },
            // SAFETY: as above.
            true => unsafe { manager.free_managed(block, order) },
        }
    }
}

#[inline(never)]
fn release_plain(address: CUdeviceptr, stream: &Stream) {
    release(Resource::Memory(address), stream);
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let (address, stream) = (self.address, self.stream.raw());
        // Each by itself: so what is asked of its kind is known here.
        match &self.release {
            Release::Ordered => {
                release_in_order(|| Resource::OrderedMemory(address, stream), &self.stream);
            }
            Release::Plain => release_plain(address, &self.stream),
            Release::Managed(managed) => self.free_managed(managed),
            Release::OfPool(pool) => self.free_of_pool(pool),
            Release::Nothing | Release::Borrowed | Release::Foreign(_) => {}
        }
    }
}
