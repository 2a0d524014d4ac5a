//! Memory of graphs: buffers that a graph owns, and the nodes that copy and fill them.

mod access;
mod alloc;
mod arguments;
mod buffer;
mod copy;
mod fill;
mod pinned;
mod record;
mod usage;

pub use access::{GraphAccess, GraphReadAccess};
pub use alloc::{AllocOptions, AllocParameters, GraphAllocation};
pub use buffer::{GraphBuffer, GraphSlice, GraphSliceMut};
pub use copy::{CopySource, CopyTarget};
pub use pinned::GraphPinned;
pub use usage::GraphMemoryUsage;
