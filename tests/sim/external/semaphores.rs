//! Semaphores of the safe layer.

use crate::prelude::*;
use cuda_safe::attempt_deferred_releases;
use cuda_safe::external::{BinarySemaphore, TimelineSemaphore};
use cuda_sim::external::ExternalSemaphore;

/// Starts the software driver. At the end the deferred releases are attempted.
fn stage() -> (AtEnd, Context, Stream) {
    let (end, context, stream) = on_stream();
    let drain = || (0..8).for_each(|_| attempt_deferred_releases());
    (end.after(drain), context, stream)
}

/// Returns a timeline semaphore of both APIs.
pub(crate) fn timeline(context: &Context) -> (ExternalSemaphore, TimelineSemaphore) {
    let theirs = ExternalSemaphore::timeline(0).expect("a semaphore");
    let exported = theirs.export().expect("a descriptor");
    // SAFETY: the descriptor is that of a timeline semaphore.
    let ours = unsafe { TimelineSemaphore::import(context, exported) };
    (theirs, ours.expect("imported"))
}

/// Returns a binary semaphore of both APIs.
pub(crate) fn binary(context: &Context) -> (ExternalSemaphore, BinarySemaphore) {
    let theirs = ExternalSemaphore::binary().expect("a semaphore");
    let exported = theirs.export().expect("a descriptor");
    // SAFETY: the descriptor is that of a binary semaphore.
    let ours = unsafe { BinarySemaphore::import(context, exported) };
    (theirs, ours.expect("imported"))
}

#[track_caller]
pub(crate) fn value(semaphore: &ExternalSemaphore) -> u64 {
    semaphore.value().expect("a value")
}

#[test]
fn a_timeline_semaphore_orders_the_frames_of_both_apis() {
    let (_end, context, stream) = in_child!(stage());
    let (theirs, mut ours) = timeline(&context);
    assert_eq!((ours.last_signal(), ours.context()), (0, &context));
    let mut count = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    for frame in 0..1000 {
        theirs.signal(2 * frame + 1).expect("signaled");
        stream.wait_timeline(&ours, 2 * frame + 1).expect("a wait");
        count.fill(frame as u32).expect("a fill");
        stream.signal_timeline(&mut ours, 2 * frame + 2).expect("a signal");
        // The work has not run.
        assert_eq!(value(&theirs), 2 * frame + 1);
        stream.synchronize().expect("a wait");
        assert_eq!(value(&theirs), 2 * frame + 2);
    }
    assert_eq!(count.to_vec().expect("a copy"), [999]);
    assert_eq!(ours.last_signal(), 2000);
}

#[test]
fn a_wait_is_over_with_a_larger_value() {
    let (_end, context, stream) = in_child!(stage());
    let (theirs, ours) = timeline(&context);
    theirs.signal(1 << 40).expect("signaled");
    for value in [0, 1, 1 << 40] {
        stream.wait_timeline(&ours, value).expect("a wait");
    }
    stream.synchronize().expect("the value was reached");
}

#[test]
fn a_wait_comes_after_a_signal_of_another_stream() {
    let (_end, context, stream) = in_child!(stage());
    let (_theirs, mut ours) = timeline(&context);
    let (other, mut buffer) = (
        context.stream().expect("a stream"),
        DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory"),
    );
    // The wait is enqueued first.
    other.wait_timeline(&ours, 5).expect("a wait");
    buffer.fill(7).expect("a fill");
    stream.signal_timeline(&mut ours, 5).expect("a signal");
    other.synchronize().expect("the stream signals");
    assert!(stream.is_complete().expect("a query"));
}

#[test]
fn the_value_of_a_timeline_semaphore_grows() {
    let (_end, context, stream) = in_child!(stage());
    let (theirs, mut ours) = timeline(&context);
    assert_eq!(
        invalid(stream.signal_timeline(&mut ours, 0)),
        Invalid::TimelineValue { value: 0, last: 0 }
    );
    stream.signal_timeline(&mut ours, 3).expect("a signal");
    for value in [1, 3] {
        let refused = invalid(stream.signal_timeline(&mut ours, value));
        assert_eq!(refused, Invalid::TimelineValue { value, last: 3 });
    }
    let refused = {
        let _fault = fail("cuSignalExternalSemaphoresAsync", 1, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        stream.signal_timeline(&mut ours, 4)
    };
    assert!(refused.is_err());
    assert_eq!(ours.last_signal(), 3);
    stream.signal_timeline(&mut ours, 4).expect("the failed signal does not count");
    stream.synchronize().expect("a wait");
    assert_eq!(value(&theirs), 4);
}

/// Signals on two streams in turn, with this seed.
fn signals_on_two_streams(seed: u64) {
    let (_end, context) = on(Profile::h200().with_seed(seed));
    let streams = common::streams::<2>(&context);
    let (theirs, mut ours) = timeline(&context);
    for value in 1..20 {
        let stream = &streams[usize::from(value % 3 == 0)];
        stream.signal_timeline(&mut ours, value).expect("a signal");
    }
    streams.iter().for_each(|stream| stream.synchronize().expect("a wait"));
    // A value that decreases is a misuse.
    assert_eq!(value(&theirs), 19);
}

#[test]
fn signals_on_several_streams_are_ordered() {
    in_child!();
    signals_on_two_streams(1);
}

#[test]
fn signals_on_several_streams_are_ordered_with_another_seed() {
    in_child!();
    signals_on_two_streams(2);
}

#[test]
fn a_binary_semaphore_has_one_wait_for_each_signal() {
    let (_end, context, stream) = in_child!(stage());
    let (theirs, mut ours) = binary(&context);
    for _ in 0..3 {
        assert_eq!(invalid(stream.wait_binary(&mut ours)), Invalid::SemaphoreNotSignaled);
        assert_eq!(invalid(ours.wait_submitted()), Invalid::SemaphoreNotSignaled);
        // The other API signals.
        theirs.signal(1).expect("signaled");
        ours.signal_submitted().expect("it was not signaled");
        assert!(ours.is_signaled());
        assert_eq!(invalid(ours.signal_submitted()), Invalid::SemaphoreSignaled);
        assert_eq!(invalid(stream.signal_binary(&mut ours)), Invalid::SemaphoreSignaled);
        stream.wait_binary(&mut ours).expect("a wait");
        stream.synchronize().expect("signaled");
        assert_eq!(value(&theirs), 0);
        // This API signals.
        stream.signal_binary(&mut ours).expect("a signal");
        stream.synchronize().expect("a wait");
        assert!(theirs.take().expect("a wait"));
        ours.wait_submitted().expect("it was signaled");
        assert!(!ours.is_signaled());
    }
}

#[test]
fn the_state_of_a_binary_semaphore_is_that_before_a_failed_call() {
    let (_end, context, stream) = in_child!(stage());
    let (_theirs, mut ours) = binary(&context);
    {
        let _fault = fail("cuSignalExternalSemaphoresAsync", 1, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        stream.signal_binary(&mut ours).expect_err("a fault");
    }
    stream.signal_binary(&mut ours).expect("a signal");
    {
        let _fault = fail("cuWaitExternalSemaphoresAsync", 1, CUresult::CUDA_ERROR_NOT_SUPPORTED);
        stream.wait_binary(&mut ours).expect_err("a fault");
    }
    stream.wait_binary(&mut ours).expect("a wait");
    stream.synchronize().expect("a wait");
}

#[test]
fn operations_on_a_binary_semaphore_on_several_streams_are_ordered() {
    in_child!();
    let (_end, context) = on(Profile::h200().with_seed(3));
    let streams = common::streams::<3>(&context);
    let (theirs, mut ours) = binary(&context);
    for round in 0..9 {
        streams[round % 3].signal_binary(&mut ours).expect("a signal");
        streams[(round + 1) % 3].wait_binary(&mut ours).expect("a wait");
    }
    streams.iter().for_each(|stream| stream.synchronize().expect("a wait"));
    assert_eq!(value(&theirs), 0);
}

#[test]
fn captured_streams_and_streams_of_other_contexts_are_refused() {
    let (_end, context, stream) = in_child!(stage());
    let (_, mut ours) = timeline(&context);
    let (_, mut single) = binary(&context);
    let graph = stream.capture(CaptureMode::default(), |stream| {
        let is_captured = |refused: Invalid| {
            let text = refused.to_string();
            assert!(matches!(refused, Invalid::StreamIsCaptured), "{text}");
            assert!(text.contains("external semaphore"), "{text}");
        };
        is_captured(invalid(stream.signal_timeline(&mut ours, 1)));
        is_captured(invalid(stream.wait_timeline(&ours, 1)));
        is_captured(invalid(stream.signal_binary(&mut single)));
        Ok::<_, Error>(())
    });
    assert_eq!(graph.expect("a graph").nodes().expect("nodes").len(), 0);
    let other = Context::new(&context.device(), ContextFlags::SCHED_YIELD).expect("a context");
    let other = other.stream().expect("a stream");
    let is_other = |refused| assert!(matches!(refused, Invalid::OtherContext { .. }));
    is_other(invalid(other.signal_timeline(&mut ours, 1)));
    is_other(invalid(other.wait_timeline(&ours, 1)));
}

#[test]
fn a_semaphore_is_destroyed_after_the_work_of_its_streams() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams = common::streams::<2>(&context);
    let (theirs, mut ours) = timeline(&context);
    streams[0].wait_timeline(&ours, 1).expect("a wait");
    streams[1].wait_timeline(&ours, 10).expect("a wait");
    streams[0].signal_timeline(&mut ours, 2).expect("a signal");
    let called = calls(|| drop(ours));
    assert!(!called.contains(&"cuDestroyExternalSemaphore"), "{called:?}");
    assert!(!called.contains(&"cuStreamSynchronize"), "{called:?}");
    assert_eq!(deferred_releases(), 2);
    theirs.signal(1).expect("signaled");
    streams[0].synchronize().expect("a wait");
    // A query runs one operation, so it takes several.
    for _ in 0..8 {
        attempt_deferred_releases();
    }
    assert_eq!(deferred_releases(), 1);
    // The semaphore keeps the streams.
    drop(streams);
    theirs.signal(10).expect("signaled");
    for _ in 0..8 {
        attempt_deferred_releases();
    }
    assert_eq!((deferred_releases(), alive().external_semaphores), (0, 0));
}

#[test]
fn a_semaphore_that_nothing_uses_is_destroyed_at_once() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (_, ours) = timeline(&context);
    drop(ours);
    assert_eq!((deferred_releases(), alive().external_semaphores), (0, 0));
}

#[test]
fn a_semaphore_is_dropped_during_a_capture() {
    let (_end, context, stream) = in_child!(stage());
    let (theirs, ours) = timeline(&context);
    theirs.signal(1).expect("signaled");
    stream.wait_timeline(&ours, 1).expect("a wait");
    let graph = stream.capture(CaptureMode::Global, |_| {
        drop(ours);
        assert_eq!(alive().external_semaphores, 1);
        Ok::<_, Error>(())
    });
    graph.expect("a graph");
    stream.synchronize().expect("a wait");
    attempt_deferred_releases();
    assert_eq!(alive().external_semaphores, 0);
}

#[test]
fn a_raw_handle_is_taken_and_given_up() {
    let (_end, context, stream) = in_child!(stage());
    // SAFETY: the driver is not called.
    let null = unsafe { TimelineSemaphore::from_raw(null_mut(), &context) };
    assert!(matches!(invalid(null), Invalid::Handle { .. }));
    let (theirs, ours) = timeline(&context);
    let raw = ours.as_raw();
    // The leaked object keeps its context.
    let ours = std::mem::ManuallyDrop::new(ours);
    // SAFETY: the handle is that of a timeline semaphore, and the other object is not used.
    let mut again = unsafe { TimelineSemaphore::from_raw(raw, &context) }.expect("a handle");
    stream.signal_timeline(&mut again, 9).expect("a signal");
    stream.synchronize().expect("a wait");
    assert_eq!(value(&theirs), 9);
    drop(again);
    let ours = std::mem::ManuallyDrop::into_inner(ours);
    {
        let _fault = fail("cuDestroyExternalSemaphore", 1, CUresult::CUDA_ERROR_DEINITIALIZED);
        drop(ours);
    }
}

#[test]
fn a_wait_that_nothing_signals_is_found() {
    let (context, stream) = &in_child!(expecting_misuse());
    let (_theirs, ours) = timeline(context);
    stream.wait_timeline(&ours, 1).expect("a wait");
    stream.synchronize().expect_err("a real GPU hangs");
    found("a stream waits for an external semaphore that nothing has signaled");
}
