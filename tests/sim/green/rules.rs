//! Rules of green contexts that depend on the driver version or the device. The behavior of the
//! software driver follows the documentation and is unverified, except for CUDA 13.0.

mod contexts;
mod splits;

use crate::prelude::*;
use cuda_safe::green::{ExactSplit, Split};

const PROFILE: &str = "GREEN_RULES_PROFILE";

/// Runs `body` on each of the profiles, each in a child process, and checks that nothing is alive
/// at the end and that there was no misuse.
#[track_caller]
fn on_each(profiles: &[&str], body: impl Fn(&str, Context)) {
    let this = std::env::var(PROFILE);
    for profile in profiles {
        common::child::in_child(&[(PROFILE, profile)], || {
            if this.as_deref() == Ok(profile) {
                start(profile.parse().expect("a profile"));
                body(profile, context());
                crate::check();
            }
        });
    }
}

fn offers(major: u16, minor: u16) -> bool {
    common::offers(major, minor)
}

fn driver() -> CudaVersion {
    cuda_safe::version().expect("a driver")
}

fn resource(context: &Context) -> SmResource {
    SmResource::of_device(&context.device()).expect("a resource")
}

fn smallest(context: &Context) -> Split {
    let split = resource(context).split_by_count(SplitByCount::default());
    split.expect("a split")
}

fn green(context: &Context) -> GreenContext {
    let group = smallest(context).groups.remove(0);
    GreenContext::new([group]).expect("a green context")
}

fn exact(groups: &[GroupRequest]) -> ExactSplit {
    ExactSplit { groups: groups.to_vec(), ..ExactSplit::default() }
}

#[track_caller]
fn code<T: Debug>(result: Result<T, impl Into<Error>>) -> CUresult {
    let error = result.expect_err("refused").into();
    error.code().unwrap_or_else(|| panic!("{error}"))
}

/// Returns the driver calls of `body`, without queries of the driver itself and of devices.
fn calls(body: impl FnOnce()) -> Vec<&'static str> {
    cuda_sim::clear_calls();
    body();
    let log = cuda_sim::calls().into_iter().map(|call| call.function);
    let asks = ["cuDriverGetVersion", "cuDeviceGetAttribute"];
    log.filter(|function| !asks.contains(function)).collect()
}
