//! Memory of graphs: buffers that a graph owns, and the nodes that copy and fill them.

pub(crate) mod access;
pub(crate) mod alloc;
mod arguments;
pub(crate) mod buffer;
pub(crate) mod copy;
mod fill;
pub(crate) mod pinned;
mod record;
pub(crate) mod usage;

pub use access::{GraphAccess, GraphReadAccess};
pub use alloc::{AllocOptions, AllocParameters, GraphAllocation};
pub use buffer::{GraphBuffer, GraphSlice, GraphSliceMut};
pub use copy::{CopySource, CopyTarget};
pub use pinned::GraphPinned;
pub use usage::GraphMemoryUsage;
