//! What needs real GPUs, more than one or as they are. What is not there is skipped, with its reason.

#[path = "../common/mod.rs"]
mod common;

mod graphs;
mod green;
mod ipc;
mod mapped;
mod two_devices;

use cuda_safe::{Context, Device};

#[test]
fn things_of_two_devices_mix_as_the_table_says() {
    need!(common::real_gpu());
    if Device::count().expect("there is a driver") < 2 {
        return common::skip("needs two GPUs; there is one");
    }
    let context = |ordinal| Device::get(ordinal).and_then(|device| Context::primary(&device));
    let (first, second) = (context(0), context(1));
    two_devices::table(&first.expect("a context"), &second.expect("a context"));
}
