//! Graphs: built, changed, with memory, and with conditional nodes.

pub(crate) mod conditional;
pub(crate) mod graphs;
pub(crate) mod memory;
pub(crate) mod nodes;
