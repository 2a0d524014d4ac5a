//! Bugs that reviews found, each with the scenario that triggered it.

use crate::prelude::*;

/// Owns a raw stream, as foreign code does.
#[derive(Debug)]
struct Foreign {
    stream: CUstream,
}

// SAFETY: any thread may use a driver stream.
unsafe impl Send for Foreign {}
// SAFETY: as for `Send`.
unsafe impl Sync for Foreign {}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: the owner of the stream destroys it, once.
        let code = unsafe { cuStreamDestroy_v2(self.stream) };
        assert!(code.is_success(), "the context is still alive: {code}");
    }
}

#[test]
fn a_foreign_owner_is_dropped_before_the_context_of_its_object() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = context.stream().expect("a stream").into_raw();
    let owner = Foreign { stream };
    // SAFETY: the owner destroys the stream when it is dropped.
    let foreign = unsafe { Stream::from_foreign(stream, &context, owner) };
    let foreign = foreign.expect("a stream of its own");
    drop(context);
    drop(foreign);
    // The stream that was leaked above still retains the context.
    let device = Device::get(0).expect("a device");
    // SAFETY: this releases that retain.
    let code = unsafe { cuDevicePrimaryCtxRelease_v2(device.as_raw()) };
    assert!(code.is_success());
}

#[test]
fn invalid_ptx_does_not_reach_the_driver() {
    let (_end, context) = in_child!(on(Profile::h200()));
    cuda_sim::clear_calls();
    for text in ["\u{7f}ELF\u{2}\u{1}\u{1}", "\u{7f}TileIR", "P\u{ed}U"] {
        for error in [
            Module::from_ptx(&context, text).expect_err("no PTX"),
            Library::from_ptx(text).expect_err("no PTX"),
        ] {
            assert!(
                matches!(&error, Error::Invalid(invalid) if **invalid == Invalid::NotPtx),
                "{error}"
            );
        }
    }
    let loads = |call: &Call| call.function.contains("Load");
    assert!(!cuda_sim::calls().iter().any(loads));
}

#[test]
fn a_green_context_with_a_deferred_release_keeps_its_sms_until_the_next_split() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let resource = || SmResource::of_device(&context.device()).expect("an H200 has green contexts");
    let split =
        resource().split_by_count(SplitByCount { max_groups: Some(1), ..Default::default() });
    let group = split.expect("a split").groups.pop().expect("a group");
    let green = GreenContext::new([group]).expect("a green context");
    let refused = Fault::of_function("cuGreenCtxDestroy")
        .from_then_on()
        .with(CUresult::CUDA_ERROR_NOT_PERMITTED)
        .inject(Scope::Thread);
    drop(green);
    let taken = resource().split_by_count(SplitByCount::default());
    let taken = taken.expect_err("its release is deferred, and its SMs are in use");
    assert!(matches!(taken, Error::Invalid(_)), "{taken}");
    drop(refused);
    resource().split_by_count(SplitByCount::default()).expect("free again");
}

#[test]
fn a_report_hook_may_own_objects_that_report_when_they_are_dropped() {
    in_child!();
    start(Profile::h200());
    let stream = context().stream().expect("a stream");
    cuda_safe::set_report_hook(move |_| {
        let _ = &stream;
    });
    let _fails = Fault::of_function("cuStreamDestroy_v2")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Thread);
    cuda_safe::set_report_hook(|_| {});
    assert_eq!(cuda_safe::leaked(), 1);
}

#[test]
fn a_panic_in_the_hook_is_swallowed_with_its_payload() {
    struct Payload;
    impl Drop for Payload {
        fn drop(&mut self) {
            panic!("a payload that panics when it is dropped");
        }
    }
    in_child!();
    cuda_safe::event::set_reuse(false);
    start(Profile::h200());
    let context = context();
    cuda_safe::set_report_hook(|_| std::panic::panic_any(Payload));
    let _fails = Fault::of_function("cuEventDestroy_v2")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Thread);
    drop(context.event().expect("an event"));
    assert_eq!(cuda_safe::leaked(), 1);
}

#[test]
fn wrapping_a_foreign_context_leaks_nothing() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (sender, dropped) = std::sync::mpsc::channel();
    struct Tell(Sender<()>);
    impl Drop for Tell {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    // The context is destroyed, so the owner is dropped.
    let raw = Context::new(&context.device(), ContextFlags::empty()).expect("a context").as_raw();
    // SAFETY: the context is destroyed, which the driver detects.
    let refused = unsafe { Context::from_foreign(raw, Tell(sender)) };
    let refused = refused.expect_err("destroyed");
    assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED));
    assert!(dropped.try_recv().is_ok());
}

#[test]
fn a_query_is_repeated_with_the_context_current_if_the_driver_needs_it() {
    let (_end, context, stream) = in_child!(on_stream());
    let event = context.event().expect("an event");
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1u8; 8]).expect("a copy");
    let strict = cuda_sim::fault::strict_contexts();
    assert!(stream.is_complete().expect("a query"));
    assert!(event.is_complete().expect("a query"));
    event.record(&stream).expect("a record");
    stream.wait_event(&event).expect("a wait");
    buffer.fill(3).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [3; 8]);
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let add = module.kernel("add").expect("found");
    assert_eq!(add.parameters().expect("known").map(|all| all.len()), Some(4));
    drop((buffer, event, stream, add, module));
    drop(strict);
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn the_compile_error_of_a_library_includes_the_log() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let library = Library::from_ptx(VECTOR).expect("the test kernels");
    let late = Fault::of_function("cuKernelGetFunction")
        .with(CUresult::CUDA_ERROR_INVALID_PTX)
        .inject(Scope::Thread);
    let again = Fault::of_function("cuModuleLoadDataEx")
        .with(CUresult::CUDA_ERROR_INVALID_PTX)
        .inject(Scope::Thread);
    let error = library.kernel(&context, "add").expect_err("the code of the fault");
    assert!(matches!(error, Error::Compile(_)), "{error}");
    assert_eq!((late.hits(), again.hits()), (1, 1));
}

#[test]
fn pinned_memory_is_stranded_if_the_end_of_its_copy_is_unknown() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let host = || PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let (waited, dropped, refused) = (host(), host(), host());
    let failing = |function| {
        Fault::of_function(function)
            .with(CUresult::CUDA_ERROR_UNKNOWN)
            .from_then_on()
            .inject(Scope::Thread)
    };
    let first = buffer.copy_from_pinned(waited).expect("a copy");
    let second = buffer.copy_from_pinned(dropped).expect("a copy");
    {
        let _fails = failing("cuStreamSynchronize");
        first.synchronize().expect_err("unknown state");
        drop(second);
    }
    assert_eq!(cuda_safe::leaked(), 2);
    {
        // The copy itself fails, and then the wait for work it may have begun.
        let _copy = failing("cuMemcpyHtoDAsync_v2");
        let _wait = failing("cuStreamSynchronize");
        let rejected = buffer.as_mut_slice().try_copy_from_pinned(refused);
        assert!(rejected.expect_err("the fault").value.is_empty(), "stranded, not returned");
    }
    assert_eq!(cuda_safe::leaked(), 3);
    drop((buffer, stream, context));
    let alive = cuda_sim::alive();
    assert_eq!((alive.pinned_allocations, alive.streams), (3, 1), "{alive}");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn borrowed_memory_is_stranded_if_the_end_of_its_copies_is_unknown() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let host = || PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let (mut there, mut back, mut beside) = (host(), host(), host());
    let failing_wait = Fault::of_function("cuStreamSynchronize").with(CUresult::CUDA_ERROR_UNKNOWN);
    for (fault, len) in [(failing_wait.clone(), 64), (failing_wait.from_then_on(), 0)] {
        let _fails = fault.inject(Scope::Thread);
        let done = stream.copy_scope(|scope| {
            scope.copy_from_pinned(&mut buffer, &mut there)?;
            scope.copy_to_pinned(&buffer, &mut back)
        });
        done.expect_err("the error of the first wait");
        assert_eq!(there.len(), len, "leaked if no wait succeeds");
    }
    assert!(there.is_empty() && back.is_empty(), "stranded");
    assert_eq!(cuda_safe::leaked(), 2);
    stream.copy_scope(|scope| scope.copy_to_pinned(&buffer, &mut beside)).expect("a copy");
    assert_eq!(*beside, [0; 64]);
    drop((there, back, beside, buffer, stream, context));
    let alive = cuda_sim::alive();
    assert_eq!((alive.pinned_allocations, alive.streams), (2, 1), "{alive}");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

/// Fails so many waits for a stream.
fn failing_waits(count: u64) -> Vec<Injected> {
    let fault = Fault::of_function("cuStreamSynchronize").with(CUresult::CUDA_ERROR_UNKNOWN);
    let fault = |nth| fault.clone().nth(nth).inject(Scope::Thread);
    (1..=count).map(fault).collect()
}

/// A slice that is pinned memory cannot be leaked, so the device must have read it before its borrow ends.
#[test]
fn a_slice_is_read_before_its_borrow_ends_although_several_waits_fail() {
    let (_end, context) = in_child!(on(Profile::h200()));
    // More than a batch reads during the call.
    const LEN: usize = 1 << 17;
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, LEN).expect("memory");
    let mut host = PinnedBuffer::<u8>::zeroed(&context, LEN).expect("memory");
    let extent = Extent::new_2d(LEN, 1);
    let region = Region::new(extent);
    for step in 0..4 {
        host.fill(step);
        {
            let _fails = failing_waits(5);
            let mut target = buffer.as_mut_slice();
            let copied = match step {
                0 => target.copy_from_slice(&host),
                1 => target.copy_3d_from_slice(extent, region, &host, region),
                2 => stream.copy_scope(|scope| {
                    let mut batch = CopyBatch::new(&stream);
                    batch.push_from_slice(target, &host)?;
                    scope.enqueue(batch)
                }),
                _ => {
                    let mut batch = CopyBatch::new(&stream);
                    batch.push_from_slice(target, &host).and_then(|()| batch.enqueue())
                }
            };
            copied.expect_err("the error of the first wait");
        }
        host.fill(99);
        let values = buffer.to_vec().expect("a copy");
        assert!(values == vec![step; LEN], "step {step}");
    }
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn a_failed_wait_for_a_slice_is_not_repeated_without_end() {
    in_child!();
    start(Profile::h200());
    let stream = context().stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let waits = |code| {
        let fault = Fault::of_function("cuStreamSynchronize").with(code);
        let _fails = fault.from_then_on().inject(Scope::Thread);
        cuda_sim::clear_calls();
        assert_eq!(buffer.copy_from_slice(&[1; 64]).expect_err("the fault").code(), Some(code));
        let calls = cuda_sim::calls();
        calls.iter().filter(|its| its.function == "cuStreamSynchronize").count()
    };
    let codes = [CUresult::CUDA_ERROR_UNKNOWN, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS];
    assert_eq!(codes.map(waits), [17, 2], "no work runs after the second code");
}

#[test]
fn a_failed_wait_of_a_scope_takes_precedence_over_the_error_of_its_closure() {
    let (_end, _context, stream) = in_child!(on_stream());
    let _fails = Fault::of_function("cuStreamSynchronize")
        .with(CUresult::CUDA_ERROR_UNKNOWN)
        .inject(Scope::Thread);
    let error = || Error::from(Invalid::NoGroups);
    let first = stream.copy_scope(|_| Err::<(), _>(error()));
    assert_eq!(first.expect_err("both fail").code(), Some(CUresult::CUDA_ERROR_UNKNOWN));
    // The fault applies to one call.
    assert_eq!(stream.copy_scope(|_| Err::<(), _>(error())), Err(error()));
}

#[test]
fn a_captured_stream_refuses_pending_copies() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 8).expect("memory");
    let host = PinnedBuffer::<u8>::zeroed(&context, 8).expect("memory");
    stream.synchronize().expect("a wait");
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    // SAFETY: the stream is alive.
    let code = unsafe { cuStreamBeginCapture_v2(stream.as_raw(), mode) };
    assert!(code.is_success());
    let refused = buffer.as_mut_slice().try_copy_from_pinned(host).expect_err("in a capture");
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    let code = unsafe { cuStreamEndCapture(stream.as_raw(), &raw mut graph) };
    assert!(code.is_success(), "the refusal invalidated nothing");
    // SAFETY: the graph was just created.
    assert!(unsafe { cuGraphDestroy(graph) }.is_success());
    assert_eq!(refused.value.len(), 8);
}
