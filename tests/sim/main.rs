//! The software driver itself, and what only it can show of the safe layer: call logs, faults,
//! other devices and drivers. Each test has a process, and so a driver, of its own.

#[path = "../common/mod.rs"]
mod common;

mod arguments;
mod arrays;
mod blocking;
mod borrowed;
mod callbacks;
mod calls;
mod capture_errors;
mod contexts;
mod devices;
mod disjoint;
mod explore;
mod fault;
mod forks;
mod graphs;
mod green;
mod green_calls;
mod green_pool;
mod green_rules;
mod guards;
mod holes;
mod hooks;
mod host_functions;
mod kernels;
mod kinds;
mod launch;
mod manager;
mod manager_caching;
mod manager_host;
mod manager_inside;
mod manager_locks;
mod manager_orders;
mod manager_reset;
mod manager_shared;
mod memory;
mod modules;
mod planted;
mod release_errors;
mod releases;
mod stale_graphs;
mod streams;
mod waits;

use cuda_safe::Context;
use cuda_sim::Profile;

/// Runs `body` in a process with the software driver, on the primary context of its first device;
/// at the end nothing is alive, nothing was done wrong, and the thread's stack is empty.
#[track_caller]
fn on(profile: Profile, body: impl FnOnce(Context)) {
    common::child::in_child(&[], || {
        start(profile);
        body(context());
        check();
    });
}

fn start(profile: Profile) {
    cuda_sim::install(profile).expect("nothing was called before");
    common::register_kernels();
}

fn context() -> Context {
    let device = cuda_safe::Device::get(0).expect("a device");
    Context::primary(&device).expect("a primary context")
}

#[track_caller]
fn check() {
    assert_eq!(cuda_sim::mistakes(), [""; 0]);
    assert_eq!(cuda_sim::alive(), cuda_sim::Alive::default());
    assert_eq!(cuda_sim::stack_depth(), 0);
    assert_eq!(cuda_sim::stack_depths(), []);
}
