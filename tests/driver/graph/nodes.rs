//! Nodes of graphs that are changed and read: parameters, attributes, child graphs, memory operations,
//! and semaphores.

use crate::common::{self, invalid};
use crate::graph::build::{Log, stage};
use crate::graph::{ONE, add_scale, elements, launched, own, scale};
use crate::module::kernels::nothing;
use cuda_safe::capture::CaptureMode;
use cuda_safe::graph::{Node, kind, kind::Kind, node_attribute};
use cuda_safe::launch::AccessPolicyWindow;
use cuda_safe::stream::{BarrierScope, MemoryOperation, WaitCondition};
use cuda_safe::{DeviceBuffer, Graph, Invalid, LaunchConfig, TypedKernel};

#[test]
fn a_kernel_that_is_changed_in_the_graph_runs_in_executable_graphs_made_later() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let mut data = own(&mut graph, &stream, &[1, 1, 1]);
    let node = add_scale(&mut graph, &[], &scale, &mut data, 2);
    let mut executable = graph.instantiate().expect("an executable graph");
    let two = LaunchConfig::linear(2, 32);
    // SAFETY: as above.
    unsafe { graph.set_kernel(node, &context, &scale, two, (&mut data, 5, 0, 3)) }
        .expect("a change");
    assert_eq!(graph.kernel_config(node).expect("a query"), two);
    executable.launch(&stream).expect("a launch");
    executable.update(&graph).expect("the same shape");
    executable.launch(&stream).expect("a launch");
    drop(executable);
    let mut executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [50; 3]);
}

#[test]
fn copies_fills_functions_and_events_are_changed_in_the_graph() {
    let (context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let [first, second, mut target, mut filled] =
        [1, 2, 0, 0].map(|value| own(&mut graph, &stream, &[value; 4]));
    let events = [context.event(), context.event()].map(|its| its.expect("an event"));
    let copy = graph.add_copy(&[], &mut target, &first).expect("a node");
    let fill = graph.add_fill(&[], &mut filled, 3).expect("a node");
    let host = graph.add_host_function(&[], log.append("first")).expect("a node");
    let record = graph.add_event_record(&[host.id()], &events[0]).expect("a node");
    let wait = graph.add_event_wait(&[], &events[0]).expect("a node");

    graph.set_copy(copy, &mut target, &second).expect("a change");
    graph.set_fill(fill, &mut filled, 4).expect("a change");
    graph.set_host_function(host, log.append("second")).expect("a change");
    graph.set_event_record(record, &events[1]).expect("a change");
    graph.set_event_wait(wait, &events[1]).expect("a change");
    for node in [record.id(), wait.id()] {
        let event = graph.node_event(node).expect("it exists");
        assert_eq!(event.map(|its| its.as_raw()), Some(events[1].as_raw()));
        assert_eq!(graph.raw_node_event(node).expect("a query"), events[1].as_raw());
    }
    let mut executable = launched(&graph, &stream);
    events[1].synchronize().expect("the launch records it");
    assert_eq!(log.take(), ["second"]);
    assert_eq!(elements(&mut executable, &mut target, &stream), [2; 4]);
    assert_eq!(elements(&mut executable, &mut filled, &stream), [4; 4]);
}

#[test]
fn instantiation_checks_the_memory_of_changed_nodes() {
    let (context, stream, mut graph) = or_skip!(stage());
    let [mut one, mut other] = [(); 2].map(|()| own(&mut graph, &stream, &[0; 4]));
    graph.add_fill(&[], &mut one, 1).expect("a node");
    let node = graph.add_fill(&[], &mut other, 2).expect("a node");
    graph.instantiate().expect("they differ");
    graph.set_fill(node, &mut one, 3).expect("a change");
    let why = invalid(graph.instantiate());
    assert!(matches!(why, Invalid::UnorderedAccess { .. }), "{why}");

    // Memory of another graph is refused at once, and the node is as before.
    let mut others = Graph::new(&context).expect("a graph");
    let mut theirs = own(&mut others, &stream, &[0; 4]);
    let why = invalid(graph.set_fill(node, &mut theirs, 3));
    assert!(matches!(why, Invalid::BufferOfOtherGraph { .. }), "{why}");
    graph.set_fill(node, &mut other, 4).expect("a change");
    let mut executable = graph.instantiate().expect("they differ again");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut other, &stream), [4; 4]);
}

#[test]
fn nodes_that_do_not_exist_are_not_changed() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let mut other = Graph::new(&context).expect("a graph");
    let theirs = other.add_host_function(&[], || ()).expect("a node");
    let removed = graph.add_host_function(&[], || ()).expect("a node");
    graph.remove(removed).expect("a node");
    let why = invalid(graph.set_host_function(theirs, || ()));
    assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");
    let why = invalid(graph.set_host_function(removed, || ()));
    assert!(matches!(why, Invalid::NoSuchNode { .. }), "{why}");
    let empty = graph.add_empty(&[]).expect("a node");
    let why = invalid(graph.raw_node_event(empty));
    assert!(matches!(why, Invalid::NodeKind { .. }), "{why}");
}

#[test]
fn events_of_captured_nodes_are_found() {
    common::child::in_child(&[], || {
        let (context, stream, _graph) = or_skip!(stage());
        let event = context.event().expect("an event");
        let graph = stream.capture(CaptureMode::default(), |stream| event.record_external(stream));
        let mut graph = graph.expect("a graph");
        let node = graph.nodes().expect("a query")[0];
        assert!(graph.node_event(node).expect("it exists").is_none());
        assert_eq!(graph.raw_node_event(node).expect("a query"), event.as_raw());
    });
}

/// Adds a kernel that does nothing.
#[track_caller]
fn add_nothing(
    graph: &mut Graph,
    nothing: &TypedKernel<()>,
    config: LaunchConfig,
) -> Node<kind::Kernel> {
    let context = graph.context().clone();
    // SAFETY: the kernel accesses nothing.
    unsafe { graph.add_kernel(&[], &context, nothing, config, ()) }.expect("a node")
}

#[test]
fn attributes_of_kernel_nodes_are_set_read_and_copied() {
    let (context, stream, mut graph) = or_skip!(stage());
    let nothing = nothing(&context);
    let [first, second] = [(); 2].map(|()| add_nothing(&mut graph, &nothing, ONE));
    let priorities = context.stream_priorities().expect("a query");
    let high = *priorities.start().min(priorities.end());
    let remote = cuda_safe::sys::CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    // SAFETY: the kernel does nothing, whatever its attributes.
    let set = unsafe { graph.set_kernel_attribute(first, node_attribute::PRIORITY, high) };
    set.expect("a change");
    // SAFETY: as above.
    let set = unsafe { graph.set_kernel_attribute(first, node_attribute::MEMORY_DOMAIN, remote) };
    set.expect("a change");
    // SAFETY: as above.
    unsafe { graph.set_kernel(first, &context, &nothing, LaunchConfig::linear(4, 32), ()) }
        .expect("a change");
    // SAFETY: as above.
    unsafe { graph.copy_kernel_attributes(first, second) }.expect("a change");
    for node in [first, second] {
        let priority = graph.kernel_attribute(node, node_attribute::PRIORITY);
        assert_eq!(priority.expect("a query"), high);
        let domain = graph.kernel_attribute(node, node_attribute::MEMORY_DOMAIN);
        assert_eq!(domain.expect("a query"), remote);
    }
    let _executable = launched(&graph, &stream);
    stream.synchronize().expect("a wait");
}

#[test]
fn a_node_has_clusters() {
    let (context, stream, mut graph) = or_skip!(stage());
    if context.device().compute_capability().expect("a query").0 < 9 {
        return common::skip("the device has no clusters");
    }
    let node = add_nothing(&mut graph, &nothing(&context), LaunchConfig::linear(4, 32));
    let cluster = node_attribute::CLUSTER;
    // SAFETY: the kernel does nothing, whatever its clusters.
    unsafe { graph.set_kernel_attribute(node, cluster, [2, 1, 1]) }.expect("a change");
    assert_eq!(graph.kernel_attribute(node, cluster).expect("a query"), [2, 1, 1]);
    let _executable = launched(&graph, &stream);
    stream.synchronize().expect("a wait");
}

#[test]
fn an_attribute_out_of_range_is_refused_before_the_call() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let node = add_nothing(&mut graph, &nothing(&context), ONE);
    let access = cuda_safe::sys::CUaccessProperty::CU_ACCESS_PROPERTY_NORMAL;
    let (hit, miss) = (access, access);
    let window = AccessPolicyWindow { address: 0, bytes: 0, hit_ratio: 1.5, hit, miss };
    // SAFETY: the kernel does nothing, whatever its attributes.
    let set = unsafe { graph.set_kernel_attribute(node, node_attribute::ACCESS_POLICY, window) };
    assert!(matches!(invalid(set), Invalid::LaunchAttribute { .. }));
}

#[test]
fn a_child_graph_is_read_through_its_node() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let mut inner = Graph::new(&context).expect("a graph");
    inner.add_empty(&[]).expect("a node");
    let mut child = Graph::new(&context).expect("a graph");
    let first = child.add_host_function(&[], || ()).expect("a node");
    child.add_child(&[first.id()], &mut inner).expect("a node");
    let node = graph.add_child(&[], &mut child).expect("a node");

    let mut copy = graph.child(node).expect("a child graph");
    let nodes = copy.nodes().expect("a query");
    assert_eq!(nodes.len(), 2);
    let roots = copy.roots().expect("a query");
    let edges = copy.edges().expect("a query");
    assert_eq!(roots.len(), 1);
    assert_eq!(edges.len(), 1);
    let (host, nested) = (edges[0].from, edges[0].to);
    assert_eq!(host, roots[0]);
    let node_type = copy.node_type(host).expect("it exists");
    assert_eq!(node_type, kind::HostFunction::TYPE);
    assert_eq!(copy.dependencies(nested).expect("a query"), [host]);
    assert_eq!(copy.dependents(host).expect("a query"), [nested]);
    let nested = copy.typed(nested).expect("a child graph");
    let mut innermost = copy.child(nested).expect("a child graph");
    let nodes = innermost.nodes().expect("a query");
    assert_eq!(nodes.len(), 1);

    // The copies have handles of their own.
    for other in [host, nodes[0], first.id()] {
        let why = invalid(graph.node_type(other));
        assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");
    }
    let mut again = graph.child(node).expect("a child graph");
    assert!(again.nodes().expect("a query").iter().all(|its| *its != host));
    let why = invalid(again.node_type(host));
    assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");
}

#[test]
fn a_child_graph_that_was_moved_is_read_too() {
    let (context, stream, mut graph) = or_skip!(stage());
    or_skip!(common::since(12, 9));
    let mut child = Graph::new(&context).expect("a graph");
    let mut data = own(&mut child, &stream, &[0_u8; 4]);
    child.add_fill(&[], &mut data, 7).expect("a node");
    let node = graph.add_child_moved(&[], child).expect("a node");
    let mut view = graph.child(node).expect("a child graph");
    let nodes = view.nodes().expect("a query");
    let fill = view.typed::<kind::Fill>(nodes[0]).expect("a fill");
    let parameters = view.fill_parameters(fill).expect("a query");
    assert_eq!((parameters.dst, parameters.value), (data.as_raw(), 7));
    graph.instantiate().expect("the child is unchanged");
}

fn write(address: u64, value: u32) -> MemoryOperation {
    MemoryOperation::Write32 { address, value }
}

fn wait(address: u64, value: u32) -> MemoryOperation {
    MemoryOperation::Wait32 { address, value, condition: WaitCondition::AtLeast, flush: false }
}

#[test]
fn memory_operations_run_in_each_launch() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let words = DeviceBuffer::<u32>::zeroed_sync(&stream, 2).expect("memory");
    let (first, second) = (words.as_raw(), words.as_raw() + 4);
    let both = [
        write(first, 3),
        wait(first, 3),
        MemoryOperation::Barrier(BarrierScope::System),
        write(second, 4),
    ];
    // SAFETY: the words outlive the launches, and no other work uses them meanwhile.
    let node = unsafe { graph.add_memory_operations(&[], &both) }.expect("a node");
    assert_eq!(graph.memory_operations(node).expect("a query"), both);
    assert_eq!(graph.node_type(node).expect("it exists"), kind::MemoryOperations::TYPE);
    let mut executable = launched(&graph, &stream);
    assert_eq!(words.to_vec().expect("a copy"), [3, 4]);

    let mut others = both;
    others[3] = write(second, 5);
    let mut nodes = executable.nodes(&graph).expect("its graph");
    // SAFETY: as above.
    unsafe { nodes.set_memory_operations(node, &others) }.expect("a change");
    executable.launch(&stream).expect("a launch");
    assert_eq!(words.to_vec().expect("a copy"), [3, 5]);
    assert_eq!(graph.memory_operations(node).expect("a query"), both);

    let one = [write(first, 9)];
    // SAFETY: as above.
    unsafe { graph.set_memory_operations(node, &one) }.expect("a change");
    assert_eq!(graph.memory_operations(node).expect("a query"), one);
    let _executable = launched(&graph, &stream);
    assert_eq!(words.to_vec().expect("a copy"), [9, 5]);
}

#[test]
fn batches_of_no_and_of_too_many_memory_operations_are_refused() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let word = DeviceBuffer::<u32>::zeroed_sync(&stream, 1).expect("memory");
    // SAFETY: there is no operation.
    let none = unsafe { graph.add_memory_operations(&[], &[]) };
    assert!(matches!(invalid(none), Invalid::EmptyNode { .. }));
    let many = [write(word.as_raw(), 1); 256];
    // SAFETY: the graph is not launched.
    let refused = unsafe { graph.add_memory_operations(&[], &many) };
    assert!(matches!(invalid(refused), Invalid::TooManyOperations { count: 256, .. }));
    // SAFETY: the graph is not launched.
    let node = unsafe { graph.add_memory_operations(&[], &many[..1]) }.expect("a node");
    // SAFETY: there is no operation.
    let none = unsafe { graph.set_memory_operations(node, &[]) };
    assert!(matches!(invalid(none), Invalid::EmptyNode { .. }));
    assert_eq!(graph.memory_operations(node).expect("a query"), many[..1]);
}

#[test]
fn captured_memory_operations_are_read() {
    common::child::in_child(&[], || {
        let (_context, stream, _graph) = or_skip!(stage());
        let word = DeviceBuffer::<u32>::zeroed_sync(&stream, 1).expect("memory");
        let operation = write(word.as_raw(), 6);
        let graph = stream.capture(CaptureMode::default(), |stream| {
            // SAFETY: the graph is not launched.
            unsafe { stream.memory_operation(operation) }
        });
        let mut graph = graph.expect("a graph");
        let node = graph.nodes().expect("a query")[0];
        let node = graph.typed(node).expect("a memory operation");
        assert_eq!(graph.memory_operations(node).expect("a query"), [operation]);
    });
}

#[test]
fn nodes_without_semaphores_do_nothing() {
    let (_context, stream, mut graph) = or_skip!(stage());
    // SAFETY: there is no semaphore, here and below.
    let signal = unsafe { graph.add_semaphore_signals(&[], &[]) }.expect("a node");
    // SAFETY: as above.
    let wait = unsafe { graph.add_semaphore_waits(&[signal.id()], &[]) }.expect("a node");
    assert!(graph.semaphore_signals(signal).expect("a query").is_empty());
    assert!(graph.semaphore_waits(wait).expect("a query").is_empty());
    // SAFETY: as above.
    unsafe { graph.set_semaphore_signals(signal, &[]) }.expect("a change");
    // SAFETY: as above.
    unsafe { graph.set_semaphore_waits(wait, &[]) }.expect("a change");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    // SAFETY: as above.
    unsafe { nodes.set_semaphore_signals(signal, &[]) }.expect("a change");
    // SAFETY: as above.
    unsafe { nodes.set_semaphore_waits(wait, &[]) }.expect("a change");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
}

/// Calls that make the driver return an error.
mod provoked {
    use super::*;

    #[test]
    fn a_change_that_the_driver_refuses_leaves_the_node_as_it_was() {
        let (context, stream, mut graph) = or_skip!(stage());
        let scale = scale(&context);
        let mut data = own(&mut graph, &stream, &[1, 1, 1]);
        let node = add_scale(&mut graph, &[], &scale, &mut data, 2);
        let large = LaunchConfig::linear(1, 2048);
        // SAFETY: as above.
        unsafe { graph.set_kernel(node, &context, &scale, large, (&mut data, 3, 0, 3)) }
            .expect_err("too many threads");
        assert_eq!(graph.kernel_config(node).expect("a query"), ONE);
        let mut executable = launched(&graph, &stream);
        assert_eq!(elements(&mut executable, &mut data, &stream), [2; 3]);
    }

    #[test]
    fn a_kernel_node_that_device_code_may_change_stays_in_its_graph() {
        let (context, stream, mut graph) = or_skip!(stage());
        or_skip!(common::since(12, 4));
        let nothing = nothing(&context);
        let [node, other] = [(); 2].map(|()| add_nothing(&mut graph, &nothing, ONE));
        // SAFETY: no kernel gets the handle.
        let handle = unsafe { graph.make_device_updatable(node) }.expect("a handle");
        assert_ne!(handle.as_raw(), 0);
        graph.remove(node).expect_err("it cannot be removed");
        // SAFETY: the kernel does nothing, whatever its attributes.
        unsafe { graph.copy_kernel_attributes(node, other) }.expect_err("they cannot be copied");
        assert_eq!(graph.nodes().expect("a query").len(), 2);
        let mut executable = graph.instantiate().expect("an executable graph");
        graph.instantiate().expect_err("it is the second one");
        executable.update(&graph).expect_err("it cannot be updated");
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
    }
}
