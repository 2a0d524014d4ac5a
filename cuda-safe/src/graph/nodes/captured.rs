//! Graphs that captures add nodes to.

use crate::call::{Invalid, Result};
use crate::capture_state::Retain;
use crate::graph::rules::edges::repeated;
use crate::graph::rules::owners::Slots;
use crate::graph::{EdgeKind, Graph, NodeId, Retained};
use cuda_sys::{CUgraphEdgeData, CUgraphNode};
use std::collections::HashSet;
use std::sync::Arc;

/// A dependency of the next captured work: a node, and when the work may start.
pub type CaptureDependency = (NodeId, EdgeKind);

/// The nodes of a graph before a capture, and those that the captured work comes after.
#[derive(Debug, Default)]
pub(crate) struct Before {
    known: HashSet<NodeId>,
    dependencies: Vec<NodeId>,
}

impl Graph {
    /// Returns the nodes before a capture, whose first work comes after `dependencies`, with their
    /// handles.
    ///
    /// # Errors
    /// See [`Slots::get`]; [`Invalid::RepeatedDependency`]; errors of the driver.
    #[inline]
    pub(crate) fn before_capture(
        &mut self,
        dependencies: &[NodeId],
    ) -> Result<(Before, Vec<CUgraphNode>)> {
        self.find_nodes()?;
        let raw = dependencies.iter().map(|id| self.raw_node(*id));
        let raw = raw.collect::<Result<Vec<_>>>()?;
        if let Some(id) = repeated(dependencies) {
            let node = self.slots().describe(id);
            return Err(Invalid::RepeatedDependency { node }.into());
        }
        let before = Before {
            known: self.slots().iter().map(|(id, _)| id).collect(),
            dependencies: dependencies.to_vec(),
        };
        Ok((before, raw))
    }

    /// Adds what a capture retained, and notes that there are nodes without slots.
    #[inline]
    pub(crate) fn with_captured(mut self, own: Retained, retained: Vec<Arc<dyn Retain>>) -> Self {
        let slots = self.slots_mut();
        slots.retain(own);
        slots.borrows_memory = true;
        slots.is_foreign = true;
        slots.is_captured = true;
        self.with_retained(retained)
    }

    /// Returns the nodes at the end of a capture: those of the captured nodes, and of the dependencies,
    /// that no captured node comes after. All nodes have slots then.
    ///
    /// This looks at the edges after the capture. The driver's list of the nodes that the next work
    /// depends on (`cuStreamGetCaptureInfo`) is memory that other threads change when they enqueue work.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn end_of_capture(&mut self, before: &Before) -> Result<Vec<NodeId>> {
        self.find_nodes()?;
        let slots = self.slots();
        let captured = || {
            let nodes = slots.iter().map(|(id, _)| id);
            nodes.filter(|id| !before.known.contains(id))
        };
        let followed: HashSet<usize> = captured()
            .flat_map(|id| slots.before(id))
            .filter(|edge| edge.is_full)
            .map(|edge| edge.index as usize)
            .collect();
        let candidates = before.dependencies.iter().copied().chain(captured());
        Ok(candidates.filter(|id| !followed.contains(&id.index())).collect())
    }

    /// Returns the nodes without dependents.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn leaves(&mut self) -> Result<Vec<NodeId>> {
        self.end_of_capture(&Before::default())
    }

    /// Drops what a graph used that the driver has destroyed, because a capture into it failed.
    #[inline]
    pub(crate) fn abandon(self) {
        drop(self.into_parts());
    }

    #[inline]
    pub(crate) fn is_owned(&self) -> bool {
        self.ownership.is_owned()
    }

    /// Returns whether launches of the graph by safe code are refused.
    #[inline]
    pub(crate) fn borrows_memory(&self) -> bool {
        self.slots().borrows_memory
    }

    /// Returns dependencies as the driver takes them.
    ///
    /// # Errors
    /// See [`Slots::get`].
    #[inline]
    pub(crate) fn raw_dependencies(
        &self,
        dependencies: &[CaptureDependency],
    ) -> Result<(Vec<CUgraphNode>, Vec<CUgraphEdgeData>)> {
        let raw = dependencies.iter().map(|(id, kind)| Ok((self.raw_node(*id)?, kind.raw())));
        let raw = raw.collect::<Result<Vec<_>>>()?;
        Ok(raw.into_iter().unzip())
    }

    /// Returns the handle of a node that the driver named.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn known_node(&mut self, raw: CUgraphNode) -> Result<Option<NodeId>> {
        self.find_nodes()?;
        Ok(self.slots().find(raw))
    }

    /// Returns dependencies of captured work with handles of this graph.
    ///
    /// # Errors
    /// Errors of the driver.
    #[inline]
    pub(crate) fn known_dependencies(
        &mut self,
        raw: &[(CUgraphNode, CUgraphEdgeData)],
    ) -> Result<Vec<CaptureDependency>> {
        self.slots_mut().is_foreign = true;
        self.find_nodes()?;
        let known = |(node, data): &(CUgraphNode, CUgraphEdgeData)| {
            Some((self.slots().find(*node)?, EdgeKind::from_raw(*data)))
        };
        Ok(raw.iter().filter_map(known).collect())
    }
}

impl Slots {
    /// Adds an object that the graph needs as a whole, unless it has it already.
    #[inline]
    pub(crate) fn retain(&mut self, object: Retained) {
        self.is_borrowed |= object.is_borrowed();
        if !self.common.iter().any(|its| its.is_same(&object)) {
            self.common.push(object);
        }
    }
}
