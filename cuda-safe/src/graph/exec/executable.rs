//! Executable graphs.

use super::launches::{ClaimingHandle, Launched, Launches, Noted, Replaced, Retired, Used};
use crate::call::{
    Error, Invalid, Ownership, Result, answer, call, count_leak, debug_struct, expect_handle, fork,
    newest_or, refuse_if, without_current,
};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::graph::nodes::allocation::KeptAllocations;
use crate::graph::rules::order::Claim;
use crate::graph::rules::owners::Slots;
use crate::graph::{Earlier, Graph, Retained};

use crate::release::{self, Handle, Keep, destroy, owners, release};
use crate::stream::{ExecutionContext, Stream, same_context};
use cuda_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphExec, CUgraphInstantiate_flags as Flags,
    CUgraphInstantiateResult as Outcome,
};
use std::any::Any;
use std::sync::Arc;

/// An executable graph (`CUgraphExec`), which streams can launch. Created by
/// [`Graph::instantiate`](crate::Graph::instantiate).
///
/// It owns everything that its nodes use, together with the graph. Several threads can launch it at the
/// same time. The driver runs the launches of one executable graph one after another, in the order of the
/// calls, even on different streams.
///
/// [`nodes`](Self::nodes) changes single nodes and [`update`](Self::update) all of them. A change affects
/// later launches only.
///
/// # Where it runs
/// Each kernel runs in the context of its node. Launching a graph on a stream of a
/// [green context](crate::green) does not confine its kernels to that partition. If none of them runs
/// there, the launch is an error. The kernels of a captured graph run in the contexts of the captured
/// streams. See [`NodeContext`](crate::graph::NodeContext).
///
/// # Drop
/// Destroying an executable graph waits for nothing. Running launches continue. The objects that they use are released after the last launch is complete: an event
/// is recorded on each stream that the graph was launched on, and a later call that creates, copies or
/// synchronizes releases the objects. If an object is borrowed, the drop blocks until the launches are
/// complete. The streams stay alive until then too.
///
/// An executable graph with conditional nodes, or for [device launches](crate::graph::DeviceGraph), is
/// itself destroyed after its last launch, so dropping it does not wait for the launch. A loop that never
/// ends is never destroyed. With conditional nodes, the call that destroys it
/// (`cuGraphExecDestroy`) also waits for all other running work of the device (driver 580), and the call
/// that makes it then blocks: the drop if nothing was launched, or a later call that creates, copies or
/// synchronizes.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, Graph};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut graph = Graph::new(&context)?;
/// let mut buffer = graph.own(DeviceBuffer::<u8>::zeroed(&stream, 1000)?)?;
/// graph.add_fill(&[], &mut buffer, 7)?;
/// let mut executable = graph.instantiate()?;
/// for _ in 0..10 {
///     executable.launch(&stream)?;
/// }
/// assert_eq!(executable.access(&mut buffer, &stream)?.as_slice().to_vec()?, [7; 1000]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct ExecutableGraph {
    /// Null if ownership was released.
    raw: CUgraphExec,
    ownership: Ownership,
    /// Whether safe code may launch it.
    pub(crate) is_owned: bool,
    pub(crate) launches: Launches,
    /// The allocations that launches keep.
    pub(crate) kept: KeptAllocations,
    pub(crate) objects: Objects,
    /// Objects that only earlier launches use.
    pub(crate) retired: Retired,
    /// The memory of graphs that this executable graph uses.
    pub(crate) claims: Vec<Claim>,
    /// Whether kernels can launch it.
    pub(crate) is_device_launch: bool,
}

/// The objects that must outlive an executable graph and its launches.
#[derive(Clone)]
pub(crate) struct Objects {
    /// The nodes of the graph from which this was instantiated.
    pub(crate) slots: Arc<Slots>,
    /// The nodes of the graph from which this was updated as a whole, with the objects that are used since then. `None`
    /// if they are the nodes above.
    pub(crate) updated: Option<Arc<Slots>>,
    context: Context,
}

/// The objects that a graph or an executable graph uses, without the driver object. Returned by
/// [`Graph::into_raw`](crate::Graph::into_raw) and [`ExecutableGraph::into_raw`].
///
/// When this value is dropped, the objects are released after the launches that
/// [`launch`](ExecutableGraph::launch) and [`launch_unchecked`](ExecutableGraph::launch_unchecked) made, as
/// when an [`ExecutableGraph`] is dropped. Launches that other code makes with the raw handle are not known
/// here: they must be complete before this value is dropped, and the handle must not be launched
/// afterwards.
#[must_use = "the objects are released when this is dropped"]
pub struct RetainedObjects {
    objects: Retired,
    /// The launches that may use the objects.
    launches: Vec<Noted>,
    context: Context,
}

impl RetainedObjects {
    #[inline]
    pub(crate) fn new(objects: Retired, launches: Vec<Noted>, context: Context) -> Self {
        Self { objects, launches, context }
    }

    /// Returns the context of the graph.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.context
    }
}

// SAFETY: the driver locks executable graphs: several threads may launch one at the same time, and change
// it beside launches (measured). It is not destroyed while it is borrowed. Retired objects, which may not
// be `Sync`, are reached only through a mutable borrow, but for the panics of host functions, which have locks.
unsafe impl Send for ExecutableGraph {}
// SAFETY: see `Send`.
unsafe impl Sync for ExecutableGraph {}

impl ExecutableGraph {
    /// Takes ownership of a new executable graph with these nodes. `launches` comes after their earlier
    /// work.
    #[inline]
    pub(crate) fn own(
        raw: CUgraphExec,
        slots: &Arc<Slots>,
        context: &Context,
        claims: Vec<Claim>,
        kept: KeptAllocations,
        launches: Launches,
    ) -> Self {
        Self {
            raw,
            ownership: Ownership::Owned,
            is_owned: !slots.borrows_memory,
            launches,
            kept,
            objects: Objects { slots: Arc::clone(slots), updated: None, context: context.clone() },
            retired: Retired::default(),
            claims,
            is_device_launch: false,
        }
    }

    /// Takes ownership of `raw`. The executable graph is destroyed when the returned object is dropped.
    ///
    /// Launching it is `unsafe`: see [`launch_unchecked`](Self::launch_unchecked).
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live executable graph, and no other code may destroy or use it. Its work must
    /// belong to `context`, or to contexts and green contexts that outlive the returned object. The
    /// events and modules that it uses must outlive the returned object too.
    #[inline]
    pub unsafe fn from_raw(raw: CUgraphExec, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Wraps an executable graph that foreign code owns, such as PyTorch. It is never destroyed here.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live executable graph that stays alive until the returned object is dropped, and
    /// that no other code changes meanwhile. Its contexts, events and modules must be alive as for
    /// [`from_raw`](Self::from_raw). The returned object keeps the objects alive that an
    /// [`update`](Self::update) brings, so other code must not launch the updated graph after it is
    /// dropped.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUgraphExec, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Wraps an executable graph that `owner` keeps alive. It is never destroyed here. `owner` is
    /// dropped after the returned object.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// The conditions of [`borrow_raw`](Self::borrow_raw), but `owner` keeps the executable graph alive.
    pub unsafe fn from_foreign(
        raw: CUgraphExec,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    /// Wraps an executable graph that foreign code created.
    #[inline]
    fn wrap(raw: CUgraphExec, context: &Context, ownership: Ownership) -> Result<Self> {
        expect_handle("executable graph", raw)?;
        let home = Retained::ExecutionContext(ExecutionContext::Context(context.clone()));
        let mut slots = Slots::new(vec![home]);
        slots.borrows_memory = true;
        let (kept, launches) = (KeptAllocations::default(), Launches::new([]));
        let slots = Arc::new(slots);
        let mut executable = Self::own(raw, &slots, context, Vec::new(), kept, launches);
        executable.ownership = ownership;
        Ok(executable)
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    #[inline]
    pub fn as_raw(&self) -> CUgraphExec {
        self.publish();
        self.raw
    }

    #[inline]
    fn publish(&self) {
        self.objects.slots.publish();
        if let Some(updated) = &self.objects.updated {
            updated.publish();
        }
    }

    /// Releases ownership, and returns the handle with the objects that its nodes use. The caller must
    /// destroy the executable graph, and wait for the launches that it makes with the handle, before
    /// dropping these objects. See [`RetainedObjects`].
    ///
    /// Memory that the graph owns cannot be used by another executable graph any more. Memory that the last
    /// launch [keeps](crate::graph::GraphAllocation) is not freed.
    #[inline]
    pub fn into_raw(mut self) -> (CUgraphExec, RetainedObjects) {
        self.publish();
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        // A foreign owner keeps the handle alive until the process exits.
        std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Owned));
        // The caller may launch the graph at any time.
        self.claims.drain(..).for_each(Claim::keep);
        let mut objects = std::mem::take(&mut self.retired);
        let Objects { slots, updated, .. } = self.objects.clone();
        for slots in [Some(slots), updated].into_iter().flatten() {
            objects.add(Replaced::Graph(slots));
        }
        let (launches, _) = self.launches.take();
        let context = self.context().clone();
        (raw, RetainedObjects::new(objects, launches, context))
    }

    /// Returns the context of the graph.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.objects.context
    }

    /// Enqueues all work of the graph as one unit on a stream. Calls `cuGraphLaunch`.
    ///
    /// The launch is ordered after the work on the stream, after earlier launches of this executable
    /// graph on any stream, and after accesses to the memory of the graph from outside. The executable
    /// graph keeps the stream alive, and with it the lease of a [`GreenPool`](crate::green::GreenPool).
    /// The first launch on a stream creates an event, and waits on the GPU for what launches must come
    /// after.
    ///
    /// # Errors
    /// - [`Invalid::GraphBorrows`] for a captured graph, which does not own the memory that it uses:
    ///   see [`launch_unchecked`](Self::launch_unchecked) and
    ///   [`GraphRecorder`](crate::graph::GraphRecorder).
    /// - [`Invalid::BorrowedStream`] for a [borrowed](Stream::borrow_raw) stream.
    /// - [`Invalid::StreamIsCaptured`], because a driver (580) refuses such a launch and invalidates the
    ///   capture. [`Graph::add_child`](crate::Graph::add_child) adds a graph to another one.
    /// - [`Invalid::OtherContext`] if the stream belongs to another context.
    /// - [`Invalid::OtherPartition`] at the first launch on a stream of a green context, if the graph has
    ///   kernels and none of them runs in that green context: they would use SMs outside of the
    ///   partition. Launch on a stream of the ordinary context instead.
    /// - [`Invalid::AllocationAlive`] if an allocation of an earlier launch is not freed. See
    ///   [`GraphAllocation`](crate::graph::GraphAllocation).
    /// - Errors of earlier work.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphLaunch`](fn@cuda_sys::cuGraphLaunch).
    #[doc(alias = "cuGraphLaunch")]
    #[inline]
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let _call = stream.uncaptured(Operation::Launch)?;
        if self.launches.is_admitted(stream) {
            return self.enqueue(stream);
        }
        self.check_and_enqueue_first(stream)
    }

    /// Does the same as [`enqueue_first`](Self::enqueue_first) for safe code.
    #[cold]
    #[inline(never)]
    fn check_and_enqueue_first(&self, stream: &Stream) -> Result<()> {
        refuse_if!(!self.is_owned, Invalid::GraphBorrows);
        refuse_if!(stream.is_borrowed(), Invalid::BorrowedStream);
        self.enqueue_first(stream)
    }

    /// [`launch`](Self::launch) for graphs that use memory that they do not own, and for borrowed
    /// streams.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]; [`Invalid::OtherContext`]; [`Invalid::OtherPartition`];
    /// [`Invalid::AllocationAlive`]; [`Invalid::AllocationOnBorrowedStream`]; errors of earlier work.
    ///
    /// # Safety
    /// A launch is equivalent to enqueuing all work of the graph on `stream` now, with the addresses,
    /// values and handles that were captured. Until the launch is complete, for everything that the graph
    /// does not own:
    /// - the buffers, and the modules of the kernels, must be alive;
    /// - no other work, and no host code, may use these buffers in a way that races with the launch:
    ///   either the buffers are bound to `stream`, or the caller orders the accesses;
    /// - the safety conditions of the captured kernel launches must hold for each run, including the
    ///   bits that the kernels leave in buffers;
    /// - host memory, and host functions that code outside this crate captured, must be usable again;
    /// - the work must be ordered as the caller expects, also after
    ///   [`Capture::set_dependencies`](crate::capture::Capture::set_dependencies).
    ///
    /// If `stream` is [borrowed](Stream::borrow_raw), the launch must be complete before this executable
    /// graph is changed or dropped, or its [`RetainedObjects`] are, and before memory of the graph is
    /// accessed from outside.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphLaunch`](fn@cuda_sys::cuGraphLaunch).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    /// use cuda_safe::capture::CaptureMode;
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
    /// let graph = stream.capture(CaptureMode::ThreadLocal, |_| buffer.fill(7))?.instantiate()?;
    /// for _ in 0..10 {
    ///     // SAFETY: the buffer is alive until the work is done, and used on this stream only.
    ///     unsafe { graph.launch_unchecked(&stream) }?;
    /// }
    /// stream.synchronize()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuGraphLaunch")]
    #[inline]
    pub unsafe fn launch_unchecked(&self, stream: &Stream) -> Result<()> {
        let _call = stream.uncaptured(Operation::Launch)?;
        if self.launches.is_admitted_for_unsafe(stream) {
            return self.enqueue(stream);
        }
        self.enqueue_first(stream)
    }

    /// Launches the graph on a stream that is not known to be noted. The caller counts a call on it.
    #[cold]
    #[inline(never)]
    fn enqueue_first(&self, stream: &Stream) -> Result<()> {
        same_context("the graph", self.context(), stream.context())?;
        self.check_partition(stream)?;
        let kept = self.kept.begin_launch(stream)?;
        let admitted = self.launches.admit(stream)?;
        self.enqueue(stream)?;
        self.launches.has_launched(stream, &admitted, self.is_owned);
        kept.has_succeeded(stream);
        Ok(())
    }

    #[inline(always)]
    fn enqueue(&self, stream: &Stream) -> Result<()> {
        without_current(stream.context(), || {
            // SAFETY: the executable graph and the stream are alive. The objects of the graph are kept
            // alive until its launches are complete, or the caller promised so.
            unsafe { answer!(cuGraphLaunch(self.raw, stream.raw())) }
        })
    }

    /// Uploads the graph to the device in stream order, which the first launch does otherwise. Calls
    /// `cuGraphUpload`.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]; [`Invalid::BorrowedStream`]; [`Invalid::OtherContext`]; errors of
    /// earlier work.
    ///
    /// Since CUDA 11.1. Raw: [`cuGraphUpload`](fn@cuda_sys::cuGraphUpload).
    #[doc(alias = "cuGraphUpload")]
    #[inline]
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        let _call = stream.uncaptured(Operation::Launch)?;
        if !self.launches.is_admitted_for_unsafe(stream) {
            refuse_if!(stream.is_borrowed(), Invalid::BorrowedStream);
            same_context("the graph", self.context(), stream.context())?;
            let _ = self.launches.admit(stream)?;
        }
        without_current(stream.context(), || {
            // SAFETY: the executable graph and the stream are alive, and an upload runs nothing.
            unsafe { answer!(cuGraphUpload(self.raw, stream.raw())) }
        })
    }

    /// Returns the panic of a host function of the graph that was not returned yet, as an error.
    ///
    /// # Errors
    /// [`Error::HostFunctionPanicked`](crate::Error::HostFunctionPanicked).
    #[inline]
    pub fn take_panic(&self) -> Result<()> {
        self.retired.take_panic()?;
        self.objects.slots.take_panic()?;
        let updated = self.objects.updated.as_ref();
        updated.map_or(Ok(()), |slots| slots.take_panic())
    }

    /// Makes a stream wait for all launches, and the next launch wait for the stream.
    ///
    /// # Errors
    /// Errors of the driver; a stream on which the graph was launched is capturing.
    #[inline]
    pub(crate) fn exchange_order(&mut self, stream: &Stream) -> Result<()> {
        let _call = stream.uncaptured(Operation::Wait)?;
        let mut earlier = Vec::new();
        for claim in &mut self.claims {
            // The memory may have entered the graph after the instantiation.
            claim.exchange(stream, &mut earlier);
        }
        let earlier = earlier.into_iter().chain([Earlier::Stream(stream.clone())]);
        // Noted first, so that a failure leaves nothing out.
        self.launches.add_earlier(earlier);
        self.launches.precede(stream)
    }

    /// Blocks until all launches are complete.
    ///
    /// # Errors
    /// [`Error::InHostFunction`](crate::Error::InHostFunction); errors of the work; a stream on which the graph was launched is
    /// capturing.
    #[inline]
    pub(crate) fn wait_for_launches(&mut self) -> Result<()> {
        crate::call::zone::refuse_in_host_function()?;
        self.launches.wait()
    }

    /// Returns whether this executable graph may use the memory of a graph.
    #[inline]
    pub(crate) fn has_claimed(&self, graph: u64) -> bool {
        self.claims.iter().any(|claim| claim.order().graph() == graph)
    }

    /// Orders later work on the memory after the launches, when this executable graph is dropped.
    /// `is_after_earlier` says whether launches came after all earlier work.
    #[inline]
    fn order_claims(&self, launched: &[Earlier], is_after_earlier: bool) {
        for claim in &self.claims {
            match is_after_earlier {
                true => claim.supersede(launched),
                false => launched.iter().for_each(|its| claim.order().add(its.clone())),
            }
        }
    }

    /// Returns whether destroying it would wait for its launches.
    #[inline]
    fn is_destroyed_late(&self) -> bool {
        self.is_device_launch || self.objects.slots.conditional().is_some()
    }

    /// Takes the claims that last until it is destroyed: those of a graph with conditional nodes, because
    /// the driver permits one executable graph of it.
    #[inline]
    fn late_claims(&mut self) -> Vec<Claim> {
        match self.objects.slots.conditional() {
            Some(_) => std::mem::take(&mut self.claims),
            None => Vec::new(),
        }
    }

    /// Returns whether an object that its nodes use is borrowed.
    #[inline]
    pub(crate) fn depends_on_borrowed(&self) -> bool {
        self.objects.is_borrowed()
    }

    #[inline]
    pub(crate) fn raw(&self) -> CUgraphExec {
        self.raw
    }
}

impl Objects {
    /// Leaks the host functions of all nodes.
    #[inline]
    pub(crate) fn leak_functions(&self) {
        self.slots.leak_functions();
        if let Some(updated) = &self.updated {
            updated.leak_functions();
        }
    }
}

owners! {
    Objects |its| {
        context: Some(&its.context),
        is_borrowed: its.slots.is_borrowed
            || its.updated.as_ref().is_some_and(|slots| slots.is_borrowed),
    }
}

destroy! {
    Handle<CUgraphExec> as "an executable graph";
    // SAFETY: the handle stands for the executable graph, and the caller promises that this is the
    // first call. Its launches continue with the objects that they require.
    |its| unsafe { answer!(cuGraphExecDestroy(its.0)) }
}

impl Drop for ExecutableGraph {
    #[inline]
    fn drop(&mut self) {
        if self.raw.is_null() {
            return;
        }
        let is_owned = self.ownership.is_owned();
        let is_late = is_owned && self.is_destroyed_late();
        if is_owned && !is_late {
            release(Handle(self.raw), &self.objects);
        }
        // In a forked child, a thread that no longer exists may hold a lock.
        if fork::in_child() {
            if is_late {
                count_leak();
            }
            return;
        }
        let unfreed = self.kept.take_unfreed();
        let (streams, is_after_earlier) = self.launches.take();
        if streams.is_empty() && !is_late {
            // No launch uses the objects, which are dropped with this value.
            return;
        }
        let (retired, objects) = (std::mem::take(&mut self.retired), self.objects.clone());
        let waits = retired.is_borrowed() || objects.is_borrowed();
        let launches = Launched::new(streams, waits);
        let launched = launches.record();
        let unfreed = launches.free_now(unfreed);
        // Another executable graph may use the memory next.
        self.order_claims(&launched, is_after_earlier);
        let context = self.context().clone();
        let late = || ClaimingHandle { raw: Handle(self.raw), claims: self.late_claims() };
        let executable = is_late.then(late);
        launches.release(Used { executable, retired, objects: Some(objects), unfreed }, &context);
    }
}

impl Drop for RetainedObjects {
    #[inline]
    fn drop(&mut self) {
        if self.launches.is_empty() || fork::in_child() {
            return;
        }
        let launches = std::mem::take(&mut self.launches);
        let objects = std::mem::take(&mut self.objects);
        objects.release_after(launches, &self.context);
    }
}

debug_struct! { ExecutableGraph |its| { raw: its.raw, context: its.context() } }

debug_struct! { RetainedObjects |its| { context: its.context, .. } }

/// Options for [`Graph::instantiate_with`]. The default sets no flag.
#[derive(Clone, Copy, Debug, Default)]
pub struct InstantiateOptions<'a> {
    /// Whether a launch first frees the allocations of the previous launch that were not freed
    /// (`CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`). See [`GraphAllocation`](crate::graph::GraphAllocation).
    pub auto_free_on_launch: bool,
    /// The stream on which the graph is uploaded to the device
    /// (`CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`). Since CUDA 12.0. See
    /// [`ExecutableGraph::upload`].
    pub upload: Option<&'a Stream>,
    /// Whether kernels can launch the graph (`CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`). Cannot be
    /// combined with `auto_free_on_launch`. The graph contains kernels, copies, fills and child graphs.
    /// See [`DeviceGraph`](crate::graph::DeviceGraph).
    pub device_launch: bool,
    /// Whether kernels run with the priorities of their nodes instead of the priority of the stream
    /// (`CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`). Since CUDA 11.7.
    pub use_node_priority: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl InstantiateOptions<'_> {
    #[inline]
    fn flags(&self) -> Result<Flags> {
        let Self {
            auto_free_on_launch,
            upload,
            device_launch,
            use_node_priority,
            _non_exhaustive: (),
        } = *self;
        refuse_if!(auto_free_on_launch && device_launch, Invalid::InstantiateOptions);
        let mut flags = Flags(0);
        if auto_free_on_launch {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        }
        if upload.is_some() {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
        }
        if device_launch {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
        }
        if use_node_priority {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        }
        Ok(flags)
    }
}

impl Graph {
    /// Creates an executable copy of the graph. Calls `cuGraphInstantiate`. This graph may then be
    /// dropped or changed.
    ///
    /// # Errors
    /// See [`instantiate_with`](Self::instantiate_with).
    ///
    /// Since CUDA 11.4 (through `cuGraphInstantiateWithParams` since 12.0). Raw:
    /// [`cuGraphInstantiateWithParams`](fn@cuda_sys::cuGraphInstantiateWithParams),
    /// [`cuGraphInstantiateWithFlags`](fn@cuda_sys::cuGraphInstantiateWithFlags).
    #[doc(alias = "cuGraphInstantiateWithParams", alias = "cuGraphInstantiateWithFlags")]
    #[inline]
    pub fn instantiate(&self) -> Result<ExecutableGraph> {
        self.instantiate_with(&InstantiateOptions::default())
    }

    /// Creates an executable copy of the graph with options. Calls `cuGraphInstantiate`.
    ///
    /// # Errors
    /// - [`Invalid::UnorderedAccess`] if two nodes use the same memory of the graph, one of them writes,
    ///   and no path of [full](crate::graph::EdgeKind::Full) edges leads from one to the other.
    /// - [`Invalid::UnallocatedAccess`] if a node uses memory of an allocation node before that node, or
    ///   after the node that frees the memory.
    /// - [`Invalid::MemoryNodes`] if `device_launch` is set for a graph with allocation or free nodes.
    /// - [`Invalid::SecondExecutable`] if the graph owns memory or has conditional nodes, and another
    ///   executable graph of it exists. One with conditional nodes exists until its launches are complete.
    /// - [`Invalid::ConditionalHandleWithoutNode`]; [`Invalid::GraphHasConditionals`] for the body of a
    ///   conditional node.
    /// - [`Invalid::Instantiation`] if the driver names the node or the reason.
    /// - [`Invalid::InstantiateOptions`]; for `upload`, [`Invalid::StreamIsCaptured`],
    ///   [`Invalid::BorrowedStream`] and [`Invalid::OtherContext`], and [`Error::Missing`] before CUDA 12.0.
    /// - `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 11.4 (through `cuGraphInstantiateWithParams` since 12.0). Raw:
    /// [`cuGraphInstantiateWithParams`](fn@cuda_sys::cuGraphInstantiateWithParams),
    /// [`cuGraphInstantiateWithFlags`](fn@cuda_sys::cuGraphInstantiateWithFlags),
    /// [`cuGraphExecDestroy`](fn@cuda_sys::cuGraphExecDestroy).
    #[doc(alias = "cuGraphInstantiateWithParams", alias = "cuGraphInstantiateWithFlags")]
    #[doc(alias = "cuGraphExecDestroy")]
    #[inline]
    pub fn instantiate_with(&self, options: &InstantiateOptions<'_>) -> Result<ExecutableGraph> {
        let flags = options.flags()?;
        release::drain();
        let slots = &self.owners.slots;
        slots.check_conditionals()?;
        slots.check_accesses(None)?;
        if options.device_launch {
            slots.refuse_memory_nodes("be launched by kernels")?;
        }
        let claims = slots.orders.iter().map(|order| order.claim());
        let mut claims = claims.collect::<Result<Vec<Claim>>>()?;
        let mut earlier = slots.all_after();
        let orders = claims.iter_mut();
        orders.for_each(|claim| claim.find_earlier(&mut earlier));
        let kept = KeptAllocations::new(slots, options.auto_free_on_launch);
        let launches = Launches::keeping(earlier, &kept);
        let mut _call = None;
        if let Some(stream) = options.upload {
            same_context("the stream", stream.context(), self.context())?;
            refuse_if!(stream.is_borrowed(), Invalid::BorrowedStream);
            _call = Some(stream.uncaptured(Operation::Launch)?);
            // Noted before the upload, which uses the objects of the graph.
            let _ = launches.admit(stream)?;
        }
        let mut raw = std::ptr::null_mut();
        let mut parameters = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: flags.0.into(),
            hUploadStream: options.upload.map_or(std::ptr::null_mut(), Stream::raw),
            hErrNode_out: std::ptr::null_mut(),
            result_out: Outcome::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        };
        let _current = self.context().enter()?;
        let newest = {
            let (executable, parameters) = (&raw mut raw, &raw mut parameters);
            // SAFETY: the graph is alive and used only by this thread, its nodes own what they use, and
            // the pointers refer to local variables. The upload stream is alive.
            unsafe { call!(cuGraphInstantiateWithParams(executable, self.raw, parameters)) }
        };
        let made = match options.upload {
            Some(_) => newest,
            None => newest_or(newest, || {
                let flags = flags.0.into();
                // SAFETY: as above.
                unsafe { call!(cuGraphInstantiateWithFlags(&raw mut raw, self.raw, flags)) }
            }),
        };
        made.map_err(|error| self.explain_instantiation(error, &parameters))?;
        let context = self.context();
        let mut executable = ExecutableGraph::own(raw, slots, context, claims, kept, launches);
        executable.is_device_launch = options.device_launch;
        Ok(executable)
    }

    /// Returns the error of an instantiation with the node and the reason that the driver gave.
    #[cold]
    #[inline]
    fn explain_instantiation(
        &self,
        error: Error,
        parameters: &CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> Error {
        let reason = match parameters.result_out {
            Outcome::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE => "the edges form a cycle",
            Outcome::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED => {
                "the driver does not support this node here"
            }
            Outcome::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED => {
                "the nodes belong to different contexts, which the driver does not support here"
            }
            Outcome::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED => {
                "a conditional handle has no node"
            }
            _ => return error,
        };
        let node = self.slots().describe_raw(parameters.hErrNode_out);
        match error {
            Error::Driver(driver) => {
                Invalid::Instantiation { node, reason, code: driver.code }.into()
            }
            error => error,
        }
    }
}
