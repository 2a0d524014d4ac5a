//! Adding and removing nodes: what all kinds of nodes share, and empty nodes.

use crate::call::{Error, Invalid, Result, call};
use crate::graph::kind::Kind;
use crate::graph::rules::access::Before;
use crate::graph::rules::edges::repeated;
use crate::graph::rules::owners::EdgesBefore;
use crate::graph::{Content, Graph, Node, NodeId, kind};
use cuda_sys::{CUgraph, CUgraphNode, CUresult};

/// The arguments that all functions that add a node share.
pub(crate) struct Place {
    pub(crate) node: *mut CUgraphNode,
    pub(crate) graph: CUgraph,
    pub(crate) dependencies: *const CUgraphNode,
    pub(crate) count: usize,
}

/// The number of dependencies that need no allocation.
const INLINE: usize = 8;

impl Graph {
    /// Adds a node. `add` calls the driver, and the graph then owns what `content` had.
    ///
    /// # Errors
    /// See [`Slots::get`](crate::graph::rules::owners::Slots::get) for the dependencies; [`Invalid::NotInBody`]; errors
    /// of `add`.
    pub(crate) fn add_node<K: kind::Kind>(
        &mut self,
        dependencies: &[NodeId],
        content: &mut Content,
        add: impl FnOnce(Place) -> Result<()>,
    ) -> Result<Node<K>> {
        if let Some(conditional) = self.slots().conditional() {
            conditional.check_node::<K>(content.by_ref())?;
        }
        let mut inline = [std::ptr::null_mut(); INLINE];
        let mut heap = Vec::new();
        let raw = match inline.get_mut(..dependencies.len()) {
            Some(raw) => raw,
            None => {
                heap.resize(dependencies.len(), std::ptr::null_mut());
                heap.as_mut_slice()
            }
        };
        let mut before = EdgesBefore::default();
        for (place, id) in raw.iter_mut().zip(dependencies) {
            *place = self.raw_node(*id)?;
            before.push(Before {
                // The index of a slot.
                index: id.index() as u32,
                is_full: true,
            });
        }
        let mut node = std::ptr::null_mut();
        let place = Place {
            node: &raw mut node,
            graph: self.raw,
            dependencies: raw.as_ptr(),
            count: raw.len(),
        };
        add(place).map_err(|error| self.explain_dependencies(error, dependencies))?;
        let id = self.slots_mut().insert(node, content, before);
        Ok(Node::new(id))
    }

    /// Returns the error of a call that added a node: a dependency that is given twice, if there is one.
    #[cold]
    #[inline]
    fn explain_dependencies(&self, error: Error, dependencies: &[NodeId]) -> Error {
        match repeated(dependencies) {
            Some(id) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE) => {
                Invalid::RepeatedDependency { node: self.slots().describe(id) }.into()
            }
            _ => error,
        }
    }

    /// Adds a node without work, which joins its dependencies. Calls `cuGraphAddEmptyNode`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`], [`Invalid::NoSuchNode`] and [`Invalid::RepeatedDependency`] for the
    /// dependencies.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddEmptyNode`](fn@cuda_sys::cuGraphAddEmptyNode).
    #[doc(alias = "cuGraphAddEmptyNode")]
    #[inline]
    pub fn add_empty(&mut self, dependencies: &[NodeId]) -> Result<Node<kind::Empty>> {
        let mut content = Content::new::<kind::Empty>(Vec::new());
        self.add_node(dependencies, &mut content, |place| {
            let (node, graph) = (place.node, place.graph);
            let (dependencies, count) = (place.dependencies, place.count);
            // SAFETY: the graph and its nodes are alive, `dependencies` has `count` of them, and the
            // node is a local variable.
            unsafe { call!(cuGraphAddEmptyNode(node, graph, dependencies, count)) }
        })
    }

    /// Removes a node with its edges. Calls `cuGraphDestroyNode`.
    ///
    /// The handle of the node is then an error wherever it is used. Executable graphs are not affected.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`]; [`Invalid::MemoryNodes`] if the graph has
    /// allocation or free nodes; [`Invalid::RemovedConditional`] for a conditional node, because a graph
    /// whose handle has no node cannot be instantiated; `CUDA_ERROR_NOT_SUPPORTED` if the driver cannot
    /// remove nodes from this graph for another reason.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphDestroyNode`](fn@cuda_sys::cuGraphDestroyNode).
    #[doc(alias = "cuGraphDestroyNode")]
    pub fn remove(&mut self, node: impl Into<NodeId>) -> Result<()> {
        let node = node.into();
        let entry = self.slots().get(node)?;
        if entry.content.node_type == kind::Conditional::TYPE {
            let node = self.slots().describe(node);
            return Err(Invalid::RemovedConditional { node }.into());
        }
        let raw = entry.raw.0;
        self.slots().refuse_memory_nodes("lose nodes")?;
        // SAFETY: the node exists, and no other code uses the graph.
        unsafe { call!(cuGraphDestroyNode(raw)) }?;
        let removed = self.slots_mut().remove(node);
        drop(removed);
        Ok(())
    }
}
