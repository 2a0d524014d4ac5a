//! The storage of the nodes of a graph.
//!
//! A kernel node usually needs four objects and makes three accesses. If each node had lists of its own,
//! adding and dropping nodes would take several allocations each, which is more time than the driver
//! needs. So one list has the objects of all nodes, and one has the accesses, and a node has a range of each.
//! The range of a node that changed or was removed stays unused until half of the lists is unused.

use super::facts::Facts;
use super::{Content, EdgesBefore, RawNode, Slots};
use crate::event::Event;
use crate::graph::rules::access::Access;
use crate::graph::{NodeAllocation, NodeType, Retained};
use std::ops::{Deref, Range};
use std::sync::Arc;

/// The nodes of a graph, by slots.
#[derive(Clone, Default)]
pub(super) struct NodeList {
    slots: Vec<Slot>,
    /// The objects of all nodes.
    owners: Vec<Retained>,
    /// The accesses of all nodes.
    accesses: Vec<Access>,
    /// The number of objects and accesses that belong to no node.
    unused: usize,
    /// Whether a node may have more than objects and accesses.
    pub(super) has_rest: bool,
    pub(super) facts: Facts,
}

#[derive(Clone, Default)]
pub(super) struct Slot {
    /// The number of nodes that used the slot before.
    pub(super) generation: u32,
    pub(super) node: Option<StoredNode>,
    /// The edges that lead to the node. They may come from removed nodes.
    pub(super) before: EdgesBefore,
    /// Whether the node was copied with the graph.
    pub(super) is_copied: bool,
}

/// A node in its slot.
#[derive(Clone)]
pub(super) struct StoredNode {
    pub(super) raw: RawNode,
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
    pub(super) fn change(&mut self) -> &mut Vec<Slot> {
        self.facts = Facts::default();
        &mut self.slots
    }

    /// Returns a node of this list.
    #[inline]
    pub(super) fn node<'a>(&'a self, node: &'a StoredNode) -> NodeRef<'a> {
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
    pub(super) fn accesses(&self) -> impl Iterator<Item = &Access> + Clone {
        self.accesses.iter()
    }

    /// Takes the objects and accesses out of `content`, for a node that the caller puts into a slot.
    #[inline]
    pub(super) fn store(&mut self, raw: RawNode, content: &mut Content) -> StoredNode {
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
    pub(super) fn take(&mut self, node: StoredNode) -> Content {
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
    pub(super) fn is_bare(&self) -> bool {
        self.owners.len() + self.accesses.len() == self.unused && !self.has_rest
    }

    /// Removes what the nodes need and access. The nodes stay.
    #[inline]
    pub(super) fn clear_contents(&mut self) {
        self.owners.clear();
        self.accesses.clear();
        (self.unused, self.has_rest) = (0, false);
        for node in self.change().iter_mut().filter_map(|slot| slot.node.as_mut()) {
            (node.owners, node.accesses, node.rest) = (0..0, 0..0, None);
        }
    }

    /// Returns the child graph of a node, or its bodies, to change them.
    #[inline]
    pub(super) fn child_mut(&mut self, index: usize) -> Option<&mut Option<Arc<Slots>>> {
        self.has_rest = true;
        let node = self.change().get_mut(index)?.node.as_mut()?;
        Some(&mut node.rest.get_or_insert_default().child)
    }
}
