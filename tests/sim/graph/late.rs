//! Executable graphs that are destroyed after their launches: with conditional nodes, and for launches from
//! the device.

use crate::prelude::*;
use cuda_safe::graph::DeviceGraph;

const CONDITIONAL: &str = include_str!("../../kernels/conditional.ptx");
/// `start(graph)` launches a graph as "fire and forget". A GPU needs the device runtime for it, see tests/gpu.
const START: &str = "
    .version 6.0
    .target sm_52
    .address_size 64
    .extern .func (.param .b32 error) cudaGraphLaunch(.param .b64 graph, .param .b64 stream);
    .visible .entry start(.param .u64 graph) {
        .reg .b64 %d1;
        .param .b64 which;
        .param .b64 stream;
        .param .b32 error;
        ld.param.u64 %d1, [graph];
        st.param.b64 [which], %d1;
        st.param.b64 [stream], 0x0200000000000000;
        call.uni (error), cudaGraphLaunch, (which, stream);
        ret;
    }
";
const ONE: LaunchConfig = LaunchConfig::linear(1, 1);
const FOR_DEVICE: InstantiateOptions<'static> = InstantiateOptions {
    device_launch: true,
    auto_free_on_launch: false,
    upload: None,
    use_node_priority: false,
    _non_exhaustive: (),
};

fn was_destroyed() -> bool {
    let mut calls = cuda_sim::calls().into_iter();
    calls.any(|call| call.function == "cuGraphExecDestroy")
}

/// Returns a graph with a body whose kernel sets the handle.
fn conditional(context: &Context) -> Graph {
    let module = Module::from_ptx(context, CONDITIONAL).expect("a module");
    let choose = module.kernel("choose").expect("a kernel");
    let choose: TypedKernel<(ConditionalHandle, u32)> = choose.typed().expect("its parameters");
    let mut graph = Graph::new(context).expect("a graph");
    let handle = graph.conditional_handle(context, Some(1));
    let handle = handle.expect("a handle");
    graph
        .add_while(&[], handle, |body| {
            // SAFETY: the kernel sets the handle that it gets.
            unsafe { body.add_kernel(&[], context, &choose, ONE, (handle, 0)) }?;
            Ok(())
        })
        .expect("a node");
    graph
}

#[test]
fn with_conditional_nodes_it_is_destroyed_after_its_launches_and_blocks_no_drop() {
    let (_end, context, stream) = in_child!(on_stream());
    let graph = conditional(&context);
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    cuda_sim::clear_calls();
    drop(executable);
    assert!(!was_destroyed());
    assert_eq!(deferred_releases(), 1);
    // The driver permits one, and this one exists.
    assert!(matches!(invalid(graph.instantiate()), Invalid::SecondExecutable { .. }));
    drop(graph);
    assert_eq!(cuda_sim::alive().modules, 1, "the body is not complete");
    stream.synchronize().expect("a wait");
    drain(&context);
    assert!(was_destroyed());
    assert_eq!(cuda_sim::alive().modules, 0);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn if_it_was_never_launched_the_drop_destroys_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let graph = conditional(&context);
    drop(graph.instantiate().expect("an executable graph"));
    assert!(was_destroyed());
    graph.instantiate().expect("another one");
}

#[test]
fn dropped_during_a_capture_of_its_stream_it_is_destroyed_afterwards() {
    let (_end, context, stream) = in_child!(on_stream());
    let executable = conditional(&context).instantiate();
    let executable = executable.expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    cuda_sim::clear_calls();
    let captured = stream.capture::<Error>(CaptureMode::ThreadLocal, |_| {
        drop(executable);
        Ok(())
    });
    captured.expect("the capture is intact");
    drain(&context);
    assert!(was_destroyed());
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn a_body_keeps_its_memory_alive_and_gives_it_back() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let handle = graph.conditional_handle(&context, Some(1));
    let mut data = None;
    graph
        .add_if(&[], handle.expect("a handle"), |body| {
            // Memory that a body owns belongs to the graph.
            let mut own = body.own(DeviceBuffer::<u8>::zeroed(&stream, 8)?)?;
            body.add_fill(&[], &mut own, 7)?;
            data = Some(own);
            Ok(())
        })
        .expect("a node");
    let mut data = data.expect("the body was built");
    let mut executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    let access = executable.access(&mut data, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [7; 8]);
    drop(access);
    drop(executable);
    stream.synchronize().expect("a wait");
    data.into_buffer().expect("no graph uses it");
}

#[test]
fn a_node_that_the_driver_does_not_create_leaves_the_handle_free() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let mut graph = Graph::new(&context).expect("a graph");
    let handle = graph.conditional_handle(&context, Some(0));
    let handle = handle.expect("a handle");
    let fault = Fault::of_function("cuGraphAddNode_v2").inject(Scope::Thread);
    assert!(graph.add_if(&[], handle, |_| Ok(())).is_err());
    drop(fault);
    graph.add_if(&[], handle, |_| Ok(())).expect("a node");
    graph.instantiate().expect("an executable graph");
}

/// An executable graph whose work is a fill with 7, and its memory.
fn work(context: &Context, stream: &Stream) -> (ExecutableGraph, GraphBuffer<u8>) {
    let mut graph = Graph::new(context).expect("a graph");
    let buffer = DeviceBuffer::<u8>::zeroed(stream, 8).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    graph.add_fill(&[], &mut data, 7).expect("a node");
    let executable = graph.instantiate_with(&FOR_DEVICE);
    (executable.expect("an executable graph"), data)
}

/// Returns a graph whose kernel launches another one.
fn launcher(context: &Context, work: &DeviceGraph) -> Graph {
    let start = Module::from_ptx(context, START).and_then(|module| module.kernel("start"));
    let start: TypedKernel<(DeviceGraph,)> =
        start.and_then(|kernel| kernel.typed()).expect("the test kernel");
    let mut graph = Graph::new(context).expect("a graph");
    // SAFETY: the kernel launches the graph that it gets, once.
    unsafe { graph.add_kernel(&[], context, &start, ONE, (work,)) }.expect("a node");
    graph
}

#[test]
fn a_graph_that_a_kernel_launches_lives_as_long_as_the_launches_of_the_kernel() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (stream, other) = (context.stream(), context.stream());
    let (stream, other) = (stream.expect("a stream"), other.expect("a stream"));
    let (executable, data) = work(&context, &stream);
    let device = DeviceGraph::new(executable, &other).expect("an upload");
    let outer = launcher(&context, &device).instantiate().expect("an executable graph");
    drop(device);
    cuda_sim::clear_calls();
    outer.launch(&stream).expect("a launch");
    let calls: Vec<_> = cuda_sim::calls().iter().map(|its| its.function).collect();
    let position = |name| calls.iter().position(|its| *its == name);
    assert!(position("cuStreamWaitEvent").is_some_and(|wait| {
        // The upload was on another stream.
        position("cuGraphLaunch").is_some_and(|launch| wait < launch)
    }));
    drop(outer);
    assert_eq!(cuda_sim::alive().executable_graphs, 1, "it may be launched");
    stream.synchronize().expect("a wait");
    let mut buffer = data.into_buffer().expect("the launches are complete");
    assert_eq!(cuda_sim::alive().executable_graphs, 0);
    buffer.rebind(&other).expect("the same context");
    assert_eq!(buffer.to_vec().expect("a copy"), [7; 8]);
}

#[test]
fn the_host_uses_a_device_graph_again_after_the_launches_of_the_kernel() {
    let (_end, context, stream) = in_child!(on_stream());
    let (executable, mut data) = work(&context, &stream);
    let device = DeviceGraph::new(executable, &stream).expect("an upload");
    let outer = launcher(&context, &device).instantiate().expect("an executable graph");
    outer.launch(&stream).expect("a launch");
    let device = device.into_executable().expect_err("a graph uses it");
    drop(outer);
    let device = device.into_executable().expect_err("a launch uses it");
    stream.synchronize().expect("a wait");
    let mut executable = device.into_executable().expect("nothing uses it");
    let access = executable.access(&mut data, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [7; 8]);
}

#[test]
fn a_device_graph_is_launched_after_earlier_launches_by_the_host() {
    let (_end, context, stream) = in_child!(on_stream());
    let other = context.stream().expect("a stream");
    let (executable, data) = work(&context, &stream);
    executable.launch(&stream).expect("a launch");
    let mut device = None;
    let made = calls(|| device = DeviceGraph::new(executable, &other).ok());
    // The upload is ordered after the launch, and the event follows both.
    let wait = made.iter().position(|its| *its == "cuStreamWaitEvent");
    let event = made.iter().rposition(|its| *its == "cuEventRecord");
    assert!(wait.is_some() && wait < event, "{made:?}");
    context.synchronize().expect("a wait");
    drop(device);
    drop(data);
}

#[test]
fn executable_graphs_that_kernels_cannot_launch_are_returned() {
    let (_end, context, stream) = in_child!(on_stream());
    let plain = Graph::new(&context).and_then(|graph| graph.instantiate());
    let plain = plain.expect("an executable graph");
    let refused = DeviceGraph::try_new(plain, &stream).expect_err("without the option");
    assert_eq!(invalid::<()>(Err(refused.error.clone())), Invalid::NotDeviceLaunch);
    refused.value.launch(&stream).expect("it is as before");
    stream.synchronize().expect("a wait");
    drop(refused);

    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 8).expect("memory");
    let captured = stream.capture(CaptureMode::ThreadLocal, |_| buffer.fill(7));
    let captured = captured.expect("a graph").instantiate_with(&FOR_DEVICE);
    let refused = DeviceGraph::new(captured.expect("an executable graph"), &stream);
    assert_eq!(invalid(refused), Invalid::GraphBorrows);
}
