//! Captures that fail to begin or to end in the driver.

use crate::prelude::*;
use cuda_safe::capture::GraphicsCommands;

const BEGIN: &str = "cuStreamBeginCapture_v2";
const END: &str = "cuStreamEndCapture";

/// Returns the reports from now on.
pub(crate) fn reports() -> Arc<Mutex<Vec<String>>> {
    let reports = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&reports);
    cuda_safe::set_report_hook(move |report| {
        kept.lock().expect("no panic").push(report.to_string());
    });
    reports
}

/// Returns whether this crate considers the stream captured.
pub(crate) fn is_captured(stream: &Stream) -> bool {
    match DeviceBuffer::<u8>::uninit(stream, 1) {
        Ok(_) => false,
        Err(Error::Invalid(why)) if *why == Invalid::StreamIsCaptured => true,
        Err(error) => panic!("{error}"),
    }
}

/// Ends a capture. The first `cuStreamEndCapture` fails with one code, and the second with the
/// other.
fn ended(context: &Context, first: CUresult, second: CUresult) -> (Stream, Vec<String>) {
    let reports = reports();
    let stream = context.stream().expect("a stream");
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("begins");
    {
        let _first = fail(END, 1, first);
        // Each fault counts the calls that reach it, and the first call does not reach the second
        // fault.
        let _second = fail(END, 2, second);
        let error = capture.end().expect_err("the end fails");
        assert_eq!(error.code(), Some(first), "the first error is returned");
    }
    let reports = reports.lock().expect("no panic").clone();
    (stream, reports)
}

#[test]
fn a_capture_end_that_fails_for_an_unknown_reason_is_repeated() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let reports = reports();
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("begins");
    let failed = fail(END, 1, CUresult::CUDA_ERROR_UNKNOWN);
    let error = capture.end().expect_err("the first end fails");
    assert_eq!((error.code(), failed.hits()), (Some(CUresult::CUDA_ERROR_UNKNOWN), 1));
    assert!(!is_captured(&stream));
    assert!(reports.lock().expect("no panic").is_empty());
    assert_eq!(cuda_sim::alive().graphs, 0);
}

#[test]
fn a_capture_that_cannot_end_is_reported_and_its_stream_stays_captured() {
    let (_end, context) = in_child!(leaking());
    let code = CUresult::CUDA_ERROR_UNKNOWN;
    let (stream, reports) = ended(&context, code, code);
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("still captured"), "{reports:?}");
    assert!(is_captured(&stream));
    std::mem::forget(stream);
}

/// The second code means that nothing is captured any more.
#[test]
fn a_capture_end_that_fails_because_the_driver_has_shut_down_is_not_reported() {
    let (_end, context) = in_child!(leaking());
    for code in [
        CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        CUresult::CUDA_ERROR_ILLEGAL_STATE,
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        CUresult::CUDA_ERROR_DEINITIALIZED,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    ] {
        let (stream, reports) = ended(&context, CUresult::CUDA_ERROR_UNKNOWN, code);
        assert!(reports.is_empty(), "{code}: {reports:?}");
        // The capture word of the crate is cleared. The driver still captures the stream,
        // because the errors were injected.
        let begun = stream.begin_capture(CaptureMode::ThreadLocal);
        let error = begun.expect_err("the driver captures it");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_ILLEGAL_STATE), "{code}");
        std::mem::forget(stream);
    }
}

/// After these errors the stream is not captured, so no capture is ended.
#[test]
fn a_capture_that_the_driver_refuses_to_begin_is_not_ended() {
    let (_end, context) = in_child!(leaking());
    for code in [
        CUresult::CUDA_ERROR_ILLEGAL_STATE,
        CUresult::CUDA_ERROR_INVALID_VALUE,
        CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    ] {
        let stream = context.stream().expect("a stream");
        let _failed = fail(BEGIN, 1, code);
        cuda_sim::clear_calls();
        let error = stream.begin_capture(CaptureMode::ThreadLocal);
        assert_eq!(error.expect_err("refused").code(), Some(code));
        assert!(!cuda_sim::calls().iter().any(|call| call.function == END), "{code}");
        assert!(!is_captured(&stream), "{code}");
    }
}

/// An error of earlier work does not tell whether the capture began.
#[test]
fn a_capture_that_begins_with_an_error_of_earlier_work_is_ended() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let _failed = fail(BEGIN, 1, CUresult::CUDA_ERROR_UNKNOWN);
    cuda_sim::clear_calls();
    let error = stream.begin_capture(CaptureMode::ThreadLocal);
    assert_eq!(error.expect_err("fails").code(), Some(CUresult::CUDA_ERROR_UNKNOWN));
    assert!(cuda_sim::calls().iter().any(|call| call.function == END));
    assert!(!is_captured(&stream));
}

/// The software driver captures no graphics commands: it refuses the begin and the end.
#[test]
fn a_capture_into_graphics_commands_that_cannot_end_is_reported() {
    in_child!(start("h200@13.5".parse().expect("a profile")));
    let reports = reports();
    let stream = context().stream().expect("a stream");
    let begin = |code| {
        let commands = GraphicsCommands::VulkanCommandBuffer(null_mut());
        // SAFETY: the call fails, so the commands are not used.
        let begun = unsafe { stream.begin_capture_to_graphics(commands) };
        assert_eq!(begun.expect_err("fails").code(), Some(code));
    };
    let ends = |code| count("cuStreamEndCaptureToCig", || begin(code));
    assert_eq!(ends(CUresult::CUDA_ERROR_INVALID_CONTEXT), 0, "nothing has begun");
    assert!(reports.lock().expect("no panic").is_empty() && !is_captured(&stream));
    let _failed = fail("cuStreamBeginCaptureToCig", 1, CUresult::CUDA_ERROR_UNKNOWN);
    assert_eq!(ends(CUresult::CUDA_ERROR_UNKNOWN), 1);
    let reports = reports.lock().expect("no panic").clone();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].contains("still captured"), "{reports:?}");
    assert!(is_captured(&stream));
    std::mem::forget(stream);
}

#[test]
fn a_capture_with_an_unknown_id_is_ended() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let failed = fail_from("cuStreamGetCaptureInfo_v3", 1, CUresult::CUDA_ERROR_UNKNOWN);
    stream.begin_capture(CaptureMode::ThreadLocal).expect_err("the capture id is unknown");
    assert_ne!(failed.hits(), 0);
    drop(failed);
    assert!(!is_captured(&stream));
}

/// The record of the reader's end would become part of the graph.
#[test]
fn a_reader_dropped_while_its_home_stream_is_captured_is_deferred() {
    let (_end, context) = in_child!(leaking());
    let home = context.stream().expect("a stream");
    let stream = context.stream().expect("a stream");
    let shared = DeviceBuffer::<u8>::zeroed(&home, 64).expect("memory").share().expect("an event");
    for captured in [&home, &stream] {
        let reader = shared.on(&stream).expect("a reader");
        let capture = captured.begin_capture(CaptureMode::ThreadLocal).expect("begins");
        cuda_sim::clear_calls();
        drop(reader);
        assert!(!cuda_sim::calls().iter().any(|call| call.function == "cuStreamWaitEvent"));
        assert_eq!(cuda_safe::deferred_releases(), 1);
        drop(capture.end().expect("a graph"));
        context.synchronize().expect("a wait");
        assert_eq!(cuda_safe::deferred_releases(), 0);
    }
    assert!(!shared.is_empty());
    drop(shared);
}

/// A graph retains two of each kind of object. The simulator refuses a graph that names a destroyed
/// object.
#[test]
fn a_graph_retains_every_object_of_a_kind() {
    let (_end, context) = in_child!(crate::on(Profile::h200()));
    let origin = context.stream().expect("a stream");
    let resource = SmResource::of_device(&context.device()).expect("SMs");
    let split = resource.split_by_count(SplitByCount {
        min: 16,
        max_groups: Some(2),
        ..Default::default()
    });
    let greens = split.expect("groups").groups.into_iter().map(|group| GreenContext::new([group]));
    let greens: Vec<_> = greens.map(|green| green.expect("a green context")).collect();
    let streams: Vec<_> = greens.iter().map(|green| green.stream().expect("a stream")).collect();
    let others = [(); 2].map(|()| {
        let flags = ContextFlags::empty();
        Context::new(&context.device(), flags).expect("a context")
    });
    let streams_of_others = others.each_ref().map(|its| its.stream().expect("a stream"));
    let external = [(); 2].map(|()| context.event().expect("an event"));
    let memory = streams.iter().chain(&streams_of_others).map(|stream| {
        let buffer = DeviceBuffer::<u8>::zeroed(stream, 64).expect("memory");
        stream.synchronize().expect("a wait");
        buffer
    });
    let mut memory: Vec<_> = memory.collect();
    let graph = origin.capture::<Error>(CaptureMode::ThreadLocal, |origin| {
        let forks = context.event()?;
        forks.record(origin)?;
        for (place, stream) in streams.iter().chain(&streams_of_others).enumerate() {
            stream.wait_event(&forks)?;
            memory[place].fill(1)?;
            let joins = stream.context().event()?;
            joins.record(stream)?;
            origin.wait_event(&joins)?;
        }
        for event in &external {
            event.record_external(origin)?;
        }
        Ok(())
    });
    let graph = graph.expect("a graph");
    let alive = || {
        let alive = cuda_sim::alive();
        (alive.contexts, alive.green_contexts, alive.events)
    };
    // The graph is not launched.
    drop(memory);
    drop((streams, streams_of_others, greens, others, external));
    assert_eq!(alive(), (2, 2, 2));
    let executable = graph.instantiate().expect("every object is alive");
    drop(graph);
    assert_eq!(alive(), (2, 2, 2));
    drop(executable);
    assert_eq!(alive(), (0, 0, 0));
}
