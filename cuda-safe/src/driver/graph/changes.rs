//! The objects of an executable graph when its nodes change.

use super::executable::ExecutableGraph;
use super::launches::Noted;
use super::order::{Claim, Earlier};
use super::owners::{Content, Entry, Slots};
use super::retire::{AfterLaunches, Used};
use super::{Graph, NodeId};
use crate::base::error::Result;
use crate::base::invalid::Invalid;
use crate::base::release::{KeepAlive, release};
use std::sync::Arc;

/// The number of replaced objects that are released together, because that costs an event for each stream.
const BATCH: usize = 64;

/// Objects that earlier launches may use, and later ones do not.
#[derive(Default)]
pub(super) struct Retired(Vec<Objects>);

/// The objects of nodes.
pub(super) enum Objects {
    /// Of one node.
    Node(Arc<Entry>),
    /// Of all nodes of a graph.
    Graph(Arc<Slots>),
}

impl Retired {
    pub(super) fn add(&mut self, objects: Objects) {
        self.0.push(objects);
    }
}

impl Used for Retired {
    fn leak_functions(&self) {
        for objects in &self.0 {
            match objects {
                Objects::Node(entry) => entry.leak_functions(),
                Objects::Graph(slots) => slots.leak_functions(),
            }
        }
    }
}

impl ExecutableGraph {
    /// Checks the accesses of a node that changes, and claims the memory that it uses.
    ///
    /// # Errors
    /// [`Invalid::UnorderedAccess`]; [`Invalid::SecondExecutable`]; [`Invalid::UpdatedFromOtherGraph`].
    pub(super) fn check_change(
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
        let before = &slots.get_in_bodies(id)?.content.accesses;
        if *before == content.accesses {
            return Ok(Vec::new());
        }
        if id.graph() == slots.number() {
            slots.check_accesses(Some((id, content)))?;
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
    pub(super) fn replace(&mut self, id: NodeId, content: Content, claims: Vec<Claim>) {
        let events = content.after.iter().cloned().map(Earlier::Event);
        let mut earlier: Vec<_> = events.collect();
        self.claims.extend(claims);
        let slots = Arc::make_mut(&mut self.objects.slots);
        let has_new_memory = slots
            .get_in_bodies(id)
            .is_ok_and(|entry| entry.content.accesses != content.accesses);
        let before = slots.replace_in_bodies(id, content);
        if has_new_memory {
            // The memory may have entered the graph after the instantiation.
            earlier.extend(self.claims.iter_mut().flat_map(Claim::earlier));
        }
        if !earlier.is_empty() {
            self.launches.add_earlier(earlier);
        }
        if let Some(before) = before {
            self.retire(Objects::Node(before));
        }
    }

    /// Uses the nodes of another graph after the driver has updated all nodes.
    pub(super) fn adopt(&mut self, slots: Arc<Slots>, claims: Vec<Claim>) {
        self.is_owned = !slots.borrows_memory;
        // Memory of the earlier graph stays claimed, because launches that use it may be running.
        self.claims.extend(claims);
        let mut earlier: Vec<_> = slots.all_after().into_iter().map(Earlier::Event).collect();
        earlier.extend(self.claims.iter_mut().flat_map(Claim::earlier));
        let updated = match slots.number() == self.graph_number() {
            true => {
                let before = std::mem::replace(&mut self.objects.slots, slots);
                self.retire(Objects::Graph(before));
                self.objects.updated.take()
            }
            false => {
                let bare = Arc::new(self.objects.slots.without_owners());
                let before = std::mem::replace(&mut self.objects.slots, bare);
                self.retire(Objects::Graph(before));
                self.objects.updated.replace(slots)
            }
        };
        if let Some(updated) = updated {
            self.retire(Objects::Graph(updated));
        }
        self.launches.add_earlier(earlier);
    }

    /// Keeps objects until the launches so far are complete.
    fn retire(&mut self, objects: Objects) {
        self.retired.add(objects);
        if self.retired.0.len() >= BATCH {
            self.release_retired();
        }
    }

    /// Releases the retired objects after the launches so far. If there is no event, they stay.
    #[cold]
    pub(super) fn release_retired(&mut self) {
        if self.retired.0.is_empty() {
            return;
        }
        let ends = self.launches.streams().into_iter().map(|stream| {
            let end = stream.context().event_now()?;
            Ok(Noted { stream, end })
        });
        if let Ok(ends) = ends.collect::<Result<Vec<_>>>() {
            let retired = std::mem::take(&mut self.retired);
            let waits = self.objects.is_borrowed();
            let mut after = AfterLaunches::new(ends, waits, retired);
            // Recorded now, because later launches do not use the objects.
            let _ = after.record();
            release(after, &self.objects);
        }
    }

    /// Returns the number of the graph from which this was instantiated.
    pub(super) fn graph_number(&self) -> u64 {
        self.objects.slots.number()
    }

    /// Returns the number of the graph for error messages.
    pub(crate) fn number(&self) -> u64 {
        self.graph_number()
    }

    pub(super) fn slots(&self) -> &Slots {
        &self.objects.slots
    }

    pub(super) fn is_owned(&self) -> bool {
        self.is_owned
    }
}
