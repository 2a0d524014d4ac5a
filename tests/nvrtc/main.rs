//! Tests of `cuda-nvrtc` with NVIDIA's libraries, which compile without a GPU. The libraries are those of
//! `cargo xtask compilers`, otherwise those of this machine. Their code is loaded by the driver of the
//! other tests: a GPU's, or the software driver.

#[path = "../common/mod.rs"]
mod common;

mod cache;
mod compile;
mod cubins;
mod errors;
mod libraries;
mod link;
mod load;
mod others;
mod raw;
