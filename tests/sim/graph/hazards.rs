//! Uses of graphs that could leave a launch without an object, or without its order.

use crate::common::streams;
use crate::prelude::*;
use cuda_safe::leaked;

/// Returns a function that owns a clone of the object.
fn owner(object: &Arc<()>) -> impl Fn() + Send + Sync + 'static {
    let object = Arc::clone(object);
    move || drop(Arc::clone(&object))
}

fn calls_of(function: &str) -> usize {
    cuda_sim::calls().iter().filter(|call| call.function == function).count()
}

/// Returns a node that depends on a borrowed event, and on an owned object, in an executable graph.
fn with_borrowed_event(context: &Context, event: &Event, object: &Arc<()>) -> Graph {
    // SAFETY: `event` outlives the borrowed event.
    let borrowed = unsafe { Event::borrow_raw(event.as_raw(), context) };
    let borrowed = borrowed.expect("an event");
    let mut graph = Graph::new(context).expect("a graph");
    graph.add_event_record(&[], &borrowed).expect("a node");
    graph.add_host_function(&[], owner(object)).expect("a node");
    graph
}

#[test]
fn objects_with_a_borrowed_one_are_leaked_if_their_release_cannot_wait() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let event = context.event().expect("an event");
    let object = Arc::new(());
    let graph = with_borrowed_event(&context, &event, &object);
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    let captured = stream.capture::<Error>(CaptureMode::default(), |_| {
        drop(executable);
        Ok(())
    });
    captured.expect("a valid capture");
    // The launch has not run yet.
    assert_eq!(Arc::strong_count(&object), 2, "the function was dropped");
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 2, "the function was dropped");
    assert!(leaked() > 0);
}

#[test]
fn replaced_objects_with_a_borrowed_one_are_released_after_a_wait() {
    let (_end, context, stream) = in_child!(on_stream());
    let event = context.event().expect("an event");
    let (object, other) = (Arc::new(()), Arc::new(()));
    let mut graph = Graph::new(&context).expect("a graph");
    let own = context.event().expect("an event");
    let record = graph.add_event_record(&[], &own).expect("a node");
    let call = graph.add_host_function(&[], owner(&other)).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let borrowing = with_borrowed_event(&context, &event, &object);
    executable.update(&borrowing).expect("an update");
    drop(borrowing);
    executable.launch(&stream).expect("a launch");
    executable.update(&graph).expect("an update");
    let _ = (record, call);
    // The borrowed event may be destroyed as soon as these are dropped.
    drop((executable, graph));
    assert_eq!(Arc::strong_count(&object), 1);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn few_graphs_stay_alive_after_updates_from_other_graphs() {
    let (_end, context, stream) = in_child!(on_stream());
    let object = Arc::new(());
    let next = || {
        let mut graph = Graph::new(&context).expect("a graph");
        let node = graph.add_host_function(&[], owner(&object));
        node.expect("a node");
        graph
    };
    let mut executable = next().instantiate().expect("an executable graph");
    let rounds = if cfg!(miri) { 7 } else { 40 };
    for _ in 0..rounds {
        executable.launch(&stream).expect("a launch");
        executable.update(&next()).expect("an update");
        stream.synchronize().expect("a wait");
        drain(&context);
        let kept = Arc::strong_count(&object) - 1;
        assert!(kept <= 5, "{kept} graphs are kept");
    }
    drop(executable);
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn a_launch_comes_after_the_writes_of_shared_memory_in_a_new_child_graph() {
    type Add = TypedKernel<(&'static [f32], &'static [f32], u64, u32)>;
    let (_end, context) = in_child!(on(Profile::h200().with_seed(3)));
    let module = Module::from_ptx(&context, VECTOR).expect("a module");
    let add: Add = module.kernel("add").and_then(|its| its.typed()).expect("a kernel");
    let shared = |stream: &Stream, value: f32| {
        let mut buffer = DeviceBuffer::<f32>::zeroed(stream, 8).expect("memory");
        // The last of many fills is unlikely to run before a launch that does not wait for it.
        for _ in 0..32 {
            buffer.fill(0.0).expect("a fill");
        }
        buffer.fill(value).expect("a fill");
        buffer.share().expect("shared memory")
    };
    for _ in 0..if cfg!(miri) { 2 } else { 8 } {
        let streams = streams::<2>(&context);
        let sums = DeviceBuffer::<f32>::zeroed(&streams[1], 8).expect("memory");
        let address = sums.as_raw();
        let child = |value| {
            let terms = shared(&streams[0], value);
            let mut child = Graph::new(&context).expect("a graph");
            let config = LaunchConfig::linear(1, 8);
            let arguments = (&terms, &terms, address, 8);
            // SAFETY: the kernel accesses the 8 elements of each buffer. `sums` is alive, and is used
            // only on the stream of the launches.
            unsafe { child.add_kernel(&[], &context, &add, config, arguments) }.expect("a node");
            child
        };
        let mut parent = Graph::new(&context).expect("a graph");
        let node = parent.add_child(&[], &mut child(1.0)).expect("a node");
        let mut executable = parent.instantiate().expect("an executable graph");
        executable.launch(&streams[1]).expect("a launch");
        streams[0].synchronize().expect("a wait");
        let mut nodes = executable.nodes(&parent).expect("its graph");
        nodes.set_child(node, &child(2.0)).expect("a change");
        executable.launch(&streams[1]).expect("a launch");
        assert_eq!(sums.to_vec().expect("a copy"), [4.0; 8]);
        context.synchronize().expect("a wait");
    }
}

#[test]
fn a_new_child_graph_that_borrows_is_released_after_a_wait() {
    let (_end, context, stream) = in_child!(on_stream());
    let event = context.event().expect("an event");
    let (object, other) = (Arc::new(()), Arc::new(()));
    let own = context.event().expect("an event");
    let mut first = Graph::new(&context).expect("a graph");
    first.add_event_record(&[], &own).expect("a node");
    first.add_host_function(&[], owner(&other)).expect("a node");
    let mut parent = Graph::new(&context).expect("a graph");
    let node = parent.add_child(&[], &mut first).expect("a node");
    let mut executable = parent.instantiate().expect("an executable graph");
    let second = with_borrowed_event(&context, &event, &object);
    let mut nodes = executable.nodes(&parent).expect("its graph");
    nodes.set_child(node, &second).expect("a change");
    drop((second, parent));
    executable.launch(&stream).expect("a launch");
    drop(executable);
    // The borrowed event may be destroyed from here on.
    assert_eq!(Arc::strong_count(&object), 1);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn a_graph_is_not_added_to_itself_through_a_second_handle() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let mut graph = Graph::new(&context).expect("a graph");
    graph.add_empty(&[]).expect("a node");
    // SAFETY: the graph outlives the other handle, and one thread uses both.
    let same = unsafe { Graph::borrow_raw(graph.as_raw(), &context) };
    let mut same = same.expect("a graph");
    assert_eq!(invalid(same.add_child(&[], &mut graph)), Invalid::GraphInItself);
    let refused = same.try_add_child_moved(&[], graph).expect_err("the same graph");
    assert!(matches!(&refused.error, Error::Invalid(why) if **why == Invalid::GraphInItself));
}

#[test]
fn an_upload_does_not_keep_later_launches_waiting_for_old_work() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&stream, 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    graph.add_fill(&[], &mut data, 1).expect("a node");
    for round in 0..20 {
        let options = InstantiateOptions { upload: Some(&stream), ..Default::default() };
        let executable = graph.instantiate_with(&options).expect("an executable graph");
        cuda_sim::clear_calls();
        executable.launch(&stream).expect("a launch");
        let waits = calls_of("cuStreamWaitEvent");
        assert!(waits <= 2, "{waits} waits in round {round}");
    }
    stream.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn a_failed_instantiation_with_an_upload_uploads_nothing() {
    let (_end, context, stream) = in_child!(on_stream());
    let graph = Graph::new(&context).expect("a graph");
    let options = InstantiateOptions { upload: Some(&stream), ..Default::default() };
    cuda_sim::clear_calls();
    let fault = Fault::of_function("cuEventCreate").inject(Scope::Thread);
    graph.instantiate_with(&options).expect_err("the fault");
    drop(fault);
    assert_eq!(calls_of("cuGraphInstantiateWithParams"), 0);
}

#[test]
fn idle_streams_that_other_code_knows_are_forgotten_too() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let executable = Graph::new(&context).and_then(|graph| graph.instantiate());
    let executable = executable.expect("an executable graph");
    let known = context.stream().expect("a stream");
    let owner = Arc::new(());
    let rounds = if cfg!(miri) { 20 } else { 200 };
    for _ in 0..rounds {
        // SAFETY: the owner keeps nothing alive, but `known` outlives the foreign stream.
        let foreign = unsafe { Stream::from_foreign(known.as_raw(), &context, Arc::clone(&owner)) };
        let foreign = foreign.expect("a stream");
        executable.launch(&foreign).expect("a launch");
        let stream = context.stream().expect("a stream");
        stream.as_raw();
        executable.launch(&stream).expect("a launch");
        context.synchronize().expect("a wait");
    }
    let kept = Arc::strong_count(&owner) + cuda_sim::alive().streams;
    assert!(kept <= 34, "{kept} streams are kept");
    drop(executable);
}

#[test]
fn launches_on_many_streams_keep_the_capture_of_the_thread_valid() {
    let (_end, context, captured) = in_child!(on_stream());
    let executable = Graph::new(&context).and_then(|graph| graph.instantiate());
    let executable = executable.expect("an executable graph");
    let streams = streams::<{ if cfg!(miri) { 4 } else { 40 } }>(&context);
    let graph = captured.capture::<Error>(CaptureMode::Global, |_| {
        streams.iter().try_for_each(|stream| executable.launch(stream))
    });
    graph.expect("a valid capture");
    context.synchronize().expect("a wait");
}

#[test]
fn accesses_on_two_streams_in_turns_cost_the_same_each_time() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams = streams::<2>(&context);
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    graph.add_fill(&[], &mut data, 1).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&streams[0]).expect("a launch");
    let mut calls = Vec::new();
    for _ in 0..20 {
        cuda_sim::clear_calls();
        for stream in &streams {
            drop(executable.access(&mut data, stream).expect("access"));
        }
        calls.push(cuda_sim::calls().len());
    }
    assert_eq!(calls[1], calls[19], "{calls:?}");
    context.synchronize().expect("a wait");
}

#[test]
fn a_first_launch_waits_once_for_memory_that_many_nodes_share() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams = streams::<2>(&context);
    let shared = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    let shared = shared.share().expect("shared memory");
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    let mut last = Vec::new();
    let nodes = if cfg!(miri) { 5 } else { 50 };
    for _ in 0..nodes {
        last = vec![graph.add_copy(&last, &mut data, &shared).expect("a node").id()];
    }
    let mut executable = graph.instantiate().expect("an executable graph");
    cuda_sim::clear_calls();
    executable.launch(&streams[1]).expect("a launch");
    // One for each buffer.
    assert_eq!(calls_of("cuStreamWaitEvent"), 2);
    let node = graph.typed(last[0]).expect("a copy");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_copy(node, &mut data, &shared).expect("a change");
    cuda_sim::clear_calls();
    executable.launch(&streams[1]).expect("a launch");
    assert_eq!(calls_of("cuStreamWaitEvent"), 0, "the write is known");
    context.synchronize().expect("a wait");
}

#[test]
fn the_owner_of_a_stream_may_use_the_graph_that_forgets_the_stream() {
    /// Moves a buffer into the graph when the stream is not used any more.
    struct Owns(Arc<Mutex<(Graph, Option<DeviceBuffer<i32>>)>>);
    impl Drop for Owns {
        fn drop(&mut self) {
            if let Ok(mut place) = self.0.lock() {
                let (graph, buffer) = &mut *place;
                drop(graph.own(buffer.take().expect("one drop")).expect("the graph owns it"));
            }
        }
    }
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams = streams::<2>(&context);
    let buffer = || DeviceBuffer::<i32>::zeroed(&streams[0], 8).expect("memory");
    let mut graph = Graph::new(&context).expect("a graph");
    let mut data = graph.own(buffer()).expect("the graph owns it");
    let mut executable = graph.instantiate().expect("an executable graph");
    let owner = Owns(Arc::new(Mutex::new((graph, Some(buffer())))));
    // SAFETY: `streams` outlives the foreign stream.
    let foreign = unsafe { Stream::from_foreign(streams[1].as_raw(), &context, owner) };
    let foreign = foreign.expect("a stream");
    drop(executable.access(&mut data, &foreign).expect("access"));
    drop(foreign);
    executable.launch(&streams[0]).expect("a launch");
    // The list of earlier work has the last clone of the foreign stream, which this replaces.
    let access = executable.access(&mut data, &streams[1]);
    drop(access.expect("access"));
    executable.launch(&streams[0]).expect("a launch");
    context.synchronize().expect("a wait");
}

#[test]
fn a_panic_of_a_replaced_host_function_is_returned() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let node = graph.add_host_function(&[], || panic!("the first function"));
    let node = node.expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_host_function(node, || ()).expect("a change");
    stream.synchronize().expect("a wait");
    let panicked = executable.take_panic();
    assert!(
        matches!(&panicked, Err(Error::HostFunctionPanicked(text)) if text.contains("first")),
        "{panicked:?}"
    );
    executable.take_panic().expect("it was returned");
}

#[test]
fn a_node_is_found_only_in_a_clone_of_its_graph() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let mut graph = Graph::new(&context).expect("a graph");
    let node = graph.add_empty(&[]).expect("a node");
    let mut unrelated = Graph::new(&context).expect("a graph");
    unrelated.add_empty(&[]).expect("a node");
    assert!(matches!(invalid(unrelated.node_in_clone(node)), Invalid::OtherGraphNode { .. }));
    let mut clone = graph.try_clone().expect("a clone");
    clone.node_in_clone(node).expect("a copied node");
    let later = graph.add_empty(&[]).expect("a node");
    clone.add_empty(&[]).expect("a node");
    assert!(matches!(invalid(clone.node_in_clone(later)), Invalid::NoSuchNode { .. }));
}

#[test]
fn a_graph_of_many_nodes_is_queried_and_taken_apart_in_time_that_grows_with_it() {
    /// So many that time that grows with the square is noticed: minutes.
    const NODES: usize = if cfg!(miri) { 4 } else { 40_000 };
    let (_end, context) = in_child!(on(Profile::h200()));
    let mut graph = Graph::new(&context).expect("a graph");
    let nodes: Vec<_> = (0..NODES).map(|_| graph.add_empty(&[]).expect("a node")).collect();
    for node in &nodes {
        assert_eq!(graph.dependencies(*node).expect("a query"), []);
    }
    for node in nodes {
        graph.remove(node).expect("a node");
    }
    assert_eq!(graph.nodes().expect("a query"), []);
    graph.add_empty(&[]).expect("a node");
}

#[cfg(unix)]
#[test]
fn a_child_forked_during_a_launch_neither_launches_nor_waits() {
    use std::sync::atomic::{AtomicBool, Ordering};
    unsafe extern "C" {
        // A POSIX function that ends the process after some seconds, so that a hanging child is detected.
        fn alarm(seconds: core::ffi::c_uint) -> core::ffi::c_uint;
    }
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams = streams::<3>(&context);
    let executable = Graph::new(&context).and_then(|graph| graph.instantiate());
    let executable = std::mem::ManuallyDrop::new(executable.expect("an executable graph"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for stream in &streams[..2] {
                    executable.launch(stream).expect("a launch");
                }
                context.synchronize().expect("a wait");
            }
        });
        let forked = |_| {
            crate::common::fork::in_fork(|| {
                // SAFETY: `alarm` takes no pointer.
                unsafe { alarm(10) };
                let refused = streams
                    .iter()
                    .all(|stream| matches!(executable.launch(stream), Err(Error::Forked)));
                // SAFETY: the child has one thread and does not use the executable graph again.
                drop(unsafe { std::ptr::read(&*executable) });
                refused
            })
        };
        let all = (0..50).all(forked);
        stop.store(true, Ordering::Relaxed);
        assert!(all, "a child hung");
    });
    drop(std::mem::ManuallyDrop::into_inner(executable));
    drain(&context);
}
