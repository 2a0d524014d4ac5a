//! CUDA graphs: work that is described once and launched many times.
//!
//! A [`Graph`] consists of nodes (kernels, copies, fills, host functions and others) and of edges that order
//! them. [`Graph::instantiate`] creates an [`ExecutableGraph`], and
//! [`ExecutableGraph::launch`] enqueues all of its work on a stream with one call. The call takes about as
//! long as the launch of one kernel, whatever the number of nodes.
//!
//! # Creating a graph
//! | Function | Nodes come from | Memory | Launch |
//! |---|---|---|---|
//! | [`Graph::new`] and `add_*` | calls of this crate, one for each node | owned by the graph | safe |
//! | [`Stream::capture`](crate::Stream::capture) | the work that a function enqueues on a stream, also that of other libraries | borrowed | [`unsafe`](ExecutableGraph::launch_unchecked) |
//!
//! # Ownership
//! The driver keeps nothing alive that a graph uses, and crashes if a kernel, an event or a context was destroyed
//! before the graph is instantiated or launched. Here, each node owns what it uses, and an executable graph
//! keeps all of it alive until its launches are complete. Launching a graph that was built with `add_*` is
//! therefore a safe call. The contract of each kernel is promised once, when its node is added.
//!
//! # Memory
//! A buffer is [moved](Graph::own) into one graph. The nodes of that graph declare with `&` and `&mut`
//! whether they read or write it, and [`Graph::instantiate`] refuses two nodes that conflict without an
//! order. [`ExecutableGraph::access`] uses the buffer between launches, and
//! [`GraphBuffer::into_buffer`] returns it at the end. A [`SharedBuffer`](crate::SharedBuffer) is only read,
//! by any number of graphs.
//!
//! One executable graph of a graph with memory exists at a time, because the driver runs the launches of
//! one executable graph in order, and those of two at the same time.
//!
//! # Changing a graph
//! [`ExecutableGraph::nodes`] changes single nodes: arguments, configurations, addresses, functions and
//! events. [`ExecutableGraph::update`] changes all nodes to those of another graph of the same shape. Both
//! take effect for later launches, also while earlier ones run.
//!
//! # Green contexts
//! Each kernel node has its own context ([`NodeContext`]). The stream of a launch does not confine kernels to
//! a partition.

pub(crate) mod exec;
pub(crate) mod memory;
pub(crate) mod nodes;
mod record;
pub(crate) mod rules;

pub use exec::executable::{ExecutableGraph, InstantiateOptions, RetainedObjects};
pub use exec::update::{ExecutableNodes, UpdateError, UpdateProblem};
pub(crate) use nodes::NewNode;
pub(crate) use nodes::allocation::NodeAllocation;
pub(crate) use nodes::arguments::NodeUses;
pub use nodes::arguments::{NodeArgument, NodeArguments};
pub(crate) use nodes::captured::Before;
pub use nodes::captured::CaptureDependency;
pub use nodes::child::ChildGraph;
pub(crate) use nodes::conditional::BodyPlace;
pub use nodes::conditional::ConditionalHandle;
pub use nodes::device_launch::DeviceGraph;
pub(crate) use nodes::host::HostFunction;
pub use nodes::kernel::NodeContext;
pub use nodes::semaphores::{SemaphoreSignal, SemaphoreWait};
pub use nodes::{Node, NodeId, NodeType, kind};
pub use record::GraphRecorder;
pub(crate) use rules::access::Lifetime;
pub use rules::edges::{Edge, EdgeKind};
pub(crate) use rules::order::{Earlier, MemoryOrder, new_buffer_number};
pub(crate) use rules::owners::{Content, RawNode, Retained, UserObject};

pub use crate::graph::memory::access::{GraphAccess, GraphReadAccess};
pub use crate::graph::memory::alloc::{AllocOptions, AllocParameters, GraphAllocation};
pub use crate::graph::memory::buffer::{GraphBuffer, GraphSlice, GraphSliceMut};
pub use crate::graph::memory::copy::{CopySource, CopyTarget};
pub use crate::graph::memory::pinned::GraphPinned;
pub use crate::graph::memory::usage::GraphMemoryUsage;
pub use crate::graph::nodes::node_attribute;
pub use crate::graph::nodes::node_attribute::{DeviceNode, NodeAttribute};

use crate::call::{Invalid, Ownership, Result, answer, call, debug_struct, expect_handle, out};
use crate::capture_state::Retain;
use crate::context::Context;
use crate::graph::exec::launches::{Replaced, Retired};
use crate::graph::rules::owners::Slots;
use crate::release::{self, Handle, destroy, owners, release};
use crate::stream::ExecutionContext;
use cuda_sys::{CUgraph, CUgraphNode};
use std::any::Any;
use std::sync::Arc;

/// A CUDA graph (`CUgraph`): nodes of work, and edges that order them.
///
/// [`Graph::new`] creates an empty graph, and [`Stream::capture`](crate::Stream::capture) one from the
/// work of a function. The `add_*` functions add nodes. Each one takes the nodes that the new node comes
/// after, and returns a [`Node`].
///
/// A graph cannot be launched itself: [`instantiate`](Self::instantiate) creates an [`ExecutableGraph`].
///
/// # Ownership
/// A graph owns everything that its nodes use: kernels with their modules, host functions, events,
/// contexts, and memory. An executable graph shares these objects, and keeps them alive until its last
/// launch is complete. So launching a graph that was built with these functions is safe.
///
/// Memory enters a graph in one of these ways:
/// - [`own`](Self::own) and [`own_pinned`](Self::own_pinned) move a buffer into the graph. Its nodes
///   read and write the buffer.
/// - [`add_alloc`](Self::add_alloc) adds a node that allocates memory in each launch.
/// - A [`SharedBuffer`](crate::SharedBuffer) is only read, by any number of graphs.
///
/// [`instantiate`](Self::instantiate) checks that two nodes that use the same memory, and of which one
/// writes, are ordered by edges.
///
/// A *captured* graph does not own the buffers and kernels of the captured work. It keeps only these
/// objects alive: the contexts and green contexts of all streams that took part in the capture, and the
/// events of [external](crate::Event::record_external) records and waits, and
/// [captured host functions](crate::Stream::capture_host_function). For streams with a foreign
/// owner and streams of a [pool](crate::green::GreenPool), it keeps the streams themselves alive.
/// Launching it is therefore `unsafe`: see [`ExecutableGraph::launch_unchecked`]. A [`GraphRecorder`]
/// makes a graph that owns everything from the same sequence of calls, and captures only the work of
/// libraries.
///
/// [`instantiate`](Self::instantiate) creates the executable graph;
/// [`instantiate_with`](Self::instantiate_with) takes [`InstantiateOptions`].
///
/// # Threads
/// A graph is `Send`, but not `Sync`, because the driver does not lock graphs. Destroying a graph
/// (`cuGraphDestroy`) waits for nothing.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Graph};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut graph = Graph::new(&context)?;
/// let first = graph.add_host_function(&[], || println!("first"))?;
/// let second = graph.add_host_function(&[first.id()], || println!("second"))?;
/// assert_eq!(graph.dependencies(second.id())?, [first.id()]);
/// let executable = graph.instantiate()?;
/// for _ in 0..10 {
///     executable.launch(&stream)?;
/// }
/// stream.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// Raw: [`cuGraphDestroy`](fn@cuda_sys::cuGraphDestroy).
#[doc(alias = "cuGraphDestroy")]
pub struct Graph {
    /// Null if ownership was released.
    raw: CUgraph,
    ownership: Ownership,
    owners: GraphOwners,
    /// Empty lists with room for the content of the next node, so that adding a node allocates nothing.
    room: Option<Box<Content>>,
}

/// The objects that must outlive a graph.
#[derive(Clone)]
struct GraphOwners {
    /// Declared before the context, so that it is dropped first.
    slots: Arc<Slots>,
    context: Context,
}

// SAFETY: the driver allows any thread to use a graph, one thread at a time.
unsafe impl Send for Graph {}

impl Graph {
    /// Creates a graph without nodes. Calls `cuGraphCreate`.
    ///
    /// `context` is the context of the copies and fills of the graph, and is current when the graph is
    /// instantiated. The graph can be launched on the streams of this context. Each kernel node has its
    /// own context.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphCreate`](fn@cuda_sys::cuGraphCreate).
    #[doc(alias = "cuGraphCreate")]
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        release::drain();
        // SAFETY: `out` passes a valid pointer.
        let raw = out(|place| unsafe { call!(cuGraphCreate(place, 0)) })?;
        let home = Retained::ExecutionContext(ExecutionContext::Context(context.clone()));
        Ok(Self::of_slots(raw, context, Slots::new(vec![home])))
    }

    #[inline]
    fn of_slots(raw: CUgraph, context: &Context, slots: Slots) -> Self {
        Self {
            raw,
            ownership: Ownership::Owned,
            owners: GraphOwners { slots: Arc::new(slots), context: context.clone() },
            room: None,
        }
    }

    /// Takes ownership of a new graph of captured work, whose stream needs `own`.
    #[inline]
    pub(crate) fn captured(raw: CUgraph, context: &Context, own: Retained) -> Self {
        let mut slots = Slots::new(vec![own]);
        slots.borrows_memory = true;
        slots.is_foreign = true;
        slots.is_captured = true;
        Self::of_slots(raw, context, slots)
    }

    /// Adds objects that the graph needs.
    #[inline]
    pub(crate) fn with_retained(mut self, others: Vec<Arc<dyn Retain>>) -> Self {
        let slots = self.slots_mut();
        for other in others {
            slots.retain(Retained::of_capture(other));
        }
        self
    }

    /// Takes ownership of `raw`. The graph is destroyed when the returned object is dropped.
    ///
    /// Launching it is `unsafe`, because it is not known what its nodes use. See
    /// [`assume_owned`](Self::assume_owned).
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live graph that is not a child of another graph, and no other code may destroy
    /// or use it. Its edges must form no cycle. Its work must belong to `context`, or to contexts and
    /// green contexts that outlive the returned object and the executable graphs created from it. The
    /// events and modules that it uses must outlive them too.
    #[inline]
    pub unsafe fn from_raw(raw: CUgraph, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Wraps a graph that foreign code owns, or a child graph, which belongs to its parent. It is never
    /// destroyed here.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live graph that stays alive until the returned object is dropped, and that no
    /// other thread uses at the same time as the returned object. Its edges must form no cycle. Other code must not
    /// remove nodes that the returned object added or returned. Its contexts, events and modules must
    /// be alive as for [`from_raw`](Self::from_raw). The returned object keeps the objects alive that
    /// nodes added or changed through it use, so other code must not use these nodes after it is
    /// dropped.
    #[inline]
    pub unsafe fn borrow_raw(raw: CUgraph, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Wraps a graph that `owner` keeps alive. It is never destroyed here. `owner` is dropped after the
    /// returned object.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// The conditions of [`borrow_raw`](Self::borrow_raw), but `owner` keeps the graph alive.
    pub unsafe fn from_foreign(
        raw: CUgraph,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    /// Wraps a graph that foreign code created.
    #[inline]
    fn wrap(raw: CUgraph, context: &Context, ownership: Ownership) -> Result<Self> {
        expect_handle("graph", raw)?;
        let home = Retained::ExecutionContext(ExecutionContext::Context(context.clone()));
        let mut graph = Self::captured(raw, context, home);
        graph.slots_mut().is_captured = false;
        graph.ownership = ownership;
        Ok(graph)
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    ///
    /// Nodes and edges that other code adds with the handle are unknown to this object: it checks the
    /// accesses to memory by the edges that it added itself. Other code must not remove nodes or edges.
    ///
    /// The nodes expose the handles of events. See [`Event::as_raw`](crate::Event::as_raw).
    #[inline]
    pub fn as_raw(&self) -> CUgraph {
        self.slots().publish();
        self.raw
    }

    /// Releases ownership, and returns the handle with the objects that its nodes use. The caller must
    /// destroy the graph before dropping these objects.
    #[inline]
    pub fn into_raw(self) -> (CUgraph, RetainedObjects) {
        self.slots().publish();
        let (raw, GraphOwners { slots, context }) = self.into_parts();
        let mut objects = Retired::default();
        objects.add(Replaced::Graph(slots));
        (raw, RetainedObjects::new(objects, Vec::new(), context))
    }

    /// Takes the graph apart without destroying it. A foreign owner keeps it alive until the process
    /// exits.
    #[inline]
    fn into_parts(mut self) -> (CUgraph, GraphOwners) {
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Owned));
        (raw, self.owners.clone())
    }

    /// Returns the context of the graph: the one that it was created for, or in which it was captured.
    #[inline]
    pub fn context(&self) -> &Context {
        &self.owners.context
    }

    /// Declares that the graph owns everything that it uses, so that its executable graphs can be
    /// launched by safe code.
    ///
    /// Without this call, [`ExecutableGraph::launch`] refuses a captured graph.
    /// A [`GraphRecorder`] needs no promise for the nodes that it adds, and [`GraphRecorder::capture`] a
    /// promise about the captured work only.
    ///
    /// # Safety
    /// The conditions of [`ExecutableGraph::launch_unchecked`] must hold for each launch of each
    /// executable graph that is instantiated or updated from this graph from now on, whatever safe code
    /// does.
    #[inline]
    pub unsafe fn assume_owned(&mut self) {
        self.slots_mut().borrows_memory = false;
    }

    /// Creates a copy of the graph. Calls `cuGraphClone`, and `cuGraphNodeFindInClone` for each node.
    ///
    /// [`node_in_clone`](Self::node_in_clone) finds the nodes of the copy. The copy shares the objects
    /// that the nodes use.
    ///
    /// # Errors
    /// [`Invalid::GraphOwnsMemory`] if the graph owns memory, because memory belongs to one graph;
    /// [`Invalid::GraphHasConditionals`] if it has conditional handles or nodes, or is the body of one;
    /// `CUDA_ERROR_NOT_SUPPORTED` for a graph with nodes that the driver cannot clone.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphClone`](fn@cuda_sys::cuGraphClone),
    /// [`cuGraphNodeFindInClone`](fn@cuda_sys::cuGraphNodeFindInClone).
    #[doc(alias = "cuGraphClone", alias = "cuGraphNodeFindInClone")]
    // The driver writes to a graph that it clones, although the handle stays the same.
    #[inline]
    pub fn try_clone(&mut self) -> Result<Self> {
        self.refuse_owned_memory("be cloned")?;
        // SAFETY: the graph is alive and used only by this thread, and `out` passes a valid pointer.
        let raw = out(|place| unsafe { call!(cuGraphClone(place, self.raw)) })?;
        // Destroys the clone if a node is not found.
        let mut clone = Self::of_slots(raw, self.context(), Slots::new(Vec::new()));
        let slots = self.slots().cloned(|node| {
            // SAFETY: the node belongs to this graph, which is alive, and `out` passes a valid pointer.
            out(|place| unsafe { call!(cuGraphNodeFindInClone(place, node, raw)) })
        })?;
        clone.owners.slots = Arc::new(slots);
        Ok(clone)
    }

    /// Returns the node of this graph that corresponds to a node of the graph from which this one was
    /// cloned.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`] if this graph is not a clone of the node's graph;
    /// [`Invalid::NoSuchNode`] if the node was added later, or removed from this graph.
    pub fn node_in_clone<K: kind::Kind>(&self, original: Node<K>) -> Result<Node<K>> {
        self.typed(self.slots().copy_of(original.id())?)
    }

    /// Returns the handle of a node with its kind.
    ///
    /// # Errors
    /// [`Invalid::NodeKind`] for a node of another kind; [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`].
    pub fn typed<K: kind::Kind>(&self, node: NodeId) -> Result<Node<K>> {
        self.slots().typed(node)
    }

    #[inline]
    pub(crate) fn slots(&self) -> &Slots {
        &self.owners.slots
    }

    /// Returns the slots to change them. They are copied first if an executable graph shares them.
    #[inline]
    fn slots_mut(&mut self) -> &mut Slots {
        Arc::make_mut(&mut self.owners.slots)
    }

    /// Returns the handle of a node for a driver call.
    ///
    /// # Errors
    /// See [`Slots::get`].
    #[inline]
    pub(crate) fn raw_node(&self, id: NodeId) -> Result<CUgraphNode> {
        self.slots().raw(id)
    }

    /// Returns the order of the work on the memory of this graph.
    #[inline]
    pub(crate) fn memory_order(&mut self) -> Arc<MemoryOrder> {
        let number = self.slots().root();
        let orders = &self.slots().orders;
        if let Some(order) = orders.iter().find(|order| order.graph() == number) {
            return Arc::clone(order);
        }
        let order = MemoryOrder::new(number);
        self.slots_mut().orders.push(Arc::clone(&order));
        order
    }

    /// Keeps all memory that the graph owns now, whichever nodes use it.
    #[inline]
    fn keep_memory(&mut self) {
        let orders = self.slots().orders.iter();
        let memory: Vec<_> = orders.flat_map(|order| order.take_memory()).collect();
        let slots = self.slots_mut();
        slots.is_borrowed |= memory.iter().any(|its| its.is_borrowed());
        slots.common.extend(memory.into_iter().map(Retained::Object));
    }

    /// Returns an error if the graph owns memory or has conditional handles.
    #[inline]
    fn refuse_owned_memory(&self, what: &'static str) -> Result<()> {
        self.refuse_conditionals(what)?;
        match self.slots().orders.is_empty() {
            true => Ok(()),
            false => Err(Invalid::GraphOwnsMemory { what }.into()),
        }
    }
}

owners! {
    GraphOwners |its| {
        context: Some(&its.context),
        is_borrowed: its.slots.is_borrowed,
    }
}

destroy! {
    Handle<CUgraph> as "a graph";
    // SAFETY: the handle stands for the graph, and the caller promises that this is the first call.
    // Executable graphs are copies.
    |its| unsafe { answer!(cuGraphDestroy(its.0)) }
}

impl Drop for Graph {
    #[inline]
    fn drop(&mut self) {
        if !self.raw.is_null() && self.ownership.is_owned() {
            release(Handle(self.raw), &self.owners);
        }
    }
}

debug_struct! { Graph |its| { raw: its.raw, context: its.context() } }
