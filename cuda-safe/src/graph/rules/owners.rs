//! The nodes of a graph, with the objects that each of them needs.
//!
//! The driver keeps nothing alive: a graph contains copies of arguments and handles. So each slot here
//! owns the objects of its node. A graph and its executable graphs share the slots until one of them
//! changes a node.

use super::access::{
    Access, Before, Checked, NotAllocated, Unordered, are_evidently_ordered, check,
};
use crate::call::{Error, Invalid, Result, count_leak, debug_struct};
use crate::capture_state::{Retain, retain};
use crate::event::Event;
use crate::graph::nodes::allocation::LaunchedAllocation;
use crate::graph::nodes::conditional::Conditional;
use crate::graph::nodes::kind::Kind;
use crate::graph::{
    Earlier, ExecutableGraph, Graph, HostFunction, MemoryOrder, Node, NodeAllocation, NodeId,
    NodeType, kind,
};
use crate::module::Kernel;
use crate::release::Keep;
use crate::stream::{ExecutionContext, RetainedStream, Stream};
use cuda_sys::CUgraphNode;
use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Whether an edge may lead to a slot from a later one. Otherwise the edges form no cycle.
    pub(crate) has_edges_back: bool,
    /// The number of times that nodes or edges were added or removed, in the bodies of conditional nodes too.
    edits: u64,
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

    /// Removes what a kernel node has, and keeps the room of the lists for the next one.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.owners.clear();
        self.accesses.clear();
        self.after.clear();
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
            has_edges_back: false,
            edits: 0,
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
        self.edits += 1;
        let raw = RawNode(raw);
        let node = Some(self.slots.store(raw, content));
        let slots = self.slots.change();
        let (index, generation) = match self.free.pop() {
            Some(index) => {
                self.has_edges_back |= before.iter().any(|edge| edge.index > index);
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
        self.edits += 1;
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
        if self.slots[copy.index()].is_copied { Ok(copy) } else { Err(missing().into()) }
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
        self.edits += 1;
        Some(&mut self.slots.change().get_mut(id.index())?.before)
    }

    /// Returns the edges that lead to a node.
    #[inline]
    pub(crate) fn before(&self, id: NodeId) -> &[Before] {
        let slot = self.slots.get(id.index());
        slot.map_or(&[], |slot| &slot.before)
    }

    /// Returns whether these are nodes of the same graph, with the same edges. The answer is no if other code may have
    /// changed them.
    #[inline]
    pub(crate) fn has_nodes_of(&self, other: &Self) -> bool {
        self.number == other.number && self.edits == other.edits && !self.is_foreign
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
        let Some(node) = node else { return format!("node {index}") };
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
        if self.has_memory_nodes { Err(Invalid::MemoryNodes { what }.into()) } else { Ok(()) }
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

/// The storage of the nodes.
///
/// A kernel node usually needs four objects and makes three accesses. If each node had lists of its own,
/// adding and dropping nodes would take several allocations each, which is more time than the driver
/// needs. So one list has the objects of all nodes, and one has the accesses, and a node has a range of each.
/// The range of a node that changed or was removed stays unused until half of the lists is unused.
#[derive(Clone, Default)]
struct NodeList {
    slots: Vec<Slot>,
    /// The objects of all nodes.
    owners: Vec<Retained>,
    /// The accesses of all nodes.
    accesses: Vec<Access>,
    /// The number of objects and accesses that belong to no node.
    unused: usize,
    /// Whether a node may have more than objects and accesses.
    has_rest: bool,
    facts: Facts,
}

#[derive(Clone, Default)]
struct Slot {
    /// The number of nodes that used the slot before.
    generation: u32,
    node: Option<StoredNode>,
    /// The edges that lead to the node. They may come from removed nodes.
    before: EdgesBefore,
    /// Whether the node was copied with the graph.
    is_copied: bool,
}

/// A node in its slot.
#[derive(Clone)]
struct StoredNode {
    raw: RawNode,
    node_type: NodeType,
    owners: Range<usize>,
    accesses: Range<usize>,
    rest: Option<Box<Rest>>,
}

/// What few nodes have.
#[derive(Clone, Default)]
struct Rest {
    after: Vec<Event>,
    child: Option<Arc<Slots>>,
    allocation: Option<Arc<NodeAllocation>>,
}

/// A node of a graph.
#[derive(Clone, Copy)]
pub(crate) struct NodeRef<'a> {
    pub(crate) raw: RawNode,
    pub(crate) content: ContentRef<'a>,
}

/// A borrowed [`Content`].
#[derive(Clone, Copy)]
pub(crate) struct ContentRef<'a> {
    pub(crate) node_type: NodeType,
    pub(crate) owners: &'a [Retained],
    pub(crate) accesses: &'a [Access],
    pub(crate) after: &'a [Event],
    pub(crate) child: Option<&'a Arc<Slots>>,
    pub(crate) allocation: Option<&'a Arc<NodeAllocation>>,
}

impl Deref for NodeList {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        &self.slots
    }
}

impl NodeList {
    /// Returns the slots to change them, and forgets what followed from the nodes. The nodes of child graphs
    /// and bodies are reached through these slots too.
    #[inline]
    fn change(&mut self) -> &mut Vec<Slot> {
        self.facts = Facts::default();
        &mut self.slots
    }

    /// Returns a node of this list.
    #[inline]
    fn node<'a>(&'a self, node: &'a StoredNode) -> NodeRef<'a> {
        let rest = node.rest.as_deref();
        let content = ContentRef {
            node_type: node.node_type,
            owners: &self.owners[node.owners.clone()],
            accesses: &self.accesses[node.accesses.clone()],
            after: rest.map_or(&[], |rest| &rest.after),
            child: rest.and_then(|rest| rest.child.as_ref()),
            allocation: rest.and_then(|rest| rest.allocation.as_ref()),
        };
        NodeRef { raw: node.raw, content }
    }

    /// Returns the accesses of all nodes, and of nodes that changed or were removed.
    #[inline]
    fn accesses(&self) -> impl Iterator<Item = &Access> + Clone {
        self.accesses.iter()
    }

    /// Takes the objects and accesses out of `content`, for a node that the caller puts into a slot.
    #[inline]
    fn store(&mut self, raw: RawNode, content: &mut Content) -> StoredNode {
        let owners = self.owners.len();
        self.owners.append(&mut content.owners);
        let accesses = self.accesses.len();
        self.accesses.append(&mut content.accesses);
        let is_usual =
            content.after.is_empty() && content.child.is_none() && content.allocation.is_none();
        let rest = (!is_usual).then(|| {
            self.has_rest = true;
            Box::new(Rest {
                after: std::mem::take(&mut content.after),
                child: content.child.take(),
                allocation: content.allocation.take(),
            })
        });
        StoredNode {
            raw,
            node_type: content.node_type,
            owners: owners..self.owners.len(),
            accesses: accesses..self.accesses.len(),
            rest,
        }
    }

    /// Returns the objects of a node that was taken out of its slot.
    #[inline]
    fn take(&mut self, node: StoredNode) -> Content {
        let StoredNode { node_type, owners, accesses, rest, .. } = node;
        self.unused += owners.len() + accesses.len();
        let owners = self.owners[owners].iter_mut();
        let owners = owners.map(|its| std::mem::replace(its, Retained::Nothing)).collect();
        if self.unused * 2 > self.owners.len() + self.accesses.len() {
            self.compact();
        }
        let Rest { after, child, allocation } = rest.map_or_else(Rest::default, |rest| *rest);
        Content { node_type, owners, accesses: Vec::new(), after, child, allocation }
    }

    /// Removes what belongs to no node from the lists.
    #[cold]
    #[inline(never)]
    fn compact(&mut self) {
        let mut all = std::mem::take(&mut self.owners);
        let accesses = std::mem::take(&mut self.accesses);
        for node in self.slots.iter_mut().filter_map(|slot| slot.node.as_mut()) {
            let start = self.owners.len();
            let owners = all[node.owners.clone()].iter_mut();
            self.owners.extend(owners.map(|its| std::mem::replace(its, Retained::Nothing)));
            node.owners = start..self.owners.len();
            let start = self.accesses.len();
            self.accesses.extend_from_slice(&accesses[node.accesses.clone()]);
            node.accesses = start..self.accesses.len();
        }
        self.unused = 0;
    }

    /// Returns whether no node has objects or accesses.
    #[inline]
    fn is_bare(&self) -> bool {
        self.owners.len() + self.accesses.len() == self.unused && !self.has_rest
    }

    /// Removes what the nodes need and access. The nodes stay.
    #[inline]
    fn clear_contents(&mut self) {
        self.owners.clear();
        self.accesses.clear();
        (self.unused, self.has_rest) = (0, false);
        for node in self.change().iter_mut().filter_map(|slot| slot.node.as_mut()) {
            (node.owners, node.accesses, node.rest) = (0..0, 0..0, None);
        }
    }

    /// Returns the child graph of a node, or its bodies, to change them.
    #[inline]
    fn child_mut(&mut self, index: usize) -> Option<&mut Option<Arc<Slots>>> {
        self.has_rest = true;
        let node = self.change().get_mut(index)?.node.as_mut()?;
        Some(&mut node.rest.get_or_insert_default().child)
    }
}

/// The edges that lead to a node. A node of a chain has one, which needs no allocation.
#[derive(Clone, Debug)]
pub(crate) enum EdgesBefore {
    One(Before),
    List(Vec<Before>),
}

impl EdgesBefore {
    #[inline]
    pub(crate) fn push(&mut self, edge: Before) {
        match self {
            Self::One(first) => *self = Self::List(vec![*first, edge]),
            Self::List(edges) if edges.capacity() == 0 => *self = Self::One(edge),
            Self::List(edges) => edges.push(edge),
        }
    }

    /// Removes the edges for which `keep` returns `false`.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Before) -> bool) {
        match self {
            Self::One(edge) if keep(edge) => {}
            Self::One(_) => *self = Self::default(),
            Self::List(edges) => edges.retain(keep),
        }
    }
}

impl Default for EdgesBefore {
    #[inline]
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl Deref for EdgesBefore {
    type Target = [Before];

    #[inline]
    fn deref(&self) -> &[Before] {
        match self {
            Self::One(edge) => std::slice::from_ref(edge),
            Self::List(edges) => edges,
        }
    }
}

impl FromIterator<Before> for EdgesBefore {
    fn from_iter<I: IntoIterator<Item = Before>>(edges: I) -> Self {
        let mut all = Self::default();
        edges.into_iter().for_each(|edge| all.push(edge));
        all
    }
}

/// What is known to follow from the nodes alone.
#[derive(Default)]
struct Facts {
    /// The accesses are ordered, in a graph that is not nested.
    are_accesses_ordered: AtomicBool,
    /// A launch need not come after events.
    has_no_events: AtomicBool,
}

impl Clone for Facts {
    #[inline]
    fn clone(&self) -> Self {
        let copy = |fact: &AtomicBool| AtomicBool::new(fact.load(Ordering::Relaxed));
        Self {
            are_accesses_ordered: copy(&self.are_accesses_ordered),
            has_no_events: copy(&self.has_no_events),
        }
    }
}

impl Slots {
    /// Checks that the accesses to the memory of the graph are ordered, in child graphs too. `changed`
    /// is the content that replaces that of a node.
    ///
    /// # Errors
    /// [`Invalid::UnorderedAccess`]; [`Invalid::UnallocatedAccess`]; [`Invalid::GraphCycle`].
    #[inline]
    pub(crate) fn check_accesses(&self, changed: Option<(NodeId, ContentRef<'_>)>) -> Result<()> {
        self.check_level(changed, false)?;
        if changed.is_none() {
            self.slots.facts.are_accesses_ordered.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Checks the accesses in a graph, which may be nested in another one.
    #[inline]
    fn check_level(
        &self,
        changed: Option<(NodeId, ContentRef<'_>)>,
        is_nested: bool,
    ) -> Result<()> {
        // What is valid in a graph that is not nested is valid in one that is.
        if changed.is_none() && self.slots.facts.are_accesses_ordered.load(Ordering::Relaxed) {
            return Ok(());
        }
        if changed.is_none() && !self.slots.has_rest {
            // Without a list of all nodes.
            let edges = self.slots.iter().map(|slot| &*slot.before);
            if are_evidently_ordered(self.slots.accesses(), edges) {
                return Ok(());
            }
        }
        let content = |index: usize| match changed {
            Some((id, content)) if id.index() == index => Some(content),
            _ => Some(self.slots.node(self.slots[index].node.as_ref()?).content),
        };
        let mut of_children: Vec<(usize, Vec<Access>)> = Vec::new();
        for index in 0..self.slots.len() {
            let child = content(index).and_then(|content| content.child);
            if let Some(child) = child {
                // The nodes of a child graph do not change.
                if changed.is_none() {
                    child.check_level(None, true)?;
                }
                let mut accesses = Vec::new();
                child.each_access(&mut |access| accesses.push(access.clone()));
                of_children.push((index, accesses));
            }
        }
        let mut of_children = of_children.iter().peekable();
        let nodes = self.slots.iter().enumerate().map(|(index, slot)| Checked {
            before: &slot.before,
            accesses: match of_children.next_if(|(child, _)| *child == index) {
                Some((_, accesses)) => accesses,
                None => content(index).map_or(&[], |content| content.accesses),
            },
        });
        let nodes: Vec<_> = nodes.collect();
        check(&nodes, is_nested).map_err(|unordered| match unordered {
            Unordered::Cycle(node) => {
                Invalid::GraphCycle { node: self.describe_index(node) }.into()
            }
            Unordered::Conflict { first, second, buffer } => Invalid::UnorderedAccess {
                first: self.describe_index(first),
                second: self.describe_index(second),
                buffer,
            }
            .into(),
            Unordered::NotAllocated { node, buffer, why } => Invalid::UnallocatedAccess {
                node: self.describe_index(node),
                allocation: buffer,
                problem: match why {
                    NotAllocated::Yet => "its allocation node comes later",
                    NotAllocated::Anymore => "a free node comes earlier",
                    NotAllocated::Ever => "its allocation node is not in this graph",
                },
            }
            .into(),
        })
    }

    /// Returns whether a launch must come after events, because of nodes here or in child graphs.
    #[inline]
    fn has_events(&self) -> bool {
        let known = &self.slots.facts.has_no_events;
        if !self.slots.has_rest || known.load(Ordering::Relaxed) {
            return false;
        }
        let has_events = self.iter().any(|(_, node)| {
            let child = node.content.child;
            !node.content.after.is_empty() || child.is_some_and(|child| child.has_events())
        });
        known.store(!has_events, Ordering::Relaxed);
        has_events
    }
}

/// An object that a graph retains.
#[derive(Clone, Debug)]
pub(crate) enum Retained {
    /// The context or green context of a stream.
    ExecutionContext(ExecutionContext),
    /// A stream that this crate does not own. The stream keeps its context alive.
    Stream(Stream),
    /// An event of an external record or wait.
    Event(Event),
    /// A kernel, with its module or library.
    Kernel(Kernel),
    /// A host function.
    HostFunction(Arc<HostFunction>),
    /// An object of a higher room.
    Object(Arc<dyn Retain>),
    /// The place of an object that was released.
    Nothing,
}

impl Retained {
    /// Returns an object that a capture retained.
    #[inline]
    pub(crate) fn of_capture(object: Arc<dyn Retain>) -> Self {
        let any = object.as_any();
        if let Some(stream) = any.downcast_ref::<RetainedStream>() {
            stream.clone().into()
        } else if let Some(event) = any.downcast_ref::<Event>() {
            Self::Event(event.clone())
        } else if let Some(its) = any.downcast_ref::<Self>() {
            its.clone()
        } else {
            Self::Object(object)
        }
    }

    #[inline]
    fn is_same_object(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ExecutionContext(own), Self::ExecutionContext(other)) => own.is_same(other),
            (Self::Stream(own), Self::Stream(other)) => own == other,
            (Self::Event(own), Self::Event(other)) => Retain::is_same(own, other),
            (Self::HostFunction(own), Self::HostFunction(other)) => Arc::ptr_eq(own, other),
            (Self::Object(own), Self::Object(other)) => own.is_same(&**other),
            _ => false,
        }
    }
}

impl From<RetainedStream> for Retained {
    #[inline]
    fn from(stream: RetainedStream) -> Self {
        match stream {
            RetainedStream::Home(home) => Self::ExecutionContext(home),
            RetainedStream::Stream(stream) => Self::Stream(stream),
        }
    }
}

retain! {
    Retained |its, other| {
        is_same: its.is_same_object(other),
        is_borrowed: match its {
            Self::ExecutionContext(execution_context) => execution_context.is_borrowed(),
            Self::Stream(stream) => stream.is_borrowed(),
            Self::Event(event) => event.is_borrowed(),
            Self::Kernel(kernel) => kernel.context().depends_on_borrowed(),
            Self::HostFunction(_) | Self::Nothing => false,
            Self::Object(object) => object.is_borrowed(),
        },
        publish: match its {
            Self::Event(event) => event.publish(),
            Self::Object(object) => object.publish(),
            Self::ExecutionContext(_)
            | Self::Stream(_)
            | Self::Kernel(_)
            | Self::HostFunction(_)
            | Self::Nothing => {}
        },
    }
}

/// An object of the user.
pub(crate) struct UserObject(Arc<dyn Any + Send + Sync>);

impl UserObject {
    #[inline]
    pub(crate) fn retained(object: Arc<dyn Any + Send + Sync>) -> Arc<dyn Retain> {
        Arc::new(Self(object))
    }

    /// Returns whether a graph retains an object only because of [`Graph::retain`] or
    /// [`Stream::enqueue_retaining`](crate::Stream::enqueue_retaining).
    #[inline]
    pub(super) fn is_in(retained: &Retained) -> bool {
        matches!(retained, Retained::Object(object) if object.as_any().is::<Self>())
    }
}

retain! {
    UserObject |its, other| {
        is_same: Arc::ptr_eq(&its.0, &other.0),
        is_borrowed: false,
    }
}

debug_struct! { UserObject |_its| { .. } }

impl Graph {
    /// Keeps an object alive as long as the graph, and until the launches of its executable graphs are
    /// complete.
    ///
    /// The executable graphs that are instantiated or updated from this graph from now on share the
    /// object. After [`ExecutableGraph::update`] from another graph, only the earlier launches use it.
    /// The last owner drops it. This can happen on any thread, in a later call that creates, copies or
    /// synchronizes.
    ///
    /// A graph with everything that its nodes use can be launched by safe code: see
    /// [`assume_owned`](Self::assume_owned).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    /// use cuda_safe::capture::CaptureMode;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
    /// let mut graph = stream.capture(CaptureMode::default(), |_| buffer.fill(7))?;
    /// graph.retain(Arc::new(Mutex::new(buffer)));
    /// // SAFETY: the graph retains the buffer, which only its launches use from now on.
    /// unsafe { graph.assume_owned() };
    /// let executable = graph.instantiate()?;
    /// executable.launch(&stream)?;
    /// stream.synchronize()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn retain(&mut self, object: Arc<dyn Any + Send + Sync>) {
        let object = UserObject::retained(object);
        self.slots_mut().common.push(Retained::Object(object));
    }
}

impl ExecutableGraph {
    /// Releases the objects that later launches do not use after the launches so far are complete.
    ///
    /// Each update replaces objects. They are released in batches, because a release records an event
    /// on each stream that the graph was launched on. Call this function after an update that replaces
    /// much memory.
    #[inline]
    pub fn release_replaced(&mut self) {
        self.release_retired();
    }
}

// The bodies of a conditional node are its child graphs, in the order of their indices. No two of them run at
// the same time, so full edges connect them for the check of accesses: they form a chain.
impl Slots {
    /// Returns a graph whose nodes are these bodies.
    pub(crate) fn chain(bodies: impl IntoIterator<Item = Arc<Self>>) -> Self {
        let mut chain = Self::new(Vec::new());
        for body in bodies {
            let before = chain.slots.len().checked_sub(1).map(|index| Before {
                // The driver cannot hold as many bodies.
                index: u32::try_from(index).unwrap_or(u32::MAX),
                is_full: true,
            });
            let mut content = Content::new::<kind::Child>(Vec::new());
            content.child = Some(body);
            chain.insert(std::ptr::null_mut(), &mut content, before.into_iter().collect());
        }
        chain
    }

    /// Returns the conditional handles and nodes of this graph, if it has any.
    #[inline]
    pub(crate) fn conditional(&self) -> Option<&Conditional> {
        self.conditional.as_deref()
    }

    /// Returns the number of the graph that contains this body, directly or not, or else of this graph.
    #[inline]
    pub(crate) fn root(&self) -> u64 {
        self.conditional().map_or(self.number, Conditional::root)
    }

    /// Returns the child graph of a node, or the bodies of a conditional node, to change them.
    #[inline]
    pub(crate) fn child_mut(&mut self, node: NodeId) -> Option<&mut Option<Arc<Self>>> {
        self.slots.child_mut(node.index())
    }

    /// Returns the number of bodies of a node.
    #[inline]
    pub(crate) fn body_count(&self, node: NodeId) -> usize {
        let chain = self.get(node).ok().and_then(|node| node.content.child);
        chain.map_or(0, |chain| chain.slots.len())
    }

    /// Returns a body of a conditional node.
    #[inline]
    pub(crate) fn body(&self, node: NodeId, index: usize) -> Option<&Arc<Self>> {
        let chain = &self.get(node).ok()?.content.child?.slots;
        chain.node(chain.get(index)?.node.as_ref()?).content.child
    }

    /// Returns a body of a conditional node to change it. Copies what other graphs share.
    #[inline]
    pub(crate) fn body_mut(&mut self, node: NodeId, index: usize) -> Option<&mut Arc<Self>> {
        let chain = Arc::make_mut(self.child_mut(node)?.as_mut()?);
        chain.slots.child_mut(index)?.as_mut()
    }

    #[inline]
    fn bodies(&self) -> impl Iterator<Item = (NodeId, &Arc<Self>)> {
        let nodes = self.conditional().map_or(&[][..], Conditional::nodes);
        nodes.iter().flat_map(|node| {
            let bodies = (0..self.body_count(*node)).filter_map(|index| self.body(*node, index));
            bodies.map(|body| (*node, body))
        })
    }

    /// Returns a node of this graph or of a body in it.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    #[inline]
    pub(crate) fn get_in_bodies(&self, id: NodeId) -> Result<NodeRef<'_>> {
        self.level_of(id).get(id)
    }

    /// Returns the body in this graph that a node belongs to. Otherwise returns this graph.
    #[inline]
    pub(crate) fn level_of(&self, id: NodeId) -> &Self {
        if id.graph() == self.number { self } else { self.body_of(id).unwrap_or(self) }
    }

    /// Returns the body with the number of the node's graph, at any depth.
    #[cold]
    #[inline]
    fn body_of(&self, id: NodeId) -> Option<&Self> {
        let mut bodies = self.bodies();
        bodies.find_map(|(_, body)| match body.number == id.graph() {
            true => Some(&**body),
            false => body.body_of(id),
        })
    }

    /// Replaces the content of a node of this graph or of a body in it. Returns the objects from before.
    #[inline]
    pub(crate) fn replace_in_bodies(&mut self, id: NodeId, content: Content) -> Option<Content> {
        if id.graph() == self.number {
            return self.replace(id, content);
        }
        self.note(content.by_ref());
        let (node, index) = self.body_around(id)?;
        Arc::make_mut(self.body_mut(node, index)?).replace_in_bodies(id, content)
    }

    /// Replaces a body of a conditional node of this graph or of a body in it.
    #[inline]
    pub(crate) fn set_body(&mut self, node: NodeId, index: usize, changed: Arc<Self>) {
        self.include(&changed);
        let is_own = node.graph() == self.number;
        let place = if is_own { Some((node, index)) } else { self.body_around(node) };
        let Some(body) = place.and_then(|(node, index)| self.body_mut(node, index)) else { return };
        let before = body.edits;
        match is_own {
            true => *body = changed,
            false => Arc::make_mut(body).set_body(node, index, changed),
        }
        self.edits += body.edits - before;
    }

    /// Notes what a body uses for this graph too.
    #[inline]
    fn include(&mut self, body: &Self) {
        self.is_borrowed |= body.is_borrowed;
        self.borrows_memory |= body.borrows_memory;
        self.has_memory_nodes |= body.has_memory_nodes;
        // A child graph may have brought its memory.
        for order in &body.orders {
            if !self.orders.iter().any(|its| Arc::ptr_eq(its, order)) {
                self.orders.push(Arc::clone(order));
            }
        }
    }

    /// Returns the conditional node of this graph, and the index of the body, that contain a node, directly
    /// or not.
    #[inline]
    fn body_around(&self, id: NodeId) -> Option<(NodeId, usize)> {
        let contains = |body: &Self| body.number == id.graph() || body.body_of(id).is_some();
        let nodes = self.conditional().map_or(&[][..], Conditional::nodes);
        let mut places = nodes.iter().flat_map(|node| {
            let indices = 0..self.body_count(*node);
            indices.map(|index| (*node, index))
        });
        places.find(|(node, index)| self.body(*node, *index).is_some_and(|its| contains(its)))
    }

    /// Returns the description of the node with this driver handle, also in a body.
    #[inline]
    pub(crate) fn describe_raw(&self, raw: CUgraphNode) -> Option<String> {
        if let Some(id) = self.find(raw) {
            return Some(self.describe(id));
        }
        self.bodies().find_map(|(owner, body)| {
            let node = body.describe_raw(raw)?;
            Some(format!("{node} in a body of {}", self.describe(owner)))
        })
    }
}
