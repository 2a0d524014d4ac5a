//! Attributes of addresses, as the driver reports them.

use crate::common;
use crate::memory::managed::stage;
use crate::module::kernels::pinned;
use cuda_safe::DeviceBuffer;
use cuda_safe::memory::{ManagedBuffer, MemoryPool, MemoryPoolOptions, MemoryType};
use cuda_safe::virtual_memory::{PhysicalMemory, PhysicalOptions, Reservation};

#[test]
fn an_address_reports_its_memory_kind() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let device = context.device();

    let plain = DeviceBuffer::<u32>::zeroed_sync(&stream, 1000).expect("memory");
    let inside = plain.as_raw() + 400;
    let info = context.pointer_info(inside).expect("an answer").expect("known");
    assert_eq!(info.memory_type, MemoryType::Device);
    assert_eq!(info.device, Some(device.ordinal()));
    assert_eq!(info.context, context.as_raw());
    assert_eq!(info.device_address, Some(inside));
    assert_eq!(info.host_address, None);
    assert!(info.range.contains(&inside), "{info:?}");
    assert!(!info.managed && info.pool.is_null(), "{info:?}");

    let host = pinned(&context, &[1, 2, 3]);
    let address = host.as_ptr().addr() as u64;
    let its = context.pointer_info(address).expect("an answer").expect("known");
    assert_eq!(its.memory_type, MemoryType::Host);
    assert_eq!(its.host_address, Some(address));
    assert_ne!(its.buffer_id, info.buffer_id);

    let pool = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
    let ordered = DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 64).expect("memory");
    stream.synchronize().expect("a wait");
    let its = context.pointer_info(ordered.as_raw()).expect("an answer").expect("known");
    assert_eq!((its.memory_type, its.pool), (MemoryType::Device, pool.as_raw()));
}

#[test]
fn managed_memory_is_recognized() {
    let (context, stream) = or_skip!(stage());
    let buffer = ManagedBuffer::<u32>::zeroed(&stream, 10).expect("memory");
    let info = context.pointer_info(buffer.as_raw()).expect("an answer").expect("known");
    assert!(info.managed, "{info:?}");
}

#[test]
fn an_address_unknown_to_the_driver_has_no_attributes() {
    let context = or_skip!(common::context());
    let local = 5u64;
    for address in [0, 0x1234, (&raw const local).addr() as u64, u64::MAX] {
        assert_eq!(context.pointer_info(address).expect("an answer"), None, "{address:#x}");
    }
}

#[test]
fn an_allocation_is_found_by_an_address_in_it() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut plain = DeviceBuffer::<u64>::zeroed_sync(&stream, 1000).expect("memory");
    let range = context.address_range(plain.as_raw() + 8000 - 1).expect("known");
    assert_eq!(range.start, plain.as_raw());
    assert!(range.end >= plain.as_raw() + 8000, "{range:?}");
    plain.set_sync_memops(true).expect("set");
    plain.set_sync_memops(false).expect("set");
}

#[test]
fn the_mappings_of_a_reservation_are_distinguished() {
    let context = or_skip!(common::context());
    or_skip!(common::has_virtual_memory(&context.device()));
    let options = PhysicalOptions::new(context.device());
    let size = options.granularity().expect("the granularity");
    let space = Reservation::new(2 * size).expect("a reservation");
    let mappings = [0, size].map(|offset| {
        let memory = PhysicalMemory::new(context.device(), size).expect("physical memory");
        space.map(offset, memory).expect("a mapping")
    });
    for mapping in &mappings {
        let info = context.pointer_info(mapping.address() + 1);
        let info = info.expect("an answer").expect("known");
        let start = mappings[0].address();
        assert_eq!(info.range, start..start + 2 * size as u64);
        let start = mapping.address();
        assert_eq!(info.mapping, Some(start..start + size as u64));
        assert_eq!(info.locality_domain, None);
    }
}

mod provoked {
    //! The driver reports an error for an unknown address.

    use super::*;

    #[test]
    fn an_address_outside_of_all_allocations_is_an_error() {
        let context = or_skip!(common::context());
        let error = context.address_range(0x1234).expect_err("nobody's");
        assert!(error.to_string().starts_with("cuMemGetAddressRange_v2"), "{error}");
    }
}
