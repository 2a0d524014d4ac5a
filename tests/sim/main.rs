//! The software driver itself, and behavior of the safe layer that only it can show: call logs,
//! faults, and other devices and drivers. Each test runs in a child process with its own driver.

#[path = "../common/mod.rs"]
mod common;
#[path = "../programs/mod.rs"]
mod programs;

mod arguments;
mod arrays;
mod batches;
mod blocking;
mod borrowed;
mod bound;
mod callbacks;
mod calls;
mod capture_errors;
mod capture_graphs;
mod capture_joins;
mod capture_retained;
mod compressed_images;
mod contexts;
mod copy_batches;
mod cuda_arrays;
mod decompression;
mod devices;
mod disjoint;
mod driver_log;
mod endpoints;
mod explore;
mod fabric;
mod fault;
mod forks;
mod freed_data;
mod graph_alloc;
mod graph_calls;
mod graph_captures;
mod graph_changes;
mod graph_conditionals;
mod graph_copies;
mod graph_hazards;
mod graph_into_raw;
mod graph_kernels;
mod graph_late;
mod graph_memory;
mod graph_nodes;
mod graph_owners;
mod graph_queries;
mod graph_recaptures;
mod graph_rechecks;
mod graph_retained;
mod graph_updates;
mod graph_user_objects;
mod graphs;
mod green;
mod green_calls;
mod green_pool;
mod green_rules;
mod guards;
mod holes;
mod hooks;
mod host_functions;
mod images;
mod kernels;
mod kinds;
mod last_use;
mod launch;
#[cfg(target_os = "linux")]
mod lazy_memory;
mod logical_endpoints;
mod managed_pools;
mod manager;
mod manager_caching;
mod manager_expandable;
mod manager_host;
mod manager_inside;
mod manager_locks;
mod manager_orders;
mod manager_parts;
mod manager_pools;
mod manager_pressure;
mod manager_reset;
mod manager_shared;
mod manager_wrappers;
mod memory;
mod memory_holes;
mod modules;
mod multicast;
mod multicast_objects;
mod other_device;
mod planted;
mod pointers;
mod pool_access;
mod pool_frees;
mod processes;
mod races;
mod ranges;
mod raw_calls;
mod raw_threads;
mod recorded;
mod release_errors;
mod release_orders;
mod releases;
mod report;
mod residency;
mod stale_graphs;
mod streams;
mod tensor_maps;
mod textures;
mod virtual_memory;
mod virtual_memory_leaks;
mod virtual_memory_misuse;
mod virtual_memory_shared;
mod waits;

use cuda_safe::Context;
use cuda_sim::Profile;

/// Runs `body` in a child process with the software driver, on the primary context of its first
/// device. At the end nothing may be alive, there must be no misuse, and the stack of the thread
/// must be empty.
#[track_caller]
fn on(profile: Profile, body: impl FnOnce(Context)) {
    common::child::in_child(&[], || {
        start(profile);
        body(context());
        check();
    });
}

fn start(profile: Profile) {
    let profile = profile.with_environment();
    let profile = profile.unwrap_or_else(|why| panic!("{why}"));
    cuda_sim::install(profile).expect("nothing was called before");
    common::register_kernels();
    #[cfg(feature = "freed")]
    cuda_safe::set_freed_hook(cuda_sim::data_freed);
}

fn context() -> Context {
    let device = cuda_safe::Device::get(0).expect("a device");
    Context::primary(&device).expect("a primary context")
}

#[track_caller]
fn check() {
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    assert_eq!(cuda_sim::alive(), cuda_sim::Alive::default());
    assert_eq!(cuda_sim::stack_depth(), 0);
    assert_eq!(cuda_sim::stack_depths(), []);
}
