//! Converts C headers to a description of their declarations.
//!
//! The root package's `build.rs` includes these two files by path, so that a check against an installed
//! cuda.h and the generator of the bindings parse headers in the same way.

pub(crate) mod api;
pub(crate) mod clang;
