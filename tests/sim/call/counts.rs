//! The driver calls of the safe layer: no more than a C program would make.

use crate::prelude::*;
use cuda_safe::Kernel;
use cuda_safe::error::LaunchLimit;

fn event(context: &Context) -> Event {
    context.event().expect("an event")
}

fn stream(context: &Context) -> Stream {
    context.stream().expect("a stream")
}

/// Returns the kernel that takes no parameters and does nothing.
fn nothing(context: &Context) -> TypedKernel<()> {
    let module = Module::from_ptx(context, VECTOR).expect("the test kernels");
    let nothing = module.kernel("nothing").expect("found");
    nothing.typed().expect("no parameters")
}

#[test]
fn a_launch_with_two_buffers_is_one_call() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let add = module.kernel("add").expect("found");
    let add = add.typed::<(&[f32], &[f32], &mut [f32], u32)>().expect("its parameters");
    let a = DeviceBuffer::from_slice(&stream, &[1.0f32; 100]).expect("a copy");
    let mut sum = DeviceBuffer::<f32>::zeroed(&stream, 100).expect("memory");
    let config = LaunchConfig::for_elements(100, 64).expect("a shape");
    let log = calls(|| {
        // SAFETY: all three buffers have 100 elements.
        unsafe { add.launch(&stream, config, (&a, &a, &mut sum, 100)) }.expect("a launch");
    });
    assert_eq!(log, ["cuLaunchKernel"]);
    assert_eq!(sum.to_vec().expect("a copy"), [2.0; 100]);
}

#[test]
fn a_launch_of_a_builder_is_one_call_after_the_first() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let scale = module.kernel("scale").expect("found");
    let mut x = DeviceBuffer::from_slice(&stream, &[1_i32; 4]).expect("a copy");
    let mut launch = |kernel: &Kernel| {
        let mut launch = kernel.launch_builder(&stream);
        launch.arg(&mut x).arg(2_i32).arg(0_i32).arg(4_u32);
        // SAFETY: the kernel accesses 4 elements, and the memory has 4.
        unsafe { launch.launch(LaunchConfig::linear(1, 4)) }.expect("a launch");
    };
    let first = calls(|| launch(&scale));
    assert!(first.contains(&"cuFuncGetParamInfo"), "{first:?}");
    // Clones of the kernel share the answer.
    assert_eq!(calls(|| launch(&scale)), ["cuLaunchKernel"]);
    assert_eq!(calls(|| launch(&scale.clone())), ["cuLaunchKernel"]);
    // A typed kernel uses the same answer.
    let typed = calls(|| {
        scale.typed::<(&mut [i32], i32, i32, u32)>().expect("its parameters");
    });
    assert!(typed.is_empty(), "{typed:?}");
}

#[test]
fn captured_launches_of_a_builder_and_of_a_typed_kernel_make_the_same_calls() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let nothing = nothing(&context);
    let config = LaunchConfig::linear(1, 1);
    let open = stream.begin_capture(CaptureMode::ThreadLocal).expect("begins");
    // SAFETY: the kernel does nothing.
    let typed = calls(|| unsafe { nothing.launch(&stream, config, ()) }.expect("typed"));
    let built = calls(|| {
        let launch = nothing.kernel().launch_builder(&stream);
        // SAFETY: as above.
        unsafe { launch.launch(config) }.expect("built");
    });
    assert_eq!(typed, ["cuLaunchKernel"]);
    assert_eq!(built, typed);
    drop(open.end().expect("a graph"));
}

#[test]
fn a_refused_launch_is_explained_by_queries_of_its_limits() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let nothing = nothing(&context);
    let launch = |config| {
        // SAFETY: the kernel does nothing.
        unsafe { nothing.launch(&stream, config, ()) }
    };
    let log = calls(|| drop(launch(LaunchConfig::linear(1, 2048)).expect_err("too many")));
    assert_eq!(log, ["cuLaunchKernel", "cuLogsDumpToMemory", "cuDeviceGetAttribute"]);

    // If a query fails, the other limits are still checked.
    let fault = Fault::of_function("cuDeviceGetAttribute").from_then_on();
    let fault = fault.with(CUresult::CUDA_ERROR_UNKNOWN).inject(Scope::Thread);
    let error = launch(LaunchConfig::linear(1, 2048)).expect_err("too many");
    drop(fault);
    let found = match error {
        Error::Launch(error) => error.limit,
        other => panic!("{other}"),
    };
    assert!(matches!(found, LaunchLimit::KernelThreads { max: 1024, .. }), "{found}");
}

#[test]
fn a_refused_launch_within_all_limits_keeps_the_error_of_the_driver() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let nothing = nothing(&context);
    let fault = Fault::of_function("cuLaunchKernel").from_then_on();
    let fault = fault.with(CUresult::CUDA_ERROR_INVALID_VALUE).inject(Scope::Thread);
    // SAFETY: the kernel does nothing.
    let refused = unsafe { nothing.launch(&stream, LaunchConfig::linear(1, 32), ()) };
    drop(fault);
    let error = refused.expect_err("the fault");
    assert!(matches!(error, Error::Driver(_)), "{error}");
}

#[test]
fn operations_on_a_stream_event_or_buffer_are_one_call() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let event = context.event().expect("an event");
    let from = DeviceBuffer::<u32>::zeroed(&stream, 10).expect("memory");
    let mut to = DeviceBuffer::<u32>::zeroed(&stream, 10).expect("memory");
    let one = |log: Vec<&str>, function: &str| assert_eq!(log, [function]);
    one(calls(|| event.record(&stream).expect("a record")), "cuEventRecord");
    one(calls(|| stream.wait_event(&event).expect("a wait")), "cuStreamWaitEvent");
    one(calls(|| to.copy_from(&from).expect("a copy")), "cuMemcpyDtoDAsync_v2");
    one(calls(|| to.fill(1).expect("a fill")), "cuMemsetD32Async");
    one(calls(|| to.zero().expect("a fill")), "cuMemsetD8Async");
    one(calls(|| stream.synchronize().expect("a wait")), "cuStreamSynchronize");
    one(calls(|| event.synchronize().expect("a wait")), "cuEventSynchronize");
    one(calls(|| assert!(stream.is_complete().expect("a query"))), "cuStreamQuery");
    let mut made = None;
    let allocate = || made = Some(DeviceBuffer::<u8>::uninit(&stream, 8).expect("memory"));
    one(calls(allocate), "cuMemAllocAsync");
}

#[test]
fn creations_push_and_pop_the_context() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let around = |middle: &'static str| {
        ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", middle, "cuCtxGetCurrent", "cuCtxPopCurrent_v2"]
    };
    let mut event = None;
    let log = calls(|| event = Some(context.event().expect("an event")));
    assert_eq!(log, around("cuEventCreate"));
    // With the context current, no push is needed.
    let mut stream = None;
    let log =
        context.with_current(|_| calls(|| stream = Some(context.stream().expect("a stream"))));
    assert_eq!(log.expect("current"), ["cuCtxGetCurrent", "cuStreamCreateWithPriority"]);
}

#[test]
fn a_reset_of_the_persisting_l2_cache_reaches_the_driver() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let reset = || context.reset_persisting_l2().expect("nothing persists");
    let once = "cuCtxResetPersistingL2Cache";
    let around =
        ["cuCtxGetCurrent", "cuCtxPushCurrent_v2", once, "cuCtxGetCurrent", "cuCtxPopCurrent_v2"];
    assert_eq!(calls(reset), around);
    let log = context.with_current(|_| calls(reset));
    assert_eq!(log.expect("current"), ["cuCtxGetCurrent", once]);
}

#[test]
fn a_switch_between_known_partitionings_creates_nothing() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let options = GreenPoolOptions::default();
    let pool = GreenPool::new(&context.device(), options).expect("no other pool has the device");
    let sizes = [16, 32].map(|size| PartitionRequest {
        sizes: vec![PartitionSize::Sms(size), PartitionSize::Rest],
        ..PartitionRequest::default()
    });
    let lease = |asked: &PartitionRequest| {
        let lease = pool.try_lease(asked).expect("a lease");
        for partition in lease.iter() {
            partition.stream().expect("a stream");
        }
    };
    sizes.iter().for_each(lease);
    let log = calls(|| sizes.iter().for_each(lease));
    // Two streams each: one event after each stream of the first, and a wait for it on each
    // stream of the second.
    let once = [["cuEventRecord"; 2].as_slice(), ["cuStreamWaitEvent"; 4].as_slice()].concat();
    assert_eq!(log, [once.clone(), once].concat());
}

#[test]
fn planning_queries_and_creates_nothing() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let resource = SmResource::of_device(&context.device()).expect("a resource");
    let mut log = calls(|| {
        assert_eq!(resource.equal_splits(SplitFlags::empty()).expect("a table").len(), 17);
        let plan = resource.plan(&PartitionRequest {
            sizes: vec![PartitionSize::Sms(16), PartitionSize::Rest],
            ..PartitionRequest::default()
        });
        assert_eq!(plan.expect("a plan").remaining, 0);
    });
    log.sort_unstable();
    log.dedup();
    assert_eq!(log, ["cuDevSmResourceSplitByCount", "cuDriverGetVersion"]);
    assert_eq!(cuda_sim::alive().green_contexts, 0);
}

#[test]
fn splitting_a_part_of_a_pool_again_creates_nothing() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let options = GreenPoolOptions::default();
    let pool = GreenPool::new(&context.device(), options).expect("no other pool has the device");
    let of = |sizes: &[PartitionSize]| PartitionRequest {
        sizes: sizes.to_vec(),
        ..PartitionRequest::default()
    };
    let (whole, halves) =
        (of(&[PartitionSize::Sms(64), PartitionSize::Rest]), of(&[PartitionSize::Percent(50); 2]));
    let split = || {
        let part = pool.try_lease(&whole).expect("a lease").into_partitions().remove(0);
        let smaller = part.split(&halves).expect("a split");
        for part in smaller.iter() {
            part.stream().expect("a stream");
        }
    };
    let log = calls(split);
    let made = |log: &[&str], function| log.iter().filter(|its| **its == function).count();
    assert_eq!(made(&log, "cuGreenCtxCreate"), 4);
    assert_eq!(made(&log, "cuGreenCtxStreamCreate"), 2);
    assert_eq!(calls(split), [""; 0], "no driver call at all");
    // From the halves to the whole, and back.
    let log = calls(|| {
        let lease = pool.try_lease(&whole).expect("a lease");
        lease[0].stream().expect("a stream");
    });
    assert_eq!(made(&log, "cuGreenCtxStreamCreate"), 1);
    assert_eq!(made(&log, "cuEventRecord"), 2);
    assert_eq!(calls(split), ["cuEventRecord", "cuStreamWaitEvent", "cuStreamWaitEvent"]);
}

#[test]
fn a_future_is_one_call_and_polling_makes_none() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let mut done = None;
    let log = calls(|| done = Some(stream.completion().expect("a future")));
    assert_eq!(log, ["cuStreamAddCallback"]);
    let log = calls(|| {
        use std::future::Future;
        let mut done = done.take().expect("made above");
        let mut task = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(std::pin::pin!(&mut done).poll(&mut task).is_pending(), "no wait so far");
        cuda_sim::alive();
        assert!(std::pin::pin!(&mut done).poll(&mut task).is_ready(), "all work has completed");
    });
    assert_eq!(log, [""; 0]);
}

#[test]
fn a_default_stream_queries_the_current_context() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let event = context.event().expect("an event");
    let current = context.make_current().expect("current");
    let log = calls(|| current.legacy_stream().record_event(&event).expect("a record"));
    assert_eq!(log, ["cuCtxGetCurrent", "cuEventRecord"]);
    let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let inner = own.make_current().expect("current");
    let log = calls(|| current.legacy_stream().record_event(&event).expect("a record"));
    let around = [
        "cuCtxGetCurrent",
        "cuCtxPushCurrent_v2",
        "cuEventRecord",
        "cuCtxGetCurrent",
        "cuCtxPopCurrent_v2",
    ];
    assert_eq!(log, around);
    inner.end().expect("innermost");
    current.end().expect("innermost");
}

/// Returns the number of calls of all operations that must not be captured, and how many of them
/// query the capture status.
fn uncaptured(stream: &Stream) -> (Vec<&'static str>, usize) {
    let context = stream.context();
    let mut log = calls(|| {
        let mut buffer = DeviceBuffer::<u8>::uninit(stream, 8).expect("memory");
        let host = PinnedBuffer::zeroed(context, 8).expect("memory");
        let host = buffer.copy_from_pinned(host).expect("a copy").synchronize();
        let host = host.expect("the copy is enqueued");
        drop(buffer.copy_to_pinned(host).expect("a copy").synchronize());
        stream.launch_host_function(|| ()).expect("a host function");
        drop(stream.completion().expect("a future"));
    });
    let all = log.len();
    log.retain(|call| *call != "cuStreamIsCapturing");
    let asked = all - log.len();
    (log, asked)
}

/// Covers an allocation and its free, two copies, a host function and a future.
const OPERATIONS: usize = 6;

#[test]
fn only_a_stream_with_an_exposed_handle_queries_captures() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (taken, other) = (stream(&context), stream(&context));
    let (calls, asked) = uncaptured(&taken);
    assert_eq!(asked, 0);
    assert!(!taken.as_raw().is_null());
    assert_eq!(uncaptured(&taken), (calls.clone(), OPERATIONS));
    assert_eq!(uncaptured(&other), (calls, 0));
}

#[test]
fn a_stream_is_shared_when_an_array_is_exported_with_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 8).expect("memory");
    assert!(buffer.array_interface().expect("an array").stream().is_some());
    assert_eq!(uncaptured(&stream).1, OPERATIONS);
}

#[test]
fn an_open_capture_makes_no_other_stream_query_captures() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (captured, other) = (stream(&context), stream(&context));
    let graph = captured.capture::<Error>(CaptureMode::Relaxed, |_| {
        assert_eq!(uncaptured(&other).1, 0);
        Ok(())
    });
    drop(graph.expect("a valid capture"));
    assert_eq!(uncaptured(&captured).1, 0);
}

/// Returns the number of calls of a wait, and how many of them query whether the stream joined a
/// capture.
fn asked_by_wait(stream: &Stream, event: &Event) -> usize {
    let log = calls(|| stream.wait_event(event).expect("a wait"));
    log.iter().filter(|call| **call == "cuStreamGetCaptureInfo_v3").count()
}

#[test]
fn only_a_wait_for_an_event_with_an_exposed_handle_queries_whether_the_stream_joined_a_capture() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let (taken, other) = (event(&context), event(&context));
    for event in [&taken, &other] {
        event.record(&stream).expect("a record");
        assert_eq!(asked_by_wait(&stream, event), 0);
    }
    assert!(!taken.as_raw().is_null());
    assert_eq!(asked_by_wait(&stream, &taken), 1);
    assert_eq!(asked_by_wait(&stream, &other), 0);
    assert_eq!(uncaptured(&stream).1, 0, "it joined no capture");
}

#[test]
fn a_graph_with_an_exposed_handle_shares_the_events_it_retains() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let (retained, other) = (event(&context), event(&context));
    let graph = stream.capture(CaptureMode::Relaxed, |stream| retained.record_external(stream));
    assert!(!graph.expect("a valid capture").as_raw().is_null());
    assert_eq!(asked_by_wait(&stream, &retained), 1);
    assert_eq!(asked_by_wait(&stream, &other), 0);
    assert_eq!(uncaptured(&stream).1, 0);
}

#[test]
fn clones_of_streams_and_contexts_make_no_driver_call() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = stream(&context);
    let mut clones = Vec::new();
    let log = calls(|| {
        clones.extend((0..10).map(|_| (stream.clone(), context.clone())));
        clones.truncate(5);
    });
    assert_eq!(log, [""; 0]);
    drop(stream);
    assert_eq!(calls(|| clones.truncate(1)), [""; 0]);
    assert_eq!(calls(|| clones.clear()), ["cuStreamDestroy_v2"]);
}

/// As its documentation says, a stream is one pointer.
const _: () = assert!(size_of::<Stream>() == size_of::<usize>());
