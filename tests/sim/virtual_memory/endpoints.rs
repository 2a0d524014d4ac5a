//! Logical endpoints of the safe layer. Unverified (from documentation), since CUDA 13.3.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use cuda_safe::virtual_memory::{
    EndpointDevices, EndpointHandle, EndpointIds, EndpointOptions, FabricCopyBatch,
    LogicalEndpoint, PendingEndpoint,
};

const PAGE: usize = 2 << 20;

fn with(profile: &str) -> (AtEnd, Context, [Device; 2]) {
    let (end, context) = on(profile.parse().expect("a profile"));
    let last = Device::count().expect("known") - 1;
    let devices = [0, last].map(|ordinal| Device::get(ordinal).expect("a device"));
    (end.after(|| assert_eq!(alive().physical_allocations, 0)), context, devices)
}

fn finish(pending: PendingEndpoint) -> LogicalEndpoint {
    let again = pending.finish().expect("known").expect_err("under construction");
    again.finish().expect("known").expect("constructed")
}

fn memory(device: Device) -> PhysicalMemory {
    PhysicalMemory::new(device, PAGE).expect("memory")
}

#[test]
fn memory_and_mappings_are_bound_to_an_endpoint() {
    let (_end, _context, [device, _]) = in_child!(with("h200@13.4"));
    let ids = EndpointIds::reserve(2).expect("ids");
    let options = EndpointOptions::new(EndpointDevices::Unicast(device), 2 * PAGE);
    assert_eq!(options.limits().expect("known").alignment, PAGE);
    let pending = ids.create(1, &options).expect("an endpoint");
    assert_eq!((pending.id(), ids.count()), (ids.first() + 1, 2));
    let endpoint = finish(pending);
    assert_eq!(endpoint.size(), 2 * PAGE);
    let one = endpoint.bind(device, 0, memory(device)).expect("bound");
    let space = Reservation::new(PAGE).expect("addresses");
    let mapping = space.map(0, memory(device)).expect("a mapping");
    let other = endpoint.bind(device, PAGE, mapping).expect("bound");
    assert_eq!((other.device(), other.offset()), (device, PAGE));
    assert_eq!(other.memory().address(), space.address());
    let taken = endpoint.try_bind(device, 0, memory(device));
    let rejected = taken.map(drop).expect_err("memory is bound there");
    assert_eq!(rejected.error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(one.unbind().expect("bound").size(), PAGE);
    // The last owner destroys the endpoint, and then releases its ids.
    drop((ids, endpoint, space));
    let called = calls(|| drop(other));
    let expected = [
        "cuLogicalEndpointUnbind",
        "cuLogicalEndpointDestroy",
        "cuLogicalEndpointIdRelease",
        "cuMemUnmap",
        "cuMemRelease",
        "cuMemAddressFree",
    ];
    assert_eq!(called, expected);
}

#[test]
fn an_endpoint_of_several_devices_needs_all_of_them() {
    let (_end, _context, devices) = in_child!(with("h200*2@13.4"));
    let ids = EndpointIds::reserve(1).expect("ids");
    let options = EndpointOptions::new(EndpointDevices::Multicast(2), PAGE);
    let mut pending = ids.create(0, &options).expect("an endpoint");
    pending.add(&devices[0]).expect("a device");
    let again = pending.finish().expect("known").expect_err("a device is missing");
    let mut pending = again.finish().expect("known").expect_err("a device is missing");
    pending.add(&devices[1]).expect("a device");
    let endpoint = finish(pending);
    let bound = devices.map(|device| endpoint.bind(device, 0, memory(device)).expect("bound"));
    drop(endpoint);
    drop(bound);
}

#[test]
fn sizes_offsets_and_indexes_are_checked() {
    let (_end, _context, [device, _]) = in_child!(with("h200@13.4"));
    let ids = EndpointIds::reserve(1).expect("ids");
    let unicast = EndpointDevices::Unicast(device);
    for size in [0, 4096] {
        let refused = ids.create(0, &EndpointOptions::new(unicast, size));
        assert!(matches!(invalid(refused), Invalid::Granularity { .. }), "{size}");
    }
    let huge = EndpointOptions::new(unicast, 1 << 50);
    assert!(matches!(invalid(ids.create(0, &huge)), Invalid::TooLarge { .. }));
    let options = EndpointOptions::new(unicast, PAGE);
    let beyond = invalid(ids.create(1, &options));
    assert_eq!(beyond, Invalid::Range { start: 1, end: 2, len: 1 });
    let endpoint = finish(ids.create(0, &options).expect("an endpoint"));
    let twice = ids.create(0, &options).expect_err("the id has an endpoint");
    assert_eq!(twice.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    let refused = endpoint.bind(device, 1, memory(device));
    assert!(matches!(invalid(refused), Invalid::Granularity { .. }));
    let refused = endpoint.bind(device, PAGE, memory(device));
    assert!(matches!(invalid(refused), Invalid::Range { .. }));
    let bytes = [7; EndpointHandle::BYTES];
    assert_eq!(EndpointHandle::from_bytes(&bytes).to_bytes(), bytes);
}

#[test]
fn an_older_driver_has_no_logical_endpoints() {
    let (_end, _context, _) = in_child!(with("h200@13.0"));
    let error = EndpointIds::reserve(1).expect_err("an old driver");
    assert!(matches!(error, Error::Missing(_)), "{error}");
}

fn create(ids: &EndpointIds, devices: EndpointDevices, size: usize) -> LogicalEndpoint {
    let options = EndpointOptions::new(devices, size);
    finish(ids.create(0, &options).expect("an endpoint"))
}

fn read(stream: &Stream, endpoint: &LogicalEndpoint, offset: usize, len: usize) -> Vec<u32> {
    let mut target = DeviceBuffer::<u32>::zeroed(stream, len).expect("memory");
    let mut batch = FabricCopyBatch::new(stream);
    batch.push_from_endpoint(&mut target, endpoint, offset).expect("a part");
    // SAFETY: memory is bound to the endpoint, and no other work uses it.
    unsafe { batch.enqueue() }.expect("enqueued");
    target.to_vec().expect("a copy")
}

#[test]
fn copies_over_the_fabric_run_in_stream_order() {
    let (_end, _context, [device, _]) = in_child!(with("h200@13.5"));
    let stream = Context::primary(&device).expect("a context").stream().expect("a stream");
    let ids = EndpointIds::reserve(1).expect("ids");
    let endpoint = create(&ids, EndpointDevices::Unicast(device), 2 * PAGE);
    let pages = [0, PAGE].map(|offset| {
        let bound = endpoint.bind(device, offset, memory(device));
        bound.expect("bound")
    });
    let mut source = DeviceBuffer::from_slice(&stream, &[0u32; 4]).expect("memory");
    let mut copy = DeviceBuffer::<u32>::zeroed(&stream, 4).expect("memory");
    // Earlier work on the stream.
    source.copy_from_slice(&[1, 2, 3, 4]).expect("a copy");
    let mut batch = FabricCopyBatch::new(&stream);
    // Half of it goes to each page.
    batch.push_to_endpoint(&endpoint, PAGE - 8, &source).expect("a part");
    batch.push(&mut copy, &source).expect("added");
    assert_eq!((batch.len(), batch.is_empty()), (2, false));
    assert!(format!("{batch:?}").contains("len: 2"));
    // SAFETY: memory is bound to the endpoint, and no other work uses it.
    unsafe { batch.enqueue() }.expect("enqueued");
    assert_eq!(read(&stream, &endpoint, PAGE - 8, 4), [1, 2, 3, 4]);
    assert_eq!(read(&stream, &endpoint, PAGE, 2), [3, 4]);
    assert_eq!(copy.to_vec().expect("a copy"), [1, 2, 3, 4]);
    drop((pages, source, copy));
}

#[test]
fn a_copy_to_an_endpoint_of_several_devices_writes_the_memory_of_all() {
    let (_end, _context, devices) = in_child!(with("h200*2@13.5"));
    let stream = Context::primary(&devices[0]).expect("a context").stream().expect("a stream");
    let ids = EndpointIds::reserve(3).expect("ids");
    let options = EndpointOptions::new(EndpointDevices::Multicast(2), PAGE);
    let mut pending = ids.create(0, &options).expect("an endpoint");
    for device in &devices {
        pending.add(device).expect("a device");
    }
    let team = finish(pending);
    // The same memory, by an endpoint of its device.
    let single = [0, 1].map(|index| {
        let options = EndpointOptions::new(EndpointDevices::Unicast(devices[index]), PAGE);
        let number = u32::try_from(index).expect("small") + 1;
        finish(ids.create(number, &options).expect("an endpoint"))
    });
    let spaces = [0, 1].map(|_| Reservation::new(PAGE).expect("addresses"));
    let bound = [0, 1].map(|index| {
        let memory = memory(devices[index]);
        let mapping = spaces[index].map(0, memory).expect("a mapping");
        let address = mapping.address();
        let by_address = single[index].bind(devices[index], 0, mapping).expect("bound");
        let id = team.id();
        let start = std::ptr::with_exposed_provenance_mut(address as usize);
        let raw = devices[index].as_raw();
        // SAFETY: the endpoint exists, and the mapping has this size.
        let code = unsafe { cuLogicalEndpointBindAddr(id, raw, 0, start, PAGE as u64, 0) };
        assert!(code.is_success(), "{code:?}");
        by_address
    });
    let source = DeviceBuffer::from_slice(&stream, &[5u32, 6]).expect("memory");
    let mut batch = FabricCopyBatch::new(&stream);
    batch.push_to_endpoint(&team, 4, &source).expect("a part");
    // SAFETY: memory is bound to the endpoint, and no other work uses it.
    unsafe { batch.enqueue() }.expect("enqueued");
    for endpoint in &single {
        assert_eq!(read(&stream, endpoint, 4, 2), [5, 6]);
    }
    let mut target = DeviceBuffer::<u32>::zeroed(&stream, 2).expect("memory");
    let mut batch = FabricCopyBatch::new(&stream);
    batch.push_from_endpoint(&mut target, &team, 0).expect("a part");
    // SAFETY: the driver refuses the call.
    let refused = unsafe { batch.enqueue() }.expect_err("several devices cannot be read");
    assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    drop((team, bound));
}

#[test]
fn copies_over_the_fabric_are_checked() {
    let (_end, _context, [device, _]) = in_child!(with("h200@13.5"));
    let context = Context::primary(&device).expect("a context");
    let [stream, other] = [0, 1].map(|_| context.stream().expect("a stream"));
    let ids = EndpointIds::reserve(1).expect("ids");
    let endpoint = create(&ids, EndpointDevices::Unicast(device), PAGE);
    let source = DeviceBuffer::from_slice(&stream, &[7u32; 2]).expect("memory");
    let foreign = DeviceBuffer::from_slice(&other, &[7u32; 2]).expect("memory");
    let mut target = DeviceBuffer::<u32>::zeroed(&stream, 3).expect("memory");
    let mut batch = FabricCopyBatch::new(&stream);
    let beyond = Invalid::Range { start: PAGE - 4, end: PAGE + 4, len: PAGE };
    assert_eq!(invalid(batch.push_to_endpoint(&endpoint, PAGE - 4, &source)), beyond);
    let elsewhere = invalid(batch.push_to_endpoint(&endpoint, 0, &foreign));
    assert!(matches!(elsewhere, Invalid::OtherStream { .. }));
    assert!(matches!(invalid(batch.push(&mut target, &source)), Invalid::Lengths { .. }));
    assert!(batch.is_empty());
    // SAFETY: there is nothing to copy.
    unsafe { batch.enqueue() }.expect("nothing to do");

    let graph = stream.capture(CaptureMode::ThreadLocal, |_| {
        let mut batch = FabricCopyBatch::new(&stream);
        batch.push_to_endpoint(&endpoint, 0, &source)?;
        // SAFETY: the call is refused.
        unsafe { batch.enqueue() }
    });
    assert!(matches!(invalid(graph), Invalid::StreamIsCaptured));
}

#[test]
fn a_copy_where_no_memory_is_bound_is_a_misuse() {
    in_child!();
    crate::start("h200@13.5".parse().expect("a profile"));
    let context = crate::context();
    let stream = context.stream().expect("a stream");
    let ids = EndpointIds::reserve(1).expect("ids");
    let endpoint = create(&ids, EndpointDevices::Unicast(context.device()), PAGE);
    let source = DeviceBuffer::from_slice(&stream, &[7u32; 2]).expect("memory");
    let mut batch = FabricCopyBatch::new(&stream);
    batch.push_to_endpoint(&endpoint, 0, &source).expect("a part");
    // SAFETY: not sound, which the software driver reports.
    unsafe { batch.enqueue() }.expect("enqueued");
    stream.synchronize().expect_err("no memory is bound");
    crate::stream::callbacks::one_misuse("device 0 has no memory bound");
}

#[test]
fn the_creation_of_an_endpoint_attempts_deferred_releases() {
    let (_end, context, [device, _]) = in_child!(with("h200@13.4"));
    let ids = EndpointIds::reserve(1).expect("ids");
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let refused = fail_from("cuMemFreeHost", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
    drop(pinned);
    drop(refused);
    assert_eq!(deferred_releases(), 1);
    let options = EndpointOptions::new(EndpointDevices::Unicast(device), PAGE);
    let pending = ids.create(0, &options).expect("an endpoint");
    assert_eq!(deferred_releases(), 0);
    drop(finish(pending));
}
