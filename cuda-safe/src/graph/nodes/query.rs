//! Queries: nodes, edges, parameters, numbers, and a drawing.

use crate::call::{Error, Invalid, Result, c_text, call, newest_or, out};
use crate::event::Event;
use crate::graph::kind::Kind;
use crate::graph::rules::owners::EdgesBefore;
use crate::graph::{Content, Edge, EdgeKind, Graph, Node, NodeId, NodeType, Retained, kind};
use crate::launch::LaunchConfig;
use cuda_sys::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUevent,
    CUgraphDebugDot_flags, CUgraphEdgeData, CUgraphNode, Zeroable,
};
use std::path::Path;

impl Graph {
    /// Returns all nodes, in the order in which they were added. Calls `cuGraphGetNodes`.
    ///
    /// The nodes of child graphs are not included.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`].
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphGetNodes`](fn@cuda_sys::cuGraphGetNodes).
    #[doc(alias = "cuGraphGetNodes")]
    #[inline]
    pub fn nodes(&mut self) -> Result<Vec<NodeId>> {
        let nodes = self.raw_nodes()?;
        self.ids(&nodes)
    }

    /// Returns the nodes without dependencies. Calls `cuGraphGetRootNodes`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`].
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphGetRootNodes`](fn@cuda_sys::cuGraphGetRootNodes).
    #[doc(alias = "cuGraphGetRootNodes")]
    #[inline]
    pub fn roots(&mut self) -> Result<Vec<NodeId>> {
        let graph = self.raw;
        let nodes = list(|nodes, count| {
            // SAFETY: the graph is alive, and `nodes` is null or has room for `count` handles.
            unsafe { call!(cuGraphGetRootNodes(graph, nodes, count)) }
        })?;
        self.ids(&nodes)
    }

    /// Returns all edges. Calls `cuGraphGetEdges`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`].
    ///
    /// Since CUDA 10.0 (through `cuGraphGetEdges_v2` since 12.3). Raw:
    /// [`cuGraphGetEdges_v2`](fn@cuda_sys::cuGraphGetEdges_v2).
    #[doc(alias = "cuGraphGetEdges")]
    #[inline]
    pub fn edges(&mut self) -> Result<Vec<Edge>> {
        self.find_nodes()?;
        let edges = self.raw_edges()?;
        let slots = self.slots();
        let edge = |(from, to, data): (CUgraphNode, CUgraphNode, CUgraphEdgeData)| {
            Some(Edge {
                from: slots.find(from)?,
                to: slots.find(to)?,
                kind: EdgeKind::from_raw(data),
            })
        };
        Ok(edges.into_iter().filter_map(edge).collect())
    }

    /// Returns the nodes that a node comes after. Calls `cuGraphNodeGetDependencies`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 10.0 (through `cuGraphNodeGetDependencies_v2` since 12.3). Raw:
    /// [`cuGraphNodeGetDependencies_v2`](fn@cuda_sys::cuGraphNodeGetDependencies_v2).
    #[doc(alias = "cuGraphNodeGetDependencies")]
    pub fn dependencies(&mut self, node: impl Into<NodeId>) -> Result<Vec<NodeId>> {
        let node = self.raw_node(node.into())?;
        let nodes = list_with_data(
            // SAFETY: the node exists, and the arrays are null or have room for `count` elements.
            |nodes, data, count| unsafe {
                call!(cuGraphNodeGetDependencies_v2(node, nodes, data, count))
            },
            // SAFETY: as above.
            |nodes, count| unsafe { call!(abi::cuGraphNodeGetDependencies(node, nodes, count)) },
        )?;
        self.ids(&nodes)
    }

    /// Returns the nodes that come after a node. Calls `cuGraphNodeGetDependentNodes`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 10.0 (through `cuGraphNodeGetDependentNodes_v2` since 12.3). Raw:
    /// [`cuGraphNodeGetDependentNodes_v2`](fn@cuda_sys::cuGraphNodeGetDependentNodes_v2).
    #[doc(alias = "cuGraphNodeGetDependentNodes")]
    pub fn dependents(&mut self, node: impl Into<NodeId>) -> Result<Vec<NodeId>> {
        let node = self.raw_node(node.into())?;
        let nodes = list_with_data(
            // SAFETY: the node exists, and the arrays are null or have room for `count` elements.
            |nodes, data, count| unsafe {
                call!(cuGraphNodeGetDependentNodes_v2(node, nodes, data, count))
            },
            // SAFETY: as above.
            |nodes, count| unsafe { call!(abi::cuGraphNodeGetDependentNodes(node, nodes, count)) },
        )?;
        self.ids(&nodes)
    }

    /// Returns the type of a node.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    pub fn node_type(&self, node: impl Into<NodeId>) -> Result<NodeType> {
        Ok(self.slots().get(node.into())?.content.node_type)
    }

    /// Returns the launch configuration of a kernel node. Calls `cuGraphKernelNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`]; [`Error::Missing`].
    ///
    /// Since CUDA 12.0. Raw:
    /// [`cuGraphKernelNodeGetParams_v2`](fn@cuda_sys::cuGraphKernelNodeGetParams_v2).
    #[doc(alias = "cuGraphKernelNodeGetParams")]
    #[inline]
    pub fn kernel_config(&self, node: Node<kind::Kernel>) -> Result<LaunchConfig> {
        let its: CUDA_KERNEL_NODE_PARAMS = self.query(node, |node, place| {
            // SAFETY: the node exists and is a kernel, and the pointer is valid.
            unsafe { call!(cuGraphKernelNodeGetParams_v2(node, place)) }
        })?;
        let grid = [its.gridDimX, its.gridDimY, its.gridDimZ];
        let block = [its.blockDimX, its.blockDimY, its.blockDimZ];
        Ok(LaunchConfig::new(grid, block).with_shared_bytes(its.sharedMemBytes))
    }

    /// Returns the parameters of a copy in the driver's format. Calls `cuGraphMemcpyNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuGraphMemcpyNodeGetParams`](fn@cuda_sys::cuGraphMemcpyNodeGetParams).
    #[doc(alias = "cuGraphMemcpyNodeGetParams")]
    #[inline]
    pub fn copy_parameters(&self, node: Node<kind::Copy>) -> Result<CUDA_MEMCPY3D> {
        // SAFETY: the node exists and is a copy, and the pointer is valid.
        self.query(node, |node, place| unsafe { call!(cuGraphMemcpyNodeGetParams(node, place)) })
    }

    /// Returns the parameters of a fill in the driver's format. Calls `cuGraphMemsetNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuGraphMemsetNodeGetParams`](fn@cuda_sys::cuGraphMemsetNodeGetParams).
    #[doc(alias = "cuGraphMemsetNodeGetParams")]
    #[inline]
    pub fn fill_parameters(&self, node: Node<kind::Fill>) -> Result<CUDA_MEMSET_NODE_PARAMS> {
        // SAFETY: the node exists and is a fill, and the pointer is valid.
        self.query(node, |node, place| unsafe { call!(cuGraphMemsetNodeGetParams(node, place)) })
    }

    /// Returns the event that a node records or waits for, or `None` if the node has no event, or if it
    /// was captured.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    pub fn node_event(&self, node: impl Into<NodeId>) -> Result<Option<&Event>> {
        let node = self.slots().get(node.into())?;
        Ok(node.content.owners.iter().find_map(|owner| match owner {
            Retained::Event(event) => Some(event),
            _ => None,
        }))
    }

    /// Returns the raw handle of the event that a node records or waits for. Calls
    /// `cuGraphEventRecordNodeGetEvent` or `cuGraphEventWaitNodeGetEvent`.
    ///
    /// Unlike [`node_event`](Self::node_event), it works for captured nodes too. The graph retains the
    /// event. The handle becomes known to foreign code: see [`Event::as_raw`].
    ///
    /// # Errors
    /// [`Invalid::NodeKind`] if the node has no event; [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphEventRecordNodeGetEvent`](fn@cuda_sys::cuGraphEventRecordNodeGetEvent),
    /// [`cuGraphEventWaitNodeGetEvent`](fn@cuda_sys::cuGraphEventWaitNodeGetEvent).
    #[doc(alias = "cuGraphEventRecordNodeGetEvent", alias = "cuGraphEventWaitNodeGetEvent")]
    pub fn raw_node_event(&self, node: impl Into<NodeId>) -> Result<CUevent> {
        let node = node.into();
        let is_wait = self.node_type(node)? == kind::EventWait::TYPE;
        if !is_wait {
            self.typed::<kind::EventRecord>(node)?;
        }
        let event = self.query(node, |node, place| match is_wait {
            // SAFETY: the node exists and waits for an event, and the pointer is valid.
            true => unsafe { call!(cuGraphEventWaitNodeGetEvent(node, place)) },
            // SAFETY: the node exists and records an event, and the pointer is valid.
            false => unsafe { call!(cuGraphEventRecordNodeGetEvent(node, place)) },
        })?;
        self.slots().publish();
        Ok(event)
    }

    /// Returns the ID of the graph in tools, such as profilers. Calls `cuGraphGetId`.
    ///
    /// # Errors
    /// [`Error::Missing`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGraphGetId`](fn@cuda_sys::cuGraphGetId).
    #[doc(alias = "cuGraphGetId")]
    #[inline]
    pub fn tools_id(&self) -> Result<u32> {
        // SAFETY: the graph is alive, and `out` passes a valid pointer.
        out(|place| unsafe { call!(cuGraphGetId(self.raw, place)) })
    }

    /// Returns the ID of a node in tools, which is unique within its graph. Calls `cuGraphNodeGetLocalId`.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGraphNodeGetLocalId`](fn@cuda_sys::cuGraphNodeGetLocalId).
    #[doc(alias = "cuGraphNodeGetLocalId")]
    pub fn node_local_id(&self, node: impl Into<NodeId>) -> Result<u32> {
        // SAFETY: the node exists, and the pointer is valid.
        self.query(node, |node, place| unsafe { call!(cuGraphNodeGetLocalId(node, place)) })
    }

    /// Returns the ID of a node in tools. Calls `cuGraphNodeGetToolsId`.
    ///
    /// # Errors
    /// [`Error::Missing`]; [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGraphNodeGetToolsId`](fn@cuda_sys::cuGraphNodeGetToolsId).
    #[doc(alias = "cuGraphNodeGetToolsId")]
    pub fn node_tools_id(&self, node: impl Into<NodeId>) -> Result<u64> {
        // SAFETY: the node exists, and the pointer is valid.
        self.query(node, |node, place| unsafe { call!(cuGraphNodeGetToolsId(node, place)) })
    }

    /// Writes a drawing of the graph to a file, in the language DOT of Graphviz. Calls
    /// `cuGraphDebugDotPrint`.
    ///
    /// The flags choose the details, for example
    /// [`CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE`](CUgraphDebugDot_flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE).
    ///
    /// # Errors
    /// `CUDA_ERROR_OPERATING_SYSTEM` if the file cannot be written; [`Invalid::NulInText`] if the path
    /// contains a NUL, and [`Invalid::NotUnicode`] if it is not Unicode.
    ///
    /// Since CUDA 11.3. Raw: [`cuGraphDebugDotPrint`](fn@cuda_sys::cuGraphDebugDotPrint).
    #[doc(alias = "cuGraphDebugDotPrint")]
    #[inline]
    pub fn write_dot(&self, path: &Path, flags: CUgraphDebugDot_flags) -> Result<()> {
        let text = path.to_str().ok_or(Invalid::NotUnicode)?;
        let text = c_text(text)?;
        // SAFETY: the graph is alive, and the path ends with a NUL.
        unsafe { call!(cuGraphDebugDotPrint(self.raw, text.as_ptr(), flags.0)) }
    }

    /// Returns the value that a driver call writes about a node, which exists, through a valid pointer.
    ///
    /// # Errors
    /// See [`Slots::get`](crate::graph::rules::owners::Slots::get); errors of `call`.
    pub(crate) fn query<T: Zeroable>(
        &self,
        node: impl Into<NodeId>,
        call: impl FnOnce(CUgraphNode, *mut T) -> Result<()>,
    ) -> Result<T> {
        let node = self.raw_node(node.into())?;
        out(|place| call(node, place))
    }

    /// Finds the nodes and edges that other code has added: those of a captured graph.
    #[inline]
    pub(crate) fn find_nodes(&mut self) -> Result<()> {
        if !self.slots().is_foreign {
            return Ok(());
        }
        for raw in self.raw_nodes()? {
            if self.slots().find(raw).is_some() {
                continue;
            }
            // SAFETY: the driver has just listed the node, and `out` passes a valid pointer.
            let node_type = out(|place| unsafe { call!(cuGraphNodeGetType(raw, place)) })?;
            let mut content = Content::of_type(NodeType(node_type), Vec::new());
            self.slots_mut().insert(raw, &mut content, EdgesBefore::default());
        }
        let edges = self.raw_edges()?;
        let slots = self.slots_mut();
        let edge = |(from, to, data): (CUgraphNode, CUgraphNode, CUgraphEdgeData)| {
            let is_full = EdgeKind::from_raw(data) == EdgeKind::Full;
            Some((slots.find(from)?, slots.find(to)?, is_full))
        };
        let edges: Vec<_> = edges.into_iter().filter_map(edge).collect();
        slots.set_edges(edges);
        Ok(())
    }

    #[inline]
    fn raw_nodes(&self) -> Result<Vec<CUgraphNode>> {
        let graph = self.raw;
        list(|nodes, count| {
            // SAFETY: the graph is alive, and `nodes` is null or has room for `count` handles.
            unsafe { call!(cuGraphGetNodes(graph, nodes, count)) }
        })
    }

    #[inline]
    pub(crate) fn raw_edges(&self) -> Result<Vec<(CUgraphNode, CUgraphNode, CUgraphEdgeData)>> {
        let (graph, none) = (self.raw, std::ptr::null_mut());
        let mut count = out(|count| {
            newest_or(
                // SAFETY: the graph is alive, and `out` passes a valid pointer.
                unsafe { call!(cuGraphGetEdges_v2(graph, none, none, none.cast(), count)) },
                // SAFETY: as above.
                || unsafe { call!(abi::cuGraphGetEdges(graph, none, none, count)) },
            )
        })?;
        if count == 0 {
            // A driver (580) refuses arrays without elements.
            return Ok(Vec::new());
        }
        let mut from: Vec<CUgraphNode> = vec![std::ptr::null_mut(); count];
        let mut to = from.clone();
        let mut data = vec![CUgraphEdgeData::default(); count];
        let (froms, tos, datas) = (from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr());
        let room = &raw mut count;
        newest_or(
            // SAFETY: the graph is alive, and the arrays have room for `count` elements.
            unsafe { call!(cuGraphGetEdges_v2(graph, froms, tos, datas, room)) },
            // SAFETY: as above.
            || unsafe { call!(abi::cuGraphGetEdges(graph, froms, tos, room)) },
        )?;
        let edges = from.into_iter().zip(to).zip(data);
        Ok(edges.map(|((from, to), data)| (from, to, data)).collect())
    }

    /// Returns the nodes with these handles, which the driver has just listed.
    #[inline]
    fn ids(&mut self, nodes: &[CUgraphNode]) -> Result<Vec<NodeId>> {
        // Not at each query, because that takes time for all nodes.
        if nodes.iter().any(|node| self.slots().find(*node).is_none()) {
            self.find_nodes()?;
        }
        let slots = self.slots();
        Ok(nodes.iter().filter_map(|node| slots.find(*node)).collect())
    }
}

/// Calls a function that lists nodes: for their number, and then for their handles.
fn list(
    mut call: impl FnMut(*mut CUgraphNode, *mut usize) -> Result<()>,
) -> Result<Vec<CUgraphNode>> {
    let mut count = out(|count| call(std::ptr::null_mut(), count))?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    if count != 0 {
        call(nodes.as_mut_ptr(), &raw mut count)?;
    }
    nodes.truncate(count);
    Ok(nodes)
}

/// [`list`] for functions whose newest version returns the data of edges too.
fn list_with_data(
    mut newest: impl FnMut(*mut CUgraphNode, *mut CUgraphEdgeData, *mut usize) -> Result<()>,
    mut older: impl FnMut(*mut CUgraphNode, *mut usize) -> Result<()>,
) -> Result<Vec<CUgraphNode>> {
    let mut data = Vec::new();
    list(|nodes, count| {
        let places = match nodes.is_null() {
            true => std::ptr::null_mut(),
            false => {
                // SAFETY: `list` passes a pointer to a local variable.
                data.resize(unsafe { *count }, CUgraphEdgeData::default());
                data.as_mut_ptr()
            }
        };
        let done: Result<(), Error> = newest(nodes, places, count);
        newest_or(done, || older(nodes, count))
    })
}
