//! Nodes that copy.

use super::{GraphBuffer, GraphPinned, GraphSlice, GraphSliceMut};
use crate::call::{ContextHandle, Extent, Invalid, Region, Result};
use crate::graph::nodes::specification;
use crate::graph::{Content, ExecutableNodes, Graph, Node, NodeId, NodeUses, kind};
use crate::memory::{SharedBuffer, same_length};
use bytemuck::{AnyBitPattern, NoUninit};
use core::ffi::c_void;
use cuda_sys::{CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUmemorytype};
use std::ops::Range;

/// Memory that a copy node reads: `&GraphBuffer`, `&GraphAllocation`, [`GraphSlice`], `&SharedBuffer` or
/// `&GraphPinned`. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "a copy node cannot read `{Self}`",
    note = "a copy node reads `&GraphBuffer<T>`, `&GraphAllocation<T>`, `GraphSlice<T>`, `&SharedBuffer<T>` or `&GraphPinned<T>`"
)]
pub trait CopySource<T>: Sized {
    /// Returns the memory.
    #[doc(hidden)]
    fn memory(&self) -> Memory;

    /// Declares that the node reads the elements in this range.
    #[doc(hidden)]
    fn declare(&self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()>;
}

/// Memory that a copy node writes: `&mut GraphBuffer`, `&mut GraphAllocation`, [`GraphSliceMut`] or
/// `&mut GraphPinned`. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "a copy node cannot write `{Self}`",
    note = "a copy node writes `&mut GraphBuffer<T>`, `&mut GraphAllocation<T>`, `GraphSliceMut<T>` or `&mut GraphPinned<T>`"
)]
pub trait CopyTarget<T>: Sized {
    /// Returns the memory.
    #[doc(hidden)]
    fn memory(&self) -> Memory;

    /// Declares that the node writes the elements in this range.
    #[doc(hidden)]
    fn declare(self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()>;
}

/// The memory of one side of a copy. Other crates cannot name this type, so they cannot implement a
/// method that returns it.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    address: Address,
    /// The number of elements.
    len: usize,
}

#[derive(Clone, Copy, Debug)]
enum Address {
    Device(CUdeviceptr),
    Host(*mut c_void),
}

impl Memory {
    #[inline]
    fn device(address: CUdeviceptr, len: usize) -> Self {
        Self { address: Address::Device(address), len }
    }

    #[inline]
    fn host(address: *mut c_void, len: usize) -> Self {
        Self { address: Address::Host(address), len }
    }
}

impl<T> CopySource<T> for GraphSlice<'_, T> {
    fn memory(&self) -> Memory {
        Memory::device(self.address(), self.len())
    }

    fn declare(&self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()> {
        uses.add(self.used(elements, false))
    }
}

impl<T> CopySource<T> for &GraphBuffer<T> {
    fn memory(&self) -> Memory {
        self.as_slice().memory()
    }

    fn declare(&self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()> {
        self.as_slice().declare(elements, uses)
    }
}

impl<T> CopySource<T> for &SharedBuffer<T> {
    fn memory(&self) -> Memory {
        Memory::device(self.address(), self.len())
    }

    fn declare(&self, _: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()> {
        uses.add_shared(self)
    }
}

impl<T: NoUninit + Send> CopySource<T> for &GraphPinned<T> {
    fn memory(&self) -> Memory {
        Memory::host(self.address(), self.len())
    }

    fn declare(&self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()> {
        let context = uses.context();
        uses.add(self.used(elements, false, context))
    }
}

impl<T> CopyTarget<T> for GraphSliceMut<'_, T> {
    fn memory(&self) -> Memory {
        Memory::device(self.as_whole().address(), self.len())
    }

    fn declare(self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()> {
        uses.add(self.into_whole().used(elements, true))
    }
}

impl<T> CopyTarget<T> for &mut GraphBuffer<T> {
    fn memory(&self) -> Memory {
        Memory::device(self.as_raw(), self.len())
    }

    fn declare(self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()> {
        self.as_mut_slice().declare(elements, uses)
    }
}

impl<T: AnyBitPattern + Send> CopyTarget<T> for &mut GraphPinned<T> {
    fn memory(&self) -> Memory {
        Memory::host(self.address(), self.len())
    }

    fn declare(self, elements: Range<usize>, uses: &mut NodeUses<'_>) -> Result<()> {
        let context = uses.context();
        uses.add(self.used(elements, true, context))
    }
}

impl Graph {
    /// Adds a copy of all elements of `source` to `target`, which have the same length. Calls
    /// `cuGraphAddMemcpyNode`.
    ///
    /// A copy from or to pinned memory reads or writes it when the copy runs.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`] if the lengths differ; [`Invalid::EmptyNode`] if there is nothing to copy.
    /// - [`Invalid::BufferOfOtherGraph`]; [`Invalid::OtherContext`] if
    ///   device memory does not belong to the context of the graph.
    /// - See also [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddMemcpyNode`](fn@cuda_sys::cuGraphAddMemcpyNode).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph, PinnedBuffer};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut graph = Graph::new(&context)?;
    /// let mut host = graph.own_pinned(PinnedBuffer::<f32>::zeroed(&context, 1000)?);
    /// let mut buffer = graph.own(DeviceBuffer::zeroed(&stream, 1000)?)?;
    /// let there = graph.add_copy(&[], &mut buffer, &host)?;
    /// graph.add_copy(&[there.id()], &mut host, &buffer)?;
    /// let mut executable = graph.instantiate()?;
    /// executable.host(&mut host)?.fill(1.5);
    /// executable.launch(&stream)?;
    /// assert_eq!(executable.host(&mut host)?, [1.5; 1000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuGraphAddMemcpyNode")]
    pub fn add_copy<T>(
        &mut self,
        dependencies: &[NodeId],
        target: impl CopyTarget<T>,
        source: impl CopySource<T>,
    ) -> Result<Node<kind::Copy>> {
        let (extent, region) = whole(&target, &source)?;
        self.add_copy_3d(dependencies, extent, target, region, source, region)
    }

    /// Adds a copy of a 2-D or 3-D region of `source` to a region of `target`. Calls
    /// `cuGraphAddMemcpyNode`.
    ///
    /// # Errors
    /// See [`add_copy`](Self::add_copy). In addition: [`Invalid::Region`] if a region is not within its
    /// memory, or if its rows or slices overlap.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddMemcpyNode`](fn@cuda_sys::cuGraphAddMemcpyNode).
    #[doc(alias = "cuGraphAddMemcpyNode")]
    pub fn add_copy_3d<T>(
        &mut self,
        dependencies: &[NodeId],
        extent: Extent,
        target: impl CopyTarget<T>,
        to: Region,
        source: impl CopySource<T>,
        from: Region,
    ) -> Result<Node<kind::Copy>> {
        let (mut content, copy) = prepare(self, extent, (target, to), (source, from))?;
        self.add(dependencies, &mut content, &copy)
    }

    /// Changes a copy to one of all elements of `source` to `target`. Calls
    /// `cuGraphMemcpyNodeSetParams`.
    ///
    /// Executable graphs are not affected: see [`ExecutableNodes::set_copy`]. The graph drops the memory
    /// that the node used before, unless another node, an executable graph or a [`GraphBuffer`] shares it.
    ///
    /// # Errors
    /// See [`add_copy`](Self::add_copy).
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuGraphMemcpyNodeSetParams`](fn@cuda_sys::cuGraphMemcpyNodeSetParams).
    #[doc(alias = "cuGraphMemcpyNodeSetParams")]
    pub fn set_copy<T>(
        &mut self,
        node: Node<kind::Copy>,
        target: impl CopyTarget<T>,
        source: impl CopySource<T>,
    ) -> Result<()> {
        let (extent, region) = whole(&target, &source)?;
        self.set_copy_3d(node, extent, target, region, source, region)
    }

    /// Changes a copy to one of a 2-D or 3-D region. Calls `cuGraphMemcpyNodeSetParams`.
    ///
    /// # Errors
    /// See [`add_copy_3d`](Self::add_copy_3d).
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuGraphMemcpyNodeSetParams`](fn@cuda_sys::cuGraphMemcpyNodeSetParams).
    #[doc(alias = "cuGraphMemcpyNodeSetParams")]
    pub fn set_copy_3d<T>(
        &mut self,
        node: Node<kind::Copy>,
        extent: Extent,
        target: impl CopyTarget<T>,
        to: Region,
        source: impl CopySource<T>,
        from: Region,
    ) -> Result<()> {
        let (content, copy) = prepare(self, extent, (target, to), (source, from))?;
        self.set(node, content, &copy)
    }
}

impl ExecutableNodes<'_> {
    /// Changes a copy to one of all elements of `source` to `target`. Calls
    /// `cuGraphExecMemcpyNodeSetParams`.
    ///
    /// The kinds of memory, and whether the copy has one dimension, cannot change.
    ///
    /// # Errors
    /// See [`Graph::add_copy`] and [`set_kernel`](Self::set_kernel). `CUDA_ERROR_INVALID_VALUE` for a
    /// change that the driver does not support: another direction, and memory of another kind
    /// (synchronous allocations and pool memory are different kinds).
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuGraphExecMemcpyNodeSetParams`](fn@cuda_sys::cuGraphExecMemcpyNodeSetParams).
    #[doc(alias = "cuGraphExecMemcpyNodeSetParams")]
    pub fn set_copy<T>(
        &mut self,
        node: Node<kind::Copy>,
        target: impl CopyTarget<T>,
        source: impl CopySource<T>,
    ) -> Result<()> {
        let (extent, region) = whole(&target, &source)?;
        self.set_copy_3d(node, extent, target, region, source, region)
    }

    /// Changes a copy of a 2-D or 3-D region. Calls `cuGraphExecMemcpyNodeSetParams`.
    ///
    /// # Errors
    /// See [`Graph::add_copy_3d`] and [`set_copy`](Self::set_copy).
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuGraphExecMemcpyNodeSetParams`](fn@cuda_sys::cuGraphExecMemcpyNodeSetParams).
    #[doc(alias = "cuGraphExecMemcpyNodeSetParams")]
    pub fn set_copy_3d<T>(
        &mut self,
        node: Node<kind::Copy>,
        extent: Extent,
        target: impl CopyTarget<T>,
        to: Region,
        source: impl CopySource<T>,
        from: Region,
    ) -> Result<()> {
        let (content, copy) = prepare(self.graph, extent, (target, to), (source, from))?;
        self.set(node, content, &copy)
    }
}

/// Returns the extent and the region of a copy of all elements.
fn whole<T>(target: &impl CopyTarget<T>, source: &impl CopySource<T>) -> Result<(Extent, Region)> {
    let len = source.memory().len;
    same_length(len, target.memory().len)?;
    let extent = Extent::new_2d(len, 1);
    Ok((extent, Region::new(extent)))
}

/// The specification of a copy.
struct Copy {
    parameters: CUDA_MEMCPY3D,
    context: CUcontext,
}

// SAFETY: both regions are within their memory, which the graph owns, and every bit pattern that host memory
// receives is a valid element. The context is that of the graph.
specification!(Copy: kind::Copy, |its| {
    cuGraphAddMemcpyNode(&raw const its.parameters, its.context),
    cuGraphMemcpyNodeSetParams(&raw const its.parameters),
    cuGraphExecMemcpyNodeSetParams(&raw const its.parameters, its.context),
});

/// Checks a copy, and returns it in the driver's format, with the content of its node.
fn prepare<T>(
    graph: &Graph,
    extent: Extent,
    (target, to): (impl CopyTarget<T>, Region),
    (source, from): (impl CopySource<T>, Region),
) -> Result<(Content, Copy)> {
    let (target_memory, source_memory) = (target.memory(), source.memory());
    let to = to.checked(extent, target_memory.len)?;
    let from = from.checked(extent, source_memory.len)?;
    let (Some(to), Some(from)) = (to, from) else {
        return Err(Invalid::EmptyNode { what: "a copy" }.into());
    };
    let size = size_of::<T>();
    if size == 0 {
        return Err(Invalid::EmptyNode { what: "a copy" }.into());
    }
    let mut content = Content::default();
    let mut uses = NodeUses::new(graph.context(), &mut content);
    source.declare(from.elements(extent), &mut uses)?;
    target.declare(to.elements(extent), &mut uses)?;
    uses.complete::<kind::Copy>(graph.slots(), [])?;
    let mut copy = CUDA_MEMCPY3D {
        srcPitch: from.pitch * size,
        srcHeight: from.rows,
        dstPitch: to.pitch * size,
        dstHeight: to.rows,
        WidthInBytes: extent.width * size,
        Height: extent.height,
        Depth: extent.depth,
        ..CUDA_MEMCPY3D::default()
    };
    let offset = from.offset * size;
    match source_memory.address {
        Address::Device(address) => {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
            copy.srcDevice = address + offset as u64;
        }
        Address::Host(address) => {
            copy.srcMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            copy.srcHost = address.wrapping_byte_add(offset);
        }
    }
    let offset = to.offset * size;
    match target_memory.address {
        Address::Device(address) => {
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_DEVICE;
            copy.dstDevice = address + offset as u64;
        }
        Address::Host(address) => {
            copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
            copy.dstHost = address.wrapping_byte_add(offset);
        }
    }
    Ok((content, Copy { parameters: copy, context: graph.context().raw() }))
}
