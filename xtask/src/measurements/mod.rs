//! Measurements: instructions, and the cost of a build.

pub(crate) mod build_cost;
pub(crate) mod cost;
pub(crate) mod growth;
