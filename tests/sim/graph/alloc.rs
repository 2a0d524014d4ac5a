//! Memory that nodes of a graph allocate: its frees, and its counts.

use crate::prelude::*;
use cuda_safe::graph::GraphAllocation;
use cuda_safe::graph::GraphMemoryUsage;

fn is_alive(result: Result<()>) -> bool {
    matches!(invalid(result), Invalid::AllocationAlive { .. })
}

/// Returns a graph that keeps four elements with the value 7, and its memory.
fn keeping(context: &Context) -> (Graph, GraphAllocation<i32>) {
    let mut graph = Graph::new(context).expect("a graph");
    let options = AllocOptions::default();
    let (node, mut memory) = graph.add_alloc(&[], 4, &options).expect("a node");
    graph.add_fill(&[node.id()], &mut memory, 7).expect("a node");
    (graph, memory)
}

fn with_auto_free(graph: &Graph) -> ExecutableGraph {
    let options = InstantiateOptions { auto_free_on_launch: true, ..InstantiateOptions::default() };
    graph.instantiate_with(&options).expect("a graph")
}

fn streams(context: &Context) -> [Stream; 2] {
    [context.stream(), context.stream()].map(|its| its.expect("a stream"))
}

fn count(function: &str) -> usize {
    cuda_sim::calls().iter().filter(|its| its.function == function).count()
}

#[test]
fn a_drop_frees_kept_memory_in_stream_order_without_a_wait() {
    let (_end, context, stream) = in_child!(on_stream());
    let (graph, _memory) = keeping(&context);
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    cuda_sim::clear_calls();
    drop(executable);
    assert_eq!(count("cuMemFreeAsync"), 1);
    let waits = |call: &Call| call.function.contains("Synchronize");
    assert!(!cuda_sim::calls().iter().any(waits));
    drop(graph);
    stream.synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().device_allocations, 0);
    drain(&context);
}

/// The rounds of tests of an order that the seed of the software driver chooses.
const ROUNDS: usize = if cfg!(miri) { 2 } else { 8 };

#[test]
fn memory_of_launches_on_several_streams_is_freed_after_all_of_them() {
    let (_end, context) = in_child!(on(Profile::h200().with_seed(3)));
    for _ in 0..ROUNDS {
        let [one, other] = streams(&context);
        let (graph, _memory) = keeping(&context);
        let executable = with_auto_free(&graph);
        executable.launch(&one).expect("a launch");
        executable.launch(&other).expect("a launch");
        executable.launch(&one).expect("a launch");
        cuda_sim::clear_calls();
        drop(executable);
        assert_eq!(count("cuMemFreeAsync"), 0, "both streams are busy");
        let executable = graph.instantiate().expect("another executable graph");
        assert!(is_alive(executable.launch(&one)));
        context.synchronize().expect("a wait");
        executable.launch(&one).expect("the deferred release ran");
        assert_eq!(count("cuMemFreeAsync"), 1);
        drop(executable);
        context.synchronize().expect("a wait");
        drain(&context);
    }
}

#[test]
fn a_drop_during_a_capture_frees_kept_memory_later() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [stream, other] = streams(&context);
    let (graph, memory) = keeping(&context);
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    stream.synchronize().expect("a wait");
    let captured = stream.capture::<Error>(CaptureMode::default(), |_| {
        drop(buffer);
        assert!(deferred_releases() > 0);
        assert!(is_alive(executable.launch(&other)));
        Ok(())
    });
    drop(captured.expect("a valid capture"));
    executable.launch(&other).expect("the deferred release ran");
    let captured = other.capture::<Error>(CaptureMode::default(), |_| {
        drop(executable);
        assert!(deferred_releases() > 0);
        Ok(())
    });
    drop(captured.expect("a valid capture"));
    drain(&context);
    context.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn a_drop_in_a_host_function_frees_kept_memory_later() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [stream, other] = streams(&context);
    let (graph, memory) = keeping(&context);
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    other.launch_host_function(move || drop((graph, memory, executable))).expect("a function");
    context.synchronize().expect("a wait");
    drain(&context);
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn a_launch_that_fails_keeps_no_memory() {
    let (_end, context) = in_child!(on(Profile::h200()));
    cuda_safe::event::set_reuse(false);
    let [stream, other] = streams(&context);
    let (graph, memory) = keeping(&context);
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&other).expect("a launch");
    let mut buffer = executable.take_allocation(&memory, &other).expect("kept");
    buffer.fill(1).expect("a fill");
    drop(buffer);
    for function in ["cuStreamWaitEvent", "cuEventCreate", "cuGraphLaunch"] {
        let fault = Fault::of_function(function).inject(Scope::Thread);
        executable.launch(&stream).expect_err("the fault");
        drop(fault);
        let why = invalid(executable.take_allocation(&memory, &stream));
        assert!(matches!(why, Invalid::AllocationNotAlive { .. }), "{why}");
    }
    executable.launch(&stream).expect("a launch");
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
    drop(buffer);
    drop(executable);
    context.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn kept_memory_is_taken_by_a_stream_of_its_context() {
    let (_end, context, stream) = in_child!(on_stream());
    let (graph, memory) = keeping(&context);
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let foreign = other.stream().expect("a stream");
    let refused = invalid(executable.take_allocation(&memory, &foreign));
    assert!(matches!(refused, Invalid::OtherContext { .. }), "{refused}");
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
}

#[test]
fn too_much_memory_is_an_error_of_each_launch() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let options = AllocOptions::default();
    let added = graph.add_alloc::<u8>(&[], 200 << 30, &options);
    let (_node, memory) = added.expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    for _ in 0..2 {
        let refused = executable.launch(&stream).expect_err("too much");
        assert_eq!(refused.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    }
    let refused = executable.take_allocation(&memory, &stream);
    assert!(matches!(invalid(refused), Invalid::AllocationNotAlive { .. }));
}

#[test]
fn launches_come_after_the_frees_of_buffers_on_other_streams() {
    let (_end, context) = in_child!(on(Profile::h200().with_seed(3)));
    for _ in 0..ROUNDS {
        let [stream, other] = streams(&context);
        let (graph, memory) = keeping(&context);
        let mut executable = with_auto_free(&graph);
        for _ in 0..4 {
            executable.launch(&stream).expect("a launch");
            executable.launch(&other).expect("a launch");
            let buffer = executable.take_allocation(&memory, &other).expect("kept");
            drop(buffer);
            executable.launch(&stream).expect("a launch");
            let mut buffer = executable.take_allocation(&memory, &stream).expect("kept");
            buffer.rebind(&other).expect("the same context");
            assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
        }
        context.synchronize().expect("a wait");
    }
}

#[test]
fn a_buffer_that_is_released_as_raw_memory_prevents_later_launches() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let (graph, memory) = keeping(&context);
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let buffer = executable.take_allocation(&memory, &stream).expect("kept");
    let (address, _) = buffer.into_raw();
    // SAFETY: the address is that of the memory, which nothing uses after the free.
    let freed = unsafe { cuMemFreeAsync(address, stream.as_raw()) };
    assert!(freed.is_success());
    assert!(is_alive(executable.launch(&stream)));
    stream.synchronize().expect("a wait");
}

#[test]
fn a_moved_child_graph_allocates_memory_that_its_parent_uses() {
    let (_end, context, stream) = in_child!(on_stream());
    let (child, mut memory) = keeping(&context);
    let mut parent = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<i32>::zeroed(&stream, 4).expect("memory");
    let mut data = parent.own(buffer).expect("the graph owns it");
    let early = parent.add_empty(&[]).expect("a node");
    let child = parent.add_child_moved(&[], child).expect("a node");
    let copy = parent.add_copy(&[child.id()], &mut data, &memory).expect("a node");
    assert!(matches!(invalid(parent.remove(early)), Invalid::MemoryNodes { .. }));
    let free = parent.add_free(&[copy.id()], &mut memory).expect("a node");
    let mut executable = parent.instantiate().expect("an executable graph");
    for _ in 0..2 {
        executable.launch(&stream).expect("a launch");
    }
    let access = executable.access(&mut data, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [7; 4]);
    drop(access);
    drop(executable);
    parent.add_fill(&[free.id()], &mut memory, 1).expect("a node");
    assert!(matches!(invalid(parent.instantiate()), Invalid::UnallocatedAccess { .. }));
}

/// Moves a graph into a new one, where a free node for the memory comes after it. The graph itself cannot get
/// the node after an instantiation.
fn freed_by_parent(context: &Context, child: Graph, memory: &mut GraphAllocation<i32>) -> Graph {
    let mut graph = Graph::new(context).expect("a graph");
    let child = graph.add_child_moved(&[], child).expect("a node");
    graph.add_free(&[child.id()], memory).expect("a node");
    graph
}

/// Returns an executable graph with a free node for memory that a buffer owns, which a launch before the free
/// node was added kept. The buffer has the elements 9, and is bound to `stream`.
fn freeing_memory_of_a_buffer(
    context: &Context,
    stream: &Stream,
    instantiate: fn(&Graph) -> ExecutableGraph,
) -> (ExecutableGraph, DeviceBuffer<i32>, GraphAllocation<i32>) {
    let (graph, mut memory) = keeping(context);
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(stream).expect("a launch");
    let mut buffer = executable.take_allocation(&memory, stream).expect("the launch kept it");
    buffer.fill(9).expect("a fill");
    drop(executable);
    let graph = freed_by_parent(context, graph, &mut memory);
    (instantiate(&graph), buffer, memory)
}

#[test]
fn a_free_node_that_is_added_later_does_not_free_the_memory_of_a_buffer() {
    let (_end, context, stream) = in_child!(on_stream());
    let plain: fn(&Graph) -> _ = |graph| graph.instantiate().expect("an executable graph");
    for instantiate in [plain, with_auto_free] {
        let (mut executable, buffer, memory) =
            freeing_memory_of_a_buffer(&context, &stream, instantiate);
        let refused = invalid(executable.launch(&stream));
        let why = Invalid::AllocationAlive { allocation: memory.number(), is_taken: true };
        assert_eq!(refused, why);
        assert_eq!(buffer.to_vec().expect("a copy"), [9; 4]);
        drop(buffer);
        for _ in 0..3 {
            executable.launch(&stream).expect("the memory is free");
        }
        let refused = executable.take_allocation(&memory, &stream);
        assert!(matches!(invalid(refused), Invalid::AllocationNotAlive { .. }));
        drop(executable);
        stream.synchronize().expect("a wait");
        drain(&context);
        assert_eq!(cuda_sim::alive().device_allocations, 0);
    }
}

#[test]
fn a_launch_with_a_free_node_comes_after_the_free_of_a_buffer_on_another_stream() {
    let (_end, context) = in_child!(on(Profile::h200().with_race_detection()));
    let plain: fn(&Graph) -> _ = |graph| graph.instantiate().expect("an executable graph");
    for instantiate in [plain, with_auto_free] {
        let [stream, other] = streams(&context);
        let (executable, buffer, _memory) =
            freeing_memory_of_a_buffer(&context, &stream, instantiate);
        drop(buffer);
        executable.launch(&other).expect("the free is enqueued");
        executable.launch(&stream).expect("a launch");
        executable.launch(&other).expect("a launch");
        drop(executable);
        context.synchronize().expect("a wait");
        drain(&context);
    }
    // The free is enqueued before the instantiation, by the drop of the first executable graph.
    let [stream, other] = streams(&context);
    let (graph, mut memory) = keeping(&context);
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    drop(executable);
    let graph = freed_by_parent(&context, graph, &mut memory);
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&other).expect("a launch");
    drop(executable);
    context.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn a_deferred_free_does_not_free_the_memory_of_a_later_launch() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [one, other] = streams(&context);
    let (graph, mut memory) = keeping(&context);
    let executable = with_auto_free(&graph);
    executable.launch(&one).expect("a launch");
    executable.launch(&other).expect("a launch");
    executable.launch(&one).expect("a launch");
    cuda_sim::clear_calls();
    drop(executable);
    assert_eq!(count("cuMemFreeAsync"), 0, "both streams are busy");
    let graph = freed_by_parent(&context, graph, &mut memory);
    let executable = with_auto_free(&graph);
    assert!(is_alive(executable.launch(&one)), "the free is deferred");
    assert_eq!(count("cuGraphLaunch"), 0);
    context.synchronize().expect("a wait");
    executable.launch(&one).expect("the deferred release ran");
    assert_eq!(count("cuMemFreeAsync"), 1);
    drop(executable);
    context.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn launches_with_a_free_node_for_free_memory_are_one_driver_call() {
    let (_end, context, stream) = in_child!(on_stream());
    let (graph, mut memory) = keeping(&context);
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    drop(executable);
    stream.synchronize().expect("a wait");
    drain(&context);
    let graph = freed_by_parent(&context, graph, &mut memory);
    // The first launch of the first one comes after the free.
    for _ in 0..2 {
        let executable = graph.instantiate().expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        cuda_sim::clear_calls();
        executable.launch(&stream).expect("a launch");
        let calls: Vec<_> = cuda_sim::calls().iter().map(|call| call.function).collect();
        assert_eq!(calls, ["cuGraphLaunch"]);
        drop(executable);
    }
    stream.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn a_launch_with_a_free_node_does_not_refuse_another_one_in_progress() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [stream, other] = streams(&context);
    let (executable, buffer, _memory) = freeing_memory_of_a_buffer(&context, &stream, |graph| {
        graph.instantiate().expect("an executable graph")
    });
    drop(buffer);
    let executable = Arc::new(executable);
    let (its, is_inside) = (Arc::clone(&executable), AtomicBool::new(false));
    let (sender, launched) = std::sync::mpsc::channel();
    cuda_sim::set_call_hook(move |function| {
        if function == "cuGraphLaunch" && !is_inside.swap(true, Ordering::Relaxed) {
            let _ = sender.send(its.launch(&other));
        }
    });
    executable.launch(&stream).expect("a launch");
    launched.try_recv().expect("a launch within the launch").expect("the memory is free");
    cuda_sim::set_call_hook(|_| {});
    drop(executable);
    context.synchronize().expect("a wait");
    drain(&context);
}

#[test]
fn a_borrowed_stream_launches_a_graph_that_frees_its_memory() {
    let (_end, context, stream) = in_child!(on_stream());
    // SAFETY: `stream` outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(stream.as_raw(), &context) };
    let borrowed = borrowed.expect("a stream");
    let plain: fn(&Graph) -> _ = |graph| graph.instantiate().expect("an executable graph");
    let (executable, buffer, _memory) = freeing_memory_of_a_buffer(&context, &stream, plain);
    let launch = || {
        // SAFETY: the launch is complete before the executable graph is dropped.
        unsafe { executable.launch_unchecked(&borrowed) }
    };
    assert!(is_alive(launch()));
    drop(buffer);
    launch().expect("nothing is kept");
    stream.synchronize().expect("a wait");
    drop(executable);
    drain(&context);
}

#[test]
fn an_allocation_that_fails_changes_nothing_about_what_the_graph_owns() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let fail = |graph: &mut Graph| {
        let options = AllocOptions::default();
        let _fault = Fault::of_function("cuGraphAddMemAllocNode").inject(Scope::Thread);
        graph.add_alloc::<u8>(&[], 4, &options).expect_err("the fault");
    };
    let mut graph = Graph::new(&context).expect("a graph");
    fail(&mut graph);
    graph.try_clone().expect("it owns no memory");
    // One executable graph at a time, because the driver permits no other one.
    let handle = graph.conditional_handle(&context, Some(0));
    let handle = handle.expect("a handle");
    fail(&mut graph);
    graph.add_if(&[], handle, |_| Ok(())).expect("a node with an empty body");
    fail(&mut graph);
    let _executable = graph.instantiate().expect("an executable graph");
    cuda_sim::clear_calls();
    assert!(matches!(invalid(graph.instantiate()), Invalid::SecondExecutable { .. }));
    assert_eq!(count("cuGraphInstantiateWithParams"), 0);
}

#[test]
fn other_devices_are_given_access_to_the_memory() {
    let (_end, context) = in_child!(on(Profile::h200().with_devices(2)));
    let peer = Device::get(1).expect("a device");
    let mut graph = Graph::new(&context).expect("a graph");
    let options = AllocOptions { access: &[(peer, MemoryAccess::Read)], ..AllocOptions::default() };
    let (node, _) = graph.add_alloc::<u8>(&[], 4, &options).expect("a node");
    let parameters = graph.alloc_parameters(node).expect("a query");
    assert_eq!(parameters.access, [(Some(MemoryLocation::Device(peer)), MemoryAccess::Read)]);
}

#[test]
fn the_memory_of_the_graphs_of_a_device_is_counted() {
    let (_end, context, stream) = in_child!(on_stream());
    let device = context.device();
    let usage = || device.graph_memory().expect("a query");
    let mut graph = Graph::new(&context).expect("a graph");
    let options = AllocOptions::default();
    let added = graph.add_alloc::<u64>(&[], 8 << 20, &options);
    let (node, mut memory) = added.expect("a node");
    graph.add_free(&[node.id()], &mut memory).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    let size = 64 << 20;
    let GraphMemoryUsage { used, reserved, .. } = usage();
    assert_eq!((used, reserved), (size, size));
    drop(executable);
    device.trim_graph_memory().expect("a trim");
    let GraphMemoryUsage { used, used_high, reserved, reserved_high, .. } = usage();
    assert_eq!((used, reserved), (0, 0));
    assert_eq!((used_high, reserved_high), (size, size));
    device.reset_graph_memory_high().expect("a reset");
    let GraphMemoryUsage { used_high, reserved_high, .. } = usage();
    assert_eq!((used_high, reserved_high), (0, 0));
}
