//! Nodes of graphs that are changed: what is released when, the functions of older drivers, and calls
//! without a current context.

use crate::prelude::*;
use cuda_safe::graph::node_attribute;

const ONE: LaunchConfig = LaunchConfig::linear(1, 32);

fn nothing(context: &Context) -> TypedKernel<()> {
    let module = Module::from_ptx(context, VECTOR).expect("a module");
    let kernel = module.kernel("nothing").expect("a kernel");
    kernel.typed().expect("no parameters")
}

type Add = TypedKernel<(&'static [f32], &'static [f32], &'static mut [f32], u32)>;

fn add(context: &Context) -> Add {
    let module = Module::from_ptx(context, VECTOR).expect("a module");
    let kernel = module.kernel("add").expect("a kernel");
    kernel.typed().expect("its parameters")
}

/// Returns the driver calls of a function, without those that make the context current.
fn calls(of: impl FnOnce()) -> Vec<&'static str> {
    cuda_sim::clear_calls();
    of();
    let calls = cuda_sim::calls().into_iter().map(|call| call.function);
    calls.filter(|name| !name.starts_with("cuCtx")).collect()
}

/// Returns a function that owns a clone of the object.
fn owner(object: &Arc<()>) -> impl Fn() + Send + Sync + 'static {
    let object = Arc::clone(object);
    move || drop(Arc::clone(&object))
}

#[test]
fn objects_that_a_node_used_before_are_dropped_unless_an_executable_graph_shares_them() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (first, second) = (Arc::new(()), Arc::new(()));
    let mut graph = Graph::new(&context).expect("a graph");
    let host = graph.add_host_function(&[], owner(&first)).expect("a node");
    let kernel = nothing(&context);
    // SAFETY: the kernel accesses nothing.
    let node = unsafe { graph.add_kernel(&[], &context, &kernel, ONE, ()) };
    let node = node.expect("a node");
    drop(kernel);
    let event = context.event().expect("an event");
    let record = graph.add_event_record(&[], &event).expect("a node");
    drop(event);
    let before = cuda_sim::alive();
    assert_eq!((before.modules, before.events), (1, 1));

    // Nothing shares the objects of these nodes.
    graph.set_host_function(host, owner(&second)).expect("a change");
    assert_eq!(Arc::strong_count(&first), 1);
    let event = context.event().expect("an event");
    graph.set_event_record(record, &event).expect("a change");
    drop(event);
    assert_eq!(cuda_sim::alive().events, 1);
    let other = nothing(&context);
    // SAFETY: the kernel accesses nothing.
    unsafe { graph.set_kernel(node, &context, &other, ONE, ()) }.expect("a change");
    drop(other);
    assert_eq!(cuda_sim::alive().modules, 1);

    // An executable graph shares the objects.
    let executable = graph.instantiate().expect("an executable graph");
    graph.set_host_function(host, owner(&first)).expect("a change");
    let other = nothing(&context);
    // SAFETY: the kernel accesses nothing.
    unsafe { graph.set_kernel(node, &context, &other, ONE, ()) }.expect("a change");
    drop(other);
    assert_eq!(Arc::strong_count(&second), 2);
    assert_eq!(cuda_sim::alive().modules, 2);
    let stream = context.stream().expect("a stream");
    executable.launch(&stream).expect("everything is alive");
    stream.synchronize().expect("a wait");
    drop(executable);
    // Retries deferred releases.
    drop(context.event().expect("an event"));
    assert_eq!(Arc::strong_count(&second), 1);
    assert_eq!(cuda_sim::alive().modules, 1);
    let executable = graph.instantiate().expect("the new objects are alive");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
}

#[test]
fn memory_that_a_node_used_before_is_freed_with_its_last_owner() {
    let (_end, context, stream) = in_child!(on_stream());
    let shared = |value: u8| {
        let buffer = DeviceBuffer::from_slice(&stream, &[value; 4]).expect("memory");
        buffer.share().expect("an event")
    };
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    let first = shared(1);
    let copy = graph.add_copy(&[], &mut data, &first).expect("a node");
    drop(first);
    stream.synchronize().expect("a wait");
    let allocated = cuda_sim::alive().device_allocations;
    let second = shared(2);
    graph.set_copy(copy, &mut data, &second).expect("a change");
    drop(second);
    stream.synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().device_allocations, allocated);
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let access = executable.access(&mut data, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [2; 4]);
}

#[test]
fn a_failed_change_keeps_the_objects_of_the_node() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let (first, second) = (Arc::new(()), Arc::new(()));
    let mut graph = Graph::new(&context).expect("a graph");
    let node = graph.add_host_function(&[], owner(&first));
    let node = node.expect("a node");
    let fault = Fault::of_function("cuGraphHostNodeSetParams").inject(Scope::Thread);
    graph.set_host_function(node, owner(&second)).expect_err("the fault");
    drop(fault);
    assert_eq!(Arc::strong_count(&first), 2);
    assert_eq!(Arc::strong_count(&second), 1);
    let executable = graph.instantiate().expect("an executable graph");
    let stream = context.stream().expect("a stream");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
}

#[test]
fn kernels_are_changed_by_the_older_function_of_older_drivers() {
    let profile: Profile = "h200@11.8".parse().expect("a known profile");
    let (_end, context) = in_child!(on(profile));
    let kernel = nothing(&context);
    let mut graph = Graph::new(&context).expect("a graph");
    // SAFETY: the kernel accesses nothing.
    let node = unsafe { graph.add_kernel(&[], &context, &kernel, ONE, ()) };
    let node = node.expect("a node");
    cuda_sim::clear_calls();
    let config = LaunchConfig::linear(3, 32);
    // SAFETY: the kernel accesses nothing.
    unsafe { graph.set_kernel(node, &context, &kernel, config, ()) }.expect("a change");
    let calls = cuda_sim::calls();
    let is_older = |call: &Call| call.function == "cuGraphKernelNodeSetParams";
    assert!(calls.iter().any(is_older), "{calls:?}");
    let newer = node_attribute::PREFERRED_CLUSTER;
    let text = graph.kernel_attribute(node, newer).expect_err("it is newer").to_string();
    assert!(text.contains("PREFERRED_CLUSTER"), "{text}");
    assert!(text.contains("12.8"), "{text}");
}

#[test]
fn kernel_nodes_are_changed_with_their_context_current() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let kernel = nothing(&context);
    let mut graph = Graph::new(&context).expect("a graph");
    // SAFETY: the kernel accesses nothing.
    let node = unsafe { graph.add_kernel(&[], &context, &kernel, ONE, ()) };
    let node = node.expect("a node");
    let priority = node_attribute::PRIORITY;
    type Change<'a> = (&'static str, &'a dyn Fn(&mut Graph));
    let changes: [Change<'_>; 4] = [
        ("cuGraphKernelNodeSetParams_v2", &|graph| {
            // SAFETY: the kernel accesses nothing.
            unsafe { graph.set_kernel(node, &context, &kernel, ONE, ()) }.expect("a change");
        }),
        ("cuGraphKernelNodeSetAttribute", &|graph| {
            // SAFETY: the kernel does nothing, whatever its priority.
            unsafe { graph.set_kernel_attribute(node, priority, -1) }.expect("a change");
        }),
        ("cuGraphKernelNodeGetAttribute", &|graph| {
            assert_eq!(graph.kernel_attribute(node, priority).expect("a query"), -1);
        }),
        ("cuGraphKernelNodeCopyAttributes", &|graph| {
            // SAFETY: as above.
            unsafe { graph.copy_kernel_attributes(node, node) }.expect("a change");
        }),
    ];
    for (function, act) in changes {
        cuda_sim::clear_calls();
        act(&mut graph);
        let names: Vec<_> = cuda_sim::calls().iter().map(|call| call.function).collect();
        let place = |name| names.iter().position(|its| *its == name);
        let pushed = place("cuCtxPushCurrent_v2").expect("no context was current");
        assert!(Some(pushed) < place(function), "{names:?}");
    }
}

#[test]
fn a_kernel_that_changes_some_of_its_memory_keeps_all_of_it_alive() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let mut own = |value: f32| -> GraphBuffer<f32> {
        let buffer = DeviceBuffer::from_slice(&stream, &[value; 8]);
        graph.own(buffer.expect("memory")).expect("the graph owns it")
    };
    let (one, two, four, mut sum) = (own(1.0), own(2.0), own(4.0), own(0.0));
    let kernel = add(&context);
    // SAFETY: the kernel accesses the 8 elements.
    let node = unsafe { graph.add_kernel(&[], &context, &kernel, ONE, (&one, &two, &mut sum, 8)) };
    let node = node.expect("a node");
    let before = nothing(&context);
    // SAFETY: the kernel accesses nothing.
    let other = unsafe { graph.add_kernel(&[node.id()], &context, &before, ONE, ()) };
    let other = other.expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    // SAFETY: as above.
    unsafe { nodes.set_kernel(node, &context, &kernel, ONE, (&one, &four, &mut sum, 8)) }
        .expect("a change");
    // Enough changes that the objects from before the first one are released.
    let others = [nothing(&context), nothing(&context)];
    for kernel in others.iter().cycle().take(64) {
        // SAFETY: the kernel accesses nothing.
        unsafe { nodes.set_kernel(other, &context, kernel, ONE, ()) }.expect("a change");
    }
    stream.synchronize().expect("a wait");
    drop((one, two, four, graph, kernel));
    // Retries deferred releases.
    drop(context.event().expect("an event"));
    assert_eq!(cuda_sim::alive().device_allocations, 3);
    executable.launch(&stream).expect("everything is alive");
    let access = executable.access(&mut sum, &stream).expect("access");
    assert_eq!(access.as_slice().to_vec().expect("a copy"), [5.0; 8]);
}

#[test]
fn a_node_with_the_kernel_of_another_module_keeps_that_module_alive() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let mut own = || {
        let buffer = DeviceBuffer::<f32>::zeroed(&stream, 8).expect("memory");
        graph.own(buffer).expect("the graph owns it")
    };
    let (from, mut sum) = (own(), own());
    // SAFETY: the kernel accesses the 8 elements.
    let node = unsafe {
        let kernel = add(&context);
        graph.add_kernel(&[], &context, &kernel, ONE, (&from, &from, &mut sum, 8))
    };
    let node = node.expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let kernel = add(&context);
    let mut nodes = executable.nodes(&graph).expect("its graph");
    // SAFETY: as above.
    unsafe { nodes.set_kernel(node, &context, &kernel, ONE, (&from, &from, &mut sum, 8)) }
        .expect("a change");
    drop(kernel);
    drop(graph);
    assert_eq!(cuda_sim::alive().modules, 2, "the node may be in use");
    executable.launch(&stream).expect("the module is loaded");
    stream.synchronize().expect("a wait");
}

#[test]
fn changes_of_values_and_updates_release_nothing_and_later_launches_wait_for_nothing() {
    let (_end, context, stream) = in_child!(on_stream());
    let kernel = add(&context);
    let graph = || {
        let mut graph = Graph::new(&context).expect("a graph");
        let mut own = || {
            let buffer = DeviceBuffer::<f32>::zeroed(&stream, 8).expect("memory");
            graph.own(buffer).expect("the graph owns it")
        };
        let (from, mut sum) = (own(), own());
        // SAFETY: the kernel accesses the 8 elements.
        let node =
            unsafe { graph.add_kernel(&[], &context, &kernel, ONE, (&from, &from, &mut sum, 8)) };
        (graph, node.expect("a node"), from, sum)
    };
    let (first, node, from, mut sum) = graph();
    let (second, third) = (graph().0, graph().0);
    let mut executable = first.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    let changes = calls(|| {
        let mut nodes = executable.nodes(&first).expect("its graph");
        // More changes than are released together.
        for count in 0..8 * 10 {
            let arguments = (&from, &from, &mut sum, count % 8);
            // SAFETY: the kernel accesses fewer elements than there are.
            unsafe { nodes.set_kernel(node, &context, &kernel, ONE, arguments) }.expect("a change");
        }
    });
    assert_eq!(changes, ["cuGraphExecKernelNodeSetParams_v2"; 80]);
    let launches = calls(|| executable.launch(&stream).expect("a launch"));
    assert_eq!(launches, ["cuGraphLaunch"]);
    for graph in [&second, &third] {
        executable.update(graph).expect("an update");
        executable.launch(&stream).expect("a launch");
    }
    for graph in [&second, &third] {
        executable.update(graph).expect("an update");
        assert_eq!(calls(|| executable.launch(&stream).expect("a launch")), ["cuGraphLaunch"]);
    }
    stream.synchronize().expect("a wait");
    // Retries deferred releases.
    drop(context.event().expect("an event"));
}

#[test]
fn safe_code_cannot_launch_a_graph_that_borrows_memory_after_unsafe_code_did() {
    let (_end, context, stream) = in_child!(on_stream());
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    let graph = stream.capture(CaptureMode::default(), |_| buffer.fill(7));
    let executable = graph.and_then(|graph| graph.instantiate());
    let mut executable = executable.expect("an executable graph");
    for _ in 0..2 {
        // SAFETY: the buffer is alive and is used on this stream only.
        unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
        let refused = executable.launch(&stream);
        assert!(matches!(refused, Err(Error::Invalid(why)) if *why == Invalid::GraphBorrows));
    }
    // An update decides again who may launch it.
    let mut own = Graph::new(&context).expect("a graph");
    let memory = DeviceBuffer::<u8>::zeroed(&stream, 4).expect("memory");
    let mut memory = own.own(memory).expect("the graph owns it");
    own.add_fill(&[], &mut memory, 8).expect("a node");
    executable.update(&own).expect("the same nodes");
    executable.launch(&stream).expect("the graph owns its memory");
    let captured = stream.capture(CaptureMode::default(), |_| buffer.fill(9));
    executable.update(&captured.expect("a graph")).expect("the same nodes");
    let refused = executable.launch(&stream);
    assert!(matches!(refused, Err(Error::Invalid(why)) if *why == Invalid::GraphBorrows));
    stream.synchronize().expect("a wait");
}
