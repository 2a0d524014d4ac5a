//! Changes of executable graphs: single nodes, and all nodes at once.

use super::launches::{Noted, Replaced};
use crate::call::{Error, Invalid, Result, c_enum, call, convert, newest_or, out, refuse_if};
use crate::graph::kind::Kind;
use crate::graph::rules::access::covers;
use crate::graph::rules::order::Claim;
use crate::graph::rules::owners::Slots;
use crate::graph::{Content, Earlier, ExecutableGraph, Graph, Node, NodeId, kind};
use cuda_sys::{CUgraphExec, CUgraphExecUpdateResult, CUgraphExecUpdateResultInfo, CUgraphNode};
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// The nodes of an executable graph, which can be changed. Returned by [`ExecutableGraph::nodes`].
///
/// A change affects the launches that are enqueued from now on, and makes one driver call. Objects that
/// are not used any more are released after the earlier launches, in batches of 64 changes. A node that then uses other memory of the
/// graph is checked against all nodes, which takes time that grows with the graph.
///
/// If a change fails, the node is as before.
#[derive(Debug)]
pub struct ExecutableNodes<'a> {
    pub(crate) executable: &'a mut ExecutableGraph,
    pub(crate) graph: &'a Graph,
}

/// The failure of [`ExecutableGraph::try_update`]. The executable graph is as before.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpdateError {
    /// Why the driver refused the update, or `None` if there is another reason.
    pub problem: Option<UpdateProblem>,
    /// The node of the new graph that differs, if the driver named it.
    pub node: Option<NodeId>,
    /// The node at the start of the edge that differs, if the driver named it.
    pub from: Option<NodeId>,
    /// The error.
    pub error: Error,
}

c_enum! {
    /// Why an executable graph cannot be updated from a graph (`CUgraphExecUpdateResult`).
    pub enum UpdateProblem = CUgraphExecUpdateResult or Other {
        /// The graphs differ in their nodes or edges.
        Topology = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
        /// A node has another type.
        NodeType = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
        /// A kernel has another function, and the driver is too old (before CUDA 11.2).
        Function = CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED,
        /// Parameters of a node differ in a way that cannot be updated.
        Parameters = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED,
        /// Another feature of a node cannot be updated.
        NotSupported = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED,
        /// A kernel has a function of another context.
        FunctionChange = CU_GRAPH_EXEC_UPDATE_ERROR_UNSUPPORTED_FUNCTION_CHANGE,
        /// Attributes of a kernel differ in a way that cannot be updated.
        Attributes = CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED,
    }
}

impl UpdateProblem {
    /// Returns the reason in a result, or `None` if the driver named none.
    #[inline]
    fn of_result(raw: CUgraphExecUpdateResult) -> Option<Self> {
        let is_none = raw == CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS
            || raw == CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR;
        (!is_none).then(|| Self::from_raw(raw))
    }
}

impl ExecutableGraph {
    /// Returns the nodes of this executable graph, which was instantiated from `graph`. The nodes in the
    /// bodies of conditional nodes are among them.
    ///
    /// The driver identifies the nodes of an executable graph by those of its graph, so that graph must
    /// still exist.
    ///
    /// # Errors
    /// [`Invalid::OtherGraph`] if this was instantiated from another graph.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut graph = Graph::new(&context)?;
    /// let mut buffer = graph.own(DeviceBuffer::<u8>::zeroed(&stream, 1000)?)?;
    /// let fill = graph.add_fill(&[], &mut buffer, 7)?;
    /// let mut executable = graph.instantiate()?;
    /// executable.launch(&stream)?;
    /// executable.nodes(&graph)?.set_fill(fill, &mut buffer, 8)?;
    /// executable.launch(&stream)?;
    /// stream.synchronize()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn nodes<'a>(&'a mut self, graph: &'a Graph) -> Result<ExecutableNodes<'a>> {
        if graph.slots().number() != self.graph_number() {
            return Err(Invalid::OtherGraph {
                graph: graph.slots().number(),
                expected: self.graph_number(),
            }
            .into());
        }
        Ok(ExecutableNodes { executable: self, graph })
    }

    /// Changes all nodes to those of a graph with the same nodes and edges. Calls `cuGraphExecUpdate`.
    ///
    /// Objects that are not used any more are released after the earlier launches, in batches of 4 updates.
    ///
    /// Afterwards [`nodes`](Self::nodes) still takes the graph from which this was instantiated, and its handles name the
    /// same nodes of this executable graph. But the driver pairs the nodes of `graph` with them by their edges, not by
    /// their handles. So `nodes` cannot change the memory that a node uses, or a node in a body, if `graph` is another
    /// graph, was captured or is of other code, or has had nodes or edges added or removed since the instantiation. It
    /// can again after an update from a graph to which none of this applies.
    ///
    /// # Errors
    /// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE` if the graphs differ too much;
    /// [`try_update`](Self::try_update) says where and why. The errors of [`Graph::instantiate`] about
    /// accesses to memory. [`Invalid::MemoryNodes`] and [`Invalid::GraphHasConditionals`] if this was
    /// instantiated from another graph, and one of them has allocation, free or conditional nodes: the
    /// addresses of the memory would change, and a kernel must not set the handle of another graph. This
    /// executable graph is then as before.
    ///
    /// Since CUDA 10.2 (through `cuGraphExecUpdate_v2` since 12.0). Raw:
    /// [`cuGraphExecUpdate_v2`](fn@cuda_sys::cuGraphExecUpdate_v2).
    #[doc(alias = "cuGraphExecUpdate")]
    #[inline]
    pub fn update(&mut self, graph: &Graph) -> Result<()> {
        Ok(self.try_update(graph)?)
    }

    /// Does the same as [`update`](Self::update), but returns the node that differs, and the reason, with
    /// the error.
    ///
    /// # Errors
    /// See [`update`](Self::update).
    #[inline]
    pub fn try_update(&mut self, graph: &Graph) -> Result<(), UpdateError> {
        if graph.slots().number() != self.graph_number() {
            let what = "update the executable graph of another graph, or be updated from one";
            graph.refuse_conditionals(what)?;
            self.slots().refuse_conditionals(what)?;
        }
        graph.slots().check_accesses(None)?;
        if graph.slots().number() != self.graph_number() {
            for slots in [graph.slots(), self.slots()] {
                slots.refuse_memory_nodes("update the executable graph of another graph")?;
            }
        }
        let mut claims = Vec::new();
        for order in &graph.slots().orders {
            if !self.has_claimed(order.graph()) {
                claims.push(order.claim()?);
            }
        }
        let (executable, raw_graph) = (self.raw(), graph.raw());
        let mut info = CUgraphExecUpdateResultInfo::default();
        let updated = newest_or(
            // SAFETY: the executable graph is borrowed mutably. The graph is alive and used only by this
            // thread, and its nodes own what they use. The pointer refers to a local variable.
            unsafe { call!(cuGraphExecUpdate_v2(executable, raw_graph, &raw mut info)) },
            || {
                let (node, result) = (&raw mut info.errorNode, &raw mut info.result);
                // SAFETY: as above.
                unsafe { call!(abi::cuGraphExecUpdate(executable, raw_graph, node, result)) }
            },
        );
        if let Err(error) = updated {
            return Err(UpdateError {
                problem: UpdateProblem::of_result(info.result),
                node: graph.slots().find(info.errorNode),
                from: graph.slots().find(info.errorFromNode),
                error,
            });
        }
        self.adopt(graph.shared_slots(), claims);
        Ok(())
    }

    /// Returns the ID of the executable graph in tools, such as profilers. Calls `cuGraphExecGetId`.
    ///
    /// # Errors
    /// [`Error::Missing`].
    ///
    /// Since CUDA 13.1. Raw: [`cuGraphExecGetId`](fn@cuda_sys::cuGraphExecGetId).
    #[doc(alias = "cuGraphExecGetId")]
    #[inline]
    pub fn tools_id(&self) -> Result<u32> {
        // SAFETY: the executable graph is alive, and `out` passes a valid pointer.
        out(|place| unsafe { call!(cuGraphExecGetId(self.raw(), place)) })
    }

    /// Returns the flags with which the graph was instantiated (`CUgraphInstantiate_flags`). Calls
    /// `cuGraphExecGetFlags`.
    ///
    /// # Errors
    /// [`Error::Missing`].
    ///
    /// Since CUDA 12.0. Raw: [`cuGraphExecGetFlags`](fn@cuda_sys::cuGraphExecGetFlags).
    #[doc(alias = "cuGraphExecGetFlags")]
    #[inline]
    pub fn flags(&self) -> Result<u64> {
        // SAFETY: the executable graph is alive, and `out` passes a valid pointer.
        out(|place| unsafe { call!(cuGraphExecGetFlags(self.raw(), place)) })
    }
}

impl ExecutableNodes<'_> {
    /// Changes the nodes of a child graph to those of a graph with the same nodes and edges. Calls
    /// `cuGraphExecChildGraphNodeSetParams`.
    ///
    /// # Errors
    /// [`Invalid::GraphOwnsMemory`] if `child`, or the child graph that it replaces, owns memory;
    /// [`Invalid::GraphBorrows`] if `child` is a captured graph and this graph is not;
    /// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE` if the graphs differ; [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphExecChildGraphNodeSetParams`](fn@cuda_sys::cuGraphExecChildGraphNodeSetParams).
    #[doc(alias = "cuGraphExecChildGraphNodeSetParams")]
    #[inline]
    pub fn set_child(&mut self, node: Node<kind::Child>, child: &Graph) -> Result<()> {
        child.refuse_owned_memory("be copied into another graph")?;
        if child.slots().borrows_memory && self.executable.is_owned() {
            return Err(Invalid::GraphBorrows.into());
        }
        let before = self.executable.slots().get_in_bodies(node.id())?.content.child;
        if before.is_some_and(|its| !its.orders.is_empty()) {
            let what = "be replaced";
            return Err(Invalid::GraphOwnsMemory { what }.into());
        }
        let mut content = Content::new::<kind::Child>(Vec::new());
        content.child = Some(child.shared_slots());
        let raw = child.raw();
        self.change(node, content, |executable, node| {
            // SAFETY: the executable graph, the node and the graph exist. The graph is used only by this
            // thread, and the node is a child graph, which retains what the graph uses.
            unsafe { call!(cuGraphExecChildGraphNodeSetParams(executable, node, raw)) }
        })
    }

    /// Enables or disables a node. A disabled node does nothing, and keeps its place in the order. Calls
    /// `cuGraphNodeSetEnabled`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the node is not a kernel, copy or fill, or is in the body of a
    /// conditional node (driver 580); [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 11.6. Raw: [`cuGraphNodeSetEnabled`](fn@cuda_sys::cuGraphNodeSetEnabled).
    #[doc(alias = "cuGraphNodeSetEnabled")]
    pub fn set_enabled(&mut self, node: impl Into<NodeId>, enabled: bool) -> Result<()> {
        let node = self.existing(node.into())?;
        let executable = self.executable.raw();
        // SAFETY: the executable graph and the node exist.
        unsafe { call!(cuGraphNodeSetEnabled(executable, node, enabled.into())) }
    }

    /// Returns whether a node is enabled. Calls `cuGraphNodeGetEnabled`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the node is not a kernel, copy or fill; [`Invalid::OtherGraphNode`];
    /// [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 11.6. Raw: [`cuGraphNodeGetEnabled`](fn@cuda_sys::cuGraphNodeGetEnabled).
    #[doc(alias = "cuGraphNodeGetEnabled")]
    pub fn is_enabled(&self, node: impl Into<NodeId>) -> Result<bool> {
        let node = self.existing(node.into())?;
        let executable = self.executable.raw();
        // SAFETY: the executable graph and the node exist, and `out` passes a valid pointer.
        let enabled =
            out(|place| unsafe { call!(cuGraphNodeGetEnabled(executable, node, place)) })?;
        Ok(enabled != 0)
    }

    /// Returns the handle of a node that exists in the graph and in the executable graph.
    ///
    /// # Errors
    /// See [`Slots::get`](crate::graph::rules::owners::Slots::get); [`Invalid::UpdatedFromOtherGraph`] for a node in a
    /// body.
    #[inline]
    fn existing(&self, id: NodeId) -> Result<CUgraphNode> {
        let raw = self.graph.slots().level_of(id).raw(id)?;
        let (is_updated, slots) =
            (self.executable.objects.updated.is_some(), self.executable.slots());
        refuse_if!(is_updated && id.graph() != slots.number(), Invalid::UpdatedFromOtherGraph);
        slots.level_of(id).raw(id)?;
        Ok(raw)
    }

    /// Changes a node. `set` calls the driver.
    ///
    /// # Errors
    /// See [`existing`](Self::existing); errors about accesses to memory; errors of `set`.
    pub(crate) fn change<K: Kind>(
        &mut self,
        node: Node<K>,
        content: Content,
        set: impl FnOnce(CUgraphExec, CUgraphNode) -> Result<()>,
    ) -> Result<()> {
        let id = node.id();
        let claims = self.check_and_call(id, Some(&content), set)?;
        self.executable.replace(id, content, claims);
        Ok(())
    }

    /// Calls `set`, which calls the driver, for a node that gets this content, or that needs the same
    /// objects as before if there is none. Returns claims for [`replace`](ExecutableGraph::replace).
    ///
    /// # Errors
    /// See [`change`](Self::change).
    pub(crate) fn check_and_call(
        &self,
        id: NodeId,
        content: Option<&Content>,
        set: impl FnOnce(CUgraphExec, CUgraphNode) -> Result<()>,
    ) -> Result<Vec<Claim>> {
        let raw = self.existing(id)?;
        let claims = match content {
            Some(content) => self.executable.check_change(self.graph, id, content)?,
            None => Vec::new(),
        };
        set(self.executable.raw(), raw)?;
        Ok(claims)
    }
}

impl Graph {
    /// Returns the nodes for an executable graph, which shares them.
    #[inline]
    pub(crate) fn shared_slots(&self) -> Arc<crate::graph::rules::owners::Slots> {
        Arc::clone(&self.owners.slots)
    }

    #[inline]
    pub(crate) fn raw(&self) -> cuda_sys::CUgraph {
        self.raw
    }
}

convert! {
    |error: Error| -> UpdateError { Self { problem: None, node: None, from: None, error } }
    |update: UpdateError| -> Error { update.error }
}

impl fmt::Display for UpdateError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(problem) = self.problem else { return self.error.fmt(f) };
        write!(f, "the executable graph cannot be updated: {problem}")?;
        if let Some(node) = self.node {
            write!(f, " ({node})")?;
        }
        Ok(())
    }
}

cuda_sys::debug_text! { struct UpdateError { problem, node, from, error } }

impl std::error::Error for UpdateError {}

impl fmt::Display for UpdateProblem {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topology => f.write_str("the nodes or edges of the graph differ"),
            Self::NodeType => f.write_str("a node has another type"),
            Self::Function => f.write_str("a kernel has another function"),
            Self::Parameters => f.write_str("parameters of a node cannot be updated"),
            Self::NotSupported => f.write_str("a feature of a node cannot be updated"),
            Self::FunctionChange => f.write_str("a kernel has a function of another context"),
            Self::Attributes => f.write_str("attributes of a kernel cannot be updated"),
            Self::Other(number) => write!(f, "reason {number} of the driver"),
        }
    }
}

/// The number of replaced nodes whose objects are released together, because that costs an event for each
/// stream.
const BATCH: usize = 64;

impl ExecutableGraph {
    /// Checks the accesses of a node that changes, and claims the memory that it uses.
    ///
    /// # Errors
    /// [`Invalid::UnorderedAccess`]; [`Invalid::SecondExecutable`]; [`Invalid::UpdatedFromOtherGraph`].
    #[inline]
    pub(crate) fn check_change(
        &self,
        graph: &Graph,
        id: NodeId,
        content: &Content,
    ) -> Result<Vec<Claim>> {
        if content.accesses.is_empty() {
            return Ok(Vec::new());
        }
        refuse_if!(self.objects.updated.is_some(), Invalid::UpdatedFromOtherGraph);
        let slots = &self.objects.slots;
        let before = slots.get_in_bodies(id)?.content.accesses;
        if covers(before, &content.accesses) {
            return Ok(Vec::new());
        }
        if id.graph() == slots.number() {
            slots.check_accesses(Some((id, content.by_ref())))?;
        } else {
            let mut changed = Slots::clone(slots);
            let _ = changed.replace_in_bodies(id, content.clone());
            changed.check_accesses(None)?;
        }
        let orders = graph.slots().orders.iter();
        let orders = orders.filter(|order| !self.has_claimed(order.graph()));
        orders.map(|order| order.claim()).collect()
    }

    /// Replaces the content of a node after the driver has changed it.
    #[inline]
    pub(crate) fn replace(&mut self, id: NodeId, content: Content, claims: Vec<Claim>) {
        let mut earlier = self.new_events(id, &content);
        self.claims.extend(claims);
        let slots = Arc::make_mut(&mut self.objects.slots);
        let has_new_memory =
            slots.get_in_bodies(id).is_ok_and(|node| node.content.accesses != content.accesses);
        let before = slots.replace_in_bodies(id, content);
        if has_new_memory {
            // The memory may have entered the graph after the instantiation.
            let claims = self.claims.iter_mut();
            claims.for_each(|claim| claim.find_earlier(&mut earlier));
        }
        if !earlier.is_empty() {
            self.launches.add_earlier(earlier);
        }
        if let Some(before) = before {
            self.retire(Replaced::Node(before));
        }
    }

    /// Returns the events that launches must come after because of new content of a node.
    #[inline]
    fn new_events(&self, id: NodeId, content: &Content) -> Vec<Earlier> {
        let mut known = HashSet::new();
        if let Ok(before) = self.objects.slots.get_in_bodies(id) {
            before.content.each_after(&mut |event| {
                known.insert(event.handle());
            });
        }
        let mut events = Vec::new();
        content.by_ref().each_after(&mut |event| {
            if known.insert(event.handle()) {
                events.push(Earlier::Event(event.clone()));
            }
        });
        events
    }

    /// Uses the nodes of a graph after the driver has updated all nodes.
    #[inline]
    pub(crate) fn adopt(&mut self, slots: Arc<Slots>, claims: Vec<Claim>) {
        self.is_owned = !slots.borrows_memory;
        // Memory of the earlier graph stays claimed, because launches that use it may be running.
        self.claims.extend(claims);
        let mut earlier = slots.all_after();
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.find_earlier(&mut earlier));
        // The driver may pair the nodes of a graph whose nodes or edges have changed with others than before.
        let updated = match slots.has_nodes_of(&self.objects.slots) {
            true => {
                let before = std::mem::replace(&mut self.objects.slots, slots);
                self.retire(Replaced::Graph(before));
                self.objects.updated.take()
            }
            false => {
                if !self.objects.slots.has_no_owners() {
                    let bare = Arc::new(self.objects.slots.without_owners());
                    let before = std::mem::replace(&mut self.objects.slots, bare);
                    self.retire(Replaced::Graph(before));
                }
                self.objects.updated.replace(slots)
            }
        };
        if let Some(updated) = updated {
            self.retire(Replaced::Graph(updated));
        }
        // Also if there is none: the next launch then checks whether safe code may launch the graph.
        self.launches.add_earlier(earlier);
    }

    /// Keeps objects until the launches so far are complete.
    #[inline]
    fn retire(&mut self, objects: Replaced) {
        self.retired.add(objects);
        if self.retired.count() >= BATCH {
            self.release_retired();
        }
    }

    /// Releases the retired objects after the launches so far. If there is no event, they stay.
    #[cold]
    #[inline]
    pub(crate) fn release_retired(&mut self) {
        if self.retired.0.is_empty() {
            return;
        }
        let ends = self.launches.streams().into_iter().map(|stream| {
            let end = stream.context().event_now()?;
            Ok(Noted { stream, end })
        });
        if let Ok(ends) = ends.collect::<Result<Vec<_>>>() {
            let retired = std::mem::take(&mut self.retired);
            retired.release_after(ends, self.context());
        }
    }

    /// Returns the number of the graph from which this was instantiated.
    #[inline]
    pub(crate) fn graph_number(&self) -> u64 {
        self.objects.slots.number()
    }

    #[inline]
    pub(crate) fn slots(&self) -> &Slots {
        &self.objects.slots
    }

    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        self.is_owned
    }
}
