//! Captures: drops while capturing, and captures into graphs.

pub(crate) mod drops;
pub(crate) mod into_graphs;
