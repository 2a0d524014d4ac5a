//! Nodes that fill memory.

use super::GraphSliceMut;
use crate::call::{ContextHandle, Extent, Invalid, Region, Result};
use crate::graph::nodes::specification;
use crate::graph::{Content, ExecutableNodes, Graph, Node, NodeId, NodeUses, kind};
use bytemuck::NoUninit;
use cuda_sys::{CUDA_MEMSET_NODE_PARAMS, CUcontext};

impl Graph {
    /// Adds a fill that sets all elements of `target` to `value`. Calls `cuGraphAddMemsetNode`.
    ///
    /// # Errors
    /// - [`Invalid::FillSize`] if the size of `T` is not 1, 2 or 4 bytes; [`Invalid::EmptyNode`] if
    ///   there are no elements.
    /// - [`Invalid::BufferOfOtherGraph`]; [`Invalid::OtherContext`] if the
    ///   memory does not belong to the context of the graph.
    /// - See also [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddMemsetNode`](fn@cuda_sys::cuGraphAddMemsetNode).
    #[doc(alias = "cuGraphAddMemsetNode")]
    pub fn add_fill<'a, T: NoUninit>(
        &mut self,
        dependencies: &[NodeId],
        target: impl Into<GraphSliceMut<'a, T>>,
        value: T,
    ) -> Result<Node<kind::Fill>> {
        let target = target.into();
        let extent = Extent::new_2d(target.len(), 1);
        self.add_fill_2d(dependencies, extent, target, Region::new(extent), value)
    }

    /// Adds a fill that sets all elements of a 2-D region to `value`. Calls `cuGraphAddMemsetNode`.
    ///
    /// # Errors
    /// See [`add_fill`](Self::add_fill). In addition: [`Invalid::Region`] if the region is not within the
    /// memory, if its rows overlap, or if the depth is not 1.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddMemsetNode`](fn@cuda_sys::cuGraphAddMemsetNode).
    #[doc(alias = "cuGraphAddMemsetNode")]
    pub fn add_fill_2d<'a, T: NoUninit>(
        &mut self,
        dependencies: &[NodeId],
        extent: Extent,
        target: impl Into<GraphSliceMut<'a, T>>,
        region: Region,
        value: T,
    ) -> Result<Node<kind::Fill>> {
        let (mut content, fill) = prepare(self, extent, target.into(), region, value)?;
        self.add(dependencies, &mut content, &fill)
    }

    /// Changes a fill: the memory and the value. Calls `cuGraphMemsetNodeSetParams`.
    ///
    /// Executable graphs are not affected: see [`ExecutableNodes::set_fill`].
    ///
    /// # Errors
    /// See [`add_fill`](Self::add_fill).
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuGraphMemsetNodeSetParams`](fn@cuda_sys::cuGraphMemsetNodeSetParams).
    #[doc(alias = "cuGraphMemsetNodeSetParams")]
    pub fn set_fill<'a, T: NoUninit>(
        &mut self,
        node: Node<kind::Fill>,
        target: impl Into<GraphSliceMut<'a, T>>,
        value: T,
    ) -> Result<()> {
        let target = target.into();
        let extent = Extent::new_2d(target.len(), 1);
        self.set_fill_2d(node, extent, target, Region::new(extent), value)
    }

    /// Changes a fill to one of a 2-D region. Calls `cuGraphMemsetNodeSetParams`.
    ///
    /// # Errors
    /// See [`add_fill_2d`](Self::add_fill_2d).
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuGraphMemsetNodeSetParams`](fn@cuda_sys::cuGraphMemsetNodeSetParams).
    #[doc(alias = "cuGraphMemsetNodeSetParams")]
    pub fn set_fill_2d<'a, T: NoUninit>(
        &mut self,
        node: Node<kind::Fill>,
        extent: Extent,
        target: impl Into<GraphSliceMut<'a, T>>,
        region: Region,
        value: T,
    ) -> Result<()> {
        let (content, fill) = prepare(self, extent, target.into(), region, value)?;
        // A driver (580) refuses the call without a current context.
        let context = self.context().clone();
        let _current = context.enter()?;
        self.set(node, content, &fill)
    }
}

impl ExecutableNodes<'_> {
    /// Changes a fill: the memory and the value. Calls `cuGraphExecMemsetNodeSetParams`.
    ///
    /// # Errors
    /// See [`Graph::add_fill`] and [`set_kernel`](Self::set_kernel). `CUDA_ERROR_INVALID_VALUE` for a
    /// change that the driver does not support.
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuGraphExecMemsetNodeSetParams`](fn@cuda_sys::cuGraphExecMemsetNodeSetParams).
    #[doc(alias = "cuGraphExecMemsetNodeSetParams")]
    pub fn set_fill<'a, T: NoUninit>(
        &mut self,
        node: Node<kind::Fill>,
        target: impl Into<GraphSliceMut<'a, T>>,
        value: T,
    ) -> Result<()> {
        let target = target.into();
        let extent = Extent::new_2d(target.len(), 1);
        self.set_fill_2d(node, extent, target, Region::new(extent), value)
    }

    /// Changes a fill of a 2-D region. Calls `cuGraphExecMemsetNodeSetParams`.
    ///
    /// # Errors
    /// See [`Graph::add_fill_2d`] and [`set_fill`](Self::set_fill).
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuGraphExecMemsetNodeSetParams`](fn@cuda_sys::cuGraphExecMemsetNodeSetParams).
    #[doc(alias = "cuGraphExecMemsetNodeSetParams")]
    pub fn set_fill_2d<'a, T: NoUninit>(
        &mut self,
        node: Node<kind::Fill>,
        extent: Extent,
        target: impl Into<GraphSliceMut<'a, T>>,
        region: Region,
        value: T,
    ) -> Result<()> {
        let (content, fill) = prepare(self.graph, extent, target.into(), region, value)?;
        self.set(node, content, &fill)
    }
}

/// The specification of a fill.
struct Fill {
    parameters: CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
}

// SAFETY: the region is within its memory, which the graph owns. The context is that of the graph.
specification!(Fill: kind::Fill, |its| {
    cuGraphAddMemsetNode(&raw const its.parameters, its.context),
    cuGraphMemsetNodeSetParams(&raw const its.parameters),
    cuGraphExecMemsetNodeSetParams(&raw const its.parameters, its.context),
});

/// Checks a fill, and returns the content of its node and its specification.
fn prepare<T: NoUninit>(
    graph: &Graph,
    extent: Extent,
    target: GraphSliceMut<'_, T>,
    region: Region,
    value: T,
) -> Result<(Content, Fill)> {
    let target = target.into_whole();
    let checked = region.checked(extent, target.len())?;
    if extent.depth > 1 {
        let len = target.len();
        return Err(Invalid::Region { region, extent, len }.into());
    }
    let bits = match *bytemuck::bytes_of(&value) {
        [a] => u32::from(a),
        [a, b] => u32::from(u16::from_ne_bytes([a, b])),
        [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]),
        _ => {
            let size = size_of::<T>();
            return Err(Invalid::FillSize { size }.into());
        }
    };
    let Some(region) = checked else { return Err(Invalid::EmptyNode { what: "a fill" }.into()) };
    let mut content = Content::default();
    let mut uses = NodeUses::new(graph.context(), &mut content);
    target.declare(region.elements(extent), true, &mut uses)?;
    uses.complete::<kind::Fill>(graph.slots(), [])?;
    let size = size_of::<T>();
    let parameters = CUDA_MEMSET_NODE_PARAMS {
        dst: target.address() + (region.offset * size) as u64,
        pitch: region.pitch * size,
        value: bits,
        // 1, 2 or 4.
        elementSize: size as u32,
        width: extent.width,
        height: extent.height,
    };
    Ok((content, Fill { parameters, context: graph.context().raw() }))
}
