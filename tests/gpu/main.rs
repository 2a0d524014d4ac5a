//! What needs real GPUs, more than one or as they are. What is not there is skipped, with its reason.

#[path = "../common/mod.rs"]
mod common;

mod dynamic;
mod graphs;
mod green;
mod ipc;
mod mapped;
mod two_devices;

use cuda_safe::{Context, Device};

/// The first two devices of a real driver; a skip where there are fewer.
fn two_devices() -> Option<[Device; 2]> {
    let first = common::real_gpu()?;
    if Device::count().expect("there is a driver") < 2 {
        common::skip("needs two GPUs; there is one");
        return None;
    }
    Some([first, Device::get(1).expect("there are two")])
}

#[test]
fn things_of_two_devices_mix_as_the_table_says() {
    let devices = need!(two_devices());
    let [first, second] = devices.map(|device| Context::primary(&device).expect("a context"));
    two_devices::table(&first, &second);
}

#[test]
fn a_green_context_is_of_one_device() {
    let [first, second] = need!(two_devices());
    need!(common::since(12, 5));
    let _alone = green::alone();
    two_devices::green(&first, &second);
}
