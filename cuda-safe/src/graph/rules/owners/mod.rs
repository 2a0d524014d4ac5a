//! The nodes of a graph, with the objects that each of them needs.
//!
//! The driver keeps nothing alive: a graph contains copies of arguments and handles. So each slot here
//! owns the objects of its node. A graph and its executable graphs share the slots until one of them
//! changes a node.

mod bodies;
mod edges;
mod facts;
mod nodes;

pub(crate) use crate::graph::rules::owners::edges::EdgesBefore;
pub(crate) use crate::graph::rules::owners::nodes::{ContentRef, NodeRef};

use crate::call::{Error, Invalid, Result, count_leak};
use crate::capture_state::Retain;
use crate::event::Event;
use crate::graph::nodes::allocation::LaunchedAllocation;
use crate::graph::nodes::conditional::Conditional;
use crate::graph::nodes::node::kind::Kind;
use crate::graph::rules::access::{Access, Before};
use crate::graph::rules::owners::nodes::{NodeList, Slot, StoredNode};
use crate::graph::{
    Earlier, MemoryOrder, Node, NodeAllocation, NodeId, NodeType, Retained, UserObject, kind,
};
use cuda_sys::CUgraphNode;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The nodes of a graph.
#[derive(Clone)]
pub(crate) struct Slots {
    /// The number of the graph.
    number: u64,
    /// The number of the graph from which this one was cloned.
    original: Option<u64>,
    slots: NodeList,
    /// The indices of slots without a node and without edges.
    free: Vec<u32>,
    /// The indices of slots without a node, to which edges of other slots may still refer.
    removed: Vec<u32>,
    /// The nodes by their handles, once a query needs them.
    by_handle: OnceLock<HashMap<RawNode, NodeId>>,
    /// The objects that the graph needs as a whole: its context, and what a capture retained.
    pub(crate) common: Vec<Retained>,
    /// The memory that belongs to the graph, and to child graphs that were moved into it.
    pub(crate) orders: Vec<Arc<MemoryOrder>>,
    /// Whether an object is borrowed, so that a release must not be deferred.
    pub(crate) is_borrowed: bool,
    /// Whether the graph uses memory that it does not own.
    pub(crate) borrows_memory: bool,
    /// Whether nodes may exist that have no slot, because other code added them.
    pub(crate) is_foreign: bool,
    /// Whether the graph or a child graph has allocation or free nodes.
    has_memory_nodes: bool,
    /// The conditional handles and nodes of the graph, if it has any.
    pub(crate) conditional: Option<Box<Conditional>>,
    /// Whether nodes of the graph were captured, so that `common` has the contexts of their kernels.
    pub(crate) is_captured: bool,
}

/// The handle of a node, which is valid while its graph exists and the node is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RawNode(pub(crate) CUgraphNode);

// SAFETY: another thread can only pass the handle to the driver, with the graph that it belongs to.
unsafe impl Send for RawNode {}
// SAFETY: see `Send`.
unsafe impl Sync for RawNode {}

/// What a node does, as far as this crate must know it.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) node_type: NodeType,
    /// The objects that the node needs.
    pub(crate) owners: Vec<Retained>,
    /// The memory of the graph that the node uses.
    pub(crate) accesses: Vec<Access>,
    /// Events that a launch must come after, because memory that the node reads was written before them.
    pub(crate) after: Vec<Event>,
    /// The nodes of a child graph, or the bodies of a conditional node.
    pub(crate) child: Option<Arc<Slots>>,
    /// The memory that the node allocates.
    pub(crate) allocation: Option<Arc<NodeAllocation>>,
}

impl Content {
    pub(crate) fn new<K: Kind>(owners: Vec<Retained>) -> Self {
        Self::of_type(K::TYPE, owners)
    }

    #[inline]
    pub(crate) fn of_type(node_type: NodeType, owners: Vec<Retained>) -> Self {
        Self {
            node_type,
            owners,
            accesses: Vec::new(),
            after: Vec::new(),
            child: None,
            allocation: None,
        }
    }

    /// Removes everything, and keeps the room of the lists for the next node.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.owners.clear();
        self.accesses.clear();
        self.after.clear();
        self.child = None;
        self.allocation = None;
    }

    #[inline]
    pub(crate) fn by_ref(&self) -> ContentRef<'_> {
        ContentRef {
            node_type: self.node_type,
            owners: &self.owners,
            accesses: &self.accesses,
            after: &self.after,
            child: self.child.as_ref(),
            allocation: self.allocation.as_ref(),
        }
    }
}

impl Default for Content {
    #[inline]
    fn default() -> Self {
        Self::new::<kind::Empty>(Vec::new())
    }
}

impl<'a> ContentRef<'a> {
    /// Returns whether an object of the node is borrowed.
    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        self.owners.iter().any(Retain::is_borrowed)
            || self.child.is_some_and(|child| child.is_borrowed)
    }

    /// Calls `visit` for each event that a launch must come after, in child graphs too.
    #[inline]
    pub(crate) fn each_after(&self, visit: &mut impl FnMut(&Event)) {
        self.after.iter().for_each(&mut *visit);
        if let Some(child) = self.child {
            child.each_after(visit);
        }
    }

    /// Returns the name of the kernel, if the node has one.
    #[inline]
    fn kernel_name(&self) -> Option<&'a str> {
        self.owners.iter().find_map(|owner| match owner {
            Retained::Kernel(kernel) => Some(kernel.name()),
            _ => None,
        })
    }

    /// Takes a panic of the node's host function that was not returned yet.
    ///
    /// # Errors
    /// [`Error::HostFunctionPanicked`](crate::Error::HostFunctionPanicked).
    #[inline]
    pub(crate) fn take_panic(&self) -> Result<()> {
        take_panic_of(self.owners)?;
        self.child.map_or(Ok(()), |child| child.take_panic())
    }

    /// Leaks the host functions of the node.
    #[inline]
    pub(crate) fn leak_functions(&self) {
        leak_functions_of(self.owners);
        if let Some(child) = self.child {
            child.leak_functions();
        }
    }
}

/// Leaks the host functions among these objects.
#[inline]
fn leak_functions_of(owners: &[Retained]) {
    for owner in owners {
        if let Retained::HostFunction(function) = owner {
            count_leak();
            std::mem::forget(Arc::clone(function));
        }
    }
}

/// Takes a panic of a host function among these objects.
#[inline]
fn take_panic_of(owners: &[Retained]) -> Result<()> {
    for owner in owners {
        if let Retained::HostFunction(function) = owner {
            function.take_panic()?;
        }
    }
    Ok(())
}

impl Slots {
    #[inline]
    pub(crate) fn new(common: Vec<Retained>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let is_borrowed = common.iter().any(Retain::is_borrowed);
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            original: None,
            slots: NodeList::default(),
            free: Vec::new(),
            removed: Vec::new(),
            by_handle: OnceLock::new(),
            common,
            orders: Vec::new(),
            is_borrowed,
            borrows_memory: false,
            is_foreign: false,
            has_memory_nodes: false,
            conditional: None,
            is_captured: false,
        }
    }

    /// Returns the number of the graph, which is never used again in this process.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Adds a node that the driver has just created. Takes the objects and accesses out of `content`.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        raw: CUgraphNode,
        content: &mut Content,
        before: EdgesBefore,
    ) -> NodeId {
        self.note(content.by_ref());
        let raw = RawNode(raw);
        let node = Some(self.slots.store(raw, content));
        let slots = self.slots.change();
        let (index, generation) = match self.free.pop() {
            Some(index) => {
                let slot = &mut slots[index as usize];
                let generation = slot.generation;
                *slot = Slot { generation, node, before, is_copied: false };
                (index, generation)
            }
            None => {
                slots.push(Slot { generation: 0, node, before, is_copied: false });
                // The driver cannot hold as many nodes.
                (u32::try_from(slots.len() - 1).unwrap_or(u32::MAX), 0)
            }
        };
        let id = NodeId::new(self.number, index, generation);
        if let Some(by_handle) = self.by_handle.get_mut() {
            by_handle.insert(raw, id);
        }
        id
    }

    /// Notes what the content of a node means for the graph.
    #[inline]
    fn note(&mut self, content: ContentRef<'_>) {
        self.is_borrowed = self.is_borrowed || content.is_borrowed();
        self.has_memory_nodes |= [kind::Alloc::TYPE, kind::Free::TYPE].contains(&content.node_type);
        if let Some(child) = content.child {
            self.has_memory_nodes |= child.has_memory_nodes;
            self.borrows_memory |= child.borrows_memory;
        }
    }

    /// Removes a node. Returns its objects, so that they are dropped by the caller.
    #[inline]
    pub(crate) fn remove(&mut self, id: NodeId) -> Option<Content> {
        let slot = self.slots.change().get_mut(id.index())?;
        let removed = slot.node.take()?;
        slot.before = EdgesBefore::default();
        if let Some(by_handle) = self.by_handle.get_mut() {
            by_handle.remove(&removed.raw);
        }
        self.removed.extend(u32::try_from(id.index()));
        // Not at each removal, because that takes time for all edges.
        if self.removed.len() * 2 > self.slots.len() {
            self.free_removed();
        }
        Some(self.slots.take(removed))
    }

    /// Removes the edges of removed nodes, so that their slots can be used again.
    #[inline]
    fn free_removed(&mut self) {
        let is_alive: Vec<bool> = self.slots.iter().map(|slot| slot.node.is_some()).collect();
        let slots = self.slots.change();
        for slot in slots.iter_mut() {
            slot.before.retain(|edge| is_alive[edge.index as usize]);
        }
        for index in std::mem::take(&mut self.removed) {
            let slot = &mut slots[index as usize];
            // A slot whose generations are used up stays empty.
            if let Some(generation) = slot.generation.checked_add(1) {
                slot.generation = generation;
                self.free.push(index);
            }
        }
    }

    /// Replaces the content of a node, which exists. Returns the objects from before.
    #[inline]
    pub(crate) fn replace(&mut self, id: NodeId, mut content: Content) -> Option<Content> {
        self.note(content.by_ref());
        let before = self.slots.change().get_mut(id.index())?.node.take()?;
        let node = self.slots.store(before.raw, &mut content);
        self.slots.change()[id.index()].node = Some(node);
        Some(self.slots.take(before))
    }

    /// Returns a node.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    #[inline]
    pub(crate) fn get(&self, id: NodeId) -> Result<NodeRef<'_>> {
        Ok(self.slots.node(self.stored(id)?))
    }

    /// Returns the handle of a node for a driver call.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    #[inline]
    pub(crate) fn raw(&self, id: NodeId) -> Result<CUgraphNode> {
        Ok(self.stored(id)?.raw.0)
    }

    #[inline]
    fn stored(&self, id: NodeId) -> Result<&StoredNode> {
        match self.slots.get(id.index()) {
            Some(Slot { generation, node: Some(node), .. })
                if *generation == id.generation() && id.graph() == self.number =>
            {
                Ok(node)
            }
            _ => Err(self.missing(id)),
        }
    }

    #[cold]
    #[inline(never)]
    fn missing(&self, id: NodeId) -> Error {
        match id.graph() == self.number {
            true => Invalid::NoSuchNode { node: id.to_string() }.into(),
            false => Invalid::OtherGraphNode { node: id.to_string(), graph: self.number }.into(),
        }
    }

    /// Returns the node of this graph that was copied from `node` when the graph was cloned.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    #[inline]
    pub(crate) fn copy_of(&self, node: NodeId) -> Result<NodeId> {
        let missing = || Invalid::NoSuchNode { node: node.to_string() };
        if self.original != Some(node.graph()) {
            return Err(
                Invalid::OtherGraphNode { node: node.to_string(), graph: self.number }.into()
            );
        }
        let copy = node.in_graph(self.number);
        self.get(copy).map_err(|_| missing())?;
        match self.slots[copy.index()].is_copied {
            true => Ok(copy),
            false => Err(missing().into()),
        }
    }

    /// Returns the handle of a node with its kind.
    ///
    /// # Errors
    /// See [`get`](Self::get); [`Invalid::NodeKind`].
    pub(crate) fn typed<K: Kind>(&self, id: NodeId) -> Result<Node<K>> {
        let found = self.get(id)?.content.node_type;
        if found == K::TYPE {
            return Ok(Node::new(id));
        }
        Err(Invalid::NodeKind {
            node: id.to_string(),
            found: found.to_string(),
            expected: K::TYPE.to_string(),
        }
        .into())
    }

    /// Returns the edges that lead to a node, which exists, to change them.
    #[inline]
    pub(crate) fn before_mut(&mut self, id: NodeId) -> Option<&mut EdgesBefore> {
        Some(&mut self.slots.change().get_mut(id.index())?.before)
    }

    /// Returns the edges that lead to a node.
    #[inline]
    pub(crate) fn before(&self, id: NodeId) -> &[Before] {
        let slot = self.slots.get(id.index());
        slot.map_or(&[], |slot| &slot.before)
    }

    /// Returns all nodes, in the order of their slots.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, NodeRef<'_>)> {
        (0u32..).zip(self.slots.iter()).filter_map(|(index, slot)| {
            let id = NodeId::new(self.number, index, slot.generation);
            Some((id, self.slots.node(slot.node.as_ref()?)))
        })
    }

    /// Replaces all edges by those of the driver.
    pub(crate) fn set_edges(&mut self, edges: impl IntoIterator<Item = (NodeId, NodeId, bool)>) {
        let slots = self.slots.change();
        for slot in slots.iter_mut() {
            slot.before = EdgesBefore::default();
        }
        for (from, to, is_full) in edges {
            if let Some(slot) = slots.get_mut(to.index()) {
                slot.before.push(Before {
                    // The index of a slot.
                    index: from.index() as u32,
                    is_full,
                });
            }
        }
    }

    /// Returns the node with this driver handle.
    #[inline]
    pub(crate) fn find(&self, raw: CUgraphNode) -> Option<NodeId> {
        let nodes = || self.iter().map(|(id, entry)| (entry.raw, id)).collect();
        let by_handle = self.by_handle.get_or_init(nodes);
        by_handle.get(&RawNode(raw)).copied()
    }

    /// Returns the description of a node for messages: its kind, the name of its kernel, and its number.
    #[inline]
    pub(crate) fn describe(&self, id: NodeId) -> String {
        self.describe_index(id.index())
    }

    #[inline]
    fn describe_index(&self, index: usize) -> String {
        let node = self.slots.get(index).and_then(|slot| slot.node.as_ref());
        let Some(node) = node else {
            return format!("node {index}");
        };
        let content = self.slots.node(node).content;
        match content.kernel_name() {
            Some(name) => format!("node {index} (kernel \"{name}\")"),
            None => format!("node {index} ({})", content.node_type),
        }
    }

    /// Returns the allocations whose memory may have an owner when a launch begins.
    #[inline]
    pub(crate) fn kept_allocations(&self) -> Vec<LaunchedAllocation> {
        if !self.has_memory_nodes {
            return Vec::new();
        }
        let nodes = self.iter();
        let allocations = nodes.flat_map(|(_, node)| match node.content.child {
            Some(child) => child.kept_allocations(),
            None => {
                let its = node.content.allocation.into_iter();
                its.filter_map(NodeAllocation::launched).collect()
            }
        });
        allocations.collect()
    }

    /// Returns an error if the graph has nodes that allocate or free memory.
    ///
    /// # Errors
    /// [`Invalid::MemoryNodes`].
    #[inline]
    pub(crate) fn refuse_memory_nodes(&self, what: &'static str) -> Result<()> {
        match self.has_memory_nodes {
            true => Err(Invalid::MemoryNodes { what }.into()),
            false => Ok(()),
        }
    }

    /// Calls `visit` for each access of the nodes, in child graphs too.
    #[inline]
    fn each_access(&self, visit: &mut impl FnMut(&Access)) {
        for (_, entry) in self.iter() {
            entry.content.accesses.iter().for_each(&mut *visit);
            if let Some(child) = entry.content.child {
                child.each_access(visit);
            }
        }
    }

    /// Calls `visit` for each event that a launch must come after, in child graphs too.
    #[inline]
    fn each_after(&self, visit: &mut impl FnMut(&Event)) {
        for (_, entry) in self.iter() {
            entry.content.each_after(visit);
        }
    }

    /// Returns the events that a launch must come after, each one once.
    #[inline]
    pub(crate) fn all_after(&self) -> Vec<Earlier> {
        if !self.has_events() {
            return Vec::new();
        }
        let mut handles = HashSet::new();
        let mut events = Vec::new();
        self.each_after(&mut |event| {
            if handles.insert(event.handle().addr()) {
                events.push(Earlier::Event(event.clone()));
            }
        });
        events
    }

    /// Marks the handles of retained events as known to foreign code, which can find them in the graph.
    #[inline]
    pub(crate) fn publish(&self) {
        self.common.iter().for_each(Retain::publish);
        for (_, entry) in self.iter() {
            entry.content.owners.iter().for_each(Retain::publish);
            if let Some(child) = entry.content.child {
                child.publish();
            }
        }
    }

    /// Leaks the host functions of all nodes.
    #[inline]
    pub(crate) fn leak_functions(&self) {
        leak_functions_of(&self.common);
        self.iter().for_each(|(_, node)| node.content.leak_functions());
    }

    /// Takes a panic of a host function that was not returned yet.
    ///
    /// # Errors
    /// [`Error::HostFunctionPanicked`](crate::Error::HostFunctionPanicked).
    #[inline]
    pub(crate) fn take_panic(&self) -> Result<()> {
        take_panic_of(&self.common)?;
        let mut nodes = self.iter();
        nodes.try_for_each(|(_, node)| node.content.take_panic())
    }

    /// Returns a copy for a clone of the graph, whose nodes `raw` finds.
    ///
    /// # Errors
    /// Errors of `raw`.
    pub(crate) fn cloned(
        &self,
        mut raw: impl FnMut(CUgraphNode) -> Result<CUgraphNode>,
    ) -> Result<Self> {
        let mut clone = Self {
            number: Self::new(Vec::new()).number,
            original: Some(self.number),
            by_handle: OnceLock::new(),
            ..self.clone()
        };
        for slot in clone.slots.change() {
            slot.is_copied = slot.node.is_some();
            if let Some(node) = &mut slot.node {
                node.raw = RawNode(raw(node.raw.0)?);
            }
        }
        Ok(clone)
    }

    /// Returns whether no node has objects or accesses, and the user has added no objects.
    #[inline]
    pub(crate) fn has_no_owners(&self) -> bool {
        self.slots.is_bare() && !self.common.iter().any(UserObject::is_in)
    }

    /// Returns a copy without the objects of the nodes and of the user, which another graph provides from
    /// now on.
    #[inline]
    pub(crate) fn without_owners(&self) -> Self {
        let mut bare = self.clone();
        bare.common.retain(|object| !UserObject::is_in(object));
        bare.slots.clear_contents();
        bare
    }
}
