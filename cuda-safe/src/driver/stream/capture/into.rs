//! Captures into existing graphs.

use super::destination::{Destination, OnFailure};
use super::{Capture, CaptureMode};
use crate::base::call::answer;
use crate::base::error::{Error, Rejected, Result};
use crate::base::invalid::Invalid;
use crate::driver::graph::{Graph, NodeId};
use crate::driver::stream::{Stream, same_context};

impl Stream {
    /// Captures the work that `record` enqueues in the stream, and adds it to a graph. Calls
    /// [`begin_capture_into`](Self::begin_capture_into) and
    /// [`end_with_nodes`](Capture::end_with_nodes).
    ///
    /// Returns the graph, and the nodes at the end of the capture: work that comes after these nodes
    /// comes after all captured work.
    ///
    /// On any error the graph is dropped, also if `record` fails or panics.
    /// [`try_begin_capture_into`](Self::try_begin_capture_into) returns it if no capture was begun.
    ///
    /// # Errors
    /// The error of `record`; the errors of [`begin_capture_into`](Self::begin_capture_into) and
    /// [`end`](Capture::end).
    ///
    /// Since CUDA 12.3.
    ///
    /// ```no_run
    /// use cuda_safe::{CaptureMode, Context, Device, DeviceBuffer, Graph};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    /// let mut graph = Graph::new(&context)?;
    /// let first = graph.add_host_function(&[], || println!("before the fill"))?;
    /// let (mut graph, last) =
    ///     stream.capture_into(graph, &[first.id()], CaptureMode::default(), |_| buffer.fill(7))?;
    /// graph.add_host_function(&last, || println!("after the fill"))?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn capture_into<E: From<Error>>(
        &self,
        graph: Graph,
        dependencies: &[NodeId],
        mode: CaptureMode,
        record: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(Graph, Vec<NodeId>), E> {
        let capture = self.begin_capture_into(graph, dependencies, mode)?;
        record(self)?;
        Ok(capture.end_with_nodes()?)
    }

    /// Begins a capture that adds its work to a graph, after the nodes `dependencies`. Calls
    /// `cuStreamBeginCaptureToGraph`.
    ///
    /// [`begin_capture`](Self::begin_capture) describes what is captured. The graph retains what the
    /// work needs as a captured graph does. It then uses memory that it does not own: launching it is
    /// `unsafe`, unless a [`GraphRecorder`](crate::GraphRecorder) records the work.
    ///
    /// The driver destroys the graph if the capture fails, for example because it was invalidated. So
    /// the capture owns the graph until it ends.
    ///
    /// # Errors
    /// The graph is dropped. [`try_begin_capture_into`](Self::try_begin_capture_into) returns it.
    ///
    /// - [`Invalid::OtherGraphNode`] and [`Invalid::NoSuchNode`] for the dependencies;
    ///   [`Invalid::RepeatedDependency`].
    /// - [`Invalid::OtherContext`](crate::Invalid::OtherContext) if the stream does not belong to the
    ///   context of the graph.
    /// - [`Invalid::ForeignGraph`] if other code owns the graph.
    /// - [`Error::Missing`] before CUDA 12.3.
    /// - The errors of [`begin_capture`](Self::begin_capture).
    ///
    /// Since CUDA 12.3. Raw:
    /// [`cuStreamBeginCaptureToGraph`](fn@cuda_sys::cuStreamBeginCaptureToGraph).
    #[doc(alias = "cuStreamBeginCaptureToGraph")]
    pub fn begin_capture_into(
        &self,
        graph: Graph,
        dependencies: &[NodeId],
        mode: CaptureMode,
    ) -> Result<Capture> {
        Ok(self.try_begin_capture_into(graph, dependencies, mode)?)
    }

    /// Does the same as [`begin_capture_into`](Self::begin_capture_into), but returns the unchanged graph
    /// with the error, except if a capture was begun and failed immediately.
    ///
    /// # Errors
    /// See [`begin_capture_into`](Self::begin_capture_into).
    pub fn try_begin_capture_into(
        &self,
        graph: Graph,
        dependencies: &[NodeId],
        mode: CaptureMode,
    ) -> Result<Capture, Rejected<Option<Graph>>> {
        match graph.is_owned() {
            true => self.begin_capture_embedded(graph, dependencies, mode),
            false => Err(Rejected::new(Invalid::ForeignGraph, Some(graph))),
        }
    }

    /// [`try_begin_capture_into`](Self::try_begin_capture_into) for a graph that may also be embedded in another
    /// one, such as the body of a conditional node: a [`Graph`] that borrows its handle.
    ///
    /// If the capture fails, the driver destroys the embedded graph, and its root must not be used any
    /// more.
    ///
    /// # Errors
    /// See [`begin_capture_into`](Self::begin_capture_into).
    pub(crate) fn begin_capture_embedded(
        &self,
        mut graph: Graph,
        dependencies: &[NodeId],
        mode: CaptureMode,
    ) -> Result<Capture, Rejected<Option<Graph>>> {
        let checked = same_context("the stream", self.context(), graph.context())
            .and_then(|()| graph.before_capture(dependencies));
        let (before, nodes) = match checked {
            Ok(checked) => checked,
            Err(error) => return Err(Rejected::new(error, Some(graph))),
        };
        let raw = graph.raw();
        let destination = Destination {
            graph,
            before,
            on_failure: OnFailure::Destroyed,
            changes: None,
        };
        self.begin(Some(destination), || {
            let (nodes, count) = (nodes.as_ptr(), nodes.len());
            let edges = std::ptr::null();
            // SAFETY: the stream is alive. The graph is alive, and the capture owns it until it ends.
            // `nodes` has `count` nodes of the graph, and no edge has data.
            unsafe {
                answer!(cuStreamBeginCaptureToGraph(
                    self.raw(),
                    raw,
                    nodes,
                    edges,
                    count,
                    mode.raw()
                ))
            }
        })
    }
}

impl Capture {
    /// Ends the capture, and returns the graph with the nodes at the end of the captured work. Calls
    /// `cuStreamEndCapture`.
    ///
    /// Work that comes after these nodes comes after all captured work, and after the dependencies of
    /// [`begin_capture_into`](Stream::begin_capture_into). If nothing was captured, these are the
    /// dependencies.
    ///
    /// # Errors
    /// See [`end`](Self::end).
    ///
    /// Since CUDA 10.0. Raw: [`cuStreamEndCapture`](fn@cuda_sys::cuStreamEndCapture).
    #[doc(alias = "cuStreamEndCapture")]
    pub fn end_with_nodes(mut self) -> Result<(Graph, Vec<NodeId>)> {
        let before = self.destination.as_mut();
        let before = before.map(|its| std::mem::take(&mut its.before));
        let mut graph = self.end()?;
        let last = graph.end_of_capture(&before.unwrap_or_default())?;
        Ok((graph, last))
    }
}
