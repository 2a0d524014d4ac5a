//! The nodes of graphs, by type, and their handles, arguments and attributes.

pub(crate) mod add;
pub(crate) mod allocation;
pub(crate) mod arguments;
pub(crate) mod captured;
pub(crate) mod child;
pub(crate) mod conditional;
pub(crate) mod device_launch;
pub(crate) mod event;
pub(crate) mod host;
pub(crate) mod kernel;
pub(crate) mod memory_operations;
pub(crate) mod node;
pub mod node_attribute;
pub(crate) mod query;
pub(crate) mod semaphores;
pub(crate) mod specification;
pub(crate) mod view;
