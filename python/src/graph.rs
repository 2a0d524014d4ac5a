//! Graphs, and the captures from which they come.

mod capture;
mod executable;

pub(crate) use capture::PyCapture;
pub(crate) use executable::PyExecutableGraph;

use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use crate::lifetime::exclusive::{Absent, Exclusive};
use crate::lifetime::hold::{Closable, Owner};
use cuda_safe::Graph;
use cuda_safe::graph::{InstantiateOptions, NodeId};
use cuda_safe::sys::CUgraphDebugDot_flags;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The Python objects that a graph and its executable graphs keep alive. The garbage collector does
/// not see these references: it would clear objects that running launches use.
#[derive(Default)]
struct Objects(Mutex<Vec<Owner>>);

impl Objects {
    fn lock(&self) -> MutexGuard<'_, Vec<Owner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The work of a capture (`Stream.capture`). `instantiate` creates an executable graph, which streams
/// launch.
///
/// A graph and its executable graphs keep alive the arrays of this package that its own calls used in
/// the capture, and the objects passed to `keep`. Everything else that the captured work uses must be
/// kept alive by the caller until all launches are complete and the executable graphs are released.
///
/// Calls on one graph run one after another.
#[pyclass(frozen, name = "Graph", module = "cuda_safe", weakref)]
pub(crate) struct PyGraph {
    graph: Exclusive<Graph>,
    objects: Closable<Arc<Objects>>,
}

impl PyGraph {
    fn awaited() -> Self {
        Self { graph: Exclusive::awaited("graph"), objects: Closable::new("graph", Arc::default()) }
    }

    /// Provides the graph at the end of its capture. The caller does not hold the GIL.
    fn provide(&self, mut graph: Graph) {
        // If this object was closed, the graph is dropped.
        if let Ok(objects) = self.objects.get() {
            graph.retain(objects);
        }
        // SAFETY: the graph retains the arrays of this package. The caller of Python's `launch` has
        // promised that everything else that the captured work uses is alive, and that no other work
        // races with a launch.
        unsafe { graph.assume_owned() };
        self.graph.provide(graph);
    }

    /// Releases everything after a capture that has failed.
    fn fail(&self, py: Python<'_>) {
        self.graph.end(py, Absent::Failed);
        self.objects.close(py);
    }
}

/// Returns the positions of nodes in the list of all nodes.
fn positions(nodes: &[NodeId]) -> HashMap<NodeId, usize> {
    let numbered = nodes.iter().enumerate();
    numbered.map(|(position, node)| (*node, position)).collect()
}

#[pymethods]
impl PyGraph {
    /// Keeps objects alive as long as the graph and its executable graphs, and until the launches of
    /// these are complete. This includes executable graphs that exist already.
    ///
    /// The garbage collector does not see these references. If an object refers to the graph or to an
    /// executable graph of it, `close` must be called to release them.
    #[pyo3(signature = (*objects))]
    fn keep(&self, objects: &Bound<'_, PyTuple>) -> Result<()> {
        if self.graph.why_absent() == Some(Absent::Failed) {
            return Err(Failure::invalid("the capture of the graph has failed"));
        }
        let kept = self.objects.get()?;
        let objects = objects.iter().map(|object| Owner::new(object.unbind()));
        kept.lock().extend(objects);
        Ok(())
    }

    /// Creates an executable copy of the graph. With `auto_free_on_launch`, a launch first frees the
    /// allocations of the previous launch that were not freed. With `use_node_priority`, kernels run
    /// with the priorities of the captured streams instead of that of the stream of the launch.
    #[pyo3(signature = (*, auto_free_on_launch = false, use_node_priority = false))]
    fn instantiate(
        &self,
        py: Python<'_>,
        auto_free_on_launch: bool,
        use_node_priority: bool,
    ) -> Result<PyExecutableGraph> {
        let options = InstantiateOptions {
            auto_free_on_launch,
            use_node_priority,
            ..InstantiateOptions::default()
        };
        let executable = detached(py, || {
            self.graph.with(|graph| {
                // The nodes are listed, so that an error can name one.
                graph.nodes()?;
                Ok(graph.instantiate_with(&options)?)
            })
        })?;
        Ok(PyExecutableGraph::of(executable))
    }

    /// The types of the nodes, in the order in which they were captured: "kernel", "copy", "fill" and
    /// others.
    #[getter]
    fn nodes(&self, py: Python<'_>) -> Result<Vec<String>> {
        detached(py, || {
            self.graph.with(|graph| {
                let nodes = graph.nodes()?;
                let types = nodes.iter().map(|node| graph.node_type(*node));
                let types = types.map(|node_type| Ok(node_type?.to_string()));
                types.collect()
            })
        })
    }

    /// The edges, as pairs of indices into `nodes`: the second node runs after the first.
    #[getter]
    fn edges(&self, py: Python<'_>) -> Result<Vec<(usize, usize)>> {
        detached(py, || {
            self.graph.with(|graph| {
                let positions = positions(&graph.nodes()?);
                let edges = graph.edges()?;
                let edges = edges.iter().filter_map(|edge| {
                    Some((*positions.get(&edge.from)?, *positions.get(&edge.to)?))
                });
                Ok(edges.collect())
            })
        })
    }

    /// Writes a drawing of the graph to a file, in the language DOT of Graphviz. With `verbose` it
    /// includes the parameters of the nodes.
    #[pyo3(signature = (path, *, verbose = false))]
    fn dot(&self, py: Python<'_>, path: PathBuf, verbose: bool) -> Result<()> {
        let flags = match verbose {
            true => CUgraphDebugDot_flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE,
            false => CUgraphDebugDot_flags(0),
        };
        detached(py, || self.graph.with(|graph| Ok(graph.write_dot(&path, flags)?)))
    }

    /// Releases the graph. Its executable graphs are not affected.
    fn close(&self, py: Python<'_>) {
        self.graph.end(py, Absent::Closed);
        self.objects.close(py);
    }

    /// Whether the graph was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.graph.why_absent() == Some(Absent::Closed)
    }

    fn __repr__(&self) -> &'static str {
        match self.graph.why_absent() {
            None => "<Graph>",
            Some(Absent::Awaited) => "<Graph, being captured>",
            Some(Absent::Failed) => "<Graph, its capture has failed>",
            Some(Absent::Closed) => "<Graph, closed>",
        }
    }
}
