//! Adding nodes: what all kinds of nodes share, empty nodes, host functions, and events.

use crate::call::error::{Error, Result};
use crate::call::function::call;
use crate::call::invalid::Invalid;
use crate::event::Event;
use crate::graph::Retained;
use crate::graph::kind::Kind;
use crate::graph::rules::access::Before;
use crate::graph::rules::edges::repeated;
use crate::graph::rules::owners::{Content, EdgesBefore};
use crate::graph::{Graph, HostFunction, Node, NodeId, kind};
use cuda_sys::{CUDA_HOST_NODE_PARAMS, CUgraph, CUgraphNode, CUresult};

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
    /// Adds a node. `add` calls the driver, and the graph then owns `content`.
    ///
    /// # Errors
    /// See [`Slots::get`](crate::graph::rules::owners::Slots::get) for the dependencies; [`Invalid::NotInBody`]; errors
    /// of `add`.
    pub(crate) fn add_node<K: kind::Kind>(
        &mut self,
        dependencies: &[NodeId],
        content: Content,
        add: impl FnOnce(Place) -> Result<()>,
    ) -> Result<Node<K>> {
        if let Some(conditional) = self.slots().conditional() {
            conditional.check_node::<K>(&content)?;
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
        let content = Content::new::<kind::Empty>(Vec::new());
        self.add_node(dependencies, content, |place| {
            let (node, graph) = (place.node, place.graph);
            let (dependencies, count) = (place.dependencies, place.count);
            // SAFETY: the graph and its nodes are alive, `dependencies` has `count` of them, and the
            // node is a local variable.
            unsafe { call!(cuGraphAddEmptyNode(node, graph, dependencies, count)) }
        })
    }

    /// Adds a host function, which a driver thread runs once in each launch. Calls
    /// `cuGraphAddHostNode`.
    ///
    /// The graph owns the function. Executable graphs that differ can run it at the same time.
    ///
    /// If the function panics, [`ExecutableGraph::take_panic`](crate::graph::ExecutableGraph::take_panic)
    /// returns the panic, and the launch continues. Inside the function the driver rejects most calls,
    /// and this crate rejects blocking calls. See
    /// [`Stream::launch_host_function`](crate::Stream::launch_host_function).
    ///
    /// # Errors
    /// See [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddHostNode`](fn@cuda_sys::cuGraphAddHostNode).
    #[doc(alias = "cuGraphAddHostNode")]
    pub fn add_host_function(
        &mut self,
        dependencies: &[NodeId],
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<Node<kind::HostFunction>> {
        let function = HostFunction::new(function);
        let parameters: CUDA_HOST_NODE_PARAMS = function.parameters();
        let content = Content::new::<kind::HostFunction>(vec![Retained::HostFunction(function)]);
        self.add_node(dependencies, content, |place| {
            let (node, graph) = (place.node, place.graph);
            let (dependencies, count) = (place.dependencies, place.count);
            let parameters = &raw const parameters;
            // SAFETY: as in `add_empty`. The graph and its executable graphs own the function until
            // their launches are complete.
            unsafe { call!(cuGraphAddHostNode(node, graph, dependencies, count, parameters)) }
        })
    }

    /// Adds a node that records an event in each launch. Calls `cuGraphAddEventRecordNode`.
    ///
    /// Waiting for the event outside the graph waits for the last launch that has begun. The graph
    /// retains the event.
    ///
    /// # Errors
    /// See [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 11.1. Raw: [`cuGraphAddEventRecordNode`](fn@cuda_sys::cuGraphAddEventRecordNode).
    #[doc(alias = "cuGraphAddEventRecordNode")]
    #[inline]
    pub fn add_event_record(
        &mut self,
        dependencies: &[NodeId],
        event: &Event,
    ) -> Result<Node<kind::EventRecord>> {
        let event = event.clone();
        let raw = event.raw();
        let content = Content::new::<kind::EventRecord>(vec![Retained::Event(event)]);
        self.add_node(dependencies, content, |place| {
            let (node, graph) = (place.node, place.graph);
            let (dependencies, count) = (place.dependencies, place.count);
            // SAFETY: as in `add_empty`. The graph retains the event.
            unsafe { call!(cuGraphAddEventRecordNode(node, graph, dependencies, count, raw)) }
        })
    }

    /// Adds a node that waits for an event in each launch. Calls `cuGraphAddEventWaitNode`.
    ///
    /// A launch waits for the most recent record of the event at the time of the launch call. If the
    /// event was never recorded, the node does not wait. The graph retains the event.
    ///
    /// # Errors
    /// See [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 11.1. Raw: [`cuGraphAddEventWaitNode`](fn@cuda_sys::cuGraphAddEventWaitNode).
    #[doc(alias = "cuGraphAddEventWaitNode")]
    #[inline]
    pub fn add_event_wait(
        &mut self,
        dependencies: &[NodeId],
        event: &Event,
    ) -> Result<Node<kind::EventWait>> {
        let event = event.clone();
        let raw = event.raw();
        let content = Content::new::<kind::EventWait>(vec![Retained::Event(event)]);
        self.add_node(dependencies, content, |place| {
            let (node, graph) = (place.node, place.graph);
            let (dependencies, count) = (place.dependencies, place.count);
            // SAFETY: as in `add_empty`. The graph retains the event.
            unsafe { call!(cuGraphAddEventWaitNode(node, graph, dependencies, count, raw)) }
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
