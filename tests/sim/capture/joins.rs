//! Streams that join a capture through a wait, and how this crate identifies the capture.

use crate::capture::errors;
use crate::common::streams;
use crate::prelude::*;
use cuda_safe::capture::Capture;

const IS_CAPTURING: &str = "cuStreamIsCapturing";
const INFO: &str = "cuStreamGetCaptureInfo_v3";
const WAIT: &str = "cuStreamWaitEvent";

/// Returns whether an allocation on the stream is refused because the stream is captured, and whether
/// the driver was queried for that.
fn is_captured(stream: &Stream) -> (bool, bool) {
    let mut is_captured = false;
    let asked = count(IS_CAPTURING, || is_captured = errors::is_captured(stream));
    (is_captured, asked != 0)
}

fn begin(stream: &Stream) -> Capture {
    stream.begin_capture(CaptureMode::Relaxed).expect("begins")
}

/// Makes a captured stream wait for the work of another one, as is required before the end.
fn join(origin: &Stream, joined: &Stream) {
    let event = joined.context().event().expect("an event");
    event.record(joined).expect("a record");
    origin.wait_event(&event).expect("a wait");
}

/// Records an event as other code does, without the knowledge of this crate.
fn record_raw(event: &Event, stream: &Stream) {
    // SAFETY: both are alive.
    let code = unsafe { cuEventRecord(event.as_raw(), stream.as_raw()) };
    assert!(code.is_success(), "{code}");
}

/// Captures a stream around `f`, as other code does.
fn captured_by_other_code(stream: CUstream, mode: CUstreamCaptureMode, f: impl FnOnce()) {
    // SAFETY: the test keeps the stream alive.
    let begun = unsafe { cuStreamBeginCapture_v2(stream, mode) };
    assert!(begun.is_success(), "{begun}");
    f();
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    let ended = unsafe { cuStreamEndCapture(stream, &raw mut graph) };
    assert!(ended.is_success(), "{ended}");
    // SAFETY: the graph was just created, and nothing else uses it.
    assert!(unsafe { cuGraphDestroy(graph) }.is_success());
}

const RELAXED: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
const GLOBAL: CUstreamCaptureMode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;

/// The driver names the capture of an event that other code has recorded.
#[test]
fn a_stream_that_joins_a_capture_by_a_record_of_other_code_is_kept_until_the_end() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, joined] = streams(&context);
    let event = context.event().expect("an event");
    let capture = begin(&origin);
    record_raw(&event, &origin);
    joined.wait_event(&event).expect("it joins the capture");
    assert_eq!(is_captured(&joined), (true, false), "the capture is known");
    join(&origin, &joined);
    drop(joined);
    drop(capture.end().expect("its stream was not destroyed"));
    assert_eq!(cuda_sim::alive().streams, 1);
}

#[test]
fn a_stream_that_is_dropped_in_a_capture_is_destroyed_after_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, joined] = streams(&context);
    let event = context.event().expect("an event");
    let capture = begin(&origin);
    event.record(&origin).expect("a record");
    joined.wait_event(&event).expect("it joins the capture");
    join(&origin, &joined);
    drop(joined);
    assert_eq!(cuda_sim::alive().streams, 2);
    drop(capture.end().expect("its stream was not destroyed"));
    assert_eq!(cuda_sim::alive().streams, 1);
}

#[test]
fn a_stream_whose_wait_fails_is_not_captured() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, other] = streams(&context);
    let event = context.event().expect("an event");
    let capture = begin(&origin);
    event.record(&origin).expect("a record");
    {
        let _fails = fail(WAIT, 1, CUresult::CUDA_ERROR_INVALID_VALUE);
        other.wait_event(&event).expect_err("the fault");
    }
    assert_eq!(is_captured(&other), (false, false));
    drop(capture.end().expect("a graph"));
}

/// The driver's wait decides whether the stream joins a capture.
#[test]
fn a_call_on_a_stream_is_refused_while_its_wait_may_join_a_capture() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, joined] = streams(&context);
    let [event, other] = [(); 2].map(|()| context.event().expect("an event"));
    let capture = begin(&origin);
    event.record(&origin).expect("a record");
    let (sender, refused) = std::sync::mpsc::channel();
    let (its, marks) = (joined.clone(), other.clone());
    set_call_hook(move |function| {
        if function == WAIT {
            sender.send(marks.record(&its)).expect("received");
        }
    });
    joined.wait_event(&event).expect("it joins the capture");
    set_call_hook(|_| {});
    let refused: Vec<_> = refused.try_iter().collect();
    let in_progress = |error: &Error| matches!(error, Error::Invalid(why) if matches!(**why, Invalid::CallsInProgress { calls: 1, .. }));
    assert!(matches!(&refused[..], [Err(error)] if in_progress(error)), "{refused:?}");
    join(&origin, &joined);
    drop(capture.end().expect("a graph"));
}

/// The query after the wait fails, so the stream may have joined the capture.
#[test]
fn a_stream_whose_status_is_unknown_counts_as_captured_until_the_end() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, joined] = streams(&context);
    let event = context.event().expect("an event");
    let capture = begin(&origin);
    event.record(&origin).expect("a record");
    {
        let _fails = fail(INFO, 1, CUresult::CUDA_ERROR_UNKNOWN);
        joined.wait_event(&event).expect("the wait itself succeeds");
    }
    assert_eq!(is_captured(&joined), (true, false));
    join(&origin, &joined);
    drop(capture.end().expect("a graph"));
    assert_eq!(is_captured(&joined), (false, false), "other code has no handle");
}

#[test]
fn a_stream_in_a_capture_of_other_code_belongs_to_no_capture_of_this_crate() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, theirs] = streams(&context);
    let event = context.event().expect("an event");
    let capture = begin(&origin);
    event.record(&origin).expect("a record");
    captured_by_other_code(theirs.as_raw(), RELAXED, || {
        let fails = fail(WAIT, 1, CUresult::CUDA_ERROR_INVALID_VALUE);
        theirs.wait_event(&event).expect_err("the fault");
        drop(fails);
        assert_eq!(is_captured(&theirs), (true, true), "the driver is queried");
    });
    drop(capture.end().expect("a graph"));
}

/// Another thread can use the stream as soon as the driver captures it. `begin_capture` queries
/// the ID of the capture afterwards.
#[test]
fn a_stream_joins_a_capture_whose_id_is_not_known_yet() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, joined] = streams(&context);
    let event = context.event().expect("an event");
    let is_first = AtomicBool::new(true);
    let (its, other, marks) = (origin.clone(), joined.clone(), event.clone());
    set_call_hook(move |function| {
        if function == INFO && is_first.swap(false, Ordering::SeqCst) {
            marks.record(&its).expect("a record");
            other.wait_event(&marks).expect("it joins the capture");
        }
    });
    let capture = begin(&origin);
    set_call_hook(|_| {});
    assert_eq!(is_captured(&joined), (true, false), "the capture is known");
    join(&origin, &joined);
    drop(capture.end().expect("a graph"));
    assert_eq!(is_captured(&joined), (false, false));
}

/// The capture ends after the wait, before the driver is queried which capture the stream has joined.
#[test]
fn a_stream_is_not_captured_by_a_capture_that_ends_meanwhile() {
    thread_local! {
        static CAPTURE: RefCell<Option<Capture>> = const { RefCell::new(None) };
    }
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, joined] = streams(&context);
    let event = context.event().expect("an event");
    let capture = begin(&origin);
    event.record(&origin).expect("a record");
    CAPTURE.set(Some(capture));
    set_call_hook(|function| {
        let capture = match function {
            INFO => CAPTURE.take(),
            _ => None,
        };
        if let Some(capture) = capture {
            drop(capture.end());
        }
    });
    {
        let _fails = fail(INFO, 1, CUresult::CUDA_ERROR_UNKNOWN);
        joined.wait_event(&event).expect("the wait itself succeeds");
    }
    set_call_hook(|_| {});
    assert!(CAPTURE.take().is_none(), "the capture has ended");
    assert_eq!(is_captured(&joined), (false, true), "the driver is queried");
    let graph = joined.capture::<Error>(CaptureMode::Relaxed, |_| Ok(()));
    drop(graph.expect("nothing captures the stream"));
}

#[test]
fn the_end_of_a_capture_leaves_a_stream_in_its_own_capture() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [first, second, joined] = streams(&context);
    let [on_first, on_second] = [(); 2].map(|()| context.event().expect("an event"));
    let (one, two) = (begin(&first), begin(&second));
    on_first.record(&first).expect("a record");
    on_second.record(&second).expect("a record");
    joined.wait_event(&on_second).expect("it joins the second capture");
    {
        let _fails = fail(WAIT, 1, CUresult::CUDA_ERROR_INVALID_VALUE);
        joined.wait_event(&on_first).expect_err("the fault");
    }
    assert_eq!(is_captured(&joined), (true, false));
    drop(one.end().expect("a graph"));
    assert_eq!(is_captured(&joined), (true, false));
    join(&second, &joined);
    drop(two.end().expect("a graph"));
    assert_eq!(is_captured(&joined), (false, false));
}

/// While a capture is open, a wait for the whole context would invalidate it.
#[test]
fn a_manager_waits_for_the_context_again_when_the_last_capture_has_ended() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = DriverManager::new(&context).expect("a manager");
    let waits = || {
        let wait = || manager.base().synchronize().expect("a wait");
        count("cuCtxSynchronize_v2", wait)
    };
    let [first, second] = streams(&context);
    assert_eq!(waits(), 1);
    let capture = begin(&first);
    assert_eq!(waits(), 0);
    drop(capture.end().expect("a graph"));
    assert_eq!(waits(), 1);
    let (one, two) = (begin(&first), begin(&second));
    assert_eq!(waits(), 0);
    drop(one.end().expect("a graph"));
    assert_eq!(waits(), 0, "the other capture is open");
    drop(two.end().expect("a graph"));
    assert_eq!(waits(), 1);
}

#[test]
fn a_manager_that_waits_for_all_work_spares_the_captures_of_other_code() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = DriverManager::new(&context).expect("a manager");
    let stream = context.stream().expect("a stream");
    captured_by_other_code(stream.as_raw(), GLOBAL, || {
        manager.base().synchronize().expect("a wait");
    });
}

#[test]
fn other_code_may_capture_the_stream_of_an_order_by_its_handle() {
    let (_end, _context, stream) = in_child!(on_stream());
    let raw = Order::of(&stream).as_raw().expect("a handle");
    captured_by_other_code(raw, RELAXED, || {
        assert_eq!(is_captured(&stream), (true, true));
    });
    assert_eq!(is_captured(&stream), (false, true));
}

/// The driver gives the handle of a destroyed event to a new one. Here the event stays, because its
/// release is refused.
#[test]
fn an_event_with_the_handle_of_an_earlier_one_was_recorded_in_no_capture() {
    let (_end, context) = in_child!(leaking());
    let [first, second] = streams(&context);
    let (one, two) = (begin(&first), begin(&second));
    let event = context.event().expect("an event");
    let raw = event.as_raw();
    event.record(&first).expect("a record");
    {
        let _refused = fail("cuEventDestroy_v2", 1, CUresult::CUDA_ERROR_UNKNOWN);
        drop(event);
    }
    assert_eq!(cuda_safe::leaked(), 1);
    // SAFETY: the event was not destroyed, and no other object owns it.
    let event = unsafe { Event::from_raw(raw, &context) }.expect("an event");
    event.record(&second).expect("it belongs to no capture");
    drop((one.end().expect("a graph"), two.end().expect("a graph")));
}
