//! Behaviour on a real GPU. Without one every test here is skipped, and says so.
//!
//! Tests in a module `provoked` make the driver report errors on purpose; runs under a memory
//! checker leave them out, as it would list those errors.

#[path = "../common/mod.rs"]
mod common;

mod attributes;
mod boxes;
mod capture;
mod capture_modes;
mod context;
mod default_stream;
mod device;
mod done;
mod drops;
mod event;
mod fatal;
mod globals;
mod green;
mod green_current;
mod handles;
mod host_memory;
mod interop;
mod kernel_attributes;
mod kernels;
mod launch;
mod launch_with;
mod linker;
mod managed;
mod memory;
mod memory_op;
mod module;
mod occupancy;
mod partition;
mod peer;
mod pointers;
mod pool;
mod pools;
mod probes;
mod proof;
mod recorded;
mod scope;
mod settings;
mod shared;
mod slices;
mod stream;
mod stress;
