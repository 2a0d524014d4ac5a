//! Nodes that record an event or wait for one.

use crate::call::Result;
use crate::event::Event;
use crate::graph::nodes::specification;
use crate::graph::{ExecutableNodes, Graph, Node, NodeId, Retained, kind};

/// The event that a node records.
struct Record<'a>(&'a Event);

/// The event that a node waits for.
struct Wait<'a>(&'a Event);

// SAFETY: the content of the node retains the event.
specification!(Record<'_>: kind::EventRecord, |its| keeps Retained::Event(its.0.clone()), {
    cuGraphAddEventRecordNode(its.0.raw()),
    cuGraphEventRecordNodeSetEvent(its.0.raw()),
    cuGraphExecEventRecordNodeSetEvent(its.0.raw()),
});

// SAFETY: the content of the node retains the event.
specification!(Wait<'_>: kind::EventWait, |its| keeps Retained::Event(its.0.clone()), {
    cuGraphAddEventWaitNode(its.0.raw()),
    cuGraphEventWaitNodeSetEvent(its.0.raw()),
    cuGraphExecEventWaitNodeSetEvent(its.0.raw()),
});

impl Graph {
    /// Adds a node that records an event in each launch. Calls `cuGraphAddEventRecordNode`.
    ///
    /// Waiting for the event outside the graph waits for the last launch that has begun. The graph
    /// retains the event.
    ///
    /// # Errors
    /// See [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 11.1. Raw: [`cuGraphAddEventRecordNode`](fn@cuda_sys::cuGraphAddEventRecordNode).
    #[doc(alias = "cuGraphAddEventRecordNode")]
    #[inline]
    pub fn add_event_record(
        &mut self,
        dependencies: &[NodeId],
        event: &Event,
    ) -> Result<Node<kind::EventRecord>> {
        self.add_without_memory(dependencies, &Record(event))
    }

    /// Adds a node that waits for an event in each launch. Calls `cuGraphAddEventWaitNode`.
    ///
    /// A launch waits for the most recent record of the event at the time of the launch call. If the
    /// event was never recorded, the node does not wait. The graph retains the event.
    ///
    /// # Errors
    /// See [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 11.1. Raw: [`cuGraphAddEventWaitNode`](fn@cuda_sys::cuGraphAddEventWaitNode).
    #[doc(alias = "cuGraphAddEventWaitNode")]
    #[inline]
    pub fn add_event_wait(
        &mut self,
        dependencies: &[NodeId],
        event: &Event,
    ) -> Result<Node<kind::EventWait>> {
        self.add_without_memory(dependencies, &Wait(event))
    }

    /// Changes the event that a node records. Calls `cuGraphEventRecordNodeSetEvent`.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphEventRecordNodeSetEvent`](fn@cuda_sys::cuGraphEventRecordNodeSetEvent).
    #[doc(alias = "cuGraphEventRecordNodeSetEvent")]
    #[inline]
    pub fn set_event_record(&mut self, node: Node<kind::EventRecord>, event: &Event) -> Result<()> {
        self.set_without_memory(node, &Record(event))
    }

    /// Changes the event that a node waits for. Calls `cuGraphEventWaitNodeSetEvent`.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphEventWaitNodeSetEvent`](fn@cuda_sys::cuGraphEventWaitNodeSetEvent).
    #[doc(alias = "cuGraphEventWaitNodeSetEvent")]
    #[inline]
    pub fn set_event_wait(&mut self, node: Node<kind::EventWait>, event: &Event) -> Result<()> {
        self.set_without_memory(node, &Wait(event))
    }
}

impl ExecutableNodes<'_> {
    /// Changes the event that a node records. Calls `cuGraphExecEventRecordNodeSetEvent`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode); `CUDA_ERROR_INVALID_VALUE` for an event of another
    /// device than before.
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphExecEventRecordNodeSetEvent`](fn@cuda_sys::cuGraphExecEventRecordNodeSetEvent).
    #[doc(alias = "cuGraphExecEventRecordNodeSetEvent")]
    #[inline]
    pub fn set_event_record(&mut self, node: Node<kind::EventRecord>, event: &Event) -> Result<()> {
        self.set_without_memory(node, &Record(event))
    }

    /// Changes the event that a node waits for. Calls `cuGraphExecEventWaitNodeSetEvent`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode); `CUDA_ERROR_INVALID_VALUE` for an event of another
    /// device than before.
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphExecEventWaitNodeSetEvent`](fn@cuda_sys::cuGraphExecEventWaitNodeSetEvent).
    #[doc(alias = "cuGraphExecEventWaitNodeSetEvent")]
    #[inline]
    pub fn set_event_wait(&mut self, node: Node<kind::EventWait>, event: &Event) -> Result<()> {
        self.set_without_memory(node, &Wait(event))
    }
}
