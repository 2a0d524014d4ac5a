//! The graph that a capture adds nodes to.

use super::recapture::Changes;
use crate::call::count_leak;
use crate::capture_state::Retain;
use crate::graph::Retained;
use crate::graph::{Before, BodyPlace, Graph};
use std::sync::Arc;

/// A graph that exists while a capture adds nodes to it.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) graph: Graph,
    /// If `graph` is the body of a conditional node: the graph that contains the body.
    pub(super) around: Option<Around>,
    /// The nodes before the capture.
    pub(super) before: Before,
    pub(super) on_failure: OnFailure,
    /// The nodes that a recapture has changed.
    pub(super) changes: Option<Arc<Changes>>,
}

/// The graph that contains a body, with the place of the body.
#[derive(Debug)]
pub(super) struct Around {
    pub(super) graph: Graph,
    pub(super) place: BodyPlace,
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
    /// Returns the graph, which contains the body if the work was captured into one.
    #[inline]
    pub(super) fn into_graph(self) -> Graph {
        match self.around {
            Some(around) => around.close(&self.graph),
            None => self.graph,
        }
    }

    /// Returns the graph after the capture has ended, with the objects that the captured work needs.
    #[inline]
    pub(super) fn ended(mut self, own: Retained, retained: Vec<Arc<dyn Retain>>) -> Graph {
        self.graph = self.graph.with_captured(own, retained);
        self.into_graph()
    }

    /// Gives the graph up after the capture has failed.
    #[inline]
    pub(super) fn fail(self) {
        match self.on_failure {
            OnFailure::Destroyed => {
                self.graph.abandon();
                // It is not known what the driver does with a graph whose body it has destroyed, so that
                // graph is not used any more.
                if let Some(around) = self.around {
                    count_leak();
                    around.graph.abandon();
                }
            }
            OnFailure::Undefined => drop(self.graph),
            OnFailure::Unknown => self.leak(),
        }
    }

    /// Leaks the graph, to which a capture that cannot be ended may still add nodes.
    #[inline]
    pub(super) fn leak(self) {
        count_leak();
        std::mem::forget(self);
    }
}

impl Around {
    /// Returns the graph, which contains the body.
    #[inline]
    pub(super) fn close(self, body: &Graph) -> Graph {
        let Self { mut graph, place } = self;
        graph.close_body(&place, body);
        graph
    }
}
