//! The objects that a graph retains.

use crate::prelude::*;

fn other_context(context: &Context) -> Context {
    Context::new(&context.device(), ContextFlags::empty()).expect("a context")
}

/// The query after the wait fails, so the stream may belong to any of the open captures.
#[test]
fn every_open_capture_retains_the_context_of_a_stream_that_may_have_joined_it() {
    let (_end, context, origin) = in_child!(on_stream());
    let other = other_context(&context);
    let joined = other.stream().expect("a stream");
    let mut memory = DeviceBuffer::<u8>::zeroed(&joined, 64).expect("memory");
    joined.synchronize().expect("a wait");
    let (begins, ends) = (context.event().expect("a"), other.event().expect("b"));
    let capture = origin.begin_capture(CaptureMode::Relaxed).expect("begins");
    // SAFETY: both are alive.
    let recorded = unsafe { cuEventRecord(begins.as_raw(), origin.as_raw()) };
    assert!(recorded.is_success(), "{recorded}");
    {
        let _fails = fail("cuStreamGetCaptureInfo_v3", 1, CUresult::CUDA_ERROR_UNKNOWN);
        joined.wait_event(&begins).expect("the wait itself succeeds");
    }
    memory.fill(1).expect("a fill");
    ends.record(&joined).expect("a record");
    origin.wait_event(&ends).expect("a wait");
    let graph = capture.end().expect("a graph");
    // The graph is not launched, so the memory may be freed.
    drop((memory, joined, ends, other));
    assert_eq!(alive().contexts, 1, "the graph retains it");
    drop(graph.instantiate().expect("its context is alive"));
    drop(graph);
    assert_eq!(alive().contexts, 0);
}

/// Repeated calls with the same objects add nothing to the capture.
#[test]
fn a_capture_retains_an_object_once() {
    let (_end, context, origin) = in_child!(on_stream());
    let resource = SmResource::of_device(&context.device()).expect("SMs");
    let split = resource.split_by_count(SplitByCount::default());
    let group = split.expect("groups").groups.pop().expect("a group");
    let green = GreenContext::new([group]).expect("a green context");
    let other = other_context(&context);
    let owner = context.stream().expect("a stream");
    // SAFETY: the owner is dropped after everything that uses the stream.
    let borrowed = unsafe { Stream::borrow_raw(owner.as_raw(), &context) };
    let streams = [
        green.stream().expect("a stream"),
        other.stream().expect("a stream"),
        borrowed.expect("a stream"),
    ];
    let external = context.event().expect("an event");
    let begins = context.event().expect("an event");
    let ends = streams.each_ref().map(|its| its.context().event().expect("an event"));
    let capture = origin.begin_capture(CaptureMode::Relaxed).expect("begins");
    let record = || -> Result<()> {
        begins.record(&origin)?;
        for (stream, ends) in streams.iter().zip(&ends) {
            stream.wait_event(&begins)?;
            ends.record(stream)?;
            origin.wait_event(ends)?;
        }
        external.record_external(&origin)
    };
    record().expect("recorded");
    let once = format!("{capture:?}");
    record().expect("recorded");
    assert_eq!(format!("{capture:?}"), once);
    drop(capture.end().expect("a graph"));
    drop((streams, ends));
    drop(owner);
}
