//! The memory of allocation nodes.
//!
//! The driver gives an allocation node its address when the node is added. Memory exists there from the run
//! of the node to a free. If the graph frees it with a free node, the check of accesses covers all uses
//! (`access.rs`). Otherwise each launch *keeps* the memory, and the driver refuses the next launch until the
//! memory is freed.
//!
//! So kept memory has one owner at a time: none, the executable graph whose launch allocated it, or a
//! buffer. A launch needs memory without an owner, or may take the memory of an earlier launch with
//! `auto_free_on_launch`. It never takes that of a buffer.
//!
//! A free node can be added after a launch has kept the memory. So launches of a later executable graph, which
//! free the memory themselves, must find it without an owner too. Once one of them has, nothing gives the
//! memory an owner as long as this executable graph exists, because the memory is claimed (`order.rs`).

use crate::call::{Invalid, Result, answer, debug_struct, fork};
use crate::capture_state::{Operation, retain};
use crate::context::Context;
use crate::graph::exec::launches::Launches;
use crate::graph::rules::owners::Slots;
use crate::graph::{Earlier, ExecutableGraph, Graph, MemoryOrder, new_buffer_number};
use crate::memory::Backing;
use crate::release::{self, Keep, destroy, release};
use crate::stream::{Stream, same_context};
use crate::sync::{Mutex, lock};
use cuda_sys::CUdeviceptr;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The memory of an allocation node.
pub(crate) struct NodeAllocation {
    /// The number of the memory in messages and in accesses.
    number: u64,
    /// Set when the driver has added the node.
    address: OnceLock<CUdeviceptr>,
    context: Context,
    order: Arc<MemoryOrder>,
    /// Whether a node of the graph frees the memory.
    has_free_node: AtomicBool,
    /// Only for memory that launches keep, or kept before there was a free node.
    kept: Mutex<Kept>,
}

/// The state of kept memory.
#[derive(Default)]
struct Kept {
    owner: Owner,
    /// The number of launch calls in progress that allocate the memory.
    launching: usize,
    /// The work that the next launch comes after, because it freed the memory.
    freed: Option<Earlier>,
}

/// Who frees kept memory.
#[derive(Default)]
enum Owner {
    #[default]
    Nobody,
    /// The executable graph that was launched on this stream.
    Launch(Stream),
    /// A buffer, or a release in progress.
    Buffer,
}

/// The allocations of an executable graph whose memory may have an owner when a launch begins.
#[derive(Default)]
pub(crate) struct KeptAllocations {
    allocations: Vec<LaunchedAllocation>,
    /// Whether a launch frees the memory of the launch before.
    frees_on_launch: bool,
}

/// An allocation of an executable graph.
pub(crate) struct LaunchedAllocation {
    allocation: Arc<NodeAllocation>,
    /// Whether a launch frees the memory itself, so that it does not keep it.
    is_freed: bool,
}

/// A launch call in progress.
#[must_use]
pub(crate) struct KeptLaunch<'a> {
    allocations: &'a [LaunchedAllocation],
    /// The stream, if the call has succeeded.
    stream: Option<&'a Stream>,
}

/// Memory that the last launch of a dropped executable graph keeps. It is freed when this is dropped.
pub(crate) struct Unfreed {
    allocation: Arc<NodeAllocation>,
    stream: Stream,
}

/// The memory of an allocation node that is freed on a stream.
struct OrderedFree {
    allocation: Arc<NodeAllocation>,
    stream: Stream,
}

impl NodeAllocation {
    #[inline]
    pub(crate) fn new(context: &Context, order: Arc<MemoryOrder>) -> Arc<Self> {
        Arc::new(Self {
            number: new_buffer_number(),
            address: OnceLock::new(),
            context: context.clone(),
            order,
            has_free_node: AtomicBool::new(false),
            kept: Mutex::default(),
        })
    }

    /// Notes the address that the driver gave the node.
    #[inline]
    pub(crate) fn set_address(&self, address: CUdeviceptr) {
        // The node is added once.
        let _ = self.address.set(address);
    }

    /// Returns the address, or 0 before the node is added.
    #[inline]
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address.get().copied().unwrap_or(0)
    }

    #[inline]
    fn has_free_node(&self) -> bool {
        self.has_free_node.load(Ordering::Relaxed)
    }

    /// Returns the allocation for an executable graph that has claimed the memory, or `None` if its launches
    /// always find the memory without an owner.
    #[inline]
    pub(crate) fn launched(self: &Arc<Self>) -> Option<LaunchedAllocation> {
        let is_freed = self.has_free_node();
        let is_idle = is_freed && lock(&self.kept).is_idle();
        (!is_idle).then(|| LaunchedAllocation { allocation: Arc::clone(self), is_freed })
    }

    /// Adds the free node of the memory with `add`.
    ///
    /// # Errors
    /// [`Invalid::FreedTwice`]; errors of `add`.
    pub(crate) fn add_free_node<R>(&self, add: impl FnOnce() -> Result<R>) -> Result<R> {
        if self.has_free_node() {
            let allocation = self.number;
            return Err(Invalid::FreedTwice { allocation }.into());
        }
        let added = add()?;
        self.has_free_node.store(true, Ordering::Relaxed);
        Ok(added)
    }

    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the number of the graph that the node was added to.
    #[inline]
    pub(crate) fn graph(&self) -> u64 {
        self.order.graph()
    }

    /// Frees memory that a buffer owned, on the stream of the buffer. The next launch comes after the free.
    #[inline]
    pub(crate) fn free(self: &Arc<Self>, stream: &Stream) {
        let free = OrderedFree { allocation: Arc::clone(self), stream: stream.clone() };
        release(free, stream);
    }

    /// Begins a launch that allocates the memory. `is_repeatable` says whether another launch may follow it.
    /// Returns the work that the launch must come after.
    ///
    /// # Errors
    /// [`Invalid::AllocationAlive`].
    #[inline]
    fn begin_launch(&self, is_repeatable: bool) -> Result<Option<Earlier>> {
        let mut kept = lock(&self.kept);
        let is_free = match kept.owner {
            Owner::Nobody => is_repeatable || kept.launching == 0,
            Owner::Launch(_) => is_repeatable,
            Owner::Buffer => false,
        };
        if is_free {
            kept.launching += 1;
            return Ok(kept.freed.clone());
        }
        Err(Invalid::AllocationAlive {
            allocation: self.number,
            is_taken: matches!(kept.owner, Owner::Buffer),
        }
        .into())
    }

    /// Ends a launch. If it has succeeded, the memory has this owner.
    #[inline]
    fn end_launch(&self, owner: Option<Owner>) {
        // Dropped without the lock, because these may be the last clones.
        let _before = {
            let mut kept = lock(&self.kept);
            kept.launching -= 1;
            owner.map(|owner| {
                let owner = std::mem::replace(&mut kept.owner, owner);
                // Later launches come after this one, which came after the free.
                (owner, kept.freed.take())
            })
        };
    }

    /// Takes the memory from the executable graph. Returns the stream of the launch.
    #[inline]
    fn take(&self) -> Option<Stream> {
        let mut kept = lock(&self.kept);
        match std::mem::replace(&mut kept.owner, Owner::Buffer) {
            Owner::Launch(stream) => Some(stream),
            other => {
                kept.owner = other;
                None
            }
        }
    }

    /// Notes that no buffer owns the memory any more, and that its work and its free are on this stream.
    #[inline]
    fn end_ownership(&self, stream: &Stream) {
        let freed = match stream.is_borrowed() {
            false => Ok(Earlier::Stream(stream.clone())),
            // The stream may be destroyed before the next launch.
            true => stream.context().event_now().and_then(|event| {
                event.enqueue_record(stream)?;
                Ok(Earlier::Event(event))
            }),
        };
        // Without the event, no launch can come after the free, so the memory stays that of the buffer.
        if let Ok(freed) = freed {
            let mut kept = lock(&self.kept);
            kept.owner = Owner::Nobody;
            kept.freed = Some(freed);
        }
    }
}

impl Kept {
    /// Returns whether a launch needs to wait for nothing.
    #[inline]
    fn is_idle(&self) -> bool {
        matches!(self.owner, Owner::Nobody) && self.freed.is_none()
    }
}

impl KeptAllocations {
    #[inline]
    pub(crate) fn new(slots: &Slots, frees_on_launch: bool) -> Self {
        Self { allocations: slots.kept_allocations(), frees_on_launch }
    }

    /// Returns an allocation that a launch keeps.
    #[inline]
    fn first_kept(&self) -> Option<&NodeAllocation> {
        let mut kept = self.allocations.iter().filter(|its| !its.is_freed);
        kept.next().map(|its| &*its.allocation)
    }

    /// Begins a launch on a stream, and makes the stream wait for the frees of the memory. The launch ends
    /// when the returned value is dropped.
    ///
    /// # Errors
    /// [`Invalid::AllocationAlive`]; [`Invalid::AllocationOnBorrowedStream`]; errors of the driver; a stream
    /// on which memory was freed is capturing.
    #[inline]
    pub(crate) fn begin_launch(&self, stream: &Stream) -> Result<KeptLaunch<'_>> {
        let mut launch = KeptLaunch { allocations: &[], stream: None };
        match self.first_kept() {
            Some(first) if stream.is_borrowed() => {
                let allocation = first.number;
                return Err(Invalid::AllocationOnBorrowedStream { allocation }.into());
            }
            _ => {}
        }
        for (index, its) in self.allocations.iter().enumerate() {
            let is_repeatable = its.is_freed || self.frees_on_launch;
            let begin = || its.allocation.begin_launch(is_repeatable);
            let freed = begin().or_else(|_| {
                // The free may be a deferred release.
                release::drain();
                begin()
            })?;
            launch.allocations = &self.allocations[..=index];
            if let Some(freed) = freed {
                freed.precede(stream)?;
            }
        }
        Ok(launch)
    }

    /// Takes the memory that is not freed.
    #[inline]
    pub(crate) fn take_unfreed(&self) -> Vec<Unfreed> {
        if fork::in_child() {
            // Another thread of the parent may have held a lock.
            return Vec::new();
        }
        let unfreed = self.allocations.iter().filter_map(|its| {
            Some(Unfreed {
                stream: its.allocation.take()?,
                allocation: Arc::clone(&its.allocation),
            })
        });
        unfreed.collect()
    }
}

impl<'a> KeptLaunch<'a> {
    /// Notes that the launch has succeeded.
    #[inline]
    pub(crate) fn has_succeeded(mut self, stream: &'a Stream) {
        self.stream = Some(stream);
    }
}

impl Drop for KeptLaunch<'_> {
    #[inline]
    fn drop(&mut self) {
        for its in self.allocations {
            its.allocation.end_launch(self.stream.map(|stream| match its.is_freed {
                true => Owner::Nobody,
                false => Owner::Launch(stream.clone()),
            }));
        }
    }
}

impl Graph {
    /// Adds memory to the graph with `add`. If it fails, the graph owns memory only if it did before.
    pub(crate) fn add_memory<R>(
        &mut self,
        add: impl FnOnce(&mut Self, Arc<MemoryOrder>) -> Result<R>,
    ) -> Result<R> {
        let before = self.slots().orders.len();
        let order = self.memory_order();
        let added = add(self, order);
        if added.is_err() {
            self.slots_mut().orders.truncate(before);
        }
        added
    }
}

impl ExecutableGraph {
    /// Takes the memory of the last launch for a buffer on `stream`, which waits for all launches.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`]; [`Invalid::AllocationNotAlive`]; the stream, or a stream on which the
    /// graph was launched, is capturing; errors of the driver.
    #[inline]
    pub(crate) fn take_kept(
        &mut self,
        allocation: &Arc<NodeAllocation>,
        stream: &Stream,
    ) -> Result<()> {
        same_context("the stream", stream.context(), allocation.context())?;
        let is_same = |its: &LaunchedAllocation| Arc::ptr_eq(&its.allocation, allocation);
        let is_kept = self.kept.allocations.iter().any(is_same);
        if !is_kept || !matches!(lock(&allocation.kept).owner, Owner::Launch(_)) {
            return Err(Invalid::AllocationNotAlive { allocation: allocation.number }.into());
        }
        let _call = stream.uncaptured(Operation::Wait)?;
        self.launches.precede(stream)?;
        allocation.take();
        Ok(())
    }
}

impl Unfreed {
    /// The stream on which the memory is freed.
    #[inline]
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Launches {
    /// Returns the launches of an executable graph that keeps this memory.
    pub(crate) fn keeping(
        earlier: impl IntoIterator<Item = Earlier>,
        kept: &KeptAllocations,
    ) -> Self {
        let mut launches = Self::new(earlier);
        launches.is_always_checked = kept.first_kept().is_some();
        launches
    }
}

impl Drop for Unfreed {
    #[inline]
    fn drop(&mut self) {
        self.allocation.free(&self.stream);
    }
}

destroy! {
    OrderedFree as "the memory of an allocation node", after StreamOrder, leaves Object;
    // SAFETY: this value stands for the memory, and the caller promises that this is the first call. The
    // launches that use the memory are complete, or the stream orders the free after them, and after the
    // work on the buffer.
    |its| unsafe { answer!(cuMemFreeAsync(its.allocation.address(), its.stream.raw())) };

    #[inline]
    fn has_been_destroyed(&mut self) {
        self.allocation.end_ownership(&self.stream);
    }

    /// The driver decides about the next launch: it refuses it, or frees the memory.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        self.allocation.end_ownership(&self.stream);
    }
}

impl Backing for Arc<NodeAllocation> {
    #[inline]
    fn release_after(self: Box<Self>, stream: &Stream) {
        self.free(stream);
    }

    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

retain! {
    NodeAllocation |its, other| {
        is_same: its.number == other.number,
        is_borrowed: its.context.depends_on_borrowed(),
    }
}

debug_struct! {
    NodeAllocation |its| {
        number: its.number, graph: its.graph(), address: format_args!("{:#x}", its.address()), ..
    }
}
