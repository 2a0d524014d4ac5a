//! Waits and releases happen whatever happened before, errors are those of the call that returns
//! them, and objects created for a stream belong to its context.

use crate::prelude::*;

fn pinned(context: &Context, len: usize) -> PinnedBuffer<i32> {
    PinnedBuffer::zeroed(context, len).expect("memory")
}

#[test]
fn a_pool_is_destroyed_after_the_free_of_its_memory() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut last = std::ptr::null_mut();
    let mut of_a_pool = || {
        let pool = MemoryPool::new(&context, Default::default()).expect("a pool");
        last = pool.as_raw();
        DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 64).expect("memory")
    };
    let releases = |log: Vec<&'static str>| -> Vec<_> {
        let is = |name: &&str| ["cuMemFreeAsync", "cuMemPoolDestroy"].contains(name);
        log.into_iter().filter(is).collect()
    };
    let both = ["cuMemFreeAsync", "cuMemPoolDestroy"];
    let buffer = of_a_pool();
    assert_eq!(releases(calls(|| drop(buffer))), both);
    // If the free is deferred, so is the destruction of the pool.
    let buffer = of_a_pool();
    let capture = stream.begin_capture(Default::default()).expect("begins");
    assert_eq!(releases(calls(|| drop(buffer))), [""; 0]);
    let end = || {
        drop(capture);
        stream.synchronize().expect("a wait");
    };
    assert_eq!(releases(calls(end)), both);
    // Memory released by `into_raw` keeps its pool alive.
    let buffer = of_a_pool();
    let leaked = cuda_safe::leaked();
    let (address, its) = buffer.into_raw();
    assert_eq!(cuda_safe::leaked(), leaked + 1, "the pool stays");
    // SAFETY: the buffer released ownership of the memory.
    let code = unsafe { cuMemFreeAsync(address, its.as_raw()) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    assert_eq!(cuda_sim::alive().pools, 1);
    // SAFETY: the pool belonged to the buffer, and its memory is freed.
    let code = unsafe { cuMemPoolDestroy(last) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    its.synchronize().expect("a wait");
}

#[test]
fn a_copy_is_waited_for_before_its_memory_is_read_or_freed() {
    let (_end, context) = in_child!(on(Profile::h200()));
    // The stream has only this object and the buffer's.
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3]).expect("memory");
    drop(stream);
    buffer.fill(7).expect("a fill");
    let pending = buffer.copy_to_pinned(pinned(&context, 3)).expect("a copy");
    let mut host = None;
    let log = calls(|| host = Some(pending.synchronize().expect("a wait")));
    assert_eq!(log, ["cuStreamSynchronize"]);
    assert_eq!(*host.expect("returned"), [7; 3]);

    let pending = buffer.copy_to_pinned(pinned(&context, 3)).expect("a copy");
    let log = calls(|| drop(pending));
    let at = |function| log.iter().position(|its| *its == function);
    let (wait, free) = (at("cuStreamSynchronize"), at("cuMemFreeHost"));
    assert!(wait.is_some() && wait < free, "{log:?}");
}

#[test]
fn memory_outlives_the_work_of_a_dropped_stream() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (first, second) =
        (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let source = DeviceBuffer::from_slice(&first, &[5; 100]).expect("memory");
    let shared = source.share().expect("an event");
    let mut copy = DeviceBuffer::<i32>::zeroed(&second, 100).expect("memory");
    let reader = shared.on(&second).expect("a reader");
    copy.copy_from(&reader).expect("a copy");
    // None of this work has run.
    drop((first, second, shared, reader));
    assert_eq!(copy.to_vec().expect("a copy"), [5; 100]);
}

#[test]
fn an_earlier_error_prevents_no_wait_and_no_release() {
    let (_end, context, stream) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let event = context.event().expect("an event");
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 100).expect("memory");
    let fail = |function| {
        Fault::of_function(function).with(CUresult::CUDA_ERROR_UNKNOWN).inject(Scope::Thread)
    };
    let pending = buffer.copy_to_pinned(pinned(&context, 100)).expect("a copy");
    for function in ["cuEventRecord", "cuStreamWaitEvent", "cuMemsetD32Async"] {
        let fault = fail(function);
        match function {
            "cuEventRecord" => event.record(&stream),
            "cuStreamWaitEvent" => stream.wait_event(&event),
            _ => buffer.fill(1),
        }
        .expect_err("the fault");
        assert_eq!(fault.hits(), 1);
    }
    let log = calls(|| drop(pending.synchronize().expect("its own wait")));
    assert_eq!(log[0], "cuStreamSynchronize", "{log:?}");
    assert!(log.contains(&"cuMemFreeHost"), "{log:?}");
    let log = calls(|| drop((buffer, event)));
    for function in ["cuMemFreeAsync", "cuEventDestroy_v2"] {
        assert!(log.contains(&function), "{log:?}");
    }
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn a_failed_drop_is_not_the_error_of_a_later_call() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let (first, second) =
        (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let event = context.event().expect("an event");
    {
        let _fails = Fault::of_function("cuStreamDestroy_v2")
            .with(CUresult::CUDA_ERROR_UNKNOWN)
            .inject(Scope::Thread);
        drop(first);
    }
    assert_eq!(cuda_safe::leaked(), 1, "reported, and not returned by other calls");
    event.record(&second).expect("a record");
    event.synchronize().expect("a wait");
    let buffer = DeviceBuffer::from_slice(&second, &[1]).expect("memory");
    assert_eq!(buffer.to_vec().expect("a copy"), [1]);
    context.synchronize().expect("a wait");
}

#[test]
fn a_copy_of_a_slice_has_completed_when_it_returns() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut numbers = vec![1; 100];
    let mut buffer = DeviceBuffer::from_slice(&stream, &numbers).expect("memory");
    numbers.fill(2);
    assert_eq!(buffer.to_vec().expect("a copy"), [1; 100]);
    buffer.copy_from_slice(&numbers).expect("a copy");
    numbers.fill(3);
    // The slice is filled after the work of the stream, although the stream waits for no other
    // stream.
    buffer.copy_to_slice(&mut numbers).expect("a copy");
    assert_eq!(numbers, [2; 100]);
    buffer.fill(4).expect("a fill");
    buffer.copy_to_slice(&mut numbers).expect("a copy");
    assert_eq!(numbers, [4; 100]);
    // The same holds for slices of pinned memory.
    let mut host = pinned(&context, 100);
    buffer.copy_to_slice(&mut host[..]).expect("a copy");
    assert_eq!(*host, [4; 100]);
}

#[test]
fn an_unknown_code_is_an_error_with_its_number() {
    let (_end, _context, stream) = in_child!(on_stream());
    for number in [1999, 123_456, 0x7fff_ffff] {
        let _answers =
            Fault::of_function("cuStreamSynchronize").with(CUresult(number)).inject(Scope::Thread);
        let error = stream.synchronize().expect_err("the fault");
        assert_eq!(error.code(), Some(CUresult(number)));
        let (text, debug) = (error.to_string(), format!("{error:?}"));
        assert!(text.contains(&number.to_string()), "{text}");
        assert!(debug.contains(&number.to_string()), "{debug}");
    }
}

#[test]
fn a_context_that_cannot_be_made_current_runs_no_work() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _fails = Fault::of_function("cuCtxPushCurrent_v2")
        .from_then_on()
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Thread);
    assert!(context.with_current(|_| panic!("in another context")).is_err());
    context.make_current().expect_err("the fault");
    let log = calls(|| {
        PinnedBuffer::<u8>::zeroed(&context, 8).expect_err("the fault");
        Module::from_ptx(&context, VECTOR).expect_err("the fault");
        context.event().expect_err("the fault");
    });
    let is_made = |function: &&str| function.contains("Load") || function.contains("Host");
    assert!(!log.iter().any(is_made), "{log:?}");
    assert!(!log.contains(&"cuEventCreate"), "{log:?}");
}

/// Creates objects for a stream while another context is current.
fn make(context: &Context, stream: &Stream) -> Result<(), Error> {
    let device = context.device().ordinal();
    let is_its = |address: u64| -> Result<(), Error> {
        stream.synchronize()?;
        let info = context.pointer_info(address)?.expect("it was allocated");
        assert_eq!(info.device, Some(device), "{info:?}");
        Ok(())
    };
    is_its(DeviceBuffer::from_slice(stream, &[1u8; 64])?.as_raw())?;
    is_its(DeviceBuffer::<u8>::zeroed(stream, 64)?.as_raw())?;
    is_its(DeviceBuffer::<u8>::zeroed_sync(stream, 64)?.as_raw())?;
    is_its(PitchedBuffer::<u8>::zeroed(stream, 8, 8)?.as_slice().as_raw())?;
    is_its(ManagedBuffer::<u8>::zeroed(stream, 64)?.as_raw())?;
    let host = PinnedBuffer::<u8>::zeroed(context, 64)?;
    is_its(MappedBuffer::new(host, stream)?.as_raw())?;
    let pool = MemoryPool::new(context, Default::default())?;
    is_its(DeviceBuffer::<u8>::zeroed_from_pool(&pool, stream, 64)?.as_raw())?;
    let event = context.event()?;
    event.record(stream)?;
    event.synchronize()?;
    let module = Module::from_ptx(context, VECTOR)?;
    assert_eq!(module.kernel("nothing")?.context(), context);
    let nothing = Library::from_ptx(VECTOR)?.kernel(context, "nothing")?.typed::<()>()?;
    // SAFETY: the kernel does nothing.
    unsafe { nothing.launch(stream, LaunchConfig::linear(1, 1), ()) }?;
    stream.synchronize()
}

#[test]
fn objects_created_for_a_stream_belong_to_its_device_with_any_current_context() {
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
    let stream = second.stream().expect("a stream");
    make(&second, &stream).expect("with nothing current");
    let made = first.with_current(|_| make(&second, &stream));
    made.and_then(|made| made).expect("with the other device current");
}

#[test]
fn a_stream_keeps_its_partition_alive() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let resource = SmResource::of_device(&context.device()).expect("an H200 has green contexts");
    let split = resource.split_by_count(SplitByCount { max_groups: Some(1), ..Default::default() });
    let group = split.expect("a split").groups.pop().expect("a group");
    let green = GreenContext::new([group]).expect("a partition");
    let stream = green.stream().expect("a stream");
    drop((green, context));
    let buffer = DeviceBuffer::from_slice(&stream, &[1, 2]).expect("memory");
    let log = calls(|| drop(stream));
    assert!(log.is_empty(), "the buffer keeps it alive: {log:?}");
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 2]);
    let log = calls(|| drop(buffer));
    let at = |function| log.iter().position(|its| *its == function);
    let order = [
        "cuMemFreeAsync",
        "cuStreamDestroy_v2",
        "cuGreenCtxDestroy",
        "cuDevicePrimaryCtxRelease_v2",
    ]
    .map(|function| at(function).unwrap_or_else(|| panic!("{function}: {log:?}")));
    assert!(order.is_sorted(), "{log:?}");
}

#[test]
fn a_reset_primary_context_works_like_a_new_one() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let device = context.device();
    drop(context);
    // SAFETY: nothing in this process uses the device.
    unsafe { device.reset_primary() }.expect("a reset");
    assert!(!device.primary_state().expect("an answer").active);
    let stream = Context::primary(&device).expect("a context").stream().expect("a stream");
    stream.synchronize().expect("a wait");
}

#[test]
fn objects_created_before_a_reset_are_destroyed_for_all_owners_of_the_primary_context() {
    let (context, stream) = &in_child!(expecting_misuse());
    let event = context.event().expect("an event");
    let memory = DeviceBuffer::<u8>::zeroed_sync(stream, 64).expect("memory");
    let (raw_stream, raw_event) = (stream.as_raw(), event.as_raw());
    let before = cuda_sim::alive();
    assert_eq!((before.streams, before.events), (1, 1));
    assert_eq!((before.device_allocations, before.retains), (1, 1));
    // SAFETY: the objects are used by raw calls only, whose codes are checked.
    unsafe { context.device().reset_primary() }.expect("a reset");
    std::mem::forget((memory, event, stream.clone()));
    let after = cuda_sim::alive();
    assert_eq!((after.streams, after.events), (0, 0));
    assert_eq!((after.device_allocations, after.retains), (0, 1));
    let destroyed = CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    // SAFETY: the software driver recognizes the destroyed stream.
    assert_eq!(unsafe { cuStreamQuery(raw_stream) }, destroyed);
    let invalid = CUresult::CUDA_ERROR_INVALID_HANDLE;
    // SAFETY: as above, for the event.
    assert_eq!(unsafe { cuEventQuery(raw_event) }, invalid);
    found("a stream is used after it was destroyed");
    found("an event is used after it was destroyed");
    let again = context.stream().expect("the context is active again");
    again.synchronize().expect("a wait");
}
