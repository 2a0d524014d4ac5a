//! Captures into existing graphs, and into the bodies of conditional nodes.

use super::{Around, Capture, CaptureMode, Destination, OnFailure};
use crate::call::{Error, Invalid, Rejected, Result, answer, refuse_if};
use crate::graph::{BodyPlace, Graph, Node, NodeId, kind};
use crate::stream::{Stream, same_context};

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
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph};
    /// use cuda_safe::capture::CaptureMode;
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
    /// `unsafe`, unless a [`GraphRecorder`](crate::graph::GraphRecorder) records the work.
    ///
    /// The driver destroys the graph if the capture fails, for example because it was invalidated. So
    /// the capture owns the graph until it ends.
    ///
    /// # Errors
    /// The graph is dropped. [`try_begin_capture_into`](Self::try_begin_capture_into) returns it.
    ///
    /// - [`Invalid::OtherGraphNode`] and [`Invalid::NoSuchNode`] for the dependencies;
    ///   [`Invalid::RepeatedDependency`].
    /// - [`Invalid::OtherContext`] if the stream does not belong to the
    ///   context of the graph.
    /// - [`Invalid::ForeignGraph`] if other code owns the graph.
    /// - [`Error::Missing`] before CUDA 12.3.
    /// - The errors of [`begin_capture`](Self::begin_capture).
    ///
    /// Since CUDA 12.3. Raw:
    /// [`cuStreamBeginCaptureToGraph`](fn@cuda_sys::cuStreamBeginCaptureToGraph).
    #[doc(alias = "cuStreamBeginCaptureToGraph")]
    #[inline]
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
    #[inline]
    pub fn try_begin_capture_into(
        &self,
        graph: Graph,
        dependencies: &[NodeId],
        mode: CaptureMode,
    ) -> Result<Capture, Rejected<Option<Graph>>> {
        match graph.is_owned() {
            true => self.begin_into(graph, None, dependencies, mode),
            false => Err(Rejected::new(Invalid::ForeignGraph, Some(graph))),
        }
    }

    /// Captures the work that `record` enqueues in the stream, and adds it to the body `index` of a
    /// conditional node. Calls [`begin_capture_into_body`](Self::begin_capture_into_body) and
    /// [`end_with_nodes`](Capture::end_with_nodes).
    ///
    /// Returns the graph, and the nodes of the body at the end of the capture.
    ///
    /// On any error the graph is dropped, also if `record` fails or panics.
    /// [`try_begin_capture_into_body`](Self::try_begin_capture_into_body) returns it if no capture was
    /// begun.
    ///
    /// # Errors
    /// The error of `record`; the errors of
    /// [`begin_capture_into_body`](Self::begin_capture_into_body) and [`end`](Capture::end).
    ///
    /// Since CUDA 12.3.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph};
    /// use cuda_safe::capture::CaptureMode;
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    /// let mut graph = Graph::new(&context)?;
    /// let handle = graph.conditional_handle(&context, Some(1))?;
    /// let node = graph.add_if(&[], handle, |_| Ok(()))?;
    /// let mode = CaptureMode::default();
    /// let (graph, _) = stream.capture_into_body(graph, node, 0, &[], mode, |_| buffer.fill(7))?;
    /// let executable = graph.instantiate()?;
    /// // SAFETY: the buffer stays alive until the work is complete, and is bound to this stream.
    /// unsafe { executable.launch_unchecked(&stream) }?;
    /// assert_eq!(buffer.to_vec()?, [7; 1000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn capture_into_body<E: From<Error>>(
        &self,
        graph: Graph,
        node: Node<kind::Conditional>,
        index: u32,
        dependencies: &[NodeId],
        mode: CaptureMode,
        record: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(Graph, Vec<NodeId>), E> {
        let capture = self.begin_capture_into_body(graph, node, index, dependencies, mode)?;
        record(self)?;
        Ok(capture.end_with_nodes()?)
    }

    /// Begins a capture that adds its work to the body `index` of a conditional node, after the nodes
    /// `dependencies` of that body. Calls `cuStreamBeginCaptureToGraph`.
    ///
    /// `graph` contains the node, and [`end`](Capture::end) returns it. The node may be in a body itself.
    /// As after [`begin_capture_into`](Self::begin_capture_into), the graph uses memory that it does not
    /// own, and launching it is `unsafe`. [`add_if`](Graph::add_if) lists the nodes that a body can
    /// contain. If the captured work has others, such as host functions or kernels of another context,
    /// [`instantiate`](Graph::instantiate) refuses the graph.
    ///
    /// The driver destroys the body if the capture fails. The whole graph is then leaked: its handle is
    /// never destroyed, and the objects that its nodes use are released.
    ///
    /// # Errors
    /// The graph is dropped. [`try_begin_capture_into_body`](Self::try_begin_capture_into_body) returns
    /// it.
    ///
    /// - [`Invalid::OtherGraphNode`] and [`Invalid::NoSuchNode`] for the node and the dependencies;
    ///   [`Invalid::NoSuchBody`].
    /// - The other errors of [`begin_capture_into`](Self::begin_capture_into).
    ///
    /// Since CUDA 12.3. Raw:
    /// [`cuStreamBeginCaptureToGraph`](fn@cuda_sys::cuStreamBeginCaptureToGraph).
    #[doc(alias = "cuStreamBeginCaptureToGraph")]
    #[inline]
    pub fn begin_capture_into_body(
        &self,
        graph: Graph,
        node: Node<kind::Conditional>,
        index: u32,
        dependencies: &[NodeId],
        mode: CaptureMode,
    ) -> Result<Capture> {
        Ok(self.try_begin_capture_into_body(graph, node, index, dependencies, mode)?)
    }

    /// Does the same as [`begin_capture_into_body`](Self::begin_capture_into_body), but returns the
    /// unchanged graph with the error, except if a capture was begun and failed immediately.
    ///
    /// # Errors
    /// See [`begin_capture_into_body`](Self::begin_capture_into_body).
    #[inline]
    pub fn try_begin_capture_into_body(
        &self,
        graph: Graph,
        node: Node<kind::Conditional>,
        index: u32,
        dependencies: &[NodeId],
        mode: CaptureMode,
    ) -> Result<Capture, Rejected<Option<Graph>>> {
        refuse_if!(!graph.is_owned(), Rejected::new(Invalid::ForeignGraph, Some(graph)));
        match graph.open_body(node, index) {
            Ok((place, body)) => {
                self.begin_into(body, Some(Around { graph, place }), dependencies, mode)
            }
            Err(error) => Err(Rejected::new(error, Some(graph))),
        }
    }

    /// Begins a capture into a graph, or into a body of the graph `around` it.
    ///
    /// # Errors
    /// See [`begin_capture_into`](Self::begin_capture_into).
    #[inline]
    fn begin_into(
        &self,
        mut graph: Graph,
        around: Option<Around>,
        dependencies: &[NodeId],
        mode: CaptureMode,
    ) -> Result<Capture, Rejected<Option<Graph>>> {
        let checked = same_context("the stream", self.context(), graph.context())
            .and_then(|()| graph.before_capture(dependencies));
        let (before, nodes) = match checked {
            Ok(checked) => checked,
            Err(error) => {
                let graph = match around {
                    Some(around) => around.close(&graph),
                    None => graph,
                };
                return Err(Rejected::new(error, Some(graph)));
            }
        };
        let raw = graph.raw();
        let destination =
            Destination { graph, around, before, on_failure: OnFailure::Destroyed, changes: None };
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
    /// dependencies. The nodes belong to the body after
    /// [`begin_capture_into_body`](Stream::begin_capture_into_body).
    ///
    /// # Errors
    /// See [`end`](Self::end).
    ///
    /// Since CUDA 10.0. Raw: [`cuStreamEndCapture`](fn@cuda_sys::cuStreamEndCapture).
    #[doc(alias = "cuStreamEndCapture")]
    #[inline]
    pub fn end_with_nodes(mut self) -> Result<(Graph, Vec<NodeId>)> {
        let destination = self.destination.as_mut();
        let (before, place) = destination.map_or_else(Default::default, |its| {
            let place = its.around.as_ref().map(|around| around.place);
            (std::mem::take(&mut its.before), place)
        });
        let mut graph = self.end()?;
        let last = match place {
            Some(BodyPlace { node, index, .. }) => {
                graph.edit_body(node, index, |body| body.end_of_capture(&before))
            }
            None => graph.end_of_capture(&before),
        }?;
        Ok((graph, last))
    }
}
