//! Multicast objects on the software driver, with two devices. Unverified (from documentation), as no
//! machine with several linked devices was measured.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use crate::virtual_memory::{create_on, set_access};

fn team_of_two() -> CUmulticastObjectProp {
    CUmulticastObjectProp { numDevices: 2, size: 2 * PAGE, handleTypes: 0, flags: 0 }
}

fn two_devices() -> Profile {
    Profile::h200().with_devices(2)
}

const IMAGE: &[u8] = b"\x7fimage of the kernel of multicast tests\0";

/// Loads `add_up(place)`, which stores the sum over the devices on each of them.
fn kernels() -> CUmodule {
    kernel::register_image(IMAGE, &[("add_up", &[8])]);
    kernel::register("add_up", |launch| {
        launch.update_multicast::<u32>(0, 2, |_, values| values.iter().sum())
    });
    out!(cuModuleLoadData(IMAGE.as_ptr().cast()))
}

#[test]
fn one_device_does_not_support_multicast() {
    let _bench = in_child!(without_misuse());
    let wanted = team_of_two();
    let (mut object, mut size) = (0, 0);
    let option = CUmulticastGranularity_flags(0);
    refused!(UNSUPPORTED, cuMulticastCreate(&raw mut object, &raw const wanted));
    refused!(UNSUPPORTED, cuMulticastGetGranularity(&raw mut size, &raw const wanted, option));
}

#[test]
fn a_kernel_reads_and_writes_the_memory_of_all_devices() {
    let bench = &in_child!(without_misuse_on(two_devices()));
    let module = kernels();
    let wanted = team_of_two();
    let object: u64 = out!(cuMulticastCreate(&raw const wanted));
    succeeds!(cuMulticastAddDevice(object, 0));
    succeeds!(cuMulticastAddDevice(object, 1));
    let start = reserve(4 * PAGE);
    let memory = [create_on(0), create_on(1)];
    for (device, handle) in memory.into_iter().enumerate() {
        let at = start + (device * PAGE) as u64;
        succeeds!(cuMemMap(at, PAGE, 0, handle, 0));
        set_access(at, PAGE, READ_WRITE);
        succeeds!(cuMemsetD32Async(at, 5 + device as u32, 2, bench.stream));
    }
    succeeds!(cuMulticastBindMem(object, 0, memory[0], 0, PAGE, 0));
    succeeds!(cuMulticastBindAddr(object, 0, start + PAGE as u64, PAGE, 0));
    let both = start + (2 * PAGE) as u64;
    succeeds!(cuMemMap(both, 2 * PAGE, 0, object, 0));
    set_access(both, 2 * PAGE, READ_WRITE);
    let function: CUfunction = out!(cuModuleGetFunction(module, c"add_up".as_ptr()));
    let mut arguments: [*mut c_void; 1] = [(&raw const both).cast_mut().cast()];
    let params = arguments.as_mut_ptr();
    let launched =
        code!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, bench.stream, params, null_mut()));
    assert!(launched.is_success());
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read::<3>(start), [11, 11, 0]);
    assert_eq!(read::<3>(start + PAGE as u64), [11, 11, 0]);
    // The object keeps what it has bound.
    succeeds!(cuMemRelease(memory[0]));
    succeeds!(cuMemRelease(memory[1]));
    succeeds!(cuMulticastUnbind(object, 1, 0, PAGE));
    refused!(INVALID, cuMulticastUnbind(object, 1, 0, PAGE));
    succeeds!(cuMemUnmap(start, 4 * PAGE));
    assert_eq!(cuda_sim::alive().physical_allocations, 2);
    succeeds!(cuMemRelease(object));
    succeeds!(cuMemAddressFree(start, 4 * PAGE));
    succeeds!(cuModuleUnload(module));
}

#[test]
fn devices_are_added_before_memory_is_bound() {
    let _bench = in_child!(without_misuse_on(two_devices()));
    let wanted = team_of_two();
    let object: u64 = out!(cuMulticastCreate(&raw const wanted));
    let memory = create_on(0);
    succeeds!(cuMulticastAddDevice(object, 0));
    refused!(INVALID, cuMulticastAddDevice(object, 0));
    refused!(INVALID, cuMulticastBindMem(object, 0, memory, 0, PAGE, 0));
    succeeds!(cuMulticastAddDevice(object, 1));
    for (offset, start, size) in [(0, 0, 4096), (2 * PAGE, 0, PAGE), (0, PAGE, PAGE)] {
        refused!(INVALID, cuMulticastBindMem(object, offset, memory, start, size, 0));
    }
    succeeds!(cuMulticastBindMem(object, 0, memory, 0, PAGE, 0));
    refused!(INVALID, cuMulticastBindMem(object, 0, memory, 0, PAGE, 0));
    succeeds!(cuMulticastBindMem(object, PAGE, memory, 0, PAGE, 0));
    let mut other = 0;
    let refuse = |change: fn(&mut CUmulticastObjectProp), place: &mut u64| {
        let mut wanted = team_of_two();
        change(&mut wanted);
        refused!(INVALID, cuMulticastCreate(place, &raw const wanted));
    };
    refuse(|its| its.numDevices = 3, &mut other);
    refuse(|its| its.size = 4096, &mut other);
    refuse(|its| its.flags = 1, &mut other);
    succeeds!(cuMemRelease(object));
    succeeds!(cuMemRelease(memory));
}
