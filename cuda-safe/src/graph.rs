//! CUDA graphs: work that is described once and launched many times.
//!
//! A [`Graph`] consists of nodes (kernels, copies, fills, host functions and others) and of edges that order
//! them. [`Graph::instantiate`] creates an [`ExecutableGraph`], and
//! [`ExecutableGraph::launch`] enqueues all of its work on a stream with one call. The call takes about as
//! long as the launch of one kernel, whatever the number of nodes.
//!
//! # Creating a graph
//! | Function | Nodes come from | Memory | Launch |
//! |---|---|---|---|
//! | [`Graph::new`] and `add_*` | calls of this crate, one for each node | owned by the graph | safe |
//! | [`Stream::capture`](crate::Stream::capture) | the work that a function enqueues on a stream, also that of other libraries | borrowed | [`unsafe`](ExecutableGraph::launch_unchecked) |
//!
//! # Ownership
//! The driver keeps nothing alive that a graph uses, and crashes if a kernel, an event or a context is gone
//! when the graph is instantiated or launched. Here, each node owns what it uses, and an executable graph
//! keeps all of it alive until its launches are complete. Launching a graph that was built with `add_*` is
//! therefore a safe call. The contract of each kernel is promised once, when its node is added.
//!
//! # Memory
//! A buffer is [moved](Graph::own) into one graph. The nodes of that graph declare with `&` and `&mut`
//! whether they read or write it, and [`Graph::instantiate`] refuses two nodes that conflict without an
//! order. [`ExecutableGraph::access`] uses the buffer between launches, and
//! [`GraphBuffer::into_buffer`] returns it at the end. A [`SharedBuffer`](crate::SharedBuffer) is only read,
//! by any number of graphs.
//!
//! One executable graph of a graph with memory exists at a time, because the driver runs the launches of
//! one executable graph in order, and those of two at the same time.
//!
//! # Changing a graph
//! [`ExecutableGraph::nodes`] changes single nodes: arguments, configurations, addresses, functions and
//! events. [`ExecutableGraph::update`] changes all nodes to those of another graph of the same shape. Both
//! take effect for later launches, also while earlier ones run.
//!
//! # Green contexts
//! Each kernel node has its own context ([`NodeContext`]). The stream of a launch does not confine kernels to
//! a partition.

pub use crate::driver::graph::{
    CaptureDependency, ChildGraph, ConditionalHandle, DeviceGraph, Edge, EdgeKind, ExecutableGraph,
    ExecutableNodes, Graph, GraphRecorder, InstantiateOptions, Node, NodeArgument, NodeArguments,
    NodeContext, NodeId, NodeType, RetainedObjects, SemaphoreSignal, SemaphoreWait, UpdateError,
    UpdateProblem, kind, node_attribute,
    node_attribute::{DeviceNode, NodeAttribute},
};
pub use crate::driver::stream::{Recapture, RecapturedNode};
pub use crate::memory::{
    AllocOptions, AllocParameters, CopySource, CopyTarget, GraphAccess, GraphAllocation,
    GraphBuffer, GraphMemoryUsage, GraphPinned, GraphReadAccess, GraphSlice, GraphSliceMut,
};
