use crate::call::raw::succeeds;
use crate::common::{self, child};
use crate::green::{alone, refusal, resource, resource_alone, smallest, two};
use crate::module::kernels::{FILLING, RecordSmid, SHORT, SMID, WARP, kernel};
use core::ffi::c_void;
use cuda_safe::capture::CaptureMode;
use cuda_safe::green::{Descriptor, GreenContext, WorkqueueScope, Workqueues};
use cuda_safe::stream::{MemoryOperation, WaitCondition};
use cuda_safe::sys::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUdevResource, CUdevResourceType, CUevent, CUgreenCtx,
    CUresult, CUstream, CUstream_flags, cuCtxFromGreenCtx, cuEventRecord, cuGreenCtxDestroy,
    cuGreenCtxGetDevResource, cuGreenCtxGetId, cuGreenCtxRecordEvent, cuGreenCtxStreamCreate,
    cuGreenCtxWaitEvent, cuLaunchKernel, cuStreamCreate, cuStreamCreateWithPriority,
    cuStreamDestroy_v2, cuStreamGetGreenCtx, cuStreamQuery, cuStreamSynchronize, cuStreamWaitEvent,
};
use cuda_safe::{Context, CudaVersion, DeviceBuffer, Invalid, Stream};
use std::collections::BTreeSet;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

#[test]
fn an_event_of_a_whole_partition_completes_after_all_of_its_streams() {
    let (_alone, [one, other]) = or_skip!(two());
    let event = one.context().event().expect("an event");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tell = |stream: &Stream, what| {
        let seen = Arc::clone(&seen);
        let tell = move || seen.lock().expect("no panic").push(what);
        stream.launch_host_function(tell).expect("a function");
    };
    let before: Vec<Stream> = (0..3).map(|_| one.stream().expect("a stream")).collect();
    let after: Vec<Stream> = (0..3).map(|_| other.stream().expect("a stream")).collect();
    before.iter().for_each(|stream| tell(stream, "before"));
    one.record_event(&event).expect("a record");
    other.wait_event(&event).expect("a wait");
    after.iter().for_each(|stream| tell(stream, "after"));
    one.context().synchronize().expect("a wait");
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen[..3], ["before"; 3]);
    assert_eq!(seen[3..], ["after"; 3]);
}

#[test]
fn a_partition_is_current_for_foreign_code_on_one_thread_at_a_time() {
    let (_alone, [one, other]) = or_skip!(two());
    let made = one.with_current(|current| {
        assert_eq!(current.green_context(), &one);
        // A C library would create a stream like this, in the current context.
        let mut raw = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        // SAFETY: the pointer refers to a local variable.
        assert!(unsafe { cuStreamCreate(&raw mut raw, flags) }.is_success());
        // The same thread may make the partition current again, and another partition inside that.
        let within = one.with_current(|_| other.with_current(|_| ()));
        within.expect("a guard").expect("a guard");
        std::thread::scope(|scope| {
            let there = scope.spawn(|| one.make_current().map(|_| ()).expect_err("it is here"));
            assert_eq!(refusal(there.join().expect("no panic")), Invalid::CurrentElsewhere);
        });
        raw
    });
    let raw = made.expect("a guard");
    // SAFETY: the stream was just created while the partition of this primary context was current,
    // nothing else uses it, and it is dropped before the partition.
    let stream = unsafe { Stream::borrow_raw(raw, one.context()) }.expect("a stream");
    let green = GreenContext::of_stream(&stream).expect("an answer");
    assert_eq!(green.as_ref(), Some(&one));
    assert_eq!(green.expect("a partition").sm_count(), one.sm_count());
    // SAFETY: the stream was created above, and nothing uses it any more.
    assert!(unsafe { cuda_safe::sys::cuStreamDestroy_v2(raw) }.is_success());
    std::thread::scope(|scope| {
        let there = scope.spawn(|| one.with_current(|_| ()));
        there.join().expect("no panic").expect("it is not current any more");
    });
}

#[test]
fn a_stream_reports_its_partition_or_none() {
    let (_alone, [one, _]) = or_skip!(two());
    let plain = one.context().stream().expect("a stream");
    assert_eq!(GreenContext::of_stream(&plain).expect("an answer"), None);
    let its = one.stream().expect("a stream");
    assert_eq!(GreenContext::of_stream(&its).expect("an answer"), Some(one));
}

/// A C library would create its streams with these functions, in the current context.
#[test]
fn a_stream_of_foreign_code_reports_the_partition_that_was_current() {
    let (_alone, [one, _]) = or_skip!(two());
    let created = |expected: CUgreenCtx| {
        for flags in [CUstream_flags::CU_STREAM_NON_BLOCKING.0, CUstream_flags::CU_STREAM_DEFAULT.0]
        {
            let (mut plain, mut with_priority) = (null_mut(), null_mut());
            // SAFETY: the pointer refers to a local variable.
            succeeds(unsafe { cuStreamCreate(&raw mut plain, flags) });
            // SAFETY: as above.
            succeeds(unsafe { cuStreamCreateWithPriority(&raw mut with_priority, flags, -1) });
            for stream in [plain, with_priority] {
                assert_eq!(green_of(stream), Ok(expected), "flags {flags}");
                // SAFETY: the stream was created above, and nothing uses it.
                succeeds(unsafe { cuStreamDestroy_v2(stream) });
            }
        }
    };
    one.with_current(|_| created(one.as_raw())).expect("a guard");
    one.context().with_current(|_| created(null_mut())).expect("a guard");
}

#[test]
fn the_default_stream_of_a_partition_runs_on_its_sms() {
    child::in_child(&[], || {
        let (_alone, [one, _]) = or_skip!(two());
        let context = one.context();
        let its = RecordSmid::new(context).sms(&one.stream().expect("a stream"));
        let record = kernel::<(&'static mut [u32], u32)>(context, SMID, "record_smid");
        let function = record.kernel().as_raw();
        let stream = context.stream().expect("a stream");
        let smids = DeviceBuffer::<u32>::zeroed(&stream, FILLING as usize).expect("memory");
        stream.synchronize().expect("a wait");
        let launched = one.with_current(|current| {
            let (mut address, mut cycles) = (smids.as_raw(), SHORT);
            let mut arguments: [*mut c_void; 2] =
                [(&raw mut address).cast(), (&raw mut cycles).cast()];
            let (list, none) = (arguments.as_mut_ptr(), null_mut());
            let legacy = CU_STREAM_LEGACY;
            // SAFETY: the kernel writes one element for each block, and the memory has that many and
            // stays alive.
            succeeds(unsafe {
                cuLaunchKernel(function, FILLING, 1, 1, WARP, 1, 1, 0, legacy, list, none)
            });
            current.legacy_stream().synchronize().expect("a wait");
        });
        launched.expect("a guard");
        let there = smids.to_vec().expect("the SM numbers");
        let there: BTreeSet<u32> = there.into_iter().collect();
        assert_eq!(there, its);
        assert_eq!(there.len(), one.sm_count() as usize);
    });
}

/// Returns the green context of a stream, or the driver's error code.
fn green_of(stream: CUstream) -> Result<CUgreenCtx, CUresult> {
    let mut green = null_mut();
    // SAFETY: the stream is alive or a default stream, and the pointer refers to a local variable.
    let code = unsafe { cuStreamGetGreenCtx(stream, &raw mut green) };
    if code.is_success() { Ok(green) } else { Err(code) }
}

#[test]
fn the_legacy_stream_of_a_partition_reports_it() {
    let (_alone, [one, other]) = or_skip!(two());
    let context = one.context();
    let [ours, theirs] = common::events(context);
    let stream = context.stream().expect("a stream");
    let used = one.with_current(|current| {
        let default = current.legacy_stream();
        assert_eq!(default.green_context().as_ref(), Some(&one));
        assert_eq!(default.context(), context);
        ours.record(&stream).expect("a record");
        default.wait_event(&ours).expect("a wait");
        default.record_event(&theirs).expect("a record");
        stream.wait_event(&theirs).expect("a wait");
        stream.synchronize().expect("a wait");
        default.synchronize().expect("a wait");
        assert!(default.is_complete().expect("a query"));
        for stream in [null_mut(), CU_STREAM_LEGACY] {
            assert_eq!(green_of(stream), Ok(one.as_raw()));
        }
        // `current` still returns the default stream of its own partition while another partition is
        // current.
        let within = other.with_current(|_| {
            let outer = current.legacy_stream();
            outer.record_event(&theirs).expect("a record");
            assert_eq!(outer.green_context().as_ref(), Some(&one));
            assert_eq!(green_of(CU_STREAM_LEGACY), Ok(other.as_raw()));
        });
        within.expect("a guard");
    });
    used.expect("a guard");
    let used = context.with_current(|current| {
        for default in [current.legacy_stream(), current.per_thread_stream()] {
            assert_eq!(default.green_context(), None);
            assert_eq!(green_of(default.as_raw()), Ok(null_mut()));
        }
    });
    used.expect("a guard");
}

#[test]
fn a_partition_has_no_per_thread_stream() {
    let (_alone, [one, _]) = or_skip!(two());
    let context = one.context();
    let event = context.event().expect("an event");
    let used = context.with_current(|current| {
        current.per_thread_stream().record_event(&event).expect("a record");
        current.per_thread_stream().synchronize().expect("a wait");
    });
    used.expect("a guard");
    let stream = CU_STREAM_PER_THREAD;
    let (fails, event) = (CUresult::CUDA_ERROR_INVALID_HANDLE, event.as_raw());
    let used = one.with_current(|_| {
        assert_eq!(green_of(stream), Err(fails));
        // SAFETY: a default stream always exists.
        assert_eq!(unsafe { cuStreamQuery(stream) }, fails);
        // SAFETY: as above.
        assert_eq!(unsafe { cuStreamSynchronize(stream) }, fails);
        // SAFETY: as above, and the event is alive.
        assert_eq!(unsafe { cuEventRecord(event, stream) }, fails);
        // SAFETY: as above.
        assert_eq!(unsafe { cuStreamWaitEvent(stream, event, 0) }, fails);
    });
    used.expect("a guard");
}

/// The later work waits for a word in memory that the test writes only after the earlier event has
/// completed. If the later work delayed the earlier event, the test would never end.
#[test]
fn later_work_leaves_an_earlier_event_of_a_partition_unchanged() {
    child::in_child(&[], || {
        let (_alone, [one, _]) = or_skip!(two());
        let context = one.context();
        let [earlier, later] = common::events(context);
        let streams = [one.stream(), one.stream(), context.stream()];
        let [first, second, writer] = streams.map(|stream| stream.expect("a stream"));
        let mut word = DeviceBuffer::<u32>::zeroed_sync(&writer, 1).expect("memory");
        writer.synchronize().expect("a wait");
        let mut data = DeviceBuffer::<u32>::zeroed(&first, 4).expect("memory");
        one.record_event(&earlier).expect("a record");
        let wait = MemoryOperation::Wait32 {
            address: word.as_raw(),
            value: 1,
            condition: WaitCondition::Equal,
            flush: false,
        };
        // SAFETY: the word outlives the wait, and is written below.
        unsafe { second.memory_operations(&[wait]) }.expect("enqueued");
        data.fill(7).expect("a fill");
        one.record_event(&later).expect("a record");
        earlier.synchronize().expect("it covers the earlier work only");
        assert!(earlier.is_complete().expect("a query"));
        assert!(!later.is_complete().expect("a query"), "the word is not written yet");
        word.as_mut_slice().write_value(0, 1).expect("enqueued");
        later.synchronize().expect("the word was written");
        assert!(earlier.is_complete().expect("a query"));
        assert_eq!(data.to_vec().expect("a copy"), [7; 4]);
    });
}

#[test]
fn a_partition_is_current_on_one_thread_even_through_several_objects() {
    let (_alone, [one, _]) = or_skip!(two());
    let again = || {
        // SAFETY: `one` outlives the borrowed partitions.
        unsafe { GreenContext::borrow_raw(one.as_raw(), one.context()) }.expect("a green context")
    };
    let (second, third) = (again(), again());
    let its = one.stream().expect("a stream");
    // SAFETY: the stream outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(its.as_raw(), one.context()) };
    let of_stream = GreenContext::of_stream(&borrowed.expect("a stream"));
    let of_stream = of_stream.expect("an answer").expect("a partition");
    for here in [&one, &second, &of_stream] {
        let _current = here.make_current().expect("a guard");
        for other in [&one, &second, &third, &of_stream] {
            std::thread::scope(|scope| {
                let there = scope.spawn(|| other.make_current().map(|_| ()));
                let why = there.join().expect("no panic").expect_err("it is here");
                assert_eq!(refusal(why), Invalid::CurrentElsewhere);
            });
            // The same thread may make the partition current several times.
            other.with_current(|_| ()).expect("a guard");
        }
    }
}

#[test]
fn a_borrowed_partition_is_not_destroyed() {
    let (_alone, [one, other]) = or_skip!(two());
    let view = one.as_raw_context().expect("a view");
    assert_eq!(one.as_raw_context().expect("a view"), view, "the same");
    // SAFETY: the partition outlives the borrowed one and the stream created from it.
    let borrowed =
        unsafe { GreenContext::borrow_raw(one.as_raw(), one.context()) }.expect("a green context");
    assert_eq!(borrowed, one);
    assert_eq!(borrowed.sm_count(), one.sm_count());
    let stream = borrowed.stream().expect("a stream");
    stream.synchronize().expect("a wait");
    drop((borrowed, stream));
    one.stream().expect("it is alive");

    let raw = other.as_raw();
    let context = other.context().clone();
    // SAFETY: the owner `other` keeps the green context alive.
    let foreign =
        unsafe { GreenContext::from_foreign(raw, &context, other) }.expect("a green context");
    let stream = foreign.stream().expect("a stream");
    drop(foreign);
    stream.synchronize().expect("its owner is alive");
}

#[test]
fn work_queues_are_a_resource_or_the_error_names_the_needed_version() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    let driver = cuda_safe::version().expect("a driver");
    if driver < CudaVersion::new(13, 1) {
        let text = Workqueues::of_device(&device).expect_err("older").to_string();
        let expected = format!("a workqueue resource needs CUDA 13.1; this driver offers {driver}");
        assert_eq!(text, expected);
        return;
    }
    let context = Context::primary(&device).expect("a context");
    let most = Workqueues::of_context(&context).expect("an answer");
    assert!(most.concurrency_limit().expect("a number") > 0);
    let queues = Workqueues::of_device(&device).expect("an answer");
    let set = queues.with_concurrency_limit(2).with_scope(WorkqueueScope::GreenContextBalanced);
    let mut groups = smallest(resource).groups.into_iter();
    let mut descriptor = || Descriptor::new(groups.next());
    let first = descriptor().with_workqueues(set.clone());
    let rejected = first.with_workqueues(set.clone()).try_create();
    let rejected = rejected.expect_err("two workqueue resources");
    assert_eq!(refusal(rejected.error), Invalid::SecondWorkqueues);
    let first = Descriptor::new(rejected.value.into_groups()).with_workqueues(set);
    let partition = first.create().expect("a partition");
    let its = Workqueues::of_green_context(&partition).expect("an answer");
    assert_eq!(its.concurrency_limit(), Some(2));
    assert_eq!(its.scope(), Some(WorkqueueScope::GreenContextBalanced));
    let shared = Workqueues::shared_with(&partition).expect("an answer");
    assert_eq!(shared.concurrency_limit(), None);
    let second = descriptor().with_workqueues(shared);
    let second = second.create().expect("a partition");
    drop(partition);
    second.stream().expect("a stream");
    let shared = Workqueues::shared_with_context(&context).expect("an answer");
    assert_eq!((shared.concurrency_limit(), shared.scope()), (None, None));
    let third = descriptor().with_workqueues(shared);
    let third = third.create().expect("a partition");
    third.stream().expect("a stream");
}

#[test]
fn a_partition_without_a_default_stream_needs_13_3() {
    let _alone = alone();
    let groups = smallest(or_skip!(resource())).groups.into_iter().take(1);
    let driver = cuda_safe::version().expect("a driver");
    match Descriptor::new(groups).without_default_stream().try_create() {
        Ok(partition) => {
            assert!(driver >= CudaVersion::new(13, 3));
            let stream = partition.stream().expect("a stream");
            stream.synchronize().expect("a wait");
        }
        Err(rejected) => {
            let expected = Invalid::NeedsNewerDriver {
                what: "a green context without a default stream",
                since: CudaVersion::new(13, 3),
                driver,
            };
            assert_eq!(refusal(rejected.error), expected);
            rejected.value.create().expect_err("the request is still set");
        }
    }
}

mod provoked {
    //! Recording an event of a whole partition, or waiting for one, invalidates the captures of the
    //! partition. The driver rejects invalid handles of green contexts.

    use super::*;

    /// Calls six functions that take a green context with this handle, and returns their codes.
    fn codes(green: CUgreenCtx, event: CUevent) -> [(&'static str, CUresult); 6] {
        let mut resource = CUdevResource::default();
        let (mut view, mut stream, mut id) = (null_mut(), null_mut(), 0);
        let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        // SAFETY: the pointer refers to a local variable, and the driver rejects the handle.
        let of_resource = unsafe { cuGreenCtxGetDevResource(green, &raw mut resource, kind) };
        // SAFETY: as above.
        let of_view = unsafe { cuCtxFromGreenCtx(&raw mut view, green) };
        // SAFETY: as above.
        let of_stream = unsafe { cuGreenCtxStreamCreate(&raw mut stream, green, flags, 0) };
        // SAFETY: the event is alive, and the driver rejects the handle.
        let of_record = unsafe { cuGreenCtxRecordEvent(green, event) };
        // SAFETY: as above.
        let of_wait = unsafe { cuGreenCtxWaitEvent(green, event) };
        // SAFETY: the pointer refers to a local variable, and the driver rejects the handle.
        let of_id = unsafe { cuGreenCtxGetId(green, &raw mut id) };
        [
            ("cuGreenCtxGetDevResource", of_resource),
            ("cuCtxFromGreenCtx", of_view),
            ("cuGreenCtxStreamCreate", of_stream),
            ("cuGreenCtxRecordEvent", of_record),
            ("cuGreenCtxWaitEvent", of_wait),
            ("cuGreenCtxGetId", of_id),
        ]
    }

    /// If a driver crashes on one of these calls, only the child process ends, and the test fails.
    #[test]
    fn a_null_green_context_is_refused_by_every_function() {
        child::with_context_since(12, 9, |context| {
            let event = context.event().expect("an event");
            // SAFETY: the driver rejects null.
            let destroyed = unsafe { cuGreenCtxDestroy(null_mut()) };
            let others = codes(null_mut(), event.as_raw());
            for (name, code) in others.into_iter().chain([("cuGreenCtxDestroy", destroyed)]) {
                // Not measured with a real driver.
                let may_differ = name == "cuGreenCtxGetId" && !common::is_software();
                let refused = match may_differ {
                    false => code == CUresult::CUDA_ERROR_INVALID_CONTEXT,
                    true => !code.is_success(),
                };
                assert!(refused, "{name}: {code:?}");
            }
        });
    }

    /// The driver remembers the handles of destroyed green contexts. A driver that does not remember
    /// them could crash here, in the child process.
    #[test]
    fn a_second_destroy_is_refused() {
        child::in_child(&[], || {
            let (_alone, [one, other]) = or_skip!(two());
            let raw = one.as_raw();
            std::mem::forget(one);
            // SAFETY: nothing else destroys the green context, and it has no stream.
            assert!(unsafe { cuGreenCtxDestroy(raw) }.is_success());
            // SAFETY: the driver must recognize the destroyed handle, which this test checks. If it
            // does not, the behavior is undefined, but only in the child process.
            let again = unsafe { cuGreenCtxDestroy(raw) };
            assert_eq!(again, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
            let stream = other.stream().expect("the other partition is alive");
            stream.synchronize().expect("a wait");
        });
    }

    #[test]
    fn recording_an_event_of_a_captured_partition_has_its_own_error() {
        let (_alone, [one, _]) = or_skip!(two());
        let event = one.context().event().expect("an event");
        let stream = one.stream().expect("a stream");
        for wait in [false, true] {
            let captured = stream.capture::<cuda_safe::Error>(CaptureMode::ThreadLocal, |_| {
                let refused = if wait { one.wait_event(&event) } else { one.record_event(&event) };
                let why = refusal(refused.expect_err("its stream is being captured"));
                assert_eq!(why, Invalid::GreenContextIsCaptured);
                Ok(())
            });
            captured.expect_err("the capture is invalidated");
        }
        stream.synchronize().expect("the stream is free");
    }

    #[test]
    fn recording_an_event_of_a_partition_or_waiting_invalidates_all_of_its_captures() {
        let (_alone, [one, other]) = or_skip!(two());
        let event = one.context().event().expect("an event");
        let streams = [one.stream(), one.stream()].map(|stream| stream.expect("a stream"));
        let unrelated = other.stream().expect("a stream");
        for wait in [false, true] {
            let begin = |stream: &Stream| stream.begin_capture(CaptureMode::ThreadLocal);
            let captures =
                [&streams[0], &streams[1]].map(|stream| begin(stream).expect("a capture"));
            let apart = begin(&unrelated).expect("a capture");
            let refused = match wait {
                true => one.wait_event(&event),
                false => one.record_event(&event),
            };
            let why = refusal(refused.expect_err("two streams are being captured"));
            assert_eq!(why, Invalid::GreenContextIsCaptured);
            let invalidated = Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            for capture in captures {
                let error = capture.end().expect_err("it is invalidated");
                assert_eq!(error.code(), invalidated, "{error}");
            }
            apart.end().expect("a graph of another partition");
        }
        for stream in &streams {
            stream.synchronize().expect("the stream is free");
        }
    }
}
