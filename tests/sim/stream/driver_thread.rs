//! The thread of the driver, which runs work that no call runs.

use crate::prelude::*;
use crate::stream::callbacks::launch;

/// Longer than any machine takes.
const LIMIT: Duration = Duration::from_secs(60);

fn query(stream: &Stream) -> CUresult {
    // SAFETY: the stream is alive.
    unsafe { cuStreamQuery(stream.as_raw()) }
}

fn query_event(event: &Event) -> CUresult {
    // SAFETY: the event is alive.
    unsafe { cuEventQuery(event.as_raw()) }
}

#[test]
fn the_driver_thread_runs_a_host_function_although_nothing_calls_the_driver() {
    let (_end, context) = in_child!(on(Profile::h200().with_driver_thread()));
    let stream = context.stream().expect("a stream");
    let (tell, told) = mpsc::channel();
    for number in 0..3 {
        let tell = tell.clone();
        launch(&stream, move || {
            tell.send((number, std::thread::current().id())).expect("the test receives it");
        });
    }
    for number in 0..3 {
        let (ran, thread) = told.recv_timeout(LIMIT).expect("it runs by itself");
        assert_eq!(ran, number);
        assert_ne!(thread, std::thread::current().id());
    }
}

#[test]
fn with_a_driver_thread_no_query_waits_for_a_host_function() {
    let (_end, context) = in_child!(on(Profile::h200().with_driver_thread()));
    let stream = context.stream().expect("a stream");
    let event = context.event().expect("an event");
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    launch(&stream, move || {
        begin.send(()).expect("the test receives it");
        ended.recv_timeout(LIMIT).expect("the test says when to continue");
    });
    event.record(&stream).expect("a record");
    // A query on the thread that runs the function would not return.
    while begun.try_recv().is_err() {
        assert_eq!(query(&stream), CUresult::CUDA_ERROR_NOT_READY);
        assert_eq!(query_event(&event), CUresult::CUDA_ERROR_NOT_READY);
        std::thread::yield_now();
    }
    assert_eq!(query(&stream), CUresult::CUDA_ERROR_NOT_READY);
    end.send(()).expect("the function receives it");
    while query(&stream) == CUresult::CUDA_ERROR_NOT_READY {
        std::thread::yield_now();
    }
    assert!(query_event(&event).is_success());
}

/// The function that a query hands to the thread is taken back by a wait, because the thread is inside a
/// function that waits for the waiting call.
#[test]
fn a_wait_runs_a_host_function_that_the_busy_driver_thread_has_not_begun() {
    let (_end, context) = in_child!(on(Profile::h200().with_driver_thread()));
    let [first, second] = [(), ()].map(|()| context.stream().expect("a stream"));
    let (begin, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    launch(&first, move || {
        begin.send(()).expect("the test receives it");
        ended.recv_timeout(LIMIT).expect("the test says when to continue");
    });
    begun.recv_timeout(LIMIT).expect("it runs by itself");
    let (tell, told) = mpsc::channel();
    launch(&second, move || tell.send(()).expect("the test receives it"));
    assert_eq!(query(&second), CUresult::CUDA_ERROR_NOT_READY);
    second.synchronize().expect("a wait");
    assert_eq!(told.try_recv(), Ok(()));
    end.send(()).expect("the function receives it");
    first.synchronize().expect("a wait");
}

type Function = Box<dyn FnOnce() + Send>;

/// Enqueues a function with the older `cuStreamAddCallback`.
fn add_callback(stream: &Stream, function: Function) {
    unsafe extern "C" fn run(_: CUstream, _: CUresult, data: *mut c_void) {
        // SAFETY: the data is the box below, and this function runs once.
        let function = unsafe { Box::from_raw(data.cast::<Function>()) };
        function();
    }
    let data = Box::into_raw(Box::new(function)).cast();
    succeeds!(cuStreamAddCallback(stream.as_raw(), Some(run), data, 0));
}

/// Launches a graph whose only node is a function.
fn launch_graph(stream: &Stream, function: Function) {
    let stream = (stream, stream.as_raw());
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    succeeds!(cuStreamBeginCapture_v2(stream.1, mode));
    launch(stream.0, function);
    let mut graph: CUgraph = std::ptr::null_mut();
    succeeds!(cuStreamEndCapture(stream.1, &raw mut graph));
    let executable = out!(cuGraphInstantiateWithFlags(graph, 0));
    succeeds!(cuGraphLaunch(executable, stream.1));
    succeeds!(cuGraphExecDestroy(executable));
    succeeds!(cuGraphDestroy(graph));
}

#[test]
fn with_a_driver_thread_no_query_runs_a_callback_or_a_node_of_a_graph() {
    let (_end, context) = in_child!(on(Profile::h200().with_driver_thread()));
    // To instantiate the graph.
    let _current = context.make_current().expect("current");
    for enqueue in [add_callback, launch_graph] {
        let stream = context.stream().expect("a stream");
        let event = context.event().expect("an event");
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let function = Box::new(move || {
            begin.send(std::thread::current().id()).expect("the test receives it");
            ended.recv_timeout(LIMIT).expect("the test says when to continue");
        });
        enqueue(&stream, function);
        event.record(&stream).expect("a record");
        let thread = loop {
            assert_eq!(query(&stream), CUresult::CUDA_ERROR_NOT_READY);
            assert_eq!(query_event(&event), CUresult::CUDA_ERROR_NOT_READY);
            match begun.try_recv() {
                Ok(thread) => break thread,
                Err(_) => std::thread::yield_now(),
            }
        };
        assert_ne!(thread, std::thread::current().id());
        end.send(()).expect("the function receives it");
        stream.synchronize().expect("a wait");
    }
}
