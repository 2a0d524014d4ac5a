//! Graphs and executable graphs whose ownership is released: how long the objects live that they use.

use crate::prelude::*;
use cuda_safe::graph::GraphPinned;
use cuda_safe::graph::RetainedObjects;

const CONDITIONAL: &str = include_str!("../../kernels/conditional.ptx");

/// An executable graph that uses an object of each kind, and its memory.
struct Stage {
    object: Arc<()>,
    data: GraphBuffer<i32>,
    host: GraphPinned<i32>,
    executable: ExecutableGraph,
}

impl Stage {
    fn new(context: &Context, stream: &Stream) -> Self {
        let object = Arc::new(());
        let mut graph = Graph::new(context).expect("a graph");
        let buffer = DeviceBuffer::<i32>::zeroed(stream, 8).expect("memory");
        let mut data = graph.own(buffer).expect("the graph owns it");
        let host = PinnedBuffer::<i32>::zeroed(context, 8).expect("memory");
        let host = graph.own_pinned(host);
        let its = Arc::clone(&object);
        let first = graph.add_host_function(&[], move || drop(Arc::clone(&its)));
        let first = first.expect("a node").id();
        let copy = graph.add_copy(&[first], &mut data, &host).expect("a node");
        let module = Module::from_ptx(context, VECTOR).expect("a module");
        let scale = module.kernel("scale").expect("a kernel");
        let scale: TypedKernel<(&mut [i32], i32, i32, u32)> =
            scale.typed().expect("its parameters");
        let one = LaunchConfig::linear(1, 8);
        // SAFETY: the kernel accesses the 8 elements.
        unsafe { graph.add_kernel(&[copy.id()], context, &scale, one, (&mut data, 2, 0, 8)) }
            .expect("a node");
        let executable = graph.instantiate().expect("an executable graph");
        Self { object, data, host, executable }
    }
}

/// Enqueues so much work that queries of its completion do not complete it: each query runs one operation.
fn keep_busy(stream: &Stream) -> DeviceBuffer<u8> {
    let mut buffer = DeviceBuffer::zeroed(stream, 8).expect("memory");
    for _ in 0..100 {
        buffer.fill(1).expect("a fill");
    }
    buffer
}

/// Returns how often a function was called since the calls were cleared. In contrast to `alive`, this runs no
/// work.
fn count(function: &str) -> usize {
    cuda_sim::calls().iter().filter(|its| its.function == function).count()
}

/// Releases ownership of an executable graph, and destroys it. Its launches continue.
fn destroyed(executable: ExecutableGraph) -> RetainedObjects {
    let (raw, objects): (CUgraphExec, _) = executable.into_raw();
    // SAFETY: `into_raw` released ownership, and no other code uses the handle.
    let code = unsafe { cuGraphExecDestroy(raw) };
    assert!(code.is_success());
    objects
}

#[test]
fn dropping_the_objects_of_a_running_launch_frees_none_of_them() {
    let (_end, context, stream) = in_child!(on_stream());
    let Stage { object, data, host, executable } = Stage::new(&context, &stream);
    let _work = keep_busy(&stream);
    executable.launch(&stream).expect("a launch");
    let objects = destroyed(executable);
    cuda_sim::clear_calls();
    drop(objects);
    let waits = |call: &Call| call.function.contains("Synchronize");
    assert!(!cuda_sim::calls().iter().any(waits));
    assert_eq!(Arc::strong_count(&object), 2, "the launch has not run");
    assert_eq!(count("cuModuleUnload"), 0);
    let data = data.into_buffer().expect_err("the launch uses the memory");
    let host = host.into_pinned().expect_err("the launch uses the memory");
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
    assert_eq!(alive().modules, 0);
    assert_eq!(deferred_releases(), 0);
    data.into_buffer().expect("no launch uses the memory");
    host.into_pinned().expect("no launch uses the memory");
}

#[test]
fn the_objects_outlive_the_launches_on_all_streams_which_they_keep_alive() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams = [context.stream(), context.stream()];
    let [one, other] = streams.map(|its| its.expect("a stream"));
    let Stage { object, executable, .. } = Stage::new(&context, &one);
    let work = [&one, &other].map(keep_busy);
    executable.launch(&one).expect("a launch");
    executable.launch(&other).expect("a launch");
    drop((one, other, work));
    drop(destroyed(executable));
    assert_eq!(count("cuStreamDestroy_v2"), 0);
    assert_eq!(Arc::strong_count(&object), 2);
    context.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
    assert_eq!(alive().streams, 0);
}

#[test]
fn without_a_launch_or_after_it_the_objects_are_released_at_once() {
    let (_end, context, stream) = in_child!(on_stream());
    for launches in 0..2 {
        let stage = Stage::new(&context, &stream);
        for _ in 0..launches {
            stage.executable.launch(&stream).expect("a launch");
        }
        stream.synchronize().expect("a wait");
        drop(destroyed(stage.executable));
        assert_eq!(Arc::strong_count(&stage.object), 1);
        assert_eq!(alive().modules, 0);
        assert_eq!(deferred_releases(), 0);
    }
}

#[test]
fn objects_that_a_change_replaced_outlive_the_launches_too() {
    let (_end, context, stream) = in_child!(on_stream());
    let object = Arc::new(());
    let mut graph = Graph::new(&context).expect("a graph");
    let its = Arc::clone(&object);
    let node = graph.add_host_function(&[], move || drop(Arc::clone(&its)));
    let node = node.expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_host_function(node, || {}).expect("a change");
    drop(graph);
    drop(destroyed(executable));
    assert_eq!(Arc::strong_count(&object), 2, "the launch has not run");
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn dropped_during_a_capture_or_in_a_host_function_they_are_released_later() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let streams = [context.stream(), context.stream()];
    let [stream, other] = streams.map(|its| its.expect("a stream"));
    let Stage { object, executable, .. } = Stage::new(&context, &stream);
    executable.launch(&stream).expect("a launch");
    let objects = destroyed(executable);
    let captured = stream.capture::<Error>(CaptureMode::default(), |_| {
        drop(objects);
        assert!(deferred_releases() > 0);
        Ok(())
    });
    drop(captured.expect("the capture is intact"));
    assert_eq!(Arc::strong_count(&object), 2);
    context.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);

    let Stage { object, executable, .. } = Stage::new(&context, &stream);
    executable.launch(&stream).expect("a launch");
    let objects = destroyed(executable);
    other.launch_host_function(move || drop(objects)).expect("a function");
    context.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
    assert_eq!(deferred_releases(), 0);
}

#[test]
fn the_drop_waits_for_the_launches_if_an_object_is_borrowed() {
    let (_end, context) = in_child!(on(Profile::h200()));
    // SAFETY: `context` outlives the borrowed context.
    let borrowed = unsafe { Context::borrow_raw(context.as_raw()) }.expect("a context");
    let stream = context.stream().expect("a stream");
    let Stage { object, executable, .. } = Stage::new(&borrowed, &stream);
    let _work = keep_busy(&stream);
    executable.launch(&stream).expect("a launch");
    drop(destroyed(executable));
    assert_eq!(Arc::strong_count(&object), 1);
    assert!(stream.is_complete().expect("a query"));
}

#[test]
fn forgetting_the_objects_leaks_them_and_nothing_else() {
    let (_end, context) = in_child!(leaking());
    let stream = context.stream().expect("a stream");
    let Stage { object, executable, .. } = Stage::new(&context, &stream);
    executable.launch(&stream).expect("a launch");
    std::mem::forget(destroyed(executable));
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 2);
    assert_eq!(alive().modules, 1);
}

#[test]
fn the_objects_of_a_running_loop_outlive_it() {
    let (_end, context, stream) = in_child!(on_stream());
    let module = Module::from_ptx(&context, CONDITIONAL).expect("a module");
    let choose = module.kernel("choose").and_then(|kernel| kernel.typed());
    let choose: TypedKernel<(ConditionalHandle, u32)> = choose.expect("a kernel");
    drop(module);
    let mut graph = Graph::new(&context).expect("a graph");
    let handle = graph.conditional_handle(&context, Some(1));
    let body = |body: &mut Graph| {
        let one = LaunchConfig::linear(1, 1);
        // SAFETY: the kernel sets the handle that it gets.
        unsafe { body.add_kernel(&[], &context, &choose, one, (handle.clone()?, 0)) }?;
        Ok(())
    };
    graph.add_while(&[], handle.clone().expect("a handle"), body).expect("a node");
    drop(choose);
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    let (raw, objects) = executable.into_raw();
    drop(objects);
    assert_eq!(count("cuModuleUnload"), 0, "the body has not run");
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(alive().modules, 0);
    // SAFETY: `into_raw` released ownership, and the launch is complete.
    let code = unsafe { cuGraphExecDestroy(raw) };
    assert!(code.is_success());
}

#[test]
fn the_objects_of_a_graph_live_as_long_as_a_launch_of_its_executable_graph() {
    let (_end, context, stream) = in_child!(on_stream());
    let object = Arc::new(());
    let mut graph = Graph::new(&context).expect("a graph");
    let its = Arc::clone(&object);
    graph.add_host_function(&[], move || drop(Arc::clone(&its))).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let (raw, of_graph) = graph.into_raw();
    // SAFETY: `into_raw` released ownership, and no other code uses the handle.
    let code = unsafe { cuGraphDestroy(raw) };
    assert!(code.is_success());
    drop(destroyed(executable));
    drop(of_graph);
    assert_eq!(Arc::strong_count(&object), 2, "the launch has not run");
    stream.synchronize().expect("a wait");
    drain(&context);
    assert_eq!(Arc::strong_count(&object), 1);
}

#[test]
fn memory_that_the_last_launch_keeps_is_not_freed() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let options = AllocOptions::default();
    let added = graph.add_alloc::<i32>(&[], 4, &options);
    let (_node, memory) = added.expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    drop(destroyed(executable));
    graph.instantiate().expect_err("the memory belongs to the handle");
    drop(graph);
    stream.synchronize().expect("a wait");
    drain(&context);
    // SAFETY: no other code frees the memory, or uses it.
    let code = unsafe { cuMemFreeAsync(memory.as_raw(), stream.as_raw()) };
    assert!(code.is_success());
}
