//! Handles of nodes, and the kinds of nodes.

use cuda_sys::CUgraphNodeType;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// The handle of a node in one [`Graph`](crate::Graph).
///
/// A handle is a number, so it can be copied and kept without a borrow. Each use checks that the node
/// belongs to the graph and still exists. An error names the node otherwise
/// ([`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode),
/// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode)).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    /// The number of the graph, which is never used again in this process.
    graph: u64,
    /// The index of the slot in the graph.
    index: u32,
    /// The number of nodes that used the slot before.
    generation: u32,
}

/// The handle of a node whose kind is known: `Node<kind::Kernel>`. See [`kind`].
///
/// The functions that add nodes return one. [`id`](Self::id) returns the handle without the kind, which
/// dependencies take.
pub struct Node<K> {
    id: NodeId,
    kind: PhantomData<fn() -> K>,
}

/// The kinds of nodes: the parameters of [`Node`].
pub mod kind {
    use super::{CUgraphNodeType, NodeType};

    /// A kind of node. This trait is sealed.
    pub trait Kind: sealed::Sealed {
        /// The type of the nodes of this kind.
        const TYPE: NodeType;
    }

    mod sealed {
        pub trait Sealed {}
    }

    macro_rules! kinds {
        ($($(#[doc = $doc:literal])* $kind:ident = $raw:ident;)*) => {$(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $kind {}
            impl sealed::Sealed for $kind {}
            impl Kind for $kind {
                const TYPE: NodeType = NodeType(CUgraphNodeType::$raw);
            }
        )*};
    }

    kinds! {
        /// A kernel launch.
        Kernel = CU_GRAPH_NODE_TYPE_KERNEL;
        /// A copy.
        Copy = CU_GRAPH_NODE_TYPE_MEMCPY;
        /// A fill of memory with a value.
        Fill = CU_GRAPH_NODE_TYPE_MEMSET;
        /// A host function.
        HostFunction = CU_GRAPH_NODE_TYPE_HOST;
        /// A child graph.
        Child = CU_GRAPH_NODE_TYPE_GRAPH;
        /// A node without work, for dependencies only.
        Empty = CU_GRAPH_NODE_TYPE_EMPTY;
        /// A wait for an event outside the graph.
        EventWait = CU_GRAPH_NODE_TYPE_WAIT_EVENT;
        /// A record of an event.
        EventRecord = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
        /// A batch of memory operations.
        MemoryOperations = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
        /// Signals of external semaphores.
        SemaphoreSignal = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
        /// Waits for external semaphores.
        SemaphoreWait = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT;
        /// An allocation of memory.
        Alloc = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
        /// A free of the memory of an allocation node.
        Free = CU_GRAPH_NODE_TYPE_MEM_FREE;
        /// A conditional node, which decides whether and how often its bodies run.
        Conditional = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    }
}

/// The type of a node (`CUgraphNodeType`). It may be one that this crate has no [`kind`] for.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct NodeType(pub CUgraphNodeType);

impl NodeId {
    #[inline]
    pub(crate) fn new(graph: u64, index: u32, generation: u32) -> Self {
        Self { graph, index, generation }
    }

    #[inline]
    pub(crate) fn graph(self) -> u64 {
        self.graph
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.index as usize
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        self.generation
    }

    /// Returns the handle of the same node in the graph with the number `graph`.
    #[inline]
    pub(crate) fn in_graph(self, graph: u64) -> Self {
        Self { graph, ..self }
    }
}

impl<K> Node<K> {
    pub(crate) fn new(id: NodeId) -> Self {
        Self { id, kind: PhantomData }
    }

    /// Returns the handle without the kind.
    pub fn id(self) -> NodeId {
        self.id
    }
}

impl<K> From<Node<K>> for NodeId {
    fn from(node: Node<K>) -> Self {
        node.id
    }
}

impl NodeType {
    /// Returns the words for a node of this type in messages.
    #[inline]
    fn words(self) -> Option<&'static str> {
        Some(match self.0 {
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL => "kernel",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY => "copy",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET => "fill",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST => "host function",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH => "child graph",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY => "empty node",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_WAIT_EVENT => "event wait",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD => "event record",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL => "semaphore signal",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => "semaphore wait",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC => "allocation",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE => "free",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => "batch of memory operations",
            CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL => "conditional node",
            _ => return None,
        })
    }
}

impl fmt::Display for NodeId {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of graph {}", self.index, self.graph)
    }
}

impl fmt::Debug for NodeId {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeId({}.{}.{})", self.graph, self.index, self.generation)
    }
}

impl fmt::Display for NodeType {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => f.write_str(words),
            None => write!(f, "node of type {}", self.0.0),
        }
    }
}

impl fmt::Debug for NodeType {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeType({self})")
    }
}

impl<K> Clone for Node<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Node<K> {}

impl<K> PartialEq for Node<K> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl<K> Eq for Node<K> {}

impl<K> Hash for Node<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl<K> fmt::Debug for Node<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}
