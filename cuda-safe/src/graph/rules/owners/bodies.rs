//! The bodies of conditional nodes among the nodes of a graph.
//!
//! A conditional node has its bodies as child graphs, in the order of their indices. No two of them run at
//! the same time, so full edges connect them for the check of accesses: they form a chain.

use super::{Content, NodeRef, Slots};
use crate::call::Result;
use crate::graph::nodes::conditional::Conditional;
use crate::graph::rules::access::Before;
use crate::graph::{NodeId, kind};
use cuda_sys::CUgraphNode;
use std::sync::Arc;

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
        match id.graph() == self.number {
            true => self,
            false => self.body_of(id).unwrap_or(self),
        }
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
        if node.graph() == self.number {
            if let Some(body) = self.body_mut(node, index) {
                *body = changed;
            }
        } else if let Some((outer, place)) = self.body_around(node) {
            if let Some(body) = self.body_mut(outer, place) {
                Arc::make_mut(body).set_body(node, index, changed);
            }
        }
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
