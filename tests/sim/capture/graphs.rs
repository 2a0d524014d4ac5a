//! Captures into graphs, where the software driver counts and checks what a real one does not show.

use crate::capture::errors::{is_captured, reports};
use crate::prelude::*;
use cuda_safe::capture::GraphicsCommands;
use cuda_safe::error::Rejected;

const BEGIN: &str = "cuStreamBeginCaptureToGraph";
const END: &str = "cuStreamEndCapture";
const INFO: &str = "cuStreamGetCaptureInfo_v3";
const MODE: CaptureMode = CaptureMode::ThreadLocal;

fn stage(context: &Context) -> (Stream, Graph) {
    let graph = Graph::new(context).expect("a graph");
    (context.stream().expect("a stream"), graph)
}

/// The driver destroys the graph of a failed capture. Destroying it again would be a misuse.
#[test]
fn the_graph_of_a_failed_capture_is_destroyed_once() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (stream, graph) = stage(&context);
    let failed = stream.capture_into(graph, &[], MODE, |stream| {
        drop(stream.is_complete());
        Ok::<_, Error>(())
    });
    let code = failed.expect_err("the query invalidated the capture").code();
    assert_eq!(code, Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
    assert_eq!(alive().graphs, 0);
    // The capture itself is valid here, so the driver returns the graph, and it is destroyed.
    let (stream, graph) = stage(&context);
    let failed = stream.capture_into(graph, &[], MODE, |_| Err(Error::Forked));
    failed.expect_err("the error of the function");
    assert_eq!(alive().graphs, 0);
}

#[test]
fn a_capture_that_the_driver_refuses_returns_the_graph() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (stream, mut graph) = stage(&context);
    let node = graph.add_empty(&[]).expect("a node").id();
    let refused = {
        let _fails = fail(BEGIN, 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        stream.try_begin_capture_into(graph, &[node], MODE)
    };
    let graph = refused.expect_err("the fault").value.expect("the graph");
    assert!(!is_captured(&stream));
    let refused = stream.try_begin_capture_into(graph, &[node, node], MODE);
    let Rejected { error, value } = refused.expect_err("a node is given twice");
    let is_repeated = |why: &Invalid| matches!(why, Invalid::RepeatedDependency { .. });
    assert!(matches!(&error, Error::Invalid(why) if is_repeated(why)), "{error}");
    // The capture begins, but its ID is unknown, so it is ended again.
    let refused = {
        let _fails = fail(INFO, 1, CUresult::CUDA_ERROR_UNKNOWN);
        stream.try_begin_capture_into(value.expect("the graph"), &[node], MODE)
    };
    let graph = refused.expect_err("the fault").value.expect("the graph");
    assert!(!is_captured(&stream));
    graph.node_type(node).expect("the graph is as before");
    assert_eq!(alive().graphs, 1);
}

/// The driver destroys the body of a failed capture, so the graph around it is neither used nor destroyed.
#[test]
fn the_graph_around_the_body_of_a_failed_capture_is_leaked() {
    let (_end, context) = in_child!(leaking());
    let body = || {
        let (stream, mut graph) = stage(&context);
        let handle = graph.conditional_handle(&context, Some(1));
        let node = graph.add_if(&[], handle.expect("a handle"), |_| Ok(()));
        (stream, graph, node.expect("a node"))
    };
    let (stream, graph, node) = body();
    // The capture itself is valid here, so the graph is destroyed.
    let failed = stream.capture_into_body(graph, node, 0, &[], MODE, |_| Err(Error::Forked));
    failed.expect_err("the error of the function");
    assert_eq!((alive().graphs, cuda_safe::leaked()), (0, 0));
    let (stream, graph, node) = body();
    let refused = {
        let _fails = fail(BEGIN, 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        stream.try_begin_capture_into_body(graph, node, 0, &[], MODE)
    };
    let graph = refused.expect_err("the fault").value.expect("the graph");
    let failed = stream.capture_into_body(graph, node, 0, &[], MODE, |stream| {
        drop(stream.is_complete());
        Ok::<_, Error>(())
    });
    failed.expect_err("the query invalidated the capture");
    assert!(!is_captured(&stream));
    assert_eq!((alive().graphs, cuda_safe::leaked()), (1, 1));
}

/// Only other code can capture an allocation. The driver refuses to remove nodes from a graph with one.
#[test]
fn a_captured_allocation_in_a_body_counts_for_the_graph_around_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (stream, mut graph) = stage(&context);
    let handle = graph.conditional_handle(&context, Some(1));
    let node = graph.add_if(&[], handle.expect("a handle"), |_| Ok(()));
    let other = graph.add_empty(&[]).expect("a node");
    let node = node.expect("a node");
    let captured = stream.capture_into_body(graph, node, 0, &[], MODE, |stream| {
        let mut address = 0;
        let raw = stream.as_raw();
        // SAFETY: the stream is alive, and the pointer refers to a local variable.
        let code = unsafe { cuMemAllocAsync(&raw mut address, 8, raw) };
        assert!(code.is_success(), "{code}");
        Ok::<_, Error>(())
    });
    let (mut graph, last) = captured.expect("a graph");
    assert_eq!(last.len(), 1);
    let refused = graph.remove(other);
    let is_refused = |why: &Invalid| matches!(why, Invalid::MemoryNodes { .. });
    assert!(matches!(refused, Err(Error::Invalid(why)) if is_refused(&why)));
}

#[test]
fn a_driver_before_12_3_cannot_capture_into_graphs() {
    let (_end, context) = in_child!(on("h200@12.2".parse().expect("a profile")));
    let (stream, graph) = stage(&context);
    let refused = stream.try_begin_capture_into(graph, &[], MODE);
    let Rejected { error, value } = refused.expect_err("the function is missing");
    assert!(matches!(error, Error::Missing(_)), "{error}");
    drop(value.expect("the graph"));
    assert!(!is_captured(&stream));
}

/// The first end fails without a known reason. The second one returns the graph, which is dropped.
#[test]
fn the_end_of_a_capture_into_a_graph_is_repeated() {
    let (_end, context) = in_child!(leaking());
    let (stream, graph) = stage(&context);
    let capture = stream.begin_capture_into(graph, &[], MODE).expect("begins");
    let _fails = fail(END, 1, CUresult::CUDA_ERROR_UNKNOWN);
    capture.end().expect_err("the first end fails");
    assert!(!is_captured(&stream));
    assert_eq!((alive().graphs, cuda_safe::leaked()), (0, 0));
}

/// The driver may still add nodes to the graph.
#[test]
fn the_graph_of_a_capture_that_cannot_end_is_leaked() {
    let (_end, context) = in_child!(leaking());
    let reports = reports();
    let object = Arc::new(());
    let (stream, mut graph) = stage(&context);
    let own = Arc::clone(&object);
    graph.add_host_function(&[], move || drop(Arc::clone(&own))).expect("a node");
    let capture = stream.begin_capture_into(graph, &[], MODE).expect("begins");
    {
        let _first = fail(END, 1, CUresult::CUDA_ERROR_UNKNOWN);
        let _second = fail(END, 2, CUresult::CUDA_ERROR_UNKNOWN);
        capture.end().expect_err("the end fails");
    }
    assert_eq!(reports.lock().expect("no panic").len(), 1);
    assert!(is_captured(&stream));
    assert_eq!((alive().graphs, cuda_safe::leaked()), (1, 1));
    assert_eq!(Arc::strong_count(&object), 2, "what it uses is alive");
    std::mem::forget(stream);
}

#[test]
fn a_forgotten_capture_keeps_the_graph_and_what_it_uses_alive() {
    let (_end, context) = in_child!(leaking());
    let object = Arc::new(());
    let (stream, mut graph) = stage(&context);
    let own = Arc::clone(&object);
    graph.add_host_function(&[], move || drop(Arc::clone(&own))).expect("a node");
    let capture = stream.begin_capture_into(graph, &[], MODE).expect("begins");
    stream.capture_host_function(|| ()).expect("captured");
    std::mem::forget(capture);
    drop(stream);
    assert_eq!((alive().graphs, alive().streams), (1, 1));
    assert_eq!(Arc::strong_count(&object), 2);
}

/// The call is not captured then, so the driver runs the function although no graph owns it.
#[test]
fn a_host_function_stays_alive_if_the_capture_ends_before_its_call() {
    let (_end, context) = in_child!(leaking());
    let (stream, _) = stage(&context);
    let calls = Arc::new(Mutex::new(0));
    let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begins");
    let (inside, waits) = channel();
    let (ended, continues) = channel();
    let continues = Mutex::new(continues);
    let is_first = AtomicBool::new(true);
    set_call_hook(move |function| {
        if function == "cuLaunchHostFunc" && is_first.swap(false, Ordering::SeqCst) {
            inside.send(()).expect("received");
            continues.lock().expect("no panic").recv().expect("sent");
        }
    });
    std::thread::scope(|scope| {
        let counted = Arc::clone(&calls);
        scope.spawn(|| {
            let count = move || *counted.lock().expect("no panic") += 1;
            stream.capture_host_function(count).expect("the call itself succeeds");
        });
        waits.recv().expect("sent");
        drop(capture.end().expect("a graph"));
        ended.send(()).expect("received");
    });
    set_call_hook(|_| {});
    assert_eq!(cuda_safe::leaked(), 1);
    stream.synchronize().expect("a wait");
    assert_eq!(*calls.lock().expect("no panic"), 1);
}

/// The stream counts as captured already, but the driver would run the function now, and the failed capture
/// would free it.
#[test]
fn a_host_function_is_refused_until_the_driver_has_begun_the_capture() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (stream, _) = stage(&context);
    let captured = Arc::new(Mutex::new(None));
    let (result, its) = (Arc::clone(&captured), stream.clone());
    set_call_hook(move |function| {
        if function == "cuStreamBeginCapture_v2" {
            let captured = its.capture_host_function(|| ());
            *result.lock().expect("no panic") = Some(captured);
        }
    });
    cuda_sim::clear_calls();
    {
        let code = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        let _fails = fail("cuStreamBeginCapture_v2", 1, code);
        assert_eq!(stream.begin_capture(MODE).expect_err("the fault").code(), Some(code));
    }
    set_call_hook(|_| {});
    let captured = captured.lock().expect("no panic").take();
    is_not_captured(captured.expect("the hook was called"));
    assert!(!cuda_sim::calls().iter().any(|its| its.function == "cuLaunchHostFunc"));
}

/// The driver has ended the capture, and this crate does not know it yet: it would free the function with the
/// capture.
#[test]
fn a_host_function_is_refused_or_stays_alive_once_the_driver_ends_the_capture() {
    let (_end, context) = in_child!(leaking());
    let (stream, _) = stage(&context);
    let calls = Arc::new(Mutex::new(0));
    let captured = Arc::new(Mutex::new(None));
    let capture = stream.begin_capture(CaptureMode::Relaxed).expect("begins");
    let (inside, waits) = channel();
    let (ended, continues) = channel();
    let (returned, returns) = channel();
    let (continues, returns) = (Mutex::new(continues), Mutex::new(returns));
    let (result, its) = (Arc::clone(&captured), stream.clone());
    set_call_hook(move |function| match function {
        "cuLaunchHostFunc" => {
            inside.send(()).expect("received");
            continues.lock().expect("no panic").recv().expect("sent");
        }
        END => {
            let mut graph = null_mut();
            succeeds!(cuStreamEndCapture(its.as_raw(), &raw mut graph));
            succeeds!(cuGraphDestroy(graph));
            *result.lock().expect("no panic") = Some(its.capture_host_function(|| ()));
            ended.send(()).expect("received");
            returns.lock().expect("no panic").recv().expect("sent");
        }
        _ => {}
    });
    std::thread::scope(|scope| {
        let (stream, counted) = (&stream, Arc::clone(&calls));
        scope.spawn(move || {
            let count = move || *counted.lock().expect("no panic") += 1;
            stream.capture_host_function(count).expect("the call itself succeeds");
            returned.send(()).expect("received");
        });
        waits.recv().expect("sent");
        let failed = capture.end();
        let code = Some(CUresult::CUDA_ERROR_ILLEGAL_STATE);
        assert_eq!(failed.expect_err("no capture").code(), code);
    });
    set_call_hook(|_| {});
    let captured = captured.lock().expect("no panic").take();
    is_not_captured(captured.expect("the hook was called"));
    assert_eq!(cuda_safe::leaked(), 1);
    stream.synchronize().expect("a wait");
    assert_eq!(*calls.lock().expect("no panic"), 1);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[track_caller]
fn is_not_captured(result: Result<()>) {
    let why = invalid(result);
    assert!(matches!(why, Invalid::NotCaptured { .. }), "{why}");
}

#[test]
fn a_host_function_in_a_capture_of_other_code_is_refused() {
    let (_end, context) = in_child!(on(Profile::h200()));
    use cuda_safe::sys::{CUstreamCaptureMode, cuGraphDestroy};
    use cuda_safe::sys::{cuStreamBeginCapture_v2, cuStreamEndCapture};
    let (stream, _) = stage(&context);
    let raw = stream.as_raw();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the stream is alive.
    assert!(unsafe { cuStreamBeginCapture_v2(raw, mode) }.is_success());
    let refused = stream.capture_host_function(|| panic!("never"));
    let is_refused = |why: &Invalid| matches!(why, Invalid::NotCaptured { .. });
    assert!(matches!(refused, Err(Error::Invalid(why)) if is_refused(&why)));
    let mut graph = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer refers to a local variable.
    assert!(unsafe { cuStreamEndCapture(raw, &raw mut graph) }.is_success());
    // SAFETY: the capture has returned the graph.
    assert!(unsafe { cuGraphDestroy(graph) }.is_success());
}

/// Unverified (from documentation): only a context with a graphics client can do this.
#[test]
fn a_capture_into_graphics_commands_needs_a_graphics_client() {
    let (_end, context) = in_child!(on("h200@13.5".parse().expect("a profile")));
    let (stream, _) = stage(&context);
    let commands = GraphicsCommands::D3d12CommandList(std::ptr::null_mut());
    // SAFETY: the software driver has no graphics clients and refuses every call.
    let refused = unsafe { stream.begin_capture_to_graphics(commands) };
    let code = refused.expect_err("there is no client").code();
    assert_eq!(code, Some(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    assert!(!is_captured(&stream), "the stream can be used");
}

fn is_other_partition(launched: Result<(), Error>) -> bool {
    match launched {
        Ok(()) => false,
        Err(Error::Invalid(why)) => matches!(*why, Invalid::OtherPartition { .. }),
        Err(error) => panic!("{error}"),
    }
}

/// The driver runs captured kernels in the contexts of the streams that they were captured on.
#[test]
fn a_capture_into_a_graph_decides_in_which_partition_it_is_launched() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let module = Module::from_ptx(&context, VECTOR).expect("a module");
    let nothing = module.kernel("nothing").expect("a kernel").typed::<()>().expect("no parameters");
    let one = LaunchConfig::linear(1, 1);
    let groups = SmResource::of_device(&context.device()).expect("has them");
    let split = groups.split_by_count(SplitByCount::default());
    let greens = split.expect("a split").groups.into_iter().take(2);
    let greens: Vec<_> =
        greens.map(|group| GreenContext::new([group]).expect("a green context")).collect();
    let stream = |green: &GreenContext| green.stream().expect("a stream");
    let (first, second) = (stream(&greens[0]), stream(&greens[1]));
    let captured = |graph: Graph| {
        let graph = first.capture_into(graph, &[], MODE, |stream| {
            // SAFETY: the kernel accesses no memory.
            unsafe { nothing.launch(stream, one, ()) }
        });
        let (graph, _) = graph.expect("a graph");
        graph.instantiate().expect("an executable graph")
    };
    let launch = |executable: &ExecutableGraph, stream: &Stream| {
        // SAFETY: the kernels access no memory.
        unsafe { executable.launch_unchecked(stream) }
    };

    let mut graph = Graph::new(&context).expect("a graph");
    // SAFETY: the kernel accesses no memory.
    let node = unsafe { graph.add_kernel(&[], &context, &nothing, one, ()) };
    node.expect("a node");
    let both = captured(graph);
    assert!(!is_other_partition(launch(&both, &first)));
    let refused = launch(&both, &second).expect_err("no kernel runs there");
    assert!(is_other_partition(Err(refused)));

    let alone = captured(Graph::new(&context).expect("a graph"));
    assert!(!is_other_partition(launch(&alone, &first)));
    let refused = launch(&alone, &second).expect_err("no kernel runs there");
    // The kernel runs in a green context, and not in the context of the graph.
    let sms = format!("{} SMs", greens[0].sm_count());
    assert_eq!(refused.to_string().matches(&sms).count(), 2, "{refused}");
    context.synchronize().expect("a wait");
}
