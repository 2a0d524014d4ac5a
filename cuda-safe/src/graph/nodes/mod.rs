//! The nodes of graphs, by type, and their handles, arguments and attributes.

pub(crate) mod allocation;
pub(crate) mod arguments;
pub(crate) mod captured;
pub(crate) mod child;
pub(crate) mod conditional;
pub(crate) mod device_launch;
pub(crate) mod event;
pub(crate) mod host;
pub(crate) mod kernel;
pub(crate) mod memory_operations;
pub mod node_attribute;
pub(crate) mod query;
pub(crate) mod semaphores;

use super::rules::access::Before;
use super::rules::edges::repeated;
use super::rules::owners::EdgesBefore;
use super::{Content, ExecutableNodes, Graph, Retained};
use crate::call::{Error, Invalid, Result, call, convert, copy, debug};
use crate::context::Context;
use cuda_sys::{CUgraph, CUgraphExec, CUgraphNode, CUgraphNodeType, CUresult};
use kind::Kind;
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
        ($($(#[doc = $doc:literal])* $kind:ident = $raw:ident, $words:literal;)*) => {$(
            $(#[doc = $doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $kind {}
            impl sealed::Sealed for $kind {}
            impl Kind for $kind {
                const TYPE: NodeType = NodeType(CUgraphNodeType::$raw);
            }
        )*

        impl NodeType {
            /// Returns the words for a node of this type in messages.
            pub(super) fn words(self) -> Option<&'static str> {
                match self.0 {
                    $(CUgraphNodeType::$raw => Some($words),)*
                    _ => None,
                }
            }
        }};
    }

    kinds! {
        /// A kernel launch.
        Kernel = CU_GRAPH_NODE_TYPE_KERNEL, "kernel";
        /// A copy.
        Copy = CU_GRAPH_NODE_TYPE_MEMCPY, "copy";
        /// A fill of memory with a value.
        Fill = CU_GRAPH_NODE_TYPE_MEMSET, "fill";
        /// A host function.
        HostFunction = CU_GRAPH_NODE_TYPE_HOST, "host function";
        /// A child graph.
        Child = CU_GRAPH_NODE_TYPE_GRAPH, "child graph";
        /// A node without work, for dependencies only.
        Empty = CU_GRAPH_NODE_TYPE_EMPTY, "empty node";
        /// A wait for an event outside the graph.
        EventWait = CU_GRAPH_NODE_TYPE_WAIT_EVENT, "event wait";
        /// A record of an event.
        EventRecord = CU_GRAPH_NODE_TYPE_EVENT_RECORD, "event record";
        /// A batch of memory operations.
        MemoryOperations = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, "batch of memory operations";
        /// Signals of external semaphores.
        SemaphoreSignal = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, "semaphore signal";
        /// Waits for external semaphores.
        SemaphoreWait = CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, "semaphore wait";
        /// An allocation of memory.
        Alloc = CU_GRAPH_NODE_TYPE_MEM_ALLOC, "allocation";
        /// A free of the memory of an allocation node.
        Free = CU_GRAPH_NODE_TYPE_MEM_FREE, "free";
        /// A conditional node, which decides whether and how often its bodies run.
        Conditional = CU_GRAPH_NODE_TYPE_CONDITIONAL, "conditional node";
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

convert! { [K] |node: Node<K>| -> NodeId { node.id } }

impl fmt::Display for NodeId {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of graph {}", self.index, self.graph)
    }
}

debug! { NodeId |its, f| write!(f, "NodeId({}.{}.{})", its.graph, its.index, its.generation) }

impl fmt::Display for NodeType {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.words() {
            Some(words) => f.write_str(words),
            None => write!(f, "node of type {}", self.0.0),
        }
    }
}

debug! { NodeType |its, f| write!(f, "NodeType({its})") }

copy! { [K] Node<K> }

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

debug! { [K] Node<K> |its, f| its.id.fmt(f) }

/// The arguments that all functions that add a node share: the place of the new node, the graph, the
/// dependencies and their number.
pub(crate) type NewNode = (*mut CUgraphNode, CUgraph, *const CUgraphNode, usize);

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
        add: impl FnOnce(NewNode) -> Result<()>,
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
        add((&raw mut node, self.raw, raw.as_ptr(), raw.len()))
            .map_err(|error| self.explain_dependencies(error, dependencies))?;
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
        self.add_node(dependencies, &mut content, |(node, graph, dependencies, count)| {
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

/// The parameters of a node, and the calls that take them.
///
/// # Safety
/// The calls are correct for a node of the kind whose content is kept as long as the node, a launch or an
/// executable graph uses it. The caller of a function that creates a specification promises the rest.
pub(crate) unsafe trait Specification {
    /// The kind of the node.
    type Kind: Kind;

    /// Returns the context that must be current in the calls.
    #[inline]
    fn context(&self) -> Option<&Context> {
        None
    }

    /// Returns what the graph keeps for the node, apart from memory.
    #[inline]
    fn kept(&self) -> Vec<Retained> {
        Vec::new()
    }

    /// Adds the node.
    ///
    /// # Safety
    /// The graph and the nodes in `new` are alive.
    unsafe fn add(&self, new: NewNode) -> Result<()>;

    /// Changes the node in its graph.
    ///
    /// # Safety
    /// The node is alive and of this kind.
    unsafe fn set(&self, node: CUgraphNode) -> Result<()>;

    /// Changes the node in an executable graph.
    ///
    /// # Safety
    /// The executable graph and the node are alive, and the node is of this kind.
    unsafe fn set_in(&self, executable: CUgraphExec, node: CUgraphNode) -> Result<()>;
}

/// Implements [`Specification`]. Each call follows the handles that all kinds of nodes share:
///
/// ```ignore
/// specification! {
///     // SAFETY: …
///     Record<'_>: kind::EventRecord, |its| keeps Retained::Event(its.0.clone()), {
///         cuGraphAddEventRecordNode(its.0.raw()),
///         cuGraphEventRecordNodeSetEvent(its.0.raw()),
///         cuGraphExecEventRecordNodeSetEvent(its.0.raw()),
///     }
/// }
/// // The first call is `cuGraphAddEventRecordNode(node, graph, dependencies, count, its.0.raw())`.
/// ```
///
/// `in context` makes [`Specification::context`] return the field `context`.
macro_rules! specification {
    ($spec:ty: $kind:ty $(, in $context:ident)?, |$its:ident| $(keeps $kept:expr,)? {
        $add:ident($($added:expr),* $(,)?),
        $set:ident($($changed:expr),* $(,)?),
        $set_in:ident($($updated:expr),* $(,)?) $(,)?
    }) => {
        // SAFETY: the use of the macro says why the calls are correct.
        unsafe impl $crate::graph::nodes::Specification for $spec {
            type Kind = $kind;

            $(
                #[inline]
                fn context(&self) -> Option<&$crate::context::Context> {
                    Some(&self.$context)
                }
            )?

            $(
                #[inline]
                fn kept(&self) -> Vec<$crate::graph::Retained> {
                    let $its = self;
                    vec![$kept]
                }
            )?

            #[inline]
            unsafe fn add(
                &self,
                (node, graph, dependencies, count): $crate::graph::nodes::NewNode,
            ) -> $crate::call::error::Result<()> {
                let $its = self;
                // SAFETY: the caller promises that the graph and its nodes are alive, and the parameters are
                // those of the kind.
                unsafe { $crate::call::function::call!($add(node, graph, dependencies, count, $($added),*)) }
            }

            #[inline]
            unsafe fn set(&self, node: cuda_sys::CUgraphNode) -> $crate::call::error::Result<()> {
                let $its = self;
                // SAFETY: the caller promises that the node is alive and of this kind.
                unsafe { $crate::call::function::call!($set(node, $($changed),*)) }
            }

            #[inline]
            unsafe fn set_in(
                &self,
                executable: cuda_sys::CUgraphExec,
                node: cuda_sys::CUgraphNode,
            ) -> $crate::call::error::Result<()> {
                let $its = self;
                // SAFETY: the caller promises that the executable graph and the node are alive, and that the
                // node is of this kind.
                unsafe { $crate::call::function::call!($set_in(executable, node, $($updated),*)) }
            }
        }
    };
}

pub(crate) use specification;

impl Graph {
    /// Adds a node that uses no memory of a graph.
    ///
    /// # Errors
    /// See [`add_node`](Self::add_node).
    pub(crate) fn add_without_memory<S: Specification>(
        &mut self,
        dependencies: &[NodeId],
        specification: &S,
    ) -> Result<Node<S::Kind>> {
        let mut content = Content::new::<S::Kind>(specification.kept());
        self.add(dependencies, &mut content, specification)
    }

    /// Changes a node that uses no memory of a graph.
    ///
    /// # Errors
    /// See [`set`](Self::set).
    pub(crate) fn set_without_memory<S: Specification>(
        &mut self,
        node: Node<S::Kind>,
        specification: &S,
    ) -> Result<()> {
        self.set(node, Content::new::<S::Kind>(specification.kept()), specification)
    }

    /// Adds a node.
    ///
    /// # Errors
    /// See [`add_node`](Self::add_node).
    pub(crate) fn add<S: Specification>(
        &mut self,
        dependencies: &[NodeId],
        content: &mut Content,
        specification: &S,
    ) -> Result<Node<S::Kind>> {
        self.add_node(dependencies, content, |new| {
            let _current = specification.context().map(|its| its.enter()).transpose()?;
            // SAFETY: the graph and its nodes are alive.
            unsafe { specification.add(new) }
        })
    }

    /// Changes a node. If the change fails, the node is as before.
    ///
    /// # Errors
    /// See [`Slots::get`](crate::graph::rules::owners::Slots::get); errors of the driver.
    pub(crate) fn set<S: Specification>(
        &mut self,
        node: Node<S::Kind>,
        content: Content,
        specification: &S,
    ) -> Result<()> {
        let id = node.id();
        let raw = self.raw_node(id)?;
        {
            let _current = specification.context().map(|its| its.enter()).transpose()?;
            // SAFETY: the node exists and is of this kind.
            unsafe { specification.set(raw) }?;
        }
        let before = self.slots_mut().replace(id, content);
        drop(before);
        Ok(())
    }
}

impl ExecutableNodes<'_> {
    /// Changes a node that uses no memory of a graph.
    ///
    /// # Errors
    /// See [`set`](Self::set).
    pub(crate) fn set_without_memory<S: Specification>(
        &mut self,
        node: Node<S::Kind>,
        specification: &S,
    ) -> Result<()> {
        self.set(node, Content::new::<S::Kind>(specification.kept()), specification)
    }

    /// Changes a node. If the change fails, the node is as before.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode); errors about accesses to memory; errors of the
    /// driver.
    pub(crate) fn set<S: Specification>(
        &mut self,
        node: Node<S::Kind>,
        content: Content,
        specification: &S,
    ) -> Result<()> {
        self.change(node, content, |executable, node| {
            let _current = specification.context().map(|its| its.enter()).transpose()?;
            // SAFETY: the executable graph and the node exist, and the node is of this kind.
            unsafe { specification.set_in(executable, node) }
        })
    }
}
