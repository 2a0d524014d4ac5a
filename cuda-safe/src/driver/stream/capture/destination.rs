//! The graph that a capture adds nodes to.

use super::recapture::Changes;
use crate::base::report::count_leak;
use crate::driver::graph::{Before, Graph};
use std::sync::Arc;

/// A graph that exists while a capture adds nodes to it.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) graph: Graph,
    /// The nodes before the capture.
    pub(super) before: Before,
    pub(super) on_failure: OnFailure,
    /// The nodes that a recapture has changed.
    pub(super) changes: Option<Arc<Changes>>,
}

/// What becomes of the graph if the capture fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnFailure {
    /// The driver destroys it (measured with driver 580).
    Destroyed,
    /// It is undefined, and the caller destroys it.
    Undefined,
    /// It is not known whether the capture has begun.
    Unknown,
}

impl Destination {
    pub(super) fn into_graph(self) -> Graph {
        self.graph
    }

    /// Gives the graph up after the capture has failed.
    pub(super) fn fail(self) {
        match self.on_failure {
            OnFailure::Destroyed => self.graph.abandon(),
            OnFailure::Undefined => drop(self.graph),
            OnFailure::Unknown => self.leak(),
        }
    }

    /// Leaks the graph, to which a capture that cannot be ended may still add nodes.
    pub(super) fn leak(self) {
        count_leak();
        std::mem::forget(self);
    }
}
