//! Fabric clusters and cliques, and memory of locality domains. Unverified (from documentation), since CUDA
//! 13.4.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use cuda_safe::device::FabricCliqueKind;

fn profile(text: &str) -> Profile {
    text.parse().expect("a profile")
}

#[test]
fn linked_devices_are_one_clique_of_each_kind() {
    let (_end, _context) = in_child!(on(profile("h200*2@13.4")));
    let devices = [0, 1].map(|ordinal| Device::get(ordinal).expect("a device"));
    let [first, second] = devices.map(|device| device.fabric_cliques().expect("known"));
    assert_eq!(first, second);
    let kinds: Vec<_> = first.iter().map(|clique| clique.kind).collect();
    let expected = [FabricCliqueKind::UnicastPointer, FabricCliqueKind::MulticastPointer];
    assert_eq!(kinds, expected);
    let [first, second] = devices.map(|device| device.fabric_cluster().expect("known"));
    assert_eq!(first, second);
}

#[test]
fn one_device_has_no_fabric() {
    let (_end, context) = in_child!(on(profile("h200@13.4")));
    assert_eq!(context.device().fabric_cliques().expect("known"), []);
    let error = context.device().fabric_cluster().expect_err("no fabric");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_NOT_SUPPORTED));
}

#[test]
fn an_older_driver_knows_no_cliques() {
    let (_end, context) = in_child!(on(profile("h200@13.0")));
    let error = context.device().fabric_cliques().expect_err("an old driver");
    assert!(matches!(error, Error::Missing(_)), "{error}");
}

#[test]
fn memory_of_a_locality_domain_is_used_like_other_memory_of_its_device() {
    let (_end, context) = in_child!(on(profile("b200@13.4")));
    let device = context.device();
    let location = MemoryLocation::LocalityDomain { device, domain: 1 };
    let size = PhysicalOptions::new(location).granularity().expect("known");
    let memory = PhysicalMemory::new(location, size).expect("memory");
    assert_eq!(memory.location(), location);
    assert_eq!(memory.properties().expect("known").location, Some(location));
    assert_eq!(location.to_string(), "locality domain 1 of device 0");
    let mapping = Reservation::new(size).expect("addresses").map(0, memory).expect("a mapping");
    let stream = context.stream().expect("a stream");
    let mut buffer = mapping.into_buffer::<u32>(&stream).expect("a buffer");
    buffer.fill(5).expect("a fill");
    assert_eq!(buffer.slice(..2).and_then(|its| its.to_vec()).expect("a copy"), [5, 5]);
    let none = MemoryLocation::LocalityDomain { device, domain: 2 };
    let error = PhysicalMemory::new(none, size).expect_err("two domains");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
}
