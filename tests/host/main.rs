//! What needs no driver: how the crates meet a machine without one, or with one that is not what
//! it should be, and everything that is data. What takes a driver's place is built from `fakes/`,
//! or installed from Rust.

#[path = "../common/mod.rs"]
mod common;

mod constants;
mod dlpack;
mod error;
mod fakes;
mod fork;
mod function;
mod init;
mod install;
mod interop;
mod invalid;
mod late_log;
mod load_from;
mod lookup;
mod no_driver;
mod no_gpu;
mod not_a_driver;
mod old_driver;
mod percentiles;
mod result;
mod rows;
mod software;
mod stub;
mod threads;
mod version;
