//! Changes of executable graphs.

use crate::common::invalid;
use crate::graph::build::stage_with_graph as stage;
use crate::graph::{elements, launched};
use crate::module::kernels::{VECTOR, kernel};
use cuda_safe::graph::UpdateProblem;
use cuda_safe::{Context, DeviceBuffer, Error, Graph, Invalid, LaunchConfig, Stream, TypedKernel};
use std::sync::{Arc, Mutex};

type Scale = TypedKernel<(&'static mut [i32], i32, i32, u32)>;

const ONE: LaunchConfig = LaunchConfig::linear(1, 32);

fn scale(context: &Context) -> Scale {
    kernel(context, VECTOR, "scale")
}

#[test]
fn a_changed_kernel_runs_in_later_launches() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let buffer = DeviceBuffer::from_slice(&stream, &[1, 1, 1]).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    // SAFETY: the kernel accesses the first three elements.
    let node = unsafe { graph.add_kernel(&[], &context, &scale, ONE, (&mut data, 2, 0, 3)) };
    let node = node.expect("a node");
    let mut executable = launched(&graph, &stream);
    for factor in [3, 5] {
        let mut nodes = executable.nodes(&graph).expect("its graph");
        // SAFETY: as above.
        unsafe { nodes.set_kernel(node, &context, &scale, ONE, (&mut data, factor, 0, 3)) }
            .expect("a change");
        executable.launch(&stream).expect("a launch");
    }
    assert_eq!(elements(&mut executable, &mut data, &stream), [30; 3]);
}

#[test]
fn a_disabled_node_does_nothing() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let buffer = DeviceBuffer::<i32>::zeroed(&stream, 3).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    let node = graph.add_fill(&[], &mut data, 7).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    assert!(nodes.is_enabled(node).expect("a query"));
    nodes.set_enabled(node, false).expect("a change");
    assert!(!nodes.is_enabled(node).expect("a query"));
    nodes.set_fill(node, &mut data, 8).expect("a change");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [0; 3]);
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_enabled(node, true).expect("a change");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [8; 3]);
}

#[test]
fn copies_functions_and_events_are_changed() {
    let (context, stream, mut graph) = or_skip!(stage());
    let list = Arc::new(Mutex::new(Vec::new()));
    let append = |number: i32| {
        let list = Arc::clone(&list);
        move || list.lock().expect("no panic").push(number)
    };
    let mut memory = |elements: &[i32]| {
        let buffer = DeviceBuffer::from_slice(&stream, elements).expect("memory");
        graph.own(buffer).expect("the graph owns it")
    };
    let (first, second, mut target) = (memory(&[1; 4]), memory(&[2; 4]), memory(&[0; 4]));
    let events = [context.event(), context.event()].map(|its| its.expect("an event"));
    let copy = graph.add_copy(&[], &mut target, &first).expect("a node");
    let host = graph.add_host_function(&[], append(1)).expect("a node");
    let record = graph.add_event_record(&[host.id()], &events[0]).expect("a node");
    let wait = graph.add_event_wait(&[], &events[0]).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_copy(copy, &mut target, &second).expect("a change");
    nodes.set_host_function(host, append(2)).expect("a change");
    nodes.set_event_record(record, &events[1]).expect("a change");
    nodes.set_event_wait(wait, &events[1]).expect("a change");
    executable.launch(&stream).expect("a launch");
    events[1].synchronize().expect("the launch records it");
    assert_eq!(*list.lock().expect("no panic"), [2]);
    assert_eq!(elements(&mut executable, &mut target, &stream), [2; 4]);
}

#[test]
fn a_change_that_makes_accesses_unordered_is_refused() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let mut memory = || {
        let buffer = DeviceBuffer::<i32>::zeroed(&stream, 4).expect("memory");
        graph.own(buffer).expect("the graph owns it")
    };
    let (mut one, mut other) = (memory(), memory());
    graph.add_fill(&[], &mut one, 1).expect("a node");
    let node = graph.add_fill(&[], &mut other, 2).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    let refused = nodes.set_fill(node, &mut one, 3);
    assert!(matches!(invalid(refused), Invalid::UnorderedAccess { .. }));
    nodes.set_fill(node, &mut other, 4).expect("a change");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut one, &stream), [1; 4]);
}

#[test]
fn nodes_that_the_executable_graph_does_not_have_are_refused() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let removed = graph.add_host_function(&[], || ()).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    graph.remove(removed).expect("a node");
    let added = graph.add_host_function(&[], || ()).expect("a node");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    for node in [removed, added] {
        let refused = nodes.set_host_function(node, || ());
        assert!(matches!(invalid(refused), Invalid::NoSuchNode { .. }));
    }
    let other = Graph::new(&context).expect("a graph");
    let refused = executable.nodes(&other);
    assert!(matches!(invalid(refused), Invalid::OtherGraph { .. }));
}

#[test]
fn a_child_graph_is_changed_as_a_whole() {
    let (context, stream, mut graph) = or_skip!(stage());
    let list = Arc::new(Mutex::new(Vec::new()));
    let child = |number: i32| {
        let list = Arc::clone(&list);
        let mut child = Graph::new(&context).expect("a graph");
        let append = move || list.lock().expect("no panic").push(number);
        child.add_host_function(&[], append).expect("a node");
        child
    };
    let node = graph.add_child(&[], &mut child(1)).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_child(node, &child(2)).expect("a change");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(*list.lock().expect("no panic"), [2]);
}

#[test]
fn a_whole_graph_is_updated_from_one_with_the_same_shape() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let build = |graph: &mut Graph, value: i32, factor: i32| {
        let buffer = DeviceBuffer::<i32>::zeroed(&stream, 3).expect("memory");
        let mut data = graph.own(buffer).expect("the graph owns it");
        let fill = graph.add_fill(&[], &mut data, value).expect("a node");
        let arguments = (&mut data, factor, 0, 3);
        // SAFETY: the kernel accesses the first three elements.
        unsafe { graph.add_kernel(&[fill.id()], &context, &scale, ONE, arguments) }
            .expect("a node");
        (data, fill)
    };
    let (_first, fill) = build(&mut graph, 1, 1);
    let mut executable = launched(&graph, &stream);
    let mut second = Graph::new(&context).expect("a graph");
    let (mut data, _) = build(&mut second, 5, 3);
    executable.update(&second).expect("the same shape");
    assert!(matches!(invalid(second.instantiate()), Invalid::SecondExecutable { .. }));
    drop(second);
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [15; 3]);
    let mut nodes = executable.nodes(&graph).expect("its graph");
    assert!(nodes.is_enabled(fill).expect("the nodes are those of the first graph"));
    let refused = nodes.set_fill(
        fill,
        &mut own_again(&mut Graph::new(&context).expect("a graph"), &stream),
        1,
    );
    assert!(matches!(invalid(refused), Invalid::BufferOfOtherGraph { .. }));
}

fn own_again(graph: &mut Graph, stream: &Stream) -> cuda_safe::graph::GraphBuffer<i32> {
    let buffer = DeviceBuffer::<i32>::zeroed(stream, 3).expect("memory");
    graph.own(buffer).expect("the graph owns it")
}

mod provoked {
    //! Updates that the driver refuses.

    use super::*;

    #[test]
    fn an_update_from_another_shape_is_explained_and_changes_nothing() {
        let (context, stream, mut graph) = or_skip!(stage());
        let list = Arc::new(Mutex::new(0));
        let count = Arc::clone(&list);
        graph
            .add_host_function(&[], move || *count.lock().expect("no panic") += 1)
            .expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        let mut other = Graph::new(&context).expect("a graph");
        let its = other.add_empty(&[]).expect("a node");
        let error = executable.try_update(&other).expect_err("another type");
        assert_eq!(error.problem, Some(UpdateProblem::NodeType));
        assert_eq!(error.node, Some(its.id()));
        other.add_empty(&[]).expect("a node");
        let error = executable.try_update(&other).expect_err("another node");
        assert_eq!(error.problem, Some(UpdateProblem::Topology), "{error}");
        assert!(matches!(Error::from(error), Error::Driver(_)));
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
        assert_eq!(*list.lock().expect("no panic"), 1);
    }
}
