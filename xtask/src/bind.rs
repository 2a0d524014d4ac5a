//! From C headers to a description of what they declare.
//!
//! The root package's `build.rs` uses these two files as well, by path, so that a check against a
//! local cuda.h and the generation of the bindings cannot disagree about how headers are read.

pub(crate) mod api;
pub(crate) mod clang;
