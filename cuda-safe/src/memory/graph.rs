//! Memory of graphs: buffers that a graph owns, and the nodes that copy and fill them.

mod access;
mod arguments;
mod buffer;
mod copy;
mod fill;
mod pinned;

pub use access::GraphAccess;
pub use buffer::{GraphBuffer, GraphSlice, GraphSliceMut};
pub use copy::{CopySource, CopyTarget};
pub use pinned::GraphPinned;
