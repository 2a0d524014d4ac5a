//! Executable graphs.

use super::{PyGraph, positions};
use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use crate::lifetime::exclusive::{Absent, Exclusive, wait_for};
use crate::objects::{PyContext, PyStream};
use crate::primary::default_stream;
use crate::stream_handle::StreamHandle;
use cuda_safe::graph::{NodeId, UpdateError};
use cuda_safe::{Context, Error, ExecutableGraph, Graph, Invalid, Stream};
use pyo3::prelude::*;
use std::sync::Arc;

const WHAT: &str = "executable graph";

/// A graph that streams can launch (`Graph.instantiate`).
///
/// Several threads can launch it at the same time. Its launches run one after another, in the order
/// of the calls, even on different streams. When this object is released, everything that it keeps
/// alive is released after its launches are complete, in a later call of this package.
#[pyclass(frozen, name = "ExecutableGraph", module = "cuda_safe", weakref)]
pub(crate) struct PyExecutableGraph {
    /// Each launch has a clone, so several threads can launch it.
    executable: Exclusive<Arc<ExecutableGraph>>,
    context: Context,
}

impl PyExecutableGraph {
    pub(super) fn of(executable: ExecutableGraph) -> Self {
        Self {
            context: executable.context().clone(),
            executable: Exclusive::new(WHAT, Arc::new(executable)),
        }
    }

    /// Returns the stream for a launch.
    fn stream(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<Stream> {
        let near = self.context.device().ordinal();
        match PyStream::lane_of_object(py, stream, None, Some(near))? {
            StreamHandle::Stream(stream) => Ok(stream),
            // This stream is in order with the legacy default stream.
            StreamHandle::Legacy(context) => default_stream(py, context.device().ordinal()),
            StreamHandle::PerThread(_) | StreamHandle::Handle(..) => Err(Failure::invalid(
                "a graph cannot be launched on the per-thread default stream: pass another stream",
            )),
        }
    }

    /// Calls `call` with the executable graph and the stream.
    fn on_stream(
        &self,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        call: impl FnOnce(&ExecutableGraph, &Stream) -> cuda_safe::Result<()> + Send,
    ) -> Result<()> {
        let stream = self.stream(py, stream)?;
        detached(py, move || {
            let executable = self.executable.get()?;
            call(&executable, &stream).map_err(explain_launch)
        })
    }
}

/// Returns the failure of a launch in the words of this package.
fn explain_launch(error: Error) -> Failure {
    let Error::Invalid(invalid) = &error else {
        return error.into();
    };
    match **invalid {
        Invalid::StreamIsCaptured => Failure::invalid(
            "the stream is being captured: a graph cannot be launched or uploaded on it until the \
             capture ends",
        ),
        Invalid::BorrowedStream => Failure::invalid(
            "nothing keeps the stream alive until the launch is complete: pass an owner to \
             Stream.from_handle",
        ),
        _ => error.into(),
    }
}

/// Returns the failure of an update, with the nodes that differ.
fn explain_update(graph: &mut Graph, update: UpdateError) -> Failure {
    let Some(problem) = update.problem else {
        return update.error.into();
    };
    let positions = graph.nodes().map(|nodes| positions(&nodes));
    let positions = positions.unwrap_or_default();
    let describe = |node: NodeId| {
        let position = positions.get(&node)?;
        let node_type = graph.node_type(node).ok()?;
        Some(format!("node {position}, {node_type}"))
    };
    let place = match (update.from.and_then(describe), update.node.and_then(describe)) {
        (Some(from), Some(to)) => format!(" (the edge from {from} to {to})"),
        (None, Some(node)) | (Some(node), None) => format!(" ({node})"),
        (None, None) => String::new(),
    };
    Failure::Explained(
        update.error,
        format!("the executable graph cannot be updated: {problem}{place}"),
    )
}

/// Updates an executable graph. On an error it is as before.
fn update(executable: &mut ExecutableGraph, graph: &mut Graph) -> Result<()> {
    let mut updated = executable.try_update(graph);
    if matches!(&updated, Err(why) if why.problem.is_some() && why.node.is_none()) {
        // The nodes of a captured graph are known only after they are listed.
        graph.nodes()?;
        updated = executable.try_update(graph);
    }
    updated.map_err(|why| explain_update(graph, why))?;
    executable.release_replaced();
    Ok(())
}

#[pymethods]
impl PyExecutableGraph {
    /// Enqueues all work of the graph as one unit on a stream of this package or of another library.
    /// The legacy default stream means `device.default_stream`, which is in order with it.
    ///
    /// The launch is ordered with other work on `stream` only. Everything that the captured work uses
    /// and that the graph does not keep alive must be alive until the launch is complete.
    fn launch(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        self.on_stream(py, stream, ExecutableGraph::launch)
    }

    /// Uploads the graph to the device in stream order, which the first launch does otherwise.
    fn upload(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        self.on_stream(py, stream, ExecutableGraph::upload)
    }

    /// Changes all nodes to those of another graph with the same nodes and edges. Later launches use
    /// the new nodes, and keep alive what `graph` keeps alive. If the graphs differ too much, a
    /// `DriverError` names the reason and the node, and nothing changes.
    fn update(&self, py: Python<'_>, graph: &PyGraph) -> Result<()> {
        detached(py, || {
            graph.graph.with(|graph| {
                self.executable.with(|executable| {
                    // Launches that are being enqueued by other threads have clones.
                    wait_for(WHAT, || {
                        let executable = Arc::get_mut(executable);
                        Ok(executable.map(|executable| update(executable, graph)))
                    })?
                })
            })
        })
    }

    /// The context of the graph.
    #[getter]
    fn context(&self) -> PyContext {
        PyContext(self.context.clone())
    }

    /// Releases the executable graph. Its launches continue, and everything that it keeps alive is
    /// released after they are complete.
    fn close(&self, py: Python<'_>) {
        self.executable.end(py, Absent::Closed);
    }

    /// Whether the executable graph was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.executable.why_absent().is_some()
    }

    fn __repr__(&self) -> &'static str {
        match self.closed() {
            true => "<ExecutableGraph, closed>",
            false => "<ExecutableGraph>",
        }
    }
}
