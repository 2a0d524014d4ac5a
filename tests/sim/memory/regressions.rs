//! Bugs that reviews found in memory objects, each with the scenario that triggered it.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use cuda_safe::attempt_deferred_releases;
use cuda_safe::virtual_memory::GrowableBuffer;

const PAGE: usize = 2 << 20;

#[test]
fn a_release_whose_queries_always_fail_is_not_repeated_for_ever() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let memory = PhysicalMemory::new(context.device(), PAGE).expect("memory");
    let mapping = Reservation::new(PAGE).expect("a reservation").map(0, memory).expect("a mapping");
    let mut buffer = mapping.into_buffer::<u32>(&stream).expect("a buffer");
    buffer.fill(7).expect("a fill");
    let _refused = fail_from("cuStreamQuery", 1, CUresult::CUDA_ERROR_INVALID_HANDLE);
    drop(buffer);
    for _ in 0..100 {
        attempt_deferred_releases();
    }
    assert_eq!(deferred_releases(), 0);
    assert_ne!(cuda_safe::leaked(), 0);
}

#[test]
fn a_batch_waits_if_its_slices_are_large_together() {
    let (_end, _context, stream) = in_child!(on_stream());
    let slice = vec![1u8; 64 << 10];
    let mut targets = [(); 2].map(|()| DeviceBuffer::<u8>::zeroed(&stream, 64 << 10).expect("m"));
    cuda_sim::clear_calls();
    let mut batch = CopyBatch::new(&stream);
    for target in &mut targets {
        batch.push_from_slice(target, &slice).expect("a copy");
    }
    batch.enqueue().expect("the copies");
    let waits = cuda_sim::calls().into_iter().filter(|its| its.function == "cuStreamSynchronize");
    assert_eq!(waits.count(), 1);
}

#[test]
fn memory_of_another_device_is_bound_on_no_driver() {
    let older: Profile = "h200*2@12.4".parse().expect("a profile");
    let (_end, _context) = in_child!(on(older));
    let devices = [0, 1].map(|ordinal| Device::get(ordinal).expect("a device"));
    let mut team = MulticastTeam::new(&MulticastOptions::new(2, PAGE)).expect("an object");
    for device in &devices {
        team.add(device).expect("a device of the team");
    }
    let object = team.complete().expect("all devices");
    let memory = || PhysicalMemory::new(devices[1], PAGE).expect("memory");
    object.bind(devices[0], 0, memory()).expect_err("memory of another device");
    let mapping = Reservation::new(PAGE).expect("addresses").map(0, memory()).expect("a mapping");
    object.bind(devices[0], 0, mapping).expect_err("memory of another device");
}

#[test]
fn memory_is_unmapped_after_a_growth_that_failed() {
    let (_end, _context, stream) = in_child!(on_stream());
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 64 * PAGE).expect("a buffer");
    buffer.resize_zeroed(4 * PAGE).expect("memory");
    {
        // The driver does not say that the fill is complete, so the memory stays mapped.
        let _unknown = fail_from("cuStreamQuery", 1, CUresult::CUDA_ERROR_UNKNOWN);
        buffer.truncate(0).expect("a shorter buffer");
        let _limit = limit_memory(8 * PAGE as u64);
        buffer.grow(32 * PAGE).expect_err("no memory");
    }
    assert!(buffer.is_empty());
    stream.synchronize().expect("a wait");
    attempt_deferred_releases();
    assert_eq!((buffer.mapped_bytes(), alive().mappings), (0, 0));
}

#[test]
fn memory_without_access_is_unmapped_at_once() {
    let (_end, _context, stream) = in_child!(on_stream());
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 4 * PAGE).expect("a buffer");
    {
        let _fails = fail("cuMemSetAccess", 1, CUresult::CUDA_ERROR_UNKNOWN);
        buffer.grow(PAGE).expect_err("no access");
        assert_eq!((buffer.mapped_bytes(), alive().mappings), (0, 0));
    }
    buffer.grow(PAGE).expect("memory");
    assert_eq!(alive().mappings, 1);
}

#[test]
fn elements_stay_mapped_after_a_longer_fill_that_failed() {
    let (_end, _context, stream) = in_child!(on_stream());
    let mut buffer = GrowableBuffer::<u32>::new(&stream, 64 * PAGE).expect("a buffer");
    // Each growth maps a range, of which a failed fill unmaps the last one.
    buffer.grow(16 * PAGE).expect("memory");
    buffer.grow(32 * PAGE).expect("memory");
    let mapped = buffer.mapped_bytes();
    {
        let _fails = fail("cuMemsetD8Async", 1, CUresult::CUDA_ERROR_UNKNOWN);
        buffer.resize_zeroed(64 * PAGE).expect_err("a failed fill");
    }
    assert_eq!(buffer.len(), 32 * PAGE);
    stream.synchronize().expect("a wait");
    attempt_deferred_releases();
    assert_eq!(buffer.mapped_bytes(), mapped);
}

#[test]
fn a_host_function_that_drops_the_last_context_loses_no_memory_of_its_pool() {
    in_child!();
    start(Profile::h200());
    set_memory_manager(|context| CachingManager::expandable(context, CachingOptions::default()))
        .expect("a matching version");
    let device = Device::get(0).expect("a device");
    let worker = Context::primary(&device).expect("a context");
    let context = Context::new(&device, ContextFlags::empty()).expect("a context");
    let stream = context.stream().expect("a stream");
    drop(DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory"));
    assert_eq!(alive().mappings, 1);
    drop(stream);
    let own = worker.stream().expect("a stream");
    own.launch_host_function(move || drop(context)).expect("enqueued");
    own.synchronize().expect("a wait");
    attempt_deferred_releases();
    assert_eq!((alive().mappings, cuda_safe::leaked()), (0, 0));
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn a_handle_whose_size_is_refused_is_released() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let options = PhysicalOptions::new(context.device()).shareable(Shareable::Descriptor);
    let memory = PhysicalMemory::with(PAGE, &options).expect("memory");
    let descriptor = memory.export().expect("a descriptor");
    // SAFETY: the driver exported the descriptor. The size is refused.
    unsafe { PhysicalMemory::import(&descriptor, PAGE + 1) }.expect_err("a size");
    let mapping = Reservation::new(PAGE).expect("addresses").map(0, memory).expect("a mapping");
    // SAFETY: the address is that of a mapping. The size is refused.
    unsafe { PhysicalMemory::retain(mapping.address(), 0) }.expect_err("a size");
    drop((descriptor, mapping));
    assert_eq!(alive().physical_allocations, 0);
}
