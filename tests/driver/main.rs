//! Tests of the current driver: a GPU's, or the software driver if there is none. The same behavior
//! is expected of both. The exceptions, which use `common::is_software`, and their reasons:
//!
//! - `stress`: two contexts of one device are used with the software driver only, because a real
//!   driver crashes. At the end the software driver is also checked for misuses and leaks, which a
//!   real one does not report.
//! - `event`: the software driver has no clock and no interprocess events.
//! - `device`: the software driver does not know every attribute.
//! - `kernel_attributes`: it compiles nothing, so it knows no register counts.
//! - `done`, `stress`: it makes progress only when it is called.
//! - `recorded`: compared only if that device and driver version was recorded.
//!
//! Tests in a module `provoked` make the driver report errors on purpose. Runs under a memory
//! checker exclude them, because it would report those errors.

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod arrays;
mod attributes;
mod batches;
mod boxes;
mod capture;
mod capture_modes;
mod checkpoint;
mod context;
mod context_bind;
mod context_needed;
mod context_stack;
mod coredump;
mod default_stream;
mod deprecated;
mod device;
mod dlpack;
mod done;
mod drops;
mod event;
mod exports;
mod fatal;
mod globals;
mod graph_alloc;
mod graph_build;
mod graph_capture;
mod graph_capture_body;
mod graph_conditional;
mod graph_memory;
mod graph_nodes;
mod graph_recorder;
mod graph_update;
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
mod launch_builder;
mod launch_limits;
mod launch_packed;
mod launch_with;
mod library_error;
mod linker;
mod logs;
mod managed;
mod managed_pools;
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
mod ranges;
mod raw;
mod raw_copies;
mod raw_waits;
mod recorded;
mod scope;
mod settings;
mod shared;
mod slices;
mod sparse_arrays;
mod stream;
mod stress;
mod tensor_maps;
mod textures;
mod timeline;
mod views;
mod virtual_memory;
