//! Behaviour of the driver at hand: a GPU's, or where there is none the software driver, of which the
//! same is asked. The exceptions, by `common::is_software`, and why:
//!
//! - `stress`: two contexts of one device on the software driver only, as a real one crashes; and at
//!   its end the software driver is asked for mistakes and leaks, which a real one does not tell.
//! - `event`: the software driver has no time, and no events for other processes.
//! - `device`: it does not know every attribute.
//! - `kernel_attributes`: it compiles nothing, and so knows no registers.
//! - `done`, `stress`: it works when somebody asks.
//! - `recorded`: compared only where that very device and driver was recorded.
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
mod context_needed;
mod context_stack;
mod default_stream;
mod deprecated;
mod device;
mod dlpack;
mod done;
mod drops;
mod event;
mod fatal;
mod globals;
mod green;
mod green_current;
mod green_graph;
mod green_rules;
mod handles;
mod host_memory;
mod in_host_function;
mod interop;
mod kernel_attributes;
mod kernels;
mod launch;
mod launch_with;
mod linker;
mod managed;
mod manager;
mod manager_current;
mod manager_defaults;
mod manager_host;
mod manager_reset;
mod managers;
mod managers_kernels;
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
mod raw;
mod recorded;
mod scope;
mod settings;
mod shared;
mod slices;
mod stream;
mod stress;
mod timeline;
mod views;
