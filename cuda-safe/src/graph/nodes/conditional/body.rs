//! Access to the bodies of conditional nodes.
//!
//! A body belongs to its graph, which destroys it. While a function or a capture changes a body, it has a
//! [`Graph`] that stands for the body. The function borrows the graph around it, and the capture owns it, so
//! that no other code can use that graph. Afterwards the nodes of the body become a part
//! of the conditional node's content.

use super::{Body, Conditional, RawGraph};
use crate::call::{Invalid, Ownership, Result, count_leak};
use crate::graph::rules::owners::Slots;
use crate::graph::{Graph, GraphOwners, Node, NodeId, Retained, kind};
use cuda_sys::CUgraph;
use std::sync::Arc;

impl Graph {
    /// Changes a body of a conditional node: `edit` gets the body as a graph. See
    /// [`add_if`](Self::add_if) for what it can contain, and for errors of `edit`.
    ///
    /// The node may be in a body of this graph itself.
    /// [`Stream::capture_into_body`](crate::Stream::capture_into_body) adds captured work.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// - [`Invalid::NoSuchBody`]; [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    /// - Errors of `edit`; [`Invalid::BodyReplaced`].
    pub fn edit_body<R>(
        &mut self,
        node: Node<kind::Conditional>,
        index: u32,
        edit: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let (place, body) = self.open_body(node, index)?;
        let mut open = OpenBody { graph: self, place, body };
        let edited = edit(&mut open.body);
        drop(open);
        if self.raw.is_null() {
            return Err(Invalid::BodyReplaced.into());
        }
        edited
    }

    /// Returns a body of a conditional node as a graph, with its place for
    /// [`close_body`](Self::close_body). This graph must not be used before.
    ///
    /// # Errors
    /// [`Invalid::NoSuchBody`]; [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    #[inline]
    pub(crate) fn open_body(
        &self,
        node: Node<kind::Conditional>,
        index: u32,
    ) -> Result<(BodyPlace, Self)> {
        let id = node.id();
        let slots = self.slots().level_of(id);
        slots.get(id)?;
        let opened = slots.body(id, index as usize).and_then(|body| {
            let raw = body.conditional()?.body.as_ref()?.raw.0;
            Some((raw, Arc::clone(body)))
        });
        let Some((raw, mut body)) = opened else {
            return Err(Invalid::NoSuchBody {
                node: slots.describe(id),
                index,
                count: slots.body_count(id),
            }
            .into());
        };
        let place = BodyPlace { node, index, raw, number: body.number() };
        let changed = Arc::make_mut(&mut body);
        // The memory of the graph can be used in the body.
        changed.orders.clone_from(&self.slots().orders);
        // `assume_owned` may have covered what was captured before.
        changed.borrows_memory = false;
        let body = Self {
            raw,
            ownership: Ownership::Borrowed,
            owners: GraphOwners { slots: body, context: self.context().clone() },
            room: None,
        };
        Ok((place, body))
    }

    /// Makes the nodes of a body a part of this graph. If `body` is not the graph that
    /// [`open_body`](Self::open_body) returned, this graph is leaked.
    #[inline]
    pub(crate) fn close_body(&mut self, place: &BodyPlace, body: &Self) {
        let slots = &body.owners.slots;
        if body.raw != place.raw || slots.number() != place.number {
            // The body was moved out. The value may be used on any thread from now on, so the graph
            // around it must neither be used nor destroyed.
            self.leak();
            return;
        }
        let slots = Arc::clone(slots);
        let (node, index) = (place.node.id(), place.index as usize);
        self.slots_mut().set_body(node, index, slots);
    }

    /// Notes the empty bodies of a new conditional node.
    #[inline]
    pub(super) fn note_bodies(&mut self, node: NodeId, home: &Retained, bodies: &[CUgraph]) {
        let slots = self.slots_mut();
        let Some(conditional) = slots.conditional.as_deref_mut() else {
            return;
        };
        conditional.nodes.push(node);
        let (root, handles) = (conditional.root, Arc::clone(&conditional.handles));
        let bodies = bodies.iter().map(|raw| {
            let mut body = Slots::new(vec![home.clone()]);
            body.conditional = Some(Box::new(Conditional {
                root,
                handles: Arc::clone(&handles),
                body: Some(Body { raw: RawGraph(*raw), home: home.clone() }),
                nodes: Vec::new(),
            }));
            Arc::new(body)
        });
        let chain = Arc::new(Slots::chain(bodies));
        if let Some(child) = slots.child_mut(node) {
            *child = Some(chain);
        }
    }

    /// Leaks the graph and all objects that its nodes use. From then on it has a null handle and no
    /// nodes, so all calls fail.
    #[cold]
    #[inline]
    fn leak(&mut self) {
        count_leak();
        self.raw = std::ptr::null_mut();
        std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Owned));
        let none = Arc::new(Slots::new(Vec::new()));
        std::mem::forget(std::mem::replace(&mut self.owners.slots, none));
    }
}

/// The place of an open body in the graph around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPlace {
    pub(crate) node: Node<kind::Conditional>,
    pub(crate) index: u32,
    raw: CUgraph,
    /// The number of the body.
    number: u64,
}

/// A body while a function changes it.
struct OpenBody<'a> {
    /// The graph that contains the body.
    graph: &'a mut Graph,
    place: BodyPlace,
    body: Graph,
}

impl Drop for OpenBody<'_> {
    /// Makes the nodes of the body a part of the graph around it, also if the function failed or panicked.
    #[inline]
    fn drop(&mut self) {
        self.graph.close_body(&self.place, &self.body);
    }
}
