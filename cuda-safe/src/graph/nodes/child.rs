//! Child graphs.

use super::conditional::Conditional;
use crate::call::{Invalid, Ownership, Rejected, Result, call, debug, init, refuse_if};
use crate::graph::{Content, Edge, Graph, Node, NodeId, NodeType, kind};
use crate::launch::LaunchConfig;
use cuda_sys::{
    CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphChildGraphNodeOwnership, CUgraphNodeParams, CUgraphNodeType, CudaVersion,
};
use std::marker::PhantomData;
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
        self.add_node(dependencies, &mut content, |(node, graph, dependencies, count)| {
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
        if self.raw == child.raw { Err(Invalid::GraphInItself.into()) } else { Ok(()) }
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
        refuse_if!(!child.ownership.is_owned(), Invalid::ForeignGraph);
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
        self.add_node(dependencies, &mut content, |(node, graph, dependencies, count)| {
            let parameters = &raw mut parameters;
            // SAFETY: both graphs and the nodes are alive, `dependencies` has `count` of them without
            // edge data, and the node is a local variable. The graphs differ. If the call succeeds, the
            // caller gives up the child.
            unsafe { call!(cuGraphAddNode_v2(node, graph, dependencies, none, count, parameters)) }
        })
    }
}

/// The graph inside a child graph node, to read. Returned by [`Graph::child`].
///
/// The driver copies the nodes of a graph that is [added](Graph::add_child) as a child. The handles of
/// the copies belong to this value, and are an error in every other graph, also in a later value for the
/// same node.
///
/// The child graph cannot be changed, because it shares its objects with the graph from which it was
/// copied.
pub struct ChildGraph<'a> {
    graph: Graph,
    /// The child graph exists and does not change as long as its parent is borrowed.
    parent: PhantomData<&'a mut Graph>,
}

impl Graph {
    /// Returns the graph inside a child graph node. Calls `cuGraphChildGraphNodeGetGraph`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuGraphChildGraphNodeGetGraph`](fn@cuda_sys::cuGraphChildGraphNodeGetGraph).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, Graph};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let mut graph = Graph::new(&context)?;
    /// let mut child = Graph::new(&context)?;
    /// child.add_empty(&[])?;
    /// let node = graph.add_child(&[], &mut child)?;
    /// let mut copy = graph.child(node)?;
    /// assert_eq!(copy.nodes()?.len(), 1);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuGraphChildGraphNodeGetGraph")]
    #[inline]
    pub fn child(&mut self, node: Node<kind::Child>) -> Result<ChildGraph<'_>> {
        let raw = self.query(node, |node, place| {
            // SAFETY: the node exists and is a child graph, and the pointer is valid.
            unsafe { call!(cuGraphChildGraphNodeGetGraph(node, place)) }
        })?;
        Ok(ChildGraph {
            graph: Self::wrap(raw, self.context(), Ownership::Borrowed)?,
            parent: PhantomData,
        })
    }
}

impl ChildGraph<'_> {
    /// Returns all nodes. See [`Graph::nodes`].
    ///
    /// # Errors
    /// See [`Graph::nodes`].
    #[inline]
    pub fn nodes(&mut self) -> Result<Vec<NodeId>> {
        self.graph.nodes()
    }

    /// Returns the nodes without dependencies. See [`Graph::roots`].
    ///
    /// # Errors
    /// See [`Graph::roots`].
    #[inline]
    pub fn roots(&mut self) -> Result<Vec<NodeId>> {
        self.graph.roots()
    }

    /// Returns all edges. See [`Graph::edges`].
    ///
    /// # Errors
    /// See [`Graph::edges`].
    #[inline]
    pub fn edges(&mut self) -> Result<Vec<Edge>> {
        self.graph.edges()
    }

    /// Returns the nodes that a node comes after. See [`Graph::dependencies`].
    ///
    /// # Errors
    /// See [`Graph::dependencies`].
    pub fn dependencies(&mut self, node: impl Into<NodeId>) -> Result<Vec<NodeId>> {
        self.graph.dependencies(node)
    }

    /// Returns the nodes that come after a node. See [`Graph::dependents`].
    ///
    /// # Errors
    /// See [`Graph::dependents`].
    pub fn dependents(&mut self, node: impl Into<NodeId>) -> Result<Vec<NodeId>> {
        self.graph.dependents(node)
    }

    /// Returns the handle of a node with its kind. See [`Graph::typed`].
    ///
    /// # Errors
    /// See [`Graph::typed`].
    pub fn typed<K: kind::Kind>(&self, node: NodeId) -> Result<Node<K>> {
        self.graph.typed(node)
    }

    /// Returns the type of a node. See [`Graph::node_type`].
    ///
    /// # Errors
    /// See [`Graph::node_type`].
    pub fn node_type(&self, node: impl Into<NodeId>) -> Result<NodeType> {
        self.graph.node_type(node)
    }

    /// Returns the launch configuration of a kernel node. See [`Graph::kernel_config`].
    ///
    /// # Errors
    /// See [`Graph::kernel_config`].
    #[inline]
    pub fn kernel_config(&self, node: Node<kind::Kernel>) -> Result<LaunchConfig> {
        self.graph.kernel_config(node)
    }

    /// Returns the parameters of a copy in the driver's format. See [`Graph::copy_parameters`].
    ///
    /// # Errors
    /// See [`Graph::copy_parameters`].
    #[inline]
    pub fn copy_parameters(&self, node: Node<kind::Copy>) -> Result<CUDA_MEMCPY3D> {
        self.graph.copy_parameters(node)
    }

    /// Returns the parameters of a fill in the driver's format. See [`Graph::fill_parameters`].
    ///
    /// # Errors
    /// See [`Graph::fill_parameters`].
    #[inline]
    pub fn fill_parameters(&self, node: Node<kind::Fill>) -> Result<CUDA_MEMSET_NODE_PARAMS> {
        self.graph.fill_parameters(node)
    }

    /// Returns the graph inside a child graph node of this graph. See [`Graph::child`].
    ///
    /// # Errors
    /// See [`Graph::child`].
    #[inline]
    pub fn child(&mut self, node: Node<kind::Child>) -> Result<ChildGraph<'_>> {
        self.graph.child(node)
    }
}

debug! { ChildGraph<'_> |its, f| f.debug_tuple("ChildGraph").field(&its.graph).finish() }
