//! Nodes that allocate and free memory.

use super::buffer::NodeMemory;
use crate::call::{Invalid, Result, bytes_of, call, refuse_if};
use crate::capture_state::Retain;
use crate::context::Context;
use crate::device::Device;
use crate::graph::{
    Content, ExecutableGraph, Graph, Lifetime, MemoryOrder, NewNode, Node, NodeAllocation, NodeId,
    NodeUses, kind,
};
pub(crate) use crate::memory::buffer::allocation::Release;
use crate::memory::{DeviceBuffer, MemoryAccess, MemoryLocation};
use crate::stream::Stream;
use cuda_sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr, CUmemAccessDesc, CUmemAllocationType, CUmemPoolProps,
};
use std::marker::PhantomData;
use std::sync::Arc;

/// Memory that a node of a [`Graph`] allocates in each launch: a handle of `len` elements of `T`. Returned
/// by [`Graph::add_alloc`].
///
/// Nodes of the graph take `&GraphAllocation` to read it and `&mut GraphAllocation` to write it, as for a
/// [`GraphBuffer`](super::GraphBuffer). [`slice`](Self::slice) and [`slice_mut`](Self::slice_mut) name a
/// part. The elements are uninitialized until a node writes them.
///
/// The address is the same in every launch, but there is memory only after the allocation node has run.
/// [`Graph::instantiate`] checks that all other nodes come after the allocation node, and before the node
/// that [frees](Graph::add_free) the memory.
///
/// # Memory that a launch keeps
/// Without a free node, the memory stays allocated after the launch. The next launch is an error
/// ([`Invalid::AllocationAlive`](crate::Invalid::AllocationAlive)) until the memory is freed:
/// - [`ExecutableGraph::take_allocation`] returns it as a [`DeviceBuffer`], which frees it when it is
///   dropped.
/// - With [`auto_free_on_launch`](crate::graph::InstantiateOptions::auto_free_on_launch), the next launch
///   frees it.
///
/// Dropping the executable graph frees it too, after the launches. If a free node is added then, the launches
/// of later executable graphs are an error too until the memory of the earlier launch is freed.
pub struct GraphAllocation<T> {
    pub(super) memory: Arc<NodeAllocation>,
    pub(super) len: usize,
    elements: PhantomData<T>,
}

/// Options for [`Graph::add_alloc`]. By default, only the device of the graph's context can access the
/// memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocOptions<'a> {
    /// Other devices that can access the memory.
    pub access: &'a [(Device, MemoryAccess)],
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// The parameters of an allocation node. Returned by [`Graph::alloc_parameters`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllocParameters {
    /// The address of the memory.
    pub address: CUdeviceptr,
    /// The size of the memory in bytes.
    pub size_bytes: usize,
    /// The location of the memory.
    pub location: Option<MemoryLocation>,
    /// The devices that were given access to the memory, besides that of its location.
    pub access: Vec<(Option<MemoryLocation>, MemoryAccess)>,
}

impl Graph {
    /// Adds an allocation of `len` elements in the memory of the device of the graph's context. Calls
    /// `cuGraphAddMemAllocNode`.
    ///
    /// Returns the node, and the memory for the nodes that use it. The memory is not initialized.
    ///
    /// A graph with an allocation node cannot be cloned or copied into another graph, cannot lose nodes or
    /// edges, and has one executable graph at a time. Executable graphs of several graphs use the same
    /// physical memory if they run one after another. The driver keeps that memory for later launches:
    /// see [`Device::trim_graph_memory`].
    ///
    /// # Errors
    /// - [`Invalid::EmptyNode`] if there are no bytes to allocate; [`Invalid::TooLarge`].
    /// - `CUDA_ERROR_OUT_OF_MEMORY` if no device has as much memory. If there is too little memory, a launch
    ///   returns this error.
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without memory pools
    ///   ([`MEMORY_POOLS_SUPPORTED`](crate::device::attribute::MEMORY_POOLS_SUPPORTED)).
    /// - See also [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 11.4. Raw: [`cuGraphAddMemAllocNode`](fn@cuda_sys::cuGraphAddMemAllocNode).
    ///
    /// ```no_run
    /// use cuda_safe::graph::AllocOptions;
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut graph = Graph::new(&context)?;
    /// let mut sum = graph.own(DeviceBuffer::<u32>::zeroed(&stream, 1000)?)?;
    /// let (alloc, mut scratch) = graph.add_alloc::<u32>(&[], 1000, &AllocOptions::default())?;
    /// let fill = graph.add_fill(&[alloc.id()], &mut scratch, 7)?;
    /// let copy = graph.add_copy(&[fill.id()], &mut sum, &scratch)?;
    /// graph.add_free(&[copy.id()], &mut scratch)?;
    /// let mut executable = graph.instantiate()?;
    /// executable.launch(&stream)?;
    /// assert_eq!(executable.access(&mut sum, &stream)?.as_slice().to_vec()?, [7; 1000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuGraphAddMemAllocNode")]
    pub fn add_alloc<T>(
        &mut self,
        dependencies: &[NodeId],
        len: usize,
        options: &AllocOptions<'_>,
    ) -> Result<(Node<kind::Alloc>, GraphAllocation<T>)> {
        let AllocOptions { access, _non_exhaustive: () } = *options;
        let size = bytes_of::<T>(len)?;
        refuse_if!(size == 0, Invalid::EmptyNode { what: "an allocation" });
        let describe = |(device, access): &(Device, MemoryAccess)| access.at((*device).into());
        let access: Vec<CUmemAccessDesc> = access.iter().map(describe).collect();
        let mut parameters = CUDA_MEM_ALLOC_NODE_PARAMS {
            poolProps: CUmemPoolProps {
                allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
                location: MemoryLocation::Device(self.context().device()).raw(),
                ..CUmemPoolProps::default()
            },
            accessDescs: if access.is_empty() { std::ptr::null() } else { access.as_ptr() },
            accessDescCount: access.len(),
            bytesize: size,
            dptr: 0,
        };
        let add = |(node, graph, dependencies, count): NewNode| {
            let parameters = &raw mut parameters;
            // SAFETY: the graph and its nodes are alive, `dependencies` has `count` of them, and the node
            // and the parameters are local variables. The parameters refer to an array of as many
            // descriptions as they say, or to none.
            unsafe { call!(cuGraphAddMemAllocNode(node, graph, dependencies, count, parameters)) }
        };
        let added =
            self.add_memory(|graph, order| graph.add_allocation(dependencies, order, len, add));
        let (node, allocation) = added.map_err(|error| error.with_requested_bytes(size))?;
        allocation.memory.set_address(parameters.dptr);
        Ok((node, allocation))
    }

    /// Adds an allocation node. `add` calls the driver.
    fn add_allocation<T>(
        &mut self,
        dependencies: &[NodeId],
        order: Arc<MemoryOrder>,
        len: usize,
        add: impl FnOnce(NewNode) -> Result<()>,
    ) -> Result<(Node<kind::Alloc>, GraphAllocation<T>)> {
        let allocation = GraphAllocation {
            memory: NodeAllocation::new(self.context(), order),
            len,
            elements: PhantomData,
        };
        let mut content = Content::default();
        let mut uses = NodeUses::new(self.context(), &mut content);
        allocation.declare(Lifetime::Begin, &mut uses)?;
        uses.complete::<kind::Alloc>(self.slots(), [])?;
        content.allocation = Some(Arc::clone(&allocation.memory));
        let node = self.add_node(dependencies, &mut content, add)?;
        Ok((node, allocation))
    }

    /// Adds a node that frees the memory of an allocation node of this graph. Calls
    /// `cuGraphAddMemFreeNode`.
    ///
    /// All nodes that use the memory must precede this node, which [`instantiate`](Self::instantiate)
    /// checks. A later allocation node can reuse the memory.
    ///
    /// # Errors
    /// - [`Invalid::FreedTwice`] if the memory has a free node.
    /// - [`Invalid::BufferOfOtherGraph`] if another graph allocates
    ///   the memory.
    /// - `CUDA_ERROR_INVALID_VALUE` if this graph has the allocation node and was instantiated with it
    ///   (driver 580). If the allocation node is in a [moved child](Self::add_child_moved), the parent can
    ///   still get the free node.
    /// - See also [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 11.4. Raw: [`cuGraphAddMemFreeNode`](fn@cuda_sys::cuGraphAddMemFreeNode).
    #[doc(alias = "cuGraphAddMemFreeNode")]
    pub fn add_free<T>(
        &mut self,
        dependencies: &[NodeId],
        allocation: &mut GraphAllocation<T>,
    ) -> Result<Node<kind::Free>> {
        let mut content = Content::default();
        let mut uses = NodeUses::new(self.context(), &mut content);
        allocation.declare(Lifetime::End, &mut uses)?;
        uses.complete::<kind::Free>(self.slots(), [])?;
        let address = allocation.as_raw();
        allocation.memory.add_free_node(|| {
            self.add_node(dependencies, &mut content, |(node, graph, dependencies, count)| {
                // SAFETY: the graph and its nodes are alive, `dependencies` has `count` of them, and the
                // node is a local variable. The address is that of an allocation node of this graph, and
                // no other node frees it.
                unsafe { call!(cuGraphAddMemFreeNode(node, graph, dependencies, count, address)) }
            })
        })
    }

    /// Returns the parameters of an allocation node. Calls `cuGraphMemAllocNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 11.4. Raw:
    /// [`cuGraphMemAllocNodeGetParams`](fn@cuda_sys::cuGraphMemAllocNodeGetParams).
    #[doc(alias = "cuGraphMemAllocNodeGetParams")]
    #[inline]
    pub fn alloc_parameters(&self, node: Node<kind::Alloc>) -> Result<AllocParameters> {
        let parameters: CUDA_MEM_ALLOC_NODE_PARAMS = self.query(node, |node, place| {
            // SAFETY: the node exists and is an allocation, and the pointer is valid.
            unsafe { call!(cuGraphMemAllocNodeGetParams(node, place)) }
        })?;
        let access: &[CUmemAccessDesc] = match parameters.accessDescs.is_null() {
            true => &[],
            // SAFETY: the driver returned a pointer to its array of as many descriptions, which exists as
            // long as the node, and which is not changed while the graph is borrowed.
            false => unsafe {
                std::slice::from_raw_parts(parameters.accessDescs, parameters.accessDescCount)
            },
        };
        let access = access.iter().map(|its| {
            let access = MemoryAccess::from_raw(its.flags);
            (MemoryLocation::from_raw(its.location), access)
        });
        Ok(AllocParameters {
            address: parameters.dptr,
            size_bytes: parameters.bytesize,
            location: MemoryLocation::from_raw(parameters.poolProps.location),
            access: access.collect(),
        })
    }

    /// Returns the address that a free node frees. Calls `cuGraphMemFreeNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 11.4. Raw:
    /// [`cuGraphMemFreeNodeGetParams`](fn@cuda_sys::cuGraphMemFreeNodeGetParams).
    #[doc(alias = "cuGraphMemFreeNodeGetParams")]
    #[inline]
    pub fn free_parameters(&self, node: Node<kind::Free>) -> Result<CUdeviceptr> {
        // SAFETY: the node exists and is a free, and the pointer is valid.
        self.query(node, |node, place| unsafe { call!(cuGraphMemFreeNodeGetParams(node, place)) })
    }
}

impl ExecutableGraph {
    /// Returns the memory that the last launch allocated and did not free, as a buffer that is bound to
    /// `stream`.
    ///
    /// The stream waits on the GPU for all launches so far. The elements are those that the launch wrote,
    /// and uninitialized otherwise.
    ///
    /// Dropping the buffer frees the memory in stream order (`cuMemFreeAsync`). Until then the graph cannot
    /// be launched, also with
    /// [`auto_free_on_launch`](crate::graph::InstantiateOptions::auto_free_on_launch), because the address
    /// is the same in every launch. The next launch waits on the GPU for the free. After
    /// [`DeviceBuffer::into_raw`] the graph can never be launched again.
    ///
    /// # Errors
    /// - [`Invalid::AllocationNotAlive`](crate::Invalid::AllocationNotAlive) if this executable graph was
    ///   not launched since the memory was freed or taken, if the graph has a free node for the memory, or
    ///   if the memory belongs to another graph.
    /// - [`Invalid::OtherContext`](crate::Invalid::OtherContext) if the stream belongs to another context.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), also if a stream of an earlier
    ///   launch is capturing.
    /// - Errors from the driver.
    ///
    /// Since CUDA 11.4. Raw: [`cuMemFreeAsync`](fn@cuda_sys::cuMemFreeAsync).
    ///
    /// ```no_run
    /// use cuda_safe::graph::AllocOptions;
    /// use cuda_safe::{Context, Device, Graph};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut graph = Graph::new(&context)?;
    /// let (alloc, mut memory) = graph.add_alloc::<u32>(&[], 1000, &AllocOptions::default())?;
    /// graph.add_fill(&[alloc.id()], &mut memory, 7)?;
    /// let mut executable = graph.instantiate()?;
    /// for _ in 0..10 {
    ///     executable.launch(&stream)?;
    ///     let buffer = executable.take_allocation(&memory, &stream)?;
    ///     assert_eq!(buffer.to_vec()?, [7; 1000]);
    /// }
    /// stream.synchronize()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuMemFreeAsync")]
    pub fn take_allocation<T>(
        &mut self,
        allocation: &GraphAllocation<T>,
        stream: &Stream,
    ) -> Result<DeviceBuffer<T>> {
        let memory = &allocation.memory;
        self.take_kept(memory, stream)?;
        let release = Release::Backed(Box::new(Arc::clone(memory)));
        Ok(DeviceBuffer::own(memory.address(), allocation.len, stream, release))
    }
}

impl<T> GraphAllocation<T> {
    /// Notes the use of the memory by its allocation node or its free node.
    fn declare(&self, lifetime: Lifetime, uses: &mut NodeUses<'_>) -> Result<()> {
        uses.add(&self.memory, 0..self.len * size_of::<T>(), true, lifetime)
    }
}

impl NodeMemory for Arc<NodeAllocation> {
    #[inline]
    fn kept(&self) -> Arc<dyn Retain> {
        Self::clone(self)
    }

    #[inline]
    fn address(&self) -> CUdeviceptr {
        NodeAllocation::address(self)
    }

    #[inline]
    fn context(&self) -> &Context {
        NodeAllocation::context(self)
    }

    #[inline]
    fn graph(&self) -> u64 {
        NodeAllocation::graph(self)
    }

    #[inline]
    fn number(&self) -> u64 {
        NodeAllocation::number(self)
    }

    #[inline]
    fn lifetime(&self) -> Lifetime {
        Lifetime::OfNode
    }
}
