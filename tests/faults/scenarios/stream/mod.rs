//! Streams, their attributes and their memory operations.

pub(crate) mod settings;
pub(crate) mod streams;
