//! Graphs that are built node by node.

pub(crate) mod alloc;
pub(crate) mod build;
pub(crate) mod conditional;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod recorder;
pub(crate) mod update;

use crate::module::kernels::{VECTOR, kernel};
use cuda_safe::bytemuck::Pod;
use cuda_safe::graph::{GraphBuffer, Node, NodeId, kind};
use cuda_safe::{Context, DeviceBuffer, ExecutableGraph, Graph, LaunchConfig, Stream, TypedKernel};

type Scale = TypedKernel<(&'static mut [i32], i32, i32, u32)>;

const ONE: LaunchConfig = LaunchConfig::linear(1, 32);

fn scale(context: &Context) -> Scale {
    kernel(context, VECTOR, "scale")
}

/// Adds a kernel that multiplies the elements of a buffer by a factor.
#[track_caller]
fn add_scale(
    graph: &mut Graph,
    after: &[NodeId],
    kernel: &Scale,
    data: &mut GraphBuffer<i32>,
    factor: i32,
) -> Node<kind::Kernel> {
    let (context, n) = (graph.context().clone(), u32::try_from(data.len()).expect("few"));
    // SAFETY: the kernel accesses the first n elements of the buffer, which has n.
    let node = unsafe { graph.add_kernel(after, &context, kernel, ONE, (data, factor, 0, n)) };
    node.expect("a node")
}

/// Returns a buffer of the graph with these elements.
#[track_caller]
pub(crate) fn own<T: Pod>(graph: &mut Graph, stream: &Stream, elements: &[T]) -> GraphBuffer<T> {
    let buffer = DeviceBuffer::from_slice(stream, elements).expect("memory");
    graph.own(buffer).expect("the graph owns it")
}

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
