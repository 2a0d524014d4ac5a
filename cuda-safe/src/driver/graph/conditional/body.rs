//! Access to the bodies of conditional nodes.
//!
//! A body belongs to its graph, which destroys it. While a function changes a body, it has a [`Graph`] that
//! stands for the body, and the graph around it is borrowed. Afterwards the nodes of the body become a part
//! of the conditional node's content.

use super::super::owners::Slots;
use super::super::{Graph, GraphOwners, Node, NodeId, kind};
use super::{Body, Conditional, RawGraph};
use crate::base::error::Result;
use crate::base::invalid::Invalid;
use crate::base::ownership::Ownership;
use crate::base::report::count_leak;
use crate::driver::stream::Retained;
use cuda_sys::CUgraph;
use std::sync::Arc;

impl Graph {
    /// Changes a body of a conditional node: `edit` gets the body as a graph. See
    /// [`add_if`](Self::add_if) for what it can contain, and for errors of `edit`.
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
        let mut open = OpenBody::new(self, node.id(), index)?;
        let edited = edit(&mut open.body);
        drop(open);
        if self.raw.is_null() {
            return Err(Invalid::BodyReplaced.into());
        }
        edited
    }

    /// Notes the empty bodies of a new conditional node.
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
                body: Some(Body {
                    raw: RawGraph(*raw),
                    home: home.clone(),
                }),
                nodes: Vec::new(),
            }));
            Arc::new(body)
        });
        let chain = Arc::new(Slots::chain(bodies));
        if let Some(content) = slots.content_mut(node) {
            content.child = Some(chain);
        }
    }

    /// Leaks the graph and all objects that its nodes use. From then on it has a null handle and no
    /// nodes, so all calls fail.
    #[cold]
    fn leak(&mut self) {
        count_leak();
        self.raw = std::ptr::null_mut();
        std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Owned));
        let none = Arc::new(Slots::new(Vec::new()));
        std::mem::forget(std::mem::replace(&mut self.owners.slots, none));
    }
}

/// A body while a function changes it.
struct OpenBody<'a> {
    /// The graph that contains the body.
    graph: &'a mut Graph,
    node: NodeId,
    index: usize,
    raw: CUgraph,
    number: u64,
    body: Graph,
}

impl<'a> OpenBody<'a> {
    fn new(graph: &'a mut Graph, node: NodeId, index: u32) -> Result<Self> {
        let place = index as usize;
        graph.slots().get(node)?;
        let body = graph.slots().body(node, place);
        let opened = body.and_then(|slots| {
            let raw = slots.conditional()?.body.as_ref()?.raw.0;
            Some((raw, Arc::clone(slots)))
        });
        let Some((raw, mut slots)) = opened else {
            return Err(Invalid::NoSuchBody {
                node: graph.slots().describe(node),
                index,
                count: graph.slots().body_count(node),
            }
            .into());
        };
        // The memory of the graph can be used in the body.
        Arc::make_mut(&mut slots)
            .orders
            .clone_from(&graph.slots().orders);
        Ok(Self {
            node,
            index: place,
            raw,
            number: slots.number(),
            body: Graph {
                raw,
                ownership: Ownership::Borrowed,
                owners: GraphOwners {
                    slots,
                    context: graph.context().clone(),
                },
            },
            graph,
        })
    }
}

impl Drop for OpenBody<'_> {
    /// Makes the nodes of the body a part of the graph around it, also if the function failed or panicked.
    fn drop(&mut self) {
        let slots = &self.body.owners.slots;
        if self.body.raw != self.raw || slots.number() != self.number {
            // The function moved the body out. The value may be used on any thread from now on, so the
            // graph around it must neither be used nor destroyed.
            self.graph.leak();
            return;
        }
        let changed = Arc::clone(slots);
        let around = self.graph.slots_mut();
        around.is_borrowed |= changed.is_borrowed;
        around.borrows_memory |= changed.borrows_memory;
        // A child graph may have brought its memory.
        for order in &changed.orders {
            if !around.orders.iter().any(|its| Arc::ptr_eq(its, order)) {
                around.orders.push(Arc::clone(order));
            }
        }
        if let Some(body) = around.body_mut(self.node, self.index) {
            *body = changed;
        }
    }
}
