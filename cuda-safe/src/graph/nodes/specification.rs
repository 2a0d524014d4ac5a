//! What a node does: the driver calls that add the node and change it, with their parameters.
//!
//! A node is added to a graph ([`Graph::add`]), changed there ([`Graph::set`]), and changed in an executable
//! graph ([`ExecutableNodes::set`]). Its specification has the parameters that the three calls share, and
//! its content is what the graph keeps for it.

use crate::call::Result;
use crate::context::Context;
use crate::graph::kind::Kind;
use crate::graph::{Content, ExecutableNodes, Graph, Node, NodeId, Place};
use cuda_sys::{CUgraphExec, CUgraphNode};

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

    /// Adds the node.
    ///
    /// # Safety
    /// The graph and the nodes of `place` are alive.
    unsafe fn add(&self, place: Place) -> Result<()>;

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
///     EventRecord: kind::EventRecord, |its| {
///         cuGraphAddEventRecordNode(its.0),
///         cuGraphEventRecordNodeSetEvent(its.0),
///         cuGraphExecEventRecordNodeSetEvent(its.0),
///     }
/// }
/// // The first call is `cuGraphAddEventRecordNode(node, graph, dependencies, count, its.0)`.
/// ```
///
/// `in context` makes [`Specification::context`] return the field `context`.
macro_rules! specification {
    ($spec:ty: $kind:ty $(, in $context:ident)?, |$its:ident| {
        $add:ident($($added:expr),* $(,)?),
        $set:ident($($changed:expr),* $(,)?),
        $set_in:ident($($updated:expr),* $(,)?) $(,)?
    }) => {
        // SAFETY: the use of the macro says why the calls are correct.
        unsafe impl $crate::graph::nodes::specification::Specification for $spec {
            type Kind = $kind;

            $(
                #[inline]
                fn context(&self) -> Option<&$crate::context::Context> {
                    Some(&self.$context)
                }
            )?

            #[inline]
            unsafe fn add(&self, place: $crate::graph::nodes::add::Place) -> $crate::call::error::Result<()> {
                let ($its, node, graph) = (self, place.node, place.graph);
                let (dependencies, count) = (place.dependencies, place.count);
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
        self.add_node(dependencies, content, |place| {
            let _current = specification.context().map(|its| its.enter()).transpose()?;
            // SAFETY: the graph and its nodes are alive.
            unsafe { specification.add(place) }
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
