//! Graphs that are built node by node.

pub(crate) mod alloc;
pub(crate) mod build;
pub(crate) mod conditional;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod recorder;
pub(crate) mod update;
