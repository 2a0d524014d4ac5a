//! Tests that need no driver: the crates on a machine without a driver, or with an unsuitable one,
//! and everything that is data. Replacements of the driver are built from `fakes/` or installed
//! from Rust.

#![cfg_attr(miri, feature(custom_test_frameworks, test), test_runner(common::miri::run))]

#[path = "../common/mod.rs"]
mod common;

mod bindings;
mod error;
mod examples;
mod fakes;
mod interop;
mod load;
mod machine;
mod software;
