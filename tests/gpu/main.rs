//! Tests that need real GPUs: more than one, or their real behavior. If they are missing, a test is
//! skipped with its reason.

#[path = "../common/mod.rs"]
mod common;
#[path = "../libraries/mod.rs"]
mod libraries;

mod checkpoint;
mod device_launch;
mod dynamic;
mod graphs;
mod green;
mod ipc;
mod library_calls;
mod mapped;
mod opengl;
mod two_devices;
mod virtual_memory;
mod vulkan;

use cuda_safe::{Context, Device};

/// Returns the first two devices of a real driver, or reports a skip.
fn two_devices() -> Option<[Device; 2]> {
    let first = common::real_gpu()?;
    if Device::count().expect("a driver") < 2 {
        common::skip("needs two GPUs; there is one");
        return None;
    }
    Some([first, Device::get(1).expect("there are two")])
}

#[test]
fn objects_of_two_devices_combine_as_documented() {
    let devices = or_skip!(two_devices());
    let [first, second] = devices.map(|device| Context::primary(&device).expect("a context"));
    two_devices::table(&first, &second);
}

#[test]
fn a_green_context_has_only_sms_of_its_device() {
    let [first, second] = or_skip!(two_devices());
    or_skip!(common::since(12, 5));
    let _alone = green::alone();
    two_devices::green(&first, &second);
}
