//! Host functions, default streams and captures of the software driver, tested with raw calls.

pub(crate) mod blocking;
pub(crate) mod callbacks;
pub(crate) mod driver_thread;
pub(crate) mod host_functions;

use crate::prelude::*;
use cuda_safe::sys::{CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status};

#[track_caller]
fn succeeds(result: CUresult) {
    assert!(result.is_success(), "{result}");
}

static RUNS: AtomicU32 = AtomicU32::new(0);
static INSIDE: AtomicU32 = AtomicU32::new(0);

/// Counts its runs, and stores the answers of the driver inside of it.
unsafe extern "C" fn host(data: *mut c_void) {
    RUNS.fetch_add(1, Ordering::Relaxed);
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable, and the call is refused.
    let code = unsafe { cuMemAlloc_v2(&raw mut address, 64) };
    INSIDE.store(code.0, Ordering::Relaxed);
    if !data.is_null() {
        // SAFETY: the data is a stream, which is idle except for this function.
        let code = unsafe { cuStreamQuery(data.cast()) };
        assert_ne!(code, CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
}

fn launch_host(stream: &Stream, data: *mut c_void) {
    // SAFETY: the function and its data live as long as the process.
    succeeds(unsafe { cuLaunchHostFunc(stream.as_raw(), Some(host), data) });
}

#[test]
fn a_host_function_runs_in_stream_order_and_most_calls_in_it_are_refused() {
    let (_end, context, stream) = in_child!(on_stream());
    let other = context.stream().expect("a stream");
    launch_host(&stream, other.as_raw().cast());
    assert_eq!(RUNS.load(Ordering::Relaxed), 0, "no wait so far");
    stream.synchronize().expect("a wait");
    assert_eq!(RUNS.load(Ordering::Relaxed), 1);
    assert_eq!(CUresult(INSIDE.load(Ordering::Relaxed)), CUresult::CUDA_ERROR_NOT_PERMITTED);
}

#[test]
fn objects_dropped_in_a_host_function_are_released_after_it() {
    unsafe extern "C" fn drop_it(data: *mut c_void) {
        // SAFETY: the test passes a boxed buffer, once.
        drop(unsafe { Box::from_raw(data.cast::<DeviceBuffer<u8>>()) });
    }
    let (_end, context) = in_child!(on(Profile::h200()));
    let (a, b) = (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let buffer = Box::new(DeviceBuffer::<u8>::zeroed_sync(&b, 64).expect("memory"));
    let data = Box::into_raw(buffer).cast();
    // SAFETY: the function takes ownership of the box once.
    succeeds(unsafe { cuLaunchHostFunc(a.as_raw(), Some(drop_it), data) });
    a.synchronize().expect("a wait");
    assert_eq!(cuda_safe::leaked(), 0);
    context.synchronize().expect("the queue is processed");
    assert_eq!(cuda_sim::alive().device_allocations, 0);
}

#[test]
fn blocking_streams_and_the_legacy_stream_wait_for_each_other() {
    let (_end, context) = in_child!(on(Profile::h200().with_seed(7)));
    let blocking = StreamOptions { blocking: true, ..Default::default() };
    let blocking = context.stream_with(blocking).expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&blocking, 1).expect("memory");
    let _current = context.make_current().expect("current");
    for round in 0..10 {
        buffer.fill(2 * round).expect("a fill");
        let (at, value) = (buffer.as_raw(), 2 * round + 1);
        // SAFETY: the byte is valid memory.
        succeeds(unsafe { cuMemsetD8Async(at, value, 1, CU_STREAM_LEGACY) });
        // SAFETY: the handle is the legacy stream of the current context.
        succeeds(unsafe { cuStreamSynchronize(CU_STREAM_LEGACY) });
        assert_eq!(buffer.to_vec().expect("a copy"), [2 * round + 1]);
    }
}

fn begin(stream: &Stream, mode: Mode) {
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamBeginCapture_v2(stream.as_raw(), mode) });
}

fn end(stream: &Stream) -> CUresult {
    let mut graph: CUgraph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    let code = unsafe { cuStreamEndCapture(stream.as_raw(), &raw mut graph) };
    if code.is_success() {
        // SAFETY: the graph was just created.
        succeeds(unsafe { cuGraphDestroy(graph) });
    }
    code
}

fn status(stream: &Stream) -> Status {
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuStreamIsCapturing(stream.as_raw(), &raw mut status) });
    status
}

/// Makes a `cuMemAlloc` and a `cuMemFree` call while a stream is captured, and returns the status
/// of the capture.
fn allocate_during(context: &Context, mode: Mode, other_thread: bool, relaxed: bool) -> CUresult {
    let stream = context.stream().expect("a stream");
    begin(&stream, mode);
    let work = || {
        let _current = context.make_current().expect("current");
        let mut mine = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
        if relaxed {
            // SAFETY: the pointer refers to a local variable.
            succeeds(unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mine) });
        }
        let mut address = 0;
        // SAFETY: the pointer refers to a local variable.
        let code = unsafe { cuMemAlloc_v2(&raw mut address, 64) };
        if code.is_success() {
            // SAFETY: the memory was just allocated, and nothing uses it.
            let _ = unsafe { cuMemFree_v2(address) };
        }
        if relaxed {
            // SAFETY: the pointer refers to a local variable.
            succeeds(unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mine) });
        }
    };
    if other_thread {
        std::thread::scope(|scope| scope.spawn(work).join().expect("no panic"));
    } else {
        work();
    }
    end(&stream)
}

/// Checks the table that was measured on an H200.
#[test]
fn allocations_invalidate_captures_as_on_a_real_driver() {
    const BROKEN: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    const KEPT: CUresult = CUresult::CUDA_SUCCESS;
    let (global, local) =
        (Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    let (_end, context) = in_child!(on(Profile::h200()));
    assert_eq!(allocate_during(&context, global, true, false), BROKEN);
    assert_eq!(allocate_during(&context, global, false, false), BROKEN);
    assert_eq!(allocate_during(&context, local, true, false), KEPT);
    assert_eq!(allocate_during(&context, local, false, false), BROKEN);
    for other_thread in [false, true] {
        assert_eq!(allocate_during(&context, global, other_thread, true), KEPT);
        assert_eq!(allocate_during(&context, local, other_thread, true), KEPT);
    }
}

#[test]
fn a_captured_copy_does_not_run() {
    let (_end, _context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::from_slice(&stream, &[1u8; 8]).expect("a copy");
    stream.synchronize().expect("a wait");
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    let mut host = [0u8; 8];
    let (to, from) = (host.as_mut_ptr().cast(), buffer.as_raw());
    // SAFETY: both sides have 8 bytes, and the host memory outlives the graph.
    succeeds(unsafe { cuMemcpyDtoHAsync_v2(to, from, 8, stream.as_raw()) });
    succeeds(end(&stream));
    assert_eq!(host, [0; 8]);
}

/// As measured on an H200, where other calls of other threads do not affect thread-local captures.
#[test]
fn a_wait_for_the_context_invalidates_the_captures_of_all_threads() {
    let (_end, context) = in_child!(on(Profile::h200()));
    for mode in [Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL] {
        let stream = context.stream().expect("a stream");
        begin(&stream, mode);
        std::thread::scope(|scope| {
            scope.spawn(|| context.synchronize().expect_err("in a capture"));
        });
        assert_eq!(end(&stream), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
}

fn timed(context: &Context) -> Event {
    let options = EventOptions { timing: true, ..Default::default() };
    context.event_with(options).expect("an event")
}

#[test]
fn an_event_whose_last_record_is_pending_has_no_time() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = || context.stream().expect("a stream");
    let (a, b) = (stream(), stream());
    let event = || timed(&context);
    let (start, end, mark, tail) = (event(), event(), event(), event());
    for event in [&start, &end, &mark, &tail] {
        event.record(&a).expect("a record");
    }
    b.wait_event(&tail).expect("a wait");
    end.record(&b).expect("a record");
    mark.synchronize().expect("a wait");
    let early = end.elapsed_since(&start).expect_err("its last record is pending");
    assert_eq!(early.code(), Some(CUresult::CUDA_ERROR_NOT_READY));
    context.synchronize().expect("a wait");
    end.elapsed_since(&start).expect("both ran");
}

#[test]
fn an_older_record_that_runs_later_does_not_change_the_time_of_an_event() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = || context.stream().expect("a stream");
    let (a, b, c) = (stream(), stream(), stream());
    let (start, end, tail) = (timed(&context), timed(&context), timed(&context));
    start.record(&c).expect("a record");
    for _ in 0..64 {
        tail.record(&a).expect("a record");
    }
    b.wait_event(&tail).expect("a wait");
    end.record(&b).expect("a record");
    end.record(&c).expect("a record");
    c.synchronize().expect("a wait");
    let time = end.elapsed_since(&start).expect("both ran");
    context.synchronize().expect("a wait");
    assert_eq!(end.elapsed_since(&start).expect("both ran"), time);
}

#[test]
fn drops_do_not_affect_captures_and_buffers_of_a_captured_stream_are_deferred() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (captured, other) =
        (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let plain = DeviceBuffer::<u8>::zeroed_sync(&other, 64).expect("memory");
    let ordered = DeviceBuffer::<u8>::zeroed(&other, 64).expect("memory");
    let mut its = DeviceBuffer::<u8>::zeroed(&captured, 64).expect("memory");
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let event = context.event().expect("an event");
    context.synchronize().expect("a wait");
    begin(&captured, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL);
    its.fill(1).expect("captured");
    drop((plain, ordered, pinned, event, other));
    drop(its);
    assert_eq!(status(&captured), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    succeeds(end(&captured));
    context.synchronize().expect("the queue is processed");
    assert_eq!(cuda_sim::alive().device_allocations, 0);
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn waiting_for_a_captured_stream_invalidates_the_capture() {
    let (_end, _context, stream) = in_child!(on_stream());
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    let error = stream.synchronize().expect_err("in a capture");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
    assert_eq!(end(&stream), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn a_captured_stream_refuses_host_functions() {
    let (_end, _context, stream) = in_child!(on_stream());
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    let refused = stream.launch_host_function(|| {}).expect_err("in a capture");
    assert!(refused.to_string().contains("the stream is being captured"), "{refused}");
    assert_eq!(status(&stream), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    succeeds(end(&stream));
}

#[test]
fn a_host_function_that_the_driver_refuses_is_dropped() {
    let (_end, _context, stream) = in_child!(on_stream());
    let owned = Arc::new(());
    let kept = Arc::clone(&owned);
    let _fails = Fault::of_function("cuLaunchHostFunc")
        .with(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        .inject(Scope::Thread);
    stream.launch_host_function(move || drop(kept)).expect_err("the fault");
    assert_eq!(Arc::strong_count(&owned), 1);
}

#[test]
fn a_wait_for_a_value_has_one_of_four_conditions() {
    let (_end, _context, stream) = in_child!(on_stream());
    let word = DeviceBuffer::<u32>::zeroed_sync(&stream, 1).expect("memory");
    let wait = |flags| code!(cuStreamWaitValue32_v2(stream.as_raw(), word.as_raw(), 0, flags));
    assert_eq!([0, 1, 3].map(wait), [CUresult::CUDA_SUCCESS; 3]);
    assert_eq!([4, 5, u32::MAX].map(wait), [INVALID; 3]);
}

#[test]
fn a_query_of_a_stream_with_an_invalid_capture_fails() {
    let (_end, _context, stream) = in_child!(on_stream());
    begin(&stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    stream.synchronize().expect_err("in a capture");
    let mut green = null_mut();
    let code = code!(cuStreamGetGreenCtx(stream.as_raw(), &raw mut green));
    assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(end(&stream), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}
