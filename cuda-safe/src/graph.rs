//! Graphs: the types beside [`Graph`] and [`ExecutableGraph`].

pub use crate::driver::graph::{
    Edge, EdgeKind, ExecutableGraph, ExecutableNodes, Graph, InstantiateOptions, Node,
    NodeArgument, NodeArguments, NodeContext, NodeId, NodeType, RetainedObjects, UpdateError,
    UpdateProblem, kind,
};
pub use crate::memory::{
    CopySource, CopyTarget, GraphAccess, GraphBuffer, GraphPinned, GraphSlice, GraphSliceMut,
};
