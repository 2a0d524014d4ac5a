//! The software driver itself, and behavior of the safe layer that only it can show: call logs,
//! faults, and other devices and drivers. Each test runs in a child process with its own driver.

#[path = "../common/mod.rs"]
mod common;
#[path = "../programs/mod.rs"]
mod programs;

mod arguments;
mod array;
mod call;
mod capture;
mod context;
mod device;
mod graph;
mod green;
mod interop;
mod launch;
mod manager;
mod memory;
mod module;
mod process;
mod races;
mod regressions;
mod release;
mod software;
mod stream;
mod virtual_memory;

use cuda_safe::{Context, Stream};
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

/// Runs `body` like [`on`] on an H200, with a new stream.
#[track_caller]
fn on_stream(body: impl FnOnce(Context, Stream)) {
    on(Profile::h200(), |context| {
        let stream = context.stream().expect("a stream");
        body(context, stream);
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
