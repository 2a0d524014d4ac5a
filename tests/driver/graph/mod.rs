//! Graphs that are built node by node.

pub(crate) mod alloc;
pub(crate) mod build;
pub(crate) mod conditional;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod recorder;
pub(crate) mod update;

use cuda_safe::bytemuck::Pod;
use cuda_safe::graph::GraphBuffer;
use cuda_safe::{ExecutableGraph, Graph, Stream};

/// Instantiates a graph and launches it into the stream.
#[track_caller]
pub(crate) fn launched(graph: &Graph, stream: &Stream) -> ExecutableGraph {
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(stream).expect("a launch");
    executable
}

/// Returns the elements of a buffer after the launches so far.
#[track_caller]
pub(crate) fn elements<T: Pod>(
    executable: &mut ExecutableGraph,
    buffer: &mut GraphBuffer<T>,
    stream: &Stream,
) -> Vec<T> {
    let access = executable.access(buffer, stream).expect("access");
    access.as_slice().to_vec().expect("a copy")
}
