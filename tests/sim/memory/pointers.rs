//! Attributes of addresses that no real driver has confirmed.

use crate::prelude::*;
use cuda_safe::memory::PointerInfo;

/// The location type of a part of a device, and its second part of the first device.
const SECOND_DOMAIN: MemoryLocation = MemoryLocation::Other { kind: 6, id: 1 << 8 };

fn mapping(location: MemoryLocation) -> Mapping {
    let options = PhysicalOptions::new(location);
    let size = options.granularity().expect("the granularity");
    let memory = PhysicalMemory::with(size, &options).expect("physical memory");
    let space = Reservation::new(size).expect("a reservation");
    space.try_map(0, memory).expect("a mapping")
}

fn info(context: &Context, mapping: &Mapping) -> PointerInfo {
    context.pointer_info(mapping.address()).expect("an answer").expect("known")
}

#[test]
fn the_physical_memory_of_an_address_is_identified() {
    let (_end, context) = in_child!(on("h200".parse().expect("a profile")));
    let device = MemoryLocation::Device(context.device());
    let (first, second) = (mapping(device), mapping(device));
    let (one, other) = (info(&context, &first), info(&context, &second));
    assert!(one.memory_block.is_some() && one.memory_block != other.memory_block);
    // The memory at another address.
    let space = Reservation::new(first.size()).expect("a reservation");
    let moved = first.remap(&space, 0).expect("mapped again");
    let again = info(&context, &moved);
    assert_eq!(again.memory_block, one.memory_block);
    assert_ne!(again.mapping, one.mapping);
}

#[test]
fn the_locality_domain_of_an_address_is_known() {
    let (_end, context) = in_child!(on("b200@13.4".parse().expect("a profile")));
    let device = mapping(MemoryLocation::Device(context.device()));
    assert_eq!(info(&context, &device).locality_domain, None);
    let part = mapping(SECOND_DOMAIN);
    assert_eq!(info(&context, &part).locality_domain, Some(1));
}

/// Checks the attributes of an address on a driver before CUDA 13.4.
fn check_older(profile: &str, decompress: Option<bool>) {
    let (_end, context) = in_child!(on(profile.parse().expect("a profile")));
    let memory = mapping(MemoryLocation::Device(context.device()));
    let info = info(&context, &memory);
    assert_eq!(info.hw_decompress, decompress);
    assert_eq!(info.locality_domain, None);
    assert!(info.mapping.is_some());
}

#[test]
fn a_driver_without_locality_domains_reports_the_other_attributes() {
    check_older("h200@12.9", Some(false));
}

#[test]
fn a_driver_without_decompression_reports_the_other_attributes() {
    check_older("h200@12.6", None);
}

/// The functions may come from a driver that is older than the version that it reports.
#[test]
fn attributes_that_the_driver_refuses_are_left_out() {
    let (_end, context) = in_child!(on("b200@13.4".parse().expect("a profile")));
    let memory = mapping(SECOND_DOMAIN);
    let all = info(&context, &memory);
    assert!(all.hw_decompress.is_some() && all.locality_domain.is_some());
    let query = "cuPointerGetAttributes";
    {
        let _newest = fail(query, 1, CUresult::CUDA_ERROR_INVALID_VALUE);
        let fewer = info(&context, &memory);
        assert_eq!((fewer.hw_decompress, fewer.locality_domain), (all.hw_decompress, None));
        assert_eq!(fewer.memory_block, all.memory_block);
    }
    let _all = fail_from(query, 1, CUresult::CUDA_ERROR_INVALID_VALUE);
    let asks = count(query, || {
        let refused = context.pointer_info(memory.address()).expect_err("not one is known");
        assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    });
    assert_eq!(asks, 3, "two attributes are newer than the oldest driver");
}

#[test]
fn no_device_has_access_to_memory_that_was_only_mapped() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let mut memory = mapping(MemoryLocation::Device(context.device()));
    assert_eq!(info(&context, &memory).access, MemoryAccess::None);
    memory.set_access(context.device(), MemoryAccess::Read).expect("access");
    assert_eq!(info(&context, &memory).access, MemoryAccess::Read);
}
