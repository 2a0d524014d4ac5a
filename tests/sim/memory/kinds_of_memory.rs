//! Managed, mapped, registered and pool memory, where only the software driver can show what
//! happens.

use crate::prelude::*;
use crate::software::call_log::called;
use cuda_safe::memory::Advice;

type Scale = TypedKernel<(&'static mut [i32], i32, i32, u32)>;

fn scale(context: &Context) -> Scale {
    let module = Module::from_ptx(context, VECTOR).expect("the test kernels");
    let kernel = module.kernel("scale").expect("found");
    kernel.typed().expect("its parameters")
}

#[test]
fn managed_memory_alternates_between_host_and_device_without_concurrent_access() {
    let (_end, context) = in_child!(on(Profile::h200().without_concurrent_managed_access()));
    let stream = context.stream().expect("a stream");
    let scale = scale(&context);
    let mut buffer = ManagedBuffer::from_slice(&stream, &[1; 8]).expect("memory");
    assert_eq!(called("cuStreamAttachMemAsync"), 0, "the host owns it at first");
    for round in 0..3 {
        let x = buffer.device_mut().expect("the stream's");
        let config = LaunchConfig::linear(1, 8);
        // SAFETY: the kernel accesses 8 elements, and the memory has 8.
        unsafe { scale.launch(&stream, config, (x, 2, 0, 8)) }.expect("a launch");
        let there = buffer.device().expect("still attached to the stream");
        let copy = PinnedBuffer::zeroed(&context, 8).expect("memory");
        let copy = there.copy_to_pinned(copy).expect("a copy");
        assert_eq!(*copy.synchronize().expect("a wait"), [2 << round; 8]);
        assert_eq!(buffer.host().expect("a wait"), [2 << round; 8]);
        assert_eq!(called("cuStreamAttachMemAsync"), 2 * (round + 1));
    }
    // The pages cannot be moved to this location.
    let range = buffer.range(..).expect("within");
    let refused = range.prefetch(MemoryLocation::Device(context.device()));
    let refused = refused.expect_err("no concurrent access");
    assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_INVALID_DEVICE));
}

#[test]
fn managed_memory_with_concurrent_access_is_never_attached() {
    let (_end, _context, stream) = in_child!(on_stream());
    let mut buffer = ManagedBuffer::<i32>::zeroed(&stream, 8).expect("memory");
    buffer.host().expect("a wait");
    buffer.device().expect("device access");
    assert_eq!(called("cuStreamAttachMemAsync"), 0);
}

#[test]
fn a_failed_attach_is_repeated_by_the_next_use() {
    let (_end, context) = in_child!(on(Profile::h200().without_concurrent_managed_access()));
    let stream = context.stream().expect("a stream");
    let mut buffer = ManagedBuffer::from_slice(&stream, &[1i32; 8]).expect("memory");
    let fail = || {
        let fault = Fault::of_function("cuStreamAttachMemAsync");
        fault.with(CUresult::CUDA_ERROR_UNKNOWN).inject(Scope::Thread)
    };
    {
        let _fails = fail();
        buffer.device().expect_err("not attached to the stream");
    }
    buffer.device_mut().expect("the stream's").zero().expect("a fill");
    {
        let _fails = fail();
        buffer.host().expect_err("not attached to the host");
    }
    buffer.device_mut().expect("the stream's").fill(2).expect("a fill");
    assert_eq!(buffer.host().expect("a wait"), [2; 8]);
}

#[test]
fn work_on_managed_memory_attached_to_the_host_is_fatal() {
    in_child!();
    start(Profile::h200().without_concurrent_managed_access());
    let context = context();
    let stream = context.stream().expect("a stream");
    let scale = scale(&context);
    let _current = context.make_current().expect("current");
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuMemAllocManaged(&raw mut address, 32, 2) };
    assert!(code.is_success());
    let (mut address, mut zero, mut n) = (address, 0i32, 8u32);
    let mut arguments = [
        (&raw mut address).cast(),
        (&raw mut zero).cast(),
        (&raw mut zero).cast(),
        (&raw mut n).cast(),
    ];
    // SAFETY: the contract is violated on purpose: the memory is not attached to the stream,
    // which is the planted bug.
    let code = unsafe {
        cuLaunchKernel(
            scale.kernel().as_raw(),
            1,
            1,
            1,
            8,
            1,
            1,
            0,
            stream.as_raw(),
            arguments.as_mut_ptr(),
            std::ptr::null_mut(),
        )
    };
    assert!(code.is_success(), "it is detected when it runs");
    assert!(stream.synchronize().expect_err("illegal").is_fatal());
    let misuses = cuda_sim::misuses();
    assert!(misuses[0].contains("that is attached to the host"), "{misuses:?}");
    // SAFETY: the call is refused and accesses nothing.
    assert!(!unsafe { cuMemFree_v2(address) }.is_success());
}

#[test]
fn older_drivers_accept_only_devices_and_the_host_as_locations() {
    let profile = Profile::h200().with_driver("11.8".parse().expect("a version"));
    let (_end, context) = in_child!(on(profile.expect("is played")));
    let stream = context.stream().expect("a stream");
    let buffer = ManagedBuffer::<u8>::zeroed(&stream, 10_000).expect("memory");
    let range = buffer.range(..5000).expect("within");
    let device = MemoryLocation::Device(context.device());
    range.advise(Advice::PreferredLocation(MemoryLocation::Host)).expect("advice");
    range.advise(Advice::AccessedBy(device)).expect("advice");
    range.prefetch(device).expect("a prefetch");
    let info = range.info().expect("known");
    assert_eq!(info.preferred_location, Some(MemoryLocation::Host));
    assert_eq!(info.accessed_by, [device]);
    assert_eq!(info.last_prefetch, Some(device));
    // The information covers all pages, and the last ones were not prefetched.
    let all = buffer.range(..).expect("within").info().expect("known");
    assert_eq!((all.preferred_location, all.last_prefetch), (None, None));
    let error = range.prefetch(MemoryLocation::HostNuma(0)).expect_err("older");
    assert!(error.to_string().contains("12.2"), "{error}");
}

#[test]
fn a_pool_of_another_device_needs_access() {
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    let second = Device::get(1).expect("there are two");
    let second = Context::primary(&second).expect("a context");
    let stream = second.stream().expect("a stream");
    let pool = MemoryPool::new(&first, MemoryPoolOptions::default()).expect("a pool");
    let refused = DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 8);
    match refused.expect_err("no access") {
        Error::Invalid(invalid) => {
            let pool = "device 0".to_owned();
            assert_eq!(*invalid, Invalid::NoAccessToPool { pool, device: 1 });
        }
        error => panic!("{error}"),
    }
    let device = second.device();
    assert_eq!(pool.access(&device).expect("known"), MemoryAccess::None);
    pool.grant_access(&device).expect("granted");
    let buffer = DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 8).expect("memory");
    let info = first.pointer_info(buffer.as_raw()).expect("an answer").expect("known");
    assert_eq!(info.device, Some(0), "the device of the pool, not of the stream");
    drop(buffer);
    // A device allocates only from pools of its own memory.
    device.set_memory_pool(&pool).expect_err("of the other");
}

#[test]
fn a_pool_of_the_host_can_be_used_with_access() {
    let (_end, context, stream) = in_child!(on_stream());
    let options = MemoryPoolOptions { location: Some(MemoryLocation::Host), ..Default::default() };
    let pool = MemoryPool::new(&context, options).expect("a pool");
    DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 8).expect_err("no access");
    pool.grant_access(&context.device()).expect("granted");
    let buffer = DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 8).expect("memory");
    assert_eq!(buffer.to_vec().expect("a copy"), [0; 8]);
}

#[test]
fn locations_of_the_host_and_managed_memory_have_pools() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let before = alive();
    let locations = [MemoryLocation::Host, MemoryLocation::HostNuma(0)];
    for location in locations {
        let pool = |managed| MemoryPool::default_at(&context, location, managed);
        let pinned = pool(false).expect("a pool");
        assert_eq!(pinned, pool(false).expect("the same pool"));
        let managed = pool(true).expect("a pool");
        assert_ne!(pinned, managed);
        let current = || MemoryPool::current_at(&context, location, true).expect("a pool");
        assert_eq!(current(), managed.as_raw());
        managed.set_current_at(location, false).expect_err("it has managed memory");
        managed.set_current_at(location, true).expect("set");
        assert_eq!(current(), managed.as_raw());
    }
    let numa = MemoryLocation::HostNuma(7);
    MemoryPool::default_at(&context, numa, false).expect_err("no such node");
    // The driver owns these pools.
    assert_eq!(alive().pools, before.pools);
}

#[test]
fn pools_on_a_node_of_the_host_can_be_shared_and_other_pools_of_the_host_cannot() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let pool = |location| {
        let options =
            MemoryPoolOptions { location: Some(location), shareable: true, ..Default::default() };
        MemoryPool::new(&context, options)
    };
    pool(MemoryLocation::HostNuma(0)).expect("a pool");
    pool(MemoryLocation::Host).expect_err("it has no node");
}

#[test]
fn every_memory_kind_works_with_a_driver_that_needs_a_current_context() {
    let (_end, context, stream) = in_child!(on_stream());
    let strict = cuda_sim::fault::strict_contexts();
    let host = PinnedBuffer::register(&context, vec![1u8; 100]).expect("registered");
    let mut mapped = MappedBuffer::new(host, &stream).expect("mapped");
    mapped.as_mut_slice().fill(2).expect("a fill");
    let host = mapped.into_pinned().expect("a wait");
    assert_eq!(host.unregister().expect("a vector"), [2; 100]);
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 10).expect("memory");
    pinned.flags().expect("known");
    drop(MappedBuffer::new(pinned, &stream).expect("mapped"));
    let mut managed = ManagedBuffer::<u8>::zeroed(&stream, 100).expect("memory");
    let range = managed.range(..).expect("within");
    range.advise(Advice::ReadMostly).expect("advice");
    range.prefetch(MemoryLocation::Host).expect("a prefetch");
    assert!(range.info().expect("known").read_mostly);
    managed.host().expect("a wait");
    let pool = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
    pool.access(&context.device()).expect("known");
    pool.trim_to(0).expect("a trim");
    drop(DeviceBuffer::<u8>::zeroed_from_pool(&pool, &stream, 8).expect("memory"));
    context.pointer_info(managed.as_raw()).expect("an answer").expect("known");
    drop((managed, pool));
    drop(strict);
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn a_vector_that_cannot_be_unregistered_is_leaked_and_reported() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let refuse = || {
        let fault = Fault::of_function("cuMemHostUnregister");
        fault.with(CUresult::CUDA_ERROR_UNKNOWN).inject(Scope::Thread)
    };
    let host = PinnedBuffer::register(&context, vec![7u8; 100]).expect("registered");
    let rejected = {
        let _refused = refuse();
        host.try_unregister().expect_err("the fault")
    };
    // The error loses nothing.
    assert_eq!(rejected.value.len(), 100);
    assert_eq!(rejected.value.unregister().expect("a vector"), [7; 100]);

    let host = PinnedBuffer::register(&context, vec![7u8; 100]).expect("registered");
    let mut mapped = MappedBuffer::new(host, &stream).expect("mapped");
    mapped.as_mut_slice().zero().expect("a fill");
    {
        let _refused = refuse();
        drop(mapped);
    }
    assert_eq!((cuda_safe::leaked(), alive().registered), (1, 1));
    // The device may still use the vector, because it was not freed.
    stream.synchronize().expect("no error");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn mapped_memory_is_leaked_if_the_end_of_the_work_on_it_is_unknown() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let host = PinnedBuffer::<u8>::zeroed(&context, 100).expect("memory");
    let mut mapped = MappedBuffer::new(host, &stream).expect("mapped");
    mapped.as_mut_slice().fill(1).expect("a fill");
    let fault = Fault::of_function("cuStreamSynchronize").from_then_on();
    let fails = fault.with(CUresult::CUDA_ERROR_UNKNOWN).inject(Scope::Thread);
    mapped.host().expect_err("unknown state");
    mapped.into_pinned().expect_err("unknown state");
    drop(fails);
    assert_eq!((cuda_safe::leaked(), alive().pinned_allocations), (1, 1));
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn memory_dropped_in_a_capture_or_a_callback_is_released_after_it() {
    let (_end, context, stream) = in_child!(on_stream());
    let all = || {
        let host = PinnedBuffer::register(&context, vec![7u8; 100]).expect("registered");
        let mapped = MappedBuffer::new(host, &stream).expect("mapped");
        let managed = ManagedBuffer::<u8>::zeroed(&stream, 10).expect("memory");
        let pool = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
        (mapped, managed, pool)
    };
    let counts = || {
        let alive = alive();
        (alive.registered, alive.managed_allocations, alive.pools)
    };
    let things = all();
    stream.launch_host_function(move || drop(things)).expect("enqueued");
    stream.synchronize().expect("a wait");
    drop(context.event().expect("a call that releases"));
    assert_eq!(counts(), (0, 0, 0));

    let things = all();
    stream.synchronize().expect("a wait");
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream is alive.
    let code = unsafe { cuStreamBeginCapture_v2(stream.as_raw(), mode) };
    assert!(code.is_success());
    drop(things);
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    let code = unsafe { cuStreamEndCapture(stream.as_raw(), &raw mut graph) };
    assert!(code.is_success(), "the drops invalidated nothing");
    // SAFETY: the graph was just created.
    assert!(unsafe { cuGraphDestroy(graph) }.is_success());
    // The pool was not bound to the stream, so it does not wait.
    assert_eq!(counts(), (1, 1, 0));
    drop(context.event().expect("a call that releases"));
    assert_eq!(counts(), (0, 0, 0));
}
