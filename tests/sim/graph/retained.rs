//! Objects of the user that graphs keep alive, and work of other code in captures.

use crate::prelude::*;
use std::any::Any;

type Objects = Vec<Arc<dyn Any + Send + Sync>>;

/// Captures a fill of a buffer that the graph owns from then on.
fn filled(stream: &Stream, value: u8) -> (Graph, u64, Arc<()>) {
    let mut buffer = DeviceBuffer::<u8>::zeroed(stream, 16).expect("memory");
    let graph = stream.capture::<Error>(CaptureMode::Relaxed, |_| {
        buffer.fill(value)?;
        Ok(())
    });
    let (address, object) = (buffer.as_raw(), Arc::new(()));
    let mut graph = graph.expect("a graph");
    graph.retain(Arc::new((Mutex::new(buffer), Arc::clone(&object))));
    // SAFETY: the graph retains the buffer, which only its launches use.
    unsafe { graph.assume_owned() };
    (graph, address, object)
}

fn fill_raw(stream: &Stream, address: u64) -> CUresult {
    // SAFETY: the tests pass the address of 16 bytes, and the stream is alive.
    unsafe { cuMemsetD8Async(address, 7, 16, stream.as_raw()) }
}

fn is_alive(object: &Arc<()>) -> bool {
    Arc::strong_count(object) > 1
}

#[test]
fn a_retained_object_lives_until_the_last_launch_is_complete() {
    let (_end, context, stream) = in_child!(on_stream());
    let (graph, _, object) = filled(&stream, 7);
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("the graph owns it");
    drop(executable);
    assert!(is_alive(&object), "the launch has not run");
    stream.synchronize().expect("a wait");
    drain(&context);
    assert!(!is_alive(&object));
}

#[test]
fn an_executable_graph_has_the_objects_of_its_latest_update() {
    let (_end, context, stream) = in_child!(on_stream());
    let (first, _, of_first) = filled(&stream, 1);
    let mut executable = first.instantiate().expect("an executable graph");
    drop(first);
    for value in 2..4 {
        executable.launch(&stream).expect("a launch");
        let (next, _, of_next) = filled(&stream, value);
        executable.update(&next).expect("the same nodes");
        drop(next);
        executable.release_replaced();
        assert!(value > 2 || is_alive(&of_first), "the launch has not run");
        stream.synchronize().expect("a wait");
        drain(&context);
        assert!(!is_alive(&of_first));
        assert!(is_alive(&of_next));
    }
    drop(executable);
    stream.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn a_clone_keeps_the_objects_of_its_original() {
    let (_end, _context, stream) = in_child!(on_stream());
    let (mut graph, _, object) = filled(&stream, 7);
    let clone = graph.try_clone().expect("a clone");
    drop(graph);
    assert!(is_alive(&object));
    drop(clone);
    assert!(!is_alive(&object));
}

#[test]
fn work_of_other_code_in_a_capture_keeps_its_objects() {
    let (_end, context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 16).expect("memory");
    let (address, object) = (buffer.as_raw(), Arc::new(()));
    let kept: Arc<dyn Any + Send + Sync> = Arc::new((Mutex::new(buffer), Arc::clone(&object)));
    let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begins");
    for _ in 0..3 {
        let objects = || vec![Arc::clone(&kept)];
        let code = stream.enqueue_retaining(objects, || fill_raw(&stream, address));
        assert_eq!(code, Ok(CUresult::CUDA_SUCCESS));
    }
    assert_eq!(Arc::strong_count(&kept), 2, "each object is retained once");
    drop(kept);
    let executable = capture.end().and_then(|graph| graph.instantiate());
    let executable = executable.expect("an executable graph");
    // SAFETY: the graph retains the buffer.
    unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
    drop(executable);
    assert!(is_alive(&object));
    stream.synchronize().expect("a wait");
    drain(&context);
    assert!(!is_alive(&object));
}

#[test]
fn a_stream_that_joined_a_capture_through_other_code_keeps_its_objects_too() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [origin, side] = [(); 2].map(|()| context.stream().expect("a stream"));
    let buffer = DeviceBuffer::<u8>::zeroed(&origin, 16).expect("memory");
    let address = buffer.as_raw();
    let [fork, join] = [(); 2].map(|()| context.event().expect("an event"));
    let wait = |event: &Event, from: &Stream, to: &Stream| {
        // SAFETY: the streams and the event are alive.
        let recorded = unsafe { cuEventRecord(event.as_raw(), from.as_raw()) };
        // SAFETY: as above.
        let waits = unsafe { cuStreamWaitEvent(to.as_raw(), event.as_raw(), 0) };
        assert!(recorded.is_success() && waits.is_success());
    };
    let object = Arc::new(());
    let capture = origin.begin_capture(CaptureMode::Relaxed).expect("begins");
    wait(&fork, &origin, &side);
    let objects = || -> Objects { vec![Arc::clone(&object) as _] };
    let code = side.enqueue_retaining(objects, || fill_raw(&side, address));
    assert_eq!(code, Ok(CUresult::CUDA_SUCCESS));
    wait(&join, &side, &origin);
    let graph = capture.end().expect("joined");
    assert!(is_alive(&object));
    drop(graph);
    assert!(!is_alive(&object));
}

#[test]
fn without_a_capture_no_object_is_retained_and_the_driver_is_not_asked() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [stream, other] = [(); 2].map(|()| context.stream().expect("a stream"));
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 16).expect("memory");
    let (address, called) = (buffer.as_raw(), AtomicBool::new(false));
    stream.as_raw();
    let enqueue = || {
        let objects = || {
            called.store(true, Ordering::Relaxed);
            Vec::new()
        };
        let code = stream.enqueue_retaining(objects, || fill_raw(&stream, address));
        assert_eq!(code, Ok(CUresult::CUDA_SUCCESS));
    };
    assert_eq!(count("cuStreamIsCapturing", enqueue), 0);
    let capture = other.begin_capture(CaptureMode::Relaxed).expect("begins");
    assert_eq!(count("cuStreamIsCapturing", enqueue), 1);
    drop(capture);
    assert!(!called.into_inner());
}

#[test]
fn no_capture_begins_while_other_code_enqueues() {
    let (_end, _context, stream) = in_child!(on_stream());
    let begun = stream.enqueue_retaining(Vec::new, || stream.begin_capture(CaptureMode::Relaxed));
    let refused = begun.expect("the stream is not captured").map(drop);
    let Err(Error::Invalid(why)) = refused else {
        panic!("{refused:?}");
    };
    assert!(matches!(*why, Invalid::CallsInProgress { calls: 1, .. }), "{why}");
    assert!(why.to_string().contains("a call of other code"), "{why}");
}
