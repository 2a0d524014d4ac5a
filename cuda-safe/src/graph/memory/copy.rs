//! Nodes that copy.

use super::{GraphPinned, GraphSlice, GraphSliceMut};
use crate::call::{ContextHandle, Extent, Invalid, Region, Result};
use crate::graph::nodes::specification;
use crate::graph::{Content, ExecutableNodes, Graph, Node, NodeId, NodeUses, kind};
use crate::memory::{SharedBuffer, same_length};
use bytemuck::{AnyBitPattern, NoUninit};
use core::ffi::c_void;
use cuda_sys::{CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUmemorytype};

/// Memory that a copy node reads: `&GraphBuffer`, `&GraphAllocation`, [`GraphSlice`], `&SharedBuffer` or
/// `&GraphPinned`. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "a copy node cannot read `{Self}`",
    note = "a copy node reads `&GraphBuffer<T>`, `&GraphAllocation<T>`, `GraphSlice<T>`, `&SharedBuffer<T>` or `&GraphPinned<T>`"
)]
pub trait CopySource<T>: Sized {
    /// Returns the memory.
    #[doc(hidden)]
    fn part(&self) -> Part<'_, T>;
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
    fn part(&self) -> GraphSlice<'_, T>;
}

/// Memory from which a node can copy.
#[derive(Debug)]
pub enum Part<'a, T> {
    /// Memory of a graph.
    Slice(GraphSlice<'a, T>),
    /// A buffer that graphs share.
    Shared(&'a SharedBuffer<T>),
}

impl<T> Part<'_, T> {
    fn len(&self) -> usize {
        match self {
            Self::Slice(slice) => slice.len(),
            Self::Shared(buffer) => buffer.len(),
        }
    }
}

impl<T> CopySource<T> for GraphSlice<'_, T> {
    fn part(&self) -> Part<'_, T> {
        Part::Slice(*self)
    }
}

impl<T> CopySource<T> for &SharedBuffer<T> {
    fn part(&self) -> Part<'_, T> {
        Part::Shared(self)
    }
}

impl<T: NoUninit + Send> CopySource<T> for &GraphPinned<T> {
    fn part(&self) -> Part<'_, T> {
        Part::Slice(self.as_slice())
    }
}

impl<T> CopyTarget<T> for GraphSliceMut<'_, T> {
    fn part(&self) -> GraphSlice<'_, T> {
        self.as_whole()
    }
}

impl<T: AnyBitPattern + Send> CopyTarget<T> for &mut GraphPinned<T> {
    fn part(&self) -> GraphSlice<'_, T> {
        self.as_slice()
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
    /// that the node used before, unless another node, an executable graph or a [`GraphBuffer`](crate::graph::GraphBuffer) shares it.
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
    let len = source.part().len();
    same_length(len, target.part().len())?;
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
    let (target, source) = (target.part(), source.part());
    let to = to.checked(extent, target.len())?;
    let from = from.checked(extent, source.len())?;
    let size = size_of::<T>();
    let (Some(to), Some(from), 1..) = (to, from, size) else {
        return Err(Invalid::EmptyNode { what: "a copy" }.into());
    };
    let mut content = Content::default();
    let mut uses = NodeUses::new(graph.context(), &mut content);
    match &source {
        Part::Slice(source) => source.declare(from.elements(extent), false, &mut uses)?,
        Part::Shared(source) => uses.add_shared(source)?,
    }
    target.declare(to.elements(extent), true, &mut uses)?;
    uses.complete::<kind::Copy>(graph.slots(), [])?;
    let (source_type, source_device, source_host) = match source {
        Part::Slice(source) => source.at(from.offset),
        Part::Shared(source) => at(source.address(), from.offset * size),
    };
    let (target_type, target_device, target_host) = target.at(to.offset);
    let parameters = CUDA_MEMCPY3D {
        srcMemoryType: source_type,
        srcDevice: source_device,
        srcHost: source_host,
        srcPitch: from.pitch * size,
        srcHeight: from.rows,
        dstMemoryType: target_type,
        dstDevice: target_device,
        dstHost: target_host,
        dstPitch: to.pitch * size,
        dstHeight: to.rows,
        WidthInBytes: extent.width * size,
        Height: extent.height,
        Depth: extent.depth,
        ..CUDA_MEMCPY3D::default()
    };
    Ok((content, Copy { parameters, context: graph.context().raw() }))
}

/// The type of memory, and its address on the device or on the host.
type Address = (CUmemorytype, CUdeviceptr, *mut c_void);

/// Returns the address that is `offset` bytes after `address` on the device.
#[inline]
fn at(address: CUdeviceptr, offset: usize) -> Address {
    (CUmemorytype::CU_MEMORYTYPE_DEVICE, address + offset as u64, std::ptr::null_mut())
}

impl<T> GraphSlice<'_, T> {
    /// Returns the address of an element.
    fn at(&self, index: usize) -> Address {
        let offset = index * size_of::<T>();
        match self.host_address() {
            None => at(self.address(), offset),
            Some(start) => (CUmemorytype::CU_MEMORYTYPE_HOST, 0, start.wrapping_byte_add(offset)),
        }
    }
}
