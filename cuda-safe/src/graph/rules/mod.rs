//! What a graph checks and orders: edges, conflicting accesses, the owners of each node's objects, and the work that
//! launches must come after.

pub(crate) mod access;
pub(crate) mod earlier;
pub(crate) mod edges;
pub(crate) mod order;
pub(crate) mod owners;
pub(crate) mod partition;
