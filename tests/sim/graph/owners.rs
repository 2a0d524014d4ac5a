//! What graphs own, and when it is released.

use crate::prelude::*;

fn scale(context: &Context) -> TypedKernel<(&'static mut [i32], i32, i32, u32)> {
    let module = Module::from_ptx(context, VECTOR).expect("a module");
    let kernel = module.kernel("scale").expect("a kernel");
    kernel.typed().expect("its parameters")
}

/// Returns a function that owns a clone of the object.
fn owner(object: &Arc<()>) -> impl Fn() + Send + Sync + 'static {
    let object = Arc::clone(object);
    move || drop(Arc::clone(&object))
}

#[test]
fn everything_that_a_graph_uses_lives_as_long_as_its_executable_graph() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&stream, 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    let host = PinnedBuffer::<i32>::zeroed(&context, 8).expect("memory");
    let host = graph.own_pinned(host);
    let event = context.event().expect("an event");
    let kernel = scale(&context);
    let copy = graph.add_copy(&[], &mut data, &host).expect("a node");
    let config = LaunchConfig::linear(1, 8);
    let arguments = (&mut data, 2, 0, 8);
    // SAFETY: the kernel accesses the 8 elements.
    unsafe { graph.add_kernel(&[copy.id()], &context, &kernel, config, arguments) }
        .expect("a node");
    graph.add_event_record(&[], &event).expect("a node");
    drop((data, host, event, kernel));
    let executable = graph.instantiate().expect("everything is alive");
    drop(graph);
    executable.launch(&stream).expect("everything is alive");
    stream.synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().modules, 1);
    drop(executable);
    assert_eq!(cuda_sim::alive().modules, 0);
    assert_eq!(deferred_releases(), 0);
}

/// Other code finds the events of nodes by the handle of the graph, and may record them in captures.
#[test]
fn a_wait_for_an_event_of_a_graph_asks_for_captures_once_other_code_has_the_handle() {
    let (_end, context, stream) = in_child!(on_stream());
    let with_event = || {
        let mut graph = Graph::new(&context).expect("a graph");
        let event = context.event().expect("an event");
        graph.add_event_record(&[], &event).expect("a node");
        (graph, event)
    };
    let ((mut graph, own), (mut child, inner)) = (with_event(), with_event());
    graph.add_child(&[], &mut child).expect("a node");
    let recorded = context.event().expect("an event");
    let captured =
        stream.capture(CaptureMode::default(), |stream| recorded.record_external(stream));
    let captured = captured.expect("a graph");
    let asks = |event: &Event| {
        count("cuStreamGetCaptureInfo_v3", || stream.wait_event(event).expect("a wait"))
    };
    assert_eq!([&own, &inner, &recorded].map(asks), [0; 3]);
    graph.as_raw();
    captured.as_raw();
    assert_eq!([&own, &inner, &recorded].map(asks), [1; 3]);
}

#[test]
fn objects_are_released_after_the_last_launch_and_the_drop_does_not_wait() {
    let (_end, context, stream) = in_child!(on_stream());
    let object = Arc::new(());
    let mut graph = Graph::new(&context).expect("a graph");
    graph.add_host_function(&[], owner(&object)).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    drop(stream);
    cuda_sim::clear_calls();
    drop(executable);
    let waits = |call: &Call| call.function.contains("Synchronize");
    assert!(!cuda_sim::calls().iter().any(waits));
    assert_eq!(Arc::strong_count(&object), 2, "the launch has not run");
    context.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn replaced_functions_are_released_in_batches_while_the_graph_is_used() {
    let (_end, context, stream) = in_child!(on_stream());
    let object = Arc::new(());
    let mut graph = Graph::new(&context).expect("a graph");
    let node = graph.add_host_function(&[], owner(&object)).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    // The graph releases them when it has 64.
    let rounds = if cfg!(miri) { 66 } else { 100 };
    for _ in 0..rounds {
        let mut nodes = executable.nodes(&graph).expect("its graph");
        nodes.set_host_function(node, owner(&object)).expect("a change");
        executable.launch(&stream).expect("a launch");
    }
    drop(graph);
    stream.synchronize().expect("a wait");
    drain(&context);
    let kept = Arc::strong_count(&object) - 1;
    assert!((1..=64).contains(&kept), "{kept}");
    drop(executable);
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn streams_live_until_their_launches_are_complete_and_idle_ones_are_forgotten() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let executable = Graph::new(&context).and_then(|graph| graph.instantiate());
    let executable = executable.expect("an executable graph");
    // The graph forgets streams when it knows 32.
    let rounds = if cfg!(miri) { 34 } else { 200 };
    for _ in 0..rounds {
        let stream = context.stream().expect("a stream");
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
    }
    let kept = cuda_sim::alive().streams;
    assert!((1..=32).contains(&kept), "{kept} streams are alive");
    drop(executable);
    drain(&context);
    assert_eq!(cuda_sim::alive().streams, 0);
}

#[test]
fn a_drop_during_a_capture_of_the_stream_is_deferred() {
    let (_end, context, stream) = in_child!(on_stream());
    let object = Arc::new(());
    let mut graph = Graph::new(&context).expect("a graph");
    graph.add_host_function(&[], owner(&object)).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    let captured = stream.capture::<Error>(CaptureMode::default(), |_| {
        drop(executable);
        assert!(deferred_releases() > 0);
        Ok(())
    });
    captured.expect("a valid capture");
    assert_eq!(Arc::strong_count(&object), 2);
    drain(&context);
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn a_drop_in_a_host_function_is_deferred() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (stream, other) = (context.stream(), context.stream());
    let (stream, other) = (stream.expect("a stream"), other.expect("a stream"));
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&stream, 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    graph.add_fill(&[], &mut data, 1).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    other.launch_host_function(move || drop((graph, data, executable))).expect("a function");
    context.synchronize().expect("a wait");
    drain(&context);
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn a_later_executable_graph_runs_after_the_launches_of_the_first() {
    let (_end, context) = in_child!(on(Profile::h200().with_seed(3)));
    for _ in 0..8 {
        let (first, second) = (context.stream(), context.stream());
        let (first, second) = (first.expect("a stream"), second.expect("a stream"));
        let mut graph = Graph::new(&context).expect("a graph");
        let buffer = DeviceBuffer::<i32>::zeroed(&first, 8).expect("memory");
        let mut data = graph.own(buffer).expect("the graph owns it");
        let fill = graph.add_fill(&[], &mut data, 1).expect("a node");
        let executable = graph.instantiate().expect("an executable graph");
        executable.launch(&first).expect("a launch");
        drop(executable);
        graph.remove(fill).expect("a node");
        graph.add_fill(&[], &mut data, 2).expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.launch(&second).expect("a launch");
        let third = context.stream().expect("a stream");
        let access = executable.access(&mut data, &third).expect("access");
        assert_eq!(access.as_slice().to_vec().expect("a copy"), [2; 8]);
        drop(access);
        context.synchronize().expect("a wait");
    }
}

#[test]
fn earlier_work_and_forgotten_accesses_come_before_the_next_launch() {
    let (_end, context) = in_child!(on(Profile::h200().with_seed(3)));
    for _ in 0..if cfg!(miri) { 2 } else { 8 } {
        let streams: Vec<Stream> = (0..3).map(|_| context.stream().expect("a stream")).collect();
        let mut graph = Graph::new(&context).expect("a graph");
        let mut buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
        buffer.fill(3).expect("a fill");
        let mut data = graph.own(buffer).expect("the graph owns it");
        let kernel = scale(&context);
        let config = LaunchConfig::linear(1, 8);
        // SAFETY: the kernel accesses the 8 elements.
        unsafe { graph.add_kernel(&[], &context, &kernel, config, (&mut data, 2, 0, 8)) }
            .expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.launch(&streams[1]).expect("a launch");
        let mut access = executable.access(&mut data, &streams[2]).expect("access");
        assert_eq!(access.as_slice().to_vec().expect("a copy"), [6; 8]);
        access.as_mut_slice().fill(5).expect("a fill");
        drop(access);
        executable.launch(&streams[1]).expect("a launch");
        let access = executable.access(&mut data, &streams[0]).expect("access");
        assert_eq!(access.as_slice().to_vec().expect("a copy"), [10; 8]);
        drop(access);
        context.synchronize().expect("a wait");
    }
}

#[test]
fn an_access_comes_after_the_earlier_work_on_a_buffer_that_entered_late() {
    let (_end, context) = in_child!(on(Profile::h200().with_race_detection()));
    let streams: [Stream; 3] = std::array::from_fn(|_| context.stream().expect("a stream"));
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    let _first = graph.own(buffer).expect("the graph owns it");
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&streams[2]).expect("a launch");
    let mut buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    buffer.fill(3).expect("a fill");
    let mut late = graph.own(buffer).expect("the graph owns it");
    // Nothing but the allocation precedes this access.
    let buffer = DeviceBuffer::<i32>::uninit(&streams[0], 8).expect("memory");
    let mut new = graph.own(buffer).expect("the graph owns it");
    let mut access = executable.access(&mut late, &streams[1]).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [3; 8]);
    access.as_mut_slice().fill(4).expect("a fill");
    drop(access);
    let mut access = executable.access(&mut new, &streams[2]).expect("access");
    access.as_mut_slice().fill(5).expect("a fill");
    drop(access);
    let read = executable.read_access(&late, &streams[2]).expect("access");
    assert_eq!(read.as_slice().to_vec().expect("a copy"), [4; 8]);
    drop(read);
    drop(executable);
    context.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn a_later_executable_graph_runs_after_an_access_that_no_launch_followed() {
    let (_end, context) = in_child!(on(Profile::h200().with_race_detection()));
    let streams: [Stream; 3] = std::array::from_fn(|_| context.stream().expect("a stream"));
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    graph.add_fill(&[], &mut data, 1).expect("a node");
    for _ in 0..2 {
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.launch(&streams[1]).expect("a launch");
        let mut access = executable.access(&mut data, &streams[2]).expect("access");
        access.as_mut_slice().fill(5).expect("a fill");
    }
    context.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn an_access_waits_once_for_what_earlier_accesses_made_later_ones_wait_for() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams: [Stream; 3] = std::array::from_fn(|_| context.stream().expect("a stream"));
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    let mut executable = graph.instantiate().expect("an executable graph");
    drop(executable.access(&mut data, &streams[1]).expect("access"));
    executable.launch(&streams[0]).expect("a launch");
    cuda_sim::clear_calls();
    drop(executable.access(&mut data, &streams[0]).expect("access"));
    let calls = cuda_sim::calls();
    let waits = |call: &&Call| call.function == "cuStreamWaitEvent";
    assert_eq!(calls.iter().filter(waits).count(), 0, "{calls:?}");
    drop(executable);
    context.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn a_forgotten_access_leaks_the_memory_and_the_next_launch_waits_for_it() {
    let (_end, context) = in_child!(leaking());
    let (stream, other) = (context.stream(), context.stream());
    let (stream, other) = (stream.expect("a stream"), other.expect("a stream"));
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&stream, 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    graph.add_fill(&[], &mut data, 1).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut access = executable.access(&mut data, &other).expect("access");
    access.as_mut_slice().fill(5).expect("a fill");
    std::mem::forget(access);
    executable.launch(&stream).expect("a launch");
    let access = executable.access(&mut data, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [1; 8]);
    drop(access);
    let access = executable.read_access(&data, &other).expect("access");
    let mut copy = DeviceBuffer::<i32>::zeroed(&other, 8).expect("memory");
    copy.copy_from(&access).expect("a copy");
    std::mem::forget(access);
    executable.launch(&stream).expect("a launch");
    assert_eq!(copy.to_vec().expect("a copy"), [1; 8]);
    drop((executable, graph));
    context.synchronize().expect("a wait");
    drain(&context);
    data.into_buffer().expect_err("the forgotten accesses keep the memory");
}

#[test]
fn a_borrowed_stream_is_refused_by_safe_launches() {
    let (_end, context, stream) = in_child!(on_stream());
    // SAFETY: `stream` outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(stream.as_raw(), &context) };
    let borrowed = borrowed.expect("a stream");
    let executable = Graph::new(&context).and_then(|graph| graph.instantiate());
    let executable = executable.expect("an executable graph");
    assert_eq!(invalid(executable.launch(&borrowed)), Invalid::BorrowedStream);
    assert_eq!(invalid(executable.upload(&borrowed)), Invalid::BorrowedStream);
    // SAFETY: the launch is complete before the executable graph is dropped.
    unsafe { executable.launch_unchecked(&borrowed) }.expect("a launch");
    assert_eq!(invalid(executable.launch(&borrowed)), Invalid::BorrowedStream);
    stream.synchronize().expect("a wait");
}

#[test]
fn a_first_launch_that_fails_can_be_repeated() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 8).expect("memory");
    buffer.fill(1).expect("a fill");
    let mut data = graph.own(buffer).expect("the graph owns it");
    graph.add_fill(&[], &mut data, 2).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let other = context.stream().expect("a stream");
    for function in ["cuStreamWaitEvent", "cuEventCreate", "cuGraphLaunch"] {
        let fault = Fault::of_function(function).inject(Scope::Thread);
        executable.launch(&other).expect_err("the fault");
        drop(fault);
    }
    executable.launch(&other).expect("a launch");
    let access = executable.access(&mut data, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [2; 8]);
}

#[test]
fn a_launch_on_a_known_stream_is_one_driver_call() {
    let (_end, context, stream) = in_child!(on_stream());
    let executable = Graph::new(&context).and_then(|graph| graph.instantiate());
    let executable = executable.expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    cuda_sim::clear_calls();
    executable.launch(&stream).expect("a launch");
    let calls: Vec<_> = cuda_sim::calls().iter().map(|call| call.function).collect();
    assert_eq!(calls, ["cuGraphLaunch"]);
    stream.synchronize().expect("a wait");
}
