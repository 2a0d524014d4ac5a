//! Copies: linear, in two and three dimensions, in batches, between devices, and with host memory.

pub(crate) mod batch;
pub(crate) mod decompress;
pub(crate) mod linear;
pub(crate) mod peer;
pub(crate) mod pending;
pub(crate) mod volume;
