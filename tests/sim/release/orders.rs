//! The driver calls that release an object: capture queries, waits, and the context in which they run.

use crate::prelude::*;
use crate::stream::callbacks::launch;
use cuda_sim::fault::strict_contexts;

/// Returns the driver functions that `f` calls, in order, and whether each call succeeded.
fn calls(f: impl FnOnce()) -> Vec<(&'static str, bool)> {
    cuda_sim::clear_calls();
    f();
    let calls = cuda_sim::calls();
    calls.iter().map(|call| (call.function, call.result.is_success())).collect()
}

fn place(calls: &[(&'static str, bool)], function: &str) -> Option<usize> {
    calls.iter().position(|(its, _)| *its == function)
}

#[test]
fn streams_and_events_are_not_destroyed_in_a_host_function() {
    let (_end, context, stream) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let objects = (context.stream().expect("a"), context.event().expect("b"));
    let (sender, told) = channel();
    let function = move || {
        drop(objects);
        sender.send((alive().streams, alive().events)).expect("the test receives it");
    };
    stream.launch_host_function(function).expect("enqueued");
    stream.synchronize().expect("a wait");
    assert_eq!(told.recv(), Ok((2, 1)));
    assert_eq!(cuda_safe::deferred_releases(), 2);
    context.synchronize().expect("a wait");
    assert_eq!((alive().streams, alive().events), (1, 0));
}

/// The driver rejects most calls on its callback threads, but it allows the release of an event.
#[test]
fn a_deferred_event_is_destroyed_on_a_callback_thread() {
    let (_end, context, stream) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let event = context.event().expect("an event");
    stream.launch_host_function(move || drop(event)).expect("enqueued");
    stream.synchronize().expect("a wait");
    assert_eq!(cuda_safe::deferred_releases(), 1);
    let (sender, told) = channel();
    let its = context.clone();
    launch(&stream, move || {
        let created = its.event().map(drop);
        let left = (cuda_safe::deferred_releases(), alive().events);
        sender.send((created.is_err(), left)).expect("the test receives it");
    });
    // `Stream::synchronize` would attempt the deferred release on this thread.
    // SAFETY: the stream is alive.
    let waited = unsafe { cuStreamSynchronize(stream.as_raw()) };
    assert!(waited.is_success(), "{waited}");
    assert_eq!(told.recv(), Ok((true, (0, 0))));
}

/// The first attempt and 16 retries.
#[test]
fn a_release_whose_query_fails_is_attempted_17_times() {
    let (_end, context) = in_child!(leaking());
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let code = CUresult::CUDA_ERROR_NOT_SUPPORTED;
    let refused = fail_from("cuThreadExchangeStreamCaptureMode", 1, code);
    drop(pinned);
    for attempts in 1..17 {
        assert_eq!((refused.hits(), cuda_safe::leaked()), (attempts, 0));
        context.synchronize().expect("a wait");
    }
    assert_eq!((refused.hits(), cuda_safe::leaked()), (17, 1));
    context.synchronize().expect("a wait");
    assert_eq!(refused.hits(), 17);
}

/// A free without a stream uses the legacy default stream of the current context.
#[test]
fn pool_memory_without_a_stream_is_freed_in_the_context_of_its_manager() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = OrderedManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    let block = manager.allocate(64, Order::of(&stream)).expect("memory");
    let calls = calls(|| {
        // SAFETY: the block is of the manager, and nothing uses it.
        unsafe { manager.free(block, Order::NONE) };
        manager.reset();
    });
    assert!(calls.contains(&("cuMemFreeAsync", true)), "{calls:?}");
    assert!(calls.iter().all(|(_, succeeded)| *succeeded), "{calls:?}");
}

#[test]
fn the_pool_of_a_manager_is_destroyed_after_all_work_of_the_context() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let options = MemoryPoolOptions::default();
    let manager = OrderedManager::with(&context, options).expect("a manager");
    let stream = context.stream().expect("a stream");
    let block = manager.allocate(64, Order::of(&stream)).expect("memory");
    // SAFETY: the block is of the manager, and nothing uses it.
    unsafe { manager.free(block, Order::of(&stream)) };
    let calls = calls(|| drop(manager));
    let waits = place(&calls, "cuCtxSynchronize_v2");
    let destroys = place(&calls, "cuMemPoolDestroy");
    assert!(waits.is_some() && waits < destroys, "{calls:?}");
}

#[test]
fn a_stream_ordered_free_that_needs_a_context_is_repeated_in_that_of_the_manager() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = OrderedManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    for order in [Order::of(&stream), persistent(stream.as_raw())] {
        let block = manager.allocate(64, order).expect("memory");
        let wants = fail("cuMemFreeAsync", 1, CUresult::CUDA_ERROR_INVALID_CONTEXT);
        // SAFETY: the block is of the manager, and nothing uses it.
        unsafe { manager.free(block, order) };
        assert_eq!((wants.hits(), cuda_safe::leaked()), (1, 0), "{order:?}");
        stream.synchronize().expect("a wait");
        assert_eq!(alive().device_allocations, 0, "{order:?}");
    }
}

/// Without a current context, the driver rejects the capture query and the free.
#[test]
fn a_capture_query_that_needs_a_context_is_repeated_in_that_of_the_manager() {
    let (_end, context) = in_child!(leaking());
    let manager = OrderedManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    let raw = stream.as_raw();
    let block = manager.allocate(64, persistent(raw)).expect("memory");
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    let begun = unsafe { cuStreamBeginCapture_v2(raw, mode) };
    assert!(begun.is_success(), "{begun}");
    {
        let _strict = strict_contexts();
        let calls = calls(|| {
            // SAFETY: the block is of the manager, and nothing uses it.
            unsafe { manager.free(block, persistent(raw)) };
        });
        assert_eq!(place(&calls, "cuMemFreeAsync"), None, "{calls:?}");
    }
    assert_eq!(cuda_safe::leaked(), 1, "other code owns the stream");
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    let ended = unsafe { cuStreamEndCapture(raw, &raw mut graph) };
    assert!(ended.is_success(), "{ended}");
}

/// The handle of a default stream refers to the current context, and another context may be current
/// during the release.
#[test]
fn a_release_neither_queries_nor_waits_for_a_default_stream() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = DriverManager::new(&context).expect("a manager");
    let block = manager.allocate_host(64, PinnedFlags::empty()).expect("memory");
    let _fails = fail("cuEventRecord", 1, CUresult::CUDA_ERROR_UNKNOWN);
    let calls = calls(|| {
        // SAFETY: the block is of the manager, and nothing uses it.
        unsafe { manager.free_host(block, persistent(CU_STREAM_LEGACY)) };
    });
    let release = &calls[place(&calls, "cuEventRecord").expect("the record that fails")..];
    assert_eq!(place(release, "cuStreamIsCapturing"), None, "{calls:?}");
    assert_eq!(place(release, "cuStreamSynchronize"), None, "{calls:?}");
    assert!(calls.contains(&("cuMemFreeHost", true)), "{calls:?}");
}

/// A wait for another stream would not cover the work that uses the memory.
#[test]
fn synchronous_memory_is_freed_after_a_wait_for_its_stream() {
    let (_end, _context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u8>::zeroed_sync(&stream, 64).expect("memory");
    cuda_sim::clear_calls();
    cuda_sim::record_arguments(true);
    drop(buffer);
    cuda_sim::record_arguments(false);
    let wait = cuda_sim::calls().into_iter().find(|call| call.function == "cuStreamSynchronize");
    let arguments = wait.expect("a wait").arguments;
    let waited = arguments.iter().find_map(|its| its.values::<CUstream>());
    assert_eq!(waited, Some(&[stream.as_raw()][..]));
}

#[test]
fn a_shared_buffer_is_empty_if_it_has_no_elements() {
    let (_end, _context, stream) = in_child!(on_stream());
    for (len, is_empty) in [(0, true), (1, false)] {
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, len).expect("memory");
        let shared = buffer.share().expect("an event");
        assert_eq!((shared.len(), shared.is_empty()), (len, is_empty));
    }
}

/// In the software driver each operation takes one millisecond: here six fills and the second record.
#[test]
fn the_time_between_two_events_is_that_of_the_work_between_them() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut buffer = DeviceBuffer::<u8>::uninit(&stream, 64).expect("memory");
    let options = EventOptions { timing: true, ..Default::default() };
    let [start, end] = [(); 2].map(|()| context.event_with(options).expect("an event"));
    start.record(&stream).expect("a record");
    for value in 0..6 {
        buffer.fill(value).expect("a fill");
    }
    end.record(&stream).expect("a record");
    stream.synchronize().expect("a wait");
    assert_eq!(end.elapsed_since(&start).expect("both are complete"), Duration::from_millis(7));
}
