//! Reading child graphs.

use crate::call::{Ownership, Result, call};
use crate::graph::{Edge, Graph, Node, NodeId, NodeType, kind};
use crate::launch::LaunchConfig;
use cuda_sys::{CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};
use std::fmt;
use std::marker::PhantomData;

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
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
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

impl fmt::Debug for ChildGraph<'_> {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ChildGraph").field(&self.graph).finish()
    }
}
