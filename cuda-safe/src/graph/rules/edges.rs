//! The edges of a graph.

use crate::call::{Error, Invalid, Result, call, newest_or, refuse_if};
use crate::graph::kind::Kind;
use crate::graph::rules::access::Before;
use crate::graph::{Graph, NodeId, NodeType, kind};
use cuda_sys::{
    CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER as LAUNCH_ORDER,
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as PROGRAMMATIC, CUgraphDependencyType, CUgraphEdgeData,
    CUgraphNode, CUresult,
};
use std::collections::{HashMap, HashSet};

/// An edge: `to` comes after `from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Edge {
    /// The node that comes first.
    pub from: NodeId,
    /// The node that comes after it.
    pub to: NodeId,
    /// When `to` may start.
    pub kind: EdgeKind,
}

/// When the target of an edge may start (`CUgraphEdgeData`).
///
/// All kinds but [`Full`](Self::Full) connect two kernels, and do not order their accesses to memory:
/// [`Graph::instantiate`] treats the kernels as concurrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EdgeKind {
    /// The target starts when the source is complete.
    #[default]
    Full,
    /// The target may start when each block of the source has triggered it (PTX
    /// `griddepcontrol.launch_dependents`) or has ended. The target waits for the rest itself
    /// (`griddepcontrol.wait`).
    Programmatic,
    /// The target may start when all blocks of the source have started.
    LaunchOrder,
    /// [`LaunchOrder`](Self::LaunchOrder) as a programmatic dependency.
    ProgrammaticLaunchOrder,
    /// Values of a newer driver: the port of the source, the port of the target, and the type.
    Other(u8, u8, u8),
}

impl EdgeKind {
    #[inline]
    pub(crate) fn raw(self) -> CUgraphEdgeData {
        let programmatic = CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC.0 as u8;
        let (from_port, to_port, type_) = match self {
            Self::Full => (0, 0, 0),
            Self::Programmatic => (PROGRAMMATIC as u8, 0, programmatic),
            Self::LaunchOrder => (LAUNCH_ORDER as u8, 0, 0),
            Self::ProgrammaticLaunchOrder => (LAUNCH_ORDER as u8, 0, programmatic),
            Self::Other(from, to, its_type) => (from, to, its_type),
        };
        CUgraphEdgeData { from_port, to_port, type_, reserved: [0; 5] }
    }

    #[inline]
    pub(crate) fn from_raw(raw: CUgraphEdgeData) -> Self {
        let known =
            [Self::Full, Self::Programmatic, Self::LaunchOrder, Self::ProgrammaticLaunchOrder];
        let data = |its: CUgraphEdgeData| (its.from_port, its.to_port, its.type_);
        let found = known.into_iter().find(|its| data(its.raw()) == data(raw));
        found.unwrap_or(Self::Other(raw.from_port, raw.to_port, raw.type_))
    }
}

impl Graph {
    /// Adds a full edge: `to` starts when `from` is complete. Calls `cuGraphAddDependencies`.
    ///
    /// # Errors
    /// - [`Invalid::Edge`] if the edge exists, connects a node with itself, or closes a cycle. The driver accepts a
    ///   cycle, and may crash when it instantiates the graph.
    /// - [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// # Cost
    /// An edge from a node to one that was added later takes constant time. Any other edge, an edge that is added after
    /// such a one, and an edge of a graph with captured or foreign nodes take time for all edges.
    ///
    /// Since CUDA 10.0 (through `cuGraphAddDependencies_v2` since 12.3). Raw:
    /// [`cuGraphAddDependencies_v2`](fn@cuda_sys::cuGraphAddDependencies_v2).
    #[doc(alias = "cuGraphAddDependencies")]
    pub fn add_dependency(&mut self, from: impl Into<NodeId>, to: impl Into<NodeId>) -> Result<()> {
        self.add_dependency_with(from, to, EdgeKind::Full)
    }

    /// Returns whether a path leads from one node to another.
    #[inline]
    fn leads_to(&self, from: CUgraphNode, to: CUgraphNode) -> Result<bool> {
        let mut after: HashMap<CUgraphNode, Vec<CUgraphNode>> = HashMap::new();
        for (from, to, _) in self.raw_edges()? {
            after.entry(from).or_default().push(to);
        }
        let mut open = vec![from];
        while let Some(node) = open.pop() {
            if node == to {
                return Ok(true);
            }
            // Each node is visited once.
            open.extend(after.remove(&node).unwrap_or_default());
        }
        Ok(false)
    }

    /// Adds an edge of the given kind. Calls `cuGraphAddDependencies`.
    ///
    /// # Errors
    /// See [`add_dependency`](Self::add_dependency). In addition: [`Invalid::Edge`] if the kind is not
    /// [`Full`](EdgeKind::Full) and one of the nodes is not a kernel; [`Error::Missing`] if the kind is
    /// not `Full` and the driver is older than CUDA 12.3.
    ///
    /// Since CUDA 10.0; kinds other than `Full` since 12.3. Raw:
    /// [`cuGraphAddDependencies_v2`](fn@cuda_sys::cuGraphAddDependencies_v2).
    #[doc(alias = "cuGraphAddDependencies")]
    pub fn add_dependency_with(
        &mut self,
        from: impl Into<NodeId>,
        to: impl Into<NodeId>,
        kind: EdgeKind,
    ) -> Result<()> {
        let (from, to) = (from.into(), to.into());
        let (raw_from, raw_to) = (self.raw_node(from)?, self.raw_node(to)?);
        refuse_if!(from == to, self.edge_error(from, to, "connects a node with itself"));
        let is_kernel = |its: NodeType| its == kind::Kernel::TYPE;
        let types = [from, to].map(|id| self.slots().get(id).map(|its| its.content.node_type));
        if kind != EdgeKind::Full && !types.into_iter().flatten().all(is_kernel) {
            return Err(self.edge_error(from, to, "is not full, and only kernels have such edges"));
        }
        let is_back = from.index() > to.index();
        let slots = self.slots();
        if (is_back || slots.has_edges_back || slots.is_foreign)
            && self.leads_to(raw_to, raw_from)?
        {
            return Err(self.edge_error(from, to, "closes a cycle"));
        }
        self.slots_mut().has_edges_back |= is_back;
        let data = kind.raw();
        let (graph, from_raw, to_raw) = (self.raw, &raw const raw_from, &raw const raw_to);
        // SAFETY: the graph and its nodes are alive, and the arrays have one element each.
        let newest = unsafe {
            call!(cuGraphAddDependencies_v2(graph, from_raw, to_raw, &raw const data, 1))
        };
        let added = match kind {
            EdgeKind::Full => newest_or(newest, || {
                // SAFETY: as above.
                unsafe { call!(abi::cuGraphAddDependencies(graph, from_raw, to_raw, 1)) }
            }),
            _ => newest,
        };
        added.map_err(|error| self.explain_edge(error, from, to, "exists already"))?;
        if let Some(before) = self.slots_mut().before_mut(to) {
            before.push(Before {
                // The index of a slot.
                index: from.index() as u32,
                is_full: kind == EdgeKind::Full,
            });
        }
        Ok(())
    }

    /// Removes an edge of any kind. Calls `cuGraphRemoveDependencies`.
    ///
    /// # Errors
    /// [`Invalid::Edge`] if there is no such edge; [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`]; [`Invalid::MemoryNodes`] if the graph has allocation or free nodes;
    /// `CUDA_ERROR_NOT_SUPPORTED` if the driver cannot remove edges from this graph for another reason.
    ///
    /// Since CUDA 10.0 (through `cuGraphRemoveDependencies_v2` since 12.3). Raw:
    /// [`cuGraphRemoveDependencies_v2`](fn@cuda_sys::cuGraphRemoveDependencies_v2).
    #[doc(alias = "cuGraphRemoveDependencies")]
    pub fn remove_dependency(
        &mut self,
        from: impl Into<NodeId>,
        to: impl Into<NodeId>,
    ) -> Result<()> {
        let (from, to) = (from.into(), to.into());
        let (raw_from, raw_to) = (self.raw_node(from)?, self.raw_node(to)?);
        self.slots().refuse_memory_nodes("lose edges")?;
        let (graph, from_raw, to_raw) = (self.raw, &raw const raw_from, &raw const raw_to);
        let none = std::ptr::null();
        let removed = newest_or(
            // SAFETY: the graph and its nodes are alive, and the arrays have one element each. Without
            // edge data, the driver removes the edge whatever its data.
            unsafe { call!(cuGraphRemoveDependencies_v2(graph, from_raw, to_raw, none, 1)) },
            // SAFETY: as above.
            || unsafe { call!(abi::cuGraphRemoveDependencies(graph, from_raw, to_raw, 1)) },
        );
        removed.map_err(|error| self.explain_edge(error, from, to, "does not exist"))?;
        if let Some(before) = self.slots_mut().before_mut(to) {
            before.retain(|edge| edge.index as usize != from.index());
        }
        Ok(())
    }

    #[inline]
    fn edge_error(&self, from: NodeId, to: NodeId, problem: &'static str) -> Error {
        Invalid::Edge { from: self.slots().describe(from), to: self.slots().describe(to), problem }
            .into()
    }

    /// Explains the error of a call with two nodes that exist and differ.
    #[inline]
    fn explain_edge(&self, error: Error, from: NodeId, to: NodeId, problem: &'static str) -> Error {
        match error.code() {
            Some(CUresult::CUDA_ERROR_INVALID_VALUE) => self.edge_error(from, to, problem),
            _ => error,
        }
    }
}

/// The number of nodes in a list that needs no allocation.
const SHORT: usize = 16;

/// Returns a node that a list has twice.
#[inline]
pub(crate) fn repeated(nodes: &[NodeId]) -> Option<NodeId> {
    if nodes.len() <= SHORT {
        let mut places = nodes.iter().enumerate();
        let found = places.find(|(index, id)| nodes[..*index].contains(id));
        return found.map(|(_, id)| *id);
    }
    let mut known = HashSet::with_capacity(nodes.len());
    nodes.iter().copied().find(|id| !known.insert(*id))
}
