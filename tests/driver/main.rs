//! Tests of the current driver: a GPU's, or the software driver if there is none. The same behavior
//! is expected of both. The exceptions, which use `common::is_software`, and their reasons:
//!
//! - `stress`: two contexts of one device are used with the software driver only, because a real
//!   driver crashes. At the end the software driver is also checked for misuses and leaks, which a
//!   real one does not report.
//! - `event`: the software driver has no clock and no interprocess events.
//! - `device`: the software driver does not know every attribute.
//! - `module::kernel_attributes`: it compiles nothing, so it knows no register counts.
//! - `stream::future`, `stress`: it makes progress only when it is called.
//! - `call::recorded`: compared only if that device and driver version was recorded.
//!
//! Tests in a module `provoked` make the driver report errors on purpose. Runs under a memory
//! checker exclude them, because it would report those errors.

#![cfg_attr(miri, feature(custom_test_frameworks, test), test_runner(common::miri::run))]

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

mod array;
mod call;
mod capture;
mod context;
mod device;
mod event;
mod external;
mod graph;
mod green;
mod interop;
mod launch;
mod manager;
mod memory;
mod module;
mod process;
mod release;
mod stream;
mod stress;
mod virtual_memory;
