//! Child graphs.

use crate::call::{Invalid, Rejected, Result, call, init};
use crate::graph::nodes::conditional::Conditional;
use crate::graph::{Content, Graph, Node, NodeId, kind};
use cuda_sys::{
    CUDA_CHILD_GRAPH_NODE_PARAMS, CUgraphChildGraphNodeOwnership, CUgraphNodeParams,
    CUgraphNodeType, CudaVersion,
};
use std::sync::Arc;

/// The version in which child graphs can be moved.
const MOVE_SINCE: CudaVersion = CudaVersion::new(12, 9);

impl Graph {
    /// Adds a copy of a graph as one node. Calls `cuGraphAddChildGraphNode`.
    ///
    /// Later changes of `child` do not affect the copy. The copy shares the objects that the nodes of
    /// `child` use. If `child` is a captured graph, launching this graph is `unsafe` too.
    ///
    /// # Errors
    /// [`Invalid::GraphOwnsMemory`] if `child` owns memory, which belongs to one graph: move it with
    /// [`add_child_moved`](Self::add_child_moved); [`Invalid::GraphInItself`];
    /// [`Invalid::GraphHasConditionals`]; `CUDA_ERROR_NOT_SUPPORTED` for a graph with nodes that the driver
    /// cannot clone. See also [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddChildGraphNode`](fn@cuda_sys::cuGraphAddChildGraphNode).
    #[doc(alias = "cuGraphAddChildGraphNode")]
    // The driver writes to a graph that it clones, although the handle stays the same.
    #[inline]
    pub fn add_child(
        &mut self,
        dependencies: &[NodeId],
        child: &mut Self,
    ) -> Result<Node<kind::Child>> {
        child.refuse_owned_memory("be copied into another graph")?;
        self.refuse_itself(child)?;
        if self.slots().conditional().is_some_and(Conditional::is_body) {
            // A body cannot contain all nodes of captured work.
            child.find_nodes()?;
        }
        let mut content = Content::new::<kind::Child>(Vec::new());
        content.child = Some(Arc::clone(&child.owners.slots));
        let raw = child.raw;
        self.add_node(dependencies, &mut content, |place| {
            let (node, graph) = (place.node, place.graph);
            let (dependencies, count) = (place.dependencies, place.count);
            // SAFETY: both graphs and the nodes are alive, `dependencies` has `count` of them, and the
            // node is a local variable. The graphs differ. The node retains what the copy uses.
            unsafe { call!(cuGraphAddChildGraphNode(node, graph, dependencies, count, raw)) }
        })
    }

    /// Moves a graph into this one as one node. Calls `cuGraphAddNode`.
    ///
    /// The memory that `child` owns then belongs to this graph too, so the nodes of both may use it.
    ///
    /// # Errors
    /// [`Invalid::NeedsNewerDriver`]; [`Invalid::ForeignGraph`] if other code owns `child`;
    /// [`Invalid::GraphInItself`]; [`Invalid::GraphHasConditionals`]. See also
    /// [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 12.9. Raw: [`cuGraphAddNode_v2`](fn@cuda_sys::cuGraphAddNode_v2).
    #[doc(alias = "cuGraphAddNode")]
    #[inline]
    pub fn add_child_moved(
        &mut self,
        dependencies: &[NodeId],
        child: Self,
    ) -> Result<Node<kind::Child>> {
        Ok(self.try_add_child_moved(dependencies, child)?)
    }

    /// Does the same as [`add_child_moved`](Self::add_child_moved), but returns the unchanged graph with
    /// the error.
    ///
    /// # Errors
    /// See [`add_child_moved`](Self::add_child_moved).
    #[inline]
    pub fn try_add_child_moved(
        &mut self,
        dependencies: &[NodeId],
        child: Self,
    ) -> Result<Node<kind::Child>, Rejected<Self>> {
        match self.add_moved(dependencies, &child) {
            Ok(node) => {
                // This graph destroys the child, and the node retains what it uses.
                let (_, owners) = child.into_parts();
                let orders = owners.slots.orders.iter().cloned();
                self.slots_mut().orders.extend(orders);
                Ok(node)
            }
            Err(error) => Err(Rejected::new(error, child)),
        }
    }

    /// Returns an error if both are the same graph: objects of [`borrow_raw`](Self::borrow_raw) may have
    /// the same handle.
    #[inline]
    fn refuse_itself(&self, child: &Self) -> Result<()> {
        match self.raw == child.raw {
            true => Err(Invalid::GraphInItself.into()),
            false => Ok(()),
        }
    }

    #[inline]
    fn add_moved(&mut self, dependencies: &[NodeId], child: &Self) -> Result<Node<kind::Child>> {
        child.refuse_conditionals("be moved into another graph")?;
        let driver = init::version()?;
        if driver < MOVE_SINCE {
            return Err(Invalid::NeedsNewerDriver {
                what: "moving a child graph",
                since: MOVE_SINCE,
                driver,
            }
            .into());
        }
        if !child.ownership.is_owned() {
            return Err(Invalid::ForeignGraph.into());
        }
        self.refuse_itself(child)?;
        let mut content = Content::new::<kind::Child>(Vec::new());
        content.child = Some(Arc::clone(&child.owners.slots));
        let mut parameters = CUgraphNodeParams {
            type_: CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH,
            ..CUgraphNodeParams::default()
        };
        parameters.__bindgen_anon_1.graph = CUDA_CHILD_GRAPH_NODE_PARAMS {
            graph: child.raw,
            ownership: CUgraphChildGraphNodeOwnership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE,
        };
        let none = std::ptr::null();
        self.add_node(dependencies, &mut content, |place| {
            let (node, graph) = (place.node, place.graph);
            let (dependencies, count) = (place.dependencies, place.count);
            let parameters = &raw mut parameters;
            // SAFETY: both graphs and the nodes are alive, `dependencies` has `count` of them without
            // edge data, and the node is a local variable. The graphs differ. If the call succeeds, the
            // caller gives up the child.
            unsafe { call!(cuGraphAddNode_v2(node, graph, dependencies, none, count, parameters)) }
        })
    }
}
