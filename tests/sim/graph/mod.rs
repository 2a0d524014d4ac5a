//! Captures and graphs, where only the software driver shows what happens.

pub(crate) mod alloc;
pub(crate) mod calls;
pub(crate) mod captures;
pub(crate) mod changes;
pub(crate) mod conditionals;
pub(crate) mod copies;
pub(crate) mod hazards;
pub(crate) mod into_raw;
pub(crate) mod kernels;
pub(crate) mod late;
pub(crate) mod memory;
pub(crate) mod nodes;
pub(crate) mod owners;
pub(crate) mod queries;
pub(crate) mod rechecks;
pub(crate) mod retained;
pub(crate) mod stale;
pub(crate) mod updates;
pub(crate) mod user_objects;

use crate::prelude::*;
use crate::software::misuses::succeeds;
use cuda_safe::capture::CaptureStatus;

/// Retries deferred releases.
pub(crate) fn drain(context: &Context) {
    drop(context.event().expect("an event"));
}

#[test]
fn launching_a_graph_after_its_buffer_was_dropped_is_an_illegal_address() {
    let (_context, stream) = &in_child!(expecting_misuse());
    let mut buffer = DeviceBuffer::<u8>::zeroed(stream, 64).expect("memory");
    let graph = stream.capture(CaptureMode::default(), |_| buffer.fill(1));
    let graph = graph.expect("a graph").instantiate().expect("an executable graph");
    drop(buffer);
    // SAFETY: the contract is violated on purpose: the buffer was freed.
    unsafe { graph.launch_unchecked(stream) }.expect("a launch does not wait");
    let error = stream.synchronize().expect_err("an illegal address");
    assert!(error.is_fatal(), "{error}");
    found("are not allocated");
}

#[test]
fn a_captured_copy_reads_its_slice_at_each_launch() {
    let (_end, _context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    let mut source = Box::new([1u8; 4]);
    let from = source.as_mut_ptr();
    let graph = stream.capture::<Error>(CaptureMode::default(), |stream| {
        let (to, raw) = (buffer.as_raw(), stream.as_raw());
        // SAFETY: both sides have 4 bytes and outlive the graph.
        succeeds(unsafe { cuMemcpyHtoDAsync_v2(to, from.cast(), 4, raw) });
        Ok(())
    });
    let graph = graph.expect("a graph").instantiate().expect("an executable graph");
    for value in [2, 3] {
        // SAFETY: the source is alive, and nothing else uses it at this time.
        unsafe { from.write_bytes(value, 4) };
        // SAFETY: the buffer and the source are alive, and the stream is waited for.
        unsafe { graph.launch_unchecked(&stream) }.expect("a launch");
        assert_eq!(buffer.to_vec().expect("a copy"), [value; 4]);
    }
    drop(source);
}

/// The branches of the graph race, and each seed gives another order.
#[test]
fn branches_of_a_graph_are_unordered() {
    in_child!();
    start(Profile::h200().with_seed(3).with_race_detection());
    let context = crate::context();
    let (a, b) = (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let (forks, joins) = (context.event().expect("an event"), context.event().expect("an event"));
    let mut buffer = DeviceBuffer::<u8>::zeroed(&a, 1).expect("memory");
    a.synchronize().expect("a wait");
    let graph = a.capture(CaptureMode::default(), |a| {
        forks.record(a)?;
        b.wait_event(&forks)?;
        buffer.fill(1)?;
        // SAFETY: the byte is valid memory, and the race is the subject of the test.
        succeeds(unsafe { cuMemsetD8Async(buffer.as_raw(), 2, 1, b.as_raw()) });
        joins.record(&b)?;
        a.wait_event(&joins)
    });
    let graph = graph.expect("a graph").instantiate().expect("an executable graph");
    let mut seen = Vec::new();
    for _ in 0..16 {
        // SAFETY: as above.
        unsafe { graph.launch_unchecked(&a) }.expect("a launch");
        seen.push(buffer.to_vec().expect("a copy")[0]);
    }
    assert!(seen.contains(&1) && seen.contains(&2), "{seen:?}");
    let [race] = &cuda_sim::races()[..] else {
        panic!("{:?}", cuda_sim::races());
    };
    let remedy = "Add a dependency between the two nodes of the graph.";
    assert!(race.to_string().ends_with(remedy), "{race}");
}

#[test]
fn a_refused_end_of_a_capture_is_retried_and_the_graph_is_lost() {
    let (_end, _context, stream) = in_child!(on_stream());
    let capture = stream.begin_capture(CaptureMode::default()).expect("begins");
    let fault = Fault::of_function("cuStreamEndCapture").inject(Scope::Thread);
    let error = capture.end().expect_err("the fault");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_UNKNOWN));
    drop(fault);
    assert_eq!(stream.capture_status().expect("a query"), CaptureStatus::None);
}

#[test]
fn the_legacy_stream_does_not_wait_for_captured_work() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let blocking = StreamOptions { blocking: true, ..Default::default() };
    let blocking = context.stream_with(blocking).expect("a stream");
    let event = context.event().expect("an event");
    let current = context.make_current().expect("current");
    let graph = blocking.capture::<Error>(CaptureMode::default(), |_| {
        let refused = current.legacy_stream().record_event(&event);
        let code = refused.expect_err("implicitly ordered after the stream").code();
        assert_eq!(code, Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT));
        Ok(())
    });
    drop(graph);
    current.legacy_stream().record_event(&event).expect("as before");
    current.end().expect("innermost");
}

/// Begins a capture through one object of a stream, while a copy through another object of it waits
/// on another thread. The copy waits for a host function, which waits for the attempt.
fn begin_beside_a_copy(captured: &Stream, stream: &Stream) {
    let (inside, is_inside) = channel();
    let (tried, was_tried) = channel();
    let mut buffer = DeviceBuffer::<u8>::zeroed(stream, 4).expect("memory");
    stream
        .launch_host_function(move || {
            inside.send(()).expect("the other thread waits");
            was_tried.recv().expect("the other thread attempts it");
        })
        .expect("a host function");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            is_inside.recv().expect("the copy waits");
            let begun = captured.begin_capture(CaptureMode::Relaxed);
            match begun.expect_err("a copy is active") {
                Error::Invalid(why) => match *why {
                    Invalid::CallsInProgress { calls, last, .. } => {
                        assert_eq!((calls, last), (1, "a copy from or to host memory"));
                    }
                    why => panic!("{why}"),
                },
                error => panic!("{error}"),
            }
            tried.send(()).expect("the host function waits");
        });
        cuda_sim::clear_calls();
        buffer.copy_from_slice(&[1, 2, 3, 4]).expect("a copy");
    });
    let called = |call: &Call| call.function.starts_with("cuStreamBeginCapture");
    assert!(!cuda_sim::calls().iter().any(called), "the call reached the driver");
    assert_eq!(buffer.to_vec().expect("a copy"), [1, 2, 3, 4]);
    let graph = captured.capture::<Error>(CaptureMode::Relaxed, |_| Ok(()));
    drop(graph.expect("no call is active any more"));
}

/// Captures a stream around `f`, as other code would.
fn captured_by_others(theirs: &Stream, f: impl FnOnce()) {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamBeginCapture_v2(theirs.as_raw(), mode) });
    f();
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    succeeds(unsafe { cuStreamEndCapture(theirs.as_raw(), &raw mut graph) });
    // SAFETY: the graph was just created, and nothing else uses it.
    succeeds(unsafe { cuGraphDestroy(graph) });
}

fn is_refused_as_captured(stream: &Stream) {
    let refused = DeviceBuffer::<u8>::uninit(stream, 4);
    assert_eq!(common::invalid(refused), Invalid::StreamIsCaptured);
}

#[test]
fn a_capture_does_not_begin_during_a_host_copy() {
    let (_end, _context, stream) = in_child!(on_stream());
    begin_beside_a_copy(&stream.clone(), &stream);
}

#[test]
fn a_capture_through_another_object_does_not_begin_during_a_host_copy() {
    let (_end, context, stream) = in_child!(on_stream());
    // SAFETY: `stream` outlives the borrowed stream.
    let same = unsafe { Stream::borrow_raw(stream.as_raw(), &context) }.expect("a stream");
    begin_beside_a_copy(&same, &stream);
}

/// Other code may capture its own stream.
#[test]
fn allocations_on_a_stream_captured_by_other_code_are_refused() {
    let (_end, context, theirs) = in_child!(on_stream());
    // SAFETY: `theirs` outlives the borrowed stream.
    let ours = unsafe { Stream::borrow_raw(theirs.as_raw(), &context) }.expect("a stream");
    captured_by_others(&theirs, || is_refused_as_captured(&ours));
}

/// This crate has begun no capture, and other code does not own the stream.
#[test]
fn allocations_on_a_stream_that_joined_a_capture_of_other_code_are_refused() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (theirs, stream) = (context.stream(), context.stream());
    let (theirs, stream) = (theirs.expect("a stream"), stream.expect("a stream"));
    let event = context.event().expect("an event");
    // SAFETY: `theirs` outlives the borrowed stream.
    let same = unsafe { Stream::borrow_raw(theirs.as_raw(), &context) }.expect("a stream");
    captured_by_others(&theirs, || {
        event.record(&same).expect("recorded");
        stream.wait_event(&event).expect("it joined the capture");
        is_refused_as_captured(&stream);
    });
}

/// Each object created from a raw handle finds its capture status, and other objects do not query
/// it.
#[test]
fn only_a_stream_that_may_join_a_capture_of_other_code_queries_its_status() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (theirs, joined, other) = (context.stream(), context.stream(), context.stream());
    let [theirs, joined, other] = [theirs, joined, other].map(|its| its.expect("a stream"));
    let event = context.event().expect("an event");
    captured_by_others(&theirs, || {
        event.record(&theirs).expect("recorded");
        joined.wait_event(&event).expect("it joined the capture");
    });
    let asked = |stream: &Stream| {
        cuda_sim::clear_calls();
        drop(DeviceBuffer::<u8>::uninit(stream, 4).expect("memory"));
        cuda_sim::calls().iter().any(|call| call.function == "cuStreamIsCapturing")
    };
    assert!(asked(&theirs) && asked(&joined));
    assert!(!asked(&other));
}

#[test]
fn a_double_destroy_of_an_executable_graph_is_reported() {
    let (_context, stream) = &in_child!(expecting_misuse());
    let graph = stream.capture::<Error>(CaptureMode::default(), |_| Ok(()));
    let (raw, _) = graph.expect("a graph").instantiate().expect("an executable graph").into_raw();
    // SAFETY: the first call is valid.
    succeeds(unsafe { cuGraphExecDestroy(raw) });
    // SAFETY: the second call is the planted bug, which the software driver detects.
    assert!(!unsafe { cuGraphExecDestroy(raw) }.is_success());
    found("an executable graph is destroyed twice");
}

#[test]
fn the_report_hook_may_use_the_stream_of_the_reported_release() {
    in_child!();
    start(Profile::h200());
    let context = crate::context();
    let stream = context.stream().expect("a stream");
    let event = context.event().expect("an event");
    let (sender, heard) = std::sync::mpsc::channel();
    let (its, sender) = (stream.clone(), Mutex::new(sender));
    cuda_safe::set_report_hook(move |_| {
        let waited = its.wait_event(&event);
        sender.lock().expect("no panic").send(waited).expect("the test receives it");
    });
    let buffer = DeviceBuffer::<u8>::zeroed_sync(&stream, 4).expect("memory");
    {
        let _refused = Fault::of_function("cuThreadExchangeStreamCaptureMode")
            .nth(2)
            .from_then_on()
            .inject(Scope::Thread);
        drop(buffer);
    }
    let waited = heard.try_recv().expect("a report");
    assert!(waited.is_ok(), "{waited:?}");
}

/// Returns the numbers of green contexts, contexts and events that are alive.
fn alive() -> (usize, usize, usize) {
    let alive = cuda_sim::alive();
    (alive.green_contexts, alive.contexts, alive.events)
}

/// The nodes of the graph contain the handles of the contexts, and `instantiate` is a safe
/// function.
#[test]
fn a_graph_retains_the_contexts_of_all_captured_streams() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let device = context.device();
    let stream = context.stream().expect("a stream");
    let own = Context::new(&device, ContextFlags::default()).expect("a context");
    let groups = SmResource::of_device(&device).expect("has them");
    let split = groups.split_by_count(SplitByCount::default());
    let group = split.expect("a split").groups.pop().expect("a group");
    let green = GreenContext::new([group]).expect("a green context");
    let others = [own.stream(), green.stream()].map(|stream| stream.expect("a stream"));
    let graph = stream.capture::<Error>(CaptureMode::default(), |stream| {
        let begins = context.event()?;
        begins.record(stream)?;
        for other in &others {
            other.wait_event(&begins)?;
            let ends = other.context().event()?;
            ends.record(other)?;
            stream.wait_event(&ends)?;
        }
        Ok(())
    });
    let graph = graph.expect("a graph");
    drop((own, green, others));
    assert_eq!(alive(), (1, 1, 0));
    let executable = graph.instantiate().expect("its contexts are alive");
    drop(graph);
    assert_eq!(alive(), (1, 1, 0));
    drop(executable);
    assert_eq!(alive(), (0, 0, 0));
}

#[test]
fn a_graph_of_a_per_thread_stream_retains_its_context() {
    let (_end, context, stream) = in_child!(on_stream());
    let own = Context::new(&context.device(), ContextFlags::default()).expect("a context");
    let graph = stream.capture(CaptureMode::default(), |stream| {
        let (begins, ends) = (context.event()?, own.event()?);
        begins.record(stream)?;
        own.with_current(|current| {
            let per_thread = current.per_thread_stream();
            per_thread.wait_event(&begins)?;
            per_thread.record_event(&ends)
        })??;
        stream.wait_event(&ends)
    });
    let graph = graph.expect("a graph");
    drop(own);
    assert_eq!(alive(), (0, 1, 0));
    drop(graph);
}

#[test]
fn a_graph_retains_the_events_of_its_external_records_and_waits() {
    let (_end, context, stream) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let graph = stream.capture(CaptureMode::default(), |stream| {
        stream.wait_external(&context.event()?)?;
        context.event()?.record_external(stream)
    });
    let graph = graph.expect("a graph");
    assert_eq!(alive(), (0, 0, 2));
    let executable = graph.instantiate().expect("its events are alive");
    drop(graph);
    // SAFETY: the graph uses no memory.
    unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
    stream.synchronize().expect("a wait");
    drop(executable);
    assert_eq!(alive(), (0, 0, 0));
}

#[test]
fn a_graph_of_a_pool_stream_keeps_its_partition_leased() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let options = GreenPoolOptions::default();
    let pool = GreenPool::new(&context.device(), options).expect("a pool");
    let size = PartitionRequest { sizes: vec![PartitionSize::Sms(16)], ..Default::default() };
    let stream = pool.lease(&size).expect("a lease")[0].stream();
    let stream = stream.expect("a stream");
    let graph = stream.capture::<Error>(CaptureMode::default(), |_| Ok(()));
    let graph = graph.expect("a graph");
    drop(stream);
    pool.try_lease(&size).expect_err("the graph keeps its green context alive");
    drop(graph);
    pool.try_lease(&size).expect("the partition is returned");
}

#[test]
fn a_failed_capture_releases_its_retained_objects() {
    let (_end, context, stream) = in_child!(on_stream());
    let own = Context::new(&context.device(), ContextFlags::default()).expect("a context");
    let capture = stream.begin_capture(CaptureMode::default()).expect("begins");
    let begins = context.event().expect("an event");
    begins.record(&stream).expect("recorded");
    let other = own.stream().expect("a stream");
    other.wait_event(&begins).expect("it joined the capture");
    let event = context.event().expect("an event");
    event.record_external(&stream).expect("recorded");
    drop((own, begins, event));
    assert_eq!(alive().1, 1, "the capture retains it");
    stream.is_complete().expect_err("invalidates the capture");
    capture.end().expect_err("the capture is invalidated");
    drop(other);
    assert_eq!(alive(), (0, 0, 0));
}
