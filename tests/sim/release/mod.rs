//! Releases that the driver refuses temporarily or permanently.

pub(crate) mod errors;
pub(crate) mod last_use;
pub(crate) mod orders;

use crate::prelude::*;
use cuda_safe::interop::ExportedStream;
use cuda_safe::interop::dlpack::ConsumerStream;

const EXCHANGE: &str = "cuThreadExchangeStreamCaptureMode";

pub(crate) fn fail(function: &'static str, nth: u64, code: CUresult) -> Injected {
    let fault = Fault::of_function(function).nth(nth).with(code);
    fault.inject(Scope::Thread)
}

pub(crate) fn fail_from(function: &'static str, nth: u64, code: CUresult) -> Injected {
    let fault = Fault::of_function(function).nth(nth).from_then_on();
    fault.with(code).inject(Scope::Thread)
}

fn pinned(context: &Context) -> PinnedBuffer<u8> {
    PinnedBuffer::zeroed(context, 64).expect("memory")
}

/// Starts the software driver for a test where objects may leak.
pub(crate) fn leaking() -> (AtEnd, Context) {
    start(Profile::h200());
    (AtEnd::new(|| assert_eq!(cuda_sim::misuses(), [""; 0])), context())
}

#[test]
fn a_panicking_owner_leaves_the_rest_of_the_queue_unchanged() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("an owner");
        }
    }
    let (_end, context) = in_child!(leaking());
    let raw = context.stream().expect("a stream").into_raw();
    // SAFETY: `into_raw` released ownership of the stream, so it stays alive.
    let foreign = unsafe { Stream::from_foreign(raw, &context, Bomb) };
    let buffer = DeviceBuffer::<u8>::zeroed(&foreign.expect("a stream"), 64).expect("memory");
    let others = [pinned(&context), pinned(&context), pinned(&context)];
    {
        let _capture = fail("cuStreamIsCapturing", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        drop(buffer);
        let _callback = fail_from("cuMemFreeHost", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        drop(others);
    }
    let call = AssertUnwindSafe(|| context.event().map(drop));
    std::panic::catch_unwind(call).expect_err("the owner's panic");
    assert_eq!(alive().pinned_allocations, 3);
    context.event().map(drop).expect("an event");
    assert_eq!((alive().pinned_allocations, cuda_safe::leaked()), (0, 0));
}

#[test]
fn copies_and_registrations_complete_deferred_releases() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let put_off = |context| {
        let _refused = fail("cuMemFreeHost", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        drop(pinned(context));
        assert_eq!(alive().pinned_allocations, 1);
    };
    put_off(&context);
    buffer.copy_to_slice(&mut [0; 64]).expect("a copy");
    assert_eq!(alive().pinned_allocations, 0);
    put_off(&context);
    buffer.copy_from_slice(&[0; 64]).expect("a copy");
    assert_eq!(alive().pinned_allocations, 0);
    put_off(&context);
    let registered = PinnedBuffer::register(&context, vec![0_u8; 64]).expect("memory");
    assert_eq!(alive().pinned_allocations, 0);
    drop(registered);
}

#[test]
fn a_capture_that_begins_during_a_release_defers_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let refused = fail("cuMemFreeHost", 1, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    drop(pinned(&context));
    assert_eq!((alive().pinned_allocations, refused.hits()), (1, 1));
    let _event = context.event().expect("an event");
    assert_eq!(alive().pinned_allocations, 0);
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn a_thread_with_a_destroyed_current_context_releases_in_the_objects_context() {
    let (_end, context) = in_child!(on(Profile::h200()));
    for code in [CUresult::CUDA_ERROR_INVALID_CONTEXT, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED] {
        let refused = fail(EXCHANGE, 1, code);
        drop(pinned(&context));
        assert_eq!((alive().pinned_allocations, refused.hits()), (0, 1));
    }
}

#[test]
fn a_callback_thread_that_cannot_enter_a_context_defers_the_release() {
    let (_end, context) = in_child!(on(Profile::h200()));
    cuda_safe::event::set_reuse(false);
    let event = context.event().expect("an event");
    {
        let _event = fail("cuEventDestroy_v2", 1, CUresult::CUDA_ERROR_INVALID_CONTEXT);
        let _enter = fail("cuCtxGetCurrent", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        drop(event);
    }
    assert_eq!((alive().events, cuda_safe::leaked()), (1, 0));
    context.synchronize().expect("a wait");
    assert_eq!(alive().events, 0);
}

#[test]
fn a_release_that_needs_a_context_uses_that_of_the_object() {
    let (_end, context) = in_child!(on(Profile::h200()));
    cuda_safe::event::set_reuse(false);
    let wants = |function| fail(function, 1, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    let refused = wants("cuEventDestroy_v2");
    context.event().map(drop).expect("an event");
    assert_eq!((alive().events, refused.hits()), (0, 1));
    let refused = wants("cuStreamDestroy_v2");
    context.stream().map(drop).expect("a stream");
    assert_eq!((alive().streams, refused.hits()), (0, 1));
    let stream = context.stream().expect("a stream");
    let refused = wants("cuMemFreeAsync");
    let buffer = DeviceBuffer::<u8>::uninit(&stream, 64);
    buffer.map(drop).expect("memory");
    stream.synchronize().expect("a wait");
    assert_eq!((alive().device_allocations, refused.hits()), (0, 1));
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn stream_ordered_memory_that_cannot_be_freed_is_reported_once() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::uninit(&stream, 64).expect("memory");
    let refused = fail("cuMemFreeAsync", 1, CUresult::CUDA_ERROR_UNKNOWN);
    drop(buffer);
    assert_eq!((refused.hits(), cuda_safe::leaked()), (1, 1));
    stream.synchronize().expect("a wait");
    assert_eq!(alive().device_allocations, 1);
}

/// An event without clones owns itself; the first clone creates an owner that all of them share.
#[test]
fn an_event_is_destroyed_once_with_the_last_of_its_clones() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let destroyed = || {
        let calls = cuda_sim::calls();
        let its = |call: &&Call| call.function == "cuEventDestroy_v2";
        calls.iter().filter(its).count()
    };
    for rounds in 1..if cfg!(miri) { 4 } else { 100 } {
        let event = context.event().expect("an event");
        // The first clones of several threads at the same time.
        let barrier = std::sync::Barrier::new(3);
        let clones: Vec<_> = std::thread::scope(|scope| {
            let clone = || {
                barrier.wait();
                (event.clone(), event.clone())
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(clone)).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|clones| clones.expect("no panic")).collect()
        });
        drop(event);
        for clones in clones {
            assert_eq!((alive().events, destroyed()), (1, rounds - 1));
            clones.1.synchronize().expect("alive");
            std::thread::spawn(|| drop(clones)).join().expect("no panic");
        }
        assert_eq!((alive().events, destroyed()), (0, rounds));
    }
}

#[test]
fn a_release_that_is_never_possible_is_reported_after_the_last_retry() {
    let (_end, context) = in_child!(leaking());
    let refused = fail_from(EXCHANGE, 1, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    drop(pinned(&context));
    assert_eq!(cuda_safe::leaked(), 0, "deferred at first");
    for _ in 0..100 {
        context.synchronize().expect("a wait");
    }
    assert_eq!((alive().pinned_allocations, cuda_safe::leaked()), (1, 1));
    assert!(refused.hits() < 50, "{} questions", refused.hits());
}

#[test]
fn a_capture_mode_that_cannot_be_restored_is_reported() {
    let (_end, context) = in_child!(leaking());
    let (sender, heard) = std::sync::mpsc::channel();
    let sender = Mutex::new(sender);
    cuda_safe::set_report_hook(move |report| {
        let sender = sender.lock().expect("no panic while it was locked");
        sender.send(report.to_string()).expect("the test receives it");
    });
    {
        // The first exchange is before the release, and the second after it.
        let _refused = fail(EXCHANGE, 2, CUresult::CUDA_ERROR_UNKNOWN);
        drop(pinned(&context));
    }
    assert!(heard.try_recv().is_err(), "the second attempt restores it");
    let _refused = fail_from(EXCHANGE, 2, CUresult::CUDA_ERROR_UNKNOWN);
    drop(pinned(&context));
    let report = heard.try_recv().expect("a report");
    assert!(report.contains("capture mode of the thread could not be restored"), "{report}");
    assert_eq!((alive().pinned_allocations, cuda_safe::leaked()), (0, 0));
}

#[cfg(unix)]
#[test]
fn a_forked_child_does_not_use_a_library_of_a_driver_started_by_other_code() {
    use cuda_safe::sys::{cuInit, cuLibraryLoadData};
    use std::ptr::null_mut;

    in_child!();
    start(Profile::h200());
    // SAFETY: `cuInit` takes no pointer.
    assert!(unsafe { cuInit(0) }.is_success());
    let (mut raw, code) = (null_mut(), c"\n.version 7.0\n.target sm_70\n.address_size 64");
    let (none, handles) = (null_mut(), null_mut());
    let code = code.as_ptr().cast();
    // SAFETY: the code ends with a NUL, there are no options, and the other pointer refers to a
    // local variable.
    let loaded = unsafe {
        cuLibraryLoadData(&raw mut raw, code, none, handles, 0, null_mut(), null_mut(), 0)
    };
    assert!(loaded.is_success(), "{loaded}");
    // SAFETY: the library is loaded, and this process never unloads it.
    let library = unsafe { Library::borrow_raw(raw) }.expect("a library");
    assert!(common::fork::in_fork(|| { matches!(library.kernel_names(), Err(Error::Forked)) }));
}

/// The legacy default stream belongs to the current context.
#[test]
fn a_release_on_a_legacy_stream_makes_its_context_current() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let stream = context.stream().expect("a stream");
    let drop_elsewhere = |object: Box<dyn std::any::Any>| {
        cuda_sim::clear_calls();
        other.with_current(|_| drop(object)).expect("current");
        let calls = cuda_sim::calls();
        for name in ["cuEventRecord", "cuStreamWaitEvent"] {
            let mut its = calls.iter().filter(|call| call.function == name);
            let call = its.next().expect("the end of the reads is recorded");
            assert!(call.result.is_success(), "{name}: {}", call.result);
            assert!(its.next().is_none(), "{name} is called once");
        }
    };

    // The consumer reads on the legacy stream.
    let tensor = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory").into_dlpack();
    let mut tensor = tensor.expect("a tensor");
    let consumer = ConsumerStream::from_number(Some(1)).expect("the legacy stream");
    // SAFETY: a default stream lives as long as its context.
    unsafe { tensor.release_after(consumer, &stream) }.expect("an event");
    drop_elsewhere(Box::new(tensor));

    // The producer continues to use the memory on the legacy stream.
    let buffer = DeviceBuffer::<u8>::zeroed_sync(&stream, 64).expect("memory");
    let array = buffer.array_interface().expect("an array");
    let array = array.with_stream(Some(ExportedStream::Legacy));
    // SAFETY: the buffer outlives the import, and nothing else uses it.
    let imported = unsafe { array.import::<u8>(&stream, StreamSync::WaitEvent, ()) };
    drop_elsewhere(Box::new(imported.expect("memory")));
    drop(buffer);
    context.synchronize().expect("a wait");
    assert_eq!((alive().device_allocations, cuda_safe::leaked()), (0, 0));
}

#[test]
fn a_pool_whose_context_is_destroyed_is_leaked_at_once() {
    let (_end, context) = in_child!(leaking());
    let manager = OrderedManager::with(&context, Default::default()).expect("a manager");
    let refused = fail_from("cuCtxGetCurrent", 1, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    drop(manager);
    assert_ne!(refused.hits(), 0);
    assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (1, 0));
}

#[test]
fn a_release_whose_context_cannot_be_entered_is_reported_at_once() {
    let (_end, context) = in_child!(leaking());
    cuda_safe::event::set_reuse(false);
    let event = context.event().expect("an event");
    let _event = fail("cuEventDestroy_v2", 1, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    let _enter = fail_from("cuCtxGetCurrent", 1, CUresult::CUDA_ERROR_UNKNOWN);
    drop(event);
    assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (1, 0));
}

/// The driver permits these two releases in a callback.
#[test]
fn streams_and_events_are_destroyed_in_a_callback() {
    let (_end, context, stream) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let objects = (context.stream().expect("a stream"), context.event().expect("an event"));
    let (sender, told) = std::sync::mpsc::channel();
    crate::stream::callbacks::launch(&stream, move || {
        drop(objects);
        let left = (alive().streams, alive().events, cuda_safe::deferred_releases());
        sender.send(left).expect("the test receives it");
    });
    stream.synchronize().expect("a wait");
    assert_eq!(told.recv().expect("it ran"), (1, 0, 0));
}

/// The driver would refuse the call.
#[test]
fn pinned_memory_in_a_callback_is_deferred_without_a_call_that_waits() {
    let (_end, context, stream) = in_child!(on_stream());
    let pinned = pinned(&context);
    cuda_sim::clear_calls();
    crate::stream::callbacks::launch(&stream, move || drop(pinned));
    stream.synchronize().expect("a wait");
    let freed = |call: &Call| call.function == "cuMemFreeHost";
    assert!(!cuda_sim::calls().iter().any(freed), "no attempt");
    assert_eq!((alive().pinned_allocations, cuda_safe::deferred_releases()), (1, 1));
    context.synchronize().expect("a wait");
    assert_eq!(alive().pinned_allocations, 0);
}

/// Checks how the answer to the exchange of the capture mode decides what happens to a release.
#[test]
fn a_failed_capture_mode_exchange_decides_how_a_release_continues() {
    let (_end, context) = in_child!(leaking());
    let release = |code, attempts| {
        let leaked = cuda_safe::leaked();
        let refused = fail_from(EXCHANGE, 1, code);
        drop(pinned(&context));
        for _ in 0..attempts {
            context.event().map(drop).expect("an event");
        }
        let became = (cuda_safe::deferred_releases(), cuda_safe::leaked() - leaked);
        drop(refused);
        context.event().map(drop).expect("an event");
        became
    };
    // The process is exiting.
    assert_eq!(release(CUresult::CUDA_ERROR_DEINITIALIZED, 0), (0, 0));
    // After this error nothing works any more.
    assert_eq!(release(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, 0), (0, 1));
    // The thread runs a callback.
    assert_eq!(release(CUresult::CUDA_ERROR_NOT_PERMITTED, 100), (1, 0));
    assert_eq!(cuda_safe::deferred_releases(), 0);
    // An older driver has no capture modes.
    let alive_before = alive().pinned_allocations;
    assert_eq!(release(CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, 0), (0, 0));
    assert_eq!(alive().pinned_allocations, alive_before);
}

#[test]
fn a_capture_mode_that_a_fatal_error_leaves_is_not_reported() {
    let (_end, context) = in_child!(leaking());
    let reports = crate::capture::errors::reports();
    for code in [CUresult::CUDA_ERROR_DEINITIALIZED, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS] {
        let _refused = fail_from(EXCHANGE, 2, code);
        drop(pinned(&context));
    }
    assert!(reports.lock().expect("no panic").is_empty());
    assert_eq!(alive().pinned_allocations, 0);
}

/// Pool memory that was freed without a stream is freed after all work of the context.
#[test]
fn a_failed_wait_for_all_work_decides_how_a_release_continues() {
    let (_end, context) = in_child!(leaking());
    const WAIT: &str = "cuCtxSynchronize_v2";
    let manager = OrderedManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    let release = |code: Option<CUresult>| {
        let block = manager.allocate(64, Order::of(&stream)).expect("memory");
        let leaked = cuda_safe::leaked();
        cuda_sim::clear_calls();
        let refused = code.map(|code| fail(WAIT, 1, code));
        // SAFETY: the block belongs to the manager, and nothing uses it.
        unsafe { manager.free(block, Order::NONE) };
        manager.reset();
        drop(refused);
        let calls = cuda_sim::calls();
        let place = |name| calls.iter().position(|call| call.function == name);
        let (waited, freed) = (place(WAIT), place("cuMemFreeAsync"));
        (
            waited.is_some() && freed.is_none_or(|freed| waited < Some(freed)),
            freed.is_some(),
            cuda_safe::deferred_releases(),
            cuda_safe::leaked() - leaked,
        )
    };
    assert_eq!(release(None), (true, true, 0, 0));
    // Memory may become available later.
    assert_eq!(release(Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY)), (true, false, 1, 0));
    context.event().map(drop).expect("an event");
    assert_eq!(cuda_safe::deferred_releases(), 0);
    assert_eq!(release(Some(CUresult::CUDA_ERROR_UNKNOWN)), (true, false, 0, 1));
    assert_eq!(release(Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)), (true, false, 0, 1));
}

#[test]
fn a_context_that_is_dropped_in_a_host_function_is_destroyed_later() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let stream = context.stream().expect("a stream");
    stream.launch_host_function(move || drop(own)).expect("enqueued");
    stream.synchronize().expect("a wait");
    assert_eq!((cuda_safe::leaked(), alive().contexts), (0, 1));
    context.event().map(drop).expect("an event");
    assert_eq!((cuda_safe::deferred_releases(), alive().contexts), (0, 0));
}

/// The deferred frees of a manager depend on a context that its owner may destroy.
#[test]
fn a_deferred_free_in_a_borrowed_context_is_not_queued() {
    let (_end, context) = in_child!(leaking());
    let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    // SAFETY: the context outlives the borrowed context.
    let borrowed = unsafe { Context::borrow_raw(own.as_raw()) }.expect("it is alive");
    let manager = DriverManager::new(&borrowed).expect("a manager");
    let block = manager.allocate(64, Order::NONE).expect("memory");
    let _refused = fail("cuMemFree_v2", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
    // SAFETY: the block belongs to the manager, and nothing uses it.
    unsafe { manager.free(block, Order::NONE) };
    manager.reset();
    assert_eq!((cuda_safe::leaked(), cuda_safe::deferred_releases()), (1, 0));
}

#[cfg(unix)]
#[test]
fn a_forked_child_destroys_nothing_and_does_not_process_the_queue() {
    let (_end, context) = in_child!(leaking());
    cuda_safe::event::set_reuse(false);
    let deferred = {
        let _refused = fail("cuMemFreeHost", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        drop(pinned(&context));
        cuda_safe::deferred_releases()
    };
    assert_eq!(deferred, 1);
    let mut objects = Some((context.event().expect("an event"), context.stream()));
    assert!(cuda_safe::deferred_releases() == 0, "an event drains the queue");
    {
        let _refused = fail("cuMemFreeHost", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
        drop(pinned(&context));
    }
    assert!(common::fork::in_fork(|| {
        cuda_sim::clear_calls();
        drop(objects.take());
        let refused = matches!(context.event(), Err(Error::Forked));
        let is_release = |call: &Call| {
            let names = ["cuEventDestroy_v2", "cuStreamDestroy_v2", "cuMemFreeHost"];
            names.contains(&call.function)
        };
        let called = cuda_sim::calls().iter().any(is_release);
        refused && !called && cuda_safe::leaked() == 2 && cuda_safe::deferred_releases() == 1
    }));
    drop(objects);
    context.synchronize().expect("a wait");
    assert_eq!((alive().events, alive().pinned_allocations), (0, 0));
}
