//! The objects of an executable graph when its nodes change.

use crate::call::{Invalid, Result};
use crate::context::Context;
use crate::graph::exec::launches::Noted;
use crate::graph::exec::retire::{AfterLaunches, Used};
use crate::graph::rules::access::covers;
use crate::graph::rules::order::Claim;
use crate::graph::rules::owners::Slots;
use crate::graph::{Content, Earlier, ExecutableGraph, Graph, NodeId};
use std::collections::HashSet;
use std::sync::Arc;

/// The number of replaced nodes whose objects are released together, because that costs an event for each
/// stream.
const BATCH: usize = 64;

/// The number of nodes for which a replaced graph counts. Its objects may include much memory, so few graphs
/// stay alive until the release.
const NODES_OF_A_GRAPH: usize = 16;

/// Objects that earlier launches may use, and later ones do not.
#[derive(Clone, Default)]
pub(crate) struct Retired(Vec<Replaced>);

/// The replaced objects of nodes.
#[derive(Clone)]
pub(crate) enum Replaced {
    /// Of one node.
    Node(Content),
    /// Of all nodes of a graph.
    Graph(Arc<Slots>),
}

impl Retired {
    /// Adds objects, unless they are there already: an executable graph may be updated from two graphs in
    /// turn.
    #[inline]
    pub(crate) fn add(&mut self, objects: Replaced) {
        if !self.0.iter().any(|its| its.is_same(&objects)) {
            self.0.push(objects);
        }
    }

    /// Returns the number of replaced nodes.
    #[inline]
    fn count(&self) -> usize {
        let nodes = self.0.iter().map(|objects| match objects {
            Replaced::Node(_) => 1,
            Replaced::Graph(_) => NODES_OF_A_GRAPH,
        });
        nodes.sum()
    }

    /// Releases the objects after the launches so far on these streams.
    #[inline]
    pub(crate) fn release_after(self, launches: Vec<Noted>, context: &Context) {
        let mut after = AfterLaunches::new(launches, self.is_borrowed());
        // Recorded now, because later launches do not use the objects.
        let _ = after.record();
        after.with_objects(self).release(context);
    }

    /// Takes a panic of a host function that was not returned yet.
    ///
    /// # Errors
    /// [`Error::HostFunctionPanicked`](crate::Error::HostFunctionPanicked).
    #[inline]
    pub(crate) fn take_panic(&self) -> Result<()> {
        self.0.iter().try_for_each(|objects| match objects {
            Replaced::Node(content) => content.by_ref().take_panic(),
            Replaced::Graph(slots) => slots.take_panic(),
        })
    }

    /// Returns whether one of the objects is borrowed.
    #[inline]
    pub(crate) fn is_borrowed(&self) -> bool {
        self.0.iter().any(|objects| match objects {
            Replaced::Node(content) => content.by_ref().is_borrowed(),
            Replaced::Graph(slots) => slots.is_borrowed,
        })
    }
}

impl Replaced {
    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Graph(one), Self::Graph(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

impl Used for Retired {
    #[inline]
    fn leak_functions(&self) {
        for objects in &self.0 {
            match objects {
                Replaced::Node(content) => content.by_ref().leak_functions(),
                Replaced::Graph(slots) => slots.leak_functions(),
            }
        }
    }
}

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
        if self.objects.updated.is_some() {
            return Err(Invalid::UpdatedFromOtherGraph.into());
        }
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

    /// Uses the nodes of another graph after the driver has updated all nodes.
    #[inline]
    pub(crate) fn adopt(&mut self, slots: Arc<Slots>, claims: Vec<Claim>) {
        self.is_owned = !slots.borrows_memory;
        // Memory of the earlier graph stays claimed, because launches that use it may be running.
        self.claims.extend(claims);
        let mut earlier = slots.all_after();
        let claims = self.claims.iter_mut();
        claims.for_each(|claim| claim.find_earlier(&mut earlier));
        let updated = match slots.number() == self.graph_number() {
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

    /// Returns the number of the graph for error messages.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.graph_number()
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
