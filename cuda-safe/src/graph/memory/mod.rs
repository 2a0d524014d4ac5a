//! Memory of graphs: buffers that a graph owns, and the nodes that copy and fill them.

pub(crate) mod access;
pub(crate) mod alloc;
pub(crate) mod buffer;
pub(crate) mod copy;
mod fill;
pub(crate) mod pinned;
pub(crate) mod usage;

pub(crate) use buffer::{GraphBuffer, GraphSlice, GraphSliceMut};
pub(crate) use copy::{CopySource, CopyTarget};
pub(crate) use pinned::GraphPinned;
