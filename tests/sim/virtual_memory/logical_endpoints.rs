//! Logical endpoints on the software driver, with two devices. Unverified (from documentation).
#![cfg(target_os = "linux")]

use crate::prelude::*;
use crate::virtual_memory::{create_on, map_new};

const SIZE: u64 = PAGE as u64;

fn profile(text: &str) -> Profile {
    text.parse().expect("a profile")
}

fn of_one(device: c_int) -> CUlogicalEndpointProp {
    let mut wanted = CUlogicalEndpointProp::zeroed();
    wanted.type_ = CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_UNICAST;
    wanted.__bindgen_anon_1.unicast.device = device;
    wanted.size = 2 * SIZE;
    wanted
}

fn of_several(devices: u32) -> CUlogicalEndpointProp {
    let mut wanted = of_one(0);
    wanted.type_ = CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_MULTICAST;
    wanted.__bindgen_anon_1.multicast.numDevices = devices;
    wanted
}

fn is_constructed(id: CUlogicalEndpointId) -> bool {
    let mut status = 0;
    succeeds!(cuLogicalEndpointQuery(id, 1, &raw mut status));
    status != 0
}

#[test]
fn memory_is_bound_to_an_endpoint_of_one_device() {
    let _bench = in_child!(without_misuse_on(profile("h200@13.4")));
    let id: CUlogicalEndpointId = out!(cuLogicalEndpointIdReserve(2));
    let wanted = of_one(0);
    let (mut alignment, mut size) = (0, 0);
    succeeds!(cuLogicalEndpointGetLimits(&raw mut alignment, &raw mut size, &raw const wanted));
    assert_eq!(alignment, SIZE);
    succeeds!(cuLogicalEndpointCreate(id, &raw const wanted));
    refused!(INVALID, cuLogicalEndpointCreate(id, &raw const wanted));
    refused!(INVALID, cuLogicalEndpointIdRelease(id, 2));
    assert_eq!([is_constructed(id), is_constructed(id)], [false, true]);
    let memory = create_on(0);
    succeeds!(cuLogicalEndpointBindMem(id, 0, 0, memory, 0, SIZE, 0));
    refused!(INVALID, cuLogicalEndpointBindMem(id, 0, 0, memory, 0, SIZE, 0));
    refused!(INVALID, cuLogicalEndpointBindMem(id, 0, 2 * SIZE, memory, 0, SIZE, 0));
    refused!(INVALID, cuLogicalEndpointAddDevice(id, 0));
    let start = reserve(PAGE);
    map_new(start, PAGE);
    let address = with_exposed_provenance_mut(start as usize);
    succeeds!(cuLogicalEndpointBindAddr(id, 0, SIZE, address, SIZE, 0));
    succeeds!(cuMemUnmap(start, PAGE));
    succeeds!(cuMemRelease(memory));
    // The endpoint keeps the memory.
    assert_eq!(cuda_sim::alive().physical_allocations, 2);
    succeeds!(cuLogicalEndpointUnbind(id, 0, SIZE, SIZE));
    refused!(INVALID, cuLogicalEndpointUnbind(id, 0, SIZE, SIZE));
    succeeds!(cuLogicalEndpointDestroy(id));
    refused!(INVALID, cuLogicalEndpointDestroy(id));
    assert_eq!(cuda_sim::alive().physical_allocations, 0);
    succeeds!(cuLogicalEndpointIdRelease(id, 2));
    refused!(INVALID, cuLogicalEndpointCreate(id, &raw const wanted));
    succeeds!(cuMemAddressFree(start, PAGE));
    let several = of_several(1);
    refused!(UNSUPPORTED, cuLogicalEndpointCreate(id, &raw const several));
}

#[test]
fn an_endpoint_of_several_devices_is_constructed_after_all_were_added() {
    let _bench = in_child!(without_misuse_on(profile("h200*2@13.4")));
    let id: CUlogicalEndpointId = out!(cuLogicalEndpointIdReserve(1));
    let wanted = of_several(2);
    succeeds!(cuLogicalEndpointCreate(id, &raw const wanted));
    succeeds!(cuLogicalEndpointAddDevice(id, 0));
    assert_eq!([is_constructed(id), is_constructed(id)], [false, false]);
    succeeds!(cuLogicalEndpointAddDevice(id, 1));
    assert_eq!([is_constructed(id), is_constructed(id)], [false, true]);
    let memory = create_on(1);
    refused!(INVALID, cuLogicalEndpointBindMem(id, 0, 0, memory, 0, SIZE, 0));
    succeeds!(cuLogicalEndpointBindMem(id, 1, 0, memory, 0, SIZE, 0));
    succeeds!(cuLogicalEndpointDestroy(id));
    succeeds!(cuMemRelease(memory));
    succeeds!(cuLogicalEndpointIdRelease(id, 1));
    let wanted = of_several(3);
    refused!(INVALID, cuLogicalEndpointCreate(id, &raw const wanted));
}
