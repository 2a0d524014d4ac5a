//! The bindings, which are generated from NVIDIA's headers.

pub(crate) mod bind;
pub(crate) mod header_check;
pub(crate) mod regen;
pub(crate) mod symbols;
