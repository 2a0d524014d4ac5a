//! Recaptures: the nodes of a graph get the parameters of newly captured work.

use super::{Capture, CaptureMode, Destination, OnFailure};
use crate::call::{Error, Invalid, Rejected, Result, answer, refuse_if};
use crate::graph::{Before, Graph, NodeId, RawNode};
use crate::stream::{Stream, same_context};
use core::ffi::c_void;
use cuda_sys::{CUgraphNode, CUgraphNodeParams, CUgraphRecaptureStatus as Status, CUresult};
use std::sync::{Arc, Mutex, PoisonError};

/// A node whose parameters a [recapture](Stream::recapture) has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RecapturedNode {
    /// The node.
    pub node: NodeId,
    /// Whether an executable graph that was instantiated before can be
    /// [updated](crate::ExecutableGraph::update) with the change. If not, instantiate the graph again.
    pub is_updatable: bool,
}

/// An open recapture of a graph, returned by [`Stream::begin_recapture`].
///
/// [`end`](Self::end) ends the capture and returns the graph. Dropping this value ends the capture and
/// destroys the graph. See [`Capture`].
#[must_use = "dropping a recapture destroys the graph"]
#[derive(Debug)]
pub struct Recapture {
    capture: Capture,
}

/// The nodes that the driver reported during a recapture.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Not a lock of `base::sync`, whose operations may switch threads under the `explore` feature,
    /// because the driver calls [`note`] inside of its own calls.
    nodes: Mutex<Vec<(RawNode, Status)>>,
}

impl Stream {
    /// Captures work like that of an existing graph, and changes the parameters of the graph's nodes to
    /// those of the new work. Calls [`begin_recapture`](Self::begin_recapture) and
    /// [`end`](Recapture::end).
    ///
    /// Returns the graph, and the nodes that have changed.
    /// [`ExecutableGraph::update`](crate::ExecutableGraph::update) applies the changes to an executable
    /// graph.
    ///
    /// On any error the graph is dropped, also if `record` fails or panics.
    ///
    /// # Errors
    /// The error of `record`; the errors of [`begin_recapture`](Self::begin_recapture) and
    /// [`end`](Recapture::end).
    ///
    /// Since CUDA 13.3.
    pub fn recapture<E: From<Error>>(
        &self,
        graph: Graph,
        mode: CaptureMode,
        record: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(Graph, Vec<RecapturedNode>), E> {
        let recapture = self.begin_recapture(graph, mode)?;
        record(self)?;
        Ok(recapture.end()?)
    }

    /// Begins a recapture of a graph. Calls `cuStreamBeginRecaptureToGraph`.
    ///
    /// The work must create the same nodes as the graph has, in the order in which the nodes were added,
    /// with the same edges, allocations and frees. Other parameters may differ.
    ///
    /// The graph then uses memory that it does not own, as a captured graph. It keeps what its nodes
    /// used before.
    ///
    /// The behavior is unverified (from documentation).
    ///
    /// # Errors
    /// The graph is dropped. [`try_begin_recapture`](Self::try_begin_recapture) returns it.
    ///
    /// - [`Invalid::OtherContext`] if the stream does not belong to the
    ///   context of the graph.
    /// - [`Invalid::ForeignGraph`] if other code owns the graph.
    /// - [`Error::Missing`] before CUDA 13.3.
    /// - The errors of [`begin_capture`](Self::begin_capture).
    ///
    /// Since CUDA 13.3. Raw:
    /// [`cuStreamBeginRecaptureToGraph`](fn@cuda_sys::cuStreamBeginRecaptureToGraph).
    #[doc(alias = "cuStreamBeginRecaptureToGraph")]
    #[inline]
    pub fn begin_recapture(&self, graph: Graph, mode: CaptureMode) -> Result<Recapture> {
        Ok(self.try_begin_recapture(graph, mode)?)
    }

    /// Does the same as [`begin_recapture`](Self::begin_recapture), but returns the unchanged graph with
    /// the error, except if a capture was begun and failed immediately.
    ///
    /// # Errors
    /// See [`begin_recapture`](Self::begin_recapture).
    #[inline]
    pub fn try_begin_recapture(
        &self,
        graph: Graph,
        mode: CaptureMode,
    ) -> Result<Recapture, Rejected<Option<Graph>>> {
        refuse_if!(!graph.is_owned(), Rejected::new(Invalid::ForeignGraph, Some(graph)));
        if let Err(error) = same_context("the stream", self.context(), graph.context()) {
            return Err(Rejected::new(error, Some(graph)));
        }
        let raw = graph.raw();
        let changes = Arc::new(Changes::default());
        let data = Arc::as_ptr(&changes).cast_mut().cast::<c_void>();
        let destination = Destination {
            graph,
            around: None,
            before: Before::default(),
            on_failure: OnFailure::Undefined,
            changes: Some(changes),
        };
        let capture = self.begin(Some(destination), || {
            // SAFETY: the stream is alive. The graph and the changes are alive, and the capture owns
            // both until it ends.
            unsafe {
                answer!(cuStreamBeginRecaptureToGraph(
                    self.raw(),
                    mode.raw(),
                    raw,
                    Some(note),
                    data
                ))
            }
        })?;
        Ok(Recapture { capture })
    }
}

impl Recapture {
    /// Returns the captured stream.
    #[inline]
    pub fn stream(&self) -> &Stream {
        self.capture.stream()
    }

    /// Ends the recapture, and returns the graph with the nodes that have changed. Calls
    /// `cuStreamEndCapture`.
    ///
    /// # Errors
    /// `CUDA_ERROR_GRAPH_RECAPTURE_FAILURE` if the work does not match the nodes of the graph; the
    /// errors of [`Capture::end`]. On any error the graph is destroyed, because its state is undefined.
    ///
    /// Since CUDA 10.0. Raw: [`cuStreamEndCapture`](fn@cuda_sys::cuStreamEndCapture).
    #[doc(alias = "cuStreamEndCapture")]
    #[inline]
    pub fn end(self) -> Result<(Graph, Vec<RecapturedNode>)> {
        let destination = self.capture.destination.as_ref();
        let changes = destination.and_then(|its| its.changes.clone());
        let mut graph = self.capture.end()?;
        let changed = changes.map(|changes| changes.take()).unwrap_or_default();
        let mut nodes = Vec::with_capacity(changed.len());
        for (raw, status) in changed {
            nodes.extend(graph.known_node(raw.0)?.map(|node| RecapturedNode {
                node,
                is_updatable: status == Status::CU_GRAPH_RECAPTURE_ELIGIBLE_FOR_UPDATE,
            }));
        }
        Ok((graph, nodes))
    }
}

impl Changes {
    #[inline]
    fn take(&self) -> Vec<(RawNode, Status)> {
        std::mem::take(&mut *self.nodes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The function that the driver calls for each node with other parameters, on any thread that enqueues
/// work in a stream of the capture.
///
/// # Safety
/// `data` points to [`Changes`], which live until this function returns.
#[inline]
unsafe extern "C" fn note(
    data: *mut c_void,
    node: CUgraphNode,
    _: *const CUgraphNodeParams,
    _: *const CUgraphNodeParams,
    status: Status,
) -> CUresult {
    // SAFETY: the caller guarantees that the changes are alive. They are only shared.
    let changes = unsafe { &*data.cast_const().cast::<Changes>() };
    let mut nodes = changes.nodes.lock().unwrap_or_else(PoisonError::into_inner);
    nodes.push((RawNode(node), status));
    CUresult::CUDA_SUCCESS
}
