//! Tests that need no driver: the crates on a machine without a driver, or with an unsuitable one,
//! and everything that is data. Replacements of the driver are built from `fakes/` or installed
//! from Rust.

#[path = "../common/mod.rs"]
mod common;

mod check;
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
mod library;
mod linker;
mod load_from;
mod lookup;
mod no_driver;
mod no_gpu;
mod not_a_driver;
mod old_driver;
mod out;
mod percentiles;
mod result;
mod rows;
mod software;
mod stub;
mod threads;
mod trace;
mod version;
